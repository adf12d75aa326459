//! Texts from table cells.

use serde_json::Value;

use crate::SharedText;
use crate::column::{ColumnPath, TableRow};
use crate::conversation::conversation;
use crate::line_error::{LineError, excerpt};
use crate::values::kind;

/// Maximum number of columns listed in a message.
const LISTED: usize = 40;

/// Separator of joined texts: a blank line.
const BETWEEN: &str = "\n\n";

/// The text of a field, from one column or from several joined in order. `None` if no column has a value.
pub(crate) fn joined(field: &str, columns: &[ColumnPath], row: &TableRow) -> Result<Option<SharedText>, LineError> {
    if let [only] = columns {
        return text(field, only, row);
    }
    let mut parts = Vec::new();
    for column in columns {
        parts.extend(text(field, column, row)?.filter(|text| !text.is_empty()));
    }
    Ok((!parts.is_empty()).then(|| parts.join(BETWEEN).into()))
}

/// The text in a column: a string, a conversation, or the joined texts of a list (`COLUMN[]`).
pub(crate) fn text(field: &str, column: &ColumnPath, row: &TableRow) -> Result<Option<SharedText>, LineError> {
    if let Some(text) = column.shared_text(row) {
        return Ok(Some(text.clone()));
    }
    let Some(value) = column.value(row) else { return Ok(None) };
    match (value.as_ref(), conversation(&value, false)) {
        (Value::String(text), _) => Ok(Some(text.as_str().into())),
        (_, Some(text)) => text.map(|text| Some(text.into())).map_err(|why| cell(field, column, why)),
        (Value::Array(items), None) if column.is_each() => {
            let mut texts = Vec::new();
            items
                .iter()
                .try_for_each(|item| texts_of(item, &mut texts))
                .map_err(|item| not_text(field, column, item))?;
            Ok(Some(texts.join(BETWEEN).into()))
        }
        (other, None) => Err(not_text(field, column, other)),
    }
}

/// Collects the texts of a list item, including nested lists; returns an item that is no text.
fn texts_of<'v>(item: &'v Value, texts: &mut Vec<&'v str>) -> Result<(), &'v Value> {
    match item {
        Value::Null => Ok(()),
        Value::String(text) => {
            texts.push(text);
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(|item| texts_of(item, texts)),
        other => Err(other),
    }
}

/// Error for a value, or a list item, that is no text.
pub(crate) fn not_text(field: &str, column: &ColumnPath, value: &Value) -> LineError {
    let what = if column.is_each() { "in an item: " } else { "" };
    let error = cell(field, column, format!("{what}expected a string, found {}", kind(value)));
    let name = excerpt(&column.name);
    match (value, first_item(value)) {
        (Value::Object(keys), _) => {
            let keys: Vec<String> = keys.keys().cloned().collect();
            let keys = listed(&keys);
            error.with_hint(format!("map one of its values: --map {field}='{name}.KEY'; the keys are {keys}"))
        }
        (_, Some(Value::Object(keys))) => {
            let keys: Vec<String> = keys.keys().cloned().collect();
            let keys = listed(&keys);
            error.with_hint(format!("map a value of its items: --map {field}='{name}[].KEY'; the keys are {keys}"))
        }
        (Value::Array(items), Some(Value::String(_))) => {
            let has_texts = items.iter().any(Value::is_string);
            let one = if has_texts { format!(", or map one item: --map {field}='{name}[0]'") } else { String::new() };
            error.with_hint(format!("join its texts: --map {field}='{name}[]'{one}"))
        }
        _ => error,
    }
}

/// The first item that is not a list, at any depth.
fn first_item(value: &Value) -> Option<&Value> {
    match value {
        Value::Array(items) => items.iter().find_map(first_item),
        Value::Null => None,
        other => Some(other),
    }
}

/// References: a text, a list of texts, or none.
pub(crate) fn references(column: &ColumnPath, row: &TableRow) -> Result<Vec<SharedText>, LineError> {
    if let Some(text) = column.shared_text(row) {
        return Ok(vec![text.clone()].into_iter().filter(|text| !text.is_empty()).collect());
    }
    let Some(value) = column.value(row) else { return Ok(Vec::new()) };
    let one = |value: &Value| match value {
        Value::String(text) => Ok(Some(text.as_str().into()).filter(|text: &SharedText| !text.is_empty())),
        Value::Null => Ok(None),
        other => Err(not_text("reference", column, other)),
    };
    match value.as_ref() {
        Value::Array(items) => items.iter().map(one).filter_map(Result::transpose).collect(),
        value => Ok(one(value)?.into_iter().collect()),
    }
}

/// Error for a value in a column.
pub(crate) fn cell(field: &str, column: &ColumnPath, why: impl Into<String>) -> LineError {
    LineError::cell(&column.name, field, why)
}

/// Formats names for a message.
pub(crate) fn listed(names: &[String]) -> String {
    let mut list: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{}`", excerpt(name))).collect();
    if names.len() > LISTED {
        list.push(format!("and {} more", names.len() - LISTED));
    }
    list.join(", ")
}
