//! `metacritique` and `refeval`: labels without a model, interruptions in every stage, and invalid input.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Ran, World, golden, lines, tiny};

/// The published format: critiques with claims and labels.
fn labels(world: &World, items: usize) -> String {
    let item = |index: usize| {
        json!({"index": index, "question": format!("why {index}?"), "response": "so.", "gpt4_answer": "for a reason",
            "gpt4_critique": {"critique": "r", "aius": ["it is wrong", "it is short"]},
            "human_critique": {"critique": "wrong", "aius": ["it is wrong"], "precision_labels": [index.is_multiple_of(2)],
                "recall_labels": [true, false]},
            "llm1_critique": {"model": "m", "critique": "short and wrong", "aius": ["it is short", "it is wrong", "no"],
                "precision_labels": [true, true, false], "recall_labels": [true, true]}})
    };
    world.file("labels.json", Value::from((0..items).map(item).collect::<Vec<_>>()).to_string())
}

#[test]
fn labels_are_aggregated_without_a_model_and_held_against_one() {
    let world = World::new();
    labels(&world, 4);
    let ran = world.run(&["metacritique", "--labels", "labels.json"]).exits(0);
    assert!(ran.stdout.contains("Human labels, mean over 8 critiques"), "{}", ran.stdout);
    assert!(!world.path("runs").exists(), "what is computed of a file can be had again");
    world.run(&["metacritique", "--labels", "labels.json", "--limit", "1", "--out", "run"]).exits(0);
    let scores = world.rows("run/scores.jsonl");
    // For m, two of three claims, both also in the reference.
    assert_eq!(scores[3]["score"].as_f64(), Some(2.0 / 3.0));
    assert_eq!(scores[5]["score"].as_f64(), Some(0.8));
    let model = tiny().display().to_string();
    world.run(&["metacritique", "--labels", "labels.json", "--model", &model, "--out", "judged"]).exits(0);
    let summary: Value = serde_json::from_str(&world.read("judged/summary.json")).expect("JSON");
    assert_eq!(summary["values"]["accuracy"][0]["claims"], 16);
    world.run(&["report", "judged", "--html", "judged.html"]).exits(0);
    world.run(&["show", "judged", "0"]).exits(0);
    for (more, part) in [
        (&["--data", "labels.json"][..], "`data`"),
        (&["--map", "context=question"], "`map`"),
        (&["--baseline", "single"], "--model"),
        (&["--until", "aius"], "does not have this stage"),
    ] {
        world.run(&[&["metacritique", "--labels", "labels.json"], more].concat()).fails_with(&[part]);
    }
    world.run(&["metacritique", "--data", "labels.json"]).fails_with(&["--model"]);
    world.run(&["metacritique", "--model", &model]).fails_with(&["--data"]);
    let recipe = "[run.people]\nmethod = \"metacritique\"\nlabels = \"labels.json\"\nout = \"people\"\n";
    world.file("r.toml", recipe);
    world.run(&["recipe", "check", "r.toml"]).exits(0);
    world.run(&["run", "r.toml"]).exits(0);
    assert_eq!(world.rows("people/scores.jsonl").len(), 24);
}

/// The output of a run that does not depend on when it runs.
fn results(world: &World, run: &str) -> Vec<(String, String)> {
    let mut files: Vec<String> = std::fs::read_dir(world.path(run))
        .expect("a run")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name == "summary.json" || Path::new(name).extension().is_some_and(|ending| ending == "jsonl"))
        .collect();
    files.sort();
    files.into_iter().map(|name| (name.clone(), world.read(&format!("{run}/{name}")))).collect()
}

/// Stops the run after each of its stages and resumes it, then kills it at several times and resumes it: the output is
/// identical.
pub(crate) fn goes_on(world: &World, arguments: &[&str], stages: &[&str]) {
    let run = |out: &str, more: &[&str]| world.run(&[arguments, &["--out", out], more].concat());
    run("whole", &[]).exits(0);
    let whole = results(world, "whole");
    for stage in stages {
        run(stage, &["--until", stage]).exits(0);
        assert!(!world.path(&format!("{stage}/summary.json")).exists(), "{stage}");
        run(stage, &["--resume"]).exits(0);
        assert!(results(world, stage) == whole, "after {stage}");
    }
    for milliseconds in [30, 60, 120, 240, 480] {
        let out = format!("killed-{milliseconds}");
        let mut child = world.command(&[arguments, &["--out", &out]].concat());
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(milliseconds) && child.try_wait().expect("asked").is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = child.kill();
        child.wait().expect("ended");
        let flag = if world.path(&format!("{out}/manifest.json")).exists() { &["--resume"][..] } else { &[] };
        run(&out, flag).exits(0);
        assert!(results(world, &out) == whole, "killed after {milliseconds} ms");
    }
}

#[test]
fn a_run_of_critiques_that_ends_anywhere_goes_on_to_the_same_bytes() {
    let world = World::new();
    let sample = |k: usize| {
        json!({"id": format!("s{k}"), "context": "", "texts": {"question": format!("why {k}?"), "answer": "so"},
            "candidates": [{"id": "a", "text": "it is wrong"}, {"id": "b", "text": "short"}]})
    };
    let data = world.file("d.jsonl", lines(&(0..2).map(sample).collect::<Vec<_>>()));
    // A model without a context limit.
    let model = golden("tiny-flan-t5").display().to_string();
    let arguments = [
        "metacritique", "--data", &data, "--model", &model, "--max-tokens", "6", "--most-aius", "2", "--refine",
        "--baseline", "single", "--baseline", "pairwise",
    ];
    goes_on(&world, &arguments, &["references", "aius", "precision", "recall", "single", "pairwise", "refined"]);
}

/// Documents with given units, because a random model writes none that could be queried.
fn examination(world: &World) -> Vec<String> {
    world.file("documents/a.txt", "The mill burned down. It was rebuilt.");
    world.file("documents/b.md", "# Geese\n\nGeese fly south.");
    let unit = |document: &str, text: &str| json!({"document": document, "passage": 1, "unit": text});
    world.file(
        "units.jsonl",
        lines(&[
            unit("a.txt", "the mill burned down"),
            unit("a.txt", "the mill was rebuilt"),
            unit("b.md", "geese fly"),
        ]),
    );
    let (model, encoder) = (golden("tiny-flan-t5").display().to_string(), golden("tiny-masked").display().to_string());
    [
        "refeval", "--documents", "documents", "--units", "units.jsonl", "--model", &model, "--evaluated", &model,
        "--encoder", &encoder, "--cluster-units", "2", "--rounds", "2", "--question-words", "6", "--answer-tokens",
        "8", "--baseline", "one-by-one", "--baseline", "no-reference", "--baseline", "bleu", "--baseline", "embedding",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[test]
fn an_examination_that_ends_anywhere_goes_on_to_the_same_bytes() {
    let world = World::new();
    let arguments = examination(&world);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let stages = ["units", "weights", "clusters", "questions", "answers", "judgements", "single_questions"];
    goes_on(&world, &arguments, &stages);
    // All tables of a run replace its work, although clusters are not known before the run.
    let tables: Vec<String> = stages[..6].iter().map(|stage| format!("{stage}=whole/{stage}.jsonl")).collect();
    let given: Vec<&str> = tables.iter().flat_map(|table| ["--from", table.as_str()]).collect();
    let place = arguments.iter().position(|argument| *argument == "--units").expect("there");
    let bare = [&arguments[..place], &arguments[place + 2..]].concat();
    world.run(&[bare.as_slice(), &["--out", "given"], given.as_slice()].concat()).exits(0);
    assert_eq!(world.read("given/knowledge.jsonl"), world.read("whole/knowledge.jsonl"));
    world.run(&["report", "whole", "--html", "report.html"]).exits(0);
    world.run(&["check", "whole"]).exits(0);
    let dry = world.run(&[&arguments[..], &["--dry-run"]].concat()).exits(0);
    assert!(dry.stdout.contains("stage judgements"), "{}", dry.stdout);
}

#[test]
fn what_cannot_be_examined_is_told_with_its_file_and_line() {
    let world = World::new();
    let arguments = examination(&world);
    let refused = |option: &str, value: &str, parts: &[&str]| {
        let mut arguments = arguments.clone();
        match arguments.iter().position(|argument| argument == option) {
            Some(place) => arguments[place + 1] = value.to_owned(),
            None => arguments.extend([option.to_owned(), value.to_owned()]),
        }
        arguments.extend(["--out".to_owned(), "run".to_owned()]);
        world.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).fails_with(parts);
        assert!(!world.path("run").exists());
    };
    world.file("empty.txt", " \n");
    world.file("binary.txt", b"text\n\0\x01");
    world.file("broken.jsonl", "{\"id\": \"a\", \"text\": \"x\"}\n{\"id\": \"b\"}\n");
    refused("--documents", "empty.txt", &["empty.txt", "the document is empty", "remove it"]);
    refused("--documents", "binary.txt", &["binary.txt", "NUL", "UTF-8"]);
    refused("--documents", "broken.jsonl", &["broken.jsonl", "line 2", "text"]);
    refused("--documents", "absent", &["absent"]);
    let unit = |text: &str| json!({"document": "a.txt", "passage": 1, "unit": text});
    world.file("long.jsonl", lines(&[unit(&"word ".repeat(30))]));
    refused("--units", "long.jsonl", &["long.jsonl:1", "30 words", "--unit-words"]);
    world.file("gold.jsonl", "{\"unit\": \"a.txt/1.1\", \"label\": \"right\"}\n");
    refused("--gold", "gold.jsonl", &["line 1 of", "gold.jsonl", "is not one of correct, incorrect, unrelated"]);
    refused("--encoder", &tiny().display().to_string(), &["encoder"]);
}

/// With trained weights: the model decides the labels, and the common prefix of claims is computed once.
#[test]
fn a_trained_model_decides_claims_and_shares_what_they_have_in_common() {
    let world = World::new();
    let name = "smollm2-135m-instruct";
    let verified = Command::new(env!("CARGO_BIN_EXE_probity")).args(["-q", "model", "verify", name]).status();
    if !verified.expect("started").success() {
        println!("skipped: probity model get {name}");
        return;
    }
    let aius =
        ["It is Jupiter that has the most mass.", "Saturn is wrong.", "Rings weigh little.", "It is well written."];
    let item = |index: usize| {
        json!({"index": index, "question": "Which planet has the most mass?", "response": "Saturn, for its rings.",
            "reference_answer": "Jupiter.", "reference_critique": {"critique": "Jupiter has.", "aius": aius},
            "m_critique": {"critique": "It is Jupiter. Rings weigh little.", "aius": aius,
                "precision_labels": [true, true, true, false], "recall_labels": [true, true, true, false]}})
    };
    world.file("labels.json", Value::from((0..4).map(item).collect::<Vec<_>>()).to_string());
    for verdict in ["label", "generate"] {
        let arguments = [
            "metacritique",
            "--labels",
            "labels.json",
            "--model",
            name,
            "--verdict",
            verdict,
            "--rationale-tokens",
            "48",
            "--limit",
            if verdict == "label" { "4" } else { "1" },
            "--out",
            verdict,
        ];
        let mut command = world.command(&arguments);
        command.env_remove("PROBITY_MODELS");
        command.envs(std::env::var("PROBITY_MODELS").map(|folder| ("PROBITY_MODELS", folder)));
        let ran = Ran::from(command.output().expect("started")).exits(0);
        assert!(ran.stdout.contains("recall: Agreement with human labels on "), "{}", ran.stdout);
        let tables = world.all_tables(verdict);
        assert!(tables.contains("Agreement with human labels of claims"), "{tables}");
    }
    let rows = world.rows("label/precision.jsonl");
    assert_eq!(rows.len(), 16);
    assert!(rows.iter().all(|row| row["p"].is_number() && row["label"].is_boolean()), "{rows:?}");
    assert!(world.rows("generate/precision.jsonl").iter().all(|row| row["rationale"].is_string()));
    let manifest: Value = serde_json::from_str(&world.read("label/manifest.json")).expect("JSON");
    let cost = |field: &str| manifest["cost"][field].as_f64().expect("a number");
    assert!(cost("tokens_computed") < 0.2 * cost("tokens_unshared"), "{}", manifest["cost"]);
}

#[test]
fn metrics_of_revisions_are_compared_with_people_without_a_model() {
    let world = World::new();
    let sample = |k: usize| {
        json!({"id": format!("s{k}"), "context": "the mill burn down", "references": ["The mill burned down."],
            "candidates": [{"id": "a", "text": "the mill burned down"}, {"id": "b", "text": "mill burn"}],
            "preference": "a"})
    };
    let data = world.file("d.jsonl", lines(&(0..4).map(sample).collect::<Vec<_>>()));
    let revision = ["revision", "--data", &data, "--metric", "rouge-l,levenshtein-source", "--out", "run"];
    world.run(&revision).fails_with(&["--model", "probity model list"]);
    world.run(&[&revision[..], &["--no-judge", "--judge", "choice"]].concat()).fails_with(&["--judge"]);
    world.run(&[&revision[..], &["--no-judge"]].concat()).exits(0);
    assert_eq!(world.rows("run/scores.jsonl").len(), 4 * 2 * 2);
    let summary: Value = serde_json::from_str(&world.read("run/summary.json")).expect("JSON");
    let by: Vec<&Value> =
        summary["values"]["alignment"].as_array().expect("a list").iter().map(|one| &one["by"]).collect();
    assert!(by.contains(&&json!("rouge-l")) && !by.contains(&&json!("parapluie")), "{summary}");
    let recipe = "[run.metrics]\nmethod = \"revision\"\nno-judge = true\nmetric = [\"rouge-l\"]\ndata = \
                  \"d.jsonl\"\nout = \"m\"\n";
    world.file("recipe.toml", recipe);
    world.run(&["recipe", "check", "recipe.toml"]).exits(0);
}

#[test]
fn a_study_of_revisions_that_ends_anywhere_goes_on_to_the_same_bytes() {
    let world = World::new();
    let sample = |k: usize| {
        json!({"id": format!("s{k}"), "context": "the mill burn down", "instruction": "correct it",
            "texts": {"categories": "rewriting_light\nconcision", "paragraph": format!("p{}", k / 2)},
            "candidates": [{"id": "a", "text": "the mill burned down"}, {"id": "b", "text": "mill burn"}],
            "references": ["The mill burned down."], "preference": if k.is_multiple_of(2) { "a" } else { "b" }})
    };
    let data = world.file("d.jsonl", lines(&(0..3).map(sample).collect::<Vec<_>>()));
    let model = golden("tiny-flan-t5").display().to_string();
    let arguments = [
        "revision", "--data", &data, "--model", &model, "--judge", "choice,likert-gold,parapluie", "--one-order",
        "--metric", "rouge-l,levenshtein-source",
    ];
    goes_on(&world, &arguments, &["choice", "choice_labels", "likert", "likert_labels", "parapluie"]);
    assert_eq!(world.rows("whole/decisions.jsonl").len() % 3, 0);
    world.run(&["report", "whole", "--html", "whole.html", "--latex", "whole.tex", "--svg", "plots"]).exits(0);
    assert!(world.read("whole.html").contains("Correlation between measures and with edit distances"));
    assert!(world.read("whole.tex").contains("Agreement with people"));
}
