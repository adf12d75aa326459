//! What a user sees first: the verdict, in lines that fit, even if standard error fails.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Ran, World, lines, tiny};

/// Pairs of two candidates without gold, as in an A/B test.
fn pairs(world: &World, samples: usize) -> String {
    let sample = |k: usize| {
        let candidate = |id: &str, text: &str| json!({"id": id, "text": format!("{text} {k}")});
        json!({"id": format!("s{k}"), "context": "a b c", "candidates": [candidate("old", "a b"), candidate("new", "b \
            c d")]})
    };
    world.file("ab.jsonl", lines(&(0..samples).map(sample).collect::<Vec<_>>()))
}

fn compare<'a>(model: &'a str, data: &'a str) -> Vec<&'a str> {
    vec!["compare", "--model", model, "--data", data, "--attribute", "quality"]
}

#[test]
fn an_ab_test_without_gold_says_who_won_and_how_far_to_trust_it_in_its_first_lines() {
    let world = World::new();
    let (data, model) = (pairs(&world, 6), tiny().display().to_string());
    let ran = world.run(&[&compare(&model, &data)[..], &["--out", "run"]].concat()).exits(0);
    let mut first = ran.stdout.lines();
    let says = first.next().expect("a line");
    assert!(
        says.contains(" of 6 samples")
            && says.contains("sign test")
            && [" beats ", " tie: ", "No winner: ", "No clear winner: "].iter().any(|form| says.contains(form)),
        "{says}"
    );
    let trust = first.next().expect("a second line");
    assert!(["RELIABLE: ", "CAUTION: ", "UNRELIABLE: "].iter().any(|level| trust.starts_with(level)), "{trust}");
    let summary: Value = serde_json::from_str(&world.read("run/summary.json")).expect("JSON");
    assert!(says == summary["verdict"][0]["says"].as_str().expect("a sentence"), "{summary:#}");
    let page = world.path("page.html").display().to_string();
    world.run(&["report", "run", "--html", &page]).exits(0);
    let page = world.read("page.html");
    let (verdict, outcomes) = (page.find("class=\"verdict "), page.find("Outcomes"));
    assert!(verdict.is_some() && verdict < outcomes, "the verdict comes before the outcomes");
    assert!(!page.contains("No comparison matrix for quality: candidate ids differ"), "both samples have the same ids");
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_printed_is_wider_than_the_terminal_and_a_pipe_has_every_row_in_one_line() {
    let world = World::new();
    let (data, model) = (pairs(&world, 3), tiny().display().to_string());
    for (width, out) in [(60, "narrow"), (80, "usual")] {
        let compare = [&compare(&model, &data)[..], &["--quiet", "--out", out]].concat().join(" ");
        // Standard output is a terminal of this width; a terminal without rows would have no size.
        let probity = env!("CARGO_BIN_EXE_probity");
        let run = format!("stty rows 24 cols {width} && {probity} {compare} && {probity} show {out} --all");
        let mut script = world.program("script");
        let ran = Ran::from(script.args(["-qec", &run, "/dev/null"]).output().expect("started")).exits(0);
        // A long word, such as the signature or a checksum, has a line of its own, so that it can be copied.
        let printed = ran.stdout.lines().map(str::trim_end).filter(|line| line.trim().contains([' ', '─']));
        let wide: Vec<&str> = printed.filter(|line| line.chars().count() > width).collect();
        assert!(wide.is_empty(), "{width}: {wide:#?}\n{}", ran.stdout);
        // Once by the run, and once among all tables.
        assert_eq!(ran.stdout.matches("Candidates (mean-prob)").count(), 2, "{width}\n{}", ran.stdout);
        assert_eq!(ran.stdout.matches("Position and mass").count(), 1, "{width}\n{}", ran.stdout);
    }
    let mut piped = world.command(&[&compare(&model, &data)[..], &["--out", "piped"]].concat());
    let ran = Ran::from(piped.env("COLUMNS", "60").output().expect("started")).exits(0);
    let row = ran.stdout.lines().find(|line| line.starts_with(" quality "));
    assert!(row.is_some_and(|row| row.chars().count() > 60), "{}", ran.stdout);
}

#[cfg(unix)]
#[test]
fn a_standard_error_that_nobody_reads_does_not_end_a_run() {
    let world = World::new();
    let (data, model) = (pairs(&world, 3), tiny().display().to_string());
    let run = format!(
        "{} {} --out run 2>&1 >/dev/null | true; exit ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_probity"),
        compare(&model, &data).join(" ")
    );
    let ran = Ran::from(world.program("bash").args(["-c", &run]).output().expect("started"));
    ran.exits(0);
    let manifest: Value = serde_json::from_str(&world.read("run/manifest.json")).expect("JSON");
    assert_eq!(manifest["status"], "finished");
}

#[cfg(unix)]
#[test]
fn a_run_that_the_system_ends_is_interrupted_and_says_how_to_go_on() {
    let world = World::new();
    let (data, model) = (pairs(&world, 400), tiny().display().to_string());
    let run = [&compare(&model, &data)[..], &["--out", "run"]].concat();
    let child = world.command(&run).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    while !world.path("run/comparisons.jsonl").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let killed = world.program("kill").args(["-TERM", &child.id().to_string()]).status().expect("started");
    assert!(killed.success());
    let ran = Ran::from(child.wait_with_output().expect("ended")).exits(130);
    assert!(ran.stderr.contains("--out run --resume to continue"), "{}", ran.stderr);
    let manifest: Value = serde_json::from_str(&world.read("run/manifest.json")).expect("JSON");
    assert_eq!(manifest["status"], json!("interrupted"));
}

#[test]
fn a_run_without_a_folder_has_one_of_its_own_and_says_which() {
    let world = World::new();
    let (data, model) = (pairs(&world, 2), tiny().display().to_string());
    let ran = world.run(&compare(&model, &data)).exits(0);
    let folder = ran.stderr.lines().find_map(|line| line.strip_prefix("results are in ")).expect("told").to_owned();
    assert!(folder.starts_with("runs/compare-2") && world.path(&folder).join("summary.json").is_file(), "{folder}");
    world.run(&compare(&model, &data)).exits(0);
    assert_eq!(std::fs::read_dir(world.path("runs")).expect("there").count(), 2, "no run is written over");
    world.run(&[&compare(&model, &data)[..], &["--resume"]].concat()).exits(2);
}

#[test]
fn a_folder_that_cannot_be_is_told_before_a_model_is_loaded() {
    let world = World::new();
    let (data, model) = (pairs(&world, 2), tiny().display().to_string());
    let run = |out: &str| world.run(&[&compare(&model, &data)[..], &["--out", out]].concat());
    let file = run("ab-scores.jsonl");
    assert!(
        file.code == Some(2)
            && file.stderr.contains("is the name of a file")
            && file.stderr.contains("--out ab-scores"),
        "{}",
        file.stderr
    );
    assert!(!file.stderr.contains("loaded in") && !world.path("ab-scores.jsonl").exists());
    if cfg!(target_os = "linux") {
        let nowhere = run("/proc/run");
        assert!(
            nowhere.code == Some(2)
                && nowhere.stderr.contains("could not be created")
                && !nowhere.stderr.contains("loaded in"),
            "{}",
            nowhere.stderr
        );
    }
}

#[test]
fn answers_that_were_there_make_no_rate_and_something_that_is_left_takes_time() {
    let world = World::new();
    let (data, model) = (pairs(&world, 30), tiny().display().to_string());
    let run = |out: &str| {
        world
            .run(&[&compare(&model, &data)[..], &["--out", out, "--cache", "kept", "--progress", "json"]].concat())
            .exits(0)
    };
    run("first");
    let again = run("second");
    let ends: Vec<Value> = again
        .stderr
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &Value| event["event"] == "end")
        .collect();
    let step = ends.iter().find(|event| event["what"] == "compare").expect("told");
    assert_eq!(
        (&step["done"], &step["tokens_per_second"], &step["seconds_left"]),
        (&json!(60), &Value::Null, &Value::Null),
        "{step:#}"
    );
    let lines = world
        .run(&[&compare(&model, &data)[..], &["--out", "third", "--cache", "kept", "--progress", "lines"]].concat())
        .exits(0);
    let told =
        lines.stderr.lines().find(|line| line.starts_with("compare") && line.contains(": 60 of 60")).expect("told");
    assert!(!told.contains("/s"), "{told}");
}

#[cfg(unix)]
#[test]
fn a_background_job_that_ignores_ctrl_c_ends_in_order_by_sigterm() {
    let world = World::new();
    let (data, model) = (pairs(&world, 400), tiny().display().to_string());
    // Like a background job of a script: with SIGINT ignored.
    let line = format!(
        "trap '' INT; exec \"$0\" compare --model '{model}' --data '{data}' --attribute quality --out bg --no-sharing"
    );
    let mut command = world.program("sh");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_probity")]).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("started");
    while !world.path("bg/comparisons.jsonl").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let id = child.id().to_string();
    for signal in ["-INT", "-TERM"] {
        assert!(std::process::Command::new("kill").args([signal, &id]).status().expect("sent").success());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let ran = Ran::from(child.wait_with_output().expect("ended"));
    // A fast machine may finish before the signal arrives.
    assert!(
        ran.code == Some(0) || (ran.code == Some(130) && ran.stderr.contains("to continue")),
        "{:?} {}",
        ran.code,
        ran.stderr
    );
}
