//! What can be told of a plan before a model is loaded: data, folders, model files, prompts.

use std::path::PathBuf;
use std::rc::Rc;

use probity_data::Sample;
use probity_lm::{LanguageModel, LmError};
use probity_methods::{MethodError, Run};
use probity_runtime::hub::{Located, locate};
use probity_runtime::weights::fingerprint;
use probity_runtime::{Rehearsal, Rehearsed};
use probity_store::{Manifest, RunFolder, Status, StoreError};
use serde_json::Value;

use crate::compute::ModelArgs;
use crate::data::DataArgs;
use crate::dry_run::Nowhere;
use crate::method::About;
use crate::plan::{Plan, Stage};
use crate::problems::Problems;

/// A stage that can run, as far as can be told.
pub(crate) struct Ready<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) samples: Rc<[Sample]>,
    /// What the manifest says of them.
    pub(crate) data: Value,
    /// Its folder holds the finished run of this very stage, which may stay as it is.
    pub(crate) finished: bool,
}

/// Checks stages one after another; what several of them share is read once.
pub(crate) struct Checker<'a> {
    plan: &'a Plan,
    data: Vec<(&'a DataArgs, Option<Data>)>,
    models: Vec<(&'a ModelArgs, Option<Rc<Files>>)>,
    /// Absolute.
    folders: Vec<(&'a Stage, PathBuf)>,
}

/// Samples, and what the manifest says of them.
type Data = (Rc<[Sample]>, Value);

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
        let model = self.model(stage, problems);
        let earlier = self.folder(stage, problems);
        let ((samples, data), model) = (data?, model?);
        let rehearsed = rehearse(stage, &samples, &model.rehearsal);
        let rehearsed = rehearsed.map_err(|error| refuse(problems, stage, option_of(&error).as_deref(), &error));
        let (Ok(()), Ok(earlier)) = (rehearsed, earlier) else { return None };
        let finished = match self.finished(stage, earlier.as_ref(), &data, &model) {
            Ok(finished) => finished,
            Err(error) => {
                refuse(problems, stage, Some("out"), error.as_ref());
                return None;
            }
        };
        Some(Ready { stage, samples, data, finished })
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

    fn model(&mut self, stage: &'a Stage, problems: &mut Problems) -> Option<Rc<Files>> {
        let args = &stage.args.model;
        if let Some((_, known)) = self.models.iter().find(|(known, _)| *known == args) {
            return known.clone();
        }
        let mut open = || {
            let located = locate(&args.model).map_err(|error| refuse(problems, stage, Some("model"), &error)).ok()?;
            let rehearsal = Rehearsal::open(&located, args.options.load_options());
            let rehearsal = rehearsal.map_err(|error| refuse(problems, stage, Some("model"), &error)).ok()?;
            Some(Rc::new(Files { located, rehearsal }))
        };
        let files = open();
        self.models.push((args, files.clone()));
        files
    }

    /// The run that its folder holds already.
    fn folder(&mut self, stage: &'a Stage, problems: &mut Problems) -> Result<Option<Manifest>, Refused> {
        let Some(out) = stage.args.out.as_deref().filter(|_| !stage.args.ask.dry_run) else { return Ok(None) };
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

    /// Whether a stage of a recipe that is resumed needs nothing; an error where its folder holds another run. A model's files are hashed
    /// for it, which is far quicker than loading the model.
    fn finished(&self, stage: &Stage, earlier: Option<&Manifest>, data: &Value, model: &Files) -> anyhow::Result<bool> {
        let (Some(_), Some(earlier), Some(out), true) = (&stage.origin, earlier, &stage.args.out, stage.args.keep.resume) else {
            return Ok(false);
        };
        let options = stage.args.model.options.load_options();
        let checkpoint = model.rehearsal.checkpoint();
        let description = checkpoint.describe(&model.located, options, fingerprint(&checkpoint.files)?);
        let params = stage.method.params_in_force(&stage.matches)?;
        let command = stage.method.name();
        let about = About { command, arguments: &self.plan.arguments, params: &params, data, model: &description, options };
        if let Some(what) = about.info().difference(&earlier.info) {
            return Err(StoreError::Different { path: out.clone(), what }.into());
        }
        let same_data = data["sha256"].is_string() && earlier.info.arguments_in_force["data"] == *data;
        let there =
            || earlier.files.iter().filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm")).all(|name| out.join(name).is_file());
        Ok(earlier.status == Status::Finished && same_data && there())
    }
}

/// Something is among the problems now.
struct Refused;

/// Two stages want one folder.
#[derive(Debug, thiserror::Error)]
#[error(
    "{folder} {how} the folder of `{other}`\n\nhint: write a folder for each stage; {{run}}, {{model}}, {{data}} and {{method}} stand for their names"
)]
struct Shared {
    folder: String,
    how: &'static str,
    other: String,
}

fn refuse(problems: &mut Problems, stage: &Stage, option: Option<&str>, error: &(dyn std::error::Error + 'static)) {
    problems.of(stage.origin.as_ref().map(|origin| &origin.lines), stage.name(), option, error);
}

/// Runs the method up to its first question.
fn rehearse(stage: &Stage, samples: &[Sample], model: &dyn LanguageModel) -> Result<(), MethodError> {
    match stage.method.run(&stage.matches, samples, &mut Run::new(model, &mut Nowhere)) {
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
