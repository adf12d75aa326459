//! Tables of runs as Arrow streams.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_json::ReaderBuilder;
use arrow_json::reader::infer_json_schema_from_seekable;
use arrow_schema::SchemaRef;
use probity_data::JsonLines;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PySlice, PyString};
use serde_json::Value;

use crate::arrow_rows::STREAM;
use crate::error::with_hint;
use crate::json::from_value;

/// Number of rows in a batch.
const BATCH: usize = 8192;

/// A table of a run: iterates over rows as dicts, and exports an Arrow stream to libraries.
#[pyclass(frozen, module = "probity")]
pub(crate) struct Table {
    path: PathBuf,
    schema: SchemaRef,
    rows: usize,
}

impl Table {
    /// Opens a file of JSON lines. The column types are determined from all rows.
    pub(crate) fn open(path: &Path) -> PyResult<Self> {
        let wrong = |why: String| with_hint(&format!("{} cannot be read: {why}", path.display()));
        let mut file = BufReader::new(File::open(path).map_err(|error| wrong(error.to_string()))?);
        let (schema, rows) =
            infer_json_schema_from_seekable(&mut file, None).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { path: path.to_owned(), schema: schema.into(), rows })
    }

    /// Rows in a range as dicts.
    fn rows<'py>(&self, py: Python<'py>, first: usize, end: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut rows = self.__iter__()?;
        let mut found = Vec::new();
        rows.lines.by_ref().take(first).for_each(drop);
        while found.len() < end.saturating_sub(first) {
            let Some(row) = rows.__next__(py)? else { break };
            found.push(row);
        }
        Ok(found)
    }

    fn reader(&self) -> PyResult<impl RecordBatchReader + Send + 'static> {
        let wrong = |why: String| with_hint(&format!("{} cannot be read: {why}", self.path.display()));
        let file = File::open(&self.path).map_err(|error| wrong(error.to_string()))?;
        let reader = ReaderBuilder::new(self.schema.clone()).with_batch_size(BATCH).build(BufReader::new(file));
        reader.map_err(|error| wrong(error.to_string()))
    }
}

#[pymethods]
impl Table {
    /// The table as a stream of record batches, through the Arrow `PyCapsule` interface.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A producer may ignore the requested schema; the consumer then casts.
        let _ = requested_schema;
        let stream = FFI_ArrowArrayStream::new(Box::new(self.reader()?));
        PyCapsule::new_with_value(py, stream, STREAM)
    }

    fn __len__(&self) -> usize {
        self.rows
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// File of the table.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The table as a pandas `DataFrame` with Arrow columns; no text is copied. Needs pandas and pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let columns = py.import("pyarrow")?.call_method1("table", (slf,))?;
        let how = PyDict::new(py);
        how.set_item("types_mapper", py.import("pandas")?.getattr("ArrowDtype")?)?;
        columns.call_method("to_pandas", (), Some(&how))
    }

    fn __iter__(&self) -> PyResult<TableIterator> {
        let wrong = |why: String| with_hint(&format!("{} cannot be read: {why}", self.path.display()));
        let mut file = BufReader::new(File::open(&self.path).map_err(|error| wrong(error.to_string()))?);
        file.rewind().map_err(|error| wrong(error.to_string()))?;
        Ok(TableIterator { lines: JsonLines::new(Box::new(file)), path: self.path.clone() })
    }

    /// A row by its index (negative indices count from the end), rows by a slice, or a column's values by its name.
    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(name) = key.extract::<String>() {
            if !self.columns().contains(&name) {
                return Err(PyKeyError::new_err(format!(
                    "unknown column {name}; the columns are \
                                                        {}",
                    self.columns().join(", ")
                )));
            }
            let values = self
                .rows(py, 0, self.rows)?
                .into_iter()
                .map(|row| row.get_item(&name).or(Ok(py.None().into_bound(py))));
            return Ok(PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_any());
        }
        let all = isize::try_from(self.rows)?;
        if let Ok(slice) = key.cast::<PySlice>() {
            let places = slice.indices(all)?;
            let (first, last) = (places.start.min(places.stop).max(0), places.start.max(places.stop) + 1);
            let rows = self.rows(py, first as usize, last as usize)?;
            let chosen = (0..places.slicelength as isize).map(|step| places.start + step * places.step - first);
            return Ok(PyList::new(py, chosen.map(|place| &rows[place as usize]))?.into_any());
        }
        let place: isize = key.extract()?;
        let place = if place < 0 { place + all } else { place };
        if !(0..all).contains(&place) {
            return Err(PyIndexError::new_err(format!("row {key} is out of range; there are {all} rows")));
        }
        Ok(self.rows(py, place as usize, place as usize + 1)?.remove(0))
    }

    /// The first rows, for notebooks.
    fn _repr_html_<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        const SHOWN: usize = 5;
        let columns = self.columns();
        let cells = |row: Bound<'py, PyAny>| {
            let cell = |name: &String| row.get_item(name).or_else(|_| PyString::new(py, "").into_bound_py_any(py));
            columns.iter().map(cell).collect::<PyResult<Vec<_>>>()
        };
        let rows = self.rows(py, 0, SHOWN)?.into_iter().map(cells).collect::<PyResult<Vec<_>>>()?;
        let shown = PyDict::new(py);
        shown.set_item("title", self.__repr__())?;
        shown.set_item("columns", &columns)?;
        shown.set_item("rows", rows)?;
        py.import("probity._run")?.call_method1("_table", (shown,))
    }

    fn __repr__(&self) -> String {
        let name = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        format!("<Table {name}: {} rows; {}>", self.rows, self.columns().join(", "))
    }
}

/// Iterator over the rows of a table.
#[pyclass]
struct TableIterator {
    lines: JsonLines<Value, Box<dyn BufRead + Send + Sync>>,
    path: PathBuf,
}

#[pymethods]
impl TableIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.lines.next() {
            None => Ok(None),
            Some((_, Ok(row))) => from_value(py, &row).map(Some),
            Some((line, Err(error))) => Err(with_hint(&format!("{}: line {line}: {error}", self.path.display()))),
        }
    }
}
