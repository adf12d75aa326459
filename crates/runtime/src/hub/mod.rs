//! Which models there are, where they lie, how they come here and whether they are what they should be.
//!
//! [`locate`] turns what a user wrote (a known name, a path, a hub name) into files on this machine and never touches
//! the network. [`fetch`] does, only when asked to, and only where the crate is built with the feature `hub`.
//! [`verify()`] hashes what is there.

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
pub use locate::{LocateError, LocatedModel, ModelOrigin, Places, WeightFormat, locate, locate_in};
pub use name::HubName;
#[cfg(feature = "hub")]
pub use repository::RemoteFile;
#[cfg(feature = "hub")]
pub use transfer::ContentHash;
pub use verify::{FileReport, VerifyError, hash_file, verify};

/// What a long transfer or hash tells whoever waits for it. Every method may be left as it is.
pub trait TransferProgress {
    /// A line for the user: a source that could not be reached, a file that is used again.
    fn notice(&mut self, text: &str) {
        let _ = text;
    }

    /// A step begins: `what` it does, and its size in bytes where that is known. Ends the step before.
    fn begin(&mut self, what: &str, total: Option<u64>) {
        let _ = (what, total);
    }

    /// So many bytes of the step were done before it began: they say nothing of how fast it is.
    fn resume(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// So many bytes more of the step are done.
    fn advance(&mut self, bytes: u64) {
        let _ = bytes;
    }
}

/// Waits in silence.
pub struct NoProgress;

impl TransferProgress for NoProgress {}
