//! An append-only file of labels. Each label is flushed to disk before it is acknowledged.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::DataError;
use crate::labels::{LONGEST, LabelFile, LabelRow, whole_lines};
use crate::open::{file_name, read_all};

/// Error of opening or writing a label file.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum LabelFileError {
    /// Another process is writing the file.
    #[error("another process is writing to {file}")]
    #[diagnostic(help("stop it first, or use another file with --out"))]
    Busy {
        /// File name for messages.
        file: String,
    },
    /// The file exists but is not a label file.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Content(#[from] DataError),
    /// The file cannot be opened or written.
    #[error("{file} could not be {done}")]
    Io {
        /// File name for messages.
        file: String,
        /// Failed operation: `opened` or `written`.
        done: &'static str,
        /// The cause.
        source: io::Error,
        /// Suggested fix, if known.
        #[help]
        hint: Option<&'static str>,
    },
    /// Another program has written to the file or truncated it.
    #[error("{file} was changed while labels were added to it")]
    #[diagnostic(help("inspect the file, then restart the command; it continues with the current content"))]
    Changed {
        /// File name for messages.
        file: String,
    },
    /// The path now leads to another file than the one that was opened.
    #[error("{file} was moved or replaced while labels were added to it")]
    #[diagnostic(help("restart the command; it continues with the current content of the file"))]
    Replaced {
        /// File name for messages.
        file: String,
    },
}

impl LabelFileError {
    /// Wraps an I/O error of an operation on the file.
    fn io(file: &str, done: &'static str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| {
            let hint = match source.kind() {
                io::ErrorKind::NotFound => Some("create the folder of the file first"),
                io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge | io::ErrorKind::QuotaExceeded => {
                    Some("free some space, and label the task again; earlier labels are in the file")
                }
                _ => None,
            };
            Self::Io { file, done, source, hint }
        }
    }
}

/// Appends to a label file that is locked by this process.
#[derive(Debug)]
pub struct LabelAppender {
    path: PathBuf,
    /// Locked while open.
    file: File,
    /// Expected length, unless another program writes to the file.
    len: u64,
    /// Length to truncate to before the next write, after a partial write.
    torn_at: Option<u64>,
}

impl LabelAppender {
    /// Opens or creates the file and returns its labels.
    ///
    /// A partially written last line is removed. A file that is not a label file is rejected and left unchanged.
    pub fn open(path: &Path) -> Result<(Self, LabelFile), LabelFileError> {
        let name = file_name(path);
        let failed = |done| LabelFileError::io(&name, done);
        // Check first: opening a pipe blocks until it is read.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(failed("opened")(io::Error::other("it is not a regular file")));
        }
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = opened.map_err(failed("opened"))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(LabelFileError::Busy { file: name }),
            // File systems without locks are still accepted.
            Err(TryLockError::Error(error)) if error.kind() != io::ErrorKind::Unsupported => {
                return Err(failed("locked")(error));
            }
            _ => {}
        }
        let bytes = read_all(&file, LONGEST).map_err(failed("read"))?;
        let held = LabelFile::parse(&bytes, name.clone())?;
        let whole = whole_lines(&bytes);
        if whole.len() < bytes.len() {
            file.set_len(whole.len() as u64).map_err(failed("repaired"))?;
        } else if whole.last().is_some_and(|byte| *byte != b'\n') {
            // Some editors omit the final line end.
            file.write_all(b"\n").map_err(failed("written"))?;
        }
        file.sync_all().map_err(failed("written"))?;
        sync_folder(path);
        let len = file.metadata().map_err(failed("read"))?.len();
        Ok((Self { path: path.to_owned(), file, len, torn_at: None }, held))
    }

    /// Appends a line and flushes it to disk. On failure the file is unchanged.
    pub fn append(&mut self, row: &LabelRow) -> Result<(), LabelFileError> {
        if !self.is_in_place() {
            return Err(LabelFileError::Replaced { file: file_name(&self.path) });
        }
        let file = file_name(&self.path);
        let was_as_left = self.write(row).map_err(LabelFileError::io(&file, "written"))?;
        was_as_left.then_some(()).ok_or(LabelFileError::Changed { file })
    }

    /// Writes the row; false if another program has changed the file.
    fn write(&mut self, row: &LabelRow) -> io::Result<bool> {
        if let Some(whole) = self.torn_at {
            self.file.set_len(whole)?;
            self.torn_at = None;
        }
        // Truncation or a partial line by another program would lose or corrupt this line.
        if self.file.metadata()?.len() != self.len {
            return Ok(false);
        }
        let line = row.line();
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.len += line.len() as u64,
            // A partial line would corrupt the next one.
            Err(_) if self.file.set_len(self.len).is_err() => self.torn_at = Some(self.len),
            Err(_) => {}
        }
        written.map(|()| true)
    }

    /// Whether the path still leads to the opened file. Some editors save by replacing the file.
    #[cfg(unix)]
    fn is_in_place(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let (Ok(named), Ok(open)) = (self.path.metadata(), self.file.metadata()) else { return false };
        (named.dev(), named.ino()) == (open.dev(), open.ino())
    }

    /// On other systems an open file cannot be replaced.
    #[cfg(not(unix))]
    fn is_in_place(&self) -> bool {
        self.path.exists()
    }
}

/// Flushes the directory entry, where directories can be opened (not on Windows). The file content is safe without it.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::{Label, LabelSubject, LabelTask};
    use crate::read_labels;

    fn row(candidate: &str) -> LabelRow {
        let subject = LabelSubject::Candidate(candidate.into());
        let task = LabelTask { item: "1".into(), attribute: None, subject };
        LabelRow { task, label: Label::Score(3.0), annotator: None, seconds: None }
    }

    fn candidates(file: &LabelFile) -> Vec<LabelSubject> {
        file.rows.iter().map(|(_, row)| row.task.subject.clone()).collect()
    }

    fn subjects(ids: &[&str]) -> Vec<LabelSubject> {
        ids.iter().map(|id| LabelSubject::Candidate((*id).into())).collect()
    }

    #[test]
    fn a_file_is_gone_on_from_and_read_by_others_meanwhile() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("labels.jsonl");
        let (mut appender, held) = LabelAppender::open(&path).expect("made");
        assert!(held.rows.is_empty());
        appender.append(&row("a")).expect("kept");
        assert_eq!(candidates(&read_labels(&path).expect("readable")), subjects(&["a"]));
        let busy = LabelAppender::open(&path).expect_err("locked");
        assert!(matches!(&busy, LabelFileError::Busy { .. }), "{busy:?}");
        drop(appender);
        let (mut appender, held) = LabelAppender::open(&path).expect("opened");
        assert_eq!(candidates(&held), subjects(&["a"]));
        appender.append(&row("b")).expect("kept");
        assert_eq!(candidates(&read_labels(&path).expect("readable")), subjects(&["a", "b"]));
    }

    #[test]
    fn a_file_that_somebody_else_has_cut_or_written_to_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("labels.jsonl");
        let (mut appender, _) = LabelAppender::open(&path).expect("made");
        appender.append(&row("a")).expect("kept");
        let whole = std::fs::read(&path).expect("there");
        for changed in [&whole[..0], &[&whole[..], b"{\"item\":"].concat()] {
            // In place, like some editors and `>`.
            std::fs::write(&path, changed).expect("written");
            let error = appender.append(&row("b")).expect_err("changed");
            assert!(matches!(error, LabelFileError::Changed { .. }), "{error:?}");
            assert_eq!(std::fs::read(&path).expect("there"), changed);
        }
        std::fs::write(&path, &whole).expect("written");
        appender.append(&row("b")).expect("as it was");
        assert_eq!(candidates(&read_labels(&path).expect("readable")), subjects(&["a", "b"]));
    }

    #[test]
    fn half_a_line_is_cut_off_a_line_without_its_end_is_kept_and_a_stranger_s_file_left_alone() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("labels.jsonl");
        let whole = row("a").line();
        for (found, expected) in [
            (format!("{whole}{}", &row("b").line()[..20]), &["a", "c"][..]),
            (format!("{whole}{}", row("b").line().trim_end()), &["a", "b", "c"]),
            ("{".to_owned(), &["c"]),
        ] {
            std::fs::write(&path, found).expect("written");
            let (mut appender, _) = LabelAppender::open(&path).expect("mended");
            appender.append(&row("c")).expect("kept");
            assert_eq!(candidates(&read_labels(&path).expect("readable")), subjects(expected));
        }
        for stranger in ["my notes", "my notes\n", "{\"id\": \"1\"}\n"] {
            std::fs::write(&path, stranger).expect("written");
            assert!(matches!(LabelAppender::open(&path), Err(LabelFileError::Content(_))), "{stranger}");
            assert_eq!(std::fs::read_to_string(&path).expect("there"), stranger);
        }
        let error = LabelAppender::open(folder.path()).expect_err("a folder").to_string();
        assert!(error.ends_with("could not be opened"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_was_replaced_takes_no_label() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("labels.jsonl");
        let (mut appender, _) = LabelAppender::open(&path).expect("made");
        std::fs::write(folder.path().join("saved"), "").expect("written");
        std::fs::rename(folder.path().join("saved"), &path).expect("replaced");
        assert!(matches!(appender.append(&row("a")), Err(LabelFileError::Replaced { .. })));
        std::fs::remove_file(&path).expect("removed");
        assert!(matches!(appender.append(&row("a")), Err(LabelFileError::Replaced { .. })));
    }
}
