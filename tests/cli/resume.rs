//! Runs that are killed, refused or gone on with.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{World, lines, tiny};

/// Samples with eight candidates each: 56 prompts a sample.
fn data(world: &World, samples: usize) -> String {
    let sample = |s: usize| {
        let candidate = |k: usize| json!({"id": k.to_string(), "text": format!("text {k} of {s}"), "scores": {"coherence": k}});
        json!({"id": format!("s{s}"), "context": format!("cat {s} sat"), "candidates": (0..8).map(candidate).collect::<Vec<_>>()})
    };
    world.file(&format!("{samples}.jsonl"), lines(&(0..samples).map(sample).collect::<Vec<_>>()))
}

fn arguments<'a>(model: &'a str, data: &'a str, out: &'a str) -> Vec<&'a str> {
    vec!["compare", "--model", model, "--data", data, "--attribute", "coherence", "--out", out]
}

/// What follows from the answers.
const RESULTS: [&str; 3] = ["comparisons.jsonl", "scores.jsonl", "summary.json"];

fn same_results(world: &World, a: &str, b: &str) {
    for name in RESULTS {
        assert!(world.read(&format!("{a}/{name}")) == world.read(&format!("{b}/{name}")), "{name} differs");
    }
}

fn manifest(world: &World, run: &str) -> Value {
    serde_json::from_str(&world.read(&format!("{run}/manifest.json"))).expect("JSON")
}

#[test]
fn fifty_kills_change_no_byte_of_the_results() {
    let world = World::new();
    let (data, model) = (data(&world, 12), tiny().display().to_string());
    let began = Instant::now();
    world.run(&arguments(&model, &data, "whole")).exits(0);
    let whole = began.elapsed();
    let resumed = [arguments(&model, &data, "killed"), vec!["--resume"]].concat();
    // A fixed list of instants, somewhere between the first moment and the time that a whole run takes.
    let (mut random, mut killed) = (7u64, 0);
    for _ in 0..50 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut child =
            world.command(&resumed).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().expect("started");
        std::thread::sleep(Duration::from_secs_f64(whole.as_secs_f64() * (random >> 40) as f64 / f64::from(1 << 24)));
        child.kill().expect("killed, or at its end");
        let status = child.wait().expect("waited for");
        assert!(status.code().is_none_or(|code| code == 0), "{status}");
        killed += usize::from(status.code().is_none());
    }
    assert!(killed >= 25, "{killed} of 50 runs were killed before their end");
    let last = world.run(&resumed).exits(0);
    assert!(last.stderr.contains("answers were there already"), "{}", last.stderr);
    same_results(&world, "whole", "killed");
    assert_eq!(manifest(&world, "killed")["status"], "finished");
}

#[test]
fn a_resumed_run_asks_only_what_is_missing_and_another_run_is_refused() {
    let world = World::new();
    let (data, model) = (data(&world, 2), tiny().display().to_string());
    let run = arguments(&model, &data, "run");
    world.run(&run).exits(0);
    world.run(&run).fails_with(&["holds a run already (finished)", "--resume", "--overwrite"]);
    let cost = |run: &str| manifest(&world, run)["cost"]["tokens_computed"].as_u64().expect("a number");
    let first = cost("run");
    let before: Vec<String> = RESULTS.map(|name| world.read(&format!("run/{name}"))).into();
    world.run(&[&run[..], &["--resume", "--threads", "1"]].concat()).exits(0);
    assert!(first > 0 && cost("run") == 0, "nothing is computed again");
    assert_eq!(RESULTS.map(|name| world.read(&format!("run/{name}"))).to_vec(), before);
    assert_eq!(manifest(&world, "run")["resumed"].as_array().map(Vec::len), Some(1));
    let other = [&run[..], &["--resume", "--seed", "5"]].concat();
    world.run(&other).fails_with(&["holds another run: seeds.seed differs", "--out"]);
}

#[test]
fn runs_share_a_cache_and_changed_data_reuse_what_is_still_the_same() {
    let world = World::new();
    let (small, large, model) = (data(&world, 2), data(&world, 3), tiny().display().to_string());
    let run = |data: &str, out: &str| {
        world.run(&[&arguments(&model, data, out)[..], &["--cache", "kept"]].concat()).exits(0);
        manifest(&world, out)["cost"]["tokens_computed"].as_u64().expect("a number")
    };
    let (two, three) = (run(&small, "two"), run(&large, "three"));
    assert!(0 < three && three < two, "one sample of three is new: {three} of {two}");
    assert_eq!(run(&large, "again"), 0);
    same_results(&world, "three", "again");
    world.run(&arguments(&model, &large, "alone")).exits(0);
    same_results(&world, "three", "alone");
}

#[test]
fn a_folder_that_a_process_is_writing_to_is_refused() {
    let world = World::new();
    let (data, model) = (data(&world, 40), tiny().display().to_string());
    let run = arguments(&model, &data, "run");
    let mut child = world.command(&run).stderr(std::process::Stdio::null()).spawn().expect("started");
    while !world.path("run/manifest.json").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for option in ["--resume", "--overwrite"] {
        world.run(&[&run[..], &[option]].concat()).fails_with(&["another process is writing to", "wait until it has finished"]);
    }
    child.kill().expect("running");
    child.wait().expect("waited for");
    world.run(&[&run[..], &["--resume"]].concat()).exits(0);
}
