//! Errors of reports.

use std::io;
use std::path::PathBuf;

/// Why a run could not be read, or a report could not be written.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ReportError {
    /// The folder has no manifest of a run.
    #[error("{} holds no probity run: {why}", path.display())]
    #[diagnostic(help("give the folder that a run's --out named; it holds {}", probity_store::MANIFEST))]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// A file could not be read.
    #[error("{} could not be read: {source}", path.display())]
    Read {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A malformed line in a table or in the samples, other than an unfinished last line.
    #[error("line {line} of {} could not be read: {why}", path.display())]
    #[diagnostic(help("tables of a run are not for editing; make the run again with --resume"))]
    Line {
        /// File.
        path: PathBuf,
        /// Line number, starting at 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The database of answers could not be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Store(#[from] probity_store::StoreError),
    /// The report could not be written.
    #[error("the report could not be written: {0}")]
    Write(#[from] io::Error),
}

impl ReportError {
    pub(crate) fn read(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }

    /// Whether the reader of a pipe has closed it, which is no failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}
