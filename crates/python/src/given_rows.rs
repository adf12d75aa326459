//! Rows from Python dicts.

use probity_data::{GivenTable, LineError, TableRow};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::json::{NoValue, to_value};

/// Rows that name their own columns.
pub(crate) struct GivenRows(std::vec::IntoIter<(usize, Result<TableRow, LineError>)>);

impl GivenRows {
    /// From an iterable of dicts.
    pub(crate) fn from_iterable(rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        let rows = rows.try_iter()?.enumerate().map(|(place, row)| Ok((place, read(&row?))));
        Ok(Self(rows.collect::<PyResult<Vec<_>>>()?.into_iter()))
    }
}

fn read(row: &Bound<'_, PyAny>) -> Result<TableRow, LineError> {
    if !row.is_instance_of::<PyDict>() {
        let kind = row.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        return Err(LineError::content("", format!("expected a dict as a row, found {kind}")));
    }
    match to_value(row) {
        Ok(Value::Object(row)) => Ok(TableRow::new(row)),
        Ok(_) => Err(LineError::content("", "expected a dict as a row")),
        Err(NoValue { place, why }) => Err(LineError::content(place, why)),
    }
}

impl Iterator for GivenRows {
    type Item = (usize, Result<TableRow, LineError>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl GivenTable for GivenRows {
    fn columns(&self) -> Option<&[String]> {
        None
    }
}
