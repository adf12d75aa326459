//! Conversion between Python values and JSON.

use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Map, Number, Value};

/// Maximum nesting depth of values.
const DEPTH: usize = 64;

/// Why a value has no JSON form, and its position in the input.
#[derive(Debug)]
pub(crate) struct NoValue {
    pub(crate) place: String,
    pub(crate) why: String,
}

impl NoValue {
    fn new(why: impl Into<String>) -> Self {
        Self { place: String::new(), why: why.into() }
    }

    fn within(mut self, step: &str) -> Self {
        let dot = if self.place.is_empty() || self.place.starts_with('[') { "" } else { "." };
        self.place = format!("{step}{dot}{}", self.place);
        self
    }
}

/// Converts a value to JSON.
///
/// # Errors
/// If a type has no JSON form, or a number is not finite and would become null.
pub(crate) fn to_value(object: &Bound<'_, PyAny>) -> Result<Value, NoValue> {
    value(object, DEPTH)
}

fn value(object: &Bound<'_, PyAny>, depth: usize) -> Result<Value, NoValue> {
    let Some(below) = depth.checked_sub(1) else {
        return Err(NoValue::new(format!("values are nested more than {DEPTH} levels deep")));
    };
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(text) = object.cast::<PyString>() {
        // A lone surrogate is invalid Unicode.
        return match text.to_str() {
            Ok(text) => Ok(text.into()),
            Err(_) => Err(NoValue::new("a string that is not Unicode")),
        };
    }
    if object.is_instance_of::<PyBool>() {
        return object.extract::<bool>().map(Value::Bool).map_err(|error| NoValue::new(error.to_string()));
    }
    if object.is_instance_of::<PyInt>() {
        let whole = object.extract::<i64>().map(Value::from).or_else(|_| object.extract::<u64>().map(Value::from));
        return whole.map_err(|_| NoValue::new("a whole number of more than 64 bits"));
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        return finite(number.value());
    }
    if let Ok(map) = object.cast::<PyDict>() {
        let mut fields = Map::new();
        for (key, item) in map {
            let Ok(key) = key.extract::<String>() else { return Err(NoValue::new("a key that is not a string")) };
            let item = value(&item, below).map_err(|why| why.within(&key))?;
            fields.insert(key, item);
        }
        return Ok(Value::Object(fields));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return items(object, below);
    }
    other(object, below)
}

fn items(object: &Bound<'_, PyAny>, depth: usize) -> Result<Value, NoValue> {
    let items = object.try_iter().map_err(|error| NoValue::new(error.to_string()))?;
    let item = |(place, item): (usize, PyResult<Bound<'_, PyAny>>)| {
        let item = item.map_err(|error| NoValue::new(error.to_string()))?;
        value(&item, depth).map_err(|why| why.within(&format!("[{place}]")))
    };
    items.enumerate().map(item).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

/// Converts paths, and numpy numbers and arrays, by their methods.
fn other(object: &Bound<'_, PyAny>, depth: usize) -> Result<Value, NoValue> {
    if object.hasattr("__fspath__").unwrap_or(false)
        && let Ok(path) = object.call_method0("__fspath__")
    {
        return value(&path, depth);
    }
    if object.hasattr("tolist").unwrap_or(false)
        && let Ok(plain) = object.call_method0("tolist")
    {
        return value(&plain, depth);
    }
    // pandas' NA and NaT, and Decimal's NaN: values unequal to themselves.
    if !object.eq(object).unwrap_or(true) {
        return Err(not_a_number("NaN"));
    }
    let kind = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    Err(NoValue::new(format!("a {kind}, which is not supported")))
}

fn finite(number: f64) -> Result<Value, NoValue> {
    Number::from_f64(number).map(Value::Number).ok_or_else(|| not_a_number(&number.to_string()))
}

fn not_a_number(number: &str) -> NoValue {
    NoValue::new(format!("{number} is not a valid value; use None for a missing value"))
}

/// Converts JSON to Python objects.
pub(crate) fn from_value<'py>(py: Python<'py>, json: &Value) -> PyResult<Bound<'py, PyAny>> {
    object(py, json, DEPTH)
}

fn object<'py>(py: Python<'py>, json: &Value, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let Some(below) = depth.checked_sub(1) else { return Err(PyRecursionError::new_err("values are nested too deep")) };
    Ok(match json {
        Value::Null => py.None().into_bound(py),
        Value::Bool(yes) => PyBool::new(py, *yes).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => whole.into_pyobject(py)?.into_any(),
            (_, Some(whole)) => whole.into_pyobject(py)?.into_any(),
            _ => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(object(py, item, below)?)?;
            }
            list.into_any()
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (key, item) in fields {
                dict.set_item(key, object(py, item, below)?)?;
            }
            dict.into_any()
        }
    })
}
