//! What a run would cost, by asking models that plan instead of answering.

use std::sync::Arc;

use parking_lot::Mutex;
use probity_lm::{
    GenerateRequest, GenerateResult, LanguageModel, LmError, ModelDescription, Requests, ScoreRequest, ScoreResult,
    Sink, SinkError, Usage,
};
use probity_methods::{MethodError, Run, RunOutput, Staging};
use probity_runtime::{Model, PlannedCost, Planner};
use serde_json::Value;

use crate::context::Context;
use crate::options::ModelOptions;
use crate::ready::ReadyStage;
use crate::{DryRun, ModelPool, Notice, PlannedPart, SessionError};

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

/// Notes which stage is planned.
struct Stages(Arc<Mutex<Ledger>>);

impl RunOutput for Stages {
    fn table(&mut self, _: &'static str, _: usize) -> Result<(), SinkError> {
        Ok(())
    }

    fn rows(&mut self, _: &'static str, _: usize, _: Vec<Value>) -> Result<(), SinkError> {
        Ok(())
    }

    fn progress(&mut self, _: usize, _: usize) {}

    fn begin_stage(&mut self, stage: &'static str) {
        self.0.lock().stage = Some(stage);
    }
}

/// A model of the pool that plans. It is loaded when it is asked, since its own schedule says what its questions cost.
struct PlannedModel<'a> {
    pool: &'a ModelPool,
    options: &'a ModelOptions,
    description: ModelDescription,
    position: usize,
    ledger: Arc<Mutex<Ledger>>,
}

impl PlannedModel<'_> {
    fn ask(&self, ask: impl FnOnce(&Planner<'_>) -> Result<Usage, LmError>) -> Result<Usage, LmError> {
        let model = self.pool.language(self.options).map_err(|error| LmError::Model(Box::new(error)))?;
        let planner = Planner::new(&model);
        let usage = ask(&planner)?;
        self.ledger.lock().add(self.position, planner.into_plan());
        Ok(usage)
    }
}

impl LanguageModel for PlannedModel<'_> {
    fn description(&self) -> &ModelDescription {
        &self.description
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        self.ask(|planner| planner.score(requests, sink))
    }

    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        self.ask(|planner| planner.generate(requests, sink))
    }
}

/// What a stage of a plan would cost: by stage of its method and by model.
pub(crate) fn dry_run(ready: &ReadyStage<'_>, context: &Context) -> Result<DryRun, SessionError> {
    let pool = context.models.as_ref();
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let description = pool.language(&ready.stage.model)?.description().clone();
    let own = (&ready.stage.model, description);
    let others = ready.others.iter().map(|other| (&other.options, other.description().clone()));
    let models: Vec<PlannedModel<'_>> = std::iter::once(own)
        .chain(others)
        .enumerate()
        .map(|(position, (options, description))| PlannedModel {
            pool,
            options,
            description,
            position,
            ledger: ledger.clone(),
        })
        .collect();
    let others: Vec<&dyn LanguageModel> = models[1..].iter().map(|model| -> &dyn LanguageModel { model }).collect();
    let mut stages = Stages(ledger.clone());
    let staging = Staging { stands_in: true, ..ready.staging.clone() };
    let mut run = Run::new(&models[0], &mut stages).with_other_models(&others).with_staging(staging);
    match ready.stage.configured.run(&ready.samples, &mut run) {
        Ok(_) | Err(MethodError::Rehearsed | MethodError::Until(_)) => {}
        Err(error) => return Err(error.into()),
    }
    context.events.notice(Notice::Message("dry run: measuring this machine"));
    let plans = std::mem::take(&mut ledger.lock().plans);
    let mut parts = Vec::with_capacity(plans.len());
    for ((stage, model), plan) in plans {
        parts.push(PlannedPart::of(stage, &*pool.language(models[model].options)?, plan)?);
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
        let (name, weight_bytes, options) = (model.description().name.clone(), model.weight_bytes(), model.options());
        Ok(Self { stage, model: name, weight_bytes, options, plan, estimate })
    }
}
