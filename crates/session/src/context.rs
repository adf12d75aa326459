//! What a plan needs from its caller.

use std::sync::Arc;

use crate::{Events, Interrupt, ModelPool};

/// Receives events and can interrupt a plan.
#[derive(Clone)]
pub struct Context {
    /// Receives events.
    pub events: Arc<dyn Events>,
    /// Interrupts the plan.
    pub interrupt: Interrupt,
    /// Models kept in memory between plans.
    pub models: Arc<ModelPool>,
}

impl Context {
    /// A context with no model in memory.
    pub fn new(events: Arc<dyn Events>, interrupt: Interrupt) -> Self {
        let models = Arc::new(ModelPool::new(events.clone()));
        Self { events, interrupt, models }
    }
}
