//! Runs a method in a run folder.

use std::sync::Arc;

use probity_data::write_samples;
use probity_lm::{LanguageModel, SinkError};
use probity_methods::{MethodError, MethodReport, Run, RunOutput, StageDone};
use probity_metrics::MetricModels;
use probity_store::{RunFolder, RunInfo, SAMPLES, StoreError, TableWriter};
use serde_json::Value;

use crate::context::Context;
use crate::ready::ReadyStage;
use crate::{Events, Interrupt, Notice, ProgressUnit, SessionError, was_interrupted};

/// All models of a run.
pub(crate) struct RunModels<'a> {
    /// Absent if the stage needs no model of its own.
    pub(crate) model: Option<&'a dyn LanguageModel>,
    /// Additional models of the method.
    pub(crate) others: &'a [&'a dyn LanguageModel],
    pub(crate) for_metrics: MetricModels,
}

/// Runs the method. Its rows are in the folder, if there is one, even after an error.
pub(crate) fn execute(
    ready: &ReadyStage<'_>,
    models: RunModels<'_>,
    mut folder: Option<&mut RunFolder>,
    context: &Context,
) -> Result<MethodReport, SessionError> {
    let stage = ready.stage;
    if let Some(folder) = folder.as_deref_mut().filter(|_| stage.needs.samples) {
        folder.write_file(SAMPLES, |writer| write_samples(writer, &ready.samples).map_err(SessionError::from))?;
    }
    let Context { events, interrupt, .. } = context;
    let mut output =
        FolderOutput { folder, tables: Vec::new(), events, interrupt, name: stage.method.name(), has_outcome: false };
    let RunModels { model, others, for_metrics } = models;
    let (model, others) = ready.stage.model.computing.thinking_models(model, others);
    let others: Vec<&dyn LanguageModel> = others.iter().map(|other| other as _).collect();
    let run = match &model {
        Some(model) => Run::new(model, &mut output),
        None => Run::without_model(&mut output),
    };
    let mut run = run.with_other_models(&others).with_metric_models(for_metrics).with_staging(ready.staging.clone());
    let result = stage.configured.run(&ready.samples, &mut run);
    events.notice(Notice::StepEnded);
    let FolderOutput { folder, tables, .. } = output;
    if matches!(result, Ok(_) | Err(MethodError::Until(_))) {
        tables.into_iter().try_for_each(|(_, table)| table.finish().map(drop))?;
    }
    let mut summary = result?;
    if let Some(folder) = folder {
        folder.set_cost(&summary.cost)?;
        if summary.cost.usage.tokens_computed == 0
            && stage.shards.is_none()
            && let Some(before) = folder.keep_devices()
        {
            computed_on(&mut summary, &before);
        }
        folder.write_summary(&summary)?;
    }
    Ok(summary)
}

/// Records the devices of an earlier run, which computed all answers, in the signature.
fn computed_on(summary: &mut MethodReport, before: &RunInfo) {
    let signature = &mut summary.signature;
    let first = signature.model.iter_mut().map(|model| (model, &before.model));
    for (model, before) in first.chain(signature.other_models.iter_mut().zip(&before.other_models)) {
        let text = |key: &str| before[key].as_str().map(str::to_owned);
        (model.device, model.platform) = (text("device").unwrap_or_default(), text("platform"));
    }
}

/// Records in the manifest whether the run succeeded.
pub fn close(folder: RunFolder, ended: Result<(), &(dyn std::error::Error + 'static)>) -> Result<(), StoreError> {
    let Err(error) = ended else { return folder.finish() };
    // If the manifest cannot be written (say, on a full disk), the original error still matters more.
    let _ = if was_interrupted(error) { folder.interrupt() } else { folder.fail(error.to_string()) };
    Ok(())
}

/// Writes a method's output to the tables of a run folder. Without a folder, rows only cause events.
struct FolderOutput<'a> {
    folder: Option<&'a mut RunFolder>,
    tables: Vec<(&'static str, TableWriter)>,
    events: &'a Arc<dyn Events>,
    interrupt: &'a Interrupt,
    name: &'static str,
    /// Whether a row with an outcome was written.
    has_outcome: bool,
}

impl RunOutput for FolderOutput<'_> {
    fn table(&mut self, table: &'static str, _: usize) -> Result<(), SinkError> {
        let is_known = self.tables.iter().any(|(name, _)| *name == table);
        if let Some(folder) = self.folder.as_mut().filter(|_| !is_known) {
            let writer = folder.table(&file_of(table))?;
            self.tables.push((table, writer));
        }
        Ok(())
    }

    fn rows(&mut self, table: &'static str, index: usize, rows: Vec<Value>) -> Result<(), SinkError> {
        if self.folder.is_some() {
            let writer = self.tables.iter_mut().find(|(name, _)| *name == table).map(|(_, writer)| writer);
            writer.ok_or_else(|| format!("table `{table}` was not announced"))?.put_all(index, &rows)?;
        }
        for row in rows.iter().filter(|row| row["outcome"].is_string()) {
            let outcome = row["outcome"].as_str().unwrap_or_default();
            if outcome == "low_mass" && !self.has_outcome {
                self.events.notice(Notice::Message(&low_at_first(row)));
            }
            self.has_outcome = true;
            self.events.notice(Notice::Outcome(outcome));
        }
        // After the row is written, so that finished work is kept.
        Ok(self.interrupt.check()?)
    }

    fn keeps_rows(&self) -> bool {
        self.folder.is_some()
    }

    fn progress(&mut self, done: usize, total: usize) {
        let (what, work) = (self.name, ProgressUnit::Questions);
        self.events.notice(Notice::Progress { what, work, done, total: Some(total) });
    }

    fn measured(&mut self, metric: &str, done: usize, total: usize) {
        let (what, work) = (metric, ProgressUnit::Candidates);
        self.events.notice(Notice::Progress { what, work, done, total: Some(total) });
    }

    fn check(&mut self) -> Result<(), SinkError> {
        Ok(self.interrupt.check()?)
    }

    fn begin_stage(&mut self, stage: &'static str) {
        self.events.notice(Notice::StepEnded);
        self.name = stage;
    }

    fn end_stage(&mut self, stage: &StageDone) -> Result<(), SinkError> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        let place = self.tables.iter().position(|(name, _)| *name == stage.name);
        let place = place.ok_or_else(|| format!("table `{}` was not announced", stage.name))?;
        // On disk before the manifest refers to it and before the next stage starts.
        self.tables.remove(place).1.finish()?;
        Ok(folder.stage_done(stage, &file_of(stage.name))?)
    }
}

/// Says early that the first sample has low label mass, before hours of answers that mean nothing.
fn low_at_first(row: &Value) -> String {
    let mass = row["mass"].as_f64().map(|mass| format!(" ({mass:.2e})")).unwrap_or_default();
    format!(
        "low label mass{mass} on the first sample: the model would not answer with a label there. Stop the run, look \
         at its prompt with `probity show`, and try --think off or another --answer-prefix"
    )
}

/// The file name of a table.
fn file_of(table: &str) -> String {
    format!("{table}.jsonl")
}
