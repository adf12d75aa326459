//! Lists, locates, downloads and verifies models.
//!
//! [`locate`](fn@locate) resolves a model name (a known name, a path, a hub name) to local files without network.
//! [`fetch`] downloads, on explicit request and only with the crate feature `hub`. [`verify()`] checks hashes.

#[cfg(feature = "hub")]
mod client;
#[cfg(feature = "hub")]
pub mod fetch;
#[cfg(feature = "hub")]
mod fetch_hub;
#[cfg(feature = "hub")]
mod fetch_packages;
#[cfg(feature = "hub")]
mod fetch_repository;
#[cfg(all(test, feature = "hub"))]
mod hf_hub_tests;
#[cfg(feature = "hub")]
mod hub_error;
mod judges;
mod known;
mod locate;
mod name;
#[cfg(feature = "hub")]
mod repository;
#[cfg(feature = "hub")]
mod selection;
#[cfg(all(test, feature = "hub"))]
pub(crate) mod test_hub;
#[cfg(feature = "hub")]
mod transfer;
mod verify;

#[cfg(feature = "hub")]
pub use client::HubToken;
#[cfg(feature = "hub")]
pub use fetch_repository::HubFetch;
#[cfg(feature = "hub")]
pub use hub_error::HubError;
pub use judges::{JudgeVariant, KnownJudge, MEMORY_RULE, StoredWeights, judges, memory_needed};
pub use known::{
    HubSource, KnownFile, KnownModel, PackageSource, Wheel, known_files, known_model, known_models, nearest_model,
};
pub use locate::{LocateError, LocatedModel, ModelOrigin, SearchPaths, WeightFormat, locate, locate_in};
pub use name::HubName;
#[cfg(feature = "hub")]
pub use repository::RemoteFile;
#[cfg(feature = "hub")]
pub use transfer::ContentHash;
pub use verify::{FileReport, VerifyError, hash_file, verify};

/// Receives the progress of a long transfer or hash. All methods have default implementations.
pub trait TransferProgress {
    /// A message for the user: an unreachable source, a reused file.
    fn notice(&mut self, text: &str) {
        let _ = text;
    }

    /// Starts a step: its description, and its size in bytes if known. Ends the previous step.
    fn begin(&mut self, what: &str, total: Option<u64>) {
        let _ = (what, total);
    }

    /// This many bytes of the step were done before it began, and do not count for its speed.
    fn resume(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// This many more bytes of the step are done.
    fn advance(&mut self, bytes: u64) {
        let _ = bytes;
    }
}

/// Ignores all progress.
pub struct NoProgress;

impl TransferProgress for NoProgress {}
