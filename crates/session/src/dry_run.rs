//! What a run would cost, by asking a model that plans instead of answering.

use probity_lm::{LanguageModel, SinkError};
use probity_methods::Output;
use probity_runtime::{Model, Plan};
use serde_json::Value;

use crate::{DryRun, Events, Notice, SessionError};

/// Takes rows and keeps none.
pub(crate) struct Nowhere;

impl Output for Nowhere {
    fn table(&mut self, _: &'static str, _: usize) -> Result<(), SinkError> {
        Ok(())
    }

    fn row(&mut self, _: &'static str, _: usize, _: Value) -> Result<(), SinkError> {
        Ok(())
    }

    fn progress(&mut self, _: usize, _: usize) {}
}

impl DryRun {
    /// Measures the machine for a plan.
    pub fn of(model: &Model, plan: Plan, events: &dyn Events) -> Result<Self, SessionError> {
        events.notice(Notice::Message("dry run: measuring this machine"));
        let estimate = model.estimate(&plan)?;
        let (name, weight_bytes, options) = (model.description().name.clone(), model.weight_bytes(), model.options());
        Ok(Self { model: name, weight_bytes, options, plan, estimate, others: 0 })
    }
}
