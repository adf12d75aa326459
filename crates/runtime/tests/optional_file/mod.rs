//! Files that are not part of the repository.

use std::path::PathBuf;

/// The file below the folder in the environment variable. If missing, prints a message and returns `None`.
pub(crate) fn optional(variable: &str, relative: &str) -> Option<PathBuf> {
    let path =
        std::env::var_os(variable).map(|folder| PathBuf::from(folder).join(relative)).filter(|path| path.exists());
    if path.is_none() {
        eprintln!("skipped: {relative} (set {variable} to a folder that holds it)");
    }
    path
}
