//! Behaviour of hf-hub's `download` that is the reason for not using it. A test that fails after an update of hf-hub
//! means that a reason no longer applies.

use std::fs;
use std::path::Path;

use hf_hub::Cache;
use hf_hub::api::sync::{ApiBuilder, ApiError};
use sha2::{Digest, Sha256};

use super::test_hub::{Faults, TestFile, TestHub};
use crate::weights::hex;

const WEIGHTS: &[u8] = b"many bytes of weights, which are large enough to be cut";

fn hash() -> String {
    hex(&Sha256::digest(WEIGHTS))
}

fn download(faults: Faults, cache: &Path) -> (TestHub, Result<Vec<u8>, ApiError>) {
    let oid = "0".repeat(40);
    let file = TestFile { path: "toy.gguf".into(), content: WEIGHTS.into(), sha256: Some(hash()), oid };
    let hub = TestHub::start(vec![file], faults);
    let api = ApiBuilder::from_cache(Cache::new(cache.to_owned()))
        .with_endpoint(hub.endpoint.clone())
        .with_token(Some("hf_secret".to_owned()))
        .with_progress(false)
        .build()
        .expect("built");
    let got = api.model("org/toy".to_owned()).download("toy.gguf").map(|path| fs::read(path).expect("there"));
    (hub, got)
}

#[test]
fn its_download_sends_the_token_to_the_store() {
    let dir = tempfile::tempdir().expect("temp");
    let (hub, got) = download(Faults::default(), dir.path());
    assert_eq!(got.expect("downloaded"), WEIGHTS);
    assert!(
        hub.requests().iter().any(|line| line.starts_with("store") && line.ends_with("token")),
        "{:?}",
        hub.requests()
    );
}

#[test]
fn its_download_writes_to_the_path_that_an_answer_names() {
    let dir = tempfile::tempdir().expect("temp");
    let faults = Faults { etag: Some("../../../outside".to_owned()), ..Faults::default() };
    download(faults, &dir.path().join("cache")).1.expect("downloaded");
    assert_eq!(fs::read(dir.path().join("outside")).expect("outside of the cache"), WEIGHTS);
}

#[test]
fn its_download_appends_the_whole_file_where_a_server_does_not_resume() {
    let dir = tempfile::tempdir().expect("temp");
    let blobs = dir.path().join("models--org--toy/blobs");
    fs::create_dir_all(&blobs).expect("blobs");
    fs::write(blobs.join(hash()).with_extension("part"), &WEIGHTS[..10]).expect("part");
    let (_hub, got) = download(Faults { ignores_ranges: true, ..Faults::default() }, dir.path());
    assert_eq!(got.expect("downloaded"), [&WEIGHTS[..10], WEIGHTS].concat());
}
