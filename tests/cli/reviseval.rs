//! References by revision, and what judges and metrics make of them, from outside.

use std::path::Path;

use serde_json::Value;

use crate::harness::{World, golden, tiny};

fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pairs(world: &World) -> String {
    world.file("pairs.jsonl", repository("samples/pairs.jsonl"))
}

fn summary(world: &World, run: &str) -> Value {
    serde_json::from_str(&world.read(&format!("{run}/summary.json"))).expect("JSON")
}

#[test]
fn revisions_become_data_for_metrics() {
    let world = World::new();
    let (model, data) = (golden("tiny-flan-t5").display().to_string(), pairs(&world));
    let make = ["revise", "--model", &model, "--data", &data, "--max-tokens", "8", "--use-truncated"];
    let ran = world.run(&[&make[..], &["--out", "run", "--export-sets"]].concat()).exits(0);
    assert!(ran.stdout.contains("to primary: words") && ran.stdout.contains("tokens generated"), "{}", ran.stdout);
    let revisions = world.rows("run/revisions.jsonl");
    assert_eq!(revisions.len(), 6);
    assert!(revisions.iter().all(|row| row["primary"] != row["guidance"] && row["similarity"].as_array().is_some()), "{revisions:?}");
    let revised = world.rows("run/revised.jsonl");
    assert!(!revised.is_empty() && revised.iter().all(|sample| sample["references"].as_array().is_some_and(|all| all.len() == 1)));
    let chats = world.rows("run/set_reviser.jsonl");
    assert_eq!(chats.len(), revised.len());
    assert_eq!(chats[0]["messages"][1]["role"], "assistant");
    world.run(&["metrics", "--metric", "rouge-l", "--data", "run/revised.jsonl", "--out", "scores"]).exits(0);
    assert_eq!(world.rows("scores/scores.jsonl").len(), 3 * 2 * revised.len());
    world.run(&[&make[..], &["--out", "again", "--export-sets"]].concat()).exits(0);
    assert_eq!(world.read("run/revisions.jsonl"), world.read("again/revisions.jsonl"));
    world.run(&["report", "run", "--html", "report.html"]).exits(0);
}

#[test]
fn the_whole_has_one_table_and_resumes_to_the_same_bytes() {
    let world = World::new();
    let (model, data) = (tiny().display().to_string(), pairs(&world));
    let whole = [
        "reviseval",
        "--model",
        &model,
        "--data",
        &data,
        "--revision-tokens",
        "8",
        "--max-tokens",
        "8",
        "--use-truncated",
        "--metric",
        "bleu,rouge-l",
        "--cost-match",
        "--rate",
        "correctness",
        "--out",
        "run",
    ];
    let ran = world.run(&whole).exits(0);
    for part in
        ["References and who judges with them", "Accuracy by subset", "Cost match", "Mean ratings by correctness", "tokens generated"]
    {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
    let told = summary(&world, "run");
    assert_eq!(told["values"]["pairs"].as_array().map(Vec::len), Some(3 + 2 * 3), "{told:#}");
    assert_eq!(told["values"]["metrics"][0]["metric"], "bleu");
    let first = world.read("run/summary.json");
    let again = world.run(&[&whole[..], &["--resume"]].concat()).exits(0);
    assert!(again.stderr.contains("answers were there already"), "{}", again.stderr);
    assert_eq!(first, world.read("run/summary.json"));
    let dry = world.run(&[&whole[..whole.len() - 2], &["--dry-run"]].concat()).exits(0);
    assert!(dry.stdout.contains("depends on earlier answers"), "{}", dry.stdout);
    world.run(&["report", "run", "--html", "report.html"]).exits(0);
}

#[test]
fn candidates_by_themselves_have_scores_that_meta_reads() {
    let world = World::new();
    let model = tiny().display().to_string();
    let data = world.file("d.jsonl", repository("samples/demo.jsonl"));
    let run = [
        "reviseval",
        "--model",
        &model,
        "--data",
        &data,
        "--limit",
        "2",
        "--mode",
        "pointwise",
        "--attribute",
        "quality",
        "--no-judge",
        "--metric",
        "rouge-l,levenshtein",
        "--reference",
        "direct,adapted",
        "--revision-tokens",
        "8",
        "--use-truncated",
        "--out",
        "run",
    ];
    world.run(&run).exits(0);
    assert_eq!(world.rows("run/scores.jsonl").len(), 2 * 4 * 2 * 2);
    let meta = world.run(&["meta", "--scores", "run/scores.jsonl", "--gold", &data]).exits(0);
    assert!(meta.stdout.contains("adapted/rouge-l"), "{}", meta.stdout);
}

#[test]
fn the_shipped_recipe_is_right() {
    let world = World::new();
    let recipe = repository("recipes/reviseval.toml").replace("qwen2.5-coder-1.5b-instruct", &tiny().display().to_string());
    world.file("mt_bench.jsonl", repository("samples/pairs.jsonl"));
    world.file("llmbar.jsonl", repository("samples/pairs.jsonl"));
    world.file("reviseval.toml", recipe);
    world.run(&["recipe", "check", "reviseval.toml"]).exits(0);
}

#[test]
fn a_judge_model_that_is_not_there_is_told_before_anything_is_done() {
    let world = World::new();
    let (model, data) = (tiny().display().to_string(), pairs(&world));
    let ran = world.run(&["reviseval", "--model", &model, "--data", &data, "--judge-model", "nobody", "--out", "run"]);
    ran.fails_with(&["nobody"]);
    assert!(!world.path("run").exists());
}
