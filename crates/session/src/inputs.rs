//! The files that a stage reads besides samples, and their entries in a manifest.

use std::path::{Component, Path, PathBuf};

use probity_data::document_files;
use probity_runtime::weights::{fingerprint, sha256_file};
use serde_json::{Map, Value, json};

/// The manifest's entry for files, by the option that names them.
pub(crate) fn described<'f>(inputs: impl IntoIterator<Item = (&'f str, &'f Path)>) -> Value {
    let mut described: Map<String, Value> = Map::new();
    for (option, path) in inputs {
        // The content of a pipe is gone. A folder has a hash of its documents.
        let sha256 = match () {
            () if path.is_file() => sha256_file(path).ok(),
            () if path.is_dir() => document_files(path).ok().and_then(|files| fingerprint(&files).ok()),
            () => None,
        };
        let files = described.entry(option).or_insert_with(|| json!([]));
        files.as_array_mut().expect("just put there").push(json!({ "path": path, "sha256": sha256 }));
    }
    Value::Object(described)
}

/// Whether the hashes of all data files are known.
pub(crate) fn is_hashed(data: &Value) -> bool {
    let by_option = || data.as_object().into_iter().flat_map(Map::values).filter_map(Value::as_array).flatten();
    let all = || by_option().chain([data]).filter_map(|file| file.get("sha256"));
    all().next().is_some() && all().all(Value::is_string)
}

/// The absolute path without links, `.` and `..`, so that equal locations have equal paths. Components that do not
/// exist yet are taken for ordinary folders.
pub fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.components().fold(PathBuf::new(), |mut place, part| match part {
        Component::CurDir => place,
        // Links before `..` are already resolved, so this is the parent that the system would use.
        Component::ParentDir => {
            place.pop();
            place
        }
        part => {
            place.push(part);
            place.canonicalize().unwrap_or(place)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn two_paths_of_one_place_are_equal_also_where_it_is_not_there_yet() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let at = |path: &str| resolved(&folder.path().join(path));
        std::fs::create_dir_all(folder.path().join("a/b")).expect("made");
        std::os::unix::fs::symlink(folder.path().join("a/b"), folder.path().join("link")).expect("linked");
        for same in ["a/./b", "a/b/../b", "link", "new/../a/b", "link/../b", "new/../link"] {
            assert_eq!(at(same), at("a/b"), "{same}");
        }
        for same in ["link/c/d", "a/b/c/./d", "link/x/../c/d"] {
            assert_eq!(at(same), at("a/b/c/d"), "{same}");
        }
        assert_ne!(at("link/.."), at("."), "above what a link leads to");
    }

    #[test]
    fn data_are_known_where_every_file_has_its_hash() {
        let known = |data: Value| is_hashed(&data);
        assert!(known(json!({"path": "d", "sha256": "a", "samples": 2})));
        assert!(known(json!({"scores": [{"sha256": "a"}, {"sha256": "b"}], "gold": [{"sha256": "c"}]})));
        assert!(!known(json!({"path": "-", "sha256": null})) && !known(json!({"path": "built in"})));
        assert!(!known(json!({"scores": [{"sha256": "a"}, {"sha256": null}]})) && !known(Value::Null));
    }
}
