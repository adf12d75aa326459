//! References by revision, and their use by judges and metrics, through the command line.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Ran, World, golden, lines, tiny};

fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pairs(world: &World) -> String {
    world.file("pairs.jsonl", repository("samples/pairs.jsonl"))
}

/// Prompts short enough for the tiny model.
fn short_prompts(world: &World) -> [String; 2] {
    let revise = world.file("revise.j2", "{{ response }}\n{{ guidance }}");
    let judge = world
        .file("judge.j2", "{{ candidate_a }}\n{{ candidate_b }}{% if references %}\n{{ references[0] }}{% endif %}");
    [format!("adapted={revise}"), judge]
}

/// Three pairs of short texts.
fn short_pairs(world: &World) -> String {
    let pair = |(k, texts): (usize, [&str; 2])| {
        let candidate = |k: usize| json!({"id": (k + 1).to_string(), "text": texts[k]});
        json!({"id": format!("{}/{k}", ["x", "y"][k % 2]), "context": "say \
            it", "candidates": [candidate(0), candidate(1)], "preference": "1"})
    };
    let pairs = [["the cat sat", "a dog"], ["it rains", "no rain at all"], ["one two", "two one"]];
    world.file("short.jsonl", lines(&pairs.into_iter().enumerate().map(pair).collect::<Vec<_>>()))
}

fn tokens_generated(world: &World, run: &str) -> u64 {
    let manifest: Value = serde_json::from_str(&world.read(&format!("{run}/manifest.json"))).expect("JSON");
    manifest["cost"]["tokens_generated"].as_u64().expect("a number")
}

#[test]
fn revisions_become_data_for_metrics() {
    let world = World::new();
    let (model, data, [prompt, _]) = (tiny().display().to_string(), short_pairs(&world), short_prompts(&world));
    let make = [
        "revise", "--model", &model, "--data", &data, "--max-tokens", "12", "--use-truncated", "--reviser-template",
        &prompt, "--export-sets",
    ];
    let ran = world.run(&[&make[..], &["--out", "run"]].concat()).exits(0);
    assert!(ran.stdout.contains("to primary: words"), "{}", ran.stdout);
    assert!(tokens_generated(&world, "run") > 0);
    let revisions = world.rows("run/revisions.jsonl");
    assert_eq!(revisions.len(), 3);
    assert!(
        revisions.iter().all(|row| row["primary"] != row["guidance"] && row["similarity"].as_array().is_some()),
        "{revisions:?}"
    );
    let revised = world.rows("run/revised.jsonl");
    assert!(
        revised.len() == 3
            && revised.iter().all(|sample| sample["references"].as_array().is_some_and(|all| all.len() == 1))
    );
    let chats = world.rows("run/set_reviser.jsonl");
    assert_eq!((chats.len(), &chats[0]["messages"][1]["role"]), (3, &json!("assistant")));
    world.run(&["metrics", "--metric", "rouge-l", "--data", "run/revised.jsonl", "--out", "scores"]).exits(0);
    assert_eq!(world.rows("scores/scores.jsonl").len(), 3 * 2 * 3);
    world.run(&[&make[..], &["--out", "again"]].concat()).exits(0);
    assert_eq!(world.read("run/revisions.jsonl"), world.read("again/revisions.jsonl"));
    world.run(&["report", "run", "--html", "report.html"]).exits(0);
}

#[test]
fn the_whole_has_one_table_and_resumes_to_the_same_bytes() {
    let world = World::new();
    let (model, data, [revise, judge]) = (tiny().display().to_string(), short_pairs(&world), short_prompts(&world));
    let whole = [
        "reviseval", "--model", &model, "--data", &data, "--revision-tokens", "12", "--max-tokens", "8",
        "--use-truncated", "--metric", "bleu,rouge-l", "--cost-match", "--reviser-template", &revise, "--template",
        &judge, "--out", "run",
    ];
    let ran = world.run(&whole).exits(0);
    assert!(ran.stdout.contains("Evaluators by reference"), "{}", ran.stdout);
    let tables = world.all_tables("run");
    for part in ["Evaluators by reference", "Accuracy by subset", "Cost match"] {
        assert!(tables.contains(part), "{part}\n{tables}");
    }
    assert!(tokens_generated(&world, "run") > 0);
    let summary: Value = serde_json::from_str(&world.read("run/summary.json")).expect("JSON");
    let voices = summary["values"]["pairs"].as_array().expect("a list");
    assert_eq!(voices.len(), 3 + 2 * 3, "{summary:#}");
    assert!(voices.iter().all(|voice| voice["no_reference"] == 0), "{voices:?}");
    assert!(voices.iter().filter(|voice| voice["by"] != "judge").all(|voice| voice["decided"] == 3), "{voices:?}");
    assert_eq!(world.rows("run/verdicts.jsonl").len(), 3 * 2 * (3 + 2));
    let (first, rows) = (world.read("run/summary.json"), world.read("run/preferences.jsonl"));
    let again = world.run(&[&whole[..], &["--resume"]].concat()).exits(0);
    assert!(again.stderr.contains("reused: "), "{}", again.stderr);
    assert_eq!((first, rows), (world.read("run/summary.json"), world.read("run/preferences.jsonl")));
    let dry = world.run(&[&whole[..whole.len() - 2], &["--dry-run"]].concat()).exits(0);
    for part in ["stage revisions, model ", "stage verdicts, model ", "all together 36 questions at most"] {
        assert!(dry.stdout.contains(part), "{part}\n{}", dry.stdout);
    }
    world.run(&["report", "run", "--html", "report.html"]).exits(0);
}

#[test]
fn what_was_edited_between_two_stages_is_not_written_over_and_a_finished_run_is_left_as_it_is() {
    let world = World::new();
    let (model, data, [revise, judge]) = (tiny().display().to_string(), short_pairs(&world), short_prompts(&world));
    let whole = [
        "reviseval", "--model", &model, "--data", &data, "--revision-tokens", "12", "--max-tokens", "8",
        "--use-truncated", "--reviser-template", &revise, "--template", &judge, "--out", "run",
    ];
    let run = |more: &[&str]| world.run(&[&whole[..], more].concat());
    run(&["--until", "revisions"]).exits(0);
    world.run(&["check", "run"]).exits(0);
    let samples = world.read("run/samples.jsonl");
    world.file("run/samples.jsonl", samples.clone() + "\n");
    let told = run(&["--resume"]).exits(2).stderr;
    assert!(told.contains("hint: remove it, and --resume writes it again from the data"), "{told}");
    assert!(!told.contains("--from"), "{told}");
    world.file("run/samples.jsonl", samples);
    let table = world.read("run/revisions.jsonl");
    let edited = table.replacen("\"text\":\"", "\"text\":\"So: ", 1);
    assert_ne!(edited, table);
    world.file("run/revisions.jsonl", &edited);
    for more in [&["--resume"][..], &["--resume", "--until", "revisions"]] {
        let changed = "run/revisions.jsonl was changed after the run wrote it";
        run(more).fails_with(&[changed, "hint: ", "--from STAGE=FILE"]);
    }
    let checked = world.run(&["check", "run"]).exits(1).stdout;
    assert!(checked.contains("revisions.jsonl: ") && checked.contains("after removing it: "), "{checked}");
    assert_eq!(world.read("run/revisions.jsonl"), edited);
    std::fs::remove_file(world.path("run/revisions.jsonl")).expect("there");
    run(&["--resume"]).exits(0);
    assert_eq!(world.read("run/revisions.jsonl"), table);
    let (manifest, summary) = (world.read("run/manifest.json"), world.read("run/summary.json"));
    let told = run(&["--resume", "--until", "revisions"]).exits(0).stderr;
    assert!(told.contains("the run in run is already finished; nothing was changed"), "{told}");
    std::fs::write(&data, std::fs::read_to_string(&data).expect("there").replace("it rains", "it pours"))
        .expect("written");
    run(&["--resume", "--until", "revisions"]).fails_with(&["is already past `revisions` (finished)", "omit --until"]);
    // Errors that need no query are found before the earlier run is deleted.
    world.file("verdicts.jsonl", world.read("run/verdicts.jsonl").replacen("\"item\":\"", "\"item\":\"no ", 1));
    run(&["--overwrite", "--from", "verdicts=verdicts.jsonl"])
        .fails_with(&["verdicts.jsonl:1: it matches nothing in the data"]);
    world.file("cache/answers.sqlite", "no database, and long enough to be looked at twice".repeat(99));
    run(&["--overwrite", "--cache", "cache"]).fails_with(&["cache/answers.sqlite could not be opened"]);
    assert_eq!((world.read("run/manifest.json"), world.read("run/summary.json")), (manifest, summary));
}

/// The sample pairs with real weights, if downloaded.
#[test]
fn smollm2_revises_and_judges_the_sample_pairs() {
    let world = World::new();
    let here = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_probity"));
        command
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .env("PROBITY_PYTHON", "none");
        Ran::from(command.output().expect("started"))
    };
    if here(&["model", "verify", "smollm2-135m-instruct"]).code != Some(0) {
        eprintln!("skipped: smollm2-135m-instruct is not here; probity model get smollm2-135m-instruct");
        return;
    }
    let (data, out) =
        (world.file("pairs.jsonl", repository("samples/pairs.jsonl")), world.path("run").display().to_string());
    here(&[
        "reviseval", "--model", "smollm2-135m-instruct", "--precision", "fast", "--data", &data, "--limit", "2",
        "--reference", "none,adapted", "--revision-tokens", "40", "--max-tokens", "24", "--use-truncated", "--metric",
        "rouge-l", "--rate", "correctness", "--out", &out,
    ])
    .exits(0);
    let revisions = world.rows("run/revisions.jsonl");
    assert!(
        revisions.len() == 2 && revisions.iter().all(|row| row["text"].as_str().is_some_and(|text| text.len() > 20)),
        "{revisions:?}"
    );
    assert_eq!((world.rows("run/verdicts.jsonl").len(), world.rows("run/ratings.jsonl").len()), (8, 6));
    let kept = world
        .rows("run/preferences.jsonl")
        .into_iter()
        .filter(|row| row["by"] == "rouge-l" && row["outcome"] == "scored")
        .count();
    assert_eq!(kept, 2);
}

#[test]
fn candidates_by_themselves_have_scores_that_meta_reads() {
    let world = World::new();
    let model = tiny().display().to_string();
    let data = world.file("d.jsonl", repository("samples/demo.jsonl"));
    let run = [
        "reviseval", "--model", &model, "--data", &data, "--limit", "2", "--mode", "pointwise", "--attribute",
        "quality", "--no-judge", "--metric", "rouge-l,levenshtein", "--reference", "direct,adapted",
        "--revision-tokens", "8", "--use-truncated", "--out", "run",
    ];
    world.run(&run).exits(0);
    assert_eq!(world.rows("run/scores.jsonl").len(), 2 * 4 * 2 * 2);
    let meta = world.run(&["meta", "--scores", "run/scores.jsonl", "--gold", &data]).exits(0);
    assert!(meta.stdout.contains("adapted/rouge-l"), "{}", meta.stdout);
}

#[test]
fn the_shipped_recipe_is_right() {
    let world = World::new();
    let recipe =
        repository("recipes/reviseval.toml").replace("qwen2.5-coder-1.5b-instruct", &tiny().display().to_string());
    world.file("mt_bench.jsonl", repository("samples/pairs.jsonl"));
    world.file("llmbar.jsonl", repository("samples/pairs.jsonl"));
    world.file("reviseval.toml", recipe);
    world.run(&["recipe", "check", "reviseval.toml"]).exits(0);
}

#[test]
fn a_judge_model_that_is_not_there_is_told_before_anything_is_done() {
    let world = World::new();
    let (model, data) = (tiny().display().to_string(), pairs(&world));
    let ran = world.run(&["reviseval", "--model", &model, "--data", &data, "--judge-model", "nobody", "--out", "run"]);
    ran.fails_with(&["nobody"]);
    assert!(!world.path("run").exists());
}

#[test]
fn metrics_of_an_encoder_have_theirs() {
    let world = World::new();
    let (model, encoder) = (tiny().display().to_string(), golden("tiny-masked").display().to_string());
    let (data, [prompt, _]) = (short_pairs(&world), short_prompts(&world));
    let run = [
        "reviseval", "--model", &model, "--data", &data, "--no-judge", "--reference", "adapted", "--reviser-template",
        &prompt, "--revision-tokens", "12", "--use-truncated", "--metric", "bert-score", "--out", "run", "--encoder",
    ];
    world.run(&[&run[..], &[&encoder]].concat()).exits(0);
    let summary: Value = serde_json::from_str(&world.read("run/summary.json")).expect("JSON");
    assert_eq!(summary["values"]["pairs"][0]["decided"], 3, "{summary:#}");
    let missing = world.run(&[&run[..], &["no-such-encoder", "--overwrite"]].concat());
    missing.fails_with(&["no-such-encoder"]);
    assert!(world.path("run/summary.json").exists(), "the earlier run stands");
}

#[test]
fn an_encoder_is_not_asked_twice_and_another_under_its_name_is_found() {
    let world = World::new();
    let model = tiny().display().to_string();
    let (data, [prompt, _]) = (short_pairs(&world), short_prompts(&world));
    std::fs::create_dir(world.path("encoder")).expect("made");
    for file in std::fs::read_dir(golden("tiny-masked")).expect("golden") {
        let file = file.expect("readable");
        std::fs::copy(file.path(), world.path("encoder").join(file.file_name())).expect("copied");
    }
    let args = format!(
        "reviseval --model {model} --data {data} --no-judge --reference adapted --reviser-template {prompt} \
         --revision-tokens 12 --use-truncated --metric bert-score --out run --encoder encoder"
    );
    let args: Vec<&str> = args.split(' ').collect();
    let loaded = "encoder: bert";
    let first = world.run(&args).exits(0);
    assert!(first.stderr.contains(loaded), "{}", first.stderr);
    let summary = world.read("run/summary.json");
    let again = world.run(&[&args[..], &["--resume"]].concat()).exits(0);
    assert!(!again.stderr.contains(loaded), "every text was read already: {}", again.stderr);
    assert_eq!(world.read("run/summary.json"), summary);
    world.run(&["check", "run"]).exits(0);
    // Other weights with the same name.
    let weights = world.path("encoder/model.safetensors");
    let mut bytes = std::fs::read(&weights).expect("readable");
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    std::fs::write(&weights, bytes).expect("written");
    let exchanged = world.run(&[&args[..], &["--resume"]].concat());
    exchanged.fails_with(&["other_models"]);
    assert_eq!(world.read("run/summary.json"), summary, "the earlier run stands");
    let anew = world.run(&[&args[..], &["--overwrite"]].concat()).exits(0);
    assert!(anew.stderr.contains(loaded), "{}", anew.stderr);
}
