//! A stage of a plan: a method with its options, data, model and folder.

use std::path::{Path, PathBuf};

use probity_data::{GivenTable, Sample};
use probity_methods::{Configured, DynMethod, Input, LabelledFile, Needs};
use probity_options::{GivenOptions, OptionCause, OptionError, OptionSpec, read, specs};
use probity_store::{ANSWERS, RecipeMark};
use serde_json::Value;

use crate::inputs::described;
use crate::option_files::OptionFile;
use crate::options::{
    AskOptions, ComputingOptions, DataOptions, KeepOptions, ModelOptions, OutputOptions, RunOptions, StageTable,
};
use crate::problems::StageLines;
use crate::samples::GivenSamples;
use crate::{SessionError, Shards};

/// A stage of a plan.
pub struct PlannedRun {
    /// The method, or another kind of stage.
    pub method: &'static dyn DynMethod,
    /// The method with its options.
    pub configured: Box<dyn Configured>,
    /// What it needs with these options.
    pub needs: Needs,
    /// Its model. If it needs none of its own, how the models of its metrics compute.
    pub model: ModelOptions,
    /// The options of every run.
    pub run: RunOptions,
    /// Samples that replace the data file.
    pub samples: Option<GivenSamples>,
    /// Its recipe; absent for a command.
    pub origin: Option<StageOrigin>,
    /// The shards to merge, which provide the samples and answers.
    pub shards: Option<Shards>,
}

/// Where a stage of a recipe comes from.
#[derive(Debug, Clone)]
pub struct StageOrigin {
    /// The manifest's entry for the recipe.
    pub mark: RecipeMark,
    /// Its lines in the recipe.
    pub lines: StageLines,
}

/// A stage of a recipe that was not selected. Others may read its folder.
#[derive(Debug, Clone)]
pub struct OtherStage {
    /// Its name in messages.
    pub name: String,
    /// Its output folder.
    pub folder: PathBuf,
    /// Whether it has problems, which are reported separately; otherwise it was omitted.
    pub is_wrong: bool,
}

impl PlannedRun {
    /// Creates a stage from options of the method and of every run, by field.
    pub fn new(
        method: &'static dyn DynMethod,
        given: &GivenOptions,
        origin: Option<StageOrigin>,
    ) -> Result<Self, SessionError> {
        let kind = method.needs();
        let labels = kind.labels.filter(|labels| given.contains_key(labels.option));
        let is_off = |switch: &str| given.get(switch).is_some_and(|value| *value == true);
        let without_model = kind.without_model.is_some_and(is_off);
        let names_model = labels.is_none() || given.contains_key("model");
        let needs = Needs { model: kind.model && names_model && !without_model, ..kind };
        let mut given = given.clone();
        if without_model {
            // A recipe may set it for all runs.
            given.remove("model");
        }
        let given = &given;
        let (rest, model) = if needs.model {
            let (rest, model) = part(given.clone(), &specs::<ModelOptions>());
            (rest, read(&model)?)
        } else {
            let (rest, computing) = part(given.clone(), &specs::<ComputingOptions>());
            (rest, ModelOptions { computing: read(&computing)?, ..ModelOptions::default() })
        };
        let (own, run) = if needs.samples {
            let (own, run) = part(rest, &specs::<RunOptions>());
            let run = match labels {
                Some(labels) => labelled_run_options(labels, given, run)?,
                None => read(&run)?,
            };
            (own, run)
        } else {
            // A method may have an option with the name of a data option.
            let (rest, output) = part(rest, &specs::<OutputOptions>());
            let (rest, ask) = part(rest, &specs::<AskOptions>());
            let (own, keep) = part(rest, &specs::<KeepOptions>());
            let (output, ask, keep) = (read(&output)?, read(&ask)?, read(&keep)?);
            (own, RunOptions { data: DataOptions::default(), output, ask, keep })
        };
        let mut run = run;
        run.data.without_gold = labels.is_some() && !needs.model;
        run.ask.from.extend(tables(method, given));
        let configured = method.with(&own)?;
        run.data.read.context_optional = !configured.needs_context();
        let mut model = model;
        model.computing.keeps_prefixes = configured.asks_in_rounds();
        Ok(Self { method, configured, needs, model, run, samples: None, origin, shards: None })
    }

    /// Reads the samples from a table in memory; the option `data` is its name in messages.
    pub fn over_table(mut self, table: Box<dyn GivenTable>) -> Result<Self, SessionError> {
        let lacks = |sample: &Sample| self.configured.lacks(sample);
        self.samples = Some(GivenSamples::from_table(&self.run.data, table, lacks)?);
        Ok(self)
    }

    /// Sets the shards to merge.
    #[must_use]
    pub fn with_shards(mut self, shards: Shards) -> Self {
        self.run.data.shard = None;
        self.samples = Some(shards.samples().clone());
        self.shards = Some(shards);
        self
    }

    /// Whether it queries a model of its own.
    pub(crate) fn asks_model(&self) -> bool {
        self.needs.model
    }

    /// The samples and the tables of stages that it reads during the check.
    pub(crate) fn reads_first(&self) -> Vec<Input> {
        let RunOptions { data, ask, .. } = &self.run;
        // `-` is standard input.
        let has_file = self.needs.samples && self.samples.is_none() && data.data != Path::new("-");
        let samples = has_file.then(|| Input { option: "data", path: data.data.clone() });
        let tables = ask.from.iter().map(|table| Input { option: "from", path: table.file.clone() });
        samples.into_iter().chain(tables).collect()
    }

    /// All files that it reads, each with its option: samples, stage tables, cached answers, inputs, and files named by
    /// options.
    pub(crate) fn reads(&self) -> Vec<(String, PathBuf)> {
        let kept = self.run.keep.cache.iter();
        let kept = kept.map(|folder| Input { option: "cache", path: folder.join(ANSWERS) });
        let inputs = self.reads_first().into_iter().chain(kept).chain(self.configured.inputs());
        let of_options =
            OptionFile::all(self.method, &*self.configured).into_iter().map(|file| (file.option(), file.path));
        inputs.map(|input| (input.option.to_owned(), input.path)).chain(of_options).collect()
    }

    /// The manifest's entry for its inputs.
    pub(crate) fn described_inputs(&self) -> Value {
        described(self.configured.inputs().iter().map(|input| (input.option, input.path.as_path())))
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        self.origin.as_ref().map_or(self.method.name(), |origin| &origin.mark.stage)
    }
}

/// The options of a run whose samples come from a file of human labels.
fn labelled_run_options(
    labels: LabelledFile,
    given: &GivenOptions,
    mut run: GivenOptions,
) -> Result<RunOptions, OptionError> {
    let of_samples = ["data", "map", "data_format"];
    if let Some(other) = of_samples.into_iter().find(|field| run.contains_key(*field)) {
        let cause = OptionCause::Conflict { other: other.replace('_', "-") };
        return Err(OptionError { field: labels.option.to_owned(), cause });
    }
    run.extend(given.get(labels.option).map(|file| ("data".to_owned(), file.clone())));
    let mut run: RunOptions = read(&run)?;
    run.data.importer = Some(labels.importer);
    Ok(run)
}

/// Stage tables set by the method's own options: `#[schemars(extend("table" = "STAGE"))]`.
fn tables(method: &dyn DynMethod, given: &GivenOptions) -> Vec<StageTable> {
    let table = |option: OptionSpec| {
        let stage = option.extension("table")?.as_str()?.to_owned();
        Some(StageTable { stage, file: given.get(&option.field)?.as_str()?.into() })
    };
    method.options().into_iter().filter_map(table).collect()
}

/// Splits the values into those of other options and those of `specs`.
fn part(given: GivenOptions, specs: &[OptionSpec]) -> (GivenOptions, GivenOptions) {
    given.into_iter().partition(|(field, _)| !specs.iter().any(|spec| spec.has_field(field)))
}
