//! Help, completions, manual pages, names that are not there, pipes that close.

use std::process::Stdio;

use crate::harness::{Ran, World};

const COMMANDS: [&str; 9] = ["compare", "g-eval", "parapluie", "model", "logprobs", "import", "demo", "completions", "man"];

#[test]
fn help_lists_every_command_and_each_has_help_of_its_own() {
    let world = World::new();
    let help = world.run(&["--help"]).exits(0);
    assert!(help.stderr.is_empty());
    for command in COMMANDS {
        assert!(help.stdout.contains(&format!("\n  {command} ")), "{command}\n{}", help.stdout);
        let own = world.run(&[command, "--help"]).exits(0);
        assert!(own.stdout.contains("Usage: probity ") && own.stdout.len() > 200, "{}", own.stdout);
    }
    let compare = world.run(&["compare", "--help"]).exits(0).stdout;
    for option in ["--attribute", "--pairs", "--rank", "--debias", "--precision", "--seed", "--threads", "--limit", "--out", "--strict"] {
        assert!(compare.contains(option), "{option}\n{compare}");
    }
}

#[test]
fn version_goes_to_standard_output() {
    assert_eq!(World::new().run(&["--version"]).exits(0).stdout, format!("probity {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_mistyped_command_suggests_the_right_one() {
    World::new().run(&["comapre"]).fails_with(&["unrecognized subcommand 'comapre'", "'compare'"]);
}

#[test]
fn a_mistyped_option_value_lists_the_right_ones() {
    let world = World::new();
    world
        .run(&["compare", "--model", "m", "--data", "d", "--out", "o", "--attribute", "a", "--rank", "wins"])
        .fails_with(&["invalid value 'wins'", "win-ratio"]);
    world.run(&["logprobs", "--model", "m", "--input", "i", "--min-mass", "2"]).fails_with(&["expected a number from 0 to 1"]);
}

#[test]
fn completions_and_manual_pages_are_made_for_every_command() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(world.run(&["completions", shell]).exits(0).stdout.contains("parapluie"), "{shell}");
    }
    assert!(world.run(&["man"]).exits(0).stdout.contains(".TH probity 1"));
    world.run(&["man", "--out", "pages"]).exits(0);
    for page in ["probity.1", "probity-compare.1", "probity-model-get.1"] {
        assert!(world.read(&format!("pages/{page}")).contains(".TH"), "{page}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_program_with_success() {
    let world = World::new();
    for arguments in [&["completions", "bash"][..], &["model", "list"], &["man"]] {
        let mut child = world.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        drop(child.stdout.take());
        Ran::from(child.wait_with_output().expect("ended")).exits(0);
    }
}

#[test]
fn a_full_disk_on_standard_output_is_an_error() {
    let world = World::new();
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        eprintln!("skipped: this system has no /dev/full");
        return;
    };
    let output = world.command(&["model", "list"]).stdout(full).output().expect("started");
    Ran::from(output).fails_with(&["No space left"]);
}

#[test]
fn an_unknown_importer_suggests_the_nearest_and_lists_the_rest() {
    let world = World::new();
    let file = world.file("x.json", "{}");
    world.run(&["import", "sumeval", &file]).fails_with(&["no importer `sumeval`", "did you mean `summeval`?", "topical-chat"]);
    world.run(&["import", "summeval", "absent.json"]).fails_with(&["absent.json could not be opened", "hint:"]);
    world.run(&["import", "llmbar", &file]).fails_with(&["is not a llmbar file"]);
}

#[test]
fn a_public_file_becomes_samples_that_can_be_read_back() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data");
    let folder = std::env::var("PROBITY_SHARED_DATA").unwrap_or_else(|_| beside.to_owned());
    let file = format!("{folder}/llmbar_natural.json");
    if !std::path::Path::new(&file).is_file() {
        eprintln!("skipped: llmbar_natural.json is not there; set PROBITY_SHARED_DATA to the folder that holds it");
        return;
    }
    let world = World::new();
    let printed = world.run(&["import", "llmbar", &file]).exits(0);
    let told = world.run(&["import", "llmbar", &file, "--out", "llmbar.jsonl"]).exits(0);
    assert_eq!(printed.stdout, world.read("llmbar.jsonl"));
    assert!(told.stdout.is_empty() && told.stderr.contains("100 samples, 200 candidates in llmbar.jsonl"), "{}", told.stderr);
}

#[test]
fn import_to_a_full_disk_is_an_error_and_leaves_nothing() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data/llmbar_natural.json");
    if !std::path::Path::new(beside).is_file() || !std::path::Path::new("/dev/full").exists() {
        eprintln!("skipped: llmbar_natural.json or /dev/full is not there");
        return;
    }
    World::new().run(&["import", "llmbar", beside, "--out", "/dev/full"]).fails_with(&["No space left"]);
}
