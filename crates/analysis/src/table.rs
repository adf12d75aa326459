//! Tables of figures: the terminal, the page, JSON, CSV, Markdown and LaTeX are drawn from them.

use std::fmt;

use probity_lm::text::{fixed, thousands};
use serde::{Deserialize, Serialize};

use crate::plot::Plot;

/// A table with a title, notes below it, and plots of its figures. Methods return tables; callers print them.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Table {
    /// Names files and anchors of a report: lower-case letters, digits and hyphens. Set by the report.
    #[serde(skip)]
    pub id: String,
    /// The run of the table, if a report has several; `None` if the table covers several runs.
    #[serde(skip)]
    pub run: Option<String>,
    /// Title.
    pub title: String,
    /// Column heads; empty if there are only notes.
    pub columns: Vec<String>,
    /// Cells by row, one for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Notes below the table.
    pub notes: Vec<String>,
    /// Plots of the figures, drawn by reports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plots: Vec<Plot>,
    /// Whether the terminal shows it without `--details`. If no table of a run is main, the first is shown.
    #[serde(skip)]
    pub is_main: bool,
}

/// A cell. In JSON: a string, an integer, an object with the names below, or null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// Text, verbatim. It may come from data and be hostile: each output format escapes it.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number and its interval.
    Estimate {
        /// Number, unrounded.
        value: f64,
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// A number.
    Number {
        /// Number, unrounded.
        value: f64,
        /// Number of decimals in text.
        decimals: u8,
    },
    /// Ends of an interval whose value is in another column.
    Bounds {
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// A share, shown in percent.
    Share {
        /// Between 0 and 1, unrounded.
        share: f64,
    },
    /// The p-value of a test.
    PValue {
        /// Between 0 and 1, unrounded.
        p: f64,
    },
    /// Number of the run in the report.
    Sample {
        /// Sample id.
        run: usize,
        /// The sample's id.
        sample: String,
    },
    /// Missing or undefined.
    Missing,
}

/// Cells of one row. Each value is converted to a [`Cell`] by its type.
#[macro_export]
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { [$($crate::Cell::from($cell)),*] };
}

impl Cell {
    /// Whether it is aligned to the right.
    pub fn is_numeric(&self) -> bool {
        !matches!(self, Self::Text(_) | Self::Sample { .. })
    }

    /// The value of a figure, unrounded.
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Number { value, .. } | Self::Estimate { value, .. } => Some(*value),
            Self::Share { share } => Some(*share),
            Self::PValue { p } => Some(*p),
            _ => None,
        }
    }

    /// The ends of an interval, unrounded.
    pub fn ends(&self) -> Option<(f64, f64)> {
        match self {
            Self::Estimate { low, high, .. } | Self::Bounds { low, high } => Some((*low, *high)),
            _ => None,
        }
    }

    /// The cell as text: text verbatim, numbers rounded, a dash if missing.
    pub fn to_text(&self) -> String {
        // A modified summary may have any number of decimals.
        let rounded = |value: &f64, decimals: u8| fixed(*value, usize::from(decimals.min(17)));
        match self {
            Self::Text(text) | Self::Sample { sample: text, .. } => text.clone(),
            Self::Count(count) => thousands(*count),
            Self::Number { value, decimals } => rounded(value, *decimals),
            Self::Estimate { value, low, high } => {
                format!("{} [{}, {}]", rounded(value, 3), rounded(low, 3), rounded(high, 3))
            }
            Self::Bounds { low, high } => format!("{} … {}", rounded(low, 3), rounded(high, 3)),
            Self::Share { share } => format!("{}%", rounded(&(100.0 * share), 1)),
            // `0.0e0` is no better than zeros.
            Self::PValue { p } if *p >= 0.001 || *p == 0.0 => rounded(p, 3),
            Self::PValue { p } => format!("{p:.1e}"),
            Self::Missing => "–".to_owned(),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for Cell {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl<C: Into<Self>> From<Option<C>> for Cell {
    fn from(cell: Option<C>) -> Self {
        cell.map_or(Self::Missing, Into::into)
    }
}

impl Table {
    /// A table without rows.
    pub fn new<S: Into<String>>(title: impl Into<String>, columns: impl IntoIterator<Item = S>) -> Self {
        Self { title: title.into(), columns: columns.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Adds a row. It must have one cell for each column.
    pub fn push<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "table `{}`", self.title);
        self.rows.push(cells);
    }

    /// Adds a note.
    pub fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// Whether all cells of a column are numbers.
    pub fn is_numeric(&self, column: usize) -> bool {
        self.rows.iter().all(|row| row.get(column).is_none_or(Cell::is_numeric))
    }

    /// The title, with the run's name if there is one.
    pub fn heading(&self) -> String {
        self.run.as_ref().map_or_else(|| self.title.clone(), |run| format!("{} ({run})", self.title))
    }
}
