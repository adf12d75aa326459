//! The cost of a run, computed with models that plan instead of answering.

use std::sync::Arc;

use parking_lot::Mutex;
use probity_lm::LanguageModel;
use probity_runtime::{Model, PlannedCost};

use crate::context::Context;
use crate::nowhere::Nowhere;
use crate::pooled::PooledModel;
use crate::ready::{ModelFiles, ReadyStage};
use crate::{DryRun, Notice, PlannedPart, SessionError};

/// The plans so far, and the current stage.
#[derive(Default)]
struct Ledger {
    stage: Option<&'static str>,
    /// By stage and index of the model, in the order of their first queries.
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

/// The cost of a planned run, by stage of its method and by model.
pub(crate) fn dry_run(ready: &ReadyStage<'_>, model: &ModelFiles, context: &Context) -> Result<DryRun, SessionError> {
    let pool = &context.models;
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let asked: Vec<&ModelFiles> = std::iter::once(model).chain(ready.others.iter().map(Arc::as_ref)).collect();
    let planning = |(position, files): (usize, &&ModelFiles)| {
        let ledger = ledger.clone();
        let model = PooledModel::new(pool, files.opened.clone(), files.dry.description().clone());
        model.planning(move |plan| ledger.lock().add(position, plan))
    };
    let models: Vec<PooledModel> = asked.iter().enumerate().map(planning).collect();
    let others: Vec<&dyn LanguageModel> = models[1..].iter().map(|model| -> &dyn LanguageModel { model }).collect();
    let mut stages = Nowhere(|stage| ledger.lock().stage = Some(stage));
    ready.run_dry(Some(&models[0]), &others, pool, &mut stages)?;
    context.events.notice(Notice::Message("dry run: measuring this machine"));
    let plans = std::mem::take(&mut ledger.lock().plans);
    let mut parts = Vec::with_capacity(plans.len());
    for ((stage, model), plan) in plans {
        parts.push(PlannedPart::measure(stage, &*pool.language(&asked[model].opened)?, plan)?);
    }
    if parts.is_empty() {
        parts.push(PlannedPart::measure(None, &*pool.language(&model.opened)?, PlannedCost::default())?);
    }
    Ok(DryRun { parts })
}

impl PlannedPart {
    /// Adds the memory and time on this machine to a plan.
    pub fn measure(stage: Option<&'static str>, model: &Model, plan: PlannedCost) -> Result<Self, SessionError> {
        let estimate = model.estimate(&plan)?;
        let (name, memory, options) = (model.description().name.clone(), model.planned_memory(&plan), model.options());
        Ok(Self { stage, model: name, memory, options, plan, estimate })
    }
}
