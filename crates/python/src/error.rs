//! Conversion of errors to Python exceptions.

use miette::Diagnostic;
use probity_session::{ErrorText, was_interrupted};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;

create_exception!(
    probity,
    ProbityError,
    PyException,
    "An operation failed. The message says what and why; `hint` says what to do."
);

/// An error as text, independent of the interpreter.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    was_interrupted: bool,
}

impl Failure {
    /// From a text that ends with its hints.
    pub(crate) fn from_text(text: String) -> Self {
        Self { text, was_interrupted: false }
    }
}

impl<E: Diagnostic + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { text: ErrorText::from_error(&error).to_string(), was_interrupted: was_interrupted(&error) }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        if failure.was_interrupted {
            return PyKeyboardInterrupt::new_err("finished work is kept");
        }
        with_hint(&failure.text)
    }
}

/// An exception for a text, with the hints also in `hint`.
pub(crate) fn with_hint(text: &str) -> PyErr {
    let hint = text.split_once("\n\nhint: ").map(|(_, hint)| hint.replace("\nhint: ", "\n"));
    let error = ProbityError::new_err(text.to_owned());
    Python::attach(|py| {
        // If this fails, the text still contains the hint.
        let _ = error.value(py).setattr("hint", hint);
    });
    error
}
