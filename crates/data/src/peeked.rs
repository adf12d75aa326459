//! Inspects the first row of a table in memory.

use serde_json::Value;

use crate::column::TableRow;
use crate::line_error::LineError;
use crate::preferences::FirstRow;
use crate::rows::GivenTable;

/// A table with its first row read ahead.
pub(crate) struct Peeked {
    first: Option<(usize, Result<TableRow, LineError>)>,
    rest: Box<dyn GivenTable>,
}

impl Peeked {
    pub(crate) fn new(mut rest: Box<dyn GivenTable>) -> Self {
        // If the columns are known, values are read later, once it is known which are needed. Only a value shows
        // whether answers are conversations.
        let looks = rest.columns().is_none_or(|columns| columns.iter().any(|column| column == "chosen"));
        Self { first: if looks { rest.next() } else { None }, rest }
    }

    /// The error of the first row.
    pub(crate) fn broken_first(&mut self) -> Option<(usize, LineError)> {
        match self.first.take() {
            Some((place, Err(error))) => Some((place, error)),
            first => {
                self.first = first;
                None
            }
        }
    }

    /// The first row, as a guide to all rows.
    pub(crate) fn first_row(&self) -> FirstRow {
        let keys = self.first().map(|row| row.keys().map(str::to_owned).collect());
        FirstRow { keys: keys.unwrap_or_default(), chosen_is_a_conversation: self.chosen_is_a_conversation() }
    }

    fn first(&self) -> Option<&TableRow> {
        self.first.as_ref().and_then(|(_, row)| row.as_ref().ok())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        match self.rest.columns() {
            Some(columns) => columns.iter().any(|column| column == name),
            None => self.first().is_some_and(|row| row.keys().any(|key| key == name)),
        }
    }

    fn chosen_is_a_conversation(&self) -> bool {
        self.first().is_some_and(|row| row.values().get("chosen").is_some_and(Value::is_array))
    }
}

impl Iterator for Peeked {
    type Item = (usize, Result<TableRow, LineError>);

    fn next(&mut self) -> Option<Self::Item> {
        self.first.take().or_else(|| self.rest.next())
    }
}

impl GivenTable for Peeked {
    fn columns(&self) -> Option<&[String]> {
        self.rest.columns()
    }

    fn want(&mut self, columns: &[String]) {
        self.rest.want(columns);
    }
}
