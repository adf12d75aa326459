//! Columns and paths into their values.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::SharedText;

/// A table row: values by column.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct TableRow {
    values: Map<String, Value>,
    /// Texts borrowed from foreign memory, which become sample texts without a copy.
    #[serde(skip)]
    texts: Vec<(Arc<str>, SharedText)>,
}

impl TableRow {
    /// A row with these values.
    pub fn new(values: Map<String, Value>) -> Self {
        Self { values, texts: Vec::new() }
    }

    /// Adds a text without copying it.
    pub fn insert_text(&mut self, column: Arc<str>, text: SharedText) {
        self.texts.push((column, text));
    }

    /// Removes nulls, which tables with fixed columns use for missing values.
    #[must_use]
    pub(crate) fn without_nulls(mut self) -> Self {
        self.values.retain(|_, value| !value.is_null());
        self
    }

    /// The values, without borrowed texts.
    pub(crate) fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// The row as one JSON object; copies borrowed texts.
    pub fn into_object(self) -> Value {
        let texts = self.texts.iter().map(|(name, text)| (name.to_string(), Value::String(text.to_string())));
        Value::Object(self.values.into_iter().chain(texts).collect())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str).chain(self.texts.iter().map(|(name, _)| &**name))
    }

    fn text(&self, column: &str) -> Option<&SharedText> {
        self.texts.iter().find(|(name, _)| **name == *column).map(|(_, text)| text)
    }
}

impl FromIterator<(String, Value)> for TableRow {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(values: I) -> Self {
        Self::new(values.into_iter().collect())
    }
}

/// Column names. Only tested for membership, so their order does not matter.
pub(crate) type Names<'c> = HashSet<&'c str>;

/// The names as a set.
pub(crate) fn names(columns: &[String]) -> Names<'_> {
    columns.iter().map(String::as_str).collect()
}

/// The first repeated name. Empty names may repeat.
pub(crate) fn repeated(columns: &[String]) -> Option<&str> {
    // Only tested for membership, so its order does not matter.
    let mut seen = HashSet::with_capacity(columns.len());
    columns.iter().map(String::as_str).find(|name| !name.is_empty() && !seen.insert(*name))
}

/// Location of a value in a row: a column name, or a path such as `input.text`, `turns[0].content` or
/// `responses[].text`.
#[derive(Debug, Clone)]
pub(crate) struct ColumnPath {
    /// The path as written by the user.
    pub(crate) name: String,
    steps: Vec<Step>,
    /// The same value for every row.
    constant: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Key(String),
    /// Index from the start, or from the end if negative.
    Index(isize),
    /// Each item of a list.
    Each,
}

impl ColumnPath {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), steps: steps(name), constant: None }
    }

    /// A constant value instead of a column.
    pub(crate) fn constant(value: &str) -> Self {
        Self { name: value.to_owned(), steps: Vec::new(), constant: Some(Value::String(value.to_owned())) }
    }

    pub(crate) fn is_constant(&self) -> bool {
        self.constant.is_some()
    }

    /// The column that this path starts from, out of `columns`.
    pub(crate) fn root<'a>(&'a self, columns: &Names<'_>) -> Option<&'a str> {
        // An exact column name takes precedence over a path: flattened tables have names such as `input.text`.
        if self.constant.is_none() && columns.contains(self.name.as_str()) {
            return Some(&self.name);
        }
        match self.steps.first() {
            Some(Step::Key(key)) if columns.contains(key.as_str()) => Some(key),
            _ => None,
        }
    }

    /// Whether this is a path into a column's values.
    pub(crate) fn is_path(&self) -> bool {
        self.constant.is_none() && self.steps.len() > 1
    }

    /// Whether the path selects each item of a list.
    pub(crate) fn is_each(&self) -> bool {
        self.steps.contains(&Step::Each)
    }

    /// The borrowed text of the column, if it has one.
    pub(crate) fn shared_text<'a>(&self, row: &'a TableRow) -> Option<&'a SharedText> {
        if self.is_constant() { None } else { row.text(&self.name) }
    }

    /// The value in the row, unless missing or null.
    pub(crate) fn value<'a>(&self, row: &'a TableRow) -> Option<Cow<'a, Value>> {
        if let Some(value) = &self.constant {
            return Some(Cow::Owned(value.clone()));
        }
        if let Some(text) = row.text(&self.name) {
            return Some(Cow::Owned(Value::String(text.to_string())));
        }
        let value = match row.values.get(&self.name) {
            Some(value) => Some(Cow::Borrowed(value)),
            None => match self.steps.split_first() {
                Some((Step::Key(key), rest)) => row.values.get(key).and_then(|value| walk(value, rest)),
                _ => None,
            },
        };
        // A null equals a missing key: the Parquet reader omits nulls, JSON contains them.
        value.filter(|value| !value.is_null())
    }
}

fn walk<'a>(value: &'a Value, steps: &[Step]) -> Option<Cow<'a, Value>> {
    match steps.split_first() {
        None => Some(Cow::Borrowed(value)),
        Some((Step::Key(key), rest)) => walk(value.get(key)?, rest),
        Some((Step::Index(index), rest)) => {
            let items = value.as_array()?;
            let place = if *index < 0 { items.len().checked_sub(index.unsigned_abs())? } else { index.unsigned_abs() };
            walk(items.get(place)?, rest)
        }
        Some((Step::Each, rest)) => {
            // A missing key in an item stays as a null, so that scores and names in a parallel list keep their
            // positions.
            let item = |item| walk(item, rest).map_or(Value::Null, Cow::into_owned);
            Some(Cow::Owned(Value::Array(value.as_array()?.iter().map(item).collect())))
        }
    }
}

/// Parses the steps of a path; an invalid path becomes a single key.
fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let key = part.find('[').map_or(part, |bracket| &part[..bracket]);
        let mut rest = &part[key.len()..];
        // An invalid path may still be a column name (`a..b`, `[x`), so it becomes one key.
        if key.is_empty() && (rest.is_empty() || steps.is_empty()) {
            return vec![Step::Key(path.to_owned())];
        }
        if !key.is_empty() {
            steps.push(Step::Key(key.to_owned()));
        }
        while let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            match inside.parse() {
                Ok(index) => steps.push(Step::Index(index)),
                Err(_) if inside.is_empty() => steps.push(Step::Each),
                Err(_) => return vec![Step::Key(path.to_owned())],
            }
            rest = after;
        }
        if !rest.is_empty() {
            return vec![Step::Key(path.to_owned())];
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(path: &str) -> Option<Value> {
        let row = json!({
            "a.b": 1, "a": {"b": 2, "c": [{"t": "x"}, {"t": "y"}, {}]}, "m": [[5, 6], [7]], "odd[": 8, "x[k]": 9, "null": null
        });
        let row = TableRow::new(row.as_object().expect("an object").clone());
        ColumnPath::new(path).value(&row).map(Cow::into_owned)
    }

    #[test]
    fn a_column_of_that_very_name_comes_first_then_the_path() {
        assert_eq!(value("a.b"), Some(json!(1)));
        assert_eq!(value("a.c[1].t"), Some(json!("y")));
        assert_eq!(value("a.c[].t"), Some(json!(["x", "y", null])));
        assert_eq!(value("m[0][1]"), Some(json!(6)));
        assert_eq!(value("m[]"), Some(json!([[5, 6], [7]])));
        assert_eq!((value("a.c[-2].t"), value("m[-1][-1]"), value("m[-3]")), (Some(json!("y")), Some(json!(7)), None));
        assert_eq!((value("odd["), value("x[k]")), (Some(json!(8)), Some(json!(9))));
    }

    #[test]
    fn what_is_not_there_or_null_is_absent() {
        for path in ["", ".", "b", "a.d", "a.c[9].t", "a.c.t", "m[0].t", "null", "[0]", "a..b", "a[].b"] {
            assert_eq!(value(path), None, "{path}");
        }
    }
}
