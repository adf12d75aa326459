//! Tables and lines for people.

use serde::Serialize;

use crate::plot::Plot;

/// A table or a few lines for people. Methods do not print; whoever runs them does.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Section {
    /// What the table shows.
    pub title: String,
    /// Column heads; empty where there is no table.
    pub columns: Vec<String>,
    /// Cells by row, as many as columns.
    pub rows: Vec<Vec<String>>,
    /// Lines below the table.
    pub notes: Vec<String>,
    /// Plots of its figures, which a report draws.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plots: Vec<Plot>,
    /// Whether it stands in `summary.json` and the report alone, and not in the terminal.
    #[serde(skip)]
    pub is_detail: bool,
}

impl Section {
    /// A table without rows yet.
    pub fn new<S: Into<String>>(title: &str, columns: impl IntoIterator<Item = S>) -> Self {
        Self { title: title.to_owned(), columns: columns.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Adds a row; it must have as many cells as there are columns.
    pub fn push<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "table `{}`", self.title);
        self.rows.push(cells);
    }

    /// Adds a line below the table.
    pub fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }
}
