//! Reads small untrusted files next to a model's weights.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};

use probity_lm::skip_byte_order_mark;

/// Maximum file size in bytes; the largest real `tokenizer.json` has about 40 MB.
pub(crate) const MAX_BYTES: u64 = 256 << 20;

/// Whether a file exists. A dangling link counts, because its target was part of the model.
pub(crate) fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// A file with its inode and change time, to detect writes and replacement. Programs cannot set the change time.
pub(crate) type FileState = (PathBuf, Option<(u64, i64, i64)>);

/// The current state of a file; `None` on systems that do not report it.
pub(crate) fn file_state(path: PathBuf) -> FileState {
    #[cfg(unix)]
    let state = {
        use std::os::unix::fs::MetadataExt as _;
        path.metadata().ok().map(|file| (file.ino(), file.ctime(), file.ctime_nsec()))
    };
    #[cfg(not(unix))]
    let state = None;
    (path, state)
}

/// Reads a whole file without its byte order mark. Rejects files that are not regular (a pipe may be endless) or too
/// large.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Checked before opening, because opening a pipe blocks until it is written to.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > MAX_BYTES {
        return Err(io::Error::other(format!("it has {} MiB; {} are allowed", bytes >> 20, MAX_BYTES >> 20)));
    }
    let mut content = Vec::with_capacity(bytes as usize);
    // The file may have grown since its size was read.
    skip_byte_order_mark(BufReader::new(file.take(MAX_BYTES)))?.read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_or_is_far_too_large_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("config.json");
        File::create(&path).and_then(|file| file.set_len(20 << 30)).expect("a file of holes");
        assert!(read(&path).expect_err("too large").to_string().contains("it has 20480 MiB; 256 are allowed"));
        assert!(read(folder.path()).expect_err("a folder").to_string().contains("not a regular file"));
        std::fs::write(&path, "\u{feff}{}").expect("written");
        assert_eq!(read(&path).expect("readable"), b"{}");
    }
}
