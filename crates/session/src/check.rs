//! Checks of a plan before a model is loaded: data, folders, model files, prompts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use probity_data::{Sample, open};
use probity_methods::{Input, ModelKind, RoleModel, Staging};
use probity_runtime::{DryModel, TextFiles};
use probity_store::{Manifest, RunFolder};

use crate::error::option_of;
use crate::inputs::resolved;
use crate::option_files::unreadable_files;
use crate::options::{DataOptions, ModelOptions};
use crate::problems::PlanProblems;
use crate::ready::{MetricFiles, MetricModel, ModelFiles, ReadyStage};
use crate::samples::GivenSamples;
use crate::stage::{OtherStage, PlannedRun};
use crate::stage_tables::staging;
use crate::{OpenedModel, SessionError};

/// Checks stages one after another. Data and models that stages share are read once.
pub(crate) struct Checker<'a> {
    /// The arguments as typed.
    arguments: &'a [String],
    data: Vec<(&'a DataOptions, Option<GivenSamples>)>,
    models: Vec<(ModelOptions, Option<Arc<ModelFiles>>)>,
    /// Resolved folders of the stages checked so far.
    folders: Vec<(&'a PlannedRun, PathBuf)>,
    /// Resolved folders of all stages of the plan that write.
    written: Vec<(&'a PlannedRun, PathBuf)>,
    /// Resolved folders of stages that are not in the plan.
    others: Vec<(&'a OtherStage, PathBuf)>,
}

impl<'a> Checker<'a> {
    /// A checker for all of `stages`; `others` are not checked.
    pub(crate) fn new(arguments: &'a [String], stages: &'a [PlannedRun], others: &'a [OtherStage]) -> Self {
        let of = |stage: &'a PlannedRun| Some((stage, resolved(stage.run.output.out.as_deref()?)));
        let written = stages.iter().filter_map(of).collect();
        let others = others.iter().map(|other| (other, resolved(&other.folder))).collect();
        Self { arguments, data: Vec::new(), models: Vec::new(), folders: Vec::new(), written, others }
    }

    /// Returns the stage if it has no problems.
    pub(crate) fn check(&mut self, stage: &'a PlannedRun, problems: &mut PlanProblems) -> Option<ReadyStage<'a>> {
        let data = self.data(stage, problems);
        // `Some(None)`: the stage needs no model.
        let model = if stage.asks_model() {
            self.model(stage, &stage.model, Some("model"), problems).map(Some)
        } else {
            Some(None)
        };
        let roles = stage.configured.models();
        let others = self.others(stage, &roles, problems);
        let for_metrics = for_metrics(stage, &roles, problems);
        let after = self.after(stage, problems);
        let earlier = self.folder(stage, problems);
        let staging = stage_tables(stage).map_err(|error| refuse(problems, stage, Some("from"), &error)).ok();
        let parts = || {
            let (GivenSamples { samples, described: data }, model, others) = (data?, model?, others?);
            let (for_metrics, staging, after) = (for_metrics?, staging?, after?);
            Some(ReadyStage {
                stage,
                samples,
                data,
                others,
                for_metrics,
                staging,
                finished: false,
                after,
                model,
                earlier: None,
            })
        };
        let ready = parts();
        let rehearsed = ready.as_ref().filter(|ready| ready.after.is_empty()).map_or(Ok(()), ReadyStage::rehearse);
        let told = rehearsed.as_ref().err().and_then(option_of);
        if let Err(error) = &rehearsed {
            refuse(problems, stage, told.as_deref(), error);
        }
        // A rehearsal stops at the first option, and does not run without data or a model.
        let unread = unreadable_files(stage.method, &stage.configured.options_in_force()).into_iter();
        let unread = unread.filter(|(option, _)| told.as_ref() != Some(option));
        let count = unread.map(|(option, error)| refuse(problems, stage, Some(&option), &error)).count();
        let mut ready = ready.filter(|_| rehearsed.is_ok() && count == 0)?;
        ready.earlier = earlier.ok()?;
        if let Err(error) = ready.look_at_earlier(self.arguments) {
            refuse(problems, stage, Some("out"), &error);
            return None;
        }
        Some(ready)
    }

    /// The samples; empty if the stage reads none.
    fn data(&mut self, stage: &'a PlannedRun, problems: &mut PlanProblems) -> Option<GivenSamples> {
        if !stage.needs.samples {
            return Some(GivenSamples { samples: Arc::default(), described: stage.described_inputs() });
        }
        let options = &stage.run.data;
        if let Some(given) = &stage.samples {
            let part = given.clone().part(options.shard);
            return part.map_err(|error| refuse(problems, stage, Some("shard"), &error)).ok();
        }
        let lacks = |sample: &Sample| stage.configured.lacks(sample);
        if let Some((_, known)) = self.data.iter().find(|(known, _)| *known == options) {
            let is_whole = |data: &GivenSamples| data.samples.iter().all(|sample| lacks(sample).is_empty());
            // A pipe cannot be read again; a file is, to report the lines with missing fields.
            if known.as_ref().is_none_or(|data| is_whole(data) || options.data == Path::new("-")) {
                return known.clone();
            }
        }
        let read = GivenSamples::read(options, lacks)
            .map_err(|error| refuse(problems, stage, Some(error.option().as_deref().unwrap_or("data")), &error))
            .ok();
        // Samples that lack a field for this stage may be complete for another.
        if read.is_some() || stage.asks_model() {
            self.data.push((options, read.clone()));
        }
        read
    }

    /// The stages of the plan whose folders it reads.
    fn after(&self, stage: &'a PlannedRun, problems: &mut PlanProblems) -> Option<Vec<&'a PlannedRun>> {
        let own = self.written.iter().find(|(other, _)| std::ptr::eq(*other, stage));
        let is_own = |(_, path): &(String, PathBuf)| own.is_some_and(|(_, own)| resolved(path).starts_with(own));
        if let Some((option, path)) = stage.reads().into_iter().find(is_own) {
            refuse(problems, stage, Some(&option), &SessionError::ReadsItself { path });
            return None;
        }
        // These are read during the check, before the other stage writes.
        for Input { option, path } in stage.reads_first() {
            let place = resolved(&path);
            if let Some((other, _)) = self.written.iter().find(|(_, folder)| place.starts_with(folder)) {
                let other = other.name().to_owned();
                refuse(problems, stage, Some(option), &SessionError::ReadsOther { path, other });
                return None;
            }
        }
        let inputs = stage.configured.inputs();
        let paths: Vec<PathBuf> = inputs.iter().map(|input| resolved(&input.path)).collect();
        let is_written = |path: &Path| self.written.iter().any(|(_, folder)| path.starts_with(folder));
        let unfinished = |path: &Path| {
            let (other, _) = self.others.iter().find(|(_, folder)| path.starts_with(folder) && !is_written(path))?;
            (!Manifest::was_finished(&other.folder)).then_some(*other)
        };
        let mut can_come = true;
        for (input, other) in inputs.iter().zip(&paths).filter_map(|(input, path)| Some((input, unfinished(path)?))) {
            can_come = false;
            // The other stage's problems are reported separately.
            if !other.is_wrong {
                refuse(problems, stage, Some(input.option), &SessionError::NotRunYet { other: other.name.clone() });
            }
        }
        let is_read = |folder: &Path| paths.iter().any(|path| path.starts_with(folder));
        let after: Vec<&'a PlannedRun> =
            self.written.iter().filter(|(_, folder)| is_read(folder)).map(|(other, _)| *other).collect();
        if after.is_empty() && can_come {
            return Some(after);
        }
        // Inputs are read later, but files that no stage will write are reported now.
        let there = inputs.iter().zip(&paths).filter(|(_, path)| !is_written(path) && unfinished(path).is_none());
        let missing = there.filter_map(|(input, _)| open(&input.path).map_err(|error| (input.option, error)).err());
        let count = missing.map(|(option, error)| refuse(problems, stage, Some(option), &error)).count();
        (count == 0 && can_come).then_some(after)
    }

    /// The method's additional models; `None` if one has a problem.
    fn others(
        &mut self,
        stage: &'a PlannedRun,
        roles: &[RoleModel],
        problems: &mut PlanProblems,
    ) -> Option<Vec<Arc<ModelFiles>>> {
        let asked = roles.iter().filter(|model| model.kind == ModelKind::Language);
        // Opens all of them, so that every problem is reported.
        let all: Vec<Option<Arc<ModelFiles>>> =
            asked.map(|model| self.model(stage, &stage.model.beside(&model.name), None, problems)).collect();
        all.into_iter().collect()
    }

    fn model(
        &mut self,
        stage: &'a PlannedRun,
        options: &ModelOptions,
        option: Option<&str>,
        problems: &mut PlanProblems,
    ) -> Option<Arc<ModelFiles>> {
        if let Some((_, known)) = self.models.iter().find(|(known, _)| known == options) {
            return known.clone();
        }
        let open = || {
            let opened = OpenedModel::open(options)?;
            let dry = DryModel::check(&opened.checkpoint, options.computing.load_options())?;
            Ok(Arc::new(ModelFiles { opened, dry }))
        };
        let files = open().map_err(|error: SessionError| refuse(problems, stage, option, &error)).ok();
        self.models.push((options.clone(), files.clone()));
        files
    }

    /// The run already in its folder.
    fn folder(&mut self, stage: &'a PlannedRun, problems: &mut PlanProblems) -> Result<Option<Manifest>, Refused> {
        if stage.run.ask.dry_run {
            return Ok(None);
        }
        let Some(out) = stage.run.output.out.as_deref() else {
            // Answers of a model must be saved. Results computed from files are printed and can be recomputed.
            if stage.origin.is_none() && !stage.asks_model() {
                return Ok(None);
            }
            refuse(problems, stage, None, &SessionError::NoFolder);
            return Err(Refused);
        };
        let folder = resolved(out);
        let overlaps = |other: &PathBuf| other.starts_with(&folder) || folder.starts_with(other);
        if let Some((other, taken)) = self.folders.iter().find(|(_, other)| overlaps(other)) {
            let how = if *taken == folder { "is" } else { "overlaps with" };
            let (folder, other) = (out.display().to_string(), other.name().to_owned());
            refuse(problems, stage, Some("out"), &SessionError::SharedFolder { folder, how, other });
            return Err(Refused);
        }
        self.folders.push((stage, folder));
        RunFolder::look(out, stage.run.keep.existing()).map_err(|error| {
            refuse(problems, stage, Some("out"), &error);
            Refused
        })
    }
}

/// The tables that stages of a method read from files. Only methods that query a model have such stages.
fn stage_tables(stage: &PlannedRun) -> Result<Staging, SessionError> {
    let staging = staging(&stage.run.ask)?;
    if !stage.asks_model() {
        staging.check(stage.method.name(), &[])?;
    }
    Ok(staging)
}

/// Opens the files of the metrics' models; `None` if one has a problem.
fn for_metrics(stage: &PlannedRun, roles: &[RoleModel], problems: &mut PlanProblems) -> Option<Vec<MetricModel>> {
    let mut found = Some(Vec::new());
    for RoleModel { role, name, kind } in roles.iter().filter(|model| model.kind != ModelKind::Language) {
        let options = stage.model.beside(name);
        match (metric_model(*kind, &options), &mut found) {
            (Ok(model), Some(found)) => found.push(model),
            (Ok(_), None) => {}
            (Err(error), _) => {
                refuse(problems, stage, Some(role), &error);
                found = None;
            }
        }
    }
    found
}

fn metric_model(kind: ModelKind, options: &ModelOptions) -> Result<MetricModel, SessionError> {
    let (opened, load) = (OpenedModel::open(options)?, options.computing.load_options());
    let files = if kind == ModelKind::Encoder {
        MetricFiles::Encoder(Arc::new(TextFiles::new(&opened.checkpoint, load)?))
    } else {
        DryModel::check(&opened.checkpoint, load)?;
        MetricFiles::Seq2Seq(Box::new(opened.describe()?))
    };
    Ok(MetricModel { opened, files })
}

/// The error was added to the problems.
struct Refused;

fn refuse(problems: &mut PlanProblems, stage: &PlannedRun, option: Option<&str>, error: &dyn miette::Diagnostic) {
    problems.add_stage_error(stage.origin.as_ref().map(|origin| &origin.lines), stage.name(), option, error);
}
