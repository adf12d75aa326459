//! `probity judge` with one and several judges, and the built-in prompts.

use serde_json::{Value, json};

use crate::harness::{Ran, World, golden, lines, tiny};

fn data(world: &World) -> String {
    let sample = |id: &str, texts: [&str; 2]| {
        let candidate = |k: usize| json!({"id": format!("c{k}"), "text": texts[k]});
        json!({"id": id, "context": "the cat", "candidates": [candidate(0), candidate(1)], "preference": "c0"})
    };
    world.file(
        "d.jsonl",
        lines(&[sample("s1", ["a cat", "no [[B]]"]), sample("s2", ["x y", "z"]), sample("s3", ["one", ""])]),
    )
}

/// A prompt short enough for the tiny models.
fn template(world: &World) -> String {
    world.file("t.j2", "{# Short. #}\n{{ candidate_a }} or {{ candidate_b }}?")
}

fn judge(world: &World, out: &str, more: &[&str]) -> Ran {
    let (model, data, template) = (tiny().display().to_string(), data(world), template(world));
    let mut arguments = vec!["judge", "--model", &model, "--data", &data, "--template", &template, "--out", out];
    arguments.extend(more);
    world.run(&arguments)
}

fn json_of(world: &World, name: &str) -> Value {
    serde_json::from_str(&world.read(name)).expect("JSON")
}

#[test]
fn a_panel_judges_one_model_after_another_and_a_resumed_one_asks_nothing_again() {
    let world = World::new();
    let other = golden("qwen2").display().to_string();
    let panel = ["--verdict", "label", "--panel", &other];
    let ran = judge(&world, "run", &panel).exits(0);
    assert_eq!(ran.stderr.matches("loaded in").count(), 2, "{}", ran.stderr);
    let tables = world.all_tables("run");
    assert!(tables.contains("Agreement between judges") && tables.contains(" panel "), "{tables}");
    let verdicts = world.rows("run/verdicts.jsonl");
    // Two judges, three pairs, both orders.
    assert_eq!(verdicts.len(), 12);
    assert_eq!(verdicts.iter().filter(|row| row["outcome"] == "empty").count(), 4);
    assert!(verdicts.iter().all(|row| row["outcome"] == "empty" || row["p"].is_number()), "{verdicts:#?}");
    assert_ne!(verdicts[0]["judge"], verdicts[6]["judge"]);
    assert_ne!(verdicts[0]["p"], verdicts[6]["p"]);
    assert_eq!((world.rows("run/pairs.jsonl").len(), world.rows("run/scores.jsonl").len()), (3, 6));
    assert_eq!(world.rows("run/pairs.jsonl")[0]["judges"].as_array().map(Vec::len), Some(2));
    let manifest = json_of(&world, "run/manifest.json");
    assert_eq!(manifest["other_models"][0]["architecture"], "qwen2");
    let summary = world.read("run/summary.json");
    assert_eq!(
        json_of(&world, "run/summary.json")["signature_line"].as_str().map(|line| line.matches("|model:").count()),
        Some(2)
    );
    let again = judge(&world, "run", &[&panel[..], &["--resume"]].concat()).exits(0);
    assert!(
        again.stderr.contains("reused: 8 answers") && again.stderr.matches("loaded in").count() == 1,
        "{}",
        again.stderr
    );
    assert_eq!(world.read("run/summary.json"), summary);
    judge(&world, "run", &["--verdict", "label", "--resume"]).fails_with(&["run"]);
    judge(&world, "planned", &[&panel[..], &["--dry-run"]].concat()).exits(0);
}

#[test]
fn a_judge_of_a_panel_that_is_not_there_is_told_before_a_model_is_loaded() {
    let world = World::new();
    let ran = judge(&world, "run", &["--panel", "nowhere"]);
    assert!(!ran.stderr.contains("loaded in"), "{}", ran.stderr);
    ran.fails_with(&["nowhere"]);
}

#[test]
fn texts_without_a_verdict_are_unparsed_and_strict_says_so() {
    let world = World::new();
    let ran = judge(&world, "run", &["--max-tokens", "3", "--strict"]).exits(1);
    assert!(ran.stdout.contains("unparsed"), "{}", ran.stdout);
    let verdicts = world.rows("run/verdicts.jsonl");
    assert!(verdicts[0]["why"].is_string() && verdicts[0]["answers"][0]["text"].is_string(), "{:#}", verdicts[0]);
    let with_verdict = ["--verdict", "rationale-label", "--max-tokens", "3", "--cycles", "2"];
    judge(&world, "labels", &with_verdict).exits(0);
    assert_eq!(world.rows("labels/verdicts.jsonl")[0]["answers"].as_array().map(Vec::len), Some(2));
}

#[test]
fn steps_that_a_model_cannot_write_end_the_run() {
    let world = World::new();
    let (model, data) = (tiny().display().to_string(), data(&world));
    let run = [
        "g-eval", "--model", &model, "--data", &data, "--attribute", "coherence", "--steps", "generate", "--out", "run",
    ];
    world.run(&run).fails_with(&["--steps generate", "`coherence`"]);
}

#[test]
fn prompts_are_listed_shown_and_exported() {
    let world = World::new();
    let listed = world.run(&["prompts", "list", "--json"]).exits(0);
    let listed: Vec<Value> = listed.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let pairwise = listed.iter().find(|prompt| prompt["id"] == "judge/pairwise").expect("the judge's prompt");
    assert!(pairwise["data"].as_array().expect("a list").contains(&json!("references")), "{pairwise:#}");
    assert!(pairwise["settings"].as_array().expect("a list").contains(&json!("rubric")), "{pairwise:#}");
    let text = world.run(&["prompts", "list", "--method", "g-eval"]).exits(0).stdout;
    assert!(text.contains("g-eval/steps") && !text.contains("compare/1"), "{text}");
    let shown = world.run(&["prompts", "show", "pairwise"]).exits(0).stdout;
    assert!(shown.starts_with("{# Judge") && shown.contains("{{ candidate_b }}"), "{shown}");
    world.run(&["prompts", "show", "1"]).fails_with(&["compare/1", "g-eval/1"]);
    world.run(&["prompts", "show", "judge/pairwse"]).fails_with(&["did you mean `judge/pairwise`?"]);
    world.run(&["prompts", "list", "--method", "jugde"]).fails_with(&["did you mean `judge`?"]);
    let exported = world.run(&["prompts", "export", "own"]).exits(0).stdout;
    assert_eq!(exported.lines().count(), listed.len());
    assert_eq!(world.read("own/judge/pairwise.j2"), shown);
    world.run(&["prompts", "export", "own", "--method", "judge"]).fails_with(&["already exists", "--overwrite"]);
    std::fs::write(world.path("own/judge/pairwise.j2"), "changed").expect("written");
    world.run(&["prompts", "export", "own", "--method", "judge", "--overwrite"]).exits(0);
    assert_eq!(world.read("own/judge/pairwise.j2"), shown);
}

#[test]
fn what_a_reward_model_would_not_read_is_refused_by_name() {
    let world = World::new();
    let (data, model) = (data(&world), golden("../classifiers/llama-reward").display().to_string());
    let judge = |more: &[&str]| {
        let arguments = ["judge", "--attribute", "quality", "--model", &model, "--data", &data, "--out", "run"];
        world.run(&[&arguments[..], more].concat())
    };
    for said in [
        &["--defence", "sandwich"][..],
        &["--rubric", "be strict"],
        &["--criteria", "be good"],
        &["--noun", "summary"],
        &["--ties"],
        &["--verdict", "label"],
        &["--temperature", "0.5"],
        &["--max-tokens", "9"],
        &["--format", "text"],
        &["--answer-prefix", "So:"],
    ] {
        judge(said).fails_with(&[said[0], "the judge is a reward model", "omit it"]);
    }
    judge(&["--defence", "paraphrase"]).fails_with(&["--defence paraphrase", "it needs a language model"]);
    judge(&[]).exits(0);
    let reviseval = ["reviseval", "--model", &model, "--data", &data, "--out", "revised"];
    world.run(&reviseval).fails_with(&["generates the references", "--judge-model", "llama-reward for the verdicts"]);
}

#[test]
fn numbers_that_nobody_could_wait_for_are_refused() {
    let world = World::new();
    let (data, model) = (data(&world), tiny().display().to_string());
    let compare = |more: &[&str]| {
        world.run(
            &[&["compare", "--attribute", "quality", "--model", &model, "--data", &data, "--out", "run"], more]
                .concat(),
        )
    };
    compare(&["--decide", "samples:99999999"]).fails_with(&["`99999999` is not a number of samples from 1 to 1000"]);
    compare(&["--analyses", "--analysis-runs", "1000000000"])
        .fails_with(&["--analysis-runs 1000000000", "not a number from 1 to 100000"]);
}
