//! Methods with tiny models that think (`scripts/goldens/make_thinking_models.py`).

use serde_json::{Value, json};

use crate::critiques::goes_on;
use crate::harness::{World, lines, root, tiny};

const STYLES: [&str; 3] = ["qwen3", "r1", "harmony"];

fn model(style: &str) -> String {
    root("tests/goldens/thinking").join(style).display().to_string()
}

/// Two samples with two candidates each.
fn data(world: &World) -> String {
    let sample = |number: usize| {
        json!({"id": format!("s{number}"), "context": format!("The river froze in year {number}."), "candidates": [
            {"id": "a", "text": "It froze."}, {"id": "b", "text": "The ferry stopped, and no one walked."}]})
    };
    world.file("d.jsonl", lines(&[sample(1), sample(2)]))
}

fn masses(world: &World, table: &str) -> Vec<f64> {
    world.rows(table).iter().filter_map(|row| row["mass"].as_f64()).collect()
}

#[test]
fn labels_after_a_thought_have_mass_in_all_methods() {
    for style in STYLES {
        let world = World::new();
        let (data, model) = (data(&world), model(style));
        for (method, table) in [("compare", "comparisons"), ("g-eval", "scores"), ("judge", "verdicts")] {
            let attribute: &[&str] = if method == "judge" {
                &["--attribute", "coherence", "--verdict", "label"]
            } else {
                &["--attribute", "coherence"]
            };
            for think in ["auto", "off", "12"] {
                let out = format!("{method}-{think}");
                let arguments =
                    [&[method, "--model", &model, "--data", &data, "--think", think, "--out", &out][..], attribute]
                        .concat();
                world.run(&arguments).exits(0);
                let masses = masses(&world, &format!("{out}/{table}.jsonl"));
                assert!(!masses.is_empty() && masses.iter().all(|mass| *mass > 0.05), "{style} {out}: {masses:?}");
                let signature = world.read(&format!("{out}/summary.json"));
                assert!(signature.contains(&format!("|think:{think}|")), "{style} {out}: {signature}");
            }
        }
    }
}

#[test]
fn a_thought_that_is_not_closed_is_reported_with_what_to_do() {
    let world = World::new();
    let (data, model) = (data(&world), model("qwen3"));
    let arguments = ["compare", "--model", &model, "--data", &data, "--attribute", "coherence", "--out", "run"];
    let open = ["--template-var", "enable_thinking=true"];
    let ran = world.run(&[&arguments[..], &open].concat()).exits(0);
    assert!(masses(&world, "run/comparisons.jsonl").iter().all(|mass| *mass < 0.01));
    for part in ["low label mass", "on the first sample", "--think off"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    // The variable is part of the run.
    world.run(&[&arguments[..], &["--resume"]].concat()).fails_with(&["another"]);
}

#[test]
fn a_run_that_ends_within_a_thought_goes_on_to_the_same_bytes() {
    let world = World::new();
    let (data, model) = (data(&world), model("r1"));
    let arguments =
        ["compare", "--model", &model, "--data", &data, "--attribute", "coherence", "--think", "60", "--thoughts", "3"];
    goes_on(&world, &arguments, &[]);
    // Thoughts are stored and shown, without marks and roles.
    let shown = world.run(&["show", "whole", "s1"]).exits(0).stdout;
    assert!(shown.contains("/thought"), "{shown}");
    // The mean over three thoughts is the result, which the table has too.
    let mean = shown.lines().find(|line| line.contains("mean of 3")).unwrap_or_else(|| panic!("{shown}"));
    let mass = masses(&world, "whole/comparisons.jsonl")[0];
    assert!(mean.contains(&format!("{mass:.4}")), "{mean}");
}

#[test]
fn a_dry_run_plans_whole_thoughts() {
    let world = World::new();
    let (data, model) = (data(&world), model("qwen3"));
    let tokens = |think: &str| {
        let arguments =
            ["compare", "--model", &model, "--data", &data, "--attribute", "coherence", "--think", think, "--dry-run"];
        let told = world.run(&arguments).exits(0).stdout;
        told.lines().find(|line| line.contains("tokens")).expect("a plan").to_owned()
    };
    assert_ne!(tokens("off"), tokens("200"));
}

#[test]
fn options_that_cannot_be_met_are_refused() {
    let world = World::new();
    let (data, plain) = (data(&world), tiny().display().to_string());
    let compare = |model: &str, more: &[&str]| {
        let all = ["compare", "--model", model, "--data", &data, "--attribute", "coherence", "--out", "run"];
        world.run(&[&all[..], more].concat())
    };
    compare(&plain, &["--think", "9"]).fails_with(&["does not think before it answers", "omit --think"]);
    compare(&model("r1"), &["--thoughts", "3"]).fails_with(&["--thoughts requires --think N", "--think 1024"]);
    compare(&model("r1"), &["--think", "often"]).fails_with(&["expected auto, off, or"]);
    compare(&model("r1"), &["--template-var", "messages=1"]).fails_with(&["`messages` cannot be set"]);
    compare(&model("r1"), &["--think", "9", "--format", "text"]).fails_with(&["plain text", "--format chat"]);
    compare(&model("r1"), &["--template-var", "enable_thinking=False"]).fails_with(&["write false"]);
    compare(&model("r1"), &["--template-var", "effort"]).fails_with(&["expected NAME=VALUE"]);
}

#[test]
fn a_variable_that_the_template_lacks_is_reported_with_those_that_it_has() {
    let world = World::new();
    let (data, model) = (data(&world), model("qwen3"));
    let stderr = |variable: &str| {
        let arguments = ["compare", "--model", &model, "--data", &data, "--attribute", "coherence"];
        world.run(&[&arguments[..], &["--template-var", variable]].concat()).exits(0).stderr
    };
    let misspelt = stderr("enable_thinkin=false");
    assert!(misspelt.contains("enable_thinkin: the chat template has no such variable; it has enable_thinking"));
    assert!(!stderr("enable_thinking=false").contains("no such variable"));
}

#[test]
fn raw_queries_and_texts_think_too() {
    let world = World::new();
    let model = model("qwen3");
    let line = json!({"id": "1", "messages": [{"role": "user", "content": "Which text is better, A or B?"}],
        "labels": {"A": ["A"], "B": ["B"]}});
    let labels = world.file("l.jsonl", lines(&[line]));
    let mass = |think: &str| {
        let ran = world.run(&["logprobs", "--model", &model, "--input", &labels, "--think", think]).exits(0);
        serde_json::from_str::<Value>(&ran.stdout).expect("JSON")["mass"].as_f64().expect("a mass")
    };
    assert!(mass("auto") > 0.05 && mass("20") > 0.05);
    let question = "Which text is better, A or B? Answer with one letter.";
    let line = json!({"id": "1", "messages": [{"role": "user", "content": question}], "max_tokens": 40});
    let texts = world.file("t.jsonl", lines(&[line]));
    let text = |think: &str| {
        let ran = world.run(&["generate", "--model", &model, "--input", &texts, "--think", think]).exits(0);
        serde_json::from_str::<Value>(&ran.stdout).expect("JSON")["text"].as_str().expect("a text").to_owned()
    };
    assert!(text("auto").contains("<think>"));
    assert!(!text("off").contains("think>") && !text("20").contains("think>"));
}
