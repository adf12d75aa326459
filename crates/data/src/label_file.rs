//! The file that labels are added to, one at a time, each of which is on the disk before anybody is told so.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::DataError;
use crate::labels::{LONGEST, LabelFile, LabelRow, whole_lines};
use crate::open::{file_name, read_all};

/// Why labels cannot be kept in a file.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum LabelFileError {
    /// Another process adds labels to it.
    #[error("another process is writing to {file}")]
    #[diagnostic(help("end that one first, or give another file with --out"))]
    Busy {
        /// The file's name, as in messages.
        file: String,
    },
    /// It is there, and is no file of labels.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Content(#[from] DataError),
    /// The system does not give it, or takes nothing.
    #[error("{file} could not be {done}")]
    Io {
        /// The file's name, as in messages.
        file: String,
        /// `opened`, `written`.
        done: &'static str,
        /// Why.
        source: io::Error,
        /// What to do, where that is known.
        #[help]
        hint: Option<&'static str>,
    },
    /// Something else has written to it or cut it.
    #[error("{file} was changed while labels were added to it")]
    #[diagnostic(help(
        "look at the file, then end the command and start it again: it goes on with what the file holds now"
    ))]
    Changed {
        /// The file's name, as in messages.
        file: String,
    },
    /// Its name leads to another file than the one that was opened.
    #[error("{file} was moved away or replaced, and what is written would be in no file of that name")]
    #[diagnostic(help("end the command and start it again: it goes on with what the file holds now"))]
    Replaced {
        /// The file's name, as in messages.
        file: String,
    },
}

impl LabelFileError {
    /// What could not be done to a file.
    fn io(file: &str, done: &'static str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| {
            let hint = match source.kind() {
                io::ErrorKind::NotFound => Some("make the folder of the file first"),
                io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge | io::ErrorKind::QuotaExceeded => {
                    Some("make room, and label the task again; what was kept before is in the file")
                }
                _ => None,
            };
            Self::Io { file, done, source, hint }
        }
    }
}

/// A file of labels that this process alone adds to.
#[derive(Debug)]
pub struct LabelAppender {
    path: PathBuf,
    /// Locked as long as it is open.
    file: File,
    /// How long it is, if nobody else writes to it.
    len: u64,
    /// The length to which it has to be cut before anything is added, where a line was written in part.
    torn_at: Option<u64>,
}

impl LabelAppender {
    /// Opens the file, or makes it, and gives what it holds.
    ///
    /// A last line that was cut while it was written is cut off. What is no file of labels is refused and left as it is.
    pub fn open(path: &Path) -> Result<(Self, LabelFile), LabelFileError> {
        let name = file_name(path);
        let failed = |done| LabelFileError::io(&name, done);
        // Before it is opened: to open a pipe waits for whoever reads it.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(failed("opened")(io::Error::other("it is no regular file")));
        }
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = opened.map_err(failed("opened"))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(LabelFileError::Busy { file: name }),
            // A file system that knows no locks: labels are kept all the same.
            Err(TryLockError::Error(error)) if error.kind() != io::ErrorKind::Unsupported => {
                return Err(failed("locked")(error));
            }
            _ => {}
        }
        let bytes = read_all(&file, LONGEST).map_err(failed("read"))?;
        let held = LabelFile::of(&bytes, name.clone())?;
        let whole = whole_lines(&bytes);
        if whole.len() < bytes.len() {
            file.set_len(whole.len() as u64).map_err(failed("mended"))?;
        } else if whole.last().is_some_and(|byte| *byte != b'\n') {
            // A line of an editor that ends no file with a line's end.
            file.write_all(b"\n").map_err(failed("written"))?;
        }
        file.sync_all().map_err(failed("written"))?;
        sync_folder(path);
        let len = file.metadata().map_err(failed("read"))?.len();
        Ok((Self { path: path.to_owned(), file, len, torn_at: None }, held))
    }

    /// Adds a line. When this returns, it is on the disk; where it fails, nothing of it is in the file.
    pub fn append(&mut self, row: &LabelRow) -> Result<(), LabelFileError> {
        if !self.is_in_place() {
            return Err(LabelFileError::Replaced { file: file_name(&self.path) });
        }
        let file = file_name(&self.path);
        let was_as_left = self.write(row).map_err(LabelFileError::io(&file, "written"))?;
        was_as_left.then_some(()).ok_or(LabelFileError::Changed { file })
    }

    /// Whether the file was as it was left, and has the line now.
    fn write(&mut self, row: &LabelRow) -> io::Result<bool> {
        if let Some(whole) = self.torn_at {
            self.file.set_len(whole)?;
            self.torn_at = None;
        }
        // What an editor has cut or a stranger has begun would be lost, or spoil the line.
        if self.file.metadata()?.len() != self.len {
            return Ok(false);
        }
        let line = row.line();
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.len += line.len() as u64,
            // A part of a line would spoil the next one.
            Err(_) if self.file.set_len(self.len).is_err() => self.torn_at = Some(self.len),
            Err(_) => {}
        }
        written.map(|()| true)
    }

    /// Whether the path still leads to the file that was opened: an editor that saves it puts another in its place.
    #[cfg(unix)]
    fn is_in_place(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let (Ok(named), Ok(open)) = (self.path.metadata(), self.file.metadata()) else { return false };
        (named.dev(), named.ino()) == (open.dev(), open.ino())
    }

    /// Elsewhere nobody can replace a file that is open.
    #[cfg(not(unix))]
    fn is_in_place(&self) -> bool {
        self.path.exists()
    }
}

/// Puts the file's name on the disk, where folders can be opened (not on Windows); what is in the file is safe without.
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

    fn of(ids: &[&str]) -> Vec<LabelSubject> {
        ids.iter().map(|id| LabelSubject::Candidate((*id).into())).collect()
    }

    #[test]
    fn a_file_is_gone_on_from_and_read_by_others_meanwhile() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("labels.jsonl");
        let (mut appender, held) = LabelAppender::open(&path).expect("made");
        assert!(held.rows.is_empty());
        appender.append(&row("a")).expect("kept");
        assert_eq!(candidates(&read_labels(&path).expect("readable")), of(&["a"]));
        let busy = LabelAppender::open(&path).expect_err("locked");
        assert!(matches!(&busy, LabelFileError::Busy { .. }), "{busy:?}");
        drop(appender);
        let (mut appender, held) = LabelAppender::open(&path).expect("opened");
        assert_eq!(candidates(&held), of(&["a"]));
        appender.append(&row("b")).expect("kept");
        assert_eq!(candidates(&read_labels(&path).expect("readable")), of(&["a", "b"]));
    }

    #[test]
    fn a_file_that_somebody_else_has_cut_or_written_to_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("labels.jsonl");
        let (mut appender, _) = LabelAppender::open(&path).expect("made");
        appender.append(&row("a")).expect("kept");
        let whole = std::fs::read(&path).expect("there");
        for changed in [&whole[..0], &[&whole[..], b"{\"item\":"].concat()] {
            // In place, as some editors and `>` do.
            std::fs::write(&path, changed).expect("written");
            let error = appender.append(&row("b")).expect_err("changed");
            assert!(matches!(error, LabelFileError::Changed { .. }), "{error:?}");
            assert_eq!(std::fs::read(&path).expect("there"), changed);
        }
        std::fs::write(&path, &whole).expect("written");
        appender.append(&row("b")).expect("as it was");
        assert_eq!(candidates(&read_labels(&path).expect("readable")), of(&["a", "b"]));
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
            assert_eq!(candidates(&read_labels(&path).expect("readable")), of(expected));
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
