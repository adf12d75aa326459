//! What a run would cost, by asking models that plan instead of answering.

use std::sync::Arc;

use parking_lot::Mutex;
use probity_lm::{LanguageModel, ModelDescription};
use probity_methods::{MethodError, Run, Staging};
use probity_runtime::{Model, PlannedCost};

use crate::context::Context;
use crate::nowhere::Nowhere;
use crate::options::ModelOptions;
use crate::pooled::PooledModel;
use crate::ready::ReadyStage;
use crate::{DryRun, Notice, PlannedPart, SessionError};

/// What was planned so far, and for which stage.
#[derive(Default)]
struct Ledger {
    stage: Option<&'static str>,
    /// By stage and the position of the model, in the order in which each was first asked.
    plans: Vec<((Option<&'static str>, usize), PlannedCost)>,
}

impl Ledger {
    fn add(&mut self, model: usize, plan: PlannedCost) {
        let of = (self.stage, model);
        match self.plans.iter_mut().find(|(known, _)| *known == of) {
            Some((_, known)) => *known += plan,
            None => self.plans.push((of, plan)),
        }
    }
}

/// What a stage of a plan would cost: by stage of its method and by model.
pub(crate) fn dry_run(ready: &ReadyStage<'_>, context: &Context) -> Result<DryRun, SessionError> {
    let pool = &context.models;
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let description = pool.language(&ready.stage.model)?.description().clone();
    let others = ready.others.iter().map(|other| (&other.options, other.description().clone()));
    let asked: Vec<(&ModelOptions, ModelDescription)> =
        std::iter::once((&ready.stage.model, description)).chain(others).collect();
    let planning = |(position, (options, description)): (usize, &(&ModelOptions, ModelDescription))| {
        let ledger = ledger.clone();
        let model = PooledModel::new(pool, (*options).clone(), description.clone());
        model.planning(move |plan| ledger.lock().add(position, plan))
    };
    let models: Vec<PooledModel> = asked.iter().enumerate().map(planning).collect();
    let others: Vec<&dyn LanguageModel> = models[1..].iter().map(|model| -> &dyn LanguageModel { model }).collect();
    let mut stages = Nowhere(|stage| ledger.lock().stage = Some(stage));
    let staging = Staging { stands_in: true, ..ready.staging.clone() };
    let for_metrics = ready.metric_models(pool);
    let run = Run::new(&models[0], &mut stages).with_other_models(&others).with_metric_models(for_metrics);
    let mut run = run.with_staging(staging);
    match ready.stage.configured.run(&ready.samples, &mut run) {
        Ok(_) | Err(MethodError::Rehearsed | MethodError::Until(_)) => {}
        Err(error) => return Err(error.into()),
    }
    context.events.notice(Notice::Message("dry run: measuring this machine"));
    let plans = std::mem::take(&mut ledger.lock().plans);
    let mut parts = Vec::with_capacity(plans.len());
    for ((stage, model), plan) in plans {
        parts.push(PlannedPart::of(stage, &*pool.language(asked[model].0)?, plan)?);
    }
    if parts.is_empty() {
        parts.push(PlannedPart::of(None, &*pool.language(&ready.stage.model)?, PlannedCost::default())?);
    }
    Ok(DryRun { parts })
}

impl PlannedPart {
    /// Measures the machine for a plan.
    pub fn of(stage: Option<&'static str>, model: &Model, plan: PlannedCost) -> Result<Self, SessionError> {
        let estimate = model.estimate(&plan)?;
        let (name, memory, options) = (model.description().name.clone(), model.planned_memory(&plan), model.options());
        Ok(Self { stage, model: name, memory, options, plan, estimate })
    }
}
