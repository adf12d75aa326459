//! A value of a recipe as arguments of the command line, which are then read by the same code.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use probity_lm::nearest;
use probity_runtime::hub::known_model;
use toml::de::DeValue;

use super::keys::{form, is_list};

/// The arguments that a value stands for: none for `false` and for an empty list. A file is looked for in `folder`.
pub(super) fn arguments(option: &Arg, value: &DeValue<'_>, folder: &Path) -> Result<Vec<String>, String> {
    let name = option.get_long().unwrap_or_default();
    if !option.get_action().takes_values() {
        return match value {
            DeValue::Boolean(true) => Ok(vec![format!("--{name}")]),
            DeValue::Boolean(false) => Ok(Vec::new()),
            other => Err(format!("expected true or false, found {}", kind(other))),
        };
    }
    let texts = texts(option, value)?;
    Ok(texts.into_iter().map(|text| format!("--{name}={}", located(option, text, folder))).collect())
}

/// The values as they would be typed.
fn texts(option: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let many = is_list(option);
    let form = form(option);
    match value {
        DeValue::Array(items) if many => items.iter().map(|item| scalar(item.get_ref())).collect(),
        DeValue::Array(items) if form.contains(',') => {
            Ok(vec![items.iter().map(|item| scalar(item.get_ref())).collect::<Result<Vec<_>, _>>()?.join(",")])
        }
        DeValue::Array(_) => Err("expected one value, found a list".to_owned()),
        DeValue::Table(pairs) if many && form.contains('=') => {
            pairs.iter().map(|(key, value)| Ok(format!("{}={}", key.get_ref(), scalar(value.get_ref())?))).collect()
        }
        value => Ok(vec![scalar(value)?]),
    }
}

fn scalar(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().replace('_', "")),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            i64::from_str_radix(&digits, number.radix())
                .map(|number| number.to_string())
                .map_err(|error| error.to_string())
        }
        DeValue::Float(number) => Ok(number.as_str().replace('_', "")),
        other => Err(format!("expected a text or a number, found {}", kind(other))),
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
fn located(option: &Arg, text: String, folder: &Path) -> String {
    let within = |path: &str| folder.join(path).display().to_string();
    let looks_like_path =
        |ends: &[&str]| text.starts_with("./") || text.starts_with("../") || ends.iter().any(|end| text.ends_with(end));
    match form(option).as_str() {
        "FILE" | "DIR" if text != "-" => within(&text),
        "TEXT|@FILE" => text.strip_prefix('@').map(|path| format!("@{}", within(path))).unwrap_or(text),
        // A hub's name has a slash too.
        "NAME|PATH" if known_model(&text).is_none() && (looks_like_path(&[".gguf"]) || folder.join(&text).exists()) => {
            within(&text)
        }
        "NAME|FILE" if looks_like_path(&[".j2", ".jinja", ".txt"]) || text.contains('/') => within(&text),
        _ => text,
    }
}

/// Whether the option takes these arguments; says why not in a recipe's words.
pub(super) fn check(command: &Command, arguments: &[String]) -> Result<(), String> {
    let relaxed = command.clone().mut_args(|option| option.required(false)).no_binary_name(true);
    // In a dry run a folder may be missing.
    let dry =
        command.get_arguments().any(|option| option.get_long() == Some("dry-run")).then(|| "--dry-run".to_owned());
    let given = arguments.iter().cloned().chain(dry);
    relaxed.try_get_matches_from(given).map(drop).map_err(|error| told(&error))
}

/// What clap found, without the dashes of a command line.
pub(super) fn told(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let bare = |text: String| {
        let names = text
            .split(", ")
            .map(|name| format!("`{}`", name.trim_start_matches("--").split([' ', '=']).next().unwrap_or_default()));
        names.collect::<Vec<_>>().join(", ")
    };
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(known)) if !known.is_empty() => {
                let near =
                    nearest(&value, known.iter().map(String::as_str)).map(|near| format!("; did you mean `{near}`?"));
                format!("`{}` is none of {}{}", value.escape_debug(), known.join(", "), near.unwrap_or_default())
            }
            _ => "expected a value".to_owned(),
        },
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            let why = match why.as_str() {
                "invalid digit found in string" | "cannot parse integer from empty string" => "expected a whole number",
                "invalid float literal" => "expected a number",
                why => why,
            };
            format!("`{}`: {why}", value.escape_debug())
        }
        ErrorKind::MissingRequiredArgument => {
            format!("{} is missing", bare(text(ContextKind::InvalidArg).unwrap_or_default()))
        }
        ErrorKind::ArgumentConflict => {
            let [one, other] =
                [ContextKind::InvalidArg, ContextKind::PriorArg].map(|kind| bare(text(kind).unwrap_or_default()));
            format!("{one} does not go with {other}")
        }
        ErrorKind::TooManyValues | ErrorKind::WrongNumberOfValues => "expected one value".to_owned(),
        _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    }
}
