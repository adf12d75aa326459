//! Models with a class head, on files as they are published: reward models, and encoders that read pairs of texts.

use std::path::{Path, PathBuf};

use miette::Diagnostic as _;
use probity_lm::{
    Ask, GenerateRequest, LabelSet, LanguageModel, LmError, Message, Outcome, Precision, Prompt, ScoreRequest,
    ScoreResult,
};
use probity_models::DeviceChoice;
use probity_runtime::hub::locate;
use probity_runtime::{LoadError, LoadOptions, Model, Planner};
use serde_json::{Value, json};

const NAMES: [&str; 6] =
    ["llama-reward", "qwen3-reward", "gemma2-reward", "bert-nli", "roberta-regression", "distilbert-sentiment"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/classifiers").join(name)
}

fn load_path(path: &Path, options: LoadOptions) -> Result<Model, LoadError> {
    Model::load(&locate(path.to_str().expect("UTF-8 path")).expect("a model lies there"), options)
}

fn load(name: &str, options: LoadOptions) -> Model {
    load_path(&folder(name), options).expect("loads")
}

fn golden(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder(name).join("golden.json")).expect("a file")).expect("JSON")
}

fn prompt(case: &Value) -> Prompt {
    if let Some(text) = case["text"].as_str() {
        return Prompt::Text(text.to_owned());
    }
    let messages: Vec<Message> = serde_json::from_value(case["messages"].clone()).expect("messages");
    Prompt::Chat { messages, answer_prefix: String::new() }
}

fn requests(golden: &Value) -> Vec<ScoreRequest> {
    let cases = golden["cases"].as_array().expect("cases").iter().enumerate();
    cases.map(|(at, case)| ScoreRequest { id: at.to_string(), prompt: prompt(case), ask: Ask::Classes }).collect()
}

fn logits(result: &ScoreResult) -> Vec<f64> {
    result.classes().expect("classes").classes.iter().map(|class| class.logit).collect()
}

fn bits(results: &[ScoreResult]) -> Vec<u64> {
    results.iter().flat_map(logits).map(f64::to_bits).collect()
}

/// The largest difference from the golden logits.
fn gap(golden: &Value, results: &[ScoreResult]) -> f64 {
    let expected = golden["cases"].as_array().expect("cases").iter().flat_map(|case| {
        case["logits"].as_array().expect("logits").iter().map(|logit| logit.as_f64().expect("a number"))
    });
    let found: Vec<f64> = results.iter().flat_map(logits).collect();
    let expected: Vec<f64> = expected.collect();
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn logits_and_ids_equal_transformers() {
    for name in NAMES {
        let (model, golden) = (load(name, LoadOptions::default()), golden(name));
        let classes: Vec<String> = serde_json::from_value(golden["classes"].clone()).expect("names");
        assert_eq!(model.description().classes, classes, "{name}");
        for case in golden["cases"].as_array().expect("cases") {
            let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).expect("ids");
            assert_eq!(model.encoder().encode_whole_prompt(&prompt(case)).expect("encodes"), ids, "{name}");
        }
        let results = model.score_all(&requests(&golden)).expect("scores");
        let gap = gap(&golden, &results);
        assert!(gap <= golden["max_abs_difference"].as_f64().expect("a number"), "{name}: {gap}");
        println!("{name}: {gap:.1e}");
    }
}

#[test]
fn the_faster_precisions_are_near() {
    for name in NAMES {
        for precision in [Precision::Dots, Precision::Tiles] {
            let (model, golden) = (load(name, LoadOptions { precision, ..LoadOptions::default() }), golden(name));
            let gap = gap(&golden, &model.score_all(&requests(&golden)).expect("scores"));
            assert!(gap < 0.2, "{name} {}: {gap}", precision.as_str());
        }
    }
}

#[test]
fn logits_are_the_same_bits_however_the_work_is_cut() {
    for name in NAMES {
        let requests = requests(&golden(name));
        for precision in [Precision::Exact, Precision::Tiles] {
            let all = LoadOptions { precision, ..LoadOptions::default() };
            let expected = bits(&load(name, all).score_all(&requests).expect("scores"));
            for options in [
                LoadOptions { share_prefixes: false, ..all },
                LoadOptions { token_budget: 7, ..all },
                LoadOptions { threads: Some(1), ..all },
            ] {
                assert_eq!(bits(&load(name, options).score_all(&requests).expect("scores")), expected, "{name}");
            }
            let model = load(name, all);
            let alone = requests.iter().flat_map(|one| model.score_all(std::slice::from_ref(one)).expect("scores"));
            assert_eq!(bits(&alone.collect::<Vec<_>>()), expected, "{name}");
        }
    }
}

#[test]
fn candidates_for_one_question_share_it_where_the_model_reads_from_left_to_right() {
    for (name, shares) in [("llama-reward", true), ("bert-nli", false)] {
        let (model, requests) = (load(name, LoadOptions::default()), requests(&golden(name)));
        let planner = Planner::new(&model);
        planner.score_all(&requests).expect("plans");
        let (plan, mut run) = (planner.into_plan().usage, Vec::new());
        let usage = model.score(&mut requests.into_iter(), &mut |_, result| {
            run.push(result);
            Ok(())
        });
        let usage = usage.expect("scores");
        assert_eq!((plan.tokens_computed, plan.tokens_unshared), (usage.tokens_computed, usage.tokens_unshared));
        assert_eq!(usage.tokens_computed < usage.tokens_unshared, shares, "{name}: {usage:?}");
    }
}

#[test]
fn a_reward_on_candles_device_is_near() {
    for name in ["llama-reward", "gemma2-reward"] {
        let golden = golden(name);
        let device = "candle-cpu".parse::<DeviceChoice>().expect("a device");
        let model = load(name, LoadOptions { device, ..LoadOptions::default() });
        let gap = gap(&golden, &model.score_all(&requests(&golden)).expect("scores"));
        assert!(gap <= 2e-4, "{name}: {gap}");
    }
    let device = "candle-cpu".parse().expect("a device");
    let error =
        load_path(&folder("bert-nli"), LoadOptions { device, ..LoadOptions::default() }).err().expect("refused");
    assert!(matches!(error, LoadError::OnCpuAlone { .. }), "{error}");
}

#[test]
fn a_text_fills_the_context_to_its_end_and_no_further() {
    let model = load("bert-nli", LoadOptions::default());
    let text = |words: usize| ScoreRequest {
        id: words.to_string(),
        prompt: Prompt::Text(vec!["the"; words].join(" ")),
        ask: Ask::Classes,
    };
    // 128 with what frames it.
    let results = model.score_all(&[text(126), text(127)]).expect("scores");
    assert_eq!(results[0].outcome, Outcome::Scored);
    assert_eq!(results[1].outcome, Outcome::TooLong { tokens_needed: 129, limit: 128 });
}

#[test]
fn what_a_model_cannot_be_asked_is_refused_by_name() {
    let text = || Prompt::Text("The farmer".to_owned());
    let told = |error: LmError| {
        format!("{error}: {}", error.diagnostic_source().and_then(miette::Diagnostic::help).expect("a hint"))
    };
    let reward = load("llama-reward", LoadOptions::default());
    let labels = Ask::Labels(LabelSet::words(["A", "B"]).expect("labels"));
    let error = reward.score_all(&[ScoreRequest { id: "x".into(), prompt: text(), ask: labels }]).expect_err("refused");
    assert!(told(error).contains("tells classes apart (LABEL_0), and says nothing of tokens: the method reward"));
    let error = reward
        .generate(&mut [GenerateRequest::greedy("x", text(), 4)].into_iter(), &mut |_, _| Ok(()))
        .expect_err("refused");
    assert!(told(error).contains("says nothing of tokens"));
    let language = load_path(&folder("../models/llama"), LoadOptions::default()).expect("loads");
    let error =
        language.score_all(&[ScoreRequest { id: "x".into(), prompt: text(), ask: Ask::Classes }]).expect_err("refused");
    assert!(told(error).contains("no head that tells classes apart: a reward model or a classifier is needed"));
}

/// A copy of a checkpoint whose configuration is another.
fn changed(name: &str, from: &Path, change: impl FnOnce(&mut Value)) -> PathBuf {
    let to = std::env::temp_dir().join(format!("probity-classifiers-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&to).expect("a folder");
    for file in std::fs::read_dir(from).expect("a folder").flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).expect("copied");
    }
    let path = to.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
    change(&mut config);
    std::fs::write(path, config.to_string()).expect("written");
    to
}

#[test]
fn a_head_that_is_missing_of_another_size_or_not_told_of_is_refused_by_name() {
    let refused = |path: &Path| {
        let error = load_path(path, LoadOptions::default()).err().expect("refused");
        format!("{error}: {}", error.help().map(|hint| hint.to_string()).unwrap_or_default())
    };
    let as_reward = |config: &mut Value| {
        config["architectures"] = json!(["LlamaForSequenceClassification"]);
        config["num_labels"] = json!(1);
    };
    let path = changed("no-head", &folder("../models/llama"), as_reward);
    let error = refused(&path);
    assert!(error.contains("no tensor `score.weight`") && error.contains("download the checkpoint"), "{error}");
    let two = |config: &mut Value| config["id2label"] = json!({ "0": "bad", "1": "good" });
    let path = changed("two", &folder("llama-reward"), two);
    assert!(refused(&path).contains("expected shape [2, 64], found [1, 64]"), "{}", refused(&path));
    let as_language = |config: &mut Value| config["architectures"] = json!(["LlamaForCausalLM"]);
    let path = changed("untold", &folder("llama-reward"), as_language);
    assert!(refused(&path).contains("lm_head.weight"), "{}", refused(&path));
}

#[test]
fn a_decoders_head_reads_the_last_token_that_is_not_padding() {
    let golden = golden("llama-reward");
    let case = &golden["cases"][0];
    let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).expect("ids");
    let ask = |model: &Model, behind: &[u32]| {
        let prompt = Prompt::Tokens([&ids[..], behind].concat());
        logits(&model.score_all(&[ScoreRequest { id: "x".into(), prompt, ask: Ask::Classes }]).expect("scores")[0])
    };
    // Which token is padding is the configuration's to say; transformers finds the same.
    let path = changed("padded", &folder("llama-reward"), |config| config["pad_token_id"] = json!(200));
    let (usual, padded) =
        (load("llama-reward", LoadOptions::default()), load_path(&path, LoadOptions::default()).expect("loads"));
    let expected = ask(&usual, &[]);
    assert_eq!(ask(&padded, &[]), expected);
    assert_eq!(ask(&padded, &[200, 200]), expected);
    assert_ne!(ask(&usual, &[200, 200]), expected);
    assert_eq!(ask(&usual, &[0]), expected, "it has another padding itself");
}

#[cfg(unix)]
#[test]
fn a_side_file_that_leads_nowhere_or_is_none_is_refused() {
    use std::os::unix::fs::symlink;

    for name in ["tokenizer_config.json", "chat_template.jinja", "tokenizer.json", "generation_config.json"] {
        for target in ["../gone", "/dev/zero"] {
            let path = changed("links", &folder("llama-reward"), |_| {});
            let file = path.join(name);
            let _ = std::fs::remove_file(&file);
            symlink(target, &file).expect("a link");
            let error = load_path(&path, LoadOptions::default()).err().expect("refused").to_string();
            assert!(error.contains(name), "{error}");
            std::fs::remove_dir_all(path).expect("removed");
        }
    }
}
