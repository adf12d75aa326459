//! Plans: stages that run one after another.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use probity_lm::LanguageModel;
use probity_methods::{Conclusion, Headline, MethodError, MethodReport, Outcomes};
use probity_metrics::MetricModels;
use probity_report::text::{counted, thousands, visible};
use probity_store::{Answers, Recorded, RecordedEncoder, RunFolder, SUMMARY};
use serde::Deserialize;
use serde_json::Value;

use crate::answers::{SharedCache, answer_settings};
use crate::check::Checker;
use crate::context::Context;
use crate::dry_run::dry_run;
use crate::execute::{RunModels, close, execute};
use crate::pooled::PooledModel;
use crate::problems::PlanProblems;
use crate::ready::ReadyStage;
use crate::stage::{OtherStage, PlannedRun};
use crate::warnings::warn_of_input;
use crate::{ErrorText, Events, Notice, OpenedModel, SessionError, SessionReport, Shard, resolved};

/// Stages, and the arguments that requested them.
pub struct Plan {
    /// In the requested order.
    pub stages: Vec<PlannedRun>,
    /// Problems with stages that are not in the plan.
    pub found: PlanProblems,
    /// Stages of the recipe that are not in the plan.
    pub others: Vec<OtherStage>,
    /// The recipe's file, if any.
    pub recipe: Option<String>,
    /// As typed, without the program's name.
    pub arguments: Vec<String>,
}

/// How a stage ended.
#[derive(Debug)]
pub enum RunOutcome {
    /// It finished now.
    Finished(InShort),
    /// It was already finished.
    Before(InShort),
    /// It stopped after a stage of its method, as requested.
    Until(&'static str),
    /// Dry run.
    Planned,
    /// It failed; the error was reported.
    Failed,
}

/// A stage and how it ended.
pub struct RunEnd<'p> {
    /// The stage.
    pub stage: &'p PlannedRun,
    /// How it ended.
    pub ended: RunOutcome,
}

/// The main parts of `summary.json`.
#[derive(Debug, Deserialize)]
pub struct InShort {
    /// The number of answers by outcome.
    pub outcomes: Outcomes,
    #[serde(default)]
    headline: Vec<Headline>,
    /// The conclusions, and how far to trust them.
    #[serde(default)]
    pub verdict: Vec<Conclusion>,
}

/// Maximum number of figures in one line: many metrics with many attributes have more.
const FIGURES: usize = 4;

impl InShort {
    /// Its first figures.
    pub fn figures(&self) -> String {
        let mut figures: Vec<String> = self.headline.iter().take(FIGURES).map(ToString::to_string).collect();
        let more = self.headline.len() - figures.len();
        figures.extend((more > 0).then(|| format!("{more} more")));
        figures.join(", ")
    }

    fn read(folder: &Path) -> Result<Self, SessionError> {
        let path = folder.join(SUMMARY);
        let text = std::fs::read(&path).map_err(|source| SessionError::Io { path: path.clone(), source })?;
        serde_json::from_slice(&text).map_err(|source| SessionError::NoSummary { path, source })
    }
}

impl RunEnd<'_> {
    /// The results; `None` after a dry run or a failure.
    pub fn in_short(&self) -> Option<&InShort> {
        match &self.ended {
            RunOutcome::Finished(found) | RunOutcome::Before(found) => Some(found),
            RunOutcome::Until(_) | RunOutcome::Planned | RunOutcome::Failed => None,
        }
    }
}

impl Plan {
    /// A plan of one stage.
    pub fn single_stage(stage: PlannedRun, arguments: Vec<String>) -> Self {
        Self { stages: vec![stage], found: PlanProblems::default(), others: Vec::new(), recipe: None, arguments }
    }

    /// The resolved output folders.
    fn folders(&self) -> Vec<PathBuf> {
        self.stages.iter().filter_map(|stage| stage.run.output.out.as_deref().map(resolved)).collect()
    }

    /// Stages that can be sharded: they judge samples and read no output of other stages.
    pub fn parted(&self) -> impl Iterator<Item = &PlannedRun> {
        let folders = self.folders();
        self.stages.iter().filter(move |stage| can_be_parted(stage, &folders))
    }

    /// Restricts the plan to one shard, each stage in its own folder. Stages that cannot be sharded are removed: they
    /// run after merging.
    pub fn part(&mut self, shard: Shard) {
        let folders = self.folders();
        self.stages.retain(|stage| can_be_parted(stage, &folders));
        for stage in &mut self.stages {
            stage.run.data.shard = Some(shard);
            if let Some(out) = &mut stage.run.output.out {
                *out = shard.folder(out);
            }
        }
    }

    /// Checks all stages and returns them in the order to run them. All problems are reported as one error; nothing is
    /// loaded or written.
    pub fn check(&self) -> Result<Vec<ReadyStage<'_>>, SessionError> {
        let mut problems = self.found.clone();
        let mut checker = Checker::new(&self.arguments, &self.stages, &self.others);
        let ready: Vec<ReadyStage<'_>> =
            self.stages.iter().filter_map(|stage| checker.check(stage, &mut problems)).collect();
        let (ready, waiting) = after_their_inputs(by_model(ready));
        for ReadyStage { stage, after, .. } in &waiting {
            let lines = stage.origin.as_ref().map(|origin| &origin.lines);
            let other = after[0].name().to_owned();
            problems.add_stage_error(lines, stage.name(), None, &SessionError::Circle { other });
        }
        problems.into_result(self.recipe.as_deref())?;
        Ok(ready)
    }

    /// Runs checked stages. If a stage of a recipe fails, only the stages that read from it fail too.
    pub fn run<'p>(&'p self, ready: Vec<ReadyStage<'p>>, context: &Context) -> Result<Vec<RunEnd<'p>>, SessionError> {
        let mut ends = Vec::with_capacity(ready.len());
        for mut ready in ready {
            let stage = ready.stage;
            let ended = match self.run_stage(&mut ready, &ends, context) {
                Err(error) if self.recipe.is_some() && !ends_everything(&error) => {
                    let told = visible(&ErrorText::from_error(&error).to_string());
                    context.events.notice(Notice::Error(&format!("error: run `{}`: {told}", stage.name())));
                    RunOutcome::Failed
                }
                ended => ended?,
            };
            ends.push(RunEnd { stage, ended });
        }
        Ok(ends)
    }

    fn run_stage(
        &self,
        ready: &mut ReadyStage<'_>,
        ends: &[RunEnd<'_>],
        context: &Context,
    ) -> Result<RunOutcome, SessionError> {
        let (stage, events) = (ready.stage, &context.events);
        let planned = stage.run.ask.dry_run;
        if !planned {
            inputs_are_there(ready, ends)?;
            ready.settle(&self.arguments)?;
        }
        let out = stage.run.output.out.as_deref();
        if let Some(out) = out.filter(|_| ready.finished) {
            if stage.origin.is_none() {
                // For a recipe, the final table says so.
                let told = format!("the run in {} is already finished; nothing was changed", out.display());
                events.notice(Notice::Message(&told));
            }
            return Ok(RunOutcome::Before(InShort::read(out)?));
        }
        // Stages of an interrupted recipe that had not started have no folder yet.
        if let (Some(out), None, true, None) = (out, &ready.earlier, stage.run.keep.resume, &stage.origin)
            && !planned
        {
            events.notice(Notice::Warning(&format!("no run to continue in {}; starting a new one", out.display())));
        }
        context.interrupt.check()?;
        if planned && ready.model.is_none() {
            // There are no queries to report the cost of.
            return Ok(RunOutcome::Planned);
        }
        warn_of_input(stage, &ready.samples, &**events);
        // Cache errors are found before a model is loaded and before an earlier run is deleted.
        let cache = if planned { SharedCache::default() } else { SharedCache::open(ready)? };
        let model = ready.model.clone();
        if let Some(model) = model.as_ref().filter(|_| stage.shards.is_none()) {
            // Loaded before the stage is reported, because its description is part of the manifest.
            context.models.language(&model.opened)?;
        }
        if self.recipe.is_some() {
            events.report(SessionReport::Stage(stage.name())).map_err(SessionError::Events)?;
        }
        if let Some(model) = model.as_ref().filter(|_| planned) {
            let dry_run = dry_run(ready, model, context)?;
            events.report(SessionReport::DryRun(&dry_run)).map_err(SessionError::Events)?;
            return Ok(RunOutcome::Planned);
        }
        let summary = match (out, &model) {
            (Some(out), Some(model)) => self.judge(ready, &model.opened, &cache, out, context),
            _ => self.compute(ready, &cache, out, context),
        };
        let summary = match (summary, out) {
            (Err(SessionError::Method(MethodError::Until(stage))), Some(out)) => {
                let told =
                    format!("the run in {} stopped after the stage {stage}; continue it with --resume", out.display());
                events.notice(Notice::Message(&told));
                return Ok(RunOutcome::Until(stage));
            }
            (summary, _) => summary?,
        };
        events.report(SessionReport::Summary(&summary)).map_err(SessionError::Events)?;
        if let Some(out) = out {
            events.notice(Notice::Message(&format!("results are in {}", out.display())));
        }
        let MethodReport { outcomes, headline, verdict, values, .. } = summary;
        report_unscored(stage, &outcomes, events.as_ref());
        report_flagged(&values["flagged"], events.as_ref());
        Ok(RunOutcome::Finished(InShort { outcomes, headline, verdict }))
    }

    /// Runs a stage that queries a model, and fills its folder.
    fn judge(
        &self,
        ready: &ReadyStage<'_>,
        model: &OpenedModel,
        cache: &SharedCache,
        out: &Path,
        context: &Context,
    ) -> Result<MethodReport, SessionError> {
        let pool = &context.models;
        let run = &ready.stage.run;
        let (description, options) = if let Some(shards) = &ready.stage.shards {
            // A merged run has all answers, so the model is not loaded.
            (shards.description()?, model.options.computing.load_options())
        } else {
            let model = pool.language(model)?;
            (model.description().clone(), model.options())
        };
        let descriptions = ready.other_descriptions()?;
        let info = ready.info(&self.arguments, Some((&description, options)), &descriptions);
        let mut folder = RunFolder::create(out, run.keep.existing(), info)?;
        let mut judge = || {
            let own = if run.keep.no_store { None } else { Some(Arc::new(folder.answers()?)) };
            take_over(ready, own.as_deref())?;
            let settings = answer_settings(options);
            let first = Arc::new(PooledModel::new(pool, model.clone(), description.clone()));
            let recorded = Recorded::new(first, &settings, own.as_ref(), cache.answers.as_ref())?;
            context.events.notice(Notice::Found(recorded.found_so_far()));
            let others = ready.others.iter().zip(&descriptions).map(|(other, description)| {
                let pooled = PooledModel::new(pool, other.opened.clone(), description.clone());
                recorded.beside(Arc::new(pooled), &settings)
            });
            let others = others.collect::<Result<Vec<_>, _>>()?;
            let others: Vec<&dyn LanguageModel> = others.iter().map(|other| -> &dyn LanguageModel { other }).collect();
            let mut for_metrics = ready.metric_models(pool);
            record_encoder(&mut for_metrics, ready, cache, Some(&mut folder))?;
            if let Some(model) = for_metrics.language_model.take() {
                for_metrics.language_model = Some(Arc::new(recorded.beside(model, &settings)?));
            }
            let models = RunModels { model: Some(&recorded), others: &others, for_metrics };
            let summary = execute(ready, models, Some(&mut folder), context);
            if matches!(summary, Ok(_) | Err(SessionError::Method(MethodError::Until(_)))) {
                recorded.finish()?;
                leave_unasked(ready, own.as_deref(), &mut folder)?;
                report_answers(&recorded, context.events.as_ref());
            }
            summary
        };
        let result = judge();
        if let Err(SessionError::Method(MethodError::Until(stage))) = result {
            folder.stop(stage)?;
        } else {
            close(folder, result.as_ref().map(drop).map_err(|error: &SessionError| error as _))?;
        }
        result
    }

    /// Runs a stage without a model of its own, and fills its folder, if any.
    fn compute(
        &self,
        ready: &ReadyStage<'_>,
        cache: &SharedCache,
        out: Option<&Path>,
        context: &Context,
    ) -> Result<MethodReport, SessionError> {
        let keep = &ready.stage.run.keep;
        let descriptions = ready.other_descriptions()?;
        let create = |out| RunFolder::create(out, keep.existing(), ready.info(&self.arguments, None, &descriptions));
        let mut folder = out.map(create).transpose()?;
        let mut compute = || {
            let mut for_metrics = ready.metric_models(&context.models);
            record_encoder(&mut for_metrics, ready, cache, folder.as_mut())?;
            let (mut recorded, mut own) = (None, None);
            if let Some(model) = for_metrics.language_model.take() {
                own = folder.as_mut().filter(|_| !keep.no_store).map(RunFolder::answers).transpose()?.map(Arc::new);
                take_over(ready, own.as_deref())?;
                let settings = answer_settings(ready.stage.model.computing.load_options());
                let model = Arc::new(Recorded::new(model, &settings, own.as_ref(), cache.answers.as_ref())?);
                context.events.notice(Notice::Found(model.found_so_far()));
                for_metrics.language_model = Some(model.clone());
                recorded = Some(model);
            }
            let models = RunModels { model: None, others: &[], for_metrics };
            let summary = execute(ready, models, folder.as_mut(), context)?;
            if let Some(recorded) = recorded {
                recorded.finish()?;
                report_answers(&recorded, context.events.as_ref());
            }
            if let Some(folder) = folder.as_mut() {
                leave_unasked(ready, own.as_deref(), folder)?;
            }
            Ok(summary)
        };
        let result = compute();
        if let Some(folder) = folder {
            close(folder, result.as_ref().map(drop).map_err(|error: &SessionError| error as _))?;
        }
        result
    }
}

/// Whether a stage judges samples and reads from none of `folders`.
fn can_be_parted(stage: &PlannedRun, folders: &[PathBuf]) -> bool {
    let mut paths = stage.reads().into_iter().map(|(_, path)| resolved(&path));
    stage.needs.samples && !paths.any(|path| folders.iter().any(|folder| path.starts_with(folder)))
}

/// Copies the answers of its shards into a merged run.
fn take_over(ready: &ReadyStage<'_>, own: Option<&Answers>) -> Result<(), SessionError> {
    match (&ready.stage.shards, own) {
        (Some(shards), Some(own)) => shards.give_answers(own),
        _ => Ok(()),
    }
}

/// Removes answers that the merged run did not use, and records the shards' cost.
fn leave_unasked(ready: &ReadyStage<'_>, own: Option<&Answers>, folder: &mut RunFolder) -> Result<(), SessionError> {
    let Some(shards) = &ready.stage.shards else { return Ok(()) };
    own.map_or(Ok(()), Answers::forget_unasked)?;
    Ok(folder.set_cost(shards.cost())?)
}

/// Lets an encoder of metrics store its encodings in the run folder and in the shared cache.
fn record_encoder(
    models: &mut MetricModels,
    ready: &ReadyStage<'_>,
    cache: &SharedCache,
    folder: Option<&mut RunFolder>,
) -> Result<(), SessionError> {
    let Some(encoder) = models.encoder.take() else { return Ok(()) };
    let own = folder.filter(|_| !ready.stage.run.keep.no_store).map(RunFolder::encodings).transpose()?;
    if let (Some(shards), Some(own)) = (&ready.stage.shards, &own) {
        shards.give_encodings(own);
    }
    let places = own.map(Arc::new).into_iter().chain(cache.encodings.clone()).collect();
    models.encoder = Some(Arc::new(RecordedEncoder::new(encoder, places)));
    Ok(())
}

/// An error if a stage that this one reads from produced nothing.
fn inputs_are_there(ready: &ReadyStage<'_>, ends: &[RunEnd<'_>]) -> Result<(), SessionError> {
    for end in ends.iter().filter(|end| ready.after.iter().any(|stage| std::ptr::eq(*stage, end.stage))) {
        let how = match end.ended {
            RunOutcome::Failed => "failed",
            RunOutcome::Until(_) | RunOutcome::Planned => "ended early",
            RunOutcome::Finished(_) | RunOutcome::Before(_) => continue,
        };
        return Err(SessionError::NothingToRead { other: end.stage.name().to_owned(), how });
    }
    Ok(())
}

/// Warns of missing scores. Stages that read score tables have their own warnings.
fn report_unscored(stage: &PlannedRun, outcomes: &Outcomes, events: &dyn Events) {
    let unscored = outcomes.unscored();
    let needs = stage.needs;
    if unscored == 0 || !needs.samples {
        return;
    }
    let told = if needs.model {
        format!("{} without a score; see the outcomes", counted(unscored, "result"))
    } else {
        format!("{}; see the rows", counted(unscored, "undefined score"))
    };
    events.notice(Notice::Warning(&told));
}

/// Warns of candidates that address their own judgement, or have lines that resemble the prompt.
fn report_flagged(flagged: &Value, events: &dyn Events) {
    let count = |name: &str| flagged[name].as_u64().filter(|count| *count > 0);
    let found = [("speaking", "that address their own judgement"), ("quoted", "with lines that resemble the prompt")];
    for (candidates, what) in found.into_iter().filter_map(|(name, what)| Some((count(name)?, what))) {
        let text = format!("{} {what}: see `Texts to look at` in the tables", counted(candidates, "candidate"));
        events.notice(Notice::Warning(&text));
    }
}

/// Whether an error ends the whole plan; further errors would not help.
fn ends_everything(error: &SessionError) -> bool {
    crate::was_interrupted(error) || matches!(error, SessionError::Events(_))
}

/// Maximum number of damaged answers to name.
const NAMED: usize = 5;

/// Reports reused answers and damaged ones that were recomputed.
pub fn report_answers(recorded: &Recorded<'_>, events: &dyn Events) {
    report_damaged(&recorded.damaged(), events);
    if recorded.found() > 0 {
        let found = counted(recorded.found(), "answer");
        events.notice(Notice::Message(&format!("reused: {found}")));
    }
}

/// Warns of stored answers that were damaged and recomputed.
pub fn report_damaged(damaged: &[String], events: &dyn Events) {
    if damaged.is_empty() {
        return;
    }
    let named: Vec<&str> = damaged.iter().take(NAMED).map(String::as_str).collect();
    let more = damaged.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = if damaged.len() == 1 {
        "1 stored answer was".to_owned()
    } else {
        format!("{} stored answers were", thousands(damaged.len() as u64))
    };
    events.notice(Notice::Warning(&format!(
        "{what} damaged and recomputed: {}{more}; check whether the disk is failing",
        named.join(", ")
    )));
}

/// Groups stages by model, in the order in which each model first occurs.
fn by_model(ready: Vec<ReadyStage<'_>>) -> Vec<ReadyStage<'_>> {
    let mut sorted: Vec<ReadyStage<'_>> = Vec::with_capacity(ready.len());
    for stage in ready {
        let of_model = |other: &ReadyStage<'_>| {
            other.stage.asks_model() && stage.stage.asks_model() && other.stage.model.has_weights_of(&stage.stage.model)
        };
        let place = sorted.iter().rposition(of_model).map_or(sorted.len(), |last| last + 1);
        sorted.insert(place, stage);
    }
    sorted
}

/// Sorts stages after those that they read from, otherwise keeping their order. Also returns the stages of a circle.
fn after_their_inputs(mut waiting: Vec<ReadyStage<'_>>) -> (Vec<ReadyStage<'_>>, Vec<ReadyStage<'_>>) {
    let mut sorted: Vec<ReadyStage<'_>> = Vec::with_capacity(waiting.len());
    // An input in neither list has a problem, which is already reported.
    let is_free = |ready: &ReadyStage<'_>, waiting: &[ReadyStage<'_>]| {
        ready.after.iter().all(|input| waiting.iter().all(|other| !std::ptr::eq(other.stage, *input)))
    };
    while let Some(next) = waiting.iter().position(|ready| is_free(ready, &waiting)) {
        sorted.push(waiting.remove(next));
    }
    (sorted, waiting)
}
