//! `probity verify-determinism`, and options that must not change any bit.

use serde_json::{Value, json};

use crate::harness::{Ran, World, golden, lines, tiny};

fn verify(world: &World, model: &str, more: &[&str]) -> Ran {
    world.run(&[&["verify-determinism", "--model", model], more].concat())
}

#[test]
fn tiny_models_keep_every_bit_in_every_precision() {
    let world = World::new();
    // Weights of all types in every precision, and a sliding window with weights that every precision keeps unchanged.
    let (mixed, window) = (golden("tiny-gguf-mixed").join("model.gguf"), golden("mistral-window"));
    for (model, precision) in [(&mixed, "exact"), (&mixed, "dots"), (&mixed, "tiles"), (&window, "exact")] {
        let ran = verify(&world, &model.display().to_string(), &["--precision", precision]).exits(0);
        assert!(ran.stdout.contains("all bits are the same"), "{}", ran.stdout);
        for varied in ["order", "threads", "token budget", "sharing", "window", "cache budget", "all of these", "plain"]
        {
            assert!(ran.stdout.contains(varied), "{varied}\n{}", ran.stdout);
        }
        assert!(!ran.stderr.contains("warning"), "every request can be asked: {}", ran.stderr);
    }
}

#[test]
fn class_heads_keep_every_bit_and_nothing_asked_is_no_success() {
    let world = World::new();
    let model = golden("../classifiers/llama-reward").display().to_string();
    let ran = verify(&world, &model, &[]).exits(0);
    assert!(ran.stdout.contains("all bits are the same") && !ran.stderr.contains("warning"), "{}", ran.stderr);
    let data = world.file("r.jsonl", lines(&[json!({"id": "x", "prompt": "one", "labels": {"a": ["a"], "b": ["b"]}})]));
    let ran = verify(&world, &model, &["--data", &data]).exits(2);
    assert!(ran.stderr.contains("nothing can be compared") && ran.stdout.is_empty(), "{}", ran.stderr);
}

/// With real weights, if downloaded.
#[test]
fn smollm2_keeps_every_bit_in_both_precisions() {
    let run = |arguments: &[&str]| {
        Ran::from(std::process::Command::new(env!("CARGO_BIN_EXE_probity")).args(arguments).output().expect("started"))
    };
    let name = "smollm2-135m-instruct";
    if run(&["model", "verify", name]).code != Some(0) {
        eprintln!("skipped: {name} is not here; probity model get {name}");
        return;
    }
    let verified = |precision: &str, more: &[&str]| {
        let ran = run(&[&["verify-determinism", "--model", name, "--precision", precision], more].concat()).exits(0);
        assert!(ran.stdout.contains("all bits are the same"), "{}", ran.stdout);
    };
    verified("fast", &[]);
    // The other precision takes three times as long, so only a few requests with a common prefix.
    let world = World::new();
    let request = |k: usize| {
        let prompt = format!("The ferry had not run since November.\n\nSummary {}: it waits.\n\nIs that good?", k / 2);
        json!({"id": k.to_string(), "prompt": prompt, "labels": {"good": [" Yes", " certainly"], "bad": [" No"]}})
    };
    let data = world.file("r.jsonl", lines(&(0..4).map(request).collect::<Vec<_>>()));
    verified("exact", &["--data", &data]);
}

#[test]
fn requests_of_ones_own_are_verified_and_unfit_ones_left_out() {
    let world = World::new();
    let requests = [
        json!({"id": "good", "prompt": "one two", "labels": {"no": [" no"], "a": ["a"]}}),
        json!({"id": "bad", "tokens": [99999], "continuation": "x"}),
    ];
    let data = world.file("r.jsonl", lines(&requests));
    let ran = verify(&world, &tiny().display().to_string(), &["--data", &data]).exits(0);
    assert!(ran.stderr.contains("1 of 2 requests do not fit"), "{}", ran.stderr);
    assert!(ran.stdout.contains("numbers of 1 requests"), "{}", ran.stdout);
}

#[test]
fn no_option_of_the_computation_changes_an_answer() {
    let world = World::new();
    let request = |k: usize| {
        json!({"id": k.to_string(), "prompt": format!("{} \
        {k}", "word ".repeat(10 * (k % 3))), "continuation": " it is so"})
    };
    let input = world.file("r.jsonl", lines(&(0..12).map(request).collect::<Vec<_>>()));
    let model = tiny().display().to_string();
    let run = |more: &[&str]| {
        world.run(&[&["logprobs", "--model", &model, "--input", &input], more].concat()).exits(0).stdout
    };
    let expected = run(&[]);
    for more in [
        &["--isa", "plain"][..],
        &["--token-budget", "5"],
        &["--cache-budget", "300kB"],
        &["--threads", "3", "--no-sharing", "--isa", "plain", "--token-budget", "64"],
        &[
            "--compute", "threads=3", "--compute", "no-sharing=yes", "--compute", "isa=plain", "--compute",
            "token-budget=64",
        ],
    ] {
        assert_eq!(run(more), expected, "{more:?}");
    }
}

#[test]
fn the_manifest_says_how_the_model_was_run() {
    let world = World::new();
    let input = world.file("r.jsonl", lines(&[json!({"id": "1", "prompt": "x", "continuation": " y"})]));
    let model = tiny().display().to_string();
    let more = [
        "--compute", "isa=plain", "--token-budget", "77", "--compute", "cache-budget=3MiB", "--compute", "threads=1",
        "--compute", "threads=2", "--threads", "2", "--manifest", "m.json",
    ];
    world.run(&[&["logprobs", "--model", &model, "--input", &input][..], &more].concat()).exits(0);
    let manifest: Value = serde_json::from_str(&world.read("m.json")).expect("JSON");
    let options = &manifest["arguments_in_force"];
    assert_eq!(
        (&options["isa"], &options["token_budget"], &options["cache_budget"]),
        (&json!("plain"), &json!(77), &json!(3 << 20))
    );
    assert_eq!(options["threads"], 2);
    world.run(&["logprobs", "--model", &model, "--input", &input, "--manifest", "d.json"]).exits(0);
    let defaults: Value = serde_json::from_str(&world.read("d.json")).expect("JSON");
    assert!(
        defaults["arguments_in_force"]["cache_budget"].as_u64() > Some(0)
            && defaults["arguments_in_force"]["isa"].is_string()
    );
    assert!(defaults["usage"]["peak_cache_bytes"].as_u64() > Some(0), "{defaults}");
}

#[test]
fn an_unknown_instruction_set_lists_the_known_and_sizes_need_a_unit_that_is_one() {
    let world = World::new();
    world
        .run(&["logprobs", "--model", "m", "--input", "i", "--isa", "sse"])
        .fails_with(&["--isa", "plain, avx2, avx-vnni, avx512"]);
    world
        .run(&["logprobs", "--model", "m", "--input", "i", "--cache-budget", "2Gold"])
        .fails_with(&["--cache-budget", "GiB"]);
    let keys = "its options are threads, no-sharing, token-budget, cache-budget, draft, side-by-side, isa";
    for (more, told) in [
        (&["--compute", "thread=2"][..], &["--compute", "unknown option `thread`; did you mean `threads`?", keys][..]),
        (&["--compute", "threads"], &["--compute", "`threads` has no value", "write KEY=VALUE", keys]),
        (&["--compute", "threads=0"], &["--compute", "`threads` cannot be `0`", "1..=1024", "hint: threads: "]),
        (&["--compute", "draft=on"], &["--compute", "`draft` cannot be `on`", "hint: use one of lookup, off"]),
        (&["--compute", "isa=sse"], &["--compute", "`isa` cannot be `sse`", "plain, avx2", "hint: isa: "]),
        (
            &["--compute", "threads=2", "--threads", "3"],
            &["--threads", "another value in `compute`: 2", "hint: set it once"],
        ),
    ] {
        world.run(&[&["logprobs", "--model", "m", "--input", "i"], more].concat()).fails_with(told);
    }
}
