//! `probity report` on a run of the binary.

use serde_json::{Value, json};

use crate::harness::{World, tiny};

const DATA: &str = r#"{"id":"s1","context":"The ferry is late.","candidates":[{"id":"a","text":"It is late.","scores":{"quality":3}},{"id":"b","text":"<b>late</b>","scores":{"quality":1}},{"id":"c","text":"=1+1","scores":{"quality":2}}]}
{"id":"s2","context":"Bees left.","candidates":[{"id":"a","text":"Bees.","scores":{"quality":1}},{"id":"b","text":"They left.","scores":{"quality":2}},{"id":"c","text":"No.","scores":{"quality":3}}]}
"#;

/// A world with a finished run in `run`.
fn judged() -> World {
    let world = World::new();
    let data = world.file("data.jsonl", DATA);
    let (tiny, run) = (tiny().display().to_string(), world.path("run").display().to_string());
    world.run(&["compare", "--model", &tiny, "--data", &data, "--attribute", "quality", "--out", &run]).exits(0);
    world
}

#[test]
fn every_form_is_written_and_a_second_time_with_the_same_bytes() {
    let world = judged();
    let run = world.path("run").display().to_string();
    let write = || {
        let paths = ["page.html", "tables.json", "tables.md", "tables.tex", "csv", "svg"]
            .map(|name| world.path(name).display().to_string());
        let [html, json, markdown, latex, csv, svg] = &paths;
        let arguments = [
            "report", &run, "--html", html, "--json", json, "--markdown", markdown, "--latex", latex, "--csv", csv,
            "--svg", svg, "--rounds", "50",
        ];
        let ran = world.run(&arguments).exits(0);
        assert!(ran.stdout.is_empty() && ran.stderr.contains("page.html"), "{}", ran.stderr);
        ["page.html", "tables.json", "tables.md", "tables.tex", "csv/run1-figures.csv", "svg/run1-gold-0.svg"]
            .map(|name| world.read(name))
    };
    let first = write();
    assert_eq!(first, write());
    let [html, json, markdown, latex, csv, svg] = first;
    assert!(
        html.starts_with("<!DOCTYPE html>") && html.contains("Content-Security-Policy") && !html.contains("<b>late")
    );
    let tables: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(
        tables.as_array().is_some_and(|tables| tables.iter().any(|table| table["id"] == "run1-section-0")),
        "the method's own tables too"
    );
    assert!(
        markdown.contains("| quality | Spearman per context |")
            && latex.contains("\\toprule")
            && csv.starts_with("attribute,measure,value")
    );
    assert!(svg.starts_with("<svg xmlns="));
}

#[test]
fn metrics_are_reported_with_their_verdict_and_one_by_one() {
    let world = World::new();
    let data = DATA.replace("\"candidates\"", "\"references\":[\"It is late.\"],\"candidates\"");
    let data = world.file("data.jsonl", data);
    world.run(&["metrics", "--metric", "ter,rouge-1", "--data", &data, "--out", "run"]).exits(0);
    let ran = world.run(&["report", "run"]).exits(0);
    for part in [
        "Conclusion", "None of 2 metrics agrees with people beyond chance", " rouge-1.recall ", "Lower is better",
        ": ter.", " quality, ter ", "Spearman per context",
    ] {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
    world.run(&["report", "run", "--html", "page.html"]).exits(0);
    let page = world.read("page.html");
    for part in ["class=\"verdict ", "Scores by candidate, ter", "2 samples · 24 scores"] {
        assert!(page.contains(part), "{part}");
    }
}

/// Fourteen samples in reverse order of their ids; in some, three of four candidates are equal.
fn with_gold() -> String {
    let words: Vec<&str> = "bees left the hive early because rain came late and ferry crews slept".split(' ').collect();
    let text = |start: usize, step: usize, length: usize| {
        (0..length).map(|j| words[(start + j * step) % words.len()]).collect::<Vec<_>>().join(" ")
    };
    let sample = |k: usize| {
        let candidate = |(n, id): (usize, char)| {
            let same = k.is_multiple_of(4) && n < 3;
            let text = if same { "the same words".to_owned() } else { text(k, n + 1, 6 - n % 2) };
            json!({"id": id, "text": text, "scores": {"quality": (n * 3 + k) % 5}})
        };
        let candidates: Vec<Value> = "abcd".chars().enumerate().map(candidate).collect();
        json!({"id": format!("s{}", 99 - k), "context": "x", "references": [text(k, 1, 6)], "candidates": candidates,
               "preference": "abcd"[k % 4..][..1]})
        .to_string()
    };
    (0..14).map(sample).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn a_page_has_the_figures_of_the_terminal_bit_for_bit() {
    let world = World::new();
    let data = world.file("data.jsonl", with_gold());
    world.run(&["metrics", "--metric", "ter,rouge-1", "--data", &data, "--out", "run"]).exits(0);
    world.run(&["meta", "--scores", "run", "--out", "meta"]).exits(0);
    let parse = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
    let values = parse(&world.read("meta/summary.json"))["values"].clone();
    let tables = parse(&world.run(&["report", "run", "--json", "-"]).exits(0).stdout);
    let mut tables = tables.as_array().expect("a list").iter();
    let figures = tables.find(|table| table["id"] == "run1-figures").expect("figures")["rows"].clone();
    let shown = |name: &str, measure: &str| -> Value {
        let mut rows = figures.as_array().expect("a list").iter();
        rows.find(|row| row[0] == *name && row[1] == measure).unwrap_or_else(|| panic!("{name} {measure}"))[2].clone()
    };
    let cell =
        |value: &Value, interval: &Value| json!({"value": value, "low": interval["low"], "high": interval["high"]});
    let of_metric = |list: &Value, metric: &str| -> Value {
        list.as_array().expect("a list").iter().find(|one| one["metric"] == metric).expect("the metric").clone()
    };
    for metric in ["ter", "rouge-1"] {
        let (found, name) = (of_metric(&values["metrics"], metric), format!("quality, {metric}"));
        let spearman = &found["spearman"];
        assert_eq!(shown(&name, "Spearman per context"), cell(&spearman["mean"], &spearman["interval"]));
        assert_eq!(shown(&name, "pairwise accuracy")["value"], found["pairwise"]["accuracy"]);
        let pooled = &spearman["pooled"];
        assert_eq!(shown(&name, "Spearman, pooled"), cell(&pooled["coefficient"], &pooled["interval"]));
        assert_eq!(shown(&name, "Spearman of systems"), spearman["system"]["coefficient"]);
        let preference = of_metric(&values["preferences"], metric);
        assert_eq!(shown(metric, "preference accuracy"), cell(&preference["accuracy"], &preference["interval"]));
    }
}

#[test]
fn without_an_output_the_tables_are_printed() {
    let world = judged();
    let run = world.path("run").display().to_string();
    let ran = world.run(&["report", &run, &run]).exits(0);
    for part in ["Runs", "Differences between runs", "Figures", "Spearman per context", "Outcomes", "Position and mass"]
    {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
    assert!(ran.stdout.contains("run (2)"), "the same folder twice has two names");
}

#[test]
fn an_output_called_by_a_dash_is_standard_output() {
    let world = judged();
    for option in ["--html", "--json", "--markdown", "--latex"] {
        let out = option.trim_start_matches('-');
        world.run(&["report", "run", option, out]).exits(0);
        let ran = world.run(&["report", "run", option, "-"]).exits(0);
        assert!(ran.stdout == world.read(out) && !world.path("-").exists(), "{option}");
    }
    for option in ["--csv", "--svg"] {
        world
            .run(&["report", "run", option, "-"])
            .fails_with(&["several files, which cannot go to standard output", "hint: give a folder"]);
        assert!(!world.path("-").exists());
    }
}

#[test]
fn a_folder_that_is_no_run_is_an_error_that_says_what_to_give() {
    let world = World::new();
    let folder = world.path(".").display().to_string();
    world
        .run(&["report", &folder])
        .fails_with(&["holds no probity run", "hint: give the folder that a run's --out named"]);
}

#[test]
fn a_page_takes_no_other_files_place() {
    let world = judged();
    let run = "run";
    world.file("mine.txt", "my own notes");
    for (output, why) in [
        ([run, "/scores.jsonl"].concat(), "belongs to a run"),
        ([run, "/manifest.json"].concat(), "belongs to a run"),
        ("mine.txt".to_owned(), "is there already and is no page"),
    ] {
        let before = world.read(&output);
        world.run(&["report", run, "--html", &output]).fails_with(&[why]);
        assert_eq!(world.read(&output), before, "{output}");
    }
    for (option, name, kind) in
        [("--json", "p.jsonl", "JSON"), ("--markdown", "p.md", "Markdown"), ("--latex", "p.tex", "LaTeX")]
    {
        world.file(name, "{\"id\": 1}\n");
        world.run(&["report", run, option, name]).fails_with(&["is there already and is no ", kind]);
        assert_eq!(world.read(name), "{\"id\": 1}\n");
    }
    world
        .run(&["report", run, "--json", "one", "--latex", "./one"])
        .fails_with(&["--json and --latex name the same file"]);
    for _ in 0..2 {
        let all = ["--html", "page.html", "--json", "own.json", "--markdown", "own.md", "--latex", "own.tex"];
        world.run(&[&["report", run][..], &all].concat()).exits(0);
    }
}

#[test]
fn a_manifest_that_was_changed_is_told_and_one_with_a_key_twice_refused() {
    let world = judged();
    let manifest = world.read("run/manifest.json");
    let told = "Its manifest was changed after the run;";
    assert!(!world.run(&["report", "run", "--html", "page.html"]).exits(0).stderr.contains(told));
    world.file("run/manifest.json", manifest.replace("\"finished\": \"2", "\"finished\": \"3"));
    let ran = world.run(&["report", "run", "--html", "page.html"]).exits(0);
    assert!(ran.stderr.contains(told) && world.read("page.html").contains(told), "{}", ran.stderr);
    world.file("run/manifest.json", manifest.replacen('{', "{\"status\": \"running\",", 1));
    world.run(&["report", "run"]).fails_with(&["duplicate key `status`"]);
}

#[test]
fn an_output_does_not_replace_what_it_is_made_from() {
    let world = World::new();
    let line = "{\"id\": \"1\", \"prompt\": \"the cat\", \"max_tokens\": 2}\n";
    world.file("asked.jsonl", line);
    for option in ["--out", "--manifest"] {
        let model = tiny().display().to_string();
        let words = ["generate", "--model", &model, "--input", "asked.jsonl", option, "./asked.jsonl", "--overwrite"];
        world.run(&words).fails_with(&["would be overwritten by the output"]);
        assert_eq!(world.read("asked.jsonl"), line);
    }
    let sample = "{\"id\": \"1\", \"context\": \"\", \"candidates\": [{\"id\": \"a\", \"text\": \"b\"}]}\n";
    world.file("own.jsonl", sample);
    world.run(&["data", "convert", "own.jsonl", "--out", "own.jsonl"]).fails_with(&["would be overwritten"]);
    assert_eq!(world.read("own.jsonl"), sample);
}
