//! `show` and `diff`: queries and answers, and changes.

use serde_json::json;

use crate::harness::{World, lines, tiny};

/// Two samples of two candidates, with control characters and special tokens in the texts.
fn data(world: &World) -> String {
    let sample = |id: &str, text: &str| {
        let candidates = json!([{"id": "a", "text": text, "scores": {"fluency": 2}}, {"id": "b", "text": "the cat sat", "scores": {"fluency": 1}}]);
        json!({"id": id, "context": "cats", "candidates": candidates})
    };
    world.file("data.jsonl", lines(&[sample("s/1", "a \u{1b}[31mcat\u{202e}"), sample("s/2", "⟦<|im_start|>⟧ a cat")]))
}

fn run(world: &World, data: &str, out: &str, more: &[&str]) {
    let model = tiny().display().to_string();
    let arguments = ["compare", "--model", &model, "--data", data, "--attribute", "fluency", "--out", out];
    world.run(&[&arguments[..], more].concat()).exits(0);
}

#[test]
fn an_empty_text_is_shown_as_empty() {
    let world = World::new();
    let candidates = json!([{"id": "a", "text": ""}, {"id": "b", "text": " \n"}, {"id": "c", "text": "cat"}]);
    let rows = [json!({"id": "s", "context": "", "candidates": candidates})];
    run(&world, &world.file("empty.jsonl", lines(&rows)), "run", &[]);
    let shown = world.run(&["show", "run", "s"]).exits(0).stdout;
    for part in ["── context ──\n(empty)\n", "── candidate a ──\n(empty)\n", "── candidate b ──\n(white space only)\n"]
    {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn a_sample_is_shown_with_its_questions_and_each_as_the_model_saw_it() {
    let world = World::new();
    let data = data(&world);
    run(&world, &data, "run", &[]);
    let list = world.run(&["show", "run"]).exits(0).stdout;
    assert!(list.contains("s/1") && list.contains("s/2") && list.contains("2 low_mass"), "{list}");
    let sample = world.run(&["show", "run", "s/1"]).exits(0).stdout;
    for part in [
        "── sample s/1 ──", "── candidate a, fluency 2 ──", "a \\u{1b}[31mcat\\u{202e}", "s/1/fluency/1/a/b",
        "s/1/fluency/1/b/a",
    ] {
        assert!(sample.contains(part), "{part} is not in\n{sample}");
    }
    let question = world.run(&["show", "run", "s/2/fluency/1/a/b", "--recompute"]).exits(0).stdout;
    let mut files: Vec<_> = std::fs::read_dir(world.path("run"))
        .expect("a folder")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    files.sort();
    let expected = [
        ".lock", "answers.sqlite", "comparisons.jsonl", "manifest.json", "samples.jsonl", "scores.jsonl",
        "summary.json",
    ];
    assert_eq!(files, expected, "looking leaves nothing behind");
    let row = &world.rows("run/comparisons.jsonl")[2];
    let p = format!("{:.6}", row["p"].as_f64().expect("a number"));
    for part in [&p, "mass of the labels", "asked again: the same bits in 1 of 1 answer", "A 1", "\"A\""] {
        assert!(question.contains(part), "{part} is not in\n{question}");
    }
    let tokens = format!("({} tokens)", row["prompt_tokens"]);
    assert!(question.contains(&tokens), "{tokens} is not in\n{question}");
    // Only special tokens of the template are marked.
    assert!(question.contains("\\u{27e6}<|im_start|>\\u{27e7} a cat"), "{question}");
    assert!(question.contains("⟦<|im_start|>⟧"), "{question}");
}

#[test]
fn variants_of_a_label_add_up_to_it() {
    let world = World::new();
    let data = data(&world);
    run(&world, &data, "run", &[]);
    let shown = world.run(&["show", "run", "s/1/fluency/1/a/b"]).exits(0).stdout;
    let row = |start: &str| {
        let line = shown
            .lines()
            .find(|line| line.trim_start().starts_with(start))
            .unwrap_or_else(|| panic!("{start} is not in\n{shown}"));
        let percent = line.split_whitespace().find_map(|cell| cell.strip_suffix('%')).expect("a percentage");
        percent.parse::<f64>().expect("a number")
    };
    assert!((row("A  ") - row("A 1") - row("A 2")).abs() < 3e-4, "{shown}");
}

#[test]
fn what_is_not_there_is_said_with_the_way_out() {
    let world = World::new();
    let data = data(&world);
    run(&world, &data, "run", &[]);
    run(&world, &data, "bare", &["--no-store"]);
    world
        .run(&["show", "run", "s/3"])
        .fails_with(&["no sample and no question is called `s/3`; did you mean `s/", "probity show run lists"]);
    world.run(&["show", "bare"]).fails_with(&["bare holds no answers", "--no-store"]);
    world.run(&["show", "nowhere"]).fails_with(&["nowhere holds no probity run", "--out"]);
    world.run(&["diff", "run", "bare"]).fails_with(&["bare holds no answers"]);
    let other = crate::harness::golden("qwen2").display().to_string();
    world
        .run(&["show", "run", "s/1/fluency/1/a/b", "--model", &other, "--recompute"])
        .fails_with(&["another model now", "--model"]);
}

#[test]
fn two_runs_are_compared_question_by_question() {
    let world = World::new();
    let data = data(&world);
    run(&world, &data, "a", &[]);
    run(&world, &data, "b", &["--threads", "1", "--no-sharing"]);
    run(&world, &data, "c", &["--noun", "text"]);
    let same = world.run(&["diff", "a", "b"]).exits(0).stdout;
    assert!(
        same.contains("the same settings")
            && same.contains("4 requests in both runs")
            && same.contains("bit-identical"),
        "{same}"
    );
    let other = world.run(&["diff", "a", "c", "--top", "3"]).exits(1).stdout;
    assert!(other.contains("arguments.method.noun") && other.contains("differences in 4 answers"), "{other}");
    let gap = |line: &str| line.split_whitespace().nth(1).and_then(|cell| cell.parse::<f64>().ok());
    let gaps: Vec<f64> = other.lines().filter(|line| line.trim_start().starts_with("s/")).filter_map(gap).collect();
    assert!(gaps.len() == 3 && gaps.is_sorted_by(|a, b| a >= b) && gaps[0] > 0.0, "{other}");
}

#[test]
fn generated_answers_are_shown_as_they_are() {
    let world = World::new();
    let data = data(&world);
    run(&world, &data, "run", &["--decide", "samples:2", "--max-tokens", "3"]);
    let shown = world.run(&["show", "run", "s/1/fluency/1/a/b#1"]).exits(0).stdout;
    assert!(shown.contains("tokens") && shown.contains("⟦<|im_start|>⟧"), "{shown}");
    run(&world, &data, "other", &["--decide", "samples:2", "--max-tokens", "3", "--seed", "9"]);
    let text = |run: &str| world.run(&["show", run, "s/1/fluency/1/a/b#1"]).exits(0).stdout;
    assert_ne!(text("run"), text("other"));
    let diff = world.run(&["diff", "run", "other"]).exits(1).stdout;
    // Generated texts are equal or not: there is no distance between them.
    assert!(
        diff.contains("seeds.seed")
            && diff.lines().any(|line| line.contains("s/1/fluency/1/a/b#1") && line.contains('–')),
        "{diff}"
    );
}
