//! Verifies the files of known models.

use std::path::{Path, PathBuf};

use super::known::KnownModel;
use super::locate::{LocateError, ModelOrigin, SearchPaths, locate_in};
use super::{TransferProgress, WeightFormat};
use crate::weights::{digest, hex};

/// A verified file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// Where it lies.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Its verified SHA-256, in hex.
    pub sha256: String,
}

/// Why verification failed.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum VerifyError {
    /// The model was not found, or a file has the wrong size.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Locate(#[from] LocateError),
    /// A file has the wrong content.
    #[error(
        "{} has the wrong content\n  expected sha256 {expected}\n  found    sha256 {found}",
        path.display()
    )]
    #[diagnostic(help("remove the file, then run `probity model get {name}`"))]
    WrongHash {
        /// The model.
        name: String,
        /// The file.
        path: PathBuf,
        /// Expected SHA-256.
        expected: String,
        /// Actual SHA-256.
        found: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Hashes every file of a known model, located by [`locate_in`], and compares it with the expected hash.
pub fn verify(
    places: &SearchPaths,
    model: &KnownModel,
    progress: &mut dyn TransferProgress,
) -> Result<Vec<FileReport>, VerifyError> {
    let located = locate_in(places, model.name)?;
    let folder = match (&located.origin, located.format) {
        (ModelOrigin::Models, _) => places.folder(model),
        (_, WeightFormat::Safetensors) => located.path.clone(),
        (_, WeightFormat::Gguf) => located.path.parent().unwrap_or(Path::new(".")).to_owned(),
    };
    let check = |file: &super::KnownFile, progress: &mut dyn TransferProgress| {
        let path = folder.join(file.path);
        progress.begin(&format!("hashing {}", file.path), Some(file.bytes));
        let found = hash_file(&path, progress).map_err(|source| VerifyError::Io { path: path.clone(), source })?;
        if found != file.sha256 {
            return Err(VerifyError::WrongHash {
                name: model.name.to_owned(),
                path,
                expected: file.sha256.to_owned(),
                found,
            });
        }
        Ok(FileReport { path, bytes: file.bytes, sha256: found })
    };
    model.files.iter().map(|file| check(file, progress)).collect()
}

/// SHA-256 of a file's content, in lower-case hex.
pub fn hash_file(path: &Path, progress: &mut dyn TransferProgress) -> std::io::Result<String> {
    let digest = digest(path, &mut |bytes| progress.advance(bytes as u64))?;
    Ok(hex(&digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::{NoProgress, known_model};

    #[test]
    fn hash_is_that_of_the_standard_s_example() {
        let dir = tempfile::tempdir().expect("temp");
        std::fs::write(dir.path().join("abc"), "abc").expect("write");
        let hash = hash_file(&dir.path().join("abc"), &mut NoProgress).expect("read");
        assert_eq!(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn right_size_with_wrong_content_is_told_with_both_hashes() {
        let dir = tempfile::tempdir().expect("temp");
        let places = SearchPaths { models: dir.path().to_owned(), hf_cache: dir.path().join("hub") };
        let model = known_model("smollm2-135m-instruct").expect("known");
        std::fs::create_dir_all(places.folder(model)).expect("dir");
        let path = places.folder(model).join(model.files[0].path);
        std::fs::File::create(&path).expect("file").set_len(model.files[0].bytes).expect("sparse");
        let message = verify(&places, model, &mut NoProgress).expect_err("zeros").to_string();
        assert!(message.contains(model.files[0].sha256) && message.contains("found    sha256"), "{message}");
    }
}
