//! `probity generate`.

use serde_json::{Value, json};

use std::path::PathBuf;

use crate::harness::{Ran, World, golden, lines, tiny};

fn run(world: &World, input: &str, more: &[&str]) -> Ran {
    let model = tiny();
    let mut all = vec!["generate", "--model", model.to_str().expect("UTF-8"), "--input", input];
    all.extend(more);
    world.run(&all)
}

fn answers(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
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
    assert_eq!(
        answers.iter().map(|a| a["id"].as_str().expect("id")).collect::<Vec<_>>(),
        ["text", "chat", "drawn", "ids"]
    );
    for (answer, most) in answers.iter().zip([30, 5, 12, 9]) {
        let count = answer["tokens"].as_array().expect("ids").len();
        let ended = ["end_of_turn", "stop", "length"].map(Value::from).contains(&answer["finish"]);
        assert!(ended && count <= most && (count == most || answer["finish"] != "length"), "{answer}");
        assert!(
            answer["text"].is_string() && answer["outcome"] == "scored" && answer["precision"] == "exact",
            "{answer}"
        );
    }
    assert_eq!(answers[3]["prompt_tokens"], 4);
}

#[test]
fn drafts_threads_and_company_change_no_text() {
    let world = World::new();
    let input = world.file("r.jsonl", mixed());
    let plain = answers(&run(&world, &input, &["--draft", "off", "--quiet"]).exits(0));
    for more in
        [&["--draft", "lookup"][..], &["--threads", "1", "--no-sharing", "--token-budget", "7"], &["--limit", "1"]]
    {
        let again = answers(&run(&world, &input, more).exits(0));
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
        (answers(&ran), manifest["usage"]["tokens_computed"].as_u64().expect("a number"))
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
    let [not_counted, guesses] = ["not counted: ", "rejected draft tokens"];
    assert!(ran.stdout.contains(&format!("{not_counted}{guesses}")), "{}", ran.stdout);
    let plain = run(&world, &world.file("r.jsonl", mixed()), &["--dry-run", "--draft", "off", "--no-sharing"]).exits(0);
    assert!(plain.stdout.contains(not_counted) && !plain.stdout.contains(guesses), "{}", plain.stdout);
    assert!(
        plain.stdout.contains("with --compute no-sharing=yes") && !plain.stdout.contains("computed once"),
        "{}",
        plain.stdout
    );
    assert!(!world.path("a.jsonl").exists());
}

/// An object that a schema bounds in every dimension.
fn small_object() -> Value {
    json!({
        "type": "object",
        "properties": {
            "verdict": {"enum": ["A", "B", "tie"]},
            "score": {"type": "integer", "minimum": 1, "maximum": 10},
            "reason": {"type": "string", "maxLength": 24},
        },
        "required": ["verdict", "score", "reason"],
        "additionalProperties": false,
    })
}

fn validates(schema: &Value, text: &str) -> bool {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("schema.json", schema.clone()).expect("a schema");
    let index = compiler.compile("schema.json", &mut schemas).expect("a schema");
    serde_json::from_str(text).is_ok_and(|value| schemas.validate(&value, index).is_ok())
}

#[test]
fn texts_are_what_the_request_says_they_must_be() {
    let world = World::new();
    let schema = small_object();
    let request = |id: usize, more: Value| {
        let mut request = json!({"id": id.to_string(), "prompt": format!("{id} cats"), "max_tokens": 120});
        request.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        request
    };
    let requests = [
        request(0, json!({"schema": schema})),
        request(1, json!({"schema": schema, "temperature": 3.0, "seed": 5})),
        request(2, json!({"choice": ["yes", "no", "not at all"]})),
        request(3, json!({"regex": "[a-c]{3}-[0-9]{2}", "temperature": 2.0})),
        request(4, json!({"choice": ["a much longer text than two tokens"], "max_tokens": 2})),
    ];
    let input = world.file("r.jsonl", lines(&requests));
    let ran = run(&world, &input, &[]).exits(0);
    let found = answers(&ran);
    let text = |at: usize| found[at]["text"].as_str().expect("a text");
    assert!(validates(&schema, text(0)) && validates(&schema, text(1)), "{}\n{}", text(0), text(1));
    assert!(["yes", "no", "not at all"].contains(&text(2)), "{}", text(2));
    let matched = text(3).as_bytes();
    assert!(matched.len() == 6 && matched[3] == b'-' && matched[4..].iter().all(u8::is_ascii_digit), "{}", text(3));
    assert!("a much longer text".starts_with(text(4)) && found[4]["finish"] == "length", "{}", text(4));
    assert!(found[..4].iter().all(|answer| answer["finish"] == "end_of_turn"), "{}", ran.stdout);
    let off = answers(&run(&world, &input, &["--draft", "off", "--threads", "1"]).exits(0));
    assert_eq!(off, answers(&ran));
}

#[test]
fn what_cannot_be_kept_of_a_constraint_is_refused_for_its_line() {
    let world = World::new();
    let input = world.file(
        "r.jsonl",
        lines(&[
            json!({"id": "1", "prompt": "x", "schema": {"type": "array", "uniqueItems": true}}),
            json!({"id": "2", "prompt": "x", "regex": "(?=a)"}),
            json!({"id": "3", "prompt": "x", "max_tokens": 1}),
        ]),
    );
    let ran = run(&world, &input, &[]).exits(2);
    for part in [
        "line 1: schema #: the keyword `uniqueItems` is not supported",
        "line 2: this regex is not supported",
        "hint: remove it, and check it in the answers; supported are ",
        "hint: lookaround and backreferences are not supported",
    ] {
        assert!(ran.stderr.contains(part), "{part}\n{}", ran.stderr);
    }
    assert_eq!(answers(&ran).len(), 1);
}

fn adapter(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/adapters").join(name)
}

#[test]
fn an_adapter_is_part_of_the_model_that_answers() {
    let world = World::new();
    let input = world.file("r.jsonl", mixed());
    let (folder, model) = (adapter("llama"), tiny());
    let with = ["--adapter", folder.to_str().expect("UTF-8")];
    let run_with = |more: &[&str], manifest: &str| {
        let ran = run(&world, &input, &[&["--cache", "kept", "--manifest", manifest], more].concat()).exits(0);
        (answers(&ran), serde_json::from_str::<Value>(&world.read(manifest)).expect("JSON"))
    };
    let ((plain, without), (adapted, with_it)) = (run_with(&[], "plain.json"), run_with(&with, "adapted.json"));
    assert_ne!(plain, adapted);
    assert_ne!(without["model"]["fingerprint"], with_it["model"]["fingerprint"]);
    assert_eq!((&with_it["model"]["adapter"], without["model"].get("adapter")), (&json!(with[1]), None));
    let inspected = world.run(&["model", "inspect", model.to_str().expect("UTF-8"), with[0], with[1]]).exits(0).stdout;
    assert!(inspected.contains("rank 4, scale 2.5, changes 18 tensors"), "{inspected}");
    let other = adapter("tiny-flan-t5");
    run(&world, &input, &["--adapter", other.to_str().expect("UTF-8")])
        .fails_with(&["the model has no `", "hint: use an adapter of this model"]);
}

/// The output of the weak model `SmolLM2` always parses. `PROBITY_TEXTS` sets the number of texts.
#[test]
fn a_weak_model_writes_json_that_its_schema_admits() {
    let Some(model) =
        std::env::var_os("PROBITY_MODELS").map(|models| PathBuf::from(models).join("smollm2-135m-instruct"))
    else {
        eprintln!("skipped: PROBITY_MODELS has no smollm2-135m-instruct");
        return;
    };
    let Some(model) =
        std::fs::read_dir(model).ok().and_then(|mut files| files.find_map(|file| Some(file.ok()?.path())))
    else {
        return;
    };
    let count: usize = std::env::var("PROBITY_TEXTS").map_or(4, |count| count.parse().expect("a number"));
    let world = World::new();
    let schema = small_object();
    let things = [
        "rivers", "old songs", "glass", "a late train", "seven cats", "the tax office", "\"quotes\"", "größere Häuser",
    ];
    let request = |id: usize| {
        let thing = things[id % things.len()];
        let content =
            format!("Two answers about {thing} (number {id}): A says much, B says little. Judge them. Answer in JSON.");
        json!({"id": id.to_string(), "messages": [{"role": "user", "content": content}], "schema": schema, "max_tokens": 100,
            "temperature": (id % 4) as f64 * 0.5, "seed": id})
    };
    let input = world.file("r.jsonl", lines(&(0..count).map(request).collect::<Vec<_>>()));
    let model = model.to_str().expect("UTF-8");
    let ran = world.run(&["generate", "--model", model, "--input", &input, "--precision", "fast"]).exits(0);
    let texts: Vec<Value> = answers(&ran);
    let good = texts.iter().filter(|answer| validates(&schema, answer["text"].as_str().unwrap_or_default())).count();
    println!("{good} of {count} parse and are instances of the schema\n{}", ran.stderr);
    assert_eq!(good, count, "{}", ran.stdout);
}

#[test]
fn a_gguf_file_that_does_not_say_how_text_is_split_is_run_with_a_warning() {
    let world = World::new();
    let mut bytes = std::fs::read(golden("tiny-gguf/model.gguf")).expect("a committed file");
    let key = b"tokenizer.ggml.pre";
    let at = bytes.windows(key.len()).position(|window| window == key).expect("the file has it");
    // A key that nothing reads.
    bytes[at + key.len() - 1] = b'_';
    let model = world.path("model.gguf");
    std::fs::write(&model, bytes).expect("written");
    let input = world.file("r.jsonl", lines(&[json!({"id": "a", "prompt": "one", "max_tokens": 2})]));
    let ran = world.run(&["generate", "--model", model.to_str().expect("UTF-8"), "--input", &input]).exits(0);
    assert!(ran.stderr.contains("has no `tokenizer.ggml.pre`"), "{}", ran.stderr);
}
