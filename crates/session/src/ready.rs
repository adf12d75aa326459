//! A checked stage, and what can be tried without loading a model.

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

/// A stage that passed all checks before loading.
pub struct ReadyStage<'a> {
    /// The stage.
    pub stage: &'a PlannedRun,
    /// Its samples.
    pub samples: Arc<[Sample]>,
    /// The manifest's entry for the samples.
    pub(crate) data: Value,
    /// Additional models of its method.
    pub(crate) others: Vec<Arc<ModelFiles>>,
    /// Models of its metrics.
    pub(crate) for_metrics: Vec<MetricModel>,
    /// How its method handles its stages.
    pub(crate) staging: Staging,
    /// Its folder already holds exactly this run, finished.
    pub(crate) finished: bool,
    /// Stages of the plan whose folders it reads. Their files are checked after they ran.
    pub(crate) after: Vec<&'a PlannedRun>,
    /// Its model; absent if it needs none of its own.
    pub(crate) model: Option<Arc<ModelFiles>>,
    /// The run already in its folder.
    pub(crate) earlier: Option<Manifest>,
}

/// A model of metrics.
pub(crate) struct MetricModel {
    pub(crate) opened: OpenedModel,
    pub(crate) files: MetricFiles,
}

/// The files of a metric's model.
pub(crate) enum MetricFiles {
    /// An encoder.
    Encoder(Arc<TextFiles>),
    /// A sequence-to-sequence model that scores texts.
    Seq2Seq(Box<ModelDescription>),
}

impl ReadyStage<'_> {
    /// The models of its metrics, loaded when first used.
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

    /// The descriptions of additional models, then of those of metrics, with hashes of their files.
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

    /// The manifest's data when the run begins; `options` are those of the loaded model.
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

    /// The same from the files on this machine.
    fn info_here(
        &self,
        arguments: &[String],
        model: Option<(&ModelDescription, LoadOptions)>,
        others: &[ModelDescription],
    ) -> RunInfo {
        let stage = self.stage;
        let params = stage.configured.options_in_force();
        // Models of metrics use the stage's options. Without any model the options have no effect, and recording them
        // would make equal runs differ.
        let for_metrics = (!self.for_metrics.is_empty()).then(|| stage.model.computing.load_options());
        let options = model.map(|(_, options)| options).or(for_metrics);
        let formatted = |model: &ModelDescription| stage.model.computing.described(model.clone());
        let model = model.map(|(model, _)| formatted(model));
        // Models of metrics read no chats.
        let (own, of_metrics) = others.split_at(self.others.len().min(others.len()));
        let others: Vec<ModelDescription> = own.iter().map(formatted).chain(of_metrics.iter().cloned()).collect();
        let mut info =
            run_info(stage.method.name(), arguments, &params, &self.data, (model.as_ref(), options), &others);
        let inputs = stage.described_inputs();
        // For stages without samples, the inputs are the data.
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
    /// Runs the method with only the files of its models.
    pub(crate) fn rehearse(&self) -> Result<(), MethodError> {
        let others: Vec<&dyn LanguageModel> = self.others.iter().map(|other| other.dry()).collect();
        // Metrics are created from their models' files, and a rehearsal ends before they score, so nothing is loaded.
        let pool = Arc::new(ModelPool::new(Arc::new(Silent)));
        self.run_dry(self.model.as_deref().map(ModelFiles::dry), &others, &pool, &mut Nowhere(|_| ()))
    }

    /// Runs the method against models that do not answer, up to the queries of its last stage; placeholders replace the
    /// output of earlier stages.
    pub(crate) fn run_dry(
        &self,
        model: Option<&dyn LanguageModel>,
        others: &[&dyn LanguageModel],
        pool: &Arc<ModelPool>,
        output: &mut dyn RunOutput,
    ) -> Result<(), MethodError> {
        let staging = Staging { stands_in: true, ..self.staging.clone() };
        let (model, others) = self.stage.model.computing.thinking_models(model, others);
        let others: Vec<&dyn LanguageModel> = others.iter().map(|other| other as _).collect();
        let run = match &model {
            Some(model) => Run::new(model, output),
            None => Run::without_model(output),
        };
        let mut run = run.with_other_models(&others).with_metric_models(self.metric_models(pool)).with_staging(staging);
        match self.stage.configured.run(&self.samples, &mut run) {
            Err(MethodError::Rehearsed | MethodError::Until(_)) => Ok(()),
            ended => ended.map(drop),
        }
    }

    /// Checks whether the folder of a resumed stage holds exactly this run, undamaged. Fails if it holds another one.
    /// Hashes the model's files, which is much faster than loading it.
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

    /// The manifest's data from the models' files alone, with hashes.
    fn info_by_files(&self, arguments: &[String]) -> Result<RunInfo, SessionError> {
        let others = self.other_descriptions()?;
        let model = self.model.as_ref().map(|files| files.opened.describe()).transpose()?;
        // Defaults that depend on the machine do not change results.
        let asked = model.as_ref().map(|model| (model, self.stage.model.computing.load_options()));
        Ok(self.info_here(arguments, asked, &others))
    }

    /// Completes the check after the stages that it reads from have run.
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

/// Whether a run has tables of later stages, which stopping there would delete.
fn is_beyond(run: &Manifest, until: &str) -> bool {
    match &run.status {
        RunStatus::Finished => true,
        RunStatus::Stopped { after } => after != until && run.stages.iter().any(|stage| stage["name"] == until),
        _ => false,
    }
}
