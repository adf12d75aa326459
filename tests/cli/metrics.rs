//! Candidates against references: tables, folders, plain lines, and invalid input.

use serde_json::{Value, json};

use crate::harness::World;

/// Two systems over two samples.
const SAMPLES: &str = r#"{"id": "a", "context": "src a", "candidates": [{"id": "x", "text": "It rained all day, again."}, {"id": "y", "text": ""}], "references": ["It rained all day, again."]}
{"id": "b", "context": "src b", "candidates": [{"id": "x", "text": "The cats sat quietly on the mat."}, {"id": "y", "text": "The cat sat on the mat."}], "references": ["The cat sat on the mat.", "The cats quietly sat on the mat by the door."]}
"#;

fn near(value: &Value, expected: f64) -> bool {
    value.as_f64().is_some_and(|value| (value - expected).abs() < 1e-9)
}

#[test]
fn a_run_writes_rows_summary_and_manifest() {
    let world = World::new();
    let data = world.file("d.jsonl", SAMPLES);
    let ran = world.run(&["metrics", "--metric", "bleu,rouge-l:stem=yes", "--data", &data, "--out", "run"]).exits(0);
    assert!(ran.stdout.contains("4 candidates of 2 samples"), "{}", ran.stdout);
    // A column for each candidate id.
    let columns = ["metric", "all", "mean", "undefined", "x", "y"];
    assert!(ran.stdout.lines().any(|line| line.split_whitespace().eq(columns)), "{}", ran.stdout);
    assert!(ran.stdout.contains("bleu|nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:"), "{}", ran.stdout);
    let mut first = ran.stdout.lines();
    assert!(first.next().is_some_and(|line| line.starts_with("bleu, rouge-l:stem=yes: x and y tie: each wins ")));
    assert!(first.next().is_some_and(|line| line == "CAUTION: they tie"));
    let rows = world.rows("run/scores.jsonl");
    assert_eq!(rows.len(), 4 * (1 + 3));
    assert_eq!(
        rows[1],
        json!({"item": "a", "candidate": "y", "index": 1, "metric": "bleu", "score": 0.0, "outcome": "scored"})
    );
    assert!(near(&rows[2]["score"], 44.179_182_268_315_76), "{}", rows[2]);
    let labels: Vec<&str> = rows[4..7].iter().map(|row| row["metric"].as_str().expect("a text")).collect();
    assert_eq!(labels, ["rouge-l:stem=yes", "rouge-l:stem=yes.precision", "rouge-l:stem=yes.recall"]);
    let summary: Value = serde_json::from_str(&world.read("run/summary.json")).expect("JSON");
    let bleu = &summary["values"]["metrics"][0];
    // sacrebleu 2.6.0 over the two texts of x.
    assert!(
        near(&bleu["systems"]["x"], 72.214_161_744_468_1) && bleu["systems"]["y"].as_f64() < bleu["corpus"].as_f64(),
        "{bleu}"
    );
    assert!(bleu["item_signature"].as_str().is_some_and(|signature| signature.contains("|eff:yes|")), "{bleu}");
    assert_eq!(summary["outcomes"], json!({"scored": 16}));
    let about: Vec<&Value> = summary["verdict"].as_array().expect("a list").iter().map(|one| &one["about"]).collect();
    assert_eq!(about, ["bleu", "rouge-l:stem=yes"]);
    let rouge = &summary["values"]["metrics"][1];
    assert_eq!(rouge["corpus"], rouge["mean"]);
    let manifest: Value = serde_json::from_str(&world.read("run/manifest.json")).expect("JSON");
    assert_eq!((&manifest["status"], &manifest["command"]), (&json!("finished"), &json!("metrics")));
    let in_force = &manifest["arguments_in_force"];
    assert_eq!(
        (&in_force["method"]["metrics"]["bleu"]["smooth"], &in_force["data"]["samples"]),
        (&json!("exp"), &json!(2))
    );
    world.run(&["metrics", "--metric", "bleu", "--data", &data, "--out", "run"]).fails_with(&["--overwrite"]);
    world.run(&["metrics", "--metric", "ter", "--data", &data, "--out", "run", "--overwrite"]).exits(0);
    assert_eq!(world.rows("run/scores.jsonl").len(), 4);
}

#[test]
fn without_a_folder_the_table_or_json_is_printed() {
    let world = World::new();
    let data = world.file("d.csv", "context,candidate,reference\ns,the cat sat,the cat sat\n");
    let table = world.run(&["metrics", "--metric", "chrf:word-order=2,ter", "--data", &data, "-q"]).exits(0);
    assert!(
        table.stderr.is_empty() && table.stdout.contains("chrf:word-order=2   100.0000   100.0000           0"),
        "{}\n{}",
        table.stdout,
        table.stderr
    );
    let json = world.run(&["metrics", "--metric", "ter", "--data", &data, "-q", "--json"]).exits(0);
    let summary: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let values = &summary["values"];
    assert_eq!((&values["metrics"][0]["corpus"], &values["candidates"]), (&json!(0.0), &json!(1)));
}

#[test]
fn plain_lines_are_scored_as_sacrebleu_reads_them() {
    let world = World::new();
    world.file("x.txt", "It rained all day, again.\r\nThe cats sat quietly on the mat.\n");
    world.file("y.txt", "\nThe cat sat on the mat.\n");
    world.file("r1.txt", "It rained all day, again.\nThe cat sat on the mat.\n");
    world.file("r2.txt", "\nThe cats quietly sat on the mat by the door.\n");
    world.file("short.txt", "one\n");
    let lines = ["metrics", "--metric", "ter", "--hypotheses", "x.txt", "y.txt", "--references"];
    let ran = world.run(&[&lines[..], &["r1.txt", "r2.txt", "--json", "-q"]].concat()).exits(0);
    let summary: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    // 2 edits over the mean lengths of references, (5 + 0) / 2 and (6 + 10) / 2.
    assert!(near(&summary["values"]["metrics"][0]["systems"]["x.txt"], 400.0 / 21.0), "{summary}");
    world.run(&[&lines[..], &["r1.txt", "short.txt"]].concat()).fails_with(&[
        "the files have different numbers of lines", "x.txt has 2 lines", "short.txt has 1 line\n",
        "line N of each file",
    ]);
    world.run(&lines[..5]).fails_with(&["ter needs --references", "with one line for each line of x.txt"]);
}

/// In every file of lines.
fn utf_16_has_a_hint() {
    let world = World::new();
    let plain = world.file("plain.txt", "the cat\n");
    let utf_16: Vec<u8> = "\u{feff}the cat\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let wide = world.path("wide.txt");
    std::fs::write(&wide, utf_16).expect("written");
    let wide = wide.display().to_string();
    for [hypotheses, references, sources] in [[&wide, &plain, &plain], [&plain, &wide, &plain], [&plain, &plain, &wide]]
    {
        let files = ["--hypotheses", hypotheses, "--references", references, "--sources", sources];
        let told = ["wide.txt cannot be read: it is UTF-16 text", "iconv -f UTF-16 -t UTF-8"];
        world.run(&[&["metrics", "--metric", "sari-hf"][..], &files].concat()).fails_with(&told);
    }
}

#[test]
fn byte_order_marks_are_no_part_of_lines() {
    utf_16_has_a_hint();
    let world = World::new();
    let text = "The ferry left the harbour at noon.";
    for (hypotheses, references) in [("\u{feff}", ""), ("", "\u{feff}"), ("\u{feff}", "\u{feff}"), ("", "")] {
        world.file("h.txt", format!("{hypotheses}{text}\n"));
        world.file("r.txt", format!("{references}{text}\n"));
        let metrics = ["metrics", "--metric", "bleu", "--hypotheses", "h.txt", "--references", "r.txt", "--json", "-q"];
        let summary: Value = serde_json::from_str(&world.run(&metrics).exits(0).stdout).expect("JSON");
        assert!(near(&summary["values"]["metrics"][0]["corpus"], 100.0), "{summary}");
    }
}

#[test]
fn a_number_that_says_less_than_it_seems_to_has_a_note() {
    let world = World::new();
    world.file("short.txt", "Blue Harbor\n");
    world.file("blank.txt", "\n");
    world.file("zh.txt", "会议改到周二\n");
    let scored = |metric: &str, hypotheses: &str, references: &str| {
        let lines = ["metrics", "--metric", metric, "--hypotheses", hypotheses, "--references", references, "-q"];
        world.run(&lines).exits(0).stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let shown = scored("bleu", "short.txt", "short.txt");
    assert!(shown.contains("bleu 0.0000 100.0000 0 "), "{shown}");
    assert!(shown.contains("bleu, all: no candidate has as many words as the longest n-grams"), "{shown}");
    assert!(shown.contains("bleu, 1 candidate: the candidate has fewer words"), "{shown}");
    let shown = scored("bleu", "short.txt", "blank.txt");
    assert!(shown.contains("bleu 0.0000 0.0000 0 ") && shown.contains("all references are blank"), "{shown}");
    let shown = scored("ter", "blank.txt", "blank.txt");
    assert!(shown.contains("ter 0.0000 0.0000 0 "), "{shown}");
    assert!(shown.contains("ter, all and 1 candidate: the candidate and all references are blank"), "{shown}");
    let shown = scored("rouge-l,rouge-l:tok=unicode", "zh.txt", "zh.txt");
    assert!(shown.contains("rouge-l – – 1 ") && shown.contains("rouge-l:tok=unicode 1.0000 1.0000 0 "), "{shown}");
    assert!(shown.contains("|tok:unicode|") && shown.contains("tok=rouge reads no others"), "{shown}");
}

#[test]
fn what_metrics_say_alike_is_printed_once_and_no_gold_is_an_option() {
    let world = World::new();
    let data = world.file(
        "d.jsonl",
        "{\"id\": \"a\", \"context\": \"c\", \"preference\": \"1\", \"references\": \
                                      [\"the cat\"], \
                                      \"candidates\": [{\"id\": \"1\", \"text\": \"the cat\"}, {\"id\": \"2\", \
                                      \"text\": \"a dog\"}]}\n",
    );
    let lines = world.file("h.txt", "the cat sat\nthe dog\n");
    let ran = world
        .run(&["metrics", "--metric", "bleu,ter,rouge-l", "--hypotheses", &lines, "--references", &lines, "-q"])
        .exits(0);
    let first: Vec<&str> = ran.stdout.lines().take(2).collect();
    assert_eq!(
        first,
        [
            "bleu, ter, rouge-l: 2 of 2 candidates scored, in 2 samples; no sample has two to compare",
            "CAUTION: the scores were not compared with gold"
        ],
        "{}",
        ran.stdout
    );
    assert_eq!(ran.stdout.matches("CAUTION").count(), 1, "{}", ran.stdout);
    let asked = ["metrics", "--metric", "ter", "--data", &data, "-q", "--out", "run"];
    let with = world.run(&asked).exits(0).stdout;
    let without = world.run(&[&asked[..], &["--resume", "--no-gold"]].concat()).exits(0).stdout;
    assert!(with.contains("your 1 label") && !without.contains("label"), "{with}\n{without}");
}

#[test]
fn a_context_is_needed_by_those_metrics_alone_that_compare_with_it() {
    let world = World::new();
    let data = world.file("d.csv", "candidate,reference\nthe cat sat,the cat sat\n");
    let metrics = |metric: &str, more: &[&str]| {
        world.run(&[&["metrics", "--metric", metric, "--data", &data, "-q"], more].concat())
    };
    metrics("ter", &[]).exits(0);
    metrics("sari-hf", &[]).fails_with(&[
        "no column is mapped to the context", "--map context=COLUMN, or --map context:= for none",
        "the columns are `candidate`, `reference`",
    ]);
    let shown = metrics("ter", &["--map", "context:="]).exits(0).stdout;
    assert!(shown.split_whitespace().collect::<Vec<_>>().join(" ").contains("ter 0.0000 0.0000 0 "), "{shown}");
    metrics("sari-hf,ter", &["--map", "context:="]).fails_with(&["sari-hf needs a source"]);
    let own = r#"{"id": "c", "candidates": [{"id": "x", "text": "t"}], "references": ["t"]}"#;
    let own = world.file("own.jsonl", own);
    world.run(&["metrics", "--metric", "ter", "--data", &own, "-q"]).exits(0);
}

#[test]
fn what_a_sample_lacks_is_undefined_and_what_all_lack_is_told() {
    let world = World::new();
    let bare = r#"{"id": "c", "context": "", "candidates": [{"id": "x", "text": "t"}]}"#;
    let data = world.file("d.jsonl", format!("{SAMPLES}{bare}\n"));
    let shown = world.run(&["metrics", "--metric", "ter,sari-hf", "--data", &data, "-q"]).exits(0).stdout;
    assert!(shown.contains("the sample has no reference"), "{shown}");
    world.run(&["metrics", "--metric", "ter", "--data", &data, "-q", "--strict"]).exits(1);
    let data = world.file("bare.jsonl", bare);
    world.run(&["metrics", "--metric", "bleu", "--data", &data]).fails_with(&[
        "bleu needs a reference for each item; sample `c` has none",
        "hint: give each sample a list `references` with at least one text",
    ]);
    let none = world.file("e.jsonl", r#"{"id": "c", "context": "", "candidates": [], "references": ["r"]}"#);
    world.run(&["metrics", "--metric", "bleu", "--data", &none]).fails_with(&["field `candidates`: no candidates"]);
}

#[test]
fn metrics_and_options_that_are_not_there_suggest_the_nearest() {
    let world = World::new();
    let data = world.file("d.jsonl", SAMPLES);
    let fails =
        |metric: &str, parts: &[&str]| world.run(&["metrics", "--metric", metric, "--data", &data]).fails_with(parts);
    fails("blue", &["there is no metric `blue`; did you mean `bleu`?", "hint: the metrics are bleu, chrf"]);
    fails("bleu:tokk=intl", &["unknown option `tokk`; did you mean `tok`?"]);
    fails("rouge-l:\u{1b}[2J=1", &["`\\u{1b}[2J`"]);
    world.run(&["metrics", "--data", &data]).fails_with(&["--metric"]);
    world.run(&["metrics", "--metric", "bleu"]).fails_with(&["--data"]);
}

#[test]
fn the_list_has_every_metric_with_its_options() {
    let list = World::new().run(&["metrics", "--list"]).exits(0).stdout;
    for part in [
        "\nbleu\n", "\nrouge-lsum\n", "tok=13a|intl|char|zh|none [13a]", "stem=yes|no",
        "also reports: precision, recall",
    ] {
        assert!(format!("\n{list}").contains(part), "{part}\n{list}");
    }
}
