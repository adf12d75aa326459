//! Tables as rows of named values, whatever kind of file they come from.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::JsonLines;
use crate::column::{ColumnPath, Names, TableRow, names};
use crate::delimited::Delimited;
use crate::line_error::LineError;
use crate::parquet_file::ParquetRows;

/// How many names of columns are remembered of a file whose rows name their own.
const REMEMBERED: usize = 1000;

/// The rows of a table, and what its columns are called.
pub(crate) enum TableRows<R> {
    Lines(JsonLines<TableRow, R>, SeenColumns),
    Cells(Box<Delimited<R>>),
    Parquet(Box<ParquetRows>),
    Given(Box<dyn GivenTable>, SeenColumns),
}

/// A table that is no file: rows with their places.
pub trait GivenTable: Iterator<Item = (usize, Result<TableRow, LineError>)> + Send {
    /// The names of its columns; absent where its rows name their own.
    fn columns(&self) -> Option<&[String]>;

    /// Leaves other columns out, where that saves work.
    fn want(&mut self, _columns: &[String]) {}
}

/// The columns that rows had so far, and those that are used, shared with who wants to know.
#[derive(Clone, Default)]
pub(crate) struct SeenColumns {
    all: Arc<Mutex<BTreeSet<String>>>,
    used: Arc<Mutex<Vec<ColumnPath>>>,
}

impl SeenColumns {
    /// All of a table, whose file names them.
    pub(crate) fn extend(&self, names: &[String]) {
        self.lock().extend(names.iter().cloned());
    }

    /// Those of one row of a file whose rows name their own, as long as there is room.
    fn add<'n>(&self, names: impl Iterator<Item = &'n str>) {
        let mut seen = self.lock();
        for name in names {
            // Bounded: a file whose every row has keys of its own would fill memory with names.
            if seen.len() < REMEMBERED && !seen.contains(name) {
                seen.insert(name.to_owned());
            }
        }
    }

    /// In the order of their names.
    pub(crate) fn all(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    /// Sets the columns that are used.
    pub(crate) fn set_used(&self, columns: Vec<ColumnPath>) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = columns;
    }

    /// Those that are not used, in the order of their names.
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
    /// All columns, where the file says so before its first row.
    pub(crate) fn columns(&self) -> Option<&[String]> {
        match self {
            Self::Lines(..) => None,
            Self::Cells(cells) => Some(cells.columns()),
            Self::Parquet(rows) => Some(rows.columns()),
            Self::Given(table, _) => table.columns(),
        }
    }

    /// Leaves other columns out, where that saves work.
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
