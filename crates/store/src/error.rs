//! Errors of writing and reading runs.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::{MANIFEST, SAMPLES};

/// Error of a run folder, table or database.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum StoreError {
    /// The folder is not empty and not a run folder.
    #[error("{} is not empty and holds no probity run", .0.display())]
    #[diagnostic(help("use a new folder, such as --out {}-probity", .0.display()))]
    NotOurs(PathBuf),
    /// The folder has an answer database but no manifest.
    #[error("{} holds answers, but its {MANIFEST} is lost or damaged", .0.display())]
    #[diagnostic(help(
        "reuse the answers in a new run: --out {}-again --cache {}",
        .0.display(), .0.display()
    ))]
    LostManifest(PathBuf),
    /// The folder contains a run, and overwriting was not requested.
    #[error("{} already holds a run ({status})", path.display())]
    #[diagnostic(help("continue it with --resume, use another folder, or replace it with --overwrite"))]
    Exists {
        /// The folder.
        path: PathBuf,
        /// Status of that run.
        status: &'static str,
    },
    /// The file exists, and overwriting was not requested.
    #[error("{} already exists", .0.display())]
    #[diagnostic(help("use another file, or replace it with --overwrite"))]
    FileExists(PathBuf),
    /// The path of a new folder looks like a file name.
    #[error("{} is the name of a file, but a run is a folder", .0.display())]
    #[diagnostic(help("--out {}", .0.with_extension("").display()))]
    NamesAFile(PathBuf),
    /// A link in place of the folder is broken or circular.
    #[error("{} is a link that cannot be followed: {source}", path.display())]
    #[diagnostic(help("remove the link, or use another folder"))]
    BrokenLink {
        /// The link.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file name is not a plain name inside the run folder.
    #[error("`{}` is not the name of a file in a run folder", name.escape_debug())]
    BadName {
        /// The name.
        name: String,
    },
    /// An I/O operation failed. Rows written earlier are kept.
    #[error("{} could not be {action}: {source}", path.display())]
    Io {
        /// Failed operation: `created`, `written`, `read`, `removed`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
        /// Suggested fix, if known.
        #[help]
        hint: Option<&'static str>,
    },
    /// A database operation failed. Answers stored earlier are kept.
    #[error("{} could not be {action}: {source}", path.display())]
    Database {
        /// Failed operation: `opened`, `read`, `written`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
        /// Suggested fix, if known.
        #[help]
        hint: Option<&'static str>,
    },
    /// The folder contains no run.
    #[error("{} holds no probity run", .0.display())]
    #[diagnostic(help("name a run folder, the --out of a run"))]
    NoRun(PathBuf),
    /// The manifest is invalid.
    #[error("{} is not the manifest of a probity run: {source}", path.display())]
    BadManifest {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The database has no answer tables.
    #[error("{} holds no answers", .0.display())]
    #[diagnostic(help("name a run folder"))]
    NoAnswers(PathBuf),
    /// The database has other tables, views or triggers than this program creates.
    #[error("{} has tables or triggers that probity does not create", .0.display())]
    #[diagnostic(help("use another folder; this database was changed or belongs to another program"))]
    Foreign(PathBuf),
    /// Data of a finished run is missing.
    #[error("{} differs from what the finished run wrote: {why}", path.display())]
    #[diagnostic(help("run the same command with --resume to write it again"))]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// Missing, or of another length.
        why: String,
    },
    /// A table of a resumed run was changed since its stage wrote it.
    #[error("{} was changed after the run wrote it: {why}", path.display())]
    #[diagnostic(help("{}", changed_hint(path)))]
    Changed {
        /// The file.
        path: PathBuf,
        /// The difference: length or content.
        why: String,
    },
    /// A row of the database is damaged.
    #[error("{} has a damaged row", .0.display())]
    #[diagnostic(help(
        "run `probity check` on its folder to find it, and the command of that run with --resume to recompute it"
    ))]
    Damaged(PathBuf),
    /// The path of the answer database is not a regular file.
    #[error("{} is a link or not a regular file", .0.display())]
    #[diagnostic(help("remove it, or give another folder"))]
    NoFile(PathBuf),
    /// The page structure of the database is damaged.
    #[error("{} is a damaged database: {why}", path.display())]
    #[diagnostic(help("use a new folder, or start again with --overwrite; the other files of the run are unchanged"))]
    BrokenPages {
        /// The file.
        path: PathBuf,
        /// The first error reported by `SQLite`.
        why: String,
    },
    /// The answer database has an earlier version.
    #[error("{} was written by an older probity, whose answers have no checksums", .0.display())]
    #[diagnostic(help("use a new folder; the answers are recomputed"))]
    Older(PathBuf),
    /// The answer database has a later version.
    #[error("{} was written by a newer probity", .0.display())]
    #[diagnostic(help("use that version, or another folder"))]
    Newer(PathBuf),
    /// Another process is using the folder.
    #[error("another process is writing to {}", .0.display())]
    #[diagnostic(help("wait until it has finished, or use another folder"))]
    Busy(PathBuf),
    /// The run to resume has other settings.
    #[error("{} holds another run: {what}", path.display())]
    #[diagnostic(help(
        "repeat the arguments of that run to continue it, use another folder with --out, or replace it with --overwrite"
    ))]
    Different {
        /// The folder.
        path: PathBuf,
        /// The difference: `arguments.method.attribute differs`.
        what: String,
    },
    /// A value cannot be serialised as JSON.
    #[error("a row of {} has no JSON form: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// Two rows with the same index.
    #[error("row {index} of {} was written twice", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The index, from 0.
        index: usize,
    },
    /// A table was finished with rows missing. The other rows are in the file.
    #[error("row {index} of {} is missing, but later rows exist", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The first missing index, from 0.
        index: usize,
    },
    /// An earlier write to the table failed.
    #[error("{} accepts no more rows: an earlier write failed", .0.display())]
    Broken(PathBuf),
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, hint: hint(source.kind()), source }
    }

    pub(crate) fn database(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.into();
        move |source| Self::Database { action, path, hint: database_hint(&source), source }
    }

    /// Whether the reader of a pipe has closed it, which is not a failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

fn hint(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("free some space, or use another disk; finished work is kept")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Some("choose a path that you can write to")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            Some("use a folder; a part of this path is a file")
        }
        io::ErrorKind::IsADirectory => Some("use the name of a file, or move the folder away"),
        io::ErrorKind::NotFound => Some("check that its folder exists"),
        _ => None,
    }
}

/// Suggested fix for a run file that was changed between two stages.
fn changed_hint(path: &Path) -> &'static str {
    // No stage writes the samples, so none can restore them.
    if path.ends_with(SAMPLES) {
        "remove it, and --resume writes it again from the data; for other samples, start another run with --data"
    } else {
        "remove it, and --resume writes it again; to use your changes, start another run with --from STAGE=FILE and a \
         copy of it"
    }
}

fn database_hint(error: &rusqlite::Error) -> Option<&'static str> {
    match error.sqlite_error_code()? {
        ErrorCode::SystemIoFailure => {
            Some("check whether the disk is full or failing, and continue with --resume; finished work is kept")
        }
        ErrorCode::DiskFull => hint(io::ErrorKind::StorageFull),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => {
            hint(io::ErrorKind::PermissionDenied)
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Some("wait until the process that uses it has finished"),
        ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt => {
            Some("move it away; it is damaged or not a database of answers, and its answers are recomputed")
        }
        _ => None,
    }
}

/// The hint of the error.
#[cfg(test)]
pub(crate) fn hint_of(error: &StoreError) -> String {
    miette::Diagnostic::help(error).map(|hint| hint.to_string()).unwrap_or_default()
}

/// The message of the error, followed by its hint.
#[cfg(test)]
pub(crate) fn error_text(error: &StoreError) -> String {
    format!("{error}\n{}", hint_of(error))
}
