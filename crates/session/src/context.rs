//! What a plan is done with.

use std::sync::Arc;

use crate::{Events, Interrupt, ModelPool};

/// Who is told what happens, and who may end it.
#[derive(Clone)]
pub struct Context {
    /// Is told.
    pub events: Arc<dyn Events>,
    /// Ends it.
    pub interrupt: Interrupt,
    /// The models that are in memory, from one plan to the next.
    pub models: Arc<ModelPool>,
}

impl Context {
    /// With no model in memory yet.
    pub fn new(events: Arc<dyn Events>, interrupt: Interrupt) -> Self {
        let models = Arc::new(ModelPool::new(events.clone()));
        Self { events, interrupt, models }
    }
}
