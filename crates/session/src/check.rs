//! What can be told of a plan before a model is loaded: data, folders, model files, prompts.

use std::path::PathBuf;
use std::sync::Arc;

use probity_data::Sample;
use probity_lm::{LanguageModel, LmError, ModelDescription};
use probity_methods::{MethodError, ModelKind, RoleModel, Run, Staging};
use probity_metrics::Models;
use probity_runtime::hub::Located;
use probity_runtime::weights::fingerprint;
use probity_runtime::{LoadOptions, Rehearsal, TextFiles};
use probity_store::{Manifest, RunFolder, RunInfo, Status, StoreError};
use serde_json::Value;

use crate::dry_run::Nowhere;
use crate::execute::run_info;
use crate::options::{DataOptions, ModelOptions};
use crate::pooled::{PooledEncoder, PooledModel};
use crate::problems::Problems;
use crate::stage::{GivenSamples, Stage};
use crate::stage_tables::{described, staging};
use crate::{Checked, ModelPool, SessionError};

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
}

/// Checks stages one after another; what several of them share is read once.
pub(crate) struct Checker<'a> {
    /// As typed.
    arguments: &'a [String],
    data: Vec<(&'a DataOptions, Option<Data>)>,
    models: Vec<(ModelOptions, Option<Arc<Files>>)>,
    /// Absolute.
    folders: Vec<(&'a Stage, PathBuf)>,
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
        (model, options): (&ModelDescription, LoadOptions),
        others: &[ModelDescription],
    ) -> RunInfo {
        let stage = self.stage;
        let params = stage.configured.options_in_force();
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
    pub(crate) fn new(arguments: &'a [String]) -> Self {
        Self { arguments, data: Vec::new(), models: Vec::new(), folders: Vec::new() }
    }

    /// The stage, where nothing is wrong with it.
    pub(crate) fn check(&mut self, stage: &'a Stage, problems: &mut Problems) -> Option<Ready<'a>> {
        let data = self.data(stage, problems);
        let model = self.model(stage, &stage.model, Some("model"), problems);
        let roles = stage.configured.models();
        let others = self.others(stage, &roles, problems);
        let for_metrics = for_metrics(stage, &roles, problems);
        let earlier = self.folder(stage, problems);
        let staging = staging(&stage.run.ask).map_err(|error| refuse(problems, stage, Some("from"), &error)).ok();
        let ((samples, data), model, others, for_metrics) = (data?, model?, others?, for_metrics?);
        let staging = staging?;
        let rehearsed = rehearse(stage, &samples, &model.rehearsal, &others, &staging);
        let rehearsed = rehearsed.map_err(|error| refuse(problems, stage, option_of(&error).as_deref(), &error));
        let (Ok(()), Ok(earlier)) = (rehearsed, earlier) else { return None };
        let mut ready = Ready { stage, samples, data, others, for_metrics, staging, finished: false };
        match self.finished(&ready, earlier.as_ref(), &model) {
            Ok(finished) => ready.finished = finished,
            Err(error) => {
                refuse(problems, stage, Some("out"), &error);
                return None;
            }
        }
        Some(ready)
    }

    fn data(&mut self, stage: &'a Stage, problems: &mut Problems) -> Option<Data> {
        if let Some(GivenSamples { samples, described }) = &stage.samples {
            return Some((samples.clone(), described.clone()));
        }
        let options = &stage.run.data;
        if let Some((_, known)) = self.data.iter().find(|(known, _)| *known == options) {
            return known.clone();
        }
        let read = || -> Result<Data, SessionError> {
            let samples = options.samples_for(|_| Vec::new())?;
            let described = options.described(&samples)?;
            Ok((samples.into(), described))
        };
        let read = read().map_err(|error| refuse(problems, stage, Some("data"), &error)).ok();
        self.data.push((options, read.clone()));
        read
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
            refuse(problems, stage, None, &SessionError::NoFolder);
            return Err(Refused);
        };
        let folder = std::path::absolute(out).unwrap_or_else(|_| out.to_owned());
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

    /// Whether a stage of a recipe that is resumed needs nothing; an error where its folder holds another run. A
    /// model's files are hashed for it, which is far quicker than loading the model.
    fn finished(&self, ready: &Ready<'_>, earlier: Option<&Manifest>, model: &Files) -> Result<bool, SessionError> {
        let Ready { stage, data, .. } = ready;
        let (Some(_), Some(earlier), Some(out), true) =
            (&stage.origin, earlier, &stage.run.output.out, stage.run.keep.resume)
        else {
            return Ok(false);
        };
        let (description, others) = (describe(&stage.model, model)?, ready.other_descriptions()?);
        // What the machine would put in the place of an option that was left out changes no result.
        let asked = (&description, stage.model.computing.load_options());
        let info = ready.info(self.arguments, asked, &others);
        if let Some(what) = info.difference(&earlier.info) {
            return Err(StoreError::Different { path: out.clone(), what }.into());
        }
        let same_data = data["sha256"].is_string() && earlier.info.arguments_in_force["data"] == *data;
        Ok(earlier.status == Status::Finished && same_data && Checked::of(out)?.wrong.is_empty())
    }
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

/// Runs the method up to its last stage's questions; stand-ins take the place of what earlier stages would leave.
fn rehearse(
    stage: &Stage,
    samples: &[Sample],
    model: &dyn LanguageModel,
    others: &[Other],
    staging: &Staging,
) -> Result<(), MethodError> {
    let others: Vec<&dyn LanguageModel> =
        others.iter().map(|other| -> &dyn LanguageModel { &other.files.rehearsal }).collect();
    let staging = Staging { stands_in: true, ..staging.clone() };
    let mut nowhere = Nowhere;
    let mut run = Run::new(model, &mut nowhere).with_other_models(&others).with_staging(staging);
    match stage.configured.run(samples, &mut run) {
        Err(MethodError::Rehearsed | MethodError::Until(_)) => Ok(()),
        ended => ended.map(drop),
    }
}

/// The option whose value is to blame, by its long name.
fn option_of(error: &MethodError) -> Option<String> {
    match error {
        MethodError::Option { option, .. } | MethodError::File { option, .. } => {
            Some(option.split(' ').next()?.trim_start_matches("--").to_owned())
        }
        MethodError::Template(_) => Some("template".to_owned()),
        MethodError::Labels(_) | MethodError::Model(LmError::Labels { .. }) => Some("label-words".to_owned()),
        MethodError::NoGold { .. } => Some("attribute".to_owned()),
        MethodError::Table { .. } => Some("from".to_owned()),
        MethodError::NoSamples => Some("data".to_owned()),
        _ => None,
    }
}
