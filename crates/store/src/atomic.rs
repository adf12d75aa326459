//! Atomic file writes.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::StoreError;
use crate::access::{Access, create_new};

/// Replaces the content of a file by the output of `write`, atomically: a crash or failure leaves the old content or
/// the new. Devices and pipes are written to directly.
pub fn write_whole<E: From<StoreError>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    write_whole_as(path, Access::Usual, write)
}

/// [`write_whole`] with explicit permissions.
pub(crate) fn write_whole_as<E: From<StoreError>>(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let cannot = || StoreError::io("written", path);
    let fill = |file: &File| -> Result<(), E> {
        let mut writer = BufWriter::new(file);
        write(&mut writer)?;
        writer.flush().map_err(cannot())?;
        Ok(())
    };
    // Renaming would replace a device or a pipe by a file.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return fill(&fs::OpenOptions::new().write(true).open(path).map_err(cannot())?);
    }
    let beside = temporary(path);
    // Remove the remains of a crash. A link in this place is removed, not followed.
    let remove =
        fs::remove_file(&beside).or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) });
    let file = remove.and_then(|()| create_new(&beside, access)).map_err(cannot())?;
    // In this order: a name that reaches the disk before its content would be an empty file after a power failure.
    let finish = || file.sync_all().and_then(|()| fs::rename(&beside, path)).map_err(cannot());
    let written = fill(&file).and_then(|()| Ok(finish()?));
    if written.is_err() {
        // Report the failed write, not a failed clean-up.
        let _ = fs::remove_file(&beside);
    } else {
        sync_folder(path);
    }
    written
}

/// [`write_whole`] of `value` as indented JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let mut bytes =
        serde_json::to_vec_pretty(value).map_err(|source| StoreError::Json { path: path.to_owned(), source })?;
    bytes.push(b'\n');
    write_whole_as(path, Access::Private, |writer| writer.write_all(&bytes).map_err(StoreError::io("written", path)))
}

/// Overwrites a file in place if the content fits: a last resort on a full disk. Otherwise returns the original error.
pub(crate) fn overwrite(path: &Path, bytes: &[u8], refused: StoreError) -> Result<(), StoreError> {
    let fits = |file: &File| file.metadata().is_ok_and(|found| found.len() >= bytes.len() as u64);
    let Some(mut file) = fs::OpenOptions::new().write(true).open(path).ok().filter(fits) else { return Err(refused) };
    file.write_all(bytes).and_then(|()| file.set_len(bytes.len() as u64)).map_err(StoreError::io("written", path))
}

/// Name of the temporary file: in the same folder, so that renaming is atomic.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".part");
    path.with_file_name(name)
}

/// Makes the renaming durable, where directories can be opened (not on Windows). The content is safe without it, so
/// errors are ignored.
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
    fn the_last_resort_takes_the_old_file_s_room_or_leaves_it_alone() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("manifest.json");
        let refused = || StoreError::io("written", &path)(std::io::ErrorKind::StorageFull.into());
        write_json(&path, &serde_json::json!({"status": "running", "files": ["a", "b"]})).expect("written");
        overwrite(&path, b"{\"status\":\"failed\"}\n", refused()).expect("there is room");
        assert_eq!(fs::read_to_string(&path).expect("there"), "{\"status\":\"failed\"}\n");
        let error = overwrite(&path, &[b'x'; 100], refused()).expect_err("no room");
        assert!(matches!(error, StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull));
        assert_eq!(fs::read_to_string(&path).expect("there"), "{\"status\":\"failed\"}\n");
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
        // A file cannot replace a folder.
        fs::create_dir(folder.path().join("taken")).expect("created");
        let error = write_json(&folder.path().join("taken"), &1).expect_err("a folder").to_string();
        assert!(error.contains("taken could not be written"), "{error}");
        assert!(!folder.path().join(".taken.part").exists());
    }
}
