//! Valid and invalid safetensors files and shard indexes.

mod error_text;

use std::path::{Path, PathBuf};

use error_text::error_text;
use probity_kernels::WeightType;
use probity_models::WeightSource as _;
use probity_runtime::weights::{SafetensorsFiles, ShardIndex, WeightsError};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// A file with this header and data; `pad` bytes of white space shift the start of the data.
fn file(header: &Json, data: &[u8], pad: usize) -> Vec<u8> {
    let header = format!("{header}{}", " ".repeat(pad));
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

fn tensor(dtype: &str, shape: &[usize], start: usize, end: usize) -> Json {
    json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]})
}

fn open(bytes: Vec<u8>) -> Result<SafetensorsFiles, WeightsError> {
    SafetensorsFiles::from_bytes(Path::new("demo.safetensors"), bytes)
}

fn refused(bytes: Vec<u8>, words: &[&str]) {
    let error = error_text(&open(bytes).err().expect("refused"));
    assert!(
        error.contains("demo.safetensors") && words.iter().all(|word| error.contains(word)),
        "expected {words:?} in {error}"
    );
}

#[test]
fn tensors_are_read_at_any_alignment() {
    for pad in 0..8 {
        let data: Vec<u8> = (0..12).collect();
        let files =
            open(file(&json!({"a": tensor("BF16", &[1, 2], 0, 4), "b": tensor("F32", &[2], 4, 12)}), &data, pad))
                .expect("valid");
        let b = files.tensor("b").expect("there");
        assert_eq!((b.shape, b.weight_type, &b.bytes[..]), (vec![2], WeightType::F32, &data[4..]));
        assert_eq!(files.names(), ["a", "b"]);
    }
}

#[test]
fn unsupported_types_and_missing_tensors_are_named() {
    let files = open(file(&json!({"model.norm.weight": tensor("I64", &[1], 0, 8)}), &[0; 8], 0)).expect("valid");
    let error = files.tensor("model.norm.weight").err().expect("unsupported").to_string();
    assert!(error.contains("I64") && error.contains("BF16"), "{error}");
    let error = files.tensor("model.norm.weights").err().expect("missing").to_string();
    assert!(error.contains("`model.norm.weight`") && error.contains("1 tensors"), "{error}");
}

#[test]
fn headers_that_lie_are_refused() {
    let good = json!({"a": tensor("F32", &[2], 0, 8)});
    refused(vec![1, 2, 3], &["3 bytes"]);
    refused([(1u64 << 40).to_le_bytes().as_slice(), b"{}"].concat(), &["header"]);
    refused([50u64.to_le_bytes().as_slice(), b"{}"].concat(), &["longer than the file"]);
    refused(file(&good, &[0; 7], 0), &["do not end where the file", "probity model verify"]);
    refused(file(&good, &[0; 9], 0), &["do not end where the file"]);
    refused(file(&json!({"a": tensor("F32", &[1 << 40, 1 << 40], 0, 8)}), &[0; 8], 0), &["header"]);
    refused(file(&json!({"a": tensor("F32", &[2], 4, 12)}), &[0; 12], 0), &["header"]);
    refused(file(&json!({"a": tensor("F99", &[2], 0, 8)}), &[0; 8], 0), &["header"]);
    refused(file(&json!([1]), &[], 0), &["header"]);
}

/// A folder with an index and shards.
fn folder(weight_map: &Json, shards: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("temporary folder");
    let index = dir.path().join("model.safetensors.index.json");
    std::fs::write(&index, json!({"metadata": {"total_size": 1}, "weight_map": weight_map}).to_string())
        .expect("written");
    for (name, bytes) in shards {
        std::fs::write(dir.path().join(name), bytes).expect("written");
    }
    (dir, index)
}

fn shard(name: &str) -> Vec<u8> {
    file(&json!({name: tensor("F32", &[1], 0, 4)}), &[0; 4], 0)
}

#[test]
fn shards_are_read_through_their_index_by_folder_or_by_index() {
    let (dir, index) = folder(
        &json!({"a": "1.safetensors", "b": "2.safetensors"}),
        &[("1.safetensors", shard("a")), ("2.safetensors", shard("b"))],
    );
    for path in [dir.path(), &index] {
        let files = SafetensorsFiles::open(path).expect("valid");
        assert_eq!(files.names(), ["a", "b"]);
        assert_eq!(files.paths().len(), 3);
    }
}

#[test]
fn shards_that_do_not_fit_their_index_are_refused() {
    let refused = |weight_map: Json, shards: &[(&str, Vec<u8>)], words: &[&str]| {
        let (dir, _) = folder(&weight_map, shards);
        let error = SafetensorsFiles::open(dir.path()).err().expect("refused").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "expected {words:?} in {error}");
    };
    let a = || ("1.safetensors", shard("a"));
    refused(json!({"a": "1.safetensors", "b": "2.safetensors"}), &[a()], &["2.safetensors", "missing", "1 tensors"]);
    refused(json!({"a": "1.safetensors", "b": "1.safetensors"}), &[a()], &["`b`", "in no shard"]);
    let both = [
        a(),
        ("2.safetensors", file(&json!({"a": tensor("F32", &[1], 0, 4), "b": tensor("F32", &[1], 4, 8)}), &[0; 8], 0)),
    ];
    refused(json!({"a": "1.safetensors", "b": "2.safetensors"}), &both, &["`a`", "1.safetensors", "2.safetensors"]);
    // In a single file, the architecture would reject it as unused.
    let more =
        [("1.safetensors", file(&json!({"a": tensor("F32", &[1], 0, 4), "q": tensor("F32", &[1], 4, 8)}), &[0; 8], 0))];
    refused(json!({"a": "1.safetensors"}), &more, &["weight_map", "`q`", "1.safetensors", "index.json"]);
    for escape in ["../1.safetensors", "/etc/passwd", "sub/1.safetensors", "..", ".", "", "c:\\x", "..\\x"] {
        refused(json!({"a": escape}), &[a()], &["plain file name"]);
    }
    refused(json!({}), &[], &["no tensor"]);
    refused(json!({"a": 7}), &[], &["index"]);
    let empty = tempfile::tempdir().expect("temporary folder");
    let error = SafetensorsFiles::open(empty.path()).err().expect("nothing there").to_string();
    assert!(error.contains("model.safetensors"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5), cut in any::<prop::sample::Index>()) {
        let mut bytes = file(&json!({"a": tensor("F32", &[2], 0, 8), "b": tensor("F16", &[2, 2], 8, 16)}), &[0; 16], 3);
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 16);
        if let Ok(files) = open(bytes) {
            for name in files.names() {
                let _ = files.tensor(&name);
            }
        }
    }

    #[test]
    fn any_text_is_an_index_or_an_error(text in "\\PC{0,80}") {
        let _ = ShardIndex::parse(Path::new("index.json"), text.as_bytes());
        let _ = ShardIndex::parse(Path::new("index.json"), json!({"weight_map": {"a": text}}).to_string().as_bytes());
    }
}
