//! Why a run could not be written down.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::{MANIFEST, SAMPLES};

/// Why a run folder or a table could not be written.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum StoreError {
    /// The folder holds something, and no run of ours.
    #[error("{} is not empty and holds no probity run, so nothing is written there", path.display())]
    #[diagnostic(help("give a new folder, --out {}-probity", path.display()))]
    NotOurs {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds answers, and not the manifest of the run that has them.
    #[error("{} holds answers, and its {MANIFEST} is lost or damaged", path.display())]
    #[diagnostic(help(
        "the answers are not lost; a new run takes them: --out {}-again --cache {}",
        path.display(), path.display()
    ))]
    LostManifest {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds a run, and overwriting was not asked for.
    #[error("{} holds a run already ({status})", path.display())]
    #[diagnostic(help("go on with it by --resume, give another folder, or replace it with --overwrite"))]
    Exists {
        /// The folder.
        path: PathBuf,
        /// How that run ended.
        status: &'static str,
    },
    /// The file is there, and overwriting was not asked for.
    #[error("{} exists already", path.display())]
    #[diagnostic(help("give another file, or replace it with --overwrite"))]
    FileExists {
        /// The file.
        path: PathBuf,
    },
    /// A file is named where a folder is made.
    #[error("{} is the name of a file, and a run is a folder of several files", path.display())]
    #[diagnostic(help("--out {}", path.with_extension("").display()))]
    NamesAFile {
        /// What was named.
        path: PathBuf,
    },
    /// A link in the place of a folder leads nowhere, or to itself.
    #[error("{} is a link that cannot be followed: {source}", path.display())]
    #[diagnostic(help("remove the link, or give another folder"))]
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
    #[diagnostic(help("give the folder that was named by --out"))]
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
    #[diagnostic(help("give the folder of a run"))]
    NoAnswers {
        /// The file.
        path: PathBuf,
    },
    /// A database whose tables, or what acts on them, are not those that are written here.
    #[error("{} has tables or triggers that probity does not make", path.display())]
    #[diagnostic(help("it was changed, or is another program's; give another folder"))]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A finished run lacks what it had.
    #[error("{} is not what the finished run has written: {why}", path.display())]
    #[diagnostic(help("the same command with --resume writes it again"))]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// Missing, or of another length.
        why: String,
    },
    /// A table of a run that goes on is not what its stage has written.
    #[error("{} was changed since the run has written it: {why}", path.display())]
    #[diagnostic(help("{}", changed_hint(path)))]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its length, or its content.
        why: String,
    },
    /// A row of the database is not as it was written.
    #[error("{} is damaged: a row is not as it was written", path.display())]
    #[diagnostic(help(
        "`probity check` on its folder names what is; the command of that run with --resume asks it again"
    ))]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Where the database of answers should be there is something else.
    #[error("{} is a link, or no regular file, and is not opened", path.display())]
    #[diagnostic(help("remove it, or give another folder"))]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// The database's pages do not hang together.
    #[error("{} is broken: {why}", path.display())]
    #[diagnostic(help(
        "give a new folder, or begin anew with --overwrite; what the run has written beside it is as it was"
    ))]
    BrokenPages {
        /// The file.
        path: PathBuf,
        /// What `SQLite` found first.
        why: String,
    },
    /// The database of answers is of an earlier version.
    #[error("{} was written by an earlier probity, whose answers have no checksums", path.display())]
    #[diagnostic(help("give a new folder; what it held is computed again"))]
    Older {
        /// The file.
        path: PathBuf,
    },
    /// The database of answers is of a later version.
    #[error("{} was written by a newer probity", path.display())]
    #[diagnostic(help("use that version, or give another folder"))]
    Newer {
        /// The file.
        path: PathBuf,
    },
    /// Another process is at work in the folder.
    #[error("another process is writing to {}", path.display())]
    #[diagnostic(help("wait until it has finished, or give another folder"))]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A run is to be resumed that was another.
    #[error("{} holds another run: {what}", path.display())]
    #[diagnostic(help(
        "give the same arguments to go on with it, another folder with --out, or --overwrite to replace it"
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
    #[error("row {index} of {} came twice", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The index, from 0.
        index: usize,
    },
    /// A table was finished before all its rows had come. Those that had are in the file.
    #[error("row {index} of {} never came, though later ones did", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The first index that is missing, from 0.
        index: usize,
    },
    /// An earlier write to the table failed.
    #[error("{} takes no more rows: an earlier write failed", path.display())]
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
            Some("the disk is full; what was finished is kept. Free some space, or give a place on another disk")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Some("give a place that you may write to")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            Some("a part of this path is a file; give a folder")
        }
        io::ErrorKind::IsADirectory => {
            Some("this is a folder where a file belongs: give a file, or move the folder away")
        }
        io::ErrorKind::NotFound => Some("check that the folder it lies in exists"),
        _ => None,
    }
}

/// What to do about a file of a run that was changed between two stages.
fn changed_hint(path: &Path) -> &'static str {
    // No stage makes the samples, so that none could take them from a file.
    if path.ends_with(SAMPLES) {
        "remove it, and --resume writes it again from the data; other samples are judged by another run, by --data"
    } else {
        "what was changed by intent goes into another run, by --from STAGE=FILE and a copy of it; else remove it, and \
         --resume writes it again"
    }
}

fn database_hint(error: &rusqlite::Error) -> Option<&'static str> {
    match error.sqlite_error_code()? {
        ErrorCode::SystemIoFailure => {
            Some("what was finished is kept; look whether the disk is full or failing, and go on with --resume")
        }
        ErrorCode::DiskFull => hint(io::ErrorKind::StorageFull),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => {
            hint(io::ErrorKind::PermissionDenied)
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Some("another process holds it; wait until that has finished")
        }
        ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt => {
            Some("this is no database of answers, or it was damaged; move it away, and what it held is computed again")
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
