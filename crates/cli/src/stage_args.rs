//! Commands that are stages and have options of the command line alone besides.

use std::marker::PhantomData;

use clap::{ArgMatches, Command, FromArgMatches};
use probity_methods::DynMethod;
use probity_session::stage_options;

use crate::options::{given, with_options};

/// What a stage's command is on the command line.
pub(crate) trait StageCommand {
    /// The stage.
    const METHOD: &'static dyn DynMethod;

    /// The command, where its options are told otherwise than in a recipe.
    fn told(command: Command) -> Command;
}

/// The options of a stage as they were typed.
#[derive(Debug, Clone)]
pub(crate) struct StageArgs<S> {
    pub(crate) given: probity_options::GivenOptions,
    of: PhantomData<S>,
}

impl<S: StageCommand> clap::Args for StageArgs<S> {
    fn augment_args(command: Command) -> Command {
        S::told(of_plan(with_options(command, &stage_options(S::METHOD))))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: StageCommand> FromArgMatches for StageArgs<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { given: given(matches, &stage_options(S::METHOD)), of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A command whose stage may be gone on with: a run that is there already has to be named.
pub(crate) fn of_plan(command: Command) -> Command {
    command.mut_arg("resume", |option| option.requires("out")).mut_arg("overwrite", |option| option.requires("out"))
}
