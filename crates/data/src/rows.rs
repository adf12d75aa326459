//! Tables as rows of named values, for all file formats.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::JsonLines;
use crate::column::{ColumnPath, Names, TableRow, names};
use crate::delimited::Delimited;
use crate::line_error::LineError;
use crate::parquet_file::ParquetRows;

/// Maximum number of column names remembered for a file whose rows name their own.
const REMEMBERED: usize = 1000;

/// The rows of a table and its column names.
pub(crate) enum TableRows<R> {
    Lines(JsonLines<TableRow, R>, SeenColumns),
    Cells(Box<Delimited<R>>),
    Parquet(Box<ParquetRows>),
    Given(Box<dyn GivenTable>, SeenColumns),
}

/// A table that is not a file: rows with their positions.
pub trait GivenTable: Iterator<Item = (usize, Result<TableRow, LineError>)> + Send {
    /// The column names; absent if rows name their own.
    fn columns(&self) -> Option<&[String]>;

    /// Skips other columns, if that saves work.
    fn want(&mut self, _columns: &[String]) {}
}

/// The columns seen so far and the columns in use, shared between reader and caller.
#[derive(Clone, Default)]
pub(crate) struct SeenColumns {
    all: Arc<Mutex<BTreeSet<String>>>,
    used: Arc<Mutex<Vec<ColumnPath>>>,
}

impl SeenColumns {
    /// Adds all columns of a file that lists them.
    pub(crate) fn extend(&self, names: &[String]) {
        self.lock().extend(names.iter().cloned());
    }

    /// Adds the columns of a row that names its own, up to the maximum.
    fn add<'n>(&self, names: impl Iterator<Item = &'n str>) {
        let mut seen = self.lock();
        for name in names {
            // Bounded: a file with different keys in every row would fill memory with names.
            if seen.len() < REMEMBERED && !seen.contains(name) {
                seen.insert(name.to_owned());
            }
        }
    }

    /// Sorted by name.
    pub(crate) fn all(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    /// Sets the columns in use.
    pub(crate) fn set_used(&self, columns: Vec<ColumnPath>) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = columns;
    }

    /// The unused columns, sorted by name.
    pub(crate) fn unused(&self) -> Vec<String> {
        let all = self.all();
        let known = names(&all);
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let roots: Names<'_> = used.iter().filter_map(|column| column.root(&known)).collect();
        all.iter().filter(|name| !roots.contains(name.as_str())).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: BufRead> TableRows<R> {
    /// All columns, if the file lists them before its first row.
    pub(crate) fn columns(&self) -> Option<&[String]> {
        match self {
            Self::Lines(..) => None,
            Self::Cells(cells) => Some(cells.columns()),
            Self::Parquet(rows) => Some(rows.columns()),
            Self::Given(table, _) => table.columns(),
        }
    }

    /// Skips other columns, if that saves work.
    pub(crate) fn want(&mut self, columns: &[String]) {
        match self {
            Self::Lines(..) => {}
            Self::Cells(cells) => cells.want(columns),
            Self::Parquet(rows) => rows.want(columns),
            Self::Given(table, _) => table.want(columns),
        }
    }
}

impl<R: BufRead> Iterator for TableRows<R> {
    type Item = (usize, Result<TableRow, LineError>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Cells(cells) => cells.next(),
            Self::Parquet(rows) => rows.next(),
            Self::Lines(lines, seen) => {
                let item = lines.next();
                if let Some((_, Ok(row))) = &item {
                    seen.add(row.keys());
                }
                item
            }
            Self::Given(table, seen) => {
                let item = table.next();
                if table.columns().is_none()
                    && let Some((_, Ok(row))) = &item
                {
                    seen.add(row.keys());
                }
                item
            }
        }
    }
}
