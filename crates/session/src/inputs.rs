//! The files that a stage reads besides samples, as they stand in a manifest.

use std::path::{Path, PathBuf};

use probity_methods::Input;
use probity_runtime::weights::sha256_file;
use serde_json::{Map, Value, json};

/// What a manifest says of the files that a stage reads besides samples, by the option that leads to them.
pub(crate) fn describe_inputs(inputs: &[Input]) -> Value {
    let mut described: Map<String, Value> = Map::new();
    for Input { option, path } in inputs {
        // What came through a pipe is gone.
        let sha256 = path.is_file().then(|| sha256_file(path).ok()).flatten();
        let files = described.entry(*option).or_insert_with(|| json!([]));
        files.as_array_mut().expect("just put there").push(json!({ "path": path, "sha256": sha256 }));
    }
    Value::Object(described)
}

/// Whether the content of all files that data are made of is known.
pub(crate) fn is_hashed(data: &Value) -> bool {
    let by_option = || data.as_object().into_iter().flat_map(Map::values).filter_map(Value::as_array).flatten();
    let all = || by_option().chain([data]).filter_map(|file| file.get("sha256"));
    all().next().is_some() && all().all(Value::is_string)
}

/// The path from the root; as it is where the system does not say.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_known_where_every_file_has_its_hash() {
        let known = |data: Value| is_hashed(&data);
        assert!(known(json!({"path": "d", "sha256": "a", "samples": 2})));
        assert!(known(json!({"scores": [{"sha256": "a"}, {"sha256": "b"}], "gold": [{"sha256": "c"}]})));
        assert!(!known(json!({"path": "-", "sha256": null})) && !known(json!({"path": "built in"})));
        assert!(!known(json!({"scores": [{"sha256": "a"}, {"sha256": null}]})) && !known(Value::Null));
    }
}
