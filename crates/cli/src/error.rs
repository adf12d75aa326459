//! What any command may fail at; what is wrong with one command's arguments is beside that command.
//!
//! Commands give [`miette::Report`], which takes any error with a hint. Nothing is wrapped by its `wrap_err`: that
//! keeps the hint of the error that it is put around, and loses those of its causes.

use std::io;

use miette::Diagnostic;
use thiserror::Error;

/// A file or folder that the system gives or takes not.
#[derive(Debug, Error, Diagnostic)]
#[error("{what}")]
pub(crate) struct FileError {
    /// What could not be done, with the file's name: `a.toml could not be read`.
    what: String,
    source: io::Error,
    #[help]
    hint: Option<String>,
}

impl FileError {
    /// That something could not be done: `map_err(FileError::context(…))`.
    pub(crate) fn context(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self { what, source, hint: None }
    }

    /// The same with a hint.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// JSON that is not what it should be.
#[derive(Debug, Error, Diagnostic)]
#[error("{what}")]
pub(crate) struct JsonError {
    /// What is none, with its name: `config.json is not JSON`.
    what: String,
    source: serde_json::Error,
}

impl JsonError {
    /// That something is not what it should be: `map_err(JsonError::context(…))`.
    pub(crate) fn context(what: impl Into<String>) -> impl FnOnce(serde_json::Error) -> Self {
        let what = what.into();
        |source| Self { what, source }
    }
}

/// Output that whoever reads it, or the disk that it goes to, does not take. Its cause tells a closed pipe.
#[derive(Debug, Error, Diagnostic)]
#[error("{0}")]
pub(crate) struct OutputError(#[from] io::Error);
