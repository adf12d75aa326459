//! Errors that any command may return. Errors about one command's arguments are next to that command.
//!
//! Commands return [`miette::Report`], which accepts any error with a hint. `wrap_err` is not used: it keeps the hint
//! of the wrapped error, but loses those of its causes.

use std::io;

use miette::Diagnostic;
use thiserror::Error;

/// A file or folder that cannot be read or written.
#[derive(Debug, Error, Diagnostic)]
#[error("{what}")]
pub(crate) struct FileError {
    /// What failed, with the file's name: `a.toml could not be read`.
    what: String,
    source: io::Error,
    #[help]
    hint: Option<String>,
}

impl FileError {
    /// Adds what failed: `map_err(FileError::context(…))`.
    pub(crate) fn context(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self { what, source, hint: None }
    }

    /// Adds a hint.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Invalid JSON.
#[derive(Debug, Error, Diagnostic)]
#[error("{what}")]
pub(crate) struct JsonError {
    /// What is invalid, by name: `config.json is not JSON`.
    what: String,
    source: serde_json::Error,
}

impl JsonError {
    /// Adds what is invalid: `map_err(JsonError::context(…))`.
    pub(crate) fn context(what: impl Into<String>) -> impl FnOnce(serde_json::Error) -> Self {
        let what = what.into();
        |source| Self { what, source }
    }
}

/// Output failed, because of its reader or the disk. The cause identifies a closed pipe.
#[derive(Debug, Error, Diagnostic)]
#[error("{0}")]
pub(crate) struct OutputError(#[from] io::Error);
