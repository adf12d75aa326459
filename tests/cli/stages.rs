//! Metrics and `meta` as stages: in recipes beside methods, stopped, resumed, skipped.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{World, golden, lines, tiny};
use crate::recipe::Schema;

/// Samples with references and gold.
fn data(world: &World, samples: usize) {
    let texts = ["it rained", "the cat sat on the mat", "a cat sat there"];
    let candidate = |k: usize| json!({"id": format!("c{k}"), "text": texts[k], "scores": {"coherence": k}});
    let sample = |s: usize| {
        json!({"id": format!("s{s}"), "context": format!("source {s}"), "references": [format!("the cat sat down {s}")],
            "candidates": (0..3).map(candidate).collect::<Vec<_>>()})
    };
    world.file("d.jsonl", lines(&(0..samples).map(sample).collect::<Vec<_>>()));
}

/// Human scores, separate from the samples.
fn gold(world: &World, first: usize) {
    let rows = (0..2).flat_map(|s| (0..3).map(move |k| format!("s{s},c{k},{}", if k == 0 { first } else { k })));
    world.file("gold.csv", format!("item,candidate,human\n{}\n", rows.collect::<Vec<_>>().join("\n")));
}

/// A judge, metrics, and before them a stage that reads both.
fn recipe(world: &World, model: &std::path::Path) {
    let text = format!(
        "[model.judge]\nmodel = {}\n[defaults]\ndata = \"d.jsonl\"\nout = \"{{run}}\"\n\
         [run.agreement]\nmethod = \"meta\"\nscores = [\"pairs\", \"overlap\"]\ngold = \"gold.csv\"\nrounds = 20\n\
         [run.pairs]\nmethod = \"compare\"\nattribute = \"coherence\"\n\
         [run.overlap]\nmethod = \"metrics\"\nmetric = [\"rouge-l\", \"chrf\"]\n",
        json!(model)
    );
    world.file("r.toml", text);
}

fn json_of(world: &World, file: &str) -> Value {
    serde_json::from_str(&world.read(file)).expect("JSON")
}

#[test]
fn meta_comes_behind_what_it_reads_and_is_passed_over_while_that_is_the_same() {
    let world = World::new();
    data(&world, 2);
    gold(&world, 0);
    recipe(&world, &tiny());
    let checked = world.run(&["recipe", "check", "r.toml"]).exits(0).stdout;
    let at = |text: &str, name: &str| text.find(name).unwrap_or_else(|| panic!("{name}\n{text}"));
    assert!(at(&checked, "agreement") > at(&checked, "overlap") && !world.path("pairs").exists(), "{checked}");
    let ran = world.run(&["run", "r.toml"]).exits(0);
    assert!(at(&ran.stdout, "── agreement ──") > at(&ran.stdout, "── overlap ──"), "{}", ran.stdout);
    let summary = json_of(&world, "agreement/summary.json");
    let metrics: Vec<&str> =
        summary["values"]["metrics"].as_array().expect("figures").iter().filter_map(|m| m["metric"].as_str()).collect();
    assert_eq!(metrics, ["compare", "chrf", "rouge-l", "rouge-l.precision", "rouge-l.recall"]);
    let manifest = json_of(&world, "agreement/manifest.json");
    let inputs = &manifest["arguments_in_force"]["data"];
    assert_eq!((inputs["scores"].as_array().map(Vec::len), manifest["model"].is_null()), (Some(2), true));
    assert!(inputs["gold"][0]["sha256"].is_string() && !world.path("agreement/samples.jsonl").exists(), "{inputs}");
    let resume = |before: usize| {
        let ran = world.run(&["run", "r.toml", "--resume"]).exits(0);
        assert_eq!(ran.stdout.matches("finished before").count(), before, "{}", ran.stdout);
        assert!(!ran.stderr.contains("loaded in"), "{}", ran.stderr);
    };
    resume(3);
    gold(&world, 3);
    resume(2);
    assert_ne!(json_of(&world, "agreement/summary.json")["values"], summary["values"]);
    resume(3);
    let text = world.read("r.toml").replace("rounds = 20", "rounds = 21");
    world.file("r.toml", text);
    let changed = world.run(&["run", "r.toml", "--resume"]).exits(2).stderr;
    assert!(changed.contains("agreement holds another run: arguments.method.rounds differs"), "{changed}");
    let planned = world.run(&["run", "r.toml", "--dry-run"]).exits(0).stdout;
    assert_eq!((planned.matches("planned").count(), planned.matches("questions").count()), (3, 1), "{planned}");
    world.run(&["run", "r.toml", "--overwrite", "--until", "revisions"]).fails_with(&["`metrics` does not have this \
                                                                                       stage"]);
}

#[cfg(unix)]
#[test]
fn a_folder_is_one_however_its_path_is_written_and_nothing_replaces_what_it_reads() {
    let world = World::new();
    data(&world, 2);
    gold(&world, 0);
    recipe(&world, &tiny());
    std::os::unix::fs::symlink(world.path(""), world.path("link")).expect("linked");
    let text = world.read("r.toml").replace("\"pairs\", \"overlap\"", "\"x/../pairs\", \"link/overlap\"");
    world.file("r.toml", text);
    let checked = world.run(&["recipe", "check", "r.toml"]).exits(0).stdout;
    assert!(checked.find("agreement") > checked.find("overlap"), "{checked}");
    for same in ["./overlap", "x/../overlap", "link/overlap"] {
        let again = format!("[run.again]\nmethod = \"metrics\"\nmetric = \"bleu\"\nout = \"{same}\"\n");
        world.file("twice.toml", world.read("r.toml") + &again);
        world.run(&["run", "twice.toml"]).fails_with(&["`out`: ", "is the folder of `overlap`"]);
    }
    let reader = "[run.reader]\nmethod = \"metrics\"\nmetric = \"bleu\"\ndata = \"x/../overlap/samples.jsonl\"\nout = \
                  \"other\"\n";
    world.file("reads.toml", world.read("r.toml") + reader);
    world.run(&["run", "reads.toml"]).fails_with(&["is in the folder that `overlap` writes to", "--only"]);
    let metrics = ["metrics", "--metric", "bleu", "--data", "d.jsonl", "--out", "overlap"];
    world.run(&metrics).exits(0);
    let before = world.read("overlap/scores.jsonl");
    let refused = ["is in the folder that this run writes to", "hint: use a copy"];
    for same in ["overlap", "x/../overlap", "link/overlap"] {
        let meta = ["meta", "--scores", "overlap", "--gold", "gold.csv", "--out", same, "--overwrite"];
        world.run(&meta).fails_with(&refused);
        let metrics = ["metrics", "--metric", "ter", "--data", "overlap/samples.jsonl", "--out", same, "--overwrite"];
        world.run(&metrics).fails_with(&refused);
    }
    assert_eq!(world.read("overlap/scores.jsonl"), before);
}

#[test]
fn meta_fails_clearly_where_a_stage_failed_that_it_reads() {
    let world = World::new();
    data(&world, 2);
    gold(&world, 0);
    // Weights with NaN, which only loading finds.
    let copy = world.copy_of_tiny();
    for entry in std::fs::read_dir(&copy).expect("folder").map(|entry| entry.expect("entry").path()) {
        if entry.extension().is_some_and(|end| end == "safetensors") {
            let mut bytes = std::fs::read(&entry).expect("weights");
            bytes.iter_mut().rev().take(64).for_each(|byte| *byte = 0xff);
            std::fs::write(&entry, bytes).expect("written");
        }
    }
    recipe(&world, &copy);
    let ran = world.run(&["run", "r.toml"]).exits(2);
    let told = "error: run `agreement`: it reads the folder of `pairs`, which failed";
    assert!(
        ran.stderr.contains(told) && ran.stderr.contains("continue with the same command and --resume"),
        "{}",
        ran.stderr
    );
    assert!(world.path("overlap/scores.jsonl").exists() && !world.path("agreement").exists());
    let table = ran.stdout.split("stage").last().expect("a table");
    assert!(table.matches("failed").count() == 2 && table.matches("finished").count() == 1, "{table}");
}

#[test]
fn meta_tells_a_run_that_is_left_out_from_a_file_that_is_missing() {
    let world = World::new();
    data(&world, 2);
    gold(&world, 0);
    recipe(&world, &tiny());
    for command in [&["recipe", "check", "r.toml"][..], &["run", "r.toml"]] {
        let told = world.run(&[command, &["--only", "agreement"]].concat()).exits(2).stderr;
        for other in ["pairs", "overlap"] {
            let why = format!("`scores`: it reads the folder of `{other}`, which holds no finished run yet");
            assert!(told.contains(&why) && told.contains(&format!("hint: run `{other}` first")), "{told}");
        }
        assert!(!told.contains("could not be opened"), "{told}");
    }
    // Problems of a run are reported once, and not again for the stages that read from it.
    let right = world.read("r.toml");
    for (wrong, why) in [
        ("[run.pairs]\nseed = \"many\"\n", "`seed`: `many`: expected a whole number"),
        ("[run.pairs]\nmodel = \"judgee\"\n", "there is no [model.judgee]"),
    ] {
        world.file("r.toml", right.replace("[run.pairs]\n", wrong));
        let told = world.run(&["recipe", "check", "r.toml"]).exits(2).stderr;
        assert!(told.starts_with("error: line ") && told.contains(why), "{told}");
    }
    world.file("r.toml", right);
    world.run(&["run", "r.toml", "--only", "pairs", "--only", "overlap"]).exits(0);
    world.run(&["run", "r.toml", "--only", "agreement"]).exits(0);
}

#[test]
fn a_report_says_which_inputs_of_meta_have_changed_since() {
    let world = World::new();
    data(&world, 2);
    gold(&world, 0);
    recipe(&world, &tiny());
    world.file("r.toml", world.read("r.toml") + "[report]\nhtml = \"page.html\"\nrounds = 10\n");
    let why = "has changed since the run";
    let ran = world.run(&["run", "r.toml"]).exits(0);
    assert!(!ran.stderr.contains(why) && !world.read("page.html").contains(why), "{}", ran.stderr);
    gold(&world, 3);
    let told = world.run(&["run", "r.toml", "--resume", "--only", "overlap"]).exits(0).stderr;
    assert!(told.contains(&format!("agreement: gold.csv {why}")) && !told.contains("overlap/scores.jsonl"), "{told}");
    assert!(world.read("page.html").contains(&format!("gold.csv {why}")));
    world.run(&["metrics", "--metric", "bleu", "--data", "d.jsonl", "--out", "overlap", "--overwrite"]).exits(0);
    let told = world.run(&["report", "agreement"]).exits(0).stderr;
    assert!(told.contains(&format!("overlap/scores.jsonl {why}")), "{told}");
}

#[test]
fn what_is_wrong_with_metrics_and_meta_is_told_with_its_line() {
    let world = World::new();
    data(&world, 1);
    let bare = json!({"id": "s", "context": "c", "candidates": [{"id": "a", "text": "b"}]});
    world.file(
        "bare.jsonl",
        lines(&[
            json!({"id": "r", "context": "c", "references": ["x"], "candidates": [{"id": "a", "text": "b"}]}),
            bare,
        ]),
    );
    let text = format!(
        "[model.tuned]\nmodel = {}\nadapter = \"lora\"\n[defaults]\nout = \"runs/{{run}}\"\ndata = \"d.jsonl\"\n\
         [run.none]\nmethod = \"meta\"\n\
         [run.blue]\nmethod = \"metrics\"\nmetric = \"blue\"\n\
         [run.bare]\nmethod = \"metrics\"\nmetric = \"bleu\"\ndata = \"bare.jsonl\"\n\
         [run.model]\nmethod = \"metrics\"\nmetric = \"bart-score\"\nmodel = \"tuned\"\n\
         [run.encoder]\nmethod = \"metrics\"\nmetric = \"bert-score\"\n\
         [run.share]\nmethod = \"meta\"\nscores = \"d.jsonl\"\nconfidence = 1.0\n\
         [run.absent]\nmethod = \"meta\"\nscores = \"absent.csv\"\n\
         [run.itself]\nmethod = \"meta\"\nscores = \"runs/itself\"\n\
         [run.here]\nmethod = \"meta\"\nscores = \"runs/there\"\n\
         [run.there]\nmethod = \"meta\"\nscores = \"runs/here\"\n\
         [run.fine]\nmethod = \"metrics\"\nmetric = \"bleu\"\n",
        json!(tiny())
    );
    let line = |wanted: &str| text.lines().position(|line| line == wanted).expect("in the recipe") + 1;
    let expected = [
        (line("[run.none]"), "run `none`: `scores` is missing"),
        (line("metric = \"blue\""), "`metric`: there is no metric `blue`; did you mean `bleu`?"),
        (line("adapter = \"lora\""), "`metrics` has no option `adapter`"),
        (line("metric = \"bert-score\""), "`metric`: bert-score needs an encoder"),
        (line("confidence = 1.0"), "`confidence`: `1.0`: expected a number above 0 and below 1"),
        (line("scores = \"absent.csv\""), "`scores`: absent.csv could not be opened"),
        (line("scores = \"runs/itself\""), "`scores`: "),
        (line("[run.here]"), "run `here`: it reads the folder of `there`, which waits for it in turn"),
        (line("[run.there]"), "run `there`: it reads the folder of `here`, which waits for it in turn"),
    ];
    world.file("r.toml", &text);
    let told = world.run(&["run", "r.toml"]).exits(2).stderr;
    assert!(told.starts_with(&format!("error: {} problems in r.toml\n", expected.len())), "{told}");
    for (line, what) in expected {
        assert!(told.contains(&format!("\n  line {line}: {what}")), "line {line}: {what}\n{told}");
    }
    assert!(told.contains("is in the folder that this run writes to") && !world.path("runs").exists(), "{told}");
}

#[test]
fn a_new_recipe_of_metrics_and_meta_is_whole() {
    let world = World::new();
    data(&world, 2);
    std::fs::rename(world.path("d.jsonl"), world.path("samples.jsonl")).expect("renamed");
    world.run(&["recipe", "new", "metrics", "--out", "metrics.toml"]).exits(0);
    world.run(&["run", "metrics.toml"]).exits(0);
    assert!(world.path("runs/metrics/scores.jsonl").exists());
    world.run(&["recipe", "new", "meta", "--out", "meta.toml"]).exits(0);
    let text = world.read("meta.toml");
    assert!(text.contains("\nscores = [\"runs/compare\"]\n") && !text.contains("dry-run"), "{text}");
    let schema = Schema::new(&world);
    assert_eq!((schema.refuses(&text), schema.refuses(&world.read("metrics.toml"))), (None, None));
    assert!(schema.refuses(&format!("{text}[run.x]\nmethod = \"metrics\"\nscores = \"runs/y\"\n")).is_some());
    world.file("meta.toml", text.replace("runs/compare", "runs/metrics"));
    world.run(&["run", "meta.toml"]).exits(0);
    assert_eq!(json_of(&world, "runs/meta/manifest.json")["status"], "finished");
}

#[test]
fn a_command_of_metrics_and_its_recipe_are_the_same_run() {
    let world = World::new();
    data(&world, 2);
    world.run(&["metrics", "--metric", "bleu,rouge-l", "--data", "d.jsonl", "--out", "typed"]).exits(0);
    world.file(
        "r.toml",
        "[run.a]\nmethod = \"metrics\"\nmetric = [\"bleu\", \"rouge-l\"]\ndata = \"d.jsonl\"\nout = \"written\"\n",
    );
    world.run(&["run", "r.toml"]).exits(0);
    for file in ["scores.jsonl", "summary.json", "samples.jsonl"] {
        assert!(world.read(&format!("typed/{file}")) == world.read(&format!("written/{file}")), "{file}");
    }
    let in_force = |run: &str| json_of(&world, &format!("{run}/manifest.json"))["arguments_in_force"].clone();
    assert_eq!(in_force("typed"), in_force("written"));
}

/// The rows of encodings, by key.
fn encodings(world: &World) -> Vec<(String, i64)> {
    let path = world.path("run/encodings.sqlite");
    let Ok(base) = rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY) else {
        return Vec::new();
    };
    let Ok(mut rows) = base.prepare("SELECT hex(key), rowid FROM encodings ORDER BY key") else { return Vec::new() };
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("read");
    rows.collect::<Result<_, _>>().unwrap_or_default()
}

#[test]
fn what_an_encoder_made_of_texts_outlives_a_kill() {
    let world = World::new();
    data(&world, 60);
    let encoder = golden("tiny-masked").display().to_string();
    let run = ["metrics", "--metric", "bert-score:layer=1", "--encoder", &encoder, "--data", "d.jsonl", "--out", "run"];
    let mut child = world.command(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
    while encodings(&world).is_empty() && child.try_wait().expect("asked").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("killed, or at its end");
    child.wait().expect("waited for");
    let before = encodings(&world);
    assert!(!before.is_empty());
    let resumed = [&run[..], &["--resume"]].concat();
    world.run(&resumed).exits(0);
    // A rewritten row would have another number.
    let after = encodings(&world);
    assert!(before.iter().all(|row| after.contains(row)), "{} of {}", before.len(), after.len());
    let scores = world.read("run/scores.jsonl");
    let again = world.run(&resumed).exits(0);
    assert!(!again.stderr.contains("loaded in") && world.read("run/scores.jsonl") == scores, "{}", again.stderr);
}
