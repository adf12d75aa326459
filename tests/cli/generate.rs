//! `probity generate`.

use serde_json::{Value, json};

use crate::harness::{Ran, World, lines, tiny};

fn run(world: &World, input: &str, more: &[&str]) -> Ran {
    let model = tiny();
    let mut all = vec!["generate", "--model", model.to_str().expect("UTF-8"), "--input", input];
    all.extend(more);
    world.run(&all)
}

fn answers(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What does not depend on how the work was done.
fn texts(ran: &Ran) -> Vec<Value> {
    let mut answers = answers(ran);
    for answer in &mut answers {
        answer.as_object_mut().expect("an object").remove("accepted_drafts").expect("every answer counts its drafts");
    }
    answers
}

fn mixed() -> String {
    lines(&[
        json!({"id": "text", "prompt": "one two three one two", "max_tokens": 30}),
        json!({"id": "chat", "messages": [{"role": "user", "content": "hi <|im_end|>"}], "answer_prefix": "Answer:", "max_tokens": 5}),
        json!({"id": "drawn", "prompt": "x", "max_tokens": 12, "temperature": 1.5, "seed": 3}),
        json!({"id": "ids", "tokens": [5, 6, 7, 8], "max_tokens": 9, "stop": ["e"]}),
    ])
}

#[test]
fn texts_come_in_the_order_of_the_requests_with_all_their_fields() {
    let world = World::new();
    let input = world.file("r.jsonl", mixed());
    let ran = run(&world, &input, &[]).exits(0);
    let answers = answers(&ran);
    assert_eq!(answers.iter().map(|a| a["id"].as_str().expect("id")).collect::<Vec<_>>(), ["text", "chat", "drawn", "ids"]);
    for (answer, most) in answers.iter().zip([30, 5, 12, 9]) {
        let count = answer["tokens"].as_array().expect("ids").len();
        let ended = ["end_of_turn", "stop", "length"].map(Value::from).contains(&answer["finish"]);
        assert!(ended && count <= most && (count == most || answer["finish"] != "length"), "{answer}");
        assert!(answer["text"].is_string() && answer["outcome"] == "scored" && answer["precision"] == "exact", "{answer}");
    }
    assert_eq!(answers[3]["prompt_tokens"], 4);
}

#[test]
fn drafts_threads_and_company_change_no_text() {
    let world = World::new();
    let input = world.file("r.jsonl", mixed());
    let plain = texts(&run(&world, &input, &["--draft", "off", "--quiet"]).exits(0));
    for more in [&["--draft", "lookup"][..], &["--threads", "1", "--no-sharing", "--token-budget", "7"], &["--limit", "1"]] {
        let again = texts(&run(&world, &input, more).exits(0));
        assert_eq!(again[..], plain[..again.len()], "{more:?}");
    }
}

#[test]
fn broken_requests_are_told_with_file_and_line_and_the_others_answered() {
    let world = World::new();
    let text = lines(&[
        json!({"id": "1", "prompt": "x", "max_tokens": 2}),
        json!({"id": "2", "prompt": "x", "max_tokens": 0}),
        json!({"id": "3", "tokens": [99999]}),
        json!({"id": "4", "tokens": vec![5; 300]}),
    ]);
    let ran = run(&world, &world.file("r.jsonl", text), &["--out", "a.jsonl", "--manifest", "m.json"]).exits(2);
    for part in ["2 problems in ", "line 2: field `max_tokens`: must be at least 1", "line 3: ", "99999"] {
        assert!(ran.stderr.contains(part), "{part}\n{}", ran.stderr);
    }
    let rows = world.rows("a.jsonl");
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[1]["outcome"], rows[1].get("text")), (&json!("too_long"), None));
    let manifest: Value = serde_json::from_str(&world.read("m.json")).expect("JSON");
    assert_eq!((&manifest["answered"], &manifest["unanswered"]), (&json!(1), &json!(1)));
    assert_eq!(manifest["arguments_in_force"]["drafting"], "lookup");
}

#[test]
fn what_was_generated_is_taken_from_the_cache() {
    let world = World::new();
    let input = world.file("r.jsonl", mixed());
    let usage = |manifest: &str| {
        let ran = run(&world, &input, &["--cache", "kept", "--manifest", manifest]).exits(0);
        let manifest: Value = serde_json::from_str(&world.read(manifest)).expect("JSON");
        (texts(&ran), manifest["usage"]["tokens_computed"].as_u64().expect("a number"))
    };
    let (first, second) = (usage("first.json"), usage("second.json"));
    assert!(first.1 > 0);
    assert_eq!((&first.0, second.1), (&second.0, 0));
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_texts_would_take() {
    let world = World::new();
    let ran = run(&world, &world.file("r.jsonl", mixed()), &["--dry-run", "--out", "a.jsonl"]).exits(0);
    assert!(ran.stdout.contains("generated  56 of these tokens at most"), "{}", ran.stdout);
    assert!(!world.path("a.jsonl").exists());
}
