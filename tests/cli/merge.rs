//! Merged shards are byte-identical to one run.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{World, lines, method_model, smallest, tiny};
use crate::roster::judging;

/// Seven samples with scores, references and texts, so that shards differ in size.
fn data(world: &World) -> String {
    let candidate = |k: usize| json!({"id": format!("c{k}"), "text": format!("text {k}"), "scores": {"coherence": k}});
    let sample = |s: usize| {
        json!({"id": format!("s{s}"), "context": format!("context {s}"), "references": [format!("text {s}")],
            "texts": {"question": format!("q {s}"), "answer": "a"},
            "candidates": (0..3).map(candidate).collect::<Vec<_>>()})
    };
    world.file("data.jsonl", lines(&(0..7).map(sample).collect::<Vec<_>>()))
}

fn files(world: &World, folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(world.path(folder)).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    // Encodings are a cache and do not affect results.
    names.filter(|name| !name.starts_with('.') && !name.starts_with("encodings")).collect()
}

/// Asserts that two folders hold the same run.
fn same(world: &World, whole: &str, merged: &str) {
    assert_eq!(files(world, whole), files(world, merged));
    for name in files(world, whole) {
        match name.as_str() {
            // The manifest has the checksum of its content.
            "answers.sqlite" => {}
            "manifest.json" => {
                let said = |folder: &str| -> Value {
                    let mut manifest: Value =
                        serde_json::from_str(&world.read(&format!("{folder}/{name}"))).expect("JSON");
                    for free in ["cache_budget", "threads"] {
                        manifest["arguments_in_force"]["model"][free].take();
                    }
                    [
                        "status", "command", "arguments_in_force", "versions", "model", "other_models", "seeds",
                        "files", "answers",
                    ]
                    .into_iter()
                    .map(|part| (part.to_owned(), manifest[part].take()))
                    .collect()
                };
                assert_eq!(said(whole), said(merged));
            }
            _ => {
                let [a, b] = [whole, merged].map(|folder| world.read(&format!("{folder}/{name}")));
                assert_eq!(a, b, "{name} of {merged}");
            }
        }
    }
}

/// Runs the command as a whole and in three shards, and merges those.
fn parted(world: &World, name: &str, arguments: &[&str], stopped: bool) {
    let out = |part: &str| format!("{name}-{part}");
    let run = |more: &[&str]| world.run(&[arguments, more].concat()).exits(0);
    run(&["--out", &out("whole")]);
    for number in 1..=3 {
        run(&["--shard", &format!("{number}/3"), "--out", &out(&number.to_string()), "--threads", "1"]);
    }
    let ran = world.run(&["merge", &out("2"), &out("3"), &out("1"), "--out", &out("merged")]).exits(0);
    // Whether prompts fit depends on the machine, so these are queried again.
    let is_loaded = ran.stderr.contains("loaded in") && !ran.stderr.contains("too_long");
    assert!(!is_loaded, "no model is loaded for what was answered:\n{}", ran.stderr);
    same(world, &out("whole"), &out("merged"));
    let state = if stopped { "stopped" } else { "finished" };
    let [checked, one] = ["merged", "whole"].map(|part| world.run(&["check", &out(part)]).exits(0).stdout);
    assert!(checked.contains("unchanged") && checked.contains(state), "{checked}");
    assert_eq!(checked.replace("merged", "whole"), one, "as many answers");
}

#[test]
fn parts_of_every_method_become_the_bytes_of_one_run() {
    let world = World::new();
    let (tiny, data) = (tiny().display().to_string(), data(&world));
    for (method, _) in judging() {
        let model = method_model(method);
        let arguments = [&[method, "--model", &model, "--data", &data], &smallest(method)[..]].concat();
        parted(&world, method, &arguments, false);
    }
    parted(&world, "rouge", &["metrics", "--metric", "rouge-l,bleu", "--data", &data], false);
    let learn = ["learn", "--model", &tiny, "--data", &data, "--attribute", "coherence", "--until", "features"];
    parted(&world, "learn", &learn, true);
    // A merged run that stopped after a stage can be resumed.
    for folder in ["learn-whole", "learn-merged"] {
        world.run(&[&learn[..learn.len() - 2], &["--out", folder, "--resume"]].concat()).exits(0);
    }
    same(&world, "learn-whole", "learn-merged");
}

#[test]
fn a_recipe_is_parted_run_by_run_and_goes_on_with_what_was_merged() {
    let world = World::new();
    data(&world);
    let recipe = format!(
        "[defaults]\nmodel = {}\ndata = \"data.jsonl\"\nattribute = \"coherence\"\nout = \
         \"{{run}}\"\n\n[run.pairs]\nmethod \
         = \"compare\"\n\n[run.ratings]\nmethod = \"g-eval\"\n\n[run.held]\nmethod = \"meta\"\nscores = \
         [\"ratings\"]\ngold = \"data.jsonl\"\n",
        json!(tiny())
    );
    world.file("recipe.toml", recipe);
    for number in 1..=2 {
        world.run(&["run", "recipe.toml", "--shard", &format!("{number}/2")]).exits(0);
    }
    assert!(!world.path("held").exists() && !world.path("held.1-of-2").exists());
    for run in ["pairs", "ratings"] {
        let parts = [1, 2].map(|number| format!("{run}.{number}-of-2"));
        world.run(&["merge", &parts[0], &parts[1], "--out", run]).exits(0);
    }
    let ran = world.run(&["run", "recipe.toml", "--resume"]).exits(0);
    assert!(!ran.stderr.contains("loaded in"), "{}", ran.stderr);
    assert!(world.path("held/summary.json").exists());
    world.run(&["run", "recipe.toml", "--overwrite"]).exits(0);
    world.run(&["merge", "pairs.1-of-2", "pairs.2-of-2", "--out", "merged"]).exits(0);
    same(&world, "pairs", "merged");
}

#[test]
fn what_is_no_part_of_one_run_is_named() {
    let world = World::new();
    let (model, data) = (tiny().display().to_string(), data(&world));
    let run = |more: &[&str]| {
        let fixed = ["g-eval", "--model", &model, "--data", &data, "--attribute", "coherence", "--no-gold"];
        world.run(&[&fixed[..], more].concat())
    };
    run(&["--shard", "4/3", "--out", "x"]).fails_with(&["--shard", "I/N"]);
    run(&["--shard", "8/8", "--out", "x"]).fails_with(&["8/8", "7"]);
    run(&["--out", "whole"]).exits(0);
    run(&["--shard", "1/2", "--out", "a"]).exits(0);
    run(&["--shard", "2/2", "--out", "b"]).exits(0);
    run(&["--shard", "2/2", "--scale", "1..3", "--out", "other"]).exits(0);
    run(&["--shard", "2/3", "--out", "third"]).exits(0);
    run(&["--shard", "2/2", "--limit", "5", "--out", "shorter"]).exits(0);
    run(&["--shard", "2/2", "--no-store", "--out", "without"]).exits(0);
    let merge = |parts: &[&str]| world.run(&[&["merge"], parts, &["--out", "merged"]].concat());
    merge(&["a"]).fails_with(&["2/2", "missing"]);
    merge(&["a", "b", "a"]).fails_with(&["is also in"]);
    merge(&["a", "whole"]).fails_with(&["whole", "not a part"]);
    merge(&["a", "other"]).fails_with(&["other", "scale"]);
    merge(&["a", "third"]).fails_with(&["third", "2/3"]);
    merge(&["a", "shorter"]).fails_with(&["shorter", "limit"]);
    merge(&["a", "without"]).fails_with(&["without", "no stored answers"]);
    merge(&["a", "nowhere"]).fails_with(&["nowhere"]);
    // A mistyped shard does not replace another.
    run(&["--shard", "2/2", "--out", "a", "--resume"]).fails_with(&["shard", "1/2", "2/2"]);
    for into in ["a", "b/below"] {
        world.run(&["merge", "a", "b", "--out", into, "--overwrite"]).fails_with(&["is one of the parts"]);
    }
    std::fs::write(world.path("b/scores.jsonl"), "{}\n").expect("written");
    merge(&["a", "b"]).fails_with(&["changed or damaged", "scores.jsonl"]);
    assert!(!world.path("merged").exists(), "nothing was written");
}

#[test]
fn what_the_parts_were_made_with_must_be_what_is_there() {
    let world = World::new();
    let (model, data) = (world.copy_of_tiny(), data(&world));
    let list = world.file("list.txt", "[coherence]\nquestions = [\"Good?\"]\n");
    let model_path = model.display().to_string();
    let asked = ["checklist", "--model", &model_path, "--data", &data, "--attribute", "coherence", "--no-gold"];
    let part = |number: &str, list: &str| {
        world.run(
            &[&asked[..], &["--checklist", list, "--shard", number, "--out", &format!("p{}", &number[..1])]].concat(),
        )
    };
    part("1/2", &list).exits(0);
    part("2/2", &list).exits(0);
    let merge = || world.run(&["merge", "p1", "p2", "--out", "whole", "--overwrite"]);
    merge().exits(0);
    // A file of an option changed after the shards ran, then between two shards.
    world.file("list.txt", "[coherence]\nquestions = [\"Better?\"]\n");
    merge().fails_with(&["--checklist"]);
    world.run(&[&asked[..], &["--checklist", &list, "--shard", "2/2", "--out", "p2", "--overwrite"]].concat()).exits(0);
    merge().fails_with(&["p2", "--checklist"]);
    world.file("list.txt", "[coherence]\nquestions = [\"Good?\"]\n");
    world.run(&[&asked[..], &["--checklist", &list, "--shard", "2/2", "--out", "p2", "--overwrite"]].concat()).exits(0);
    merge().exits(0);
    // Another model with the same name.
    let shard = model.join("model-00001-of-00002.safetensors");
    let mut bytes = std::fs::read(&shard).expect("weights");
    *bytes.last_mut().expect("some") ^= 1;
    std::fs::write(&shard, bytes).expect("written");
    merge().fails_with(&["fingerprint"]);
}

#[test]
fn parts_of_samples_from_a_pipe_are_held_together_by_the_samples() {
    let world = World::new();
    let model = tiny().display().to_string();
    data(&world);
    let text = world.read("data.jsonl");
    let part = |number: &str, text: &str| {
        let out = format!("p{}", &number[..1]);
        let asked = ["gpt-score", "--model", &model, "--data", "-", "--attribute", "coherence"];
        let arguments = [&asked[..], &["--shard", number, "--out", &out, "--overwrite"]].concat();
        let mut child = world.command(&arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
        assert!(child.wait().expect("ended").success());
    };
    part("1/2", &text);
    part("2/2", &text);
    world.run(&["merge", "p1", "p2", "--out", "whole"]).exits(0);
    part("2/2", &text.replace("context 3", "context three"));
    world.run(&["merge", "p1", "p2", "--out", "other"]).fails_with(&["p2", "other samples"]);
}
