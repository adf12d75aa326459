//! What can be told of a plan before a model is loaded: data, folders, model files, prompts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use probity_data::Sample;
use probity_lm::{LanguageModel, ModelDescription};
use probity_methods::{Input, MethodError, ModelKind, RoleModel, Run, Staging};
use probity_metrics::Models;
use probity_runtime::hub::Located;
use probity_runtime::weights::fingerprint;
use probity_runtime::{LoadOptions, Rehearsal, TextFiles};
use probity_store::{Manifest, RunFolder, RunInfo, Status, StoreError};
use serde_json::Value;

use crate::dry_run::Nowhere;
use crate::error::option_of;
use crate::execute::run_info;
use crate::inputs::{absolute, describe_inputs, is_hashed};
use crate::options::{DataOptions, ModelOptions};
use crate::pooled::{PooledEncoder, PooledModel};
use crate::problems::Problems;
use crate::stage::{GivenSamples, Stage};
use crate::stage_tables::{described, staging};
use crate::{Checked, ModelPool, SessionError, Silent};

/// A stage that can run, as far as can be told.
pub struct Ready<'a> {
    /// The stage.
    pub stage: &'a Stage,
    /// Its samples.
    pub samples: Arc<[Sample]>,
    /// What the manifest says of them.
    pub(crate) data: Value,
    /// Further models that its method asks.
    pub(crate) others: Vec<Other>,
    /// Models of its metrics.
    pub(crate) for_metrics: Vec<MetricModel>,
    /// How its method goes through its stages.
    pub(crate) staging: Staging,
    /// Its folder holds the finished run of this very stage, which may stay as it is.
    pub(crate) finished: bool,
    /// Stages of the same plan whose folders it reads. What it reads is looked at when they have come to their end.
    pub(crate) after: Vec<&'a Stage>,
    /// The model that it asks; absent where it asks none of its own.
    model: Option<Arc<Files>>,
    /// The run that its folder holds already.
    earlier: Option<Manifest>,
}

/// Checks stages one after another; what several of them share is read once.
pub(crate) struct Checker<'a> {
    /// As typed.
    arguments: &'a [String],
    data: Vec<(&'a DataOptions, Option<Data>)>,
    models: Vec<(ModelOptions, Option<Arc<Files>>)>,
    /// Of those that were checked; absolute.
    folders: Vec<(&'a Stage, PathBuf)>,
    /// Of all stages of the plan that write something; absolute.
    written: Vec<(&'a Stage, PathBuf)>,
}

/// Samples, and what the manifest says of them.
type Data = (Arc<[Sample]>, Value);

/// A model that a method asks besides the one of the command.
pub(crate) struct Other {
    pub(crate) options: ModelOptions,
    files: Arc<Files>,
}

/// A model that metrics are made with.
pub(crate) struct MetricModel {
    pub(crate) options: ModelOptions,
    pub(crate) files: MetricFiles,
}

/// The files of a model that metrics are made with.
pub(crate) enum MetricFiles {
    /// Of one that reads texts.
    Encoder(Arc<TextFiles>),
    /// Of one that tells how probable texts are.
    Seq2Seq(ModelDescription),
}

impl Stage {
    /// Whether it asks a model of its own.
    pub(crate) fn asks_model(&self) -> bool {
        self.method.needs().model
    }
}

impl Other {
    /// What its files say of it; they were not hashed.
    pub(crate) fn description(&self) -> &ModelDescription {
        self.files.rehearsal.description()
    }
}

impl Ready<'_> {
    /// The models that its metrics are made with, loaded when they are asked.
    pub(crate) fn metric_models(&self, pool: &Arc<ModelPool>) -> Models {
        let mut models = Models::default();
        for MetricModel { options, files } in &self.for_metrics {
            match files {
                MetricFiles::Encoder(files) => {
                    models.encoder = Some(Arc::new(PooledEncoder::new(pool, options.clone(), files.clone())));
                }
                MetricFiles::Seq2Seq(description) => {
                    let model = PooledModel::new(pool, options.clone(), description.clone());
                    models.language_model = Some(Arc::new(model));
                }
            }
        }
        models
    }

    /// What the manifest says of the further models, and of those of metrics behind them; their files are hashed for it.
    pub(crate) fn other_descriptions(&self) -> Result<Vec<ModelDescription>, SessionError> {
        let others = self.others.iter().map(|other| describe(&other.options, &other.files));
        let for_metrics = self.for_metrics.iter().map(|model| {
            Ok(match &model.files {
                MetricFiles::Encoder(files) => files.config().description.clone(),
                MetricFiles::Seq2Seq(description) => description.clone(),
            })
        });
        others.chain(for_metrics).collect()
    }

    /// What the manifest says when the run begins; `options` are those with which the model runs.
    pub(crate) fn info(
        &self,
        arguments: &[String],
        model: Option<(&ModelDescription, LoadOptions)>,
        others: &[ModelDescription],
    ) -> RunInfo {
        let stage = self.stage;
        let params = stage.configured.options_in_force();
        // Models of metrics alone compute as the stage says. Where there is no model at all, that would tell apart runs
        // that are the same.
        let for_metrics = (!self.for_metrics.is_empty()).then(|| stage.model.computing.load_options());
        let options = model.map(|(_, options)| options).or(for_metrics);
        let model = model.map(|(model, _)| model);
        let mut info = run_info(stage.method.name(), arguments, &params, &self.data, (model, options), others);
        if let tables @ Value::Object(_) = described(&stage.run.ask) {
            info.arguments_in_force["stages"] = tables;
        }
        RunInfo { recipe: stage.origin.as_ref().map(|origin| origin.mark.clone()), ..info }
    }
}

/// A model's files.
struct Files {
    located: Located,
    rehearsal: Rehearsal,
}

impl<'a> Checker<'a> {
    /// Of these stages, all of which are going to be checked.
    pub(crate) fn new(arguments: &'a [String], stages: &'a [Stage]) -> Self {
        let of = |stage: &'a Stage| Some((stage, absolute(stage.run.output.out.as_deref()?)));
        let written = stages.iter().filter_map(of).collect();
        Self { arguments, data: Vec::new(), models: Vec::new(), folders: Vec::new(), written }
    }

    /// The stage, where nothing is wrong with it.
    pub(crate) fn check(&mut self, stage: &'a Stage, problems: &mut Problems) -> Option<Ready<'a>> {
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
        let ((samples, data), model, others, for_metrics) = (data?, model?, others?, for_metrics?);
        let (staging, after) = (staging?, after?);
        let mut ready =
            Ready { stage, samples, data, others, for_metrics, staging, finished: false, after, model, earlier: None };
        if ready.after.is_empty()
            && let Err(error) = ready.rehearse()
        {
            refuse(problems, stage, option_of(&error).as_deref(), &error);
            return None;
        }
        ready.earlier = earlier.ok()?;
        if let Err(error) = ready.look_at_earlier(self.arguments) {
            refuse(problems, stage, Some("out"), &error);
            return None;
        }
        Some(ready)
    }

    /// The samples; none of a stage that reads none.
    fn data(&mut self, stage: &'a Stage, problems: &mut Problems) -> Option<Data> {
        if !stage.method.needs().samples {
            return Some((Arc::default(), describe_inputs(&stage.configured.inputs())));
        }
        if let Some(GivenSamples { samples, described }) = &stage.samples {
            return Some((samples.clone(), described.clone()));
        }
        let options = &stage.run.data;
        let lacks = |sample: &Sample| stage.configured.lacks(sample);
        if let Some((_, known)) = self.data.iter().find(|(known, _)| *known == options) {
            let is_whole = |(samples, _): &Data| samples.iter().all(|sample| lacks(sample).is_empty());
            // What came through a pipe is gone; of a file it is told again, with its lines, what they lack.
            if known.as_ref().is_none_or(|data| is_whole(data) || options.data == Path::new("-")) {
                return known.clone();
            }
        }
        let read = || -> Result<Data, SessionError> {
            let samples = options.samples_for(lacks)?;
            let described = options.described(&samples)?;
            Ok((samples.into(), described))
        };
        let read = read().map_err(|error| refuse(problems, stage, Some("data"), &error)).ok();
        // What samples lack for this stage they may not lack for another.
        if read.is_some() || stage.asks_model() {
            self.data.push((options, read.clone()));
        }
        read
    }

    /// The other stages whose folders it reads.
    fn after(&self, stage: &'a Stage, problems: &mut Problems) -> Option<Vec<&'a Stage>> {
        let mut after: Vec<&'a Stage> = Vec::new();
        for Input { option, path } in stage.configured.inputs() {
            let path = absolute(&path);
            for (other, _) in self.written.iter().filter(|(_, folder)| path.starts_with(folder)) {
                if std::ptr::eq(*other, stage) {
                    refuse(problems, stage, Some(option), &SessionError::ReadsItself { path });
                    return None;
                }
                if !after.iter().any(|known| std::ptr::eq(*known, *other)) {
                    after.push(other);
                }
            }
        }
        Some(after)
    }

    /// The models that the method asks besides; `None` where something is wrong with one.
    fn others(&mut self, stage: &'a Stage, roles: &[RoleModel], problems: &mut Problems) -> Option<Vec<Other>> {
        let asked = roles.iter().filter(|model| model.kind == ModelKind::Language);
        // All of them are looked for, so that all problems are told.
        let all: Vec<Option<Other>> = asked
            .map(|model| {
                let options = stage.model.beside(&model.name);
                self.model(stage, &options, None, problems).map(|files| Other { options, files })
            })
            .collect();
        all.into_iter().collect()
    }

    fn model(
        &mut self,
        stage: &'a Stage,
        options: &ModelOptions,
        option: Option<&str>,
        problems: &mut Problems,
    ) -> Option<Arc<Files>> {
        if let Some((_, known)) = self.models.iter().find(|(known, _)| known == options) {
            return known.clone();
        }
        let mut open = || {
            let located = options.located().map_err(|error| refuse(problems, stage, option, &error)).ok()?;
            let rehearsal = Rehearsal::open(&located, options.computing.load_options());
            let rehearsal = rehearsal.map_err(|error| refuse(problems, stage, option, &error)).ok()?;
            Some(Arc::new(Files { located, rehearsal }))
        };
        let files = open();
        self.models.push((options.clone(), files.clone()));
        files
    }

    /// The run that its folder holds already.
    fn folder(&mut self, stage: &'a Stage, problems: &mut Problems) -> Result<Option<Manifest>, Refused> {
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
        let folder = absolute(out);
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

impl Ready<'_> {
    /// Runs the method up to its last stage's questions; stand-ins take the place of what earlier stages would leave.
    fn rehearse(&self) -> Result<(), MethodError> {
        let others: Vec<&dyn LanguageModel> =
            self.others.iter().map(|other| -> &dyn LanguageModel { &other.files.rehearsal }).collect();
        let staging = Staging { stands_in: true, ..self.staging.clone() };
        // Metrics are made with their models' files: a rehearsal ends before it scores, and so nothing is loaded.
        let for_metrics = self.metric_models(&Arc::new(ModelPool::new(Arc::new(Silent))));
        let mut nowhere = Nowhere;
        let run = match &self.model {
            Some(files) => Run::new(&files.rehearsal, &mut nowhere),
            None => Run::without_model(&mut nowhere),
        };
        let mut run = run.with_other_models(&others).with_metric_models(for_metrics).with_staging(staging);
        match self.stage.configured.run(&self.samples, &mut run) {
            Err(MethodError::Rehearsed | MethodError::Until(_)) => Ok(()),
            ended => ended.map(drop),
        }
    }

    /// Whether the folder of a stage that is resumed holds this very run, and as it was written; an error where it holds
    /// another one. A model's files are hashed for it, which is far quicker than loading the model.
    fn look_at_earlier(&mut self, arguments: &[String]) -> Result<(), SessionError> {
        let stage = self.stage;
        let (Some(_), Some(earlier), Some(out), true) =
            (&stage.origin, &self.earlier, &stage.run.output.out, stage.run.keep.resume)
        else {
            return Ok(());
        };
        let others = self.other_descriptions()?;
        let model = self.model.as_ref().map(|files| describe(&stage.model, files)).transpose()?;
        // What the machine would put in the place of an option that was left out changes no result.
        let asked = model.as_ref().map(|model| (model, stage.model.computing.load_options()));
        let info = self.info(arguments, asked, &others);
        if let Some(what) = info.difference(&earlier.info) {
            return Err(StoreError::Different { path: out.clone(), what }.into());
        }
        let same_data = is_hashed(&self.data) && earlier.info.arguments_in_force["data"] == self.data;
        self.finished = self.after.is_empty()
            && earlier.status == Status::Finished
            && same_data
            && Checked::of(out)?.wrong.is_empty();
        Ok(())
    }

    /// Does what a check leaves until the stages that it reads from have come to their end: now their files are there.
    pub(crate) fn settle(&mut self, arguments: &[String]) -> Result<(), SessionError> {
        if self.after.is_empty() {
            return Ok(());
        }
        self.after.clear();
        self.data = describe_inputs(&self.stage.configured.inputs());
        self.rehearse()?;
        self.look_at_earlier(arguments)
    }
}

/// The tables that the stages of a method take from files. What has no such stages takes none.
fn stage_tables(stage: &Stage) -> Result<Staging, SessionError> {
    let staging = staging(&stage.run.ask)?;
    if !stage.asks_model() {
        staging.check(stage.method.name(), &[])?;
    }
    Ok(staging)
}

/// Opens the files of the models that metrics are made with; `None` where one cannot be had.
fn for_metrics(stage: &Stage, roles: &[RoleModel], problems: &mut Problems) -> Option<Vec<MetricModel>> {
    let mut found = Some(Vec::new());
    for RoleModel { role, name, kind } in roles.iter().filter(|model| model.kind != ModelKind::Language) {
        let options = stage.model.beside(name);
        match (metric_files(*kind, &options), &mut found) {
            (Ok(files), Some(found)) => found.push(MetricModel { options, files }),
            (Ok(_), None) => {}
            (Err(error), _) => {
                refuse(problems, stage, Some(role), &error);
                found = None;
            }
        }
    }
    found
}

fn metric_files(kind: ModelKind, options: &ModelOptions) -> Result<MetricFiles, SessionError> {
    let (located, load) = (options.located()?, options.computing.load_options());
    if kind == ModelKind::Encoder {
        return Ok(MetricFiles::Encoder(Arc::new(TextFiles::open(&located, load)?)));
    }
    let rehearsal = Rehearsal::open(&located, load)?;
    let files = Files { located, rehearsal };
    Ok(MetricFiles::Seq2Seq(describe(options, &files)?))
}

/// Something is among the problems now.
struct Refused;

fn refuse(problems: &mut Problems, stage: &Stage, option: Option<&str>, error: &(dyn std::error::Error + 'static)) {
    problems.of(stage.origin.as_ref().map(|origin| &origin.lines), stage.name(), option, error);
}

/// What a loaded model says of itself, from its files alone.
fn describe(options: &ModelOptions, files: &Files) -> Result<ModelDescription, SessionError> {
    let checkpoint = files.rehearsal.checkpoint();
    let hash = fingerprint(&checkpoint.files)?;
    Ok(checkpoint.describe(&files.located, options.computing.load_options(), hash))
}
