//! Converts values of a recipe into values of options.

use std::num::ParseIntError;
use std::path::Path;

use probity_options::{OptionKind, OptionSpec, ValueError};
use probity_runtime::hub::known_model;
use serde_json::Value;
use toml::de::DeValue;

use super::keys::form;

/// The option's value. Paths are relative to `folder`.
pub(super) fn value(option: &OptionSpec, value: &DeValue<'_>, folder: &Path) -> Result<Value, WrongValue> {
    if option.kind == OptionKind::Flag {
        return match value {
            DeValue::Boolean(given) => Ok((*given).into()),
            other => Err(WrongValue::Kind { expected: "true or false", found: kind(other) }),
        };
    }
    let is_empty = match value {
        DeValue::Array(items) => items.is_empty(),
        DeValue::Table(pairs) => pairs.is_empty(),
        _ => false,
    };
    if is_empty {
        return Err(WrongValue::NoItem);
    }
    let texts = texts(option, value)?.into_iter().map(|text| located(option, text, folder));
    let mut values = texts.map(|text| parsed(option, &text)).collect::<Result<Vec<_>, _>>()?;
    Ok(if option.is_list { Value::Array(values) } else { values.swap_remove(0) })
}

/// Parses one value from its text.
fn parsed(option: &OptionSpec, text: &str) -> Result<Value, WrongValue> {
    option.parse(text).map_err(|source| match source {
        ValueError::Choice { .. } => WrongValue::Choice(source),
        source => WrongValue::Text { text: text.escape_debug().to_string(), source },
    })
}

/// Why a value is invalid.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum WrongValue {
    #[error("expected {expected}, found {found}")]
    Kind { expected: &'static str, found: &'static str },
    /// An empty list could mean the default or nothing.
    #[error("the list is empty")]
    #[diagnostic(help("omit the key"))]
    NoItem,
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
    // A size may be a number of bytes; elsewhere a number instead of a text is probably a mistake.
    let is_text = matches!(option.kind, OptionKind::Choice(_) | OptionKind::Text) && form != "SIZE";
    let one = |value: &DeValue<'_>| match value {
        DeValue::Integer(_) | DeValue::Float(_) if is_text => {
            Err(WrongValue::Kind { expected: "a quoted string", found: kind(value) })
        }
        value => scalar(value),
    };
    match value {
        DeValue::Array(items) if option.is_list => items.iter().map(|item| one(item.get_ref())).collect(),
        DeValue::Array(items) if form.contains(',') => {
            Ok(vec![items.iter().map(|item| one(item.get_ref())).collect::<Result<Vec<_>, _>>()?.join(",")])
        }
        DeValue::Array(_) => Err(WrongValue::Kind { expected: "one value", found: "a list" }),
        DeValue::Table(pairs) if option.is_list && form.contains('=') => {
            let text = |value: &DeValue<'_>| match value {
                DeValue::Boolean(on) if !option.keys.is_empty() => Ok(if *on { "yes" } else { "no" }.to_owned()),
                value => scalar(value),
            };
            pairs.iter().map(|(key, value)| Ok(format!("{}={}", key.get_ref(), text(value.get_ref())?))).collect()
        }
        value if option.is_list && form.ends_with(",…") => Ok(one(value)?.split(',').map(str::to_owned).collect()),
        value => Ok(vec![one(value)?]),
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
        // Kept as written, so that a recipe and its command parse the same digits.
        DeValue::Float(number) => Ok(number.as_str().replace('_', "")),
        other => Err(WrongValue::Kind { expected: "a string or a number", found: kind(other) }),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(true) => "true",
        DeValue::Boolean(false) => "false; omit the key instead",
        DeValue::Datetime(_) => "a date; write it in quotes",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A path relative to the recipe's folder, if the value is a path.
fn located(option: &OptionSpec, text: String, folder: &Path) -> String {
    let within = |path: &str| folder.join(path).display().to_string();
    let looks_like_path =
        |ends: &[&str]| text.starts_with("./") || text.starts_with("../") || ends.iter().any(|end| text.ends_with(end));
    match form(option).as_str() {
        // `-` is standard input.
        "FILE" | "DIR" | "FILE|DIR" if text != "-" && !text.is_empty() => within(&text),
        form if form.starts_with("TEXT|@FILE") => match text.strip_prefix('@') {
            Some(path) if !path.is_empty() => format!("@{}", within(path)),
            _ => text,
        },
        form if form.ends_with("=FILE") => match text.split_once('=') {
            Some((name, path)) if !path.is_empty() => format!("{name}={}", within(path)),
            _ => text,
        },
        // Names of the hub contain a slash too.
        "NAME|PATH" if known_model(&text).is_none() && (looks_like_path(&[".gguf"]) || folder.join(&text).exists()) => {
            within(&text)
        }
        "NAME|FILE" if looks_like_path(&[".j2", ".jinja", ".txt"]) || text.contains('/') => within(&text),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use probity_session::{ErrorText, stage_kind, stage_options};
    use serde_json::json;
    use toml::de::DeTable;

    use super::super::keys;
    use super::*;

    /// Parses a line of a recipe in `folder` as an option of a method; returns the error's text.
    fn read_as(method: &str, folder: &str, line: &str) -> Result<Value, String> {
        let table = DeTable::parse(line).expect("TOML");
        let (key, given) = table.get_ref().iter().next().expect("a key");
        let options = stage_options(stage_kind(method).expect("a method"));
        value(keys::find(&options, key.get_ref()).expect("an option"), given.get_ref(), Path::new(folder))
            .map_err(|error| ErrorText::from_error(&error).to_string())
    }

    fn read(line: &str) -> Result<Value, String> {
        read_as("checklist", "", line)
    }

    #[test]
    fn files_are_those_of_the_recipes_folder_in_whatever_form_they_are_given() {
        for (method, line, expected) in [
            ("g-eval", "steps = \"@s.txt\"", json!("@/r/s.txt")),
            ("g-eval", "steps = \"generate\"", json!("generate")),
            ("checklist", "question = [\"Is it?\", \"@q.txt\"]", json!(["Is it?", "@/r/q.txt"])),
            ("reviseval", "reviser-template = \"adapted=a.j2\"", json!(["adapted=/r/a.j2"])),
            ("reviseval", "from = \"revisions=r.jsonl\"", json!(["revisions=/r/r.jsonl"])),
            ("judge", "template = \"own/t.j2\"", json!("/r/own/t.j2")),
        ] {
            assert_eq!(read_as(method, "/r", line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn an_empty_list_is_no_value_and_a_number_no_text() {
        let refused = |line: &str| read(line).expect_err(line);
        for line in ["question = []", "label-words = []", "map = {}"] {
            assert_eq!(refused(line), "the list is empty\n\nhint: omit the key");
        }
        for line in ["question = 7", "question = [\"Is it?\", 7]", "label-words = [1, 2]", "format = 7.5"] {
            assert_eq!(refused(line), "expected a quoted string, found a number", "{line}");
        }
        assert_eq!(read("question = \"7\""), Ok(json!(["7"])));
        assert_eq!(read("cache-budget = 1073741824"), read("cache-budget = \"1073741824\""));
        assert_eq!(read("compute = { threads = 2, no-sharing = true }"), Ok(json!(["no-sharing=yes", "threads=2"])));
        assert_eq!(read("compute = [\"isa=plain\"]"), Ok(json!(["isa=plain"])));
        assert!(refused("compute = { thread = 2 }").contains("unknown option `thread`; did you mean `threads`?"));
        assert_eq!(read("limit = 7"), Ok(json!(7)));
    }
}
