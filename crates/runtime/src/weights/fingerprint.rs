//! Fingerprints that identify a model in records.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::WeightsError;

/// SHA-256 of one file, in hex.
pub fn sha256_file(path: &Path) -> Result<String, WeightsError> {
    let digest = digest(path, &mut |_| {}).map_err(|source| WeightsError::Io { path: path.to_owned(), source })?;
    Ok(hex(&digest))
}

/// SHA-256 over the names and contents of files, in hex. Depends on file names and bytes, but not on folders or on the
/// order of `paths`.
pub fn fingerprint(paths: &[impl AsRef<Path>]) -> Result<String, WeightsError> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let path = path.as_ref();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let digest = digest(path, &mut |_| {}).map_err(|source| WeightsError::Io { path: path.to_owned(), source })?;
        files.push((name, digest));
    }
    // Sorted by name and content, because the order depends on the caller.
    files.sort_unstable();
    files.dedup();
    let mut all = Sha256::new();
    for (name, digest) in files {
        // The length comes first, so that different lists of files never give the same bytes.
        all.update((name.len() as u64).to_le_bytes());
        all.update(name.as_bytes());
        all.update(digest);
    }
    Ok(hex(&all.finalize()))
}

/// SHA-256 of one file; `advance` receives the number of bytes read.
pub(crate) fn digest(path: &Path, advance: &mut dyn FnMut(usize)) -> io::Result<[u8; 32]> {
    // Opening a pipe blocks until it is written to, and a device may be endless.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..read]);
        advance(read);
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string succeeds");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_depends_on_names_and_bytes_not_on_order_or_folder() {
        let write = |name: &str, bytes: &[u8]| {
            let dir = tempfile::tempdir().expect("temporary folder");
            std::fs::write(dir.path().join(name), bytes).expect("written");
            dir
        };
        let (a, b) = (write("a.json", b"one"), write("b.json", b"two"));
        let (path_a, path_b) = (a.path().join("a.json"), b.path().join("b.json"));
        let both = fingerprint(&[&path_a, &path_b]).expect("readable");
        assert_eq!(both, fingerprint(&[&path_b, &path_a]).expect("readable"));
        let other = write("b.json", b"twO");
        assert_ne!(both, fingerprint(&[&path_a, &other.path().join("b.json")]).expect("readable"));
        let moved = write("b.json", b"two");
        assert_eq!(both, fingerprint(&[&path_a, &moved.path().join("b.json")]).expect("readable"));
    }

    #[test]
    fn sha256_of_a_known_text() {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        std::fs::write(file.path(), b"abc").expect("written");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_file(file.path()).expect("readable"), expected);
    }
}
