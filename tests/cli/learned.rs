//! `learn` and `learned` through the command line: identical output with all settings and after interruptions, and with
//! real weights.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{World, lines, tiny};

/// Samples with four candidates each, whose scores correlate with their length and with another property.
fn data(world: &World, name: &str, samples: std::ops::Range<usize>) -> String {
    let words = ["cat", "sat", "on", "the", "mat", "and", "ran"];
    let sample = |s: usize| {
        let candidate = |k: usize| {
            let count = 2 + (s * 5 + k * 3) % 6;
            let text: Vec<&str> = (0..count).map(|place| words[(place * (k + 2) + s) % words.len()]).collect();
            json!({"id": k.to_string(), "text": text.join(" "), "scores": {"coherence": count * 2 + (s + k) % 3}})
        };
        json!({"id": format!("s{s}"), "context": format!("the cat {s} sat"), "candidates": (0..4).map(candidate).collect::<Vec<_>>()})
    };
    world.file(name, lines(&samples.map(sample).collect::<Vec<_>>()))
}

const LEARNT: [&str; 4] = ["features.jsonl", "predictions.jsonl", "head.jsonl", "summary.json"];
const SCORED: [&str; 3] = ["features.jsonl", "scores.jsonl", "summary.json"];

fn same(world: &World, names: &[&str], a: &str, b: &str) {
    for name in names {
        assert!(world.read(&format!("{a}/{name}")) == world.read(&format!("{b}/{name}")), "{name} of {b} differs");
    }
}

#[test]
fn features_folds_and_head_are_the_same_bits_on_every_setting_and_after_kills() {
    let world = World::new();
    let (model, old) = (tiny().display().to_string(), data(&world, "old.jsonl", 0..16));
    let new = data(&world, "new.jsonl", 16..24);
    let learn = |out: &'static str| -> Vec<String> {
        let fixed =
            ["learn", "--model", &model, "--data", &old, "--attribute", "coherence", "--curve", "20", "--out", out];
        fixed.map(str::to_owned).to_vec()
    };
    let learned = |out: &'static str| -> Vec<String> {
        let fixed = ["learned", "--head", "whole", "--model", &model, "--data", &new, "--out", out];
        fixed.map(str::to_owned).to_vec()
    };
    let run = |arguments: &[String], more: &[&str]| {
        let all: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        world.run(&all).exits(0)
    };
    let began = Instant::now();
    run(&learn("whole"), &[]);
    let longest = began.elapsed();
    run(&learned("scored"), &[]);
    run(&learn("alone"), &["--threads", "1", "--no-sharing", "--side-by-side", "1"]);
    same(&world, &LEARNT, "whole", "alone");
    run(&learned("alone-scored"), &["--threads", "1", "--no-sharing", "--side-by-side", "1"]);
    same(&world, &SCORED, "scored", "alone-scored");
    // Killed several times, and resumed each time.
    let mut kills = 0;
    for part in 1..=9u32 {
        let arguments = learn("killed");
        let all: Vec<&str> = arguments.iter().map(String::as_str).chain(["--resume"]).collect();
        let mut child = world.command(&all).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        std::thread::sleep(longest.mul_f64(f64::from(part) / 10.0).max(Duration::from_millis(20)));
        child.kill().expect("killed, or at its end");
        kills += usize::from(child.wait().expect("waited for").code().is_none());
    }
    run(&learn("killed"), &["--resume"]);
    assert!(kills > 0, "no run was killed before its end");
    same(&world, &LEARNT, "whole", "killed");
    // A stage's table can be provided; the head is still trained.
    run(&learn("given"), &["--from", "features=whole/features.jsonl"]);
    same(&world, &LEARNT[1..3], "whole", "given");
    let summary: Value = serde_json::from_str(&world.read("whole/summary.json")).expect("JSON");
    let found = &summary["cross_validation"]["coherence"];
    assert!(found["spearman_per_context"].is_number() && found["unseen_systems"]["spearman_per_context"].is_number());
}

#[test]
fn what_cannot_be_scored_by_is_told() {
    let world = World::new();
    let (model, old) = (tiny().display().to_string(), data(&world, "old.jsonl", 0..12));
    world.run(&["learned", "--model", &model, "--data", &old]).fails_with(&["--head"]);
    world.run(&["learned", "--head", "nowhere", "--model", &model, "--data", &old]).fails_with(&["nowhere"]);
    world.file("head.jsonl", "{\"attribute\": \"coherence\"}\n");
    world
        .run(&["learned", "--head", "head.jsonl", "--model", &model, "--data", &old])
        .fails_with(&["line 1", "head.jsonl"]);
    let one = data(&world, "one.jsonl", 0..1);
    let told = ["all labels belong to one context", "--attribute coherence"];
    world
        .run(&["learn", "--model", &model, "--data", &one, "--attribute", "coherence", "--out", "o"])
        .fails_with(&told);
}

#[test]
fn the_recipe_in_the_repository_learns_and_scores() {
    let world = World::new();
    let repository = |path: &str| std::fs::read_to_string(crate::harness::root(path)).expect("a file");
    world.file("samples/demo.jsonl", repository("samples/demo.jsonl"));
    let recipe = repository("recipes/learn.toml").replace("smollm2-135m-instruct", &crate::readme::stand_in());
    world.file("recipes/learn.toml", recipe);
    let ran = world.run(&["run", "recipes/learn.toml"]).exits(0);
    assert!(ran.stdout.contains("recipes/runs/scores"), "{}", ran.stdout);
    assert_eq!(world.rows("recipes/runs/scores/scores.jsonl").len(), 20);
    assert!(world.read("recipes/runs/learn.html").contains("20 labels in 5 contexts"));
}

/// With real weights, if downloaded.
#[test]
fn smollm2_learns_from_a_handful_and_scores_others() {
    let name = "smollm2-135m-instruct";
    let world = World::new();
    let own_environment = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_probity"));
        command.args(arguments).current_dir(world.path("")).stdin(Stdio::null());
        command.output().expect("started")
    };
    if !own_environment(&["model", "verify", name]).status.success() {
        eprintln!("skipped: {name} is not here; probity model get {name}");
        return;
    }
    let demo = std::fs::read_to_string(crate::harness::root("samples/demo.jsonl")).expect("a file");
    let samples: Vec<&str> = demo.lines().collect();
    let old = world.file("old.jsonl", samples[..4].join("\n"));
    let new = world.file("new.jsonl", samples[4]);
    let common = ["--model", name, "--precision", "fast"];
    let learn =
        [&["learn", "--data", &old, "--attribute", "quality", "--features", "state", "--out", "l"], &common[..]]
            .concat();
    let ran = own_environment(&learn);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let summary: Value = serde_json::from_str(&world.read("l/summary.json")).expect("JSON");
    let found = &summary["cross_validation"]["quality"];
    assert!(found["spearman_per_context"].as_f64().expect("a figure") > 0.5, "{found:#}");
    let ran = own_environment(&[&["learned", "--head", "l", "--data", &new, "--out", "s"], &common[..]].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let scores = world.rows("s/scores.jsonl");
    let lowest = scores.iter().min_by(|a, b| a["score"].as_f64().partial_cmp(&b["score"].as_f64()).expect("numbers"));
    assert_eq!(lowest.expect("four")["candidate"], "shuffled", "{scores:?}");
}
