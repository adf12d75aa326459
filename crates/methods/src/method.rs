//! The method traits, and the object-safe form that the registry holds.

use std::marker::PhantomData;
use std::path::PathBuf;

use probity_analysis::GoldColumns;
use probity_analysis::trust::{Promises, has_gold};
use probity_data::{LineError, Sample};
use probity_lm::LanguageModel;
use probity_options::{GivenOptions, OptionSpec, Options, read, specs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::defended::defended;
use crate::flags::Flags;
use crate::question::LayoutOptions;
use crate::{Builtin, MethodError, MethodReport, Run, StageSpec};

/// A model that a method uses besides the command's model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleModel {
    /// Its role: `judge`, `encoder`. The option that names it has, or ends in, the role's name.
    pub role: &'static str,
    /// The name from the user.
    pub name: String,
    /// The kind of model required.
    pub kind: ModelKind,
}

/// The kinds of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// Scores labels and texts, and generates; queried by the method.
    Language,
    /// Scores and generates; used by metrics.
    Seq2Seq,
    /// Computes hidden states of whole texts; used by metrics.
    Encoder,
}

impl RoleModel {
    /// A language model that the method queries.
    pub fn language(role: &'static str, name: &str) -> Self {
        Self { role, name: name.to_owned(), kind: ModelKind::Language }
    }

    /// The models that metrics need, as far as they are named.
    pub fn for_metrics(encoder: Option<&str>, seq2seq: Option<&str>) -> Vec<Self> {
        let encoder = encoder.map(|name| Self { role: "encoder", name: name.to_owned(), kind: ModelKind::Encoder });
        let seq2seq = seq2seq.map(|name| Self { role: "seq2seq", name: name.to_owned(), kind: ModelKind::Seq2Seq });
        encoder.into_iter().chain(seq2seq).collect()
    }
}

/// An evaluation method: one file with its parameters, prompts, aggregation and documentation, and one line in the
/// registry.
pub trait Method {
    /// The options. Their serialised form is the arguments in force.
    type Params: Options + Send + Sync;
    /// The command's name.
    const NAME: &'static str;
    /// One line, without a final period.
    const ABOUT: &'static str;
    /// What is computed, from which paper, and what the numbers mean.
    const LONG_ABOUT: &'static str;

    /// The built-in prompts; a user's file can replace each.
    const PROMPTS: &'static [Builtin] = &[];

    /// The models that the method uses besides the command's model. [`Run::other_models`] holds those of
    /// [`ModelKind::Language`] in this order, [`Run::metric_models`] the others.
    fn models(_: &Self::Params) -> Vec<RoleModel> {
        Vec::new()
    }

    /// The possible stages in order. Empty if all questions are known in advance.
    const STAGES: &'static [StageSpec] = &[];

    /// Whether these options include the stage.
    fn has_stage(_: &Self::Params, _name: &str) -> bool {
        true
    }

    /// The inputs that it needs. A method without samples defines [`Self::inputs`].
    const NEEDS: Needs = Needs::MODEL_AND_SAMPLES;

    /// The files that it reads besides samples.
    fn inputs(_: &Self::Params) -> Vec<Input> {
        Vec::new()
    }

    /// Whether it shows candidates to a model and scores each one, as declared in [`MethodReport::scores`]. Such a
    /// method can be attacked, and defences can change candidates before the model sees them.
    const JUDGES_CANDIDATES: bool = false;

    /// Whether later prompts share prefixes with earlier ones, so that caching prefixes pays off.
    fn asks_in_rounds(_: &Self::Params) -> bool {
        false
    }

    /// The prompt layout, if it can be chosen.
    fn layout(_: &Self::Params) -> Option<&LayoutOptions> {
        None
    }

    /// The required inputs that a sample lacks.
    fn lacks(_: &Self::Params, _: &Sample) -> Vec<LineError> {
        Vec::new()
    }

    /// Judges `samples`. Options and templates are validated before the model is queried.
    fn run(params: &Self::Params, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError>;
}

/// Inputs that a method needs, independent of its options: they determine which options exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The language model of the command.
    pub model: bool,
    /// The samples of `--data`.
    pub samples: bool,
    /// A file with samples and human labels, which replaces `--data`. `--model` is then optional: a run without a model
    /// evaluates the labels.
    pub labels: Option<LabelledFile>,
    /// The switch for a run without a model.
    pub without_model: Option<&'static str>,
}

impl Needs {
    /// A model and samples.
    pub const MODEL_AND_SAMPLES: Self = Self { model: true, samples: true, labels: None, without_model: None };
    /// No model and no samples.
    pub const NOTHING: Self = Self { model: false, samples: false, labels: None, without_model: None };
}

/// A file with samples and human labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelledFile {
    /// The option field with its path.
    pub option: &'static str,
    /// The importer that turns it into samples.
    pub importer: &'static str,
}

/// An input file other than samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The option with its path, without dashes.
    pub option: &'static str,
    /// The file, or the folder that must contain it if that is missing.
    pub path: PathBuf,
}

/// Object-safe form of [`Method`], also implemented by metrics and `meta`.
pub trait DynMethod: Sync {
    /// [`Method::NAME`].
    fn name(&self) -> &'static str;
    /// [`Method::ABOUT`].
    fn about(&self) -> &'static str;
    /// [`Method::LONG_ABOUT`].
    fn long_about(&self) -> &'static str;
    /// [`Method::PROMPTS`].
    fn prompts(&self) -> &'static [Builtin] {
        &[]
    }
    /// [`Method::JUDGES_CANDIDATES`].
    fn judges_candidates(&self) -> bool {
        false
    }

    /// [`Method::STAGES`].
    fn all_stages(&self) -> &'static [StageSpec] {
        &[]
    }
    /// [`Method::NEEDS`].
    fn needs(&self) -> Needs {
        Needs::MODEL_AND_SAMPLES
    }
    /// All options, including those common to all methods.
    fn options(&self) -> Vec<OptionSpec>;
    /// Configures the method with these options.
    fn with(&self, given: &GivenOptions) -> Result<Box<dyn Configured>, MethodError>;
}

/// A method with its options.
pub trait Configured: Send + Sync {
    /// The options with defaults filled in, for the manifest.
    fn options_in_force(&self) -> Value;
    /// [`Method::models`].
    fn models(&self) -> Vec<RoleModel> {
        Vec::new()
    }
    /// The stages of [`Method::STAGES`] that these options include.
    fn stages(&self) -> Vec<StageSpec> {
        Vec::new()
    }
    /// [`Method::asks_in_rounds`].
    fn asks_in_rounds(&self) -> bool {
        false
    }

    /// Input files other than samples. They may be outputs of other runs, which must then run first.
    fn inputs(&self) -> Vec<Input> {
        Vec::new()
    }
    /// The required inputs that a sample lacks.
    fn lacks(&self, _: &Sample) -> Vec<LineError> {
        Vec::new()
    }
    /// Whether samples need a context or an instruction; otherwise the data file may lack both columns.
    fn needs_context(&self) -> bool {
        true
    }
    /// Runs the method. `run` must hold the models of [`Self::models`]. A dry run reads and validates everything, then
    /// ends with [`MethodError::Rehearsed`] instead of the work.
    fn run(&self, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError>;
}

/// The options of a method, with those common to all methods.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, bound = "P: Options")]
#[schemars(bound = "P: Options")]
struct AllOptions<P> {
    #[serde(flatten)]
    params: P,
    #[serde(flatten)]
    flags: Flags,
}

struct ErasedMethod<M>(PhantomData<fn() -> M>);

/// The registry entry of a method, from this crate or another.
pub const fn entry<M: Method + 'static>() -> &'static dyn DynMethod {
    const { &ErasedMethod::<M>(PhantomData) }
}

impl<M: Method + 'static> DynMethod for ErasedMethod<M> {
    fn name(&self) -> &'static str {
        M::NAME
    }

    fn about(&self) -> &'static str {
        M::ABOUT
    }

    fn long_about(&self) -> &'static str {
        M::LONG_ABOUT
    }

    fn prompts(&self) -> &'static [Builtin] {
        M::PROMPTS
    }

    fn all_stages(&self) -> &'static [StageSpec] {
        M::STAGES
    }

    fn judges_candidates(&self) -> bool {
        M::JUDGES_CANDIDATES
    }

    fn needs(&self) -> Needs {
        M::NEEDS
    }

    fn options(&self) -> Vec<OptionSpec> {
        specs::<AllOptions<M::Params>>()
    }

    fn with(&self, given: &GivenOptions) -> Result<Box<dyn Configured>, MethodError> {
        let (given, columns) = GoldColumns::split(given);
        Ok(Box::new(WithOptions::<M>(read(&given)?, columns)))
    }
}

struct WithOptions<M: Method>(AllOptions<M::Params>, GoldColumns);

impl<M: Method> Configured for WithOptions<M> {
    fn options_in_force(&self) -> Value {
        self.1.joined(serde_json::to_value(&self.0).expect("options are plain values under string keys"))
    }

    fn models(&self) -> Vec<RoleModel> {
        M::models(&self.0.params)
    }

    fn stages(&self) -> Vec<StageSpec> {
        M::STAGES.iter().filter(|stage| M::has_stage(&self.0.params, stage.name)).copied().collect()
    }

    fn asks_in_rounds(&self) -> bool {
        M::asks_in_rounds(&self.0.params)
    }

    fn inputs(&self) -> Vec<Input> {
        M::inputs(&self.0.params)
    }

    fn lacks(&self, sample: &Sample) -> Vec<LineError> {
        M::lacks(&self.0.params, sample)
    }

    fn run(&self, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        if samples.is_empty() && M::NEEDS.samples {
            return Err(MethodError::NoSamples);
        }
        let AllOptions { params, flags } = &self.0;
        let stages: Vec<&'static str> = self.stages().iter().map(|stage| stage.name).collect();
        run.staging().check(M::NAME, &stages)?;
        let defences = M::layout(params).map_or(&[][..], |layout| &layout.defence);
        if let Some(of_texts) = defences.iter().find(|defence| defence.is_of_texts() && !M::JUDGES_CANDIDATES) {
            let why = format!("it changes candidates before they are judged, but {} judges no candidates", M::NAME);
            return MethodError::refuse(format!("--defence {of_texts}"), why, "use sandwich or nonce:KEY");
        }
        let model = run.model_if_any().map(LanguageModel::description).filter(|model| !model.classes.is_empty());
        if let (Some(of_texts), Some(model)) = (defences.iter().find(|defence| defence.is_of_texts()), model) {
            let why = format!("it needs a language model; {} is a classifier or reward model", model.name);
            return MethodError::refuse(format!("--defence {of_texts}"), why, "omit it");
        }
        let options = serde_json::to_value(&self.0).expect("options are plain values under string keys");
        let samples = &*self.1.renamed(samples, options["no_gold"] == true)?;
        let shown = defended(defences, samples, run)?;
        run.begin(stages, &shown.samples);
        let looks_at_gold = M::JUDGES_CANDIDATES && options["no_gold"] != true;
        let mut report = M::run(params, &shown.samples, run)?;
        report.signature = report.signature.with_other_options(params);
        shown.report_withheld(defences, &mut report);
        if looks_at_gold && samples.iter().any(has_gold) {
            let asked = options["attribute"].as_array().into_iter().flatten();
            let asked: Vec<&str> = asked.filter_map(Value::as_str).collect();
            if let Some(promises) = Promises::new(M::NAME, samples, &asked, &report.scores) {
                report.tables.extend(promises.tables(run.keeps_rows()));
                report.values["trust"] = json!(promises.trusted);
                run.write_to_label(&promises.to_label)?;
            }
        }
        let looked_at = if M::NEEDS.samples { samples } else { run.judged_texts() };
        flags.report_flagged(looked_at, run.quoted(), &mut report);
        run.report_provided_tables(&mut report);
        Ok(report.finished(run.cost()))
    }
}
