//! Downloads of arbitrary models from a local test hub.

use std::time::Duration;

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::*;
use crate::hub::fetch::FetchError;
use crate::hub::test_hub::{COMMIT, Faults, TestFile, TestHub};
use crate::hub::{HubToken, ModelOrigin, NoProgress, SearchPaths, WeightFormat, locate_in};
use crate::weights::hex;

const WEIGHTS: &[u8] = b"many bytes of weights, which are large enough to be cut";
const CONFIG: &str = r#"{"model_type": "llama", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
 "num_attention_heads": 1, "max_position_embeddings": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "hidden_act": "silu"}"#;

struct World {
    _root: tempfile::TempDir,
    root: PathBuf,
    fetcher: Fetcher,
    hub: TestHub,
}

fn large(path: &str, content: &[u8]) -> TestFile {
    TestFile {
        path: path.into(),
        content: content.into(),
        sha256: Some(hex(&Sha256::digest(content))),
        oid: "0".repeat(40),
    }
}

fn small(path: &str, content: &[u8]) -> TestFile {
    let oid = hex(&Sha1::new_with_prefix(format!("blob {}\0", content.len())).chain_update(content).finalize());
    TestFile { path: path.into(), content: content.into(), sha256: None, oid }
}

fn quants() -> Vec<TestFile> {
    vec![small("README.md", b"read me"), large("toy-Q4_K_M.gguf", WEIGHTS), large("toy-Q8_0.gguf", b"other weights")]
}

fn folder() -> Vec<TestFile> {
    vec![
        small("README.md", b"read me"),
        small("config.json", CONFIG.as_bytes()),
        small("tokenizer.json", b"{}"),
        large("model.safetensors", WEIGHTS),
        large("pytorch_model.bin", b"a pickle"),
    ]
}

impl World {
    fn new(files: Vec<TestFile>, faults: Faults) -> Self {
        let dir = tempfile::tempdir().expect("temp");
        let root = dir.path().to_owned();
        let hub = TestHub::start(files, faults);
        let places = SearchPaths { models: root.join("models"), hf_cache: root.join("hub") };
        let fetcher = Fetcher {
            places,
            python: "none".into(),
            endpoint: hub.endpoint.clone(),
            back_off: Duration::from_millis(1),
            token: None,
            offline: false,
        };
        Self { root, fetcher, hub, _root: dir }
    }

    fn get(&self, name: &str) -> Result<HubFetch, HubError> {
        let plan = self.fetcher.plan_from_hub(&HubName::parse(name).expect("a name"))?;
        self.fetcher.get_from_hub(&plan, &mut NoProgress)?;
        Ok(plan)
    }

    fn message(&self, name: &str) -> String {
        crate::error_with_hint(&self.get(name).expect_err("an error"))
    }

    fn repo(&self) -> PathBuf {
        self.root.join("hub/models--org--toy")
    }

    fn blobs(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.repo().join("blobs")) else { return Vec::new() };
        entries.map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8")).collect()
    }

    /// Number of requests for file contents that the store answered.
    fn transfers(&self) -> usize {
        self.hub.requests().iter().filter(|line| line.starts_with("store")).count()
    }
}

#[test]
fn a_gguf_is_fetched_by_quantisation_pinned_and_found_offline() {
    let world = World::new(quants(), Faults::default());
    let plan = world.get("org/toy:q4_k_m").expect("fetched");
    assert_eq!(
        (plan.commit.as_str(), plan.bytes(), plan.licence.as_deref()),
        (COMMIT, WEIGHTS.len() as u64, Some("apache-2.0"))
    );
    let located = locate_in(&world.fetcher.places, "org/toy:q4_k_m").expect("found");
    assert_eq!(
        (located.format, located.origin),
        (WeightFormat::Gguf, ModelOrigin::HubCache { revision: COMMIT.into() })
    );
    assert_eq!(fs::read(located.path).expect("there"), WEIGHTS);
    assert_eq!(fs::read_to_string(world.repo().join("refs/main")).expect("pinned"), COMMIT);
    assert_eq!(world.blobs(), [hex(&Sha256::digest(WEIGHTS))], "neither part nor lock is left");
    let asked = world.transfers();
    world.get("org/toy:Q4_K_M").expect("there");
    assert_eq!(world.transfers(), asked, "what is here is not asked for again");
}

#[test]
fn safetensors_come_with_what_they_need_and_nothing_else() {
    let world = World::new(folder(), Faults::default());
    let plan = world.get("org/toy").expect("fetched");
    let located = locate_in(&world.fetcher.places, "org/toy").expect("found");
    assert_eq!((located.format, &located.path), (WeightFormat::Safetensors, &plan.folder));
    let mut names: Vec<_> = fs::read_dir(&plan.folder).expect("there").map(|e| e.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["config.json", "model.safetensors", "tokenizer.json"]);
}

#[test]
fn a_broken_connection_is_tried_again_and_then_resumed_by_the_next_run() {
    let faults = Faults { cut_after: vec![10, 0, 0, 0, 0, 0, 20], ..Faults::default() };
    let world = World::new(quants(), faults);
    let error = world.get("org/toy:Q4_K_M").expect_err("cut off");
    let (message, hint) = (error.to_string(), crate::hint_of(&error));
    assert_eq!(hint, "run probity model get org/toy:Q4_K_M to continue where it stopped");
    assert!(message.contains("10 of 55 bytes downloaded"), "{message}");
    assert!(locate_in(&world.fetcher.places, "org/toy:Q4_K_M").is_err(), "nothing half is found");
    world.get("org/toy:Q4_K_M").expect("resumed");
    let ranges: Vec<String> = world
        .hub
        .requests()
        .iter()
        .filter_map(|line| line.split_once("range ").map(|(_, range)| range.to_owned()))
        .collect();
    assert!(ranges.contains(&"bytes=10-".to_owned()) && ranges.contains(&"bytes=30-".to_owned()), "{ranges:?}");
    assert_eq!(fs::read(world.repo().join(format!("snapshots/{COMMIT}/toy-Q4_K_M.gguf"))).expect("there"), WEIGHTS);
}

#[test]
fn a_server_that_ignores_ranges_is_asked_for_the_whole() {
    let world = World::new(quants(), Faults { cut_after: vec![10], ignores_ranges: true, ..Faults::default() });
    world.get("org/toy:Q4_K_M").expect("fetched");
    assert_eq!(fs::read(world.repo().join(format!("snapshots/{COMMIT}/toy-Q4_K_M.gguf"))).expect("there"), WEIGHTS);
}

#[test]
fn wrong_content_is_removed_and_told_with_both_hashes() {
    let mut files = quants();
    files[1].content = WEIGHTS.to_ascii_uppercase();
    let world = World::new(files, Faults::default());
    let message = world.message("org/toy:Q4_K_M");
    let (right, wrong) = (hex(&Sha256::digest(WEIGHTS)), hex(&Sha256::digest(WEIGHTS.to_ascii_uppercase())));
    assert!(
        message.contains(&format!("expected sha256 {right}")) && message.contains(&format!("found    sha256 {wrong}")),
        "{message}"
    );
    assert!(world.blobs().iter().all(|name| *name == format!("{right}.lock")), "{:?}", world.blobs());
    let mut files = folder();
    files[1].oid = "a".repeat(40);
    assert!(World::new(files, Faults::default()).message("org/toy").contains("expected git-sha1 aaaa"));
}

#[test]
fn a_damaged_blob_is_replaced() {
    let world = World::new(quants(), Faults::default());
    world.get("org/toy:Q4_K_M").expect("fetched");
    let blob = world.repo().join("blobs").join(hex(&Sha256::digest(WEIGHTS)));
    fs::write(&blob, vec![0; WEIGHTS.len()]).expect("damage");
    world.get("org/toy:Q4_K_M").expect("fetched again");
    assert_eq!(fs::read(&blob).expect("there"), WEIGHTS);
}

#[test]
fn the_token_goes_to_the_hub_and_to_nobody_else() {
    let mut world = World::new(quants(), Faults { token: Some("hf_secret".into()), ..Faults::default() });
    let message = world.message("org/toy:Q8_0");
    assert!(message.contains("has no repository `org/toy`") && message.contains("HF_TOKEN=…"), "{message}");
    world.fetcher.token = Some(HubToken::new("hf_secret").expect("usable"));
    world.get("org/toy:Q8_0").expect("fetched");
    let asked = world.hub.requests();
    assert!(asked.iter().any(|line| line.starts_with("hub") && line.ends_with("token")));
    let store: Vec<_> = asked.iter().filter(|line| line.starts_with("store")).collect();
    assert!(!store.is_empty() && store.iter().all(|line| !line.ends_with("token")), "{store:?}");
    assert!(!format!("{:?}", world.fetcher).contains("hf_secret"));
}

#[test]
fn gated_and_absent_things_say_what_to_do() {
    let gated = World::new(quants(), Faults { gated: true, ..Faults::default() }).message("org/toy:Q8_0");
    assert!(gated.contains("`org/toy` is gated") && gated.contains("accept them at http://127.0.0.1"), "{gated}");
    let world = World::new(quants(), Faults::default());
    let repository = world.message("org/toi");
    assert!(repository.contains("has no repository `org/toi`; did you mean `org/toy`?"), "{repository}");
    let revision = world.message("org/toy@mian");
    assert!(revision.contains("no revision `mian`; did you mean `main`?\n  it has main, v1"), "{revision}");
    let file = world.message("org/toy:toy-Q4_K_S.gguf");
    assert!(file.contains("no GGUF file `toy-Q4_K_S.gguf`; did you mean `toy-Q4_K_M.gguf`?"), "{file}");
    let several = world.message("org/toy");
    assert!(several.contains("matches 2 files") && several.contains("model get org/toy:toy-Q4_K_M.gguf"), "{several}");
}

#[test]
fn a_busy_hub_is_asked_again() {
    let world = World::new(quants(), Faults { busy: 2, ..Faults::default() });
    world.get("org/toy:Q8_0").expect("fetched");
    let message = World::new(quants(), Faults { busy: 99, ..Faults::default() }).message("org/toy:Q8_0");
    assert!(message.contains("it answered 503"), "{message}");
}

#[test]
fn what_cannot_be_read_is_told_before_the_weights_come() {
    let mut files = folder();
    files[1] = small("config.json", br#"{"model_type": "mamba"}"#);
    let world = World::new(files, Faults::default());
    let message = world.message("org/toy");
    assert!(message.contains("cannot be used here") && message.contains("mamba"), "{message}");
    assert_eq!(world.transfers(), 0);
    let mut files = folder();
    files[3].path = "model-00001-of-00002.safetensors".into();
    files.push(small("model.safetensors.index.json", br#"{"weight_map": {"a": "model-00002-of-00002.safetensors"}}"#));
    let message = World::new(files, Faults::default()).message("org/toy");
    let why = "its index names `model-00002-of-00002.safetensors`, which is not one of its shards";
    assert!(message.contains(why), "{message}");
}

#[test]
fn a_revision_is_kept_beside_main() {
    let world = World::new(quants(), Faults::default());
    world.get("org/toy@v1:Q8_0").expect("fetched");
    assert_eq!(fs::read_to_string(world.repo().join("refs/v1")).expect("pinned"), COMMIT);
    assert!(locate_in(&world.fetcher.places, "org/toy@v1:Q8_0").is_ok());
    world.get(&format!("org/toy@{COMMIT}:Q4_K_M")).expect("by commit");
    assert!(locate_in(&world.fetcher.places, &format!("org/toy@{COMMIT}:Q4_K_M")).is_ok());
}

#[test]
fn a_plan_fetches_nothing_and_counts_what_is_here() {
    let world = World::new(quants(), Faults { cut_after: vec![10, 0, 0, 0, 0, 0], ..Faults::default() });
    let name = HubName::parse("org/toy:Q4_K_M").expect("name");
    let plan = world.fetcher.plan_from_hub(&name).expect("planned");
    assert_eq!((plan.bytes(), plan.missing(), plan.weight_bytes()), (55, 55, 55));
    assert!(world.transfers() == 0 && !world.repo().exists());
    world.get("org/toy:Q4_K_M").expect_err("broken");
    assert_eq!(world.fetcher.plan_from_hub(&name).expect("planned").missing(), 45);
}

#[test]
fn no_room_is_told_before_anything_comes() {
    let world = World::new(quants(), Faults::default());
    let mut plan = world.fetcher.plan_from_hub(&HubName::parse("org/toy:Q8_0").expect("name")).expect("planned");
    plan.space = Some(5);
    let error = crate::error_with_hint(&world.fetcher.get_from_hub(&plan, &mut NoProgress).expect_err("full"));
    assert!(error.contains("13 bytes needed, 5 available") && error.contains("HF_HUB_CACHE"), "{error}");
    assert_eq!(world.transfers(), 0);
}

#[test]
fn two_fetches_of_one_model_do_not_mix() {
    let world = World::new(quants(), Faults::default());
    let blobs = world.repo().join("blobs");
    fs::create_dir_all(&blobs).expect("folder");
    let lock = blobs.join(hex(&Sha256::digest(b"other weights"))).with_extension("lock");
    let held = Lock::take(lock, "org/toy").expect("first");
    assert!(matches!(world.get("org/toy:Q8_0"), Err(HubError::Here(FetchError::Busy { .. }))));
    drop(held);
    assert!(world.get("org/toy:Q8_0").is_ok());
}

#[test]
fn offline_asks_nobody() {
    let mut world = World::new(quants(), Faults::default());
    world.fetcher.offline = true;
    let message = world.message("org/toy:Q8_0");
    assert!(message.contains("cannot reach the hub") && message.contains("HF_HUB_OFFLINE is set"), "{message}");
    assert_eq!(world.hub.requests(), Vec::<String>::new());
}

#[test]
fn a_path_out_of_the_repository_is_never_fetched() {
    let mut files = folder();
    files.push(large("../outside.gguf", WEIGHTS));
    files.push(large("/outside.gguf", WEIGHTS));
    let world = World::new(files, Faults::default());
    let plan = world.get("org/toy").expect("fetched");
    assert!(plan.files.iter().all(|file| !file.path.contains("outside")));
    assert!(world.message("org/toy:outside.gguf").contains("no GGUF file `outside.gguf`\n  it has none"));
}

#[test]
fn a_part_of_the_full_length_is_checked_and_not_asked_for_again() {
    let world = World::new(quants(), Faults::default());
    let part = world.repo().join("blobs").join(hex(&Sha256::digest(WEIGHTS))).with_extension("part");
    fs::create_dir_all(part.parent().expect("blobs")).expect("folder");
    fs::write(&part, WEIGHTS).expect("part");
    world.get("org/toy:Q4_K_M").expect("fetched");
    assert_eq!(world.transfers(), 0);
    // hf-hub's own download and other tools share the partial file; a wrong one is removed.
    let world = World::new(quants(), Faults::default());
    fs::create_dir_all(world.repo().join("blobs")).expect("folder");
    let part = world.repo().join("blobs").join(hex(&Sha256::digest(WEIGHTS))).with_extension("part");
    fs::write(&part, vec![0; WEIGHTS.len()]).expect("part");
    assert!(world.message("org/toy:Q4_K_M").contains("had the wrong content"));
    assert!(!part.exists());
    world.get("org/toy:Q4_K_M").expect("fetched");
}

#[test]
fn a_renamed_repository_is_followed_with_the_token() {
    let mut world = World::new(quants(), Faults { token: Some("hf_secret".into()), ..Faults::default() });
    world.fetcher.token = HubToken::new("hf_secret");
    assert_eq!(world.get("org/renamed:Q8_0").expect("fetched").commit, COMMIT);
    assert!(locate_in(&world.fetcher.places, "org/renamed:Q8_0").is_ok());
}
