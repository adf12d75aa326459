//! `--dry-run`: the cost of a run.

use serde_json::json;

use crate::harness::{World, lines, method_model, smallest, tiny};
use crate::roster::judging;

/// The number after a name in the output of a dry run.
fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    let number = line[name.len()..].split_whitespace().next().expect("a value");
    number.replace(',', "").parse().unwrap_or_else(|_| panic!("{line}"))
}

#[test]
fn every_method_plans_what_it_then_computes_and_writes_nothing() {
    let world = World::new();
    let candidate = |k: usize| json!({"id": k.to_string(), "text": format!("text {k}"), "scores": {"coherence": k}});
    let texts = json!({"question": "who sat?", "answer": "the cat"});
    let sample = json!({"id": "s", "context": "the cat sat", "texts": texts, "candidates": (0..3).map(candidate).collect::<Vec<_>>()});
    let data = world.file("d.jsonl", lines(&[sample]));
    for (name, _) in judging() {
        let model = method_model(name);
        let base = [&[name, "--model", &model, "--data", &data], &smallest(name)[..]].concat();
        let dry = world.run(&[&base[..], &["--dry-run", "--out", name]].concat()).exits(0);
        // Methods with stages are planned by stage, which the tests of stages cover.
        if dry.stdout.starts_with("stage ") {
            continue;
        }
        assert!(!world.path(name).exists(), "{name} wrote");
        world.run(&[&base[..], &["--dry-run"]].concat()).exits(0);
        world.run(&[&base[..], &["--out", name]].concat()).exits(0);
        let manifest: serde_json::Value =
            serde_json::from_str(&world.read(&format!("{name}/manifest.json"))).expect("JSON");
        let cost = &manifest["cost"];
        assert_eq!(number(&dry.stdout, "questions"), cost["requests"].as_u64().expect("requests"), "{name}");
        let (computed, shared) = (number(&dry.stdout, "tokens"), number(&dry.stdout, "computed"));
        let told = [cost["tokens_unshared"].as_u64(), cost["tokens_computed"].as_u64()].map(|n| n.expect("tokens"));
        if dry.stdout.contains("generated") {
            assert!(told[0] <= computed && told[1] <= shared, "{name}: {told:?}\n{}", dry.stdout);
        } else {
            assert_eq!((told[0], told[1]), (computed, shared), "{name}");
        }
        // If every prompt is too long, nothing was measured.
        assert_eq!(dry.stdout.contains("time extrapolated from"), shared > 0, "{}", dry.stdout);
        assert_eq!(dry.stdout.contains("nothing to compute"), shared == 0, "{}", dry.stdout);
    }
}

#[test]
fn logprobs_plans_too_and_tells_broken_lines() {
    let world = World::new();
    let mut requests = vec![json!({"id": "long", "tokens": vec![5; 300], "continuation": " y"})];
    requests.extend((0..4).map(|k| json!({"id": k.to_string(), "tokens": [7, 8, 9, k], "continuation": "y"})));
    let text = format!("{}\nbroken\n", lines(&requests));
    let (input, model) = (world.file("r.jsonl", text), tiny().display().to_string());
    let ran = world.run(&["logprobs", "--model", &model, "--input", &input, "--out", "a.jsonl", "--dry-run"]).exits(2);
    assert!(ran.stderr.contains("broken line 6 of "), "{}", ran.stderr);
    assert!(!world.path("a.jsonl").exists());
    assert_eq!(["questions", "too long", "computed"].map(|name| number(&ran.stdout, name)), [5, 1, 3 + 4]);
    assert_eq!(number(&ran.stdout, "tokens"), 4 * 4);
}

#[test]
fn a_run_to_go_on_with_has_to_be_named() {
    let world = World::new();
    world.run(&["compare", "--model", "m", "--data", "d", "--attribute", "a", "--resume"]).fails_with(&["--out"]);
}
