//! Values of cells as numbers and names.

use serde_json::Value;

use crate::line_error::shown;

/// A number, also one that is written as a text; nothing from null or an empty cell. True is 1, false 0.
pub(crate) fn number(value: &Value) -> Result<Option<f64>, String> {
    let number = match value {
        Value::Null => return Ok(None),
        Value::Bool(yes) => Some(f64::from(u8::from(*yes))),
        Value::Number(number) => number.as_f64(),
        Value::String(text) if text.trim().is_empty() => return Ok(None),
        Value::String(text) => text.trim().parse().ok(),
        other => return Err(format!("{}, not a number", kind(other))),
    };
    // Rust reads `nan` and `inf` as numbers; as scores they would poison every mean.
    if let Some(number) = number.filter(|number: &f64| number.is_finite()) {
        return Ok(Some(number));
    }
    let text = plain(value).unwrap_or_default();
    let pointed = text.trim().replacen(',', ".", 1);
    let hint = if text.contains(',') && pointed.parse::<f64>().is_ok() {
        "numbers have a decimal point, not a comma: 0.5, not 0,5".to_owned()
    } else {
        "leave the cell empty where there is no score".to_owned()
    };
    Err(format!("`{}` is not a finite number\n\nhint: {hint}", shown(&text)))
}

/// A text or a number as a name.
pub(crate) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// What a value is, in words.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
