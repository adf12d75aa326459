//! What a run would cost, by asking a model that plans instead of answering.

use probity_lm::{LanguageModel, SinkError};
use probity_methods::{Output, Run};
use probity_runtime::{Estimate, LoadOptions, Model, Plan, Planner};
use serde_json::Value;

use crate::check::Ready;
use crate::plan::Context;
use crate::{Notice, SessionError};

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

/// What a run would cost on this machine.
#[derive(Debug, Clone)]
pub struct DryRun {
    /// The model's name.
    pub model: String,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// How it would be run.
    pub options: LoadOptions,
    /// What would be asked.
    pub plan: Plan,
    /// How long that would take.
    pub estimate: Estimate,
    /// Further models, whose questions are counted as if this one were asked.
    pub others: usize,
}

impl DryRun {
    /// Measures the machine for a plan.
    pub fn of(model: &Model, plan: Plan, context: &Context) -> Result<Self, SessionError> {
        context.events.notice(Notice::Message("dry run: measuring this machine"));
        let estimate = model.estimate(&plan)?;
        let (name, weight_bytes, options) = (model.description().name.clone(), model.weight_bytes(), model.options());
        Ok(Self { model: name, weight_bytes, options, plan, estimate, others: 0 })
    }

    /// Of a stage.
    pub(crate) fn of_stage(ready: &Ready<'_>, context: &Context) -> Result<Self, SessionError> {
        let model = context.models.language(&ready.stage.model)?;
        let planner = Planner::new(&model);
        let others: Vec<&dyn LanguageModel> = ready.others.iter().map(|_| -> &dyn LanguageModel { &planner }).collect();
        let for_metrics = ready.metric_models(&context.models);
        let mut nowhere = Nowhere;
        let mut run = Run::new(&planner, &mut nowhere).with_other_models(&others).with_metric_models(for_metrics);
        ready.stage.configured.run(&ready.samples, &mut run)?;
        Ok(Self { others: others.len(), ..Self::of(&model, planner.into_plan(), context)? })
    }
}
