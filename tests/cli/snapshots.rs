//! The output of commands as files for review: `tests/cli/snapshots`. After an intended change, `INSTA_UPDATE=always
//! cargo test --test cli snapshots` rewrites them, and the difference is reviewed like code.

use serde_json::json;

use crate::harness::{Ran, World, lines, tiny};

/// Both streams, without what depends on the machine.
fn shown(world: &World, ran: &Ran) -> String {
    let code = ran.code.expect("it ends by itself");
    without_paths(world, &format!("exit code {code}\n── stdout\n{}── stderr\n{}", ran.stdout, ran.stderr))
}

fn without_paths(world: &World, text: &str) -> String {
    let (tiny, here) = (tiny().display().to_string(), world.path("").display().to_string());
    text.replace(&tiny, "TINY").replace(here.trim_end_matches('/'), "HERE")
}

/// Compares a command's output with the file of this name.
fn matches(world: &World, name: &str, arguments: &[&str]) {
    let ran = world.run(arguments);
    insta::with_settings!({
        omit_expression => true,
        prepend_module_to_snapshot => false,
        description => without_paths(world, &format!("probity {}", arguments.join(" "))),
        filters => vec![
            (r"\d+\.\d+ s\b", "N s"),
            (r"\b\d+ ms\b", "N s"),
            (r"[\d,]+ tokens/s", "N tokens/s"),
            (r"of \d+(\.\d+)? [kMG]?B allowed", "of SIZE allowed"),
            (r"with \d+ threads", "with N threads"),
            (r"\bisa [a-z0-9-]+", "isa ISA"),
            (r"\bthreads \d+", "threads N"),
            (r"\bcache budget \d+", "cache budget N"),
            (r"version:\d+\.\d+\.\d+", "version:VERSION"),
        ],
    }, { insta::assert_snapshot!(name, shown(world, &ran)) });
}

fn data(world: &World) -> String {
    let candidate = |k: usize| json!({"id": k.to_string(), "text": format!("text {k}"), "scores": {"coherence": k}});
    let sample = |name: &str| json!({"id": name, "context": "the cat sat", "candidates": (0..3).map(candidate).collect::<Vec<_>>()});
    world.file("data.jsonl", lines(&[sample("first"), sample("second")]))
}

#[test]
fn help() {
    let world = World::new();
    matches(&world, "help", &["-h"]);
    matches(&world, "help-compare", &["compare", "-h"]);
    matches(&world, "help-run", &["run", "-h"]);
}

#[test]
fn a_run_and_what_is_shown_of_it() {
    let world = World::new();
    let (data, model) = (data(&world), tiny().display().to_string());
    let compare = ["compare", "--model", &model, "--data", &data, "--attribute", "coherence"];
    matches(&world, "dry-run", &[&compare[..], &["--dry-run"]].concat());
    matches(&world, "compare", &[&compare[..], &["--quiet", "--out", "run"]].concat());
    matches(&world, "show", &["show", "run"]);
    matches(&world, "show-sample", &["show", "run", "first"]);
    matches(&world, "check", &["check", "run"]);
    matches(&world, "meta", &["meta", "--scores", "run"]);
    matches(&world, "refused-folder", &[&compare[..], &["--out", "run"]].concat());
}

#[test]
fn stages() {
    let world = World::new();
    let (data, model) = (data(&world), tiny().display().to_string());
    let prompt = world.file("revise.j2", "{{ response }}");
    let template = format!("adapted={prompt}");
    let own = ["--mode", "pointwise", "--attribute", "coherence", "--scale", "1..5", "--verdict", "label"];
    let more = ["--reference", "none,adapted", "--revision-tokens", "8", "--reviser-template", &template];
    let all = [&["reviseval", "--model", &model, "--data", &data][..], &own, &more].concat();
    matches(&world, "dry-run-stages", &[&all[..], &["--dry-run"]].concat());
    matches(&world, "until", &[&all[..], &["--quiet", "--until", "revisions", "--out", "run"]].concat());
    matches(&world, "unknown-stage", &[&all[..], &["--until", "revision"]].concat());
}

#[test]
fn errors() {
    let world = World::new();
    let (data, model) = (data(&world), tiny().display().to_string());
    let broken = world.file("broken.jsonl", "{\"id\": \"a\", \"candidates\": [}\n{\"id\": 3}\n");
    matches(&world, "no-model", &["compare", "--model", "nowhere", "--data", &data, "--attribute", "coherence"]);
    matches(&world, "broken-data", &["compare", "--model", &model, "--data", &broken, "--attribute", "coherence"]);
    matches(&world, "no-gold", &["compare", "--model", &model, "--data", &data, "--attribute", "coherense"]);
    matches(&world, "unknown-option", &["compare", "--modle", &model]);
    let recipe = world
        .file("recipe.toml", "[run.a]\nmethod = \"comparee\"\n\n[run.b]\nmethod = \"compare\"\npairs = \"some\"\n");
    matches(&world, "recipe", &["run", &recipe]);
}
