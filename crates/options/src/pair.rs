//! Parsing of `KEY=VALUE` options.

use probity_lm::{did_you_mean, nearest};
use serde_json::Value;

use crate::{OptionKind, OptionSpec};

/// Why a text is no valid pair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("{why}")]
pub struct PairProblem {
    /// What is wrong.
    pub why: String,
    /// How to fix it.
    #[help]
    pub hint: String,
}

/// Parses `key=value` into a field and its value. `owner` names what has these options. A repeatable option gets a list
/// of one value.
///
/// # Errors
/// If there is no `=`, the key is unknown, or the value is invalid.
pub fn read_pair(owner: &str, known: &[OptionSpec], pair: &str) -> Result<(String, Value), PairProblem> {
    let names: Vec<String> = known.iter().map(OptionSpec::name).collect();
    let hint = || {
        if names.is_empty() {
            format!("{owner} has no options")
        } else {
            format!("its options are {}", names.join(", "))
        }
    };
    let no_value = || format!("`{}` has no value", pair.escape_debug());
    let (key, text) = pair
        .split_once('=')
        .ok_or_else(|| PairProblem { why: no_value(), hint: format!("write KEY=VALUE; {}", hint()) })?;
    let Some(spec) = known.iter().find(|spec| spec.name() == key) else {
        let near = did_you_mean(nearest(key, names.iter().map(String::as_str)));
        return Err(PairProblem { why: format!("unknown option `{}`{near}", key.escape_debug()), hint: hint() });
    };
    let value = spec.parse(text).map_err(|why| refused(spec, text, &why))?;
    let value = if spec.is_list { Value::Array(vec![value]) } else { value };
    Ok((spec.field.clone(), value))
}

/// The error for an invalid value.
fn refused(spec: &OptionSpec, text: &str, why: &impl ToString) -> PairProblem {
    let key = spec.name();
    let is = format!("`{key}` cannot be `{}`", text.escape_debug());
    match &spec.kind {
        OptionKind::Flag => PairProblem { why: is, hint: format!("write {key}=yes or {key}=no") },
        OptionKind::Choice(choices) => {
            let names = || choices.iter().map(|choice| choice.name.as_str());
            let why = format!("{is}{}", did_you_mean(nearest(text, names())));
            PairProblem { why, hint: format!("use one of {}", names().collect::<Vec<_>>().join(", ")) }
        }
        _ => PairProblem { why: format!("{is}: {}", why.to_string()), hint: format!("{key}: {}", spec.help) },
    }
}
