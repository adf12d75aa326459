//! Help, completions, manual pages, unknown names, closed pipes.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::harness::{Ran, World};

const OWN_COMMANDS: [&str; 15] = [
    "run", "recipe", "model", "logprobs", "generate", "verify-determinism", "metrics", "label", "meta", "import",
    "data", "report", "demo", "completions", "man",
];

#[test]
fn help_lists_every_command_and_each_has_help_of_its_own() {
    let world = World::new();
    let help = world.run(&["--help"]).exits(0);
    assert!(help.stderr.is_empty());
    let methods = probity_studies::methods().map(probity_methods::DynMethod::name);
    for command in methods.chain(OWN_COMMANDS) {
        assert!(help.stdout.contains(&format!("\n  {command} ")), "{command}\n{}", help.stdout);
        let own = world.run(&[command, "--help"]).exits(0);
        assert!(own.stdout.contains("Usage: probity ") && own.stdout.len() > 200, "{}", own.stdout);
    }
    let compare = world.run(&["compare", "--help"]).exits(0).stdout;
    let options =
        "--attribute --pairs --rank --debias --precision --seed --compute --limit --map --data-format --out --dry-run";
    for option in options.split(' ') {
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
fn where_a_model_is_left_out_it_is_said_how_to_find_one() {
    let world = World::new();
    world
        .run(&["compare", "--data", "d", "--out", "o", "--attribute", "a"])
        .fails_with(&["--model <NAME|PATH>", "hint: `probity model list`", "PROBITY_MODEL"]);
    let other = world.run(&["compare", "--model", "m", "--out", "o"]);
    assert!(!other.stderr.contains("probity model list"), "{}", other.stderr);
}

#[test]
fn a_mistyped_option_value_lists_the_right_ones() {
    let world = World::new();
    world
        .run(&["compare", "--model", "m", "--data", "d", "--out", "o", "--attribute", "a", "--rank", "wins"])
        .fails_with(&["invalid value 'wins'", "win-ratio"]);
    world
        .run(&["compare", "--model", "m", "--data", "d", "--out", "o", "--attribute", "a", "--seed", "-1"])
        .fails_with(&["invalid value '-1' for '--seed"]);
    world
        .run(&["logprobs", "--model", "m", "--input", "i", "--min-mass", "2"])
        .fails_with(&["expected a number from 0 to 1"]);
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
        let mut child =
            world.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
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
    world
        .run(&["import", "sumeval", &file])
        .fails_with(&["unknown importer `sumeval`", "did you mean `summeval`?", "topical-chat"]);
    world.run(&["import", "summeval", "absent.json"]).fails_with(&["absent.json could not be opened", "hint:"]);
    world.run(&["import", "llmbar", &file]).fails_with(&["is not a valid llmbar file"]);
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
    assert!(
        told.stdout.is_empty() && told.stderr.contains("100 samples, 200 candidates in llmbar.jsonl"),
        "{}",
        told.stderr
    );
}

/// A public file in its importer's format, with one item.
fn llmbar(world: &World) -> String {
    world.file("llmbar.json", r#"[{"input": "Name a colour.", "output_1": "Blue.", "output_2": "Seven.", "label": 1}]"#)
}

#[test]
fn a_public_file_of_another_set_is_told_with_the_importer_that_fits() {
    let world = World::new();
    world
        .run(&["import", "summeval", &llmbar(&world)])
        .fails_with(&["is not a valid summeval file", "hint: probity import llmbar "]);
}

#[cfg(unix)]
#[test]
fn an_import_that_cannot_be_written_whole_is_an_error_and_leaves_nothing() {
    let world = World::new();
    let item = json!({"input": "Name a colour. ".repeat(500), "output_1": "Blue.", "output_2": "Seven.", "label": 1});
    world.file("llmbar.json", json!([item]).to_string());
    std::fs::create_dir(world.path("out")).expect("folder");
    // A shell that limits files to 1 kB and turns the signal for longer ones into an error.
    let limited = "trap '' XFSZ; ulimit -f 1; exec \"$0\" import llmbar llmbar.json --out out/data.jsonl";
    let output =
        Command::new("sh").args(["-c", limited, env!("CARGO_BIN_EXE_probity")]).current_dir(world.path("")).output();
    Ran::from(output.expect("started")).fails_with(&["File too large"]);
    assert_eq!(std::fs::read_dir(world.path("out")).expect("folder").count(), 0);
}

#[test]
fn import_to_a_full_disk_is_an_error() {
    if !std::path::Path::new("/dev/full").exists() {
        eprintln!("skipped: this system has no /dev/full");
        return;
    }
    let world = World::new();
    world.run(&["import", "llmbar", &llmbar(&world), "--out", "/dev/full"]).fails_with(&["No space left"]);
}

#[test]
fn short_help_shows_what_people_choose_and_long_help_everything_in_groups() {
    let world = World::new();
    let count = |text: &str| {
        text.lines().filter(|line| line.trim_start().starts_with("--") || line.trim_start().starts_with("-q")).count()
    };
    for method in ["compare", "reviseval", "judge", "gpt-score"] {
        let (short, long) =
            (world.run(&[method, "-h"]).exits(0).stdout, world.run(&[method, "--help"]).exits(0).stdout);
        assert!(
            count(&short) <= 32 && count(&short) + 8 < count(&long),
            "{method}: {} of {}",
            count(&short),
            count(&long)
        );
        assert!(
            !short.contains("--compute") && short.contains("--help all") && !long.contains("--token-budget"),
            "{short}"
        );
        for part in
            ["Prompt:", "Model:", "Data and output:", "--compute <KEY=VALUE>", "- token-budget=N:", "- isa=NAME:"]
        {
            assert_eq!(long.matches(part).count(), 1, "{method}: {part}");
        }
    }
}

#[test]
fn defaults_come_from_the_environment_and_behind_it_from_a_file() {
    let world = World::new();
    let model = crate::harness::tiny().display().to_string();
    let data = world.file(
        "d.jsonl",
        "{\"id\": \"s\", \"context\": \"a\", \"candidates\": [{\"id\": \"a\", \"text\": \"b\"}, \
         {\"id\": \"b\", \"text\": \"c\"}]}",
    );
    let config = world.file("config.toml", format!("model = {model:?}\nruns = \"kept\"\n"));
    let run = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("PROBITY_CONFIG", &config).envs(variables.iter().copied());
        crate::harness::Ran::from(command.output().expect("started"))
    };
    let judged = ["gpt-score", "--data", &data, "--attribute", "coherence"];
    run(&[], &judged).exits(0);
    assert_eq!(std::fs::read_dir(world.path("kept")).expect("there").count(), 1);
    let computing =
        world.file("computing.toml", format!("model = {model:?}\n[compute]\nthreads = 1\nno-sharing = true\n"));
    for (out, more, threads) in [
        ("c", &[][..], 1),
        ("d", &["--compute", "threads=2"], 2),
        ("e", &["--threads", "2", "--compute", "isa=plain"], 2),
    ] {
        run(&[("PROBITY_CONFIG", &computing)], &[&judged[..], &["--out", out], more].concat()).exits(0);
        let manifest: serde_json::Value =
            serde_json::from_str(&world.read(&format!("{out}/manifest.json"))).expect("JSON");
        let options = &manifest["arguments_in_force"]["model"];
        assert_eq!((&options["threads"], &options["share_prefixes"]), (&threads.into(), &false.into()), "{manifest}");
    }
    let shown = run(&[("PROBITY_CONFIG", &computing)], &["config"]).exits(0).stdout;
    assert!(shown.contains("no-sharing=yes, threads=1"), "{shown}");
    let broken = world.file("broken.toml", "[compute]\nthread = 1\n");
    let refused = run(&[("PROBITY_CONFIG", &broken)], &judged).exits(2);
    assert!(refused.stderr.contains("[compute]: unknown option `thread`"), "{}", refused.stderr);
    run(&[("PROBITY_MODEL", "no-such-model")], &judged).fails_with(&["no-such-model"]);
    let shown = run(&[("PROBITY_RUNS", "elsewhere")], &["config"]).exits(0).stdout;
    assert!(
        shown.contains("config.toml")
            && shown.contains("elsewhere")
            && shown.contains("$PROBITY_RUNS")
            && shown.contains("the file"),
        "{shown}"
    );
    let broken = world.file("broken.toml", "modle = \"x\"\n");
    let refused = run(&[("PROBITY_CONFIG", &broken)], &judged).exits(2);
    assert!(refused.stderr.contains("modle") && refused.stderr.contains("hint: set model"), "{}", refused.stderr);
    world.run(&judged).fails_with(&["--model"]);
}

#[test]
fn shells_complete_models_metrics_and_importers() {
    let script = World::new().run(&["completions", "bash"]).exits(0).stdout;
    for name in ["smollm2-135m-instruct", "rouge-l", "topical-chat"] {
        assert!(script.contains(name), "{name}");
    }
}

#[test]
fn a_model_s_name_that_is_nearly_right_suggests_the_right_one() {
    let world = World::new();
    let data = world
        .file("d.jsonl", "{\"id\": \"s\", \"context\": \"a\", \"candidates\": [{\"id\": \"a\", \"text\": \"b\"}]}");
    let ran =
        world.run(&["gpt-score", "--model", "smolm2", "--data", &data, "--attribute", "coherence", "--out", "run"]);
    ran.fails_with(&["did you mean `smollm2-135m-instruct`?"]);
}

#[test]
fn quiet_does_not_silence_progress_that_is_asked_for_by_name() {
    let world = World::new();
    let model = crate::harness::tiny().display().to_string();
    let data = world
        .file("d.jsonl", "{\"id\": \"s\", \"context\": \"a\", \"candidates\": [{\"id\": \"a\", \"text\": \"b\"}]}");
    let ran = world
        .run(&[
            "-q", "--progress", "json", "gpt-score", "--model", &model, "--data", &data, "--attribute", "coherence",
            "--out", "run",
        ])
        .exits(0);
    assert!(
        ran.stderr.contains("\"event\":\"end\"") && !ran.stderr.contains("\"event\":\"message\""),
        "{}",
        ran.stderr
    );
}
