//! Reports of synthetic runs: contents of the page, escaping, and exported formats.

mod synthetic;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use miette::Diagnostic as _;
use probity_analysis::plot::{BiasEstimate, Drawing, LineAxis, Plot, Point, Series};
use probity_analysis::{Cell, Table};
use probity_report::{Options, ReportError, ReportedRun, RunReport, csv, latex, markdown};
use probity_stats::Resampling;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use synthetic::{HOSTILE, Shape};

const SMALL: Shape = Shape { samples: 7, candidates: 4, hostile: false, words: 60, answers: true };

fn made(shape: Shape) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("run");
    shape.write(&path).expect("made");
    (folder, path)
}

fn options() -> Options {
    Options { resampling: Resampling { rounds: 200, ..Resampling::default() }, ..Options::default() }
}

fn report(paths: &[&PathBuf]) -> RunReport {
    let runs = paths.iter().map(|path| ReportedRun::open(path).expect("a run")).collect();
    RunReport::new(runs, options()).expect("readable")
}

fn page(report: &RunReport) -> String {
    let mut bytes = Vec::new();
    report.write_html(&mut bytes).expect("written");
    String::from_utf8(bytes).expect("UTF-8")
}

/// JSON of a block of the page.
fn block(page: &str, id: &str) -> Value {
    let (_, rest) = page.split_once(&format!("<script type=\"application/gzip\" id=\"{id}\">")).expect("there");
    let packed = STANDARD.decode(rest.split_once('<').expect("ended").0).expect("base64");
    let mut text = String::new();
    GzDecoder::new(packed.as_slice()).read_to_string(&mut text).expect("gzip");
    serde_json::from_str(&text).expect("JSON")
}

fn table<'a>(report: &'a RunReport, id: &str) -> &'a Table {
    report.tables().find(|table| table.id == id).unwrap_or_else(|| panic!("{id}"))
}

/// A number with three decimals.
fn number(value: f64) -> Cell {
    Cell::Number { value, decimals: 3 }
}

fn value(table: &Table, measure: &str) -> Cell {
    table.rows.iter().find(|row| row[1] == Cell::Text(measure.into())).unwrap_or_else(|| panic!("{measure}"))[2].clone()
}

#[test]
fn a_page_is_the_same_bytes_each_time() {
    let (_folder, path) = made(SMALL);
    assert_eq!(page(&report(&[&path])), page(&report(&[&path])));
}

#[test]
fn the_policy_allows_the_pages_own_script_and_style_and_nothing_else() {
    let (_folder, path) = made(Shape { hostile: true, ..SMALL });
    let page = page(&report(&[&path]));
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())));
    let inside = |open: &str, close: &str| {
        page.rsplit_once(open).expect("opened").1.split_once(close).expect("closed").0.to_owned()
    };
    let policy = inside("Content-Security-Policy\" content=\"", "\">");
    let expected = format!(
        "default-src 'none'; style-src {}; script-src {}; img-src 'none'; base-uri 'none'; form-action 'none'",
        hash(&inside("<style>", "</style>")),
        hash(&inside("<script>", "</script>"))
    );
    assert_eq!(policy, expected);
}

#[test]
fn hostile_texts_reach_the_page_as_text() {
    let (_folder, path) = made(Shape { hostile: true, ..SMALL });
    let page = page(&report(&[&path]));
    for text in HOSTILE.iter().filter(|text| text.contains('<')) {
        assert!(!page.contains(text), "{text}");
    }
    let blocks = page.matches("<script type=\"application/gzip\"").count();
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (blocks + 1, blocks + 1));
    assert_eq!((page.matches("<style").count(), page.matches("<body").count()), (1, 1));
    let escaped_attributes = page.matches("onerror=&quot;").count() + page.matches("onmouseover='window").count();
    assert!(escaped_attributes > 0 && !page.contains("onerror=\""), "attributes are closed by no other text");
    for tag in ["<img", "<iframe", "<a href=\"java", "<form action"] {
        assert!(!page.contains(tag), "{tag}");
    }
    let hostile = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200b}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    assert_eq!(page.find(hostile), None);
}

#[test]
fn plots_of_hostile_runs_are_files_that_hold_nothing_but_a_drawing() {
    let (_folder, path) = made(Shape { hostile: true, ..SMALL });
    let report = report(&[&path]);
    assert!(report.figures().count() > 5);
    for figure in report.figures() {
        let svg = figure.standalone();
        assert!(figure.id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{}", figure.id);
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        assert_eq!(
            (svg.matches("<script").count(), svg.matches("<svg").count(), svg.matches("<style").count()),
            (0, 1, 1),
            "{svg}"
        );
        assert!(!svg.chars().any(|c| c.is_control() && c != '\n'));
        // All elements are closed: XML needs nothing more.
        let opened = svg.match_indices('<').filter(|(at, _)| !svg[at + 1..].starts_with('/')).count();
        assert_eq!(opened, svg.matches("</").count(), "{svg}");
    }
}

#[test]
fn a_sample_comes_back_with_its_texts_prompts_and_answers_verbatim() {
    for hostile in [false, true] {
        let (_folder, path) = made(Shape { hostile, ..SMALL });
        let page = page(&report(&[&path]));
        let samples: Vec<Value> = fs::read_to_string(path.join("samples.jsonl"))
            .expect("there")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let (texts, details, index) = (block(&page, "t0"), block(&page, "d0"), block(&page, "index"));
        for (number, sample) in samples.iter().enumerate() {
            let (text, detail) = (&texts[number], &details[number]);
            assert_eq!(
                (&index["columns"]["id"][number], &text["c"], &text["r"]),
                (&sample["id"], &sample["context"], &sample["references"])
            );
            for (k, candidate) in sample["candidates"].as_array().expect("list").iter().enumerate() {
                assert_eq!(
                    (&text["k"][k][0], &text["k"][k][1], &text["k"][k][2]),
                    (&candidate["id"], &candidate["text"], &candidate["scores"])
                );
            }
            let asked = if number == 0 { 13 } else { 12 };
            assert_eq!(detail["asked"], asked);
            let first = &detail["requests"][0];
            let lines = first[1][0][1].as_array().expect("lines");
            let prompt: Vec<&str> = lines
                .iter()
                .map(|at| detail["lines"][at.as_u64().expect("a number") as usize].as_str().expect("text"))
                .collect();
            let prompt = prompt.join("\n");
            assert!(
                prompt.contains(sample["context"].as_str().expect("text")) && prompt.ends_with("Answer A or B."),
                "{prompt}"
            );
            assert_eq!(first[2]["answer"]["labels"]["mass"], 0.9);
        }
        assert_eq!(texts[0]["o"].as_array().map(Vec::len), Some(1), "a written answer is searched too");
    }
}

#[test]
fn a_page_of_fewer_samples_says_so_and_figures_are_over_all() {
    let (_folder, path) = made(Shape { samples: 250, candidates: 2, ..SMALL });
    let runs = vec![ReportedRun::open(&path).expect("a run")];
    let report = RunReport::new(runs, Options { samples: 120, ..options() }).expect("readable");
    let page = page(&report);
    assert!(page.contains("This page contains the first 120 of 250 samples"), "said");
    let index = block(&page, "index");
    assert_eq!(
        (index["columns"]["id"].as_array().map(Vec::len), &index["first"]),
        (Some(120), &serde_json::json!([0, 100]))
    );
    assert!(table(&report, "run1-outcomes").notes[0].contains("500 answers"));
}

#[test]
fn figures_are_those_of_the_definitions() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write(
        "manifest.json",
        r#"{"probity_run":1,"status":"finished","command":"compare","files":["samples.jsonl","comparisons.jsonl","scores.jsonl"]}"#,
    );
    write(
        "samples.jsonl",
        "{\"id\":\"s\",\"context\":\"c\",\"candidates\":[{\"id\":\"a\",\"text\":\"x\",\"scores\":{\"q\":3}},{\"id\":\"b\",\"text\":\"y\",\"scores\":{\"q\":1}},{\"id\":\"c\",\"text\":\"z\",\"scores\":{\"q\":2}}],\"preference\":\"b\"}\n",
    );
    let pair = |i: &str, j: &str, p: f64| {
        format!(
            "{{\"item\":\"s\",\"attribute\":\"q\",\"template\":\"1\",\"candidate_i\":\"{i}\",\"candidate_j\":\"{j}\",\"p\":{p},\"mass\":0.8,\"outcome\":\"scored\"}}\n"
        )
    };
    write(
        "comparisons.jsonl",
        &[pair("a", "b", 0.9), pair("b", "a", 0.4), pair("a", "c", 0.7), pair("c", "a", 0.3)].concat(),
    );
    let score = |id: &str, score: f64| {
        format!("{{\"item\":\"s\",\"attribute\":\"q\",\"candidate\":\"{id}\",\"score\":{score}}}\n")
    };
    write("scores.jsonl", &[score("a", 0.9), score("b", 0.3), score("c", 0.1)].concat());
    let path = folder.path().to_owned();
    let report = report(&[&path]);
    let figures = table(&report, "run1-figures");
    // Gold order is a, c, b and score order a, b, c: two of three pairs agree, and the rank correlation is 0.5.
    assert_eq!(value(figures, "Spearman per context"), number(0.5));
    let pairwise = value(figures, "pairwise accuracy").value().expect("a number");
    assert!((pairwise - 2.0 / 3.0).abs() < 1e-12);
    let why = "No interval, because one unit says nothing of how units differ: Spearman per context (q); \
               pairwise accuracy (q); Spearman, pooled (q).";
    assert!(figures.notes.iter().any(|note| note == why), "{:?}", figures.notes);
    // One wrong verdict: the upper end by Clopper and Pearson is .975.
    let Cell::Estimate { value: 0.0, low: 0.0, high } = value(figures, "preference accuracy") else {
        panic!("a verdict")
    };
    assert!((high - 0.975).abs() < 1e-12);
    let page = page(&report);
    // |0.9 − 0.6| and |0.7 − 0.7|.
    assert!(page.contains("Mean 0.150 over n = 2 pairs"), "order gap");
    assert!(page.contains("The first position wins 50.0% of n = 4 comparisons"));
    assert!(page.contains("a beats b: 0.750") && page.contains("c beats a: 0.300"), "both orders averaged");
}

#[test]
fn a_preference_counts_only_where_all_candidates_have_scores() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write(
        "manifest.json",
        r#"{"probity_run":1,"status":"finished","command":"g-eval","files":["samples.jsonl","scores.jsonl"]}"#,
    );
    let sample = |id: &str| {
        let candidates: Vec<String> =
            ["a", "b", "c"].iter().map(|name| format!("{{\"id\":\"{name}\",\"text\":\"x\"}}")).collect();
        format!(
            "{{\"id\":\"{id}\",\"context\":\"c\",\"candidates\":[{}],\"preference\":\"a\"}}\n",
            candidates.join(",")
        )
    };
    let score = |item: &str, id: &str, score: f64| {
        format!(
            "{{\"item\":\"{item}\",\"attribute\":\"q\",\"candidate\":\"{id}\",\"score\":{score},\"outcome\":\"scored\"}}\n"
        )
    };
    write("samples.jsonl", &["s", "t"].map(sample).concat());
    // The third candidate of `t` has no score and might be the best.
    let rows = [("s", "a", 0.1), ("s", "b", 0.2), ("s", "c", 0.3), ("t", "a", 0.9), ("t", "b", 0.1)];
    write("scores.jsonl", &rows.map(|(item, id, value)| score(item, id, value)).concat());
    let path = folder.path().to_owned();
    let report = report(&[&path]);
    let Cell::Estimate { value: accuracy, .. } = value(table(&report, "run1-figures"), "preference accuracy") else {
        panic!("a verdict")
    };
    assert!(accuracy.abs() < 1e-12, "{accuracy}");
}

/// A run of metrics over two samples of two systems. `good` is preferred and closer to the references.
fn metrics_run(path: &Path) {
    let write = |name: &str, text: &str| fs::write(path.join(name), text).expect("written");
    write(
        "manifest.json",
        r#"{"probity_run":1,"status":"finished","command":"metrics","files":["samples.jsonl","scores.jsonl"]}"#,
    );
    let sample = |id: &str| {
        format!(
            "{{\"id\":\"{id}\",\"context\":\"c\",\"candidates\":[{{\"id\":\"bad\",\"text\":\"x\"}},{{\"id\":\"good\",\"text\":\"y\"}}],\"preference\":\"good\"}}\n"
        )
    };
    write("samples.jsonl", &["s", "t"].map(sample).concat());
    let rows = ["ter", "rouge-1", "rouge-1.recall"].into_iter().zip([[60.0, 20.0], [0.25, 0.5], [0.1, 0.9]]);
    let row = |metric: &str, item: &str, candidate: &str, score: f64| {
        format!(
            "{{\"item\":\"{item}\",\"candidate\":\"{candidate}\",\"metric\":\"{metric}\",\"score\":{score},\"outcome\":\"scored\"}}\n"
        )
    };
    let rows = rows.flat_map(|(metric, scores)| {
        ["s", "t"].into_iter().flat_map(move |item| {
            ["bad", "good"].into_iter().zip(scores).map(move |(candidate, score)| row(metric, item, candidate, score))
        })
    });
    write("scores.jsonl", &rows.collect::<String>());
}

#[test]
fn metrics_are_reported_one_by_one_before_their_parts_and_lower_may_be_better() {
    let folder = tempfile::tempdir().expect("temporary folder");
    metrics_run(folder.path());
    let report = report(&[&folder.path().to_owned()]);
    let figures = table(&report, "run1-figures");
    assert_eq!(figures.columns[0], "metric");
    let shown: Vec<String> =
        figures.rows.iter().map(|row| [&row[0], &row[1], &row[2]].map(Cell::to_text).join(" ")).collect();
    let each = |metric: &str, mean: &str| {
        [format!("{metric} preference accuracy 1.000 [0.158, 1.000]"), format!("{metric} mean score {mean}")]
    };
    let expected = [each("ter", "40.000"), each("rouge-1", "0.375"), each("rouge-1.recall", "0.500")];
    assert_eq!(shown, expected.concat());
    assert!(figures.notes.iter().any(|note| note.starts_with("Lower is better") && note.ends_with(": ter.")));
    let plots: Vec<&str> = report.figures().map(|figure| figure.title.split(':').next().expect("a title")).collect();
    assert_eq!(
        plots,
        ["Scores, ter", "Scores by candidate, ter", "Scores, rouge-1", "Scores by candidate, rouge-1"],
        "parts are left to the table"
    );
    let of =
        |title: &str| report.figures().find(|figure| figure.title.starts_with(&format!("{title}:"))).expect("plotted");
    assert!(of("Scores, ter").caption.starts_with("Scores by ter of n = 4 candidates in 2 samples"));
    let order = |title: &str| {
        let drawing = of(title).standalone();
        drawing.find(">good<").expect("named") < drawing.find(">bad<").expect("named")
    };
    assert!(order("Scores by candidate, ter") && order("Scores by candidate, rouge-1"), "the best on top");
    let page = page(&report);
    assert!(page.contains("2 samples · 12 scores"));
    assert_eq!(block(&page, "index")["columns"]["best"], serde_json::json!([20.0, 20.0]), "of the first metric");
}

#[test]
fn metrics_are_held_against_each_attribute_that_people_judged() {
    let folder = tempfile::tempdir().expect("temporary folder");
    metrics_run(folder.path());
    let samples = fs::read_to_string(folder.path().join("samples.jsonl")).expect("there");
    let with_gold = [("x", 1), ("y", 2)].iter().fold(samples, |samples, (text, gold)| {
        let text = format!("\"text\":\"{text}\"");
        samples.replace(&text, &format!("{text},\"scores\":{{\"q\":{gold}}}"))
    });
    fs::write(folder.path().join("samples.jsonl"), with_gold).expect("written");
    let report = self::report(&[&folder.path().to_owned()]);
    let figures = table(&report, "run1-figures");
    assert_eq!(figures.columns[0], "attribute, metric");
    let of = |name: &str| -> Vec<String> {
        let rows = figures.rows.iter().filter(|row| row[0] == Cell::Text(name.into()));
        rows.map(|row| [&row[1], &row[2]].map(Cell::to_text).join(" ")).collect()
    };
    // Right in both contexts, also by the metric with lower scores better.
    let agreement = ["Spearman per context 1.000 [-0.684, 1.000]", "pairwise accuracy 1.000 [0.158, 1.000]"];
    for name in ["q, ter", "q, rouge-1"] {
        assert_eq!(of(name)[..2], agreement, "{name}");
    }
    assert_eq!(of("ter").len(), 2, "preferences and the mean score, once");
    assert!(of("q, rouge-1.recall").is_empty(), "parts are not compared with people");
    let lower = figures.notes.iter().find(|note| note.starts_with("Lower is better")).expect("told");
    assert!(lower.ends_with(": ter."), "{lower}");
    let plots: Vec<&str> = report.figures().map(|figure| figure.title.split(':').next().expect("a title")).collect();
    let expected = ["Scores, ter", "Scores by candidate, ter", "Agreement with gold, q, ter"];
    assert_eq!(plots[..3], expected);
    assert_eq!(plots.len(), 6, "{plots:?}");
    // If the method reports agreement itself, the report shows only its scores.
    fs::write(folder.path().join("summary.json"), r#"{"tells_agreement": true}"#).expect("written");
    let told = self::report(&[&folder.path().to_owned()]);
    assert!(table(&told, "run1-figures").rows.iter().all(|row| !row[0].to_text().starts_with("q, ")));
    assert_eq!(told.figures().count(), 4);
}

#[test]
fn runs_without_scores_beside_others_have_one_line() {
    let (_first, one) = made(SMALL);
    let folder = tempfile::tempdir().expect("temporary folder");
    let bare = ["agreement", "texts", "tests"].map(|name| {
        let path = folder.path().join(name);
        fs::create_dir(&path).expect("made");
        let manifest = r#"{"probity_run":1,"status":"finished","command":"meta","files":[]}"#;
        fs::write(path.join("manifest.json"), manifest).expect("written");
        path
    });
    let (_second, two) = made(SMALL);
    let all = report(&[&one, &bare[0], &bare[1], &bare[2], &two, &one]);
    let differences = table(&all, "differences");
    assert_eq!(
        differences.rows.len(),
        9,
        "three pairs of runs with scores: six runs are not many where three have none"
    );
    let told: Vec<&String> = differences.notes.iter().filter(|note| note.starts_with("Not compared")).collect();
    assert_eq!(told, ["Not compared, because a run has no scores: agreement; texts; tests."]);
    let none = report(&[&bare[0], &bare[1]]);
    assert_eq!(table(&none, "differences").notes.len(), 1, "tests that were not made are not explained");
}

#[test]
fn a_run_against_itself_does_not_differ_and_other_data_are_not_compared() {
    let (_first, one) = made(SMALL);
    let (_second, two) = made(SMALL);
    let same = report(&[&one, &two]);
    let differences = table(&same, "differences");
    assert_eq!(differences.rows.len(), 3, "Spearman, pairs, preferences");
    for row in &differences.rows {
        assert_eq!((&row[6], &row[7], &row[8]), (&number(0.0), &Cell::Missing, &Cell::PValue { p: 1.0 }));
        assert_eq!(
            (&row[2], &row[3], &row[9]),
            (&Cell::Text("run".into()), &Cell::Text("run (2)".into()), &Cell::Count(7))
        );
    }
    let texts = fs::read_to_string(two.join("samples.jsonl")).expect("there");
    fs::write(two.join("samples.jsonl"), texts.replacen("\"text\":\"", "\"text\":\"not ", 1)).expect("written");
    let changed = report(&[&one, &two]);
    let differences = table(&changed, "differences");
    assert!(
        differences.notes.iter().any(|note| note.contains("omitted 1 sample with equal id but different content")),
        "{:?}",
        differences.notes
    );
    assert_eq!(differences.rows[0][9], Cell::Count(6));
    fs::write(two.join("samples.jsonl"), texts.replace("item", "other")).expect("written");
    for name in ["comparisons.jsonl", "scores.jsonl"] {
        let rows = fs::read_to_string(two.join(name)).expect("there").replace("\"item\":\"item", "\"item\":\"other");
        fs::write(two.join(name), rows).expect("written");
    }
    let none = report(&[&one, &two]);
    assert!(table(&none, "differences").rows.is_empty());
    assert!(table(&none, "differences").notes.iter().any(|note| note.contains("they share no sample")));
}

#[test]
fn runs_that_kept_no_samples_are_compared_by_the_hash_of_their_data_alone() {
    let (_first, one) = made(SMALL);
    let (_second, two) = made(SMALL);
    fs::remove_file(two.join("samples.jsonl")).expect("there");
    fs::remove_file(two.join("answers.sqlite")).expect("there");
    let without = report(&[&one, &two]);
    let notes: Vec<&str> = without.notes().filter(|(run, _)| *run == "run (2)").map(|(_, note)| note).collect();
    assert!(
        notes.iter().any(|note| note.contains("did not keep its samples"))
            && notes.iter().any(|note| note.contains("kept no answers")),
        "{notes:?}"
    );
    page(&without);
    let manifest = fs::read_to_string(two.join("manifest.json")).expect("there");
    fs::write(two.join("manifest.json"), manifest.replace("1111", "2222")).expect("written");
    let other = report(&[&one, &two]);
    assert!(table(&other, "differences").notes.iter().any(|note| note.contains("their data may differ")));
}

#[test]
fn a_run_that_was_killed_is_reported_with_what_there_is() {
    let (_folder, path) = made(SMALL);
    let comparisons = fs::read_to_string(path.join("comparisons.jsonl")).expect("there");
    fs::write(path.join("comparisons.jsonl"), &comparisons[..comparisons.len() - 20]).expect("written");
    fs::remove_file(path.join("summary.json")).expect("there");
    let manifest = fs::read_to_string(path.join("manifest.json")).expect("there");
    fs::write(path.join("manifest.json"), manifest.replace("finished\",\"why", "running\",\"why")).expect("written");
    let report = report(&[&path]);
    assert!(report.notes().any(|(_, note)| note.contains("not finished (running)")));
    assert!(table(&report, "run1-outcomes").notes[0].contains("83 answers"), "the unfinished last row is none");
    assert!(page(&report).contains("Unfinished run:"));
}

#[test]
fn a_broken_row_names_its_file_and_line() {
    let (_folder, path) = made(SMALL);
    let scores = fs::read_to_string(path.join("scores.jsonl")).expect("there");
    fs::write(path.join("scores.jsonl"), scores.replacen("\"score\":0", "\"score\":\"0", 1)).expect("written");
    let read = || RunReport::new(vec![ReportedRun::open(&path)?], options());
    let error = read().expect_err("broken");
    assert!(error.help().is_some());
    let error = error.to_string();
    assert!(error.starts_with("line 1 of ") && error.contains("scores.jsonl"), "{error}");
    fs::write(path.join("scores.jsonl"), scores.replacen("\"score\":", "\"score\":true,\"_\":", 2)).expect("written");
    assert!(read().is_err(), "a truth is no score");
}

#[test]
fn a_folder_without_a_run_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for content in [None, Some("{}"), Some("{")] {
        if let Some(content) = content {
            fs::write(folder.path().join("manifest.json"), content).expect("written");
        }
        let error = ReportedRun::open(folder.path()).expect_err("no run");
        assert!(matches!(error, ReportError::NotARun { .. }), "{error}");
        assert!(error.help().is_some_and(|hint| hint.to_string().starts_with("give the folder")), "{error:?}");
    }
}

#[test]
fn a_method_that_nobody_knows_has_its_tables_scores_and_samples() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write(
        "manifest.json",
        r#"{"probity_run":1,"status":"finished","command":"brand-new","files":["units.jsonl","answers.jsonl","../x.jsonl"]}"#,
    );
    write(
        "units.jsonl",
        "{\"item\":\"s\",\"candidate\":\"a\",\"score\":2.5,\"outcome\":\"scored\"}\n{\"item\":\"t\",\"candidate\":\"a\",\"score\":null,\"outcome\":\"unparsed\",\"why\":\"no number\"}\n",
    );
    write("answers.jsonl", "{\"item\":\"s\",\"claims\":[\"one\",\"two\"]}\n");
    write(
        "summary.json",
        r#"{"method":"brand-new","signature_line":"brand-new|x","outcomes":{"scored":1},"values":{},"sections":[{"title":"Claims","columns":["what","n"],"rows":[["true","2"],["short"]],"notes":["a note"]}]}"#,
    );
    let path = folder.path().to_owned();
    let report = report(&[&path]);
    let section = table(&report, "run1-section-0");
    assert_eq!(
        section.rows,
        [[Cell::Text("true".into()), Cell::Text("2".into())], [Cell::Text("short".into()), Cell::Missing]]
    );
    assert_eq!(value(table(&report, "run1-figures"), "mean score"), number(2.5));
    let page = page(&report);
    let details = block(&page, "d0");
    assert_eq!(details[0]["tables"][1]["rows"][0][0], serde_json::json!(["one", "two"]));
    assert_eq!(block(&page, "index")["columns"]["id"], serde_json::json!(["s", "t"]));
}

#[test]
fn a_run_without_samples_has_questions_and_documents_to_look_at() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write(
        "manifest.json",
        r#"{"probity_run": 1, "status": "finished", "command": "refeval", "cost": {"requests": 12}, "model": {"name": "a"},
            "other_models": [{"name": "b", "architecture": "qwen2", "fingerprint": "f"}],
            "arguments_in_force": {"data": {"documents": [{"path": "mills", "sha256": "0"}]}},
            "files": ["units.jsonl", "questions.jsonl", "answers.jsonl", "scores.jsonl"]}"#,
    );
    write("summary.json", r#"{"scores_within": [0, 1]}"#);
    write("units.jsonl", "{\"document\": \"d\", \"unit\": \"The mill burned.\", \"outcome\": \"written\"}\n");
    write("questions.jsonl", "{\"id\": \"1.0.1\", \"question\": \"What burned?\", \"outcome\": \"asked\"}\n");
    write("answers.jsonl", "{\"id\": \"1.0.1\", \"text\": \"A mill.\", \"outcome\": \"written\"}\n");
    let score = |document: &str, score: f64| {
        format!(
            "{{\"item\": \"{document}\", \"attribute\": \"recall\", \"candidate\": \"b\", \"score\": {score}, \
             \"outcome\": \"scored\"}}\n"
        )
    };
    write("scores.jsonl", &[score("d", 1.0), score("e", 0.8), score("f", 0.6)].concat());
    let report = report(&[&folder.path().to_owned()]);
    // The jackknife interval of a share does not exceed 1.
    let Cell::Estimate { high, .. } = value(table(&report, "run1-figures"), "mean score") else {
        panic!("an interval")
    };
    assert!((high - 1.0).abs() < 1e-12, "{high}");
    let about: Vec<String> = table(&report, "run1-about").rows.iter().map(|row| format!("{row:?}")).collect();
    let about = about.concat();
    assert!(about.contains("b, qwen2, f") && about.contains("mills") && !about.contains("samples"), "{about}");
    let page = page(&report);
    assert!(page.contains("a · 12 answers") && page.contains("Items are listed"), "the first line, and what there is");
    let index = block(&page, "index");
    assert_eq!(
        (&index["noun"], &index["columns"]["id"], &index["columns"]["start"]),
        (&json!("item"), &json!(["d", "1.0.1", "e", "f"]), &json!(["The mill burned.", "What burned?", "", ""]))
    );
    let tables = &block(&page, "d0")[1]["tables"];
    let columns = tables[0]["columns"].as_array().expect("a list");
    assert!(columns.len() == 2 && !columns.contains(&json!("id")), "{columns:?}");
    assert!(tables[1]["rows"][0].as_array().expect("a list").contains(&json!("A mill.")));
}

#[test]
fn tables_for_spreadsheets_hold_numbers_and_no_formulas() {
    let (_folder, path) = made(Shape { hostile: true, ..SMALL });
    let report = report(&[&path]);
    let cell = |text: &str| {
        let table = Table {
            columns: vec!["x".into(), "n".into()],
            rows: vec![vec![Cell::Text(text.into()), Cell::Number { value: -0.25, decimals: 1 }]],
            ..Table::default()
        };
        csv(&table).split_once("\r\n").expect("a head").1.trim_end().to_owned()
    };
    assert_eq!(cell("=1+1"), "\"'=1+1\",-0.25");
    assert_eq!(cell("-2+3"), "\"'-2+3\",-0.25");
    assert_eq!(cell("\tx"), "\"'\tx\",-0.25");
    assert_eq!(cell("a,\"b\"\nc"), "\"a,\"\"b\"\"\nc\",-0.25");
    assert_eq!(cell("\u{1b}[31m\u{202e}"), "\\u{1b}[31m\\u{202e},-0.25");
    for table in report.tables() {
        let csv = csv(table);
        assert!(!csv.chars().any(|c| c.is_control() && !matches!(c, '\r' | '\n' | '\t')), "{csv}");
    }
    let figures = csv(table(&report, "run1-figures"));
    assert!(figures.starts_with("attribute,measure,value,value low,value high,n,unit\r\n"), "{figures}");
}

#[test]
fn markdown_and_latex_take_every_cell_as_text() {
    let text = |text: &str| Table {
        title: "T".into(),
        columns: vec!["x".into()],
        rows: vec![vec![Cell::Text(text.into())]],
        ..Table::default()
    };
    let markdown = |cell: &str| markdown(&text(cell)).lines().last().expect("a row").to_owned();
    assert_eq!(markdown("a | `b` <b>&"), "| a \\| \\`b\\` &lt;b&gt;&amp; |");
    assert_eq!(markdown("[x](javascript:y)\n# z"), "| \\[x\\]\\(javascript:y\\)\\\\n\\# z |");
    let latex = |cell: &str| latex(&text(cell)).lines().nth(7).expect("a row").trim().to_owned();
    assert_eq!(
        latex("50% & $x_1$ #~^{}\\"),
        "50\\% \\& \\$x\\_1\\$ \\#\\textasciitilde{}\\textasciicircum{}\\{\\}\\textbackslash{} \\\\"
    );
    assert_eq!(latex("−0.5 – \u{202e}"), "$-$0.5 -- \\textbackslash{}u\\{202e\\} \\\\");
}

#[test]
fn json_has_numbers_unrounded_and_intervals_by_name() {
    let (_folder, path) = made(SMALL);
    let report = report(&[&path]);
    let json = probity_report::json(table(&report, "run1-figures"));
    let value = &json["rows"][0][2];
    assert!(value["value"].is_f64() && value["low"].as_f64() <= value["high"].as_f64(), "{json}");
    assert_eq!((&json["run"], &json["columns"][2]), (&"run".into(), &"value".into()));
}

#[test]
fn samples_on_which_two_runs_differ_are_listed_with_a_way_to_each() {
    let (_first, one) = made(SMALL);
    let (_second, two) = made(SMALL);
    let scores = fs::read_to_string(two.join("scores.jsonl")).expect("there");
    let mut rows: Vec<Value> = scores.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let third = rows[2 * SMALL.candidates]["item"].as_str().expect("an id").to_owned();
    for row in rows.iter_mut().filter(|row| row["item"] == third.as_str()) {
        row["score"] = Value::from(-row["score"].as_f64().expect("a score"));
    }
    fs::write(two.join("scores.jsonl"), rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n")
        .expect("written");
    let differing = report(&[&one, &two]);
    let listed = table(&differing, "different");
    assert_eq!(
        listed.rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>(),
        [Cell::Sample { run: 0, sample: third.clone() }]
    );
    assert!(page(&differing).contains(&format!("href=\"#sample/0/{third}\"")), "a link to {third}");
    let same = report(&[&one, &one]);
    assert!(same.tables().all(|table| table.id != "different"), "runs that do not differ");
}

#[test]
fn where_nothing_says_who_is_right_the_scores_that_differ_most_are_listed() {
    // An A/B test: two candidates, without gold or preference, compared.
    let pair = |p: [f64; 2]| {
        let folder = tempfile::tempdir().expect("temporary folder");
        let write = |name: &str, rows: Vec<Value>| {
            fs::write(
                folder.path().join(name),
                rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n",
            )
            .expect("written");
        };
        let candidates = serde_json::json!([{"id": "new", "text": "n"}, {"id": "old", "text": "o"}]);
        write(
            "samples.jsonl",
            ["s1", "s2"].map(|id| serde_json::json!({"id": id, "context": "c", "candidates": candidates})).into(),
        );
        let comparison = |(id, p): (&str, f64)| serde_json::json!({"item": id, "attribute": "q", "candidate_i": "new", "candidate_j": "old", "p": p, "outcome": "scored"});
        write("comparisons.jsonl", ["s1", "s2"].into_iter().zip(p).map(comparison).collect());
        let scores = |(id, p): (&str, f64)| {
            [("new", p), ("old", 1.0 - p)].map(
                |(name, score)| serde_json::json!({"item": id, "attribute": "q", "candidate": name, "score": score}),
            )
        };
        write("scores.jsonl", ["s1", "s2"].into_iter().zip(p).flat_map(scores).collect());
        write("summary.json", vec![serde_json::json!({"method": "compare", "outcomes": {"scored": 2}})]);
        let files = ["samples.jsonl", "comparisons.jsonl", "scores.jsonl", "summary.json"];
        let manifest =
            serde_json::json!({"probity_run": 1, "status": "finished", "command": "compare", "files": files});
        write("manifest.json", vec![manifest]);
        folder
    };
    let (first, second) = (pair([0.75, 0.5]), pair([0.25, 0.5]));
    let (one, two) = (first.path().to_path_buf(), second.path().to_path_buf());
    let listed = table(&report(&[&one, &two]), "different").clone();
    assert_eq!(listed.rows.len(), 1, "{listed:?}");
    assert_eq!(
        listed.rows[0][..3],
        [Cell::Sample { run: 0, sample: "s1".into() }, Cell::Text("q".into()), Cell::Text("score of new".into())]
    );
    assert_eq!(listed.rows[0][5], number(0.5));
}

#[test]
fn what_a_run_says_and_how_far_to_trust_it_comes_before_its_figures() {
    let (_folder, path) = made(SMALL);
    let mut summary: Value =
        serde_json::from_str(&fs::read_to_string(path.join("summary.json")).expect("there")).expect("JSON");
    summary["verdict"] = serde_json::json!([{
        "about": null, "says": "<b>new</b> beats old", "agreement": "The judge is right on 5 of your 11 labels", "trust": "unreliable", "because": "swapping the two texts changes the verdict in 100.0% of pairs",
        "figures": {},
    }]);
    fs::write(path.join("summary.json"), summary.to_string()).expect("written");
    let page = page(&report(&[&path]));
    let banner = page.find("<div class=\"verdict unreliable\"").expect("a banner");
    assert!(banner < page.find("run1-figures").expect("figures"));
    assert!(
        page.contains("&lt;b&gt;new&lt;/b&gt; beats old") && page.contains("changes the verdict in 100.0% of pairs")
    );
    let lines = ["beats old", "right on 5 of your 11 labels", "swapping the two texts"].map(|line| page.find(line));
    assert!(lines.iter().all(Option::is_some) && lines.is_sorted(), "who won, on how many labels, and why: {lines:?}");
    let (_other, two) = made(SMALL);
    let both = report(&[&path, &two]);
    assert_eq!(table(&both, "verdicts").rows[0][4], Cell::Text("unreliable".into()));
}

#[test]
fn a_matrix_is_missing_for_the_reason_that_is_true() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    let ids = |k: usize| format!("c{k}");
    let candidates: Vec<Value> = (0..16).map(|k| serde_json::json!({"id": ids(k), "text": "t"})).collect();
    let sample = |s: &str| serde_json::json!({"id": s, "context": "c", "candidates": candidates}).to_string() + "\n";
    let comparison = |s: &str, i: usize| {
        serde_json::json!({"item": s, "attribute": "q", "candidate_i": ids(i), "candidate_j": ids((i + 1) % 16), "p": 0.6, "outcome": "scored"}).to_string() + "\n"
    };
    let score = |s: &str, k: usize| {
        serde_json::json!({"item": s, "attribute": "q", "candidate": ids(k), "score": 0.5}).to_string() + "\n"
    };
    let both = |row: &dyn Fn(&str, usize) -> String| {
        ["s", "t"].iter().flat_map(|s| (0..16).map(|k| row(s, k)).collect::<Vec<_>>()).collect::<String>()
    };
    write(
        "manifest.json",
        r#"{"probity_run":1,"status":"finished","command":"compare","files":["samples.jsonl","comparisons.jsonl","scores.jsonl"]}"#,
    );
    write("samples.jsonl", &(sample("s") + &sample("t")));
    write("comparisons.jsonl", &both(&comparison));
    write("scores.jsonl", &both(&score));
    let report = report(&[&folder.path().to_owned()]);
    let notes: Vec<&str> = report.notes().map(|(_, note)| note).collect();
    assert!(
        notes.iter().any(|note| note.contains("32 cells have 2.0 comparisons each on average")),
        "both samples have the same ids: {notes:?}"
    );
    assert!(!notes.iter().any(|note| note.contains("differ between samples")), "{notes:?}");
}

#[test]
fn plots_that_a_summary_describes_are_drawn() {
    let (_folder, path) = made(SMALL);
    let mut summary: Value =
        serde_json::from_str(&fs::read_to_string(path.join("summary.json")).expect("there")).expect("JSON");
    let series = |name: &str, band: bool| {
        let point = |x: f64, y: f64| Point { x, y, band: band.then_some((y - 0.1, y + 0.1)) };
        Series { name: name.to_owned(), points: vec![point(0.0, 0.2), point(1.0, 0.4)] }
    };
    let both = |band| vec![series("random", band), series("symmetric", band)];
    let plot = |id: &str, drawing: Drawing| Plot {
        id: id.to_owned(),
        title: "<i>title</i>".to_owned(),
        caption: "caption".to_owned(),
        drawing,
    };
    let lines = |x, series| Drawing::Lines { x, y: "Spearman".to_owned(), series };
    let cells = |rows: usize| vec![vec![Some(1.0), None]; rows];
    let names = || vec!["bleu".to_owned(), "ter".to_owned()];
    let plots = [
        plot("counts", lines(LineAxis::Counts("comparisons".to_owned()), both(true))),
        plot("names", lines(LineAxis::Names(names()), both(false))),
        plot("nothing", lines(LineAxis::Names(names()), Vec::new())),
        plot("map", Drawing::Map { groups: both(false) }),
        plot("square", Drawing::Correlations { names: names(), cells: cells(2) }),
        plot("ragged", Drawing::Correlations { names: names(), cells: cells(3) }),
        plot("../outside", Drawing::Map { groups: both(false) }),
        plot("map", Drawing::Map { groups: both(true) }),
        plot("nothing-so-long".repeat(20).as_str(), Drawing::Map { groups: both(false) }),
        plot("nothing-beyond", Drawing::Correlations { names: names(), cells: vec![vec![Some(1e308); 2]; 2] }),
        plot("axis", lines(LineAxis::Counts("\u{1b}[31m\u{202e}x".to_owned()), both(false))),
        plot(
            "bias",
            Drawing::PositionBias { rows: vec![BiasEstimate { name: "1".to_owned(), before: 0.7, after: None }] },
        ),
    ];
    let mut plots = serde_json::to_value(plots).expect("plain values");
    plots.as_array_mut().expect("a list").push(serde_json::json!({ "id": "other", "drawing": "unknown" }));
    summary["sections"][0]["plots"] = plots;
    fs::write(path.join("summary.json"), summary.to_string()).expect("written");
    let report = report(&[&path]);
    let drawn: Vec<&str> = report.figures().map(|figure| figure.id.as_str()).collect();
    let described = ["run1-counts", "run1-names", "run1-map", "run1-square", "run1-axis", "run1-bias"];
    assert_eq!(drawn[..6], described, "{drawn:?}");
    assert_eq!(drawn.iter().filter(|id| **id == "run1-map").count(), 1);
    assert!(!drawn.iter().any(|id| ["nothing", "ragged", "outside", "other"].iter().any(|part| id.contains(part))));
    let file = |id: &str| report.figures().find(|figure| figure.id == id).expect("drawn").standalone();
    let counts = file("run1-counts");
    assert_eq!((counts.matches("class=\"mark s").count(), counts.matches("series-band s").count()), (4, 2));
    assert!(counts.contains(">random<") && counts.contains(">symmetric<") && !counts.contains("<i>"), "{counts}");
    let axis = file("run1-axis");
    assert!(!axis.contains(['\u{1b}', '\u{202e}']), "{axis}");
    let names = file("run1-names");
    assert!(names.contains(">bleu<") && !names.contains("series-band s\""), "{names}");
}
