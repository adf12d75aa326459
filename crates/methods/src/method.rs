//! What a method is, and how the registry holds methods of different parameters side by side.

use std::marker::PhantomData;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};
use probity_data::Sample;
use serde::Serialize;
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

/// An evaluation method: one file with its parameters, prompts, aggregation and documentation, and one line in the registry.
pub trait Method {
    /// The command-line options; their doc comments are the help. Serialised, they are the arguments in force.
    type Params: clap::Args + Serialize;
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
    /// A subcommand of this name with this help and these options; the caller adds its own (model, data, output).
    fn command(&self) -> Command;
    /// The options with defaults filled in, for the manifest.
    fn params_in_force(&self, matches: &ArgMatches) -> Result<Value, MethodError>;
    /// [`Method::PROMPTS`].
    fn prompts(&self) -> &'static [Builtin];
    /// [`Method::other_models`] of these options.
    fn other_models(&self, matches: &ArgMatches) -> Result<Vec<String>, MethodError>;
    /// [`Method::metric_models`] of these options.
    fn metric_models(&self, matches: &ArgMatches) -> Result<MetricModels, MethodError>;
    /// Reads the options and runs the method. A method that names other models needs a run that has them.
    fn run(&self, matches: &ArgMatches, samples: &[Sample], run: &mut Run<'_>) -> Result<Summary, MethodError>;
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

    fn command(&self) -> Command {
        let command = Command::new(M::NAME);
        Flags::augment_args(<M::Params as clap::Args>::augment_args(command)).about(M::ABOUT).long_about(M::LONG_ABOUT)
    }

    fn params_in_force(&self, matches: &ArgMatches) -> Result<Value, MethodError> {
        let params = <M::Params as clap::FromArgMatches>::from_arg_matches(matches)?;
        let mut in_force = serde_json::to_value(params).expect("options are plain values under string keys");
        in_force["text_flags"] = Flags::from_arg_matches(matches)?.is_on().into();
        Ok(in_force)
    }

    fn prompts(&self) -> &'static [Builtin] {
        M::PROMPTS
    }

    fn other_models(&self, matches: &ArgMatches) -> Result<Vec<String>, MethodError> {
        Ok(M::other_models(&<M::Params as clap::FromArgMatches>::from_arg_matches(matches)?))
    }

    fn metric_models(&self, matches: &ArgMatches) -> Result<MetricModels, MethodError> {
        Ok(M::metric_models(&<M::Params as clap::FromArgMatches>::from_arg_matches(matches)?))
    }

    fn run(&self, matches: &ArgMatches, samples: &[Sample], run: &mut Run<'_>) -> Result<Summary, MethodError> {
        if samples.is_empty() {
            return Err(MethodError::NoSamples);
        }
        let params = <M::Params as clap::FromArgMatches>::from_arg_matches(matches)?;
        let flags = Flags::from_arg_matches(matches)?;
        let mut report = M::run(&params, samples, run)?;
        flags.tell(samples, &mut report);
        Ok(Summary::new(M::NAME, report, run.cost()))
    }
}
