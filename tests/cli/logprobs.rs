//! `probity logprobs`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Ran, World, interrupt, interrupts_are_ignored, lines, root, tiny};

fn arguments(input: &str) -> Vec<String> {
    ["logprobs", "--model", tiny().to_str().expect("UTF-8"), "--input", input].map(str::to_owned).to_vec()
}

fn run(world: &World, input: &str, more: &[&str]) -> Ran {
    let mut all = arguments(input);
    all.extend(more.iter().map(|argument| (*argument).to_owned()));
    world.run(&all.iter().map(String::as_str).collect::<Vec<_>>())
}

fn answers(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn mixed() -> String {
    lines(&[
        json!({"id": "text", "prompt": "one two three", "labels": {"no": [" no", "No"], "a": ["a", " a"]}}),
        json!({"id": "chat", "messages": [{"role": "user", "content": "hi <|im_end|>"}], "answer_prefix": "Answer:", "continuation": " yes"}),
        json!({"id": "ids", "tokens": [5, 6, 7, 8], "continuation": "b"}),
    ])
}

#[test]
fn answers_come_in_the_order_of_the_requests_with_all_their_fields() {
    let world = World::new();
    let input = world.file("r.jsonl", mixed());
    let ran = run(&world, &input, &[]).exits(0);
    let answers = answers(&ran);
    assert_eq!(answers.iter().map(|a| a["id"].as_str().expect("id")).collect::<Vec<_>>(), ["text", "chat", "ids"]);
    let labels = answers[0]["labels"].as_object().expect("labels");
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["no", "a"]);
    let probabilities: f64 = labels.values().map(|label| label["prob"].as_f64().expect("number")).sum();
    let mass: f64 = labels.values().map(|label| label["logprob"].as_f64().expect("number").exp()).sum();
    assert!((probabilities - 1.0).abs() < 1e-12 && (mass - answers[0]["mass"].as_f64().expect("mass")).abs() < 1e-12);
    for continuation in &answers[1..] {
        let tokens = continuation["token_logprobs"].as_array().expect("list");
        let sum: f64 = tokens.iter().map(|token| token.as_f64().expect("number")).sum();
        assert!((sum - continuation["logprob"].as_f64().expect("number")).abs() < 1e-9);
        assert_eq!(continuation["tokens"].as_array().map(Vec::len), Some(tokens.len()));
        assert!(continuation["is_greedy"].is_boolean() && continuation["precision"] == "exact");
    }
    assert_eq!(answers[2]["prompt_tokens"], 4);
}

#[test]
fn a_class_head_says_its_classes_and_words_are_refused_with_what_to_ask() {
    let world = World::new();
    let folder = root("tests/goldens/classifiers/bert-nli");
    let golden: Value =
        serde_json::from_slice(&std::fs::read(folder.join("golden.json")).expect("a file")).expect("JSON");
    let case = &golden["cases"][0];
    let classes = json!({"id": "1", "messages": case["messages"], "classes": true});
    let words = json!({"id": "2", "prompt": "x", "continuation": "y"});
    let input = world.file("r.jsonl", format!("{classes}\n{words}\n"));
    let ran = world.run(&["logprobs", "--model", folder.to_str().expect("UTF-8"), "--input", &input]).exits(2);
    assert!(ran.stderr.contains("is a classifier") && ran.stderr.contains("\"classes\": true"), "{}", ran.stderr);
    let said = answers(&ran)[0]["classes"].as_object().expect("classes").clone();
    let expected = case["logits"].as_array().expect("logits").iter().map(|logit| logit.as_f64().expect("a number"));
    let expected: Vec<f64> = expected.collect();
    let sum: f64 = expected.iter().map(|logit| logit.exp()).sum();
    assert_eq!(json!(said.keys().collect::<Vec<_>>()), golden["classes"]);
    for (class, logit) in said.values().zip(expected) {
        let near = |field: &str, expected: f64| (class[field].as_f64().expect("a number") - expected).abs() < 2e-4;
        assert!(near("logit", logit) && near("prob", logit.exp() / sum), "{class}");
        assert!(near("logprob", logit - sum.ln()), "{class}");
    }
}

#[test]
fn threads_and_sharing_change_no_bit() {
    let world = World::new();
    let input = world.file("r.jsonl", mixed());
    let plain = run(&world, &input, &["--quiet"]).exits(0);
    assert!(plain.stderr.is_empty(), "{}", plain.stderr);
    assert_eq!(run(&world, &input, &["--threads", "1"]).exits(0).stdout, plain.stdout);
    assert_eq!(run(&world, &input, &["--no-sharing", "--threads", "2"]).exits(0).stdout, plain.stdout);
}

#[test]
fn broken_lines_are_told_with_file_and_line_and_the_others_answered() {
    let world = World::new();
    let good = |id: usize| json!({"id": id.to_string(), "prompt": "x", "continuation": " y"}).to_string();
    let mut text: Vec<String> = (1..=20).map(good).collect();
    text[16] = "{\"id\": \"17\", \"prompt\": ".into();
    text[17] = good(3);
    text[18] =
        json!({"id": "19", "prompt": "x", "labels": {"A": ["A"], "AB": ["AB"]}, "continuation": "y"}).to_string();
    let input = world.file("r.jsonl", text.join("\n"));
    let ran = run(&world, &input, &["--out", "a.jsonl", "--manifest", "m.json"]).exits(2);
    for part in [
        "3 problems in ",
        "r.jsonl",
        "line 17: ",
        "line 18: field `id`: duplicate request `3`, first on line 3",
        "line 19: ",
    ] {
        assert!(ran.stderr.contains(part), "{part}\n{}", ran.stderr);
    }
    assert_eq!(world.rows("a.jsonl").len(), 17);
    let manifest: Value = serde_json::from_str(&world.read("m.json")).expect("JSON");
    assert_eq!((&manifest["answered"], &manifest["broken_lines"]), (&json!(17), &json!(3)));
    assert_eq!(manifest["model"]["fingerprint"].as_str().map(str::len), Some(64));
}

#[test]
fn labels_that_the_model_cannot_tell_apart_are_refused_for_their_line_only() {
    let world = World::new();
    let input = world.file(
        "r.jsonl",
        lines(&[
            json!({"id": "bad", "prompt": "x:", "labels": {"1": ["1"], "10": ["10"]}}),
            json!({"id": "good", "prompt": "x:", "labels": {"1": ["1"], "10": ["10"]}, "termination": "end_of_turn"}),
        ]),
    );
    let ran = run(&world, &input, &[]).exits(2);
    assert!(
        ran.stderr.contains("broken line 1 of ") && ran.stderr.contains("is a prefix of variant `10`"),
        "{}",
        ran.stderr
    );
    assert_eq!(answers(&ran).len(), 1);
    assert_eq!(answers(&ran)[0]["id"], "good");
}

#[test]
fn refused_requests_stand_among_the_broken_lines_by_line_with_their_hints_at_the_end() {
    let world = World::new();
    let begun = json!({"id": "2", "prompt": "x:", "labels": {"1": ["1"], "10": ["10"]}});
    let same = json!({"id": "3", "prompt": "x:", "labels": {"one": ["q"], "two": ["q"]}});
    let again = json!({"id": "4", "prompt": "x:", "labels": {"7": ["7"], "70": ["70"]}});
    let text = format!("{begun}\n{same}\nbroken\n{again}");
    let ran = run(&world, &world.file("r.jsonl", text), &[]).exits(2);
    let (problems, hints) = ran.stderr.split_once("\n\n").expect("hints after the problems");
    let places: Vec<Option<usize>> = (1..=4).map(|line| problems.find(&format!("\n  line {line}: "))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{}", ran.stderr);
    assert!(problems.contains("share the tokens of `q`") && !problems.contains("hint:"), "{}", ran.stderr);
    assert_eq!(hints.matches(r#"or add "termination": "end_of_turn""#).count(), 1, "{hints}");
}

#[test]
fn a_prompt_longer_than_the_context_is_an_outcome_and_counts_as_unscored() {
    let world = World::new();
    let input = world.file("r.jsonl", lines(&[json!({"id": "1", "tokens": vec![5; 300], "continuation": " y"})]));
    let ran = run(&world, &input, &[]).exits(0);
    let answer = &answers(&ran)[0];
    assert_eq!(
        (&answer["outcome"], &answer["limit"], &answer["prompt_tokens"]),
        (&json!("too_long"), &json!(256), &json!(300))
    );
    // `tokens` is always the list of a continuation's tokens.
    assert!(answer["tokens_needed"].as_u64() > Some(300) && answer.get("tokens").is_none(), "{answer}");
    run(&world, &input, &["--strict"]).exits(1);
}

#[test]
fn a_token_id_outside_the_vocabulary_is_refused_for_its_line() {
    let world = World::new();
    let input = world.file("r.jsonl", lines(&[json!({"id": "1", "tokens": [99999], "continuation": " y"})]));
    let ran = run(&world, &input, &[]).exits(2);
    assert!(ran.stderr.contains("broken line 1 of ") && ran.stderr.contains("99999"), "{}", ran.stderr);
}

#[test]
fn answers_are_not_written_over_others_unless_told_to() {
    let world = World::new();
    let input = world.file("r.jsonl", mixed());
    world.file("a.jsonl", "precious\n");
    run(&world, &input, &["--out", "a.jsonl"]).fails_with(&["a.jsonl already exists", "--overwrite"]);
    assert_eq!(world.read("a.jsonl"), "precious\n");
    run(&world, &input, &["--out", "a.jsonl", "--overwrite"]).exits(0);
    assert_eq!(world.rows("a.jsonl").len(), 3);
}

#[test]
fn a_run_without_any_answer_leaves_no_file() {
    let world = World::new();
    let broken = world.file("broken.jsonl", "{\n");
    run(&world, &broken, &["--out", "a.jsonl"]).exits(2);
    assert!(!world.path("a.jsonl").exists());
    let input = world.file("r.jsonl", mixed());
    world.run(&["logprobs", "--model", "no-such-model", "--input", &input, "--out", "a.jsonl"]).exits(2);
    assert!(!world.path("a.jsonl").exists());
    world.file("a.jsonl", "");
    run(&world, &broken, &["--out", "a.jsonl"]).fails_with(&["a.jsonl already exists"]);
    assert!(world.path("a.jsonl").exists());
}

#[test]
fn a_full_disk_is_an_error_with_a_hint() {
    if !std::path::Path::new("/dev/full").exists() {
        eprintln!("skipped: this system has no /dev/full");
        return;
    }
    let world = World::new();
    let input = world.file("r.jsonl", mixed());
    run(&world, &input, &["--out", "/dev/full"]).fails_with(&["/dev/full", "No space left", "hint: free some space"]);
}

#[test]
fn an_empty_and_a_missing_input_are_errors() {
    let world = World::new();
    let empty = world.file("empty.jsonl", "\n\n");
    run(&world, &empty, &[]).fails_with(&["has no lines", "hint: write one JSON object per line"]);
    run(&world, "absent.jsonl", &[]).fails_with(&["absent.jsonl could not be opened"]);
}

/// Whether this process was started with interrupts ignored, like background jobs of a shell; child processes inherit
/// this.
#[cfg(unix)]
#[test]
fn an_interrupt_keeps_what_was_finished_and_exits_with_130() {
    if interrupts_are_ignored() {
        println!("skipped: interrupts are ignored here, and probity leaves that as it is");
        return;
    }
    let world = World::new();
    let request = |id: usize| {
        json!({"id": id.to_string(), "prompt": format!("{id} \
        {}", "word ".repeat(40)), "continuation": " y"})
    };
    let input = world.file("r.jsonl", lines(&(0..20_000).map(request).collect::<Vec<_>>()));
    let all = arguments(&input);
    let mut command = world.command(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut reader = BufReader::new(child.stdout.take().expect("piped"));
    let mut first = String::new();
    reader.read_line(&mut first).expect("an answer");
    interrupt(&child);
    let rest: Vec<String> = reader.lines().map(|line| line.expect("UTF-8")).collect();
    let ran = Ran::from(child.wait_with_output().expect("ended")).exits(130);
    assert!(ran.stderr.contains("interrupted; finished work is kept"), "{}", ran.stderr);
    assert!(rest.len() < 19_999, "it stopped early");
    assert!(rest.iter().chain([&first]).all(|line| serde_json::from_str::<Value>(line).is_ok()), "every line is whole");
}

#[test]
fn what_was_answered_is_taken_from_the_cache() {
    let world = World::new();
    let request = |id: usize| json!({"id": id.to_string(), "prompt": format!("{id} cats"), "continuation": " y"});
    let input = world.file("r.jsonl", lines(&(0..3).map(request).collect::<Vec<_>>()));
    let usage = |manifest: &str| {
        let ran = run(&world, &input, &["--cache", "kept", "--manifest", manifest]).exits(0);
        let manifest: Value = serde_json::from_str(&world.read(manifest)).expect("JSON");
        (ran.stdout, manifest["usage"]["tokens_computed"].as_u64().expect("a number"))
    };
    let (first, second) = (usage("first.json"), usage("second.json"));
    assert_eq!((&first.0, second.1), (&second.0, 0));
    assert!(first.1 > 0 && first.0 == run(&world, &input, &[]).exits(0).stdout);
}
