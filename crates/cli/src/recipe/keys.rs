//! Which keys a table of a recipe may have: the long options of the command line.

use std::any::TypeId;
use std::num::NonZeroUsize;

use clap::builder::Str;
use clap::{Arg, ArgAction, Args, Command};
use probity_lm::nearest;
use probity_methods::DynMethod;
use serde_json::Value;

use crate::compute::ModelArgs;
use crate::data::DataArgs;
use crate::method;
use crate::report::ReportOptions;

/// Options that say how a recipe is gone about this time, not what it is.
const OF_THE_MOMENT: [&str; 4] = ["overwrite", "resume", "dry-run", "help"];

/// The options that a run of this method may have.
pub(super) fn of_run(method: &dyn DynMethod) -> Vec<Arg> {
    options(&method::command(method))
}

/// The options of a `[model.NAME]`.
pub(super) fn of_model() -> Vec<Arg> {
    options(&ModelArgs::augment_args(Command::new("model")))
}

/// The options of a `[data.NAME]`.
pub(super) fn of_data() -> Vec<Arg> {
    options(&DataArgs::augment_args(Command::new("data")))
}

/// The options of `[report]`.
pub(super) fn of_report() -> Vec<Arg> {
    options(&report())
}

/// `probity report` without the runs.
pub(super) fn report() -> Command {
    ReportOptions::augment_args(Command::new("report")).no_binary_name(true)
}

fn options(command: &Command) -> Vec<Arg> {
    command
        .get_arguments()
        .filter(|option| option.get_long().is_some_and(|long| !OF_THE_MOMENT.contains(&long)))
        .cloned()
        .collect()
}

/// The option of that long name.
pub(super) fn find<'a>(options: &'a [Arg], key: &str) -> Option<&'a Arg> {
    options.iter().find(|option| option.get_long() == Some(key))
}

/// `there is no key `atribute` here; did you mean `attribute`?`, with all that there are.
pub(super) fn unknown<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let dashed = key.replace('_', "-");
    let near =
        nearest(&dashed, known.iter().copied()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let listed = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("`{}` is not known here{near}\n\nhint: what may stand here: {listed}", key.escape_debug())
}

/// What kind of value an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Flag,
    Integer,
    Number,
    /// A number of bytes, or a text with a unit.
    Size,
    Text,
}

/// The kind of an option's value; of each, where it takes several.
pub(super) fn kind(option: &Arg) -> Kind {
    let of = option.get_value_parser().type_id();
    let integers = [
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<NonZeroUsize>(),
    ];
    match () {
        () if !option.get_action().takes_values() => Kind::Flag,
        () if form(option) == "SIZE" => Kind::Size,
        () if integers.iter().any(|integer| of == *integer) => Kind::Integer,
        () if of == TypeId::of::<f64>() => Kind::Number,
        () => Kind::Text,
    }
}

/// Whether it may be given several times.
pub(super) fn is_list(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}

/// How the help writes the option's value: `FILE`, `NAME|PATH`, `FIRST,SECOND`.
pub(super) fn form(option: &Arg) -> String {
    option.get_value_names().unwrap_or_default().iter().map(Str::as_str).collect::<Vec<_>>().join(" ")
}

/// The whole help of an option.
pub(super) fn help(option: &Arg) -> String {
    option.get_long_help().or(option.get_help()).map(ToString::to_string).unwrap_or_default()
}

/// The default of an option as JSON, which is TOML too for what there is.
pub(super) fn default(option: &Arg) -> Option<Value> {
    let one = |text: &str| match kind(option) {
        Kind::Integer | Kind::Number | Kind::Size => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        Kind::Flag | Kind::Text => Value::from(text),
    };
    if kind(option) == Kind::Flag {
        return Some(Value::Bool(false));
    }
    let texts: Vec<Value> = option.get_default_values().iter().map(|text| one(&text.to_string_lossy())).collect();
    match texts.as_slice() {
        [] => None,
        _ if is_list(option) => Some(Value::Array(texts)),
        [only, ..] => Some(only.clone()),
    }
}
