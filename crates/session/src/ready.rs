//! A stage that was checked: what was found of it, and what can be tried without a model in memory.

use std::sync::Arc;

use probity_data::Sample;
use probity_lm::{LanguageModel, ModelDescription};
use probity_methods::{MethodError, Run, RunOutput, Staging};
use probity_metrics::MetricModels;
use probity_runtime::{DryModel, LoadOptions, TextFiles};
use probity_store::{Manifest, RunInfo, RunStatus, StoreError};
use serde_json::Value;

use crate::inputs::{described, is_hashed};
use crate::nowhere::Nowhere;
use crate::option_files::OptionFile;
use crate::pooled::{PooledModel, SharedEncoder};
use crate::run_info::run_info;
use crate::stage::PlannedRun;
use crate::stage_tables::described_tables;
use crate::{CheckedRun, ModelPool, OpenedModel, SessionError, Silent};

/// A stage that can run, as far as can be told.
pub struct ReadyStage<'a> {
    /// The stage.
    pub stage: &'a PlannedRun,
    /// Its samples.
    pub samples: Arc<[Sample]>,
    /// What the manifest says of them.
    pub(crate) data: Value,
    /// Further models that its method asks.
    pub(crate) others: Vec<Arc<ModelFiles>>,
    /// Models of its metrics.
    pub(crate) for_metrics: Vec<MetricModel>,
    /// How its method goes through its stages.
    pub(crate) staging: Staging,
    /// Its folder holds the finished run of this very stage, which may stay as it is.
    pub(crate) finished: bool,
    /// Stages of the same plan whose folders it reads. What it reads is looked at when they have come to their end.
    pub(crate) after: Vec<&'a PlannedRun>,
    /// The model that it asks; absent where it asks none of its own.
    pub(crate) model: Option<Arc<ModelFiles>>,
    /// The run that its folder holds already.
    pub(crate) earlier: Option<Manifest>,
}

/// A model that metrics are made with.
pub(crate) struct MetricModel {
    pub(crate) opened: OpenedModel,
    pub(crate) files: MetricFiles,
}

/// The files of a model that metrics are made with.
pub(crate) enum MetricFiles {
    /// Of one that reads texts.
    Encoder(Arc<TextFiles>),
    /// Of one that tells how probable texts are.
    Seq2Seq(Box<ModelDescription>),
}

impl ReadyStage<'_> {
    /// The models that its metrics are made with, loaded when they are asked.
    pub(crate) fn metric_models(&self, pool: &Arc<ModelPool>) -> MetricModels {
        let mut models = MetricModels::default();
        for MetricModel { opened, files } in &self.for_metrics {
            match files {
                MetricFiles::Encoder(files) => {
                    models.encoder = Some(Arc::new(SharedEncoder::new(pool, opened.clone(), files.clone())));
                }
                MetricFiles::Seq2Seq(description) => {
                    let model = PooledModel::new(pool, opened.clone(), (**description).clone());
                    models.language_model = Some(Arc::new(model));
                }
            }
        }
        models
    }

    /// What the manifest says of the further models, and of those of metrics behind them; their files are hashed for it.
    pub(crate) fn other_descriptions(&self) -> Result<Vec<ModelDescription>, SessionError> {
        let others = self.others.iter().map(|other| other.opened.describe());
        let for_metrics = self.for_metrics.iter().map(|model| {
            Ok(match &model.files {
                MetricFiles::Encoder(files) => files.config().description.clone(),
                MetricFiles::Seq2Seq(description) => (**description).clone(),
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
        match &self.stage.shards {
            Some(shards) => shards.info(arguments),
            None => self.info_here(arguments, model, others),
        }
    }

    /// What is said of it by what is on this machine.
    fn info_here(
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
        let inputs = stage.described_inputs();
        // Of what judges no samples they are the data.
        if stage.needs.samples && inputs.as_object().is_some_and(|inputs| !inputs.is_empty()) {
            info.arguments_in_force["inputs"] = inputs;
        }
        if let tables @ Value::Object(_) = described_tables(&stage.run.ask) {
            info.arguments_in_force["from"] = tables;
        }
        let files = OptionFile::all(stage.method, &*stage.configured);
        if !files.is_empty() {
            let files = files.iter().map(|file| (file.field.as_str(), file.path.as_path()));
            info.arguments_in_force["files"] = described(files);
        }
        RunInfo { recipe: stage.origin.as_ref().map(|origin| origin.mark.clone()), ..info }
    }
}

/// A model whose files were opened and checked.
pub(crate) struct ModelFiles {
    pub(crate) opened: OpenedModel,
    /// Checks requests. Its description has no hash of the files.
    pub(crate) dry: DryModel<'static>,
}

impl ModelFiles {
    fn dry(&self) -> &dyn LanguageModel {
        &self.dry
    }
}

impl ReadyStage<'_> {
    /// Runs the method with the files of its models alone.
    pub(crate) fn rehearse(&self) -> Result<(), MethodError> {
        let others: Vec<&dyn LanguageModel> = self.others.iter().map(|other| other.dry()).collect();
        // Metrics are made with their models' files: a rehearsal ends before it scores, and so nothing is loaded.
        let pool = Arc::new(ModelPool::new(Arc::new(Silent)));
        self.run_dry(self.model.as_deref().map(ModelFiles::dry), &others, &pool, &mut Nowhere(|_| ()))
    }

    /// Runs the method against models that answer nothing, up to its last stage's questions; stand-ins take the place
    /// of what earlier stages would leave.
    pub(crate) fn run_dry(
        &self,
        model: Option<&dyn LanguageModel>,
        others: &[&dyn LanguageModel],
        pool: &Arc<ModelPool>,
        output: &mut dyn RunOutput,
    ) -> Result<(), MethodError> {
        let staging = Staging { stands_in: true, ..self.staging.clone() };
        let run = match model {
            Some(model) => Run::new(model, output),
            None => Run::without_model(output),
        };
        let mut run = run.with_other_models(others).with_metric_models(self.metric_models(pool)).with_staging(staging);
        match self.stage.configured.run(&self.samples, &mut run) {
            Err(MethodError::Rehearsed | MethodError::Until(_)) => Ok(()),
            ended => ended.map(drop),
        }
    }

    /// Whether the folder of a stage that is resumed holds this very run, and as it was written; an error where it holds
    /// another one. A model's files are hashed for it, which is far quicker than loading the model.
    pub(crate) fn look_at_earlier(&mut self, arguments: &[String]) -> Result<(), SessionError> {
        let stage = self.stage;
        if let Some(shards) = &stage.shards {
            shards.check_found(&self.info_by_files(arguments)?)?;
        }
        let until = stage.run.ask.until.as_deref();
        let (true, Some(earlier), Some(out), true) =
            (stage.origin.is_some() || until.is_some(), &self.earlier, &stage.run.output.out, stage.run.keep.resume)
        else {
            return Ok(());
        };
        let info = match &stage.shards {
            Some(shards) => shards.info(arguments),
            None => self.info_by_files(arguments)?,
        };
        if let Some(what) = info.difference(&earlier.info) {
            return Err(StoreError::Different { path: out.clone(), what }.into());
        }
        let same_data = is_hashed(&self.data) && earlier.info.arguments_in_force["data"] == self.data;
        self.finished = self.after.is_empty()
            && earlier.status == RunStatus::Finished
            && same_data
            && info.has_views_of(&earlier.info)
            && CheckedRun::check(out)?.wrong.is_empty();
        match until.filter(|until| !self.finished && is_beyond(earlier, until)) {
            Some(until) => {
                Err(SessionError::Beyond { path: out.clone(), status: earlier.status.name(), until: until.to_owned() })
            }
            None => Ok(()),
        }
    }

    /// What the manifest would say, by the files of its models alone, which are hashed for it.
    fn info_by_files(&self, arguments: &[String]) -> Result<RunInfo, SessionError> {
        let others = self.other_descriptions()?;
        let model = self.model.as_ref().map(|files| files.opened.describe()).transpose()?;
        // What the machine would put in the place of an option that was left out changes no result.
        let asked = model.as_ref().map(|model| (model, self.stage.model.computing.load_options()));
        Ok(self.info_here(arguments, asked, &others))
    }

    /// Does what a check leaves until the stages that it reads from have come to their end: now their files are there.
    pub(crate) fn settle(&mut self, arguments: &[String]) -> Result<(), SessionError> {
        if self.after.is_empty() {
            return Ok(());
        }
        self.after.clear();
        self.data = self.stage.described_inputs();
        self.rehearse()?;
        self.look_at_earlier(arguments)
    }
}

/// Whether a run has tables of stages behind this one, which ending there would take away.
fn is_beyond(run: &Manifest, until: &str) -> bool {
    match &run.status {
        RunStatus::Finished => true,
        RunStatus::Stopped { after } => after != until && run.stages.iter().any(|stage| stage["name"] == until),
        _ => false,
    }
}
