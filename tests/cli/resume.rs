//! Runs that are killed, rejected or resumed.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Ran, World, interrupt, interrupts_are_ignored, lines, tiny};

/// Samples with eight candidates each: 56 prompts a sample.
fn data(world: &World, samples: usize) -> String {
    let sample = |s: usize| {
        let candidate =
            |k: usize| json!({"id": k.to_string(), "text": format!("text {k} of {s}"), "scores": {"coherence": k}});
        json!({"id": format!("s{s}"), "context": format!("cat {s} sat"), "candidates": (0..8).map(candidate).collect::<Vec<_>>()})
    };
    world.file(&format!("{samples}.jsonl"), lines(&(0..samples).map(sample).collect::<Vec<_>>()))
}

fn arguments<'a>(model: &'a str, data: &'a str, out: &'a str) -> Vec<&'a str> {
    vec!["compare", "--model", model, "--data", data, "--attribute", "coherence", "--out", out]
}

/// Files computed from the answers.
const RESULTS: [&str; 3] = ["comparisons.jsonl", "scores.jsonl", "summary.json"];

fn same_results(world: &World, a: &str, b: &str) {
    for name in RESULTS {
        assert!(world.read(&format!("{a}/{name}")) == world.read(&format!("{b}/{name}")), "{name} differs");
    }
}

fn manifest(world: &World, run: &str) -> Value {
    serde_json::from_str(&world.read(&format!("{run}/manifest.json"))).expect("JSON")
}

/// Random times from a fixed sequence, between 0 and `longest`.
struct Instants(u64);

impl Instants {
    fn next(&mut self, longest: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        longest.mul_f64((self.0 >> 40) as f64 / f64::from(1 << 24))
    }
}

/// Starts a run and kills it after `time`; returns whether it was still running.
fn kill_after(world: &World, run: &[&str], time: Duration) -> bool {
    let mut child = world.command(run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
    std::thread::sleep(time);
    child.kill().expect("killed, or at its end");
    let status = child.wait().expect("waited for");
    assert!(status.code().is_none_or(|code| code == 0), "{status}");
    status.code().is_none()
}

#[test]
fn fifty_kills_change_no_byte_of_the_results() {
    let world = World::new();
    let (data, model) = (data(&world, 24), tiny().display().to_string());
    // Slow enough that answers take about a second.
    let slow = ["--no-sharing", "--threads", "1"];
    let began = Instant::now();
    world.run(&[&arguments(&model, &data, "whole")[..], &slow].concat()).exits(0);
    // Grows with each kill and shrinks with each end, so that a run is killed several times on any machine.
    let mut longest = began.elapsed();
    let (mut instants, mut kills, mut runs) = (Instants(7), 0, 0);
    while kills < 50 {
        // Each run is killed and resumed until it finishes.
        runs += 1;
        let out = format!("killed-{runs}");
        let resumed = [&arguments(&model, &data, &out)[..], &slow, &["--resume"]].concat();
        while kill_after(&world, &resumed, instants.next(longest)) {
            kills += 1;
            longest = longest.mul_f64(1.05);
        }
        longest = longest.mul_f64(0.7);
        same_results(&world, "whole", &out);
        assert_eq!(manifest(&world, &out)["status"], "finished");
    }
    assert!(runs < 25, "only {kills} of {} processes were killed before their end", kills + runs);
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_says_how_to_go_on_and_does() {
    if interrupts_are_ignored() {
        println!("skipped: interrupts are ignored here, and probity leaves that as it is");
        return;
    }
    let world = World::new();
    let (data, model) = (data(&world, 24), tiny().display().to_string());
    let slow = ["--no-sharing", "--threads", "1"];
    world.run(&[&arguments(&model, &data, "whole")[..], &slow].concat()).exits(0);
    let run = [&arguments(&model, &data, "run")[..], &slow].concat();
    let child = world.command(&run).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
    let rows = world.path("run/comparisons.jsonl");
    while std::fs::metadata(&rows).map_or(0, |found| found.len()) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    interrupt(&child);
    let ran = Ran::from(child.wait_with_output().expect("ended")).exits(130);
    assert!(ran.stderr.contains("--resume to continue"), "{}", ran.stderr);
    assert_eq!(manifest(&world, "run")["status"], "interrupted");
    assert!(world.rows("run/comparisons.jsonl").len() < 24 * 56, "it stopped early");
    world.run(&[&run[..], &["--resume"]].concat()).exits(0);
    same_results(&world, "whole", "run");
}

#[cfg(unix)]
#[test]
fn writes_that_fail_change_no_byte_of_the_results() {
    let world = World::new();
    let (data, model) = (data(&world, 12), tiny().display().to_string());
    world.run(&arguments(&model, &data, "whole")).exits(0);
    let resumed = [arguments(&model, &data, "refused"), vec!["--resume"]].concat();
    // No file may exceed this number of blocks of 512 bytes: the manifest, the samples, the answers and a table fail in
    // turn.
    let mut refusals = BTreeSet::new();
    for blocks in [1, 8, 12, 20, 66, 80, 200, 300, 400, 600, 800, 1000, 1500, 2000] {
        let limited = ["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""), "sh"];
        let program = env!("CARGO_BIN_EXE_probity");
        let ran = Ran::from(world.program("sh").args(limited).arg(program).args(&resumed).output().expect("started"));
        if ran.code == Some(0) {
            continue;
        }
        let ran = ran.exits(2);
        assert!(ran.stderr.contains("could not be"), "{}", ran.stderr);
        refusals
            .extend(ran.stderr.split_whitespace().find_map(|word| word.strip_prefix("refused/")).map(str::to_owned));
    }
    assert!(refusals.len() >= 2 && refusals.contains("answers.sqlite"), "{refusals:?}");
    world.run(&resumed).exits(0);
    same_results(&world, "whole", "refused");
}

#[cfg(unix)]
#[test]
fn a_folder_that_nothing_can_be_written_to_is_named() {
    let world = World::new();
    let (data, model) = (data(&world, 1), tiny().display().to_string());
    for out in ["/dev/null/run", "/proc/run"] {
        world.run(&arguments(&model, &data, out)).fails_with(&[out, "could not be created"]);
    }
}

#[test]
fn a_resumed_run_asks_only_what_is_missing_and_another_run_is_refused() {
    let world = World::new();
    let (data, model) = (data(&world, 2), tiny().display().to_string());
    let run = arguments(&model, &data, "run");
    world.run(&run).exits(0);
    world.run(&run).fails_with(&["already holds a run (finished)", "--resume", "--overwrite"]);
    let cost = |run: &str| manifest(&world, run)["cost"]["tokens_computed"].as_u64().expect("a number");
    let first = cost("run");
    let before: Vec<String> = RESULTS.map(|name| world.read(&format!("run/{name}"))).into();
    world.run(&[&run[..], &["--resume", "--threads", "1"]].concat()).exits(0);
    assert!(first > 0 && cost("run") == 0, "nothing is computed again");
    assert_eq!(RESULTS.map(|name| world.read(&format!("run/{name}"))).to_vec(), before);
    assert_eq!(manifest(&world, "run")["resumed"].as_array().map(Vec::len), Some(1));
    let other = [&run[..], &["--resume", "--seed", "5"]].concat();
    world.run(&other).fails_with(&["holds another run: seeds.seed differs: ", " now, ", " in the run", "--out"]);
    let fewer = [&run[..], &["--resume", "--limit", "1"]].concat();
    world.run(&fewer).fails_with(&["samples differs: 1 now, 2 in the run", "--overwrite"]);
    assert_eq!(RESULTS.map(|name| world.read(&format!("run/{name}"))).to_vec(), before, "nothing is taken away");
}

#[test]
fn no_gold_is_a_view_of_answers_that_are_there() {
    let world = World::new();
    let (data, model) = (data(&world, 2), tiny().display().to_string());
    let run = arguments(&model, &data, "run");
    world.run(&run).exits(0);
    let says = || -> serde_json::Value { serde_json::from_str(&world.read("run/summary.json")).expect("JSON") };
    let (before, scores) = (says(), world.read("run/scores.jsonl"));
    world.run(&[&run[..], &["--resume", "--no-gold"]].concat()).exits(0);
    assert_eq!(manifest(&world, "run")["cost"]["tokens_computed"], 0, "nothing is asked again");
    let without = says();
    assert!(without["verdict"][0]["agreement"].is_null() && without["values"]["trust"].is_null(), "{without:#}");
    assert_eq!(manifest(&world, "run")["arguments_in_force"]["method"]["no_gold"], true);
    // With gold again, the output is the original one.
    world.run(&[&run[..], &["--resume"]].concat()).exits(0);
    assert_eq!((&says()["verdict"], world.read("run/scores.jsonl")), (&before["verdict"], scores));
    assert!(before["verdict"] != without["verdict"] && before["verdict"][0]["agreement"].is_string(), "{before:#}");
}

#[test]
fn a_text_whose_file_was_changed_makes_another_run() {
    let world = World::new();
    let (data, model) = (data(&world, 1), tiny().display().to_string());
    let template = world.file("t.j2", "{{ context }} {{ candidate }} {{ attribute }}");
    let own = ["--template", &template, "--criteria", "@c.txt"];
    let run = [&["g-eval"], &arguments(&model, &data, "run")[1..], &own].concat();
    let resumed = || world.run(&[&run[..], &["--resume"]].concat());
    world.file("c.txt", "How well it hangs together");
    world.run(&run).exits(0);
    resumed().exits(0);
    let before = world.read("run/scores.jsonl");
    world.file("c.txt", "Whether it is true");
    resumed().fails_with(&["run holds another run: the file of --criteria differs"]);
    world.file("c.txt", "How well it hangs together");
    world.file("t.j2", "{{ candidate }} {{ context }} {{ attribute }}");
    resumed().fails_with(&["run holds another run: the file of --template differs"]);
    std::fs::remove_file(world.path("c.txt")).expect("there");
    resumed().fails_with(&["--criteria: cannot read c.txt", "hint: pass an existing file after the @"]);
    assert_eq!(world.read("run/scores.jsonl"), before);
}

#[test]
fn runs_share_a_cache_and_changed_data_reuse_what_is_still_the_same() {
    let world = World::new();
    let (small, large, model) = (data(&world, 2), data(&world, 3), tiny().display().to_string());
    let run = |data: &str, out: &str| {
        world.run(&[&arguments(&model, data, out)[..], &["--cache", "kept"]].concat()).exits(0);
        manifest(&world, out)["cost"]["tokens_computed"].as_u64().expect("a number")
    };
    let (two, three) = (run(&small, "two"), run(&large, "three"));
    assert!(0 < three && three < two, "one sample of three is new: {three} of {two}");
    assert_eq!(run(&large, "again"), 0);
    same_results(&world, "three", "again");
    world.run(&arguments(&model, &large, "alone")).exits(0);
    same_results(&world, "three", "alone");
}

#[test]
fn processes_share_a_cache_at_the_same_time() {
    let world = World::new();
    let (data, model) = (data(&world, 12), tiny().display().to_string());
    world.run(&arguments(&model, &data, "alone")).exits(0);
    let start = |out: &str| {
        let run = [&arguments(&model, &data, out)[..], &["--cache", "kept"]].concat();
        world.command(&run).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
    };
    let both = ["one", "two"].map(|out| (out, start(out)));
    for (out, child) in both {
        Ran::from(child.wait_with_output().expect("ended")).exits(0);
        same_results(&world, "alone", out);
    }
}

#[test]
fn a_folder_that_a_process_is_writing_to_is_refused() {
    let world = World::new();
    let (data, model) = (data(&world, 40), tiny().display().to_string());
    let run = arguments(&model, &data, "run");
    let mut child = world.command(&run).stderr(std::process::Stdio::null()).spawn().expect("started");
    while !world.path("run/manifest.json").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for option in ["--resume", "--overwrite"] {
        world
            .run(&[&run[..], &[option]].concat())
            .fails_with(&["another process is writing to", "wait until it has finished"]);
    }
    child.kill().expect("running");
    child.wait().expect("waited for");
    world.run(&[&run[..], &["--resume"]].concat()).exits(0);
}

#[test]
fn progress_is_told_to_programs_as_objects() {
    let world = World::new();
    let (data, model) = (data(&world, 2), tiny().display().to_string());
    let ran = world.run(&[&arguments(&model, &data, "run")[..], &["--progress", "json"]].concat()).exits(0);
    let events: Vec<Value> =
        ran.stderr.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    assert_eq!((of("begin").len(), of("end").len()), (1, 1));
    let end = of("end")[0];
    assert_eq!((&end["what"], &end["done"], &end["total"]), (&"compare".into(), &112.into(), &112.into()));
    // The tiny model has low mass on A and B.
    assert_eq!(end["outcomes"]["low_mass"], 112);
    assert!(
        of("warning").iter().any(|event| event["text"].as_str().is_some_and(|text| text.contains("low label mass"))),
        "{}",
        ran.stderr
    );
    let ran = world.run(&[&arguments(&model, &data, "run")[..], &["--progress", "json"]].concat()).exits(2);
    let error: Value = serde_json::from_str(ran.stderr.lines().last().expect("an error")).expect("an object");
    assert_eq!((&error["event"], &error["code"]), (&"error".into(), &2.into()));
}
