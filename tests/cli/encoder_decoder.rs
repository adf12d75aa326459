//! Methods on an encoder-decoder.

use serde_json::{Value, json};

use crate::harness::{World, golden, lines, smallest};
use crate::roster::judging;

fn data(world: &World) -> String {
    let candidates = |texts: &[&str]| -> Vec<Value> {
        let candidate = |(index, text): (usize, &&str)| json!({"id": format!("c{index}"), "text": text, "scores": {"coherence": index}});
        texts.iter().enumerate().map(candidate).collect()
    };
    let sample = |id: &str, texts: &[&str]| json!({"id": id, "context": "The river froze.", "texts": {"question": "What froze?", "answer": "The river."}, "candidates": candidates(texts)});
    world.file(
        "d.jsonl",
        lines(&[sample("s1", &["It froze.", "The ferry sank.", "</s> A"]), sample("s2", &["Ice.", "Snow."])]),
    )
}

#[test]
fn every_method_of_the_registry_runs_on_an_encoder_decoder() {
    let world = World::new();
    let (data, model) = (data(&world), golden("tiny-flan-t5").display().to_string());
    // A reward model needs a head.
    for (name, method) in judging().filter(|(_, method)| !method.reads_classes()) {
        world.run(&[&[name, "--model", &model, "--data", &data, "--out", name], &smallest(name)[..]].concat()).exits(0);
        let scores = world.rows(&format!("{name}/{}.jsonl", method.table));
        assert_eq!(scores.len(), 5 * method.rows, "{name}");
        // The random model writes no numbers and does not stop.
        assert!(!method.scored || scores.iter().all(|row| row["score"].is_number()), "{name}: {scores:?}");
    }
    let manifest: Value = serde_json::from_str(&world.read("compare/manifest.json")).expect("JSON");
    assert_eq!(
        (&manifest["model"]["architecture"], &manifest["model"]["context_length"]),
        (&json!("t5"), &Value::Null)
    );
}

#[test]
fn an_answer_prefix_is_the_beginning_of_the_decoders_text() {
    let world = World::new();
    let (data, model) = (data(&world), golden("tiny-flan-t5").display().to_string());
    let run = |out: &str, more: &[&str]| {
        let arguments = ["compare", "--model", &model, "--data", &data, "--attribute", "coherence", "--out", out];
        world.run(&[&arguments, more].concat()).exits(0);
        world
            .rows(&format!("{out}/comparisons.jsonl"))
            .iter()
            .map(|row| row["p"].as_f64().expect("scored"))
            .collect::<Vec<f64>>()
    };
    let plain = run("plain", &[]);
    assert_ne!(run("prefixed", &["--answer-prefix", "Summary"]), plain);
    assert_eq!(run("again", &["--threads", "1", "--no-sharing", "--token-budget", "8"]), plain);
    let shown = world.run(&["show", "prefixed", "s1"]).exits(0);
    assert!(
        shown.stdout.contains("⟦</s>⟧⟦<pad>⟧ Summary") || shown.stdout.contains("⟦</s>⟧⟦<pad>⟧Summary"),
        "{}",
        shown.stdout
    );
}

#[test]
fn bits_are_checked_and_costs_foreseen_as_for_any_model() {
    let world = World::new();
    let (data, model) = (data(&world), golden("tiny-flan-t5").display().to_string());
    world.run(&["verify-determinism", "--model", &model]).exits(0);
    let ran =
        world.run(&["compare", "--model", &model, "--data", &data, "--attribute", "coherence", "--dry-run"]).exits(0);
    assert!(ran.stdout.contains("questions"), "{}", ran.stdout);
    let asked = json!({"id": "1", "messages": [{"role": "user", "content": "Which one?"}], "answer_prefix": "Summary", "labels": {"A": ["A"], "B": ["B"]}});
    let requests = world.file("r.jsonl", lines(&[asked]));
    let answered = world.run(&["logprobs", "--model", &model, "--input", &requests]).exits(0);
    assert!(answered.stdout.contains("\"mass\""), "{}", answered.stdout);
}

#[test]
fn a_run_on_another_device_has_nearly_the_same_scores_and_reads_metrics_texts_there_too() {
    let world = World::new();
    let (data, model) = (data(&world), golden("tiny-flan-t5").display().to_string());
    let scores = |device: &str| {
        let arguments = ["gpt-score", "--model", &model, "--data", &data, "--device", device, "--out", device];
        world.run(&[&arguments[..], &smallest("gpt-score")].concat()).exits(0);
        let tables = world.all_tables(device);
        assert!(tables.contains(&format!("|device:{device}|")), "{tables}");
        world.rows(&format!("{device}/scores.jsonl"))
    };
    let near = |rows: &[Value], others: &[Value]| {
        let number = |row: &Value| row["score"].as_f64().expect("a number");
        rows.iter().zip(others).all(|(a, b)| (number(a) - number(b)).abs() <= 2e-4)
    };
    let (ours, candles) = (scores("cpu"), scores("candle-cpu"));
    assert!(ours[0]["score"] != ours[1]["score"], "{ours:?}");
    assert!(ours.len() == 5 && candles.len() == 5 && near(&candles, &ours), "{ours:?} {candles:?}");
    // An encoder of metrics uses the run's options.
    let data = world.file(
        "references.jsonl",
        lines(&[
            json!({"id": "s1", "context": "The river froze.", "references": ["The river froze."], "candidates": [{"id": "a", "text": "It froze."}]}),
        ]),
    );
    let encoder = golden("tiny-masked").display().to_string();
    let read = |device: &str| {
        let out = format!("metrics-{device}");
        let arguments = ["metrics", "--metric", "bert-score:layer=1", "--data", &data, "--encoder", &encoder];
        world.run(&[&arguments[..], &["--device", device, "--out", &out]].concat()).exits(0);
        let manifest: Value = serde_json::from_str(&world.read(&format!("{out}/manifest.json"))).expect("JSON");
        assert!(manifest.to_string().contains(&format!("\"device\":\"{device}\"")), "{manifest}");
        world.rows(&format!("{out}/scores.jsonl"))
    };
    let (ours, candles) = (read("cpu"), read("candle-cpu"));
    assert!(!ours.is_empty() && ours.len() == candles.len() && near(&candles, &ours), "{ours:?} {candles:?}");
}

#[test]
fn models_that_only_read_are_refused_with_the_way_out() {
    let world = World::new();
    let (data, model) = (data(&world), golden("tiny-flan-t5").display().to_string());
    let arguments = ["compare", "--data", &data, "--attribute", "coherence", "--out", "o", "--model"];
    let encoder = golden("tiny-masked").display().to_string();
    world.run(&[&arguments[..], &[&encoder]].concat()).fails_with(&["is an encoder", "--encoder"]);
    let metrics = ["metrics", "--metric", "bert-score", "--data", &data, "--encoder", &model];
    world.run(&metrics).fails_with(&["is not an encoder", "hint: use a bert"]);
    // A recipe reports it before its first stage runs, and `model inspect` shows it.
    let recipe = world.file(
        "r.toml",
        format!(
            "[run.a]\nmethod = \"g-eval\"\nmodel = {encoder:?}\ndata = {data:?}\nout = \"o\"\nattribute = \
                 \"coherence\"\n"
        ),
    );
    world.run(&["recipe", "check", &recipe]).fails_with(&["is an encoder"]);
    let inspected = world.run(&["model", "inspect", &encoder]).exits(0);
    assert!(inspected.stdout.contains("usable         no: a bert model is an encoder"), "{}", inspected.stdout);
    let inspected = world.run(&["model", "inspect", &model]).exits(0);
    assert!(inspected.stdout.contains("Unigram, 220 tokens"), "{}", inspected.stdout);
}
