//! Tables as rows of named values, whatever kind of file they come from.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::BufRead;
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::JsonLines;
use crate::delimited::Delimited;
use crate::line_error::LineError;
use crate::parquet_file::ParquetRows;

/// A row: values by column.
pub(crate) type Row = Map<String, Value>;

/// How many names of columns are remembered of a file whose rows name their own.
const REMEMBERED: usize = 1000;

/// The rows of a table, and what its columns are called.
pub(crate) enum Rows<R> {
    Lines(JsonLines<Row, R>, SeenColumns),
    Cells(Box<Delimited<R>>),
    Parquet(Box<ParquetRows>),
}

/// The columns that rows had so far, shared with who wants to know.
pub(crate) type SeenColumns = Rc<RefCell<BTreeSet<String>>>;

impl<R: BufRead> Rows<R> {
    /// All columns, where the file says so before its first row.
    pub(crate) fn columns(&self) -> Option<&[String]> {
        match self {
            Self::Lines(..) => None,
            Self::Cells(cells) => Some(cells.columns()),
            Self::Parquet(rows) => Some(rows.columns()),
        }
    }

    /// Leaves other columns out, where that saves work.
    pub(crate) fn want(&mut self, columns: &[String]) {
        match self {
            Self::Lines(..) => {}
            Self::Cells(cells) => cells.want(columns),
            Self::Parquet(rows) => rows.want(columns),
        }
    }
}

impl<R: BufRead> Iterator for Rows<R> {
    type Item = (usize, Result<Row, LineError>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Cells(cells) => cells.next(),
            Self::Parquet(rows) => rows.next(),
            Self::Lines(lines, seen) => {
                let item = lines.next();
                if let Some((_, Ok(row))) = &item {
                    let mut seen = seen.borrow_mut();
                    for name in row.keys() {
                        if seen.len() < REMEMBERED && !seen.contains(name) {
                            seen.insert(name.clone());
                        }
                    }
                }
                item
            }
        }
    }
}
