//! Why a run could not be written down.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::{MANIFEST, SAMPLES};

/// Why a run folder or a table could not be written.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum StoreError {
    /// The folder holds something, and no run of ours.
    #[error("{} is not empty and holds no probity run", path.display())]
    #[diagnostic(help("use a new folder, such as --out {}-probity", path.display()))]
    NotOurs {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds answers, and not the manifest of the run that has them.
    #[error("{} holds answers, but its {MANIFEST} is lost or damaged", path.display())]
    #[diagnostic(help(
        "reuse the answers in a new run: --out {}-again --cache {}",
        path.display(), path.display()
    ))]
    LostManifest {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds a run, and overwriting was not asked for.
    #[error("{} already holds a run ({status})", path.display())]
    #[diagnostic(help("continue it with --resume, use another folder, or replace it with --overwrite"))]
    Exists {
        /// The folder.
        path: PathBuf,
        /// How that run ended.
        status: &'static str,
    },
    /// The file is there, and overwriting was not asked for.
    #[error("{} already exists", path.display())]
    #[diagnostic(help("use another file, or replace it with --overwrite"))]
    FileExists {
        /// The file.
        path: PathBuf,
    },
    /// A file is named where a folder is made.
    #[error("{} is the name of a file, but a run is a folder", path.display())]
    #[diagnostic(help("--out {}", path.with_extension("").display()))]
    NamesAFile {
        /// What was named.
        path: PathBuf,
    },
    /// A link in the place of a folder leads nowhere, or to itself.
    #[error("{} is a link that cannot be followed: {source}", path.display())]
    #[diagnostic(help("remove the link, or use another folder"))]
    BrokenLink {
        /// The link.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file's name is not a plain name inside the run folder.
    #[error("`{}` is not the name of a file in a run folder", name.escape_debug())]
    BadName {
        /// The name.
        name: String,
    },
    /// The system refused. Rows that were written before are kept.
    #[error("{} could not be {action}: {source}", path.display())]
    Io {
        /// What was tried: `created`, `written`, `read`, `removed`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
        /// What to do, where that is known.
        #[help]
        hint: Option<&'static str>,
    },
    /// The database of answers refused. Answers that were put before are kept.
    #[error("{} could not be {action}: {source}", path.display())]
    Database {
        /// What was tried: `opened`, `read`, `written`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
        /// What to do, where that is known.
        #[help]
        hint: Option<&'static str>,
    },
    /// There is no run.
    #[error("{} holds no probity run", path.display())]
    #[diagnostic(help("name a run folder, the --out of a run"))]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// A manifest that cannot be understood.
    #[error("{} is not the manifest of a probity run: {source}", path.display())]
    BadManifest {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A database without tables of answers.
    #[error("{} holds no answers", path.display())]
    #[diagnostic(help("name a run folder"))]
    NoAnswers {
        /// The file.
        path: PathBuf,
    },
    /// A database whose tables, or what acts on them, are not those that are written here.
    #[error("{} has tables or triggers that probity does not create", path.display())]
    #[diagnostic(help("use another folder; this database was changed or belongs to another program"))]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A finished run lacks what it had.
    #[error("{} differs from what the finished run wrote: {why}", path.display())]
    #[diagnostic(help("run the same command with --resume to write it again"))]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// Missing, or of another length.
        why: String,
    },
    /// A table of a run that goes on is not what its stage has written.
    #[error("{} was changed after the run wrote it: {why}", path.display())]
    #[diagnostic(help("{}", changed_hint(path)))]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its length, or its content.
        why: String,
    },
    /// A row of the database is not as it was written.
    #[error("{} has a damaged row", path.display())]
    #[diagnostic(help(
        "run `probity check` on its folder to find it, and the command of that run with --resume to recompute it"
    ))]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Where the database of answers should be there is something else.
    #[error("{} is a link or not a regular file", path.display())]
    #[diagnostic(help("remove it, or give another folder"))]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// The database's pages do not hang together.
    #[error("{} is a damaged database: {why}", path.display())]
    #[diagnostic(help(
        "use a new folder, or start again with --overwrite; the other files of the run are unchanged"
    ))]
    BrokenPages {
        /// The file.
        path: PathBuf,
        /// What `SQLite` found first.
        why: String,
    },
    /// The database of answers is of an earlier version.
    #[error("{} was written by an older probity, whose answers have no checksums", path.display())]
    #[diagnostic(help("use a new folder; the answers are recomputed"))]
    Older {
        /// The file.
        path: PathBuf,
    },
    /// The database of answers is of a later version.
    #[error("{} was written by a newer probity", path.display())]
    #[diagnostic(help("use that version, or another folder"))]
    Newer {
        /// The file.
        path: PathBuf,
    },
    /// Another process is at work in the folder.
    #[error("another process is writing to {}", path.display())]
    #[diagnostic(help("wait until it has finished, or use another folder"))]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A run is to be resumed that was another.
    #[error("{} holds another run: {what}", path.display())]
    #[diagnostic(help(
        "repeat the arguments of that run to continue it, use another folder with --out, or replace it with --overwrite"
    ))]
    Different {
        /// The folder.
        path: PathBuf,
        /// What differs: `arguments.method.attribute differs`.
        what: String,
    },
    /// A value has no JSON form.
    #[error("a row of {} has no JSON form: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Two rows of one index.
    #[error("row {index} of {} was written twice", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The index, from 0.
        index: usize,
    },
    /// A table was finished before all its rows had come. Those that had are in the file.
    #[error("row {index} of {} is missing, but later rows exist", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The first index that is missing, from 0.
        index: usize,
    },
    /// An earlier write to the table failed.
    #[error("{} accepts no more rows: an earlier write failed", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
    },
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

    /// Whether the reader of a pipe has gone: nothing went wrong, nobody wants more.
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
        io::ErrorKind::IsADirectory => {
            Some("use the name of a file, or move the folder away")
        }
        io::ErrorKind::NotFound => Some("check that its folder exists"),
        _ => None,
    }
}

/// What to do about a file of a run that was changed between two stages.
fn changed_hint(path: &Path) -> &'static str {
    // No stage makes the samples, so that none could take them from a file.
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
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Some("wait until the process that uses it has finished")
        }
        ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt => {
            Some("move it away; it is damaged or not a database of answers, and its answers are recomputed")
        }
        _ => None,
    }
}

/// The error's own hint.
#[cfg(test)]
pub(crate) fn hint_of(error: &StoreError) -> String {
    miette::Diagnostic::help(error).map(|hint| hint.to_string()).unwrap_or_default()
}

/// What the error says, and its hint behind it.
#[cfg(test)]
pub(crate) fn told(error: &StoreError) -> String {
    format!("{error}\n{}", hint_of(error))
}
