//! Valid keys in the tables of a recipe: the long names of options.

use probity_lm::nearest;
use probity_methods::DynMethod;
use probity_options::{OptionKind, OptionSpec};
use probity_session::{ErrorText, stage_kinds, stage_options};
use serde_json::Value;

/// Options of one invocation, which do not belong in a recipe.
const OF_THE_MOMENT: [&str; 3] = ["overwrite", "resume", "dry_run"];

/// The valid values of `method`.
pub(super) fn methods() -> impl Iterator<Item = &'static str> + Clone {
    stage_kinds().map(DynMethod::name)
}

/// The options of a run with this method: its own, then those of every run.
pub(super) fn run_options(method: &dyn DynMethod) -> Vec<OptionSpec> {
    let mut options = stage_options(method);
    options.retain(|option| !OF_THE_MOMENT.contains(&option.field.as_str()));
    options
}

/// The option with this long name.
pub(super) fn find<'a>(options: &'a [OptionSpec], key: &str) -> Option<&'a OptionSpec> {
    options.iter().flat_map(|option| std::iter::once(option).chain(&option.keys)).find(|option| option.name() == key)
}

/// `there is no key `atribute` here; did you mean `attribute`?`, with the valid keys.
pub(super) fn unknown<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> ErrorText {
    let known: Vec<&str> = known.into_iter().collect();
    let dashed = key.replace('_', "-");
    let near = nearest(&dashed, known.iter().copied());
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let listed = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    ErrorText::from(format!("unknown key `{}`{near}", key.escape_debug())).with_hint(format!("known keys: {listed}"))
}

/// The value's form in the help: `FILE`, `NAME|PATH`, `FIRST,SECOND`.
pub(super) fn form(option: &OptionSpec) -> String {
    if option.form.is_empty() { option.field.to_uppercase() } else { option.form.clone() }
}

/// The possible values; empty if unrestricted.
pub(super) fn choices(option: &OptionSpec) -> Vec<&str> {
    match &option.kind {
        OptionKind::Choice(choices) => choices.iter().map(|choice| choice.name.as_str()).collect(),
        _ => Vec::new(),
    }
}

/// The default, which is also valid TOML; `None` if there is none.
pub(super) fn default(option: &OptionSpec) -> Option<Value> {
    let texts = option.typed_defaults();
    let one = |text: &String| match option.kind {
        OptionKind::Flag | OptionKind::Integer { .. } | OptionKind::Number => serde_json::from_str(text).ok(),
        OptionKind::Choice(_) | OptionKind::Text => Some(Value::from(text.as_str())),
    };
    let mut values: Vec<Value> = texts.iter().filter_map(one).collect();
    if option.is_list { (!values.is_empty()).then_some(Value::Array(values)) } else { values.pop() }
}
