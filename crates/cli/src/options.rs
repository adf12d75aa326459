//! Converts typed options into clap arguments.

use std::marker::PhantomData;

use clap::builder::{PossibleValue, PossibleValuesParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use probity_options::{GivenOptions, OptionKind, OptionSpec, Options, read, specs};
use probity_session::{ErrorText, SessionError, UserConfig};
use serde_json::Value;

/// Options of a type for clap's derive: `#[command(flatten)] model: Typed<ModelOptions>`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Typed<P>(pub(crate) P);

impl<P> std::ops::Deref for Typed<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.0
    }
}

impl<P: Options> clap::Args for Typed<P> {
    fn augment_args(command: Command) -> Command {
        with_options(command, &specs::<P>())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<P: Options> FromArgMatches for Typed<P> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let told = |error: probity_options::OptionError| {
            let told = ErrorText::from_error(&SessionError::from(error));
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{told}\n"))
        };
        read(&typed_options(matches, &specs::<P>())).map(Self).map_err(told)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A set of options that is parsed later, together with others.
pub(crate) trait OptionSet {
    /// All options.
    fn specs() -> Vec<OptionSpec>;

    /// Changes what differs between a command and a recipe.
    fn adjust_command(command: Command) -> Command {
        command
    }
}

/// The typed values of a set of options.
#[derive(Debug, Clone)]
pub(crate) struct TypedGiven<S> {
    pub(crate) given: GivenOptions,
    of: PhantomData<S>,
}

impl<S: OptionSet> clap::Args for TypedGiven<S> {
    fn augment_args(command: Command) -> Command {
        S::adjust_command(with_options(command, &S::specs()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: OptionSet> FromArgMatches for TypedGiven<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { given: typed_options(matches, &S::specs()), of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Adds options to a command.
pub(crate) fn with_options(command: Command, specs: &[OptionSpec]) -> Command {
    // Keys of an option are also options, as in earlier versions.
    let with_keys = |command: Command, spec: &OptionSpec| {
        command.arg(argument(spec)).args(spec.keys.iter().map(|key| argument(key).hide(true)))
    };
    specs.iter().fold(command, with_keys)
}

/// The typed values by field, with the user's defaults for `--compute`. Other defaults are added when the values are
/// read.
pub(crate) fn typed_options(matches: &ArgMatches, specs: &[OptionSpec]) -> GivenOptions {
    let mut given = GivenOptions::new();
    for spec in specs.iter().flat_map(|spec| std::iter::once(spec).chain(&spec.keys)) {
        let id = spec.field.as_str();
        // Values that clap fills in are skipped, because `run` would prefer them to those of the recipe. The default
        // model of the configuration is an exception: it comes as the default of a required option.
        let is_typed = |id: &str| matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
        if !is_typed(id) && (!spec.is_required || spec.unless.as_deref().is_some_and(is_typed)) {
            continue;
        }
        if spec.kind == OptionKind::Flag {
            given.insert(id.to_owned(), matches.get_flag(id).into());
            continue;
        }
        let texts = matches.get_many::<String>(id).into_iter().flatten();
        // Completed values are not validated here; errors are reported when they are read.
        let mut values = texts.map(|text| spec.parse(text).unwrap_or_else(|_| text.as_str().into()));
        let value = if spec.is_list { Some(Value::Array(values.collect())) } else { values.next() };
        given.extend(value.map(|value| (id.to_owned(), value)));
    }
    // An unreadable file has already been reported before parsing.
    UserConfig::load().unwrap_or_default().add_compute(specs, &mut given);
    given
}

/// The clap argument for an option. Its definition alone decides which values are valid.
fn argument(spec: &OptionSpec) -> Arg {
    let argument = Arg::new(spec.field.clone()).long(spec.long());
    let argument = match &spec.unless {
        Some(other) if spec.is_required => argument.required_unless_present(other.clone()),
        _ => argument.required(spec.is_required),
    };
    let argument = match spec.extension("heading").and_then(Value::as_str) {
        Some(heading) => argument.help_heading(heading.to_owned()),
        None => argument,
    };
    let argument = help(argument, &spec.help);
    let argument = argument.conflicts_with_all(spec.conflicts().map(str::to_owned).collect::<Vec<_>>());
    if spec.kind == OptionKind::Flag {
        return argument.action(ArgAction::SetTrue);
    }
    let form = if spec.form.is_empty() { spec.field.to_uppercase() } else { spec.form.clone() };
    let argument = argument
        // A text may begin with a dash, like a list of criteria.
        .allow_hyphen_values(form.contains("TEXT"))
        .value_delimiter(form.ends_with(",…").then_some(','))
        .action(if spec.is_list { ArgAction::Append } else { ArgAction::Set })
        .value_name(form)
        .value_parser(parser(spec));
    argument.default_values(spec.typed_defaults())
}

/// Help of one paragraph has no final period; of several, the first is the short one.
fn help(argument: Arg, text: &str) -> Arg {
    let short = |text: &str| text.strip_suffix('.').unwrap_or(text).to_owned();
    match text.split_once("\n\n") {
        Some((first, _)) => argument.help(short(first)).long_help(text.to_owned()),
        None => argument.help(short(text)),
    }
}

fn parser(spec: &OptionSpec) -> ValueParser {
    if let OptionKind::Choice(choices) = &spec.kind {
        let value = |choice: &probity_options::OptionChoice| {
            let value = PossibleValue::new(choice.name.clone());
            if choice.help.is_empty() { value } else { value.help(choice.help.trim_end_matches('.').to_owned()) }
        };
        return PossibleValuesParser::new(choices.iter().map(value)).into();
    }
    let spec = spec.clone();
    // Checked here but kept as text, so that one type serves all options; it is read later with the same specification.
    ValueParser::from(move |text: &str| {
        spec.parse(text).map(|_| text.to_owned()).map_err(|error| WrongOptionValue(ErrorText::from_error(&error)))
    })
}

/// Why a text is invalid, with the hint: clap prints only an error's message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongOptionValue(ErrorText);
