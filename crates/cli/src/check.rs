//! What can be told of a plan before a model is loaded: data, folders, model files, prompts.

use std::path::PathBuf;
use std::rc::Rc;

use probity_data::Sample;
use probity_lm::{LanguageModel, LmError, ModelDescription};
use probity_methods::{MethodError, MetricModels, Run};
use probity_metrics::Models;
use probity_runtime::hub::{Located, locate};
use probity_runtime::weights::fingerprint;
use probity_runtime::{Rehearsal, Rehearsed};
use probity_store::{Manifest, RunFolder, Status, StoreError};
use serde_json::Value;

use crate::compute::ModelArgs;
use crate::data::DataArgs;
use crate::dry_run::Nowhere;
use crate::method::About;
use crate::metrics::models::load;
use crate::plan::{Plan, Stage};
use crate::problems::Problems;
use crate::progress::Reporter;
use crate::verify::Checked;

/// A stage that can run, as far as can be told.
pub(crate) struct Ready<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) samples: Rc<[Sample]>,
    /// Further models that its method asks.
    pub(crate) others: Vec<Other>,
    /// What the manifest says of them.
    pub(crate) data: Value,
    /// Its folder holds the finished run of this very stage, which may stay as it is.
    pub(crate) finished: bool,
}

/// Checks stages one after another; what several of them share is read once.
pub(crate) struct Checker<'a> {
    plan: &'a Plan,
    data: Vec<(&'a DataArgs, Option<Data>)>,
    models: Vec<(ModelArgs, Option<Rc<Files>>)>,
    /// Absolute.
    folders: Vec<(&'a Stage, PathBuf)>,
}

/// Samples, and what the manifest says of them.
type Data = (Rc<[Sample]>, Value);

/// A model that a method asks besides the one of the command.
pub(crate) struct Other {
    pub(crate) args: ModelArgs,
    files: Rc<Files>,
}

impl Ready<'_> {
    /// Loads the models that its metrics are made with.
    pub(crate) fn metric_models(&self, reporter: &mut Reporter) -> anyhow::Result<Models> {
        let MetricModels { encoder, seq2seq } = self.stage.method.metric_models(&self.stage.matches)?;
        load(encoder.as_deref(), seq2seq.as_deref(), &self.stage.args.model.options, reporter)
    }

    /// What the manifest says of the further models; their files are hashed for it.
    pub(crate) fn other_descriptions(&self) -> anyhow::Result<Vec<ModelDescription>> {
        self.others.iter().map(|other| describe(&other.args, &other.files)).collect()
    }
}

/// A model's files.
struct Files {
    located: Located,
    rehearsal: Rehearsal,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        Self { plan, data: Vec::new(), models: Vec::new(), folders: Vec::new() }
    }

    /// The stage, where nothing is wrong with it.
    pub(crate) fn check(&mut self, stage: &'a Stage, problems: &mut Problems) -> Option<Ready<'a>> {
        let data = self.data(stage, problems);
        let model = self.model(stage, &stage.args.model, Some("model"), problems);
        let others = self.others(stage, problems);
        let for_metrics = for_metrics(stage, problems);
        let earlier = self.folder(stage, problems);
        let ((samples, data), model, others, ()) = (data?, model?, others?, for_metrics?);
        let rehearsed = rehearse(stage, &samples, &model.rehearsal, &others);
        let rehearsed = rehearsed.map_err(|error| refuse(problems, stage, option_of(&error).as_deref(), &error));
        let (Ok(()), Ok(earlier)) = (rehearsed, earlier) else { return None };
        let mut ready = Ready { stage, samples, others, data, finished: false };
        match self.finished(&ready, earlier.as_ref(), &model) {
            Ok(finished) => ready.finished = finished,
            Err(error) => {
                refuse(problems, stage, Some("out"), error.as_ref());
                return None;
            }
        }
        Some(ready)
    }

    fn data(&mut self, stage: &'a Stage, problems: &mut Problems) -> Option<Data> {
        let args = &stage.args.data;
        if let Some((_, known)) = self.data.iter().find(|(known, _)| *known == args) {
            return known.clone();
        }
        let read = || {
            let samples = args.samples()?;
            let described = args.described(&samples)?;
            anyhow::Ok((samples.into(), described))
        };
        let read = read().map_err(|error| refuse(problems, stage, Some("data"), error.as_ref())).ok();
        self.data.push((args, read.clone()));
        read
    }

    /// The models that the method asks besides; `None` where something is wrong with one.
    fn others(&mut self, stage: &'a Stage, problems: &mut Problems) -> Option<Vec<Other>> {
        let named =
            stage.method.other_models(&stage.matches).map_err(|error| refuse(problems, stage, None, &error)).ok()?;
        // An adapter belongs to the model that it is given beside.
        let args = |model: String| ModelArgs { model, adapter: None, ..stage.args.model.clone() };
        // All of them are looked for, so that all problems are told.
        let all: Vec<Option<Other>> = named
            .into_iter()
            .map(args)
            .map(|args| self.model(stage, &args, None, problems).map(|files| Other { args, files }))
            .collect();
        all.into_iter().collect()
    }

    fn model(
        &mut self,
        stage: &'a Stage,
        args: &ModelArgs,
        option: Option<&str>,
        problems: &mut Problems,
    ) -> Option<Rc<Files>> {
        if let Some((_, known)) = self.models.iter().find(|(known, _)| known == args) {
            return known.clone();
        }
        let mut open = || {
            let located = args.located().map_err(|error| refuse(problems, stage, option, &error)).ok()?;
            let rehearsal = Rehearsal::open(&located, args.options.load_options());
            let rehearsal = rehearsal.map_err(|error| refuse(problems, stage, option, &error)).ok()?;
            Some(Rc::new(Files { located, rehearsal }))
        };
        let files = open();
        self.models.push((args.clone(), files.clone()));
        files
    }

    /// The run that its folder holds already.
    fn folder(&mut self, stage: &'a Stage, problems: &mut Problems) -> Result<Option<Manifest>, Refused> {
        if stage.args.ask.dry_run {
            return Ok(None);
        }
        let Some(out) = stage.args.out.as_deref() else {
            refuse(problems, stage, None, &NoFolder);
            return Err(Refused);
        };
        let folder = std::path::absolute(out).unwrap_or_else(|_| out.to_owned());
        let overlaps = |other: &PathBuf| other.starts_with(&folder) || folder.starts_with(other);
        if let Some((other, taken)) = self.folders.iter().find(|(_, other)| overlaps(other)) {
            let how = if *taken == folder { "is" } else { "overlaps with" };
            let shared = Shared { folder: out.display().to_string(), how, other: other.name().to_owned() };
            refuse(problems, stage, Some("out"), &shared);
            return Err(Refused);
        }
        self.folders.push((stage, folder));
        RunFolder::look(out, stage.args.keep.existing()).map_err(|error| {
            refuse(problems, stage, Some("out"), &error);
            Refused
        })
    }

    /// Whether a stage of a recipe that is resumed needs nothing; an error where its folder holds another run. A
    /// model's files are hashed for it, which is far quicker than loading the model.
    fn finished(&self, ready: &Ready<'_>, earlier: Option<&Manifest>, model: &Files) -> anyhow::Result<bool> {
        let Ready { stage, data, .. } = ready;
        let (Some(_), Some(earlier), Some(out), true) =
            (&stage.origin, earlier, &stage.args.out, stage.args.keep.resume)
        else {
            return Ok(false);
        };
        let options = stage.args.model.options.load_options();
        let (description, others) = (describe(&stage.args.model, model)?, ready.other_descriptions()?);
        let params = stage.method.params_in_force(&stage.matches)?;
        let command = stage.method.name();
        let about = About {
            command,
            arguments: &self.plan.arguments,
            params: &params,
            data,
            model: &description,
            others: &others,
            options,
        };
        if let Some(what) = about.info().difference(&earlier.info) {
            return Err(StoreError::Different { path: out.clone(), what }.into());
        }
        let same_data = data["sha256"].is_string() && earlier.info.arguments_in_force["data"] == *data;
        Ok(earlier.status == Status::Finished && same_data && Checked::of(out)?.wrong.is_empty())
    }
}

/// Looks for the models that metrics are made with; `None` where one is not there.
fn for_metrics(stage: &Stage, problems: &mut Problems) -> Option<()> {
    let named =
        stage.method.metric_models(&stage.matches).map_err(|error| refuse(problems, stage, None, &error)).ok()?;
    let mut found = Some(());
    for (option, name) in [("encoder", named.encoder), ("seq2seq", named.seq2seq)] {
        if let Some(error) = name.and_then(|name| locate(&name).err()) {
            refuse(problems, stage, Some(option), &error);
            found = None;
        }
    }
    found
}

/// Something is among the problems now.
struct Refused;

/// A stage of a recipe that says nothing of where its results go: a command line has a folder by its time, a recipe is
/// to give the same each time.
#[derive(Debug, thiserror::Error)]
#[error("`out` is missing\n\nhint: out = \"runs/{{run}}\" in its table, or in [defaults] for all")]
struct NoFolder;

/// Two stages want one folder.
#[derive(Debug, thiserror::Error)]
#[error(
    "{folder} {how} the folder of `{other}`\n\nhint: write a folder for each stage; {{run}}, {{model}}, {{data}} and \
     {{method}} stand for their names"
)]
struct Shared {
    folder: String,
    how: &'static str,
    other: String,
}

fn refuse(problems: &mut Problems, stage: &Stage, option: Option<&str>, error: &(dyn std::error::Error + 'static)) {
    problems.of(stage.origin.as_ref().map(|origin| &origin.lines), stage.name(), option, error);
}

/// What a loaded model says of itself, from its files alone.
fn describe(args: &ModelArgs, files: &Files) -> anyhow::Result<ModelDescription> {
    let checkpoint = files.rehearsal.checkpoint();
    Ok(checkpoint.describe(&files.located, args.options.load_options(), fingerprint(&checkpoint.files)?))
}

/// Runs the method up to its first question.
fn rehearse(stage: &Stage, samples: &[Sample], model: &dyn LanguageModel, others: &[Other]) -> Result<(), MethodError> {
    let others: Vec<&dyn LanguageModel> =
        others.iter().map(|other| -> &dyn LanguageModel { &other.files.rehearsal }).collect();
    match stage.method.run(&stage.matches, samples, &mut Run::new(model, &mut Nowhere).with_other_models(&others)) {
        Err(MethodError::Output(reached)) if reached.is::<Rehearsed>() => Ok(()),
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
        MethodError::NoSamples => Some("data".to_owned()),
        _ => None,
    }
}
