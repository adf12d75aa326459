//! What can be told of a plan before a model is loaded: data, folders, model files, prompts.

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

/// Checks stages one after another; what several of them share is read once.
pub(crate) struct Checker<'a> {
    /// As typed.
    arguments: &'a [String],
    data: Vec<(&'a DataOptions, Option<GivenSamples>)>,
    models: Vec<(ModelOptions, Option<Arc<ModelFiles>>)>,
    /// Of those that were checked; resolved.
    folders: Vec<(&'a PlannedRun, PathBuf)>,
    /// Of all stages of the plan that write something; resolved.
    written: Vec<(&'a PlannedRun, PathBuf)>,
    /// Of stages that are not in the plan; resolved.
    others: Vec<(&'a OtherStage, PathBuf)>,
}

impl<'a> Checker<'a> {
    /// Of these stages, all of which are going to be checked, beside others that are not.
    pub(crate) fn new(arguments: &'a [String], stages: &'a [PlannedRun], others: &'a [OtherStage]) -> Self {
        let of = |stage: &'a PlannedRun| Some((stage, resolved(stage.run.output.out.as_deref()?)));
        let written = stages.iter().filter_map(of).collect();
        let others = others.iter().map(|other| (other, resolved(&other.folder))).collect();
        Self { arguments, data: Vec::new(), models: Vec::new(), folders: Vec::new(), written, others }
    }

    /// The stage, where nothing is wrong with it.
    pub(crate) fn check(&mut self, stage: &'a PlannedRun, problems: &mut PlanProblems) -> Option<ReadyStage<'a>> {
        let data = self.data(stage, problems);
        // `None` within is a stage that asks none.
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
        // A rehearsal ends at the first option, and without data or a model there is none.
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

    /// The samples; none of a stage that reads none.
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
            // What came through a pipe is gone; of a file it is told again, with its lines, what they lack.
            if known.as_ref().is_none_or(|data| is_whole(data) || options.data == Path::new("-")) {
                return known.clone();
            }
        }
        let read = GivenSamples::read(options, lacks)
            .map_err(|error| refuse(problems, stage, Some(error.option().as_deref().unwrap_or("data")), &error))
            .ok();
        // What samples lack for this stage they may not lack for another.
        if read.is_some() || stage.asks_model() {
            self.data.push((options, read.clone()));
        }
        read
    }

    /// The other stages whose folders it reads.
    fn after(&self, stage: &'a PlannedRun, problems: &mut PlanProblems) -> Option<Vec<&'a PlannedRun>> {
        let own = self.written.iter().find(|(other, _)| std::ptr::eq(*other, stage));
        let is_own = |(_, path): &(String, PathBuf)| own.is_some_and(|(_, own)| resolved(path).starts_with(own));
        if let Some((option, path)) = stage.reads().into_iter().find(is_own) {
            refuse(problems, stage, Some(&option), &SessionError::ReadsItself { path });
            return None;
        }
        // Read already when this is checked: what the other stage is going to write there would not be what was read.
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
            // What is wrong with the other is told by itself.
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
        // Nothing is read before all that is awaited is there: what will never come is told now.
        let there = inputs.iter().zip(&paths).filter(|(_, path)| !is_written(path) && unfinished(path).is_none());
        let missing = there.filter_map(|(input, _)| open(&input.path).map_err(|error| (input.option, error)).err());
        let count = missing.map(|(option, error)| refuse(problems, stage, Some(option), &error)).count();
        (count == 0 && can_come).then_some(after)
    }

    /// The models that the method asks besides; `None` where something is wrong with one.
    fn others(
        &mut self,
        stage: &'a PlannedRun,
        roles: &[RoleModel],
        problems: &mut PlanProblems,
    ) -> Option<Vec<Arc<ModelFiles>>> {
        let asked = roles.iter().filter(|model| model.kind == ModelKind::Language);
        // All of them are looked for, so that all problems are told.
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

    /// The run that its folder holds already.
    fn folder(&mut self, stage: &'a PlannedRun, problems: &mut PlanProblems) -> Result<Option<Manifest>, Refused> {
        if stage.run.ask.dry_run {
            return Ok(None);
        }
        let Some(out) = stage.run.output.out.as_deref() else {
            // What was asked of a model is not to be lost. What is computed from files is told, and can be had again.
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

/// The tables that the stages of a method take from files. What has no such stages takes none.
fn stage_tables(stage: &PlannedRun) -> Result<Staging, SessionError> {
    let staging = staging(&stage.run.ask)?;
    if !stage.asks_model() {
        staging.check(stage.method.name(), &[])?;
    }
    Ok(staging)
}

/// Opens the files of the models that metrics are made with; `None` where one cannot be had.
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

/// Something is among the problems now.
struct Refused;

fn refuse(problems: &mut PlanProblems, stage: &PlannedRun, option: Option<&str>, error: &dyn miette::Diagnostic) {
    problems.add_stage_error(stage.origin.as_ref().map(|origin| &origin.lines), stage.name(), option, error);
}
