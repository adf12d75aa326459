//! A value of a recipe as the option has it.

use std::num::ParseIntError;
use std::path::Path;

use probity_options::{OptionKind, OptionSpec, ValueError};
use probity_runtime::hub::known_model;
use serde_json::Value;
use toml::de::DeValue;

use super::keys::form;

/// The option's value; nothing where it is left as it is. A file is looked for in `folder`.
pub(super) fn value(option: &OptionSpec, value: &DeValue<'_>, folder: &Path) -> Result<Option<Value>, WrongValue> {
    if option.kind == OptionKind::Flag {
        return match value {
            DeValue::Boolean(given) => Ok(Some((*given).into())),
            other => Err(WrongValue::Kind { expected: "true or false", found: kind(other) }),
        };
    }
    let texts = texts(option, value)?.into_iter().map(|text| located(option, text, folder));
    let mut values = texts.map(|text| parsed(option, &text)).collect::<Result<Vec<_>, _>>()?;
    if option.is_list {
        return Ok((!values.is_empty()).then_some(Value::Array(values)));
    }
    Ok(values.pop())
}

/// One value that is written as a text.
fn parsed(option: &OptionSpec, text: &str) -> Result<Value, WrongValue> {
    option.parse(text).map_err(|source| match source {
        ValueError::Choice { .. } => WrongValue::Choice(source),
        source => WrongValue::Text { text: text.escape_debug().to_string(), source },
    })
}

/// Why an option cannot have a value of a recipe.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum WrongValue {
    #[error("expected {expected}, found {found}")]
    Kind { expected: &'static str, found: &'static str },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Choice(ValueError),
    #[error("`{text}`: {source}")]
    Text {
        text: String,
        #[diagnostic_source]
        source: ValueError,
    },
    #[error(transparent)]
    Number(#[from] ParseIntError),
}

/// The values as they would be typed.
fn texts(option: &OptionSpec, value: &DeValue<'_>) -> Result<Vec<String>, WrongValue> {
    let form = form(option);
    match value {
        DeValue::Array(items) if option.is_list => items.iter().map(|item| scalar(item.get_ref())).collect(),
        DeValue::Array(items) if form.contains(',') => {
            Ok(vec![items.iter().map(|item| scalar(item.get_ref())).collect::<Result<Vec<_>, _>>()?.join(",")])
        }
        DeValue::Array(_) => Err(WrongValue::Kind { expected: "one value", found: "a list" }),
        DeValue::Table(pairs) if option.is_list && form.contains('=') => {
            pairs.iter().map(|(key, value)| Ok(format!("{}={}", key.get_ref(), scalar(value.get_ref())?))).collect()
        }
        value if option.is_list && form.ends_with(",…") => Ok(scalar(value)?.split(',').map(str::to_owned).collect()),
        value => Ok(vec![scalar(value)?]),
    }
}

fn scalar(value: &DeValue<'_>) -> Result<String, WrongValue> {
    match value {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().replace('_', "")),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            Ok(i64::from_str_radix(&digits, number.radix())?.to_string())
        }
        // As it is written: a recipe and its command are the same run, whose option reads the same digits.
        DeValue::Float(number) => Ok(number.as_str().replace('_', "")),
        other => Err(WrongValue::Kind { expected: "a text or a number", found: kind(other) }),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(true) => "true",
        DeValue::Boolean(false) => "false; leave the key out instead",
        DeValue::Datetime(_) => "a date; write it in quotes",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A path of the recipe's folder, where the value is one.
fn located(option: &OptionSpec, text: String, folder: &Path) -> String {
    let within = |path: &str| folder.join(path).display().to_string();
    let looks_like_path =
        |ends: &[&str]| text.starts_with("./") || text.starts_with("../") || ends.iter().any(|end| text.ends_with(end));
    match form(option).as_str() {
        // `-` is standard input.
        "FILE" | "DIR" | "FILE|DIR" if text != "-" && !text.is_empty() => within(&text),
        "TEXT|@FILE" => text.strip_prefix('@').map(|path| format!("@{}", within(path))).unwrap_or(text),
        // A hub's name has a slash too.
        "NAME|PATH" if known_model(&text).is_none() && (looks_like_path(&[".gguf"]) || folder.join(&text).exists()) => {
            within(&text)
        }
        "NAME|FILE" if looks_like_path(&[".j2", ".jinja", ".txt"]) || text.contains('/') => within(&text),
        _ => text,
    }
}
