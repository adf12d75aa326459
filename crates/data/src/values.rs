//! Cell values as numbers and names.

use serde_json::Value;

use crate::line_error::excerpt;

/// Why a value is not a number.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(crate) enum NumberError {
    #[error("expected a number, found {found}")]
    Kind { found: &'static str },
    #[error("`{}` is not a finite number", excerpt(text))]
    #[diagnostic(help("write a decimal point instead of a comma: 0.5, not 0,5"))]
    Comma { text: String },
    #[error("`{}` is not a finite number", excerpt(text))]
    #[diagnostic(help("leave the cell empty if there is no score"))]
    Text { text: String },
    #[error("larger in magnitude than {MOST_SCORE:e}")]
    #[diagnostic(help("scale the scores"))]
    Far,
    #[error("{text} is an integer beyond ±2^53, which cannot be represented exactly")]
    #[diagnostic(help("subtract the same number from all scores"))]
    Rounded { text: String },
}

/// Maximum score: sums of squares over any realistic number of scores stay finite.
pub(crate) const MOST_SCORE: f64 = 1e100;

/// Parses a number, possibly from a text; `None` for null or an empty cell. True is 1, false is 0.
pub(crate) fn number(value: &Value) -> Result<Option<f64>, NumberError> {
    let number = match value {
        Value::Null => return Ok(None),
        Value::Bool(yes) => Some(f64::from(u8::from(*yes))),
        Value::Number(number) => {
            refuse_rounded(&number.to_string())?;
            number.as_f64()
        }
        Value::String(text) if text.trim().is_empty() => return Ok(None),
        Value::String(text) => {
            refuse_rounded(text.trim())?;
            text.trim().parse().ok()
        }
        other => return Err(NumberError::Kind { found: kind(other) }),
    };
    // Rust parses `nan` and `inf` as numbers; as scores they would make every mean NaN.
    if let Some(number) = number.filter(|number: &f64| number.is_finite()) {
        return if number.abs() > MOST_SCORE { Err(NumberError::Far) } else { Ok(Some(number)) };
    }
    let text = plain(value).unwrap_or_default();
    let pointed = text.trim().replacen(',', ".", 1);
    let has_comma = text.contains(',') && pointed.parse::<f64>().is_ok();
    Err(if has_comma { NumberError::Comma { text } } else { NumberError::Text { text } })
}

/// Rejects an integer that f64 cannot represent exactly: two such integers could become one score.
pub(crate) fn refuse_rounded(text: &str) -> Result<(), NumberError> {
    let is_rounded = |integer: i128| {
        let number = integer as f64;
        // Programs write trailing zeros after the significant digits.
        number as i128 != integer && number.to_string() != integer.to_string()
    };
    match text.parse() {
        Ok(integer) if is_rounded(integer) => Err(NumberError::Rounded { text: text.to_owned() }),
        _ => Ok(()),
    }
}

/// A text or a number as a name.
pub(crate) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// The type of a value, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
