//! What a method is, and how the registry holds methods of different parameters side by side.

use std::marker::PhantomData;

use probity_data::Sample;
use probity_options::{Given, OptionSpec, Options, read, specs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::flags::Flags;
use crate::{Builtin, MethodError, Report, Run, Summary};

/// The models that a method's metrics are made with, as the user named them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricModels {
    /// What reads texts.
    pub encoder: Option<String>,
    /// What tells how probable texts are.
    pub seq2seq: Option<String>,
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

    /// The further models that the method asks, as the user named them; [`Run::other_models`] holds them in this order.
    fn other_models(_: &Self::Params) -> Vec<String> {
        Vec::new()
    }

    /// The models that its metrics are made with; [`Run::metric_models`] holds them.
    fn metric_models(_: &Self::Params) -> MetricModels {
        MetricModels::default()
    }

    /// Judges `samples`. Options and templates are checked before the model is asked anything.
    fn run(params: &Self::Params, samples: &[Sample], run: &mut Run<'_>) -> Result<Report, MethodError>;
}

/// A method with its parameter type erased.
pub trait DynMethod: Sync {
    /// [`Method::NAME`].
    fn name(&self) -> &'static str;
    /// [`Method::ABOUT`].
    fn about(&self) -> &'static str;
    /// [`Method::LONG_ABOUT`].
    fn long_about(&self) -> &'static str;
    /// [`Method::PROMPTS`].
    fn prompts(&self) -> &'static [Builtin];
    /// All its options, those that every method has included.
    fn options(&self) -> Vec<OptionSpec>;
    /// The method with these options.
    fn with(&self, given: &Given) -> Result<Box<dyn Configured>, MethodError>;
}

/// A method with its options.
pub trait Configured: Send + Sync {
    /// The options with defaults filled in, for the manifest.
    fn options_in_force(&self) -> Value;
    /// [`Method::other_models`].
    fn other_models(&self) -> Vec<String>;
    /// [`Method::metric_models`].
    fn metric_models(&self) -> MetricModels;
    /// Runs the method. One that names other models needs a run that has them.
    fn run(&self, samples: &[Sample], run: &mut Run<'_>) -> Result<Summary, MethodError>;
}

/// The options of a method and those that every method has.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, bound = "P: Options")]
#[schemars(bound = "P: Options")]
struct All<P> {
    #[serde(flatten)]
    params: P,
    #[serde(flatten)]
    flags: Flags,
}

struct Erased<M>(PhantomData<fn() -> M>);

/// A registry entry.
pub(crate) const fn entry<M: Method + 'static>() -> &'static dyn DynMethod {
    const { &Erased::<M>(PhantomData) }
}

impl<M: Method + 'static> DynMethod for Erased<M> {
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

    fn options(&self) -> Vec<OptionSpec> {
        specs::<All<M::Params>>()
    }

    fn with(&self, given: &Given) -> Result<Box<dyn Configured>, MethodError> {
        Ok(Box::new(WithOptions::<M>(read(given)?)))
    }
}

struct WithOptions<M: Method>(All<M::Params>);

impl<M: Method> Configured for WithOptions<M> {
    fn options_in_force(&self) -> Value {
        serde_json::to_value(&self.0).expect("options are plain values under string keys")
    }

    fn other_models(&self) -> Vec<String> {
        M::other_models(&self.0.params)
    }

    fn metric_models(&self) -> MetricModels {
        M::metric_models(&self.0.params)
    }

    fn run(&self, samples: &[Sample], run: &mut Run<'_>) -> Result<Summary, MethodError> {
        if samples.is_empty() {
            return Err(MethodError::NoSamples);
        }
        let All { params, flags } = &self.0;
        let mut report = M::run(params, samples, run)?;
        flags.tell(samples, &mut report);
        Ok(Summary::new(M::NAME, report, run.cost()))
    }
}
