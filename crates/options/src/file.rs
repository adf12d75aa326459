//! Opening the files that options name.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use probity_lm::skip_byte_order_mark;

/// Opens a regular file. Pipes and devices are rejected: opening a pipe may block, a device may be endless, and neither
/// can be read twice.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let found = path.metadata()?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // Checked before opening, which alone may block.
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(path)
}

/// Reads a regular file as text, without a byte order mark.
pub fn read_text(path: &Path) -> io::Result<String> {
    io::read_to_string(skip_byte_order_mark(BufReader::new(open_regular(path)?))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_before_it_is_opened() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(read_text(&folder.join("Cargo.toml")).is_ok_and(|text| text.contains("probity-options")));
        assert_eq!(read_text(folder).expect_err("a folder").kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read_text(&folder.join("absent")).expect_err("absent").kind(), io::ErrorKind::NotFound);
        #[cfg(unix)]
        assert_eq!(read_text(Path::new("/dev/zero")).expect_err("endless").to_string(), "it is not a regular file");
    }
}
