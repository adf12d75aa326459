//! Reads weights: GGUF and safetensors files as [`WeightSource`](probity_models::WeightSource)s.
//!
//! Files are untrusted: every size and offset is checked before use. The error for an invalid file names the file, the
//! field and the expected value.

mod fingerprint;
mod finite;
mod gguf;
mod gguf_header;
mod gguf_parts;
mod lora;
mod safetensors;

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use probity_models::TensorMemory;

pub(crate) use fingerprint::{digest, hex};
pub use fingerprint::{fingerprint, sha256_file};
pub use finite::check_finite;
pub use gguf::{GgufFile, TensorListing};
pub use gguf_header::{GgmlType, GgufHeader, HeaderError, MetadataArray, MetadataValue, StringTable, TensorInfo};
pub(crate) use gguf_parts::PartName;
pub use lora::{AdaptedWeights, AdapterError, LoraAdapter};
pub use safetensors::{SafetensorsFiles, ShardIndex};

/// Why weights could not be read.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum WeightsError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file does not conform to its format.
    #[error("{}: {what}: {why}", path.display())]
    #[diagnostic(help("{hint}"))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The field or tensor.
        what: String,
        /// Expected and found.
        why: String,
        /// A hint.
        hint: String,
    },
    /// A weight is not finite.
    #[error("tensor `{name}` in {} holds {found} at element {index} (type {weight_type})", path.display())]
    #[diagnostic(help("compare its hash with the publisher's; it is damaged or was saved after diverged training"))]
    NotFinite {
        /// The file or folder.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Weight type of the tensor.
        weight_type: probity_kernels::WeightType,
        /// The first bad element in row-major order. For a quantised tensor, the first element of the block with the
        /// bad scale.
        index: usize,
        /// `an infinite value` or `not a number`.
        found: &'static str,
    },
}

/// A memory-mapped file.
pub(crate) struct FileMap(Mmap);

impl std::ops::Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl TensorMemory for FileMap {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn release(&self, range: std::ops::Range<usize>) {
        #[cfg(target_os = "linux")]
        // SAFETY: the map is read-only and file-backed, so released pages are read again with the same bytes.
        let _ = unsafe { self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }
}

/// Maps a file for reading.
pub(crate) fn map_file(path: &Path) -> Result<FileMap, WeightsError> {
    let io = |source| WeightsError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    // Opening a folder succeeds, but the error from mapping it does not name the cause.
    if file.metadata().map_err(io)?.is_dir() {
        return Err(io(std::io::Error::new(std::io::ErrorKind::IsADirectory, "it is a folder, not a file")));
    }
    // SAFETY: the map is private and read-only. A file that another process shortens or rewrites while it is mapped is
    // outside what a reader can prevent; all offsets were checked against the length at mapping time, and model files
    // are not written in place.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    Ok(FileMap(map))
}
