//! Reading weights: GGUF and safetensors files as [`WeightSource`](probity_models::WeightSource)s.
//!
//! Files are data from strangers: every size and offset is checked before it is used, and a file that is broken gives
//! an error that names it, the field and what was expected.

mod fingerprint;
mod finite;
mod gguf;
mod gguf_header;
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
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not what its format demands.
    #[error("{}: {what}: {why}", path.display())]
    #[diagnostic(help("{hint}"))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The field or tensor.
        what: String,
        /// Expected and found.
        why: String,
        /// What to do.
        hint: String,
    },
    /// A weight is no number.
    #[error("tensor `{name}` in {} holds {found} at element {index} (type {weight_type})", path.display())]
    #[diagnostic(help(
        "the checkpoint is damaged or was saved after a diverged training; compare its hash with the publisher's"
    ))]
    NotFinite {
        /// The file or folder.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its type.
        weight_type: probity_kernels::WeightType,
        /// The first bad element in row-major order; for a quantised tensor the first element of the block whose scale
        /// is bad.
        index: usize,
        /// `an infinite value` or `not a number`.
        found: &'static str,
    },
}

/// A file's bytes, as they lie on disk.
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
        // SAFETY: the map is read-only and of a file: pages that are let go come back from there with the same bytes.
        let _ = unsafe { self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }
}

/// Maps a file for reading.
pub(crate) fn map_file(path: &Path) -> Result<FileMap, WeightsError> {
    let io = |source| WeightsError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    // A folder can be opened, and what mapping it then says names no cause.
    if file.metadata().map_err(io)?.is_dir() {
        return Err(io(std::io::Error::new(std::io::ErrorKind::IsADirectory, "it is a folder, not a file")));
    }
    // SAFETY: the map is private and read-only. A file that another process shortens or rewrites while it is mapped is
    // outside what a reader can prevent; all offsets were checked against the length at mapping time, and model files
    // are not written in place.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    Ok(FileMap(map))
}
