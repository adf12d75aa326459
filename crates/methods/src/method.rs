//! What a method is, and how the registry holds methods of different parameters side by side.

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
use crate::{Builtin, MethodError, MethodReport, Run, RunSummary, StageSpec};

/// A model that a method asks besides the one of its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleModel {
    /// What it does: `judge`, `encoder`. The option that names it is called so too, or ends in it.
    pub role: &'static str,
    /// As the user named it.
    pub name: String,
    /// What it must be able to do.
    pub kind: ModelKind,
}

/// What a model can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// How probable labels and texts are, and how a text goes on; the method asks it itself.
    Language,
    /// The same, for metrics.
    Seq2Seq,
    /// Hidden states of whole texts, for metrics.
    Encoder,
}

impl RoleModel {
    /// A model that the method asks itself.
    pub fn language(role: &'static str, name: &str) -> Self {
        Self { role, name: name.to_owned(), kind: ModelKind::Language }
    }

    /// The models that metrics are made with, where they are named.
    pub fn of_metrics(encoder: Option<&str>, seq2seq: Option<&str>) -> Vec<Self> {
        let encoder = encoder.map(|name| Self { role: "encoder", name: name.to_owned(), kind: ModelKind::Encoder });
        let seq2seq = seq2seq.map(|name| Self { role: "seq2seq", name: name.to_owned(), kind: ModelKind::Seq2Seq });
        encoder.into_iter().chain(seq2seq).collect()
    }
}

/// An evaluation method: one file with its parameters, prompts, aggregation and documentation, and one line in the
/// registry.
pub trait Method {
    /// The options. Serialised, they are the arguments in force.
    type Params: Options + Send + Sync;
    /// The command's name.
    const NAME: &'static str;
    /// One line, without a final period.
    const ABOUT: &'static str;
    /// What is computed, from which paper, and what the numbers mean.
    const LONG_ABOUT: &'static str;

    /// The prompts that ship with it, each of which the user can put a file in the place of.
    const PROMPTS: &'static [Builtin] = &[];

    /// The models that the method asks besides the one of its command. [`Run::other_models`] holds those of
    /// [`ModelKind::Language`] in this order, [`Run::metric_models`] the others.
    fn models(_: &Self::Params) -> Vec<RoleModel> {
        Vec::new()
    }

    /// The stages that it may have, in the order in which it does them; none of a method whose questions are all known
    /// beforehand.
    const STAGES: &'static [StageSpec] = &[];

    /// Whether it does this one of its stages with these options.
    fn has_stage(_: &Self::Params, _name: &str) -> bool {
        true
    }

    /// What it works with. A method that reads no samples has [`Self::inputs`].
    const NEEDS: Needs = Needs::MODEL_AND_SAMPLES;

    /// The files that it reads besides samples.
    fn inputs(_: &Self::Params) -> Vec<Input> {
        Vec::new()
    }

    /// Whether it shows a model the candidates of samples and gives each a score, which it declares in
    /// [`MethodReport::scores`]. Such a method can be attacked, and what candidates say can be changed before it is shown.
    const JUDGES_CANDIDATES: bool = false;

    /// Whether it asks again about prompts that begin as those before: then it pays to keep what they begin with.
    fn asks_in_rounds(_: &Self::Params) -> bool {
        false
    }

    /// How its prompts are laid out, where that can be chosen.
    fn layout(_: &Self::Params) -> Option<&LayoutOptions> {
        None
    }

    /// What it works with and a sample lacks.
    fn lacks(_: &Self::Params, _: &Sample) -> Vec<LineError> {
        Vec::new()
    }

    /// Judges `samples`. Options and templates are checked before the model is asked anything.
    fn run(params: &Self::Params, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError>;
}

/// What somebody works with, whatever its options are. It is known without them, since it says which options there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The language model of its command, which it asks.
    pub model: bool,
    /// The samples of `--data`.
    pub samples: bool,
    /// A file with samples and people's labels, which replaces `--data`. With it `--model` is optional: a run without a
    /// model evaluates the labels.
    pub labels: Option<LabelledFile>,
    /// The switch with which no model is used.
    pub without_model: Option<&'static str>,
}

impl Needs {
    /// A model and samples.
    pub const MODEL_AND_SAMPLES: Self = Self { model: true, samples: true, labels: None, without_model: None };
    /// No model and no samples.
    pub const NOTHING: Self = Self { model: false, samples: false, labels: None, without_model: None };
}

/// A file with samples and labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelledFile {
    /// The field of the option that leads to it.
    pub option: &'static str,
    /// The importer that makes samples of it.
    pub importer: &'static str,
}

/// A file that is read besides samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The option that leads to it, without dashes.
    pub option: &'static str,
    /// The file; the folder that it is to lie in, where that is not there yet.
    pub path: PathBuf,
}

/// A method with its parameter type erased, or anything else that comes to a summary: metrics over samples, scores held
/// against gold.
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
    /// All its options, those that every method has included.
    fn options(&self) -> Vec<OptionSpec>;
    /// The method with these options.
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
    /// Those of [`Method::STAGES`] that it does.
    fn stages(&self) -> Vec<StageSpec> {
        Vec::new()
    }
    /// [`Method::asks_in_rounds`].
    fn asks_in_rounds(&self) -> bool {
        false
    }

    /// The files that it reads besides samples. They may be those of other runs, which then have to come first.
    fn inputs(&self) -> Vec<Input> {
        Vec::new()
    }
    /// What it works with and a sample lacks.
    fn lacks(&self, _: &Sample) -> Vec<LineError> {
        Vec::new()
    }
    /// Whether samples need a context or an instruction; otherwise their file may have no column for one.
    fn needs_context(&self) -> bool {
        true
    }
    /// Runs the method. One that names other models needs a run that has them. Where the run is a rehearsal, everything
    /// is read and checked, and it ends by [`MethodError::Rehearsed`] before the work.
    fn run(&self, samples: &[Sample], run: &mut Run<'_>) -> Result<RunSummary, MethodError>;
}

/// The options of a method and those that every method has.
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

/// The method as the registry holds it; so can one that is none of this crate's.
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

    fn run(&self, samples: &[Sample], run: &mut Run<'_>) -> Result<RunSummary, MethodError> {
        if samples.is_empty() && M::NEEDS.samples {
            return Err(MethodError::NoSamples);
        }
        let AllOptions { params, flags } = &self.0;
        let stages: Vec<&'static str> = self.stages().iter().map(|stage| stage.name).collect();
        run.staging().check(M::NAME, &stages)?;
        let defences = M::layout(params).map_or(&[][..], |layout| &layout.defence);
        if let Some(of_texts) = defences.iter().find(|defence| defence.is_of_texts() && !M::JUDGES_CANDIDATES) {
            let why = format!("it changes candidates before they are judged, and {} judges none", M::NAME);
            return MethodError::refuse(format!("--defence {of_texts}"), why, "say sandwich or nonce:KEY here");
        }
        let model = run.model_if_any().map(LanguageModel::description).filter(|model| !model.classes.is_empty());
        if let (Some(of_texts), Some(model)) = (defences.iter().find(|defence| defence.is_of_texts()), model) {
            let why = format!("a language model is asked for it, and {} tells classes apart", model.name);
            return MethodError::refuse(format!("--defence {of_texts}"), why, "leave it out");
        }
        let options = serde_json::to_value(&self.0).expect("options are plain values under string keys");
        let samples = &*self.1.renamed(samples, options["no_gold"] == true)?;
        let shown = defended(defences, samples, run)?;
        run.begin(stages, &shown.samples);
        let looks_at_gold = M::JUDGES_CANDIDATES && options["no_gold"] != true;
        let mut report = M::run(params, &shown.samples, run)?;
        report.signature = report.signature.with_other_options(params);
        shown.tell(defences, &mut report);
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
        flags.tell(looked_at, run.quoted(), &mut report);
        run.tell_given(&mut report);
        Ok(RunSummary::new(M::NAME, report, run.cost()))
    }
}
