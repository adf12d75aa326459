//! Errors as exceptions of Python.

use miette::Diagnostic;
use probity_session::{ErrorText, was_interrupted};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;

create_exception!(
    probity,
    ProbityError,
    PyException,
    "Something could not be done. Its text says what and why, `hint` what to do."
);

/// The exception of an error: its text with all causes, and its hints in `hint`.
pub(crate) fn exception(error: &(dyn Diagnostic + 'static)) -> PyErr {
    if was_interrupted(as_plain(error)) {
        return PyKeyboardInterrupt::new_err("what was written is kept");
    }
    let told = ErrorText::of(error);
    with_hint(&told.to_string())
}

/// The same of a text whose hints stand behind it.
pub(crate) fn with_hint(told: &str) -> PyErr {
    let hint = told.split_once("\n\nhint: ").map(|(_, hint)| hint.replace("\nhint: ", "\n"));
    let error = ProbityError::new_err(told.to_owned());
    Python::attach(|py| {
        // Without it the text still has the hint.
        let _ = error.value(py).setattr("hint", hint);
    });
    error
}

fn as_plain<'e>(error: &'e (dyn Diagnostic + 'static)) -> &'e (dyn std::error::Error + 'static) {
    error
}
