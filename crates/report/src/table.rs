//! Tables: what is in the page, on the terminal, and in CSV, JSON, Markdown and LaTeX.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::text::thousands;

/// A table with a title, and lines below it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReportTable {
    /// Names files and anchors: lower-case letters, digits and hyphens.
    pub id: String,
    /// The run it belongs to; `None` where it is about several.
    pub run: Option<String>,
    /// What it shows.
    pub title: String,
    /// Column heads.
    pub columns: Vec<String>,
    /// Cells by row, as many as columns.
    pub rows: Vec<Vec<TableCell>>,
    /// Lines below the table.
    pub notes: Vec<String>,
}

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub enum TableCell {
    /// Text, verbatim. It may come from data and be hostile: each form of a table escapes it.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number, with the decimals that people are shown; machines get all of it.
    Number(f64, usize),
    /// A number with its interval.
    Interval(f64, Option<(f64, f64)>),
    /// A sample of a run, by the run's position and its id: on the page a way to it.
    Sample(usize, String),
    /// Nothing, because it is not defined or not there.
    Missing,
}

impl TableCell {
    /// A number with three decimals, or nothing.
    pub(crate) fn number(value: Option<f64>) -> Self {
        value.filter(|v| v.is_finite()).map_or(Self::Missing, |v| Self::Number(v, 3))
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Whether it is set flush right.
    pub fn is_numeric(&self) -> bool {
        !matches!(self, Self::Text(_) | Self::Sample(..))
    }

    /// As people read it: text verbatim, numbers rounded, a dash for nothing.
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) | Self::Sample(_, text) => text.clone(),
            Self::Count(count) => thousands(*count),
            Self::Number(value, decimals) => fixed(*value, *decimals),
            Self::Interval(value, None) => fixed(*value, 3),
            Self::Interval(value, Some((low, high))) => {
                format!("{} [{}, {}]", fixed(*value, 3), fixed(*low, 3), fixed(*high, 3))
            }
            Self::Missing => "–".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) | Self::Sample(_, text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Number(value, _) | Self::Interval(value, None) => json!(value),
            Self::Interval(value, Some((low, high))) => json!({"value": value, "low": low, "high": high}),
            Self::Missing => Value::Null,
        }
    }
}

impl From<String> for TableCell {
    /// What a method wrote for people: a number where it is one.
    fn from(text: String) -> Self {
        let trimmed = text.trim();
        if matches!(trimmed, "–" | "-" | "") {
            return Self::Missing;
        }
        // Rust also reads `inf`, `nan` and `1e5` as numbers; those are names here.
        let plain = trimmed.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-'));
        match trimmed.parse::<f64>() {
            Ok(value) if plain => {
                Self::Number(value, trimmed.split_once('.').map_or(0, |(_, decimals)| decimals.len()))
            }
            _ => Self::Text(text),
        }
    }
}

impl ReportTable {
    pub(crate) fn new<S: Into<String>>(
        id: &str,
        title: impl Into<String>,
        columns: impl IntoIterator<Item = S>,
    ) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        Self { id: id.to_owned(), title: title.into(), columns, ..Self::default() }
    }

    pub(crate) fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// Whether all of a column's cells are numbers.
    pub fn is_numeric(&self, column: usize) -> bool {
        self.rows.iter().all(|row| row.get(column).is_none_or(TableCell::is_numeric))
    }

    /// As JSON: columns by name, numbers unrounded, intervals as objects.
    pub fn json(&self) -> Value {
        let row = |row: &Vec<TableCell>| Value::Array(row.iter().map(TableCell::json).collect());
        let mut object = Map::new();
        object.insert("id".into(), json!(self.id));
        object.insert("run".into(), json!(self.run));
        object.insert("title".into(), json!(self.title));
        object.insert("columns".into(), json!(self.columns));
        object.insert("rows".into(), Value::Array(self.rows.iter().map(row).collect()));
        object.insert("notes".into(), json!(self.notes));
        Value::Object(object)
    }
}

impl Serialize for ReportTable {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

/// With so many decimals and a true minus sign.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    probity_lm::text::fixed(value, decimals).replace('-', "−")
}
