//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::StoreError;

/// Replaces the file by `value` as indented JSON. Killed at any instant it leaves the old content or the new, never a part.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|source| StoreError::Json { path: path.to_owned(), source })?;
    bytes.push(b'\n');
    let beside = temporary(path);
    let written = write_through(&beside, &bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The reason that is reported is the failed write, not that its rest could not be cleared away.
        let _ = fs::remove_file(&beside);
    }
    written.map_err(StoreError::io("written", path))?;
    sync_folder(path);
    Ok(())
}

/// The name of the unfinished file: in the same folder, so that renaming is atomic.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".part");
    path.with_file_name(name)
}

fn write_through(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes the renaming itself durable, where folders can be opened (not on Windows). The content is safe without it, so a failure is none.
fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent()
        && let Ok(folder) = File::open(folder)
    {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("summary.json");
        for value in [vec![1; 100], vec![2]] {
            write_json(&path, &value).expect("written");
            let read: Vec<i32> = serde_json::from_slice(&fs::read(&path).expect("there")).expect("whole");
            assert_eq!(read, value);
        }
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_failed_write_keeps_the_old_content() {
        struct Refuses;
        impl Serialize for Refuses {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("no form"))
            }
        }
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("summary.json");
        write_json(&path, &1).expect("written");
        assert!(matches!(write_json(&path, &Refuses), Err(StoreError::Json { .. })));
        assert_eq!(fs::read_to_string(&path).expect("there"), "1\n");
        // A folder cannot be replaced by a file.
        fs::create_dir(folder.path().join("taken")).expect("created");
        let error = write_json(&folder.path().join("taken"), &1).expect_err("a folder").to_string();
        assert!(error.contains("taken could not be written"), "{error}");
        assert!(!folder.path().join(".taken.part").exists());
    }
}
