//! The `tojson` filter, as in transformers.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::python::{float, invalid};

/// Maximum nesting of JSON, because each level is indented by all levels above.
const MAX_DEPTH: usize = 128;
/// Maximum indentation per level. With the depth limit, it bounds the length of a line.
const MAX_INDENT: usize = 16;

struct JsonForm {
    ensure_ascii: bool,
    indent: Option<String>,
    /// Between items, and between key and value.
    separators: [String; 2],
    sort_keys: bool,
}

/// JSON as written by Python's `json.dumps(value, ensure_ascii=…, indent=…, separators=…, sort_keys=…)`. As in
/// transformers, `ensure_ascii` is off by default. Nothing is escaped for HTML.
#[expect(clippy::needless_pass_by_value, reason = "the form of a filter")]
pub(super) fn tojson(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let mut positional = positional.0.into_iter();
    let mut option = |name: &str| -> Result<Option<Value>, Error> {
        let value = positional.next().map_or_else(|| named.get::<Option<Value>>(name), |value| Ok(Some(value)))?;
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = option("ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = option("indent")?.map(|value| indentation(&value)).transpose()?;
    let separators = match option("separators")? {
        Some(value) => separators(&value)?,
        None => [if indent.is_some() { "," } else { ", " }, ": "].map(str::to_owned),
    };
    let sort_keys = option("sort_keys")?.is_some_and(|value| value.is_true());
    named.assert_all_used()?;
    let mut text = String::new();
    JsonForm { ensure_ascii, indent, separators, sort_keys }.write(value, 0, &mut text)?;
    Ok(Value::from_safe_string(text))
}

fn indentation(value: &Value) -> Result<String, Error> {
    let indent = match value.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(usize::try_from(i64::try_from(value.clone())?.max(0)).unwrap_or(usize::MAX).min(1 << 10)),
    };
    if indent.len() > MAX_INDENT {
        return Err(invalid(format!("`tojson` indents by at most {MAX_INDENT} characters")));
    }
    Ok(indent)
}

fn separators(value: &Value) -> Result<[String; 2], Error> {
    let texts: Vec<String> = value.try_iter()?.filter_map(|text| text.as_str().map(str::to_owned)).collect();
    texts.try_into().map_err(|_| invalid("`separators` are two texts"))
}

impl JsonForm {
    fn write(&self, value: &Value, depth: usize, text: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::BadSerialization, format!("more than {MAX_DEPTH} levels of nesting")));
        }
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.map(|item| (None, item)).collect();
                self.write_all(['[', ']'], items, depth, text)
            }
            ValueKind::Map => {
                let keys = value.try_iter()?;
                let item = |key: Value| Ok((Some(Self::key(&key)?), value.get_item(&key)?));
                let mut items = keys.map(item).collect::<Result<Vec<(Option<String>, Value)>, Error>>()?;
                if self.sort_keys {
                    items.sort_by(|(one, _), (other, _)| one.cmp(other));
                }
                self.write_all(['{', '}'], items, depth, text)
            }
            ValueKind::String => {
                text.push_str(&self.quoted(value.as_str().unwrap_or_default()));
                Ok(())
            }
            _ => {
                text.push_str(&scalar(value)?);
                Ok(())
            }
        }
    }

    fn write_all(
        &self,
        [open, close]: [char; 2],
        items: Vec<(Option<String>, Value)>,
        depth: usize,
        text: &mut String,
    ) -> Result<(), Error> {
        let line = |depth: usize, text: &mut String| {
            if let Some(indent) = &self.indent {
                text.push('\n');
                (0..depth).for_each(|_| text.push_str(indent));
            }
        };
        let is_empty = items.is_empty();
        text.push(open);
        for (index, (key, value)) in items.into_iter().enumerate() {
            if index > 0 {
                text.push_str(&self.separators[0]);
            }
            line(depth + 1, text);
            if let Some(key) = key {
                text.push_str(&self.quoted(&key));
                text.push_str(&self.separators[1]);
            }
            self.write(&value, depth + 1, text)?;
        }
        if !is_empty {
            line(depth, text);
        }
        text.push(close);
        Ok(())
    }

    fn key(key: &Value) -> Result<String, Error> {
        key.as_str().map_or_else(|| scalar(key), |text| Ok(text.to_owned()))
    }

    fn quoted(&self, text: &str) -> String {
        let quoted = serde_json::Value::from(text).to_string();
        if !self.ensure_ascii {
            return quoted;
        }
        let mut ascii = String::with_capacity(quoted.len());
        for c in quoted.chars() {
            // A noncharacter marks a special-token literal in a message and is removed later; it never comes from data.
            if matches!(c, ' '..='~' | '\u{fdd0}'..='\u{fdef}') {
                ascii.push(c);
            } else {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                    let _ = write!(ascii, "\\u{unit:04x}");
                });
            }
        }
        ascii
    }
}

fn scalar(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(value.is_true().to_string()),
        ValueKind::Number if value.is_integer() => Ok(value.to_string()),
        ValueKind::Number => Ok(float(f64::try_from(value.clone())?)),
        kind => Err(Error::new(ErrorKind::BadSerialization, format!("a value of type {kind} is not JSON"))),
    }
}
