//! File permissions of run output.
//!
//! Prompts, texts and answers may be confidential on shared machines, so run folders, answer databases and their files
//! are private to their owner. The variable `PROBITY_UMASK` overrides this, like `umask`: `027` lets the group read,
//! `022` everybody.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Name of the environment variable with the permissions to remove.
#[cfg(unix)]
pub(crate) const UMASK: &str = "PROBITY_UMASK";

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its owner, and others as `PROBITY_UMASK` allows.
    Private,
    /// The default of the process: for a file named by the user.
    Usual,
}

/// Permissions of a private file or folder, a subset of `all`.
#[cfg(unix)]
fn mode(all: u32) -> u32 {
    let mask = std::env::var(UMASK).ok().and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    // The owner can always read and write.
    all & !(mask.unwrap_or(0o077) & 0o077)
}

/// Sets the permissions of a file that these options create.
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

/// On other systems files inherit the permissions of their folder, and user folders are private.
#[cfg(not(unix))]
fn make_private(_: &mut OpenOptions) {}

/// Creates a new file. A link in its place is not followed.
pub(crate) fn create_new(path: &Path, access: Access) -> io::Result<File> {
    restrict(OpenOptions::new().write(true).create_new(true), access).open(path)
}

/// Creates missing folders and parents as private ones.
pub(crate) fn create_folders(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode(0o777));
    builder.create(path)
}
