//! Extension module of the Python package: bindings for the session crate.
//!
//! Methods are generated from the same definitions as commands (`kinds`), tables are exchanged as Arrow streams without
//! copying texts, and long work releases the interpreter's lock.

// PyO3 passes arguments of functions by value.
#![allow(clippy::needless_pass_by_value)]

mod arrow_rows;
mod error;
mod events;
mod given_rows;
mod json;
mod model;
mod reports;
mod stages;
mod table;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;

use probity_store::Answers;
use pyo3::prelude::*;

use crate::error::Failure;
use crate::table::Table;

/// The table in a file of JSON lines.
#[pyfunction]
fn open_table(py: Python<'_>, path: PathBuf) -> PyResult<Table> {
    py.detach(|| Table::open(&path))
}

/// Merges the answers of several databases into the cache in a folder.
#[pyfunction]
fn gather_answers(py: Python<'_>, databases: Vec<PathBuf>, folder: PathBuf) -> PyResult<()> {
    py.detach(|| {
        let all = Answers::open_shared(&folder).map_err(Failure::from)?;
        databases.iter().try_for_each(|database| Ok(all.absorb(database).map_err(Failure::from)?))
    })
}

/// Runs a command line (program name first) and returns its exit code.
#[pyfunction]
fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| probity_cli::run(&arguments))
}

/// The demo samples, as JSON lines.
#[pyfunction]
fn demo() -> &'static str {
    include_str!("../../../samples/demo.jsonl")
}

/// The text with control characters escaped.
#[pyfunction]
fn visible(text: &str) -> String {
    probity_report::text::visible(text)
}

/// The version.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[pymodule]
fn _probity(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let error = module.py().get_type::<error::ProbityError>();
    // Default for errors without a hint, including those raised from Python.
    error.setattr("hint", module.py().None())?;
    module.add("ProbityError", error)?;
    module.add_class::<model::Model>()?;
    module.add_class::<Table>()?;
    module.add_function(wrap_pyfunction!(visible, module)?)?;
    module.add_function(wrap_pyfunction!(stages::kinds, module)?)?;
    module.add_function(wrap_pyfunction!(stages::model_options, module)?)?;
    module.add_function(wrap_pyfunction!(stages::run_stage, module)?)?;
    module.add_function(wrap_pyfunction!(reports::report, module)?)?;
    module.add_function(wrap_pyfunction!(reports::gate, module)?)?;
    module.add_function(wrap_pyfunction!(open_table, module)?)?;
    module.add_function(wrap_pyfunction!(stages::write_rows, module)?)?;
    module.add_function(wrap_pyfunction!(gather_answers, module)?)?;
    module.add_function(wrap_pyfunction!(demo, module)?)?;
    module.add_function(wrap_pyfunction!(command, module)?)?;
    module.add_function(wrap_pyfunction!(version, module)?)?;
    Ok(())
}
