//! Who may read what a run writes.
//!
//! Prompts, texts and answers of a lab are not for everybody who has an account on its machine: folders of runs and of
//! answers, and the files in them, are for their owner alone. The variable `PROBITY_UMASK` says otherwise, as `umask`
//! does: `027` lets the group read, `022` everybody.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// The variable that says which permissions are taken away.
#[cfg(unix)]
pub(crate) const UMASK: &str = "PROBITY_UMASK";

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its owner, and whom `PROBITY_UMASK` lets.
    Private,
    /// Whom the process lets: for a file that the user has named.
    Usual,
}

/// Permissions of a private file or folder that may have at most those of `all`.
#[cfg(unix)]
fn mode(all: u32) -> u32 {
    let mask = std::env::var(UMASK).ok().and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    // Its owner can always read and write.
    all & !(mask.unwrap_or(0o077) & 0o077)
}

/// Gives a file that the options make the permissions of that access.
pub(crate) fn restrict(options: &mut OpenOptions, access: Access) -> &mut OpenOptions {
    if access == Access::Private {
        make_private(options);
    }
    options
}

#[cfg(unix)]
fn make_private(options: &mut OpenOptions) {
    std::os::unix::fs::OpenOptionsExt::mode(options, mode(0o666));
}

/// Elsewhere a file has the permissions of its folder, and folders of a user are for that user alone.
#[cfg(not(unix))]
fn make_private(_: &mut OpenOptions) {}

/// A file that was not there. A link in its place is not followed.
pub(crate) fn create_new(path: &Path, access: Access) -> io::Result<File> {
    restrict(OpenOptions::new().write(true).create_new(true), access).open(path)
}

/// The folder, and those above it, where they are not there: private ones.
pub(crate) fn create_folders(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode(0o777));
    builder.create(path)
}
