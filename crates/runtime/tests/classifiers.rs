//! Models with a class head, on files as they are published: reward models, and encoders for pairs of texts.

#[path = "../../../tests/device/mod.rs"]
mod device;

use std::path::{Path, PathBuf};

use miette::Diagnostic as _;
use probity_lm::{
    Ask, ClassKind, GenerateRequest, LabelSet, LanguageModel, LmError, Message, Outcome, Precision, Prompt, Role,
    ScoreRequest, ScoreResult,
};
use probity_runtime::hub::locate;
use probity_runtime::{DryModel, LoadError, LoadOptions, Model};
use serde_json::{Value, json};

const NAMES: [&str; 12] = [
    "llama-reward", "qwen3-reward", "gemma2-reward", "bert-nli", "roberta-regression", "distilbert-sentiment",
    "modernbert-nli", "modernbert-mean", "deberta-nli", "deberta-c2p", "bart-nli", "t5-regression",
];

fn folder(name: &str) -> PathBuf {
    device::goldens().join("classifiers").join(name)
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
    if let Ok(ids) = serde_json::from_value(case["tokens"].clone()) {
        return Prompt::Tokens(ids);
    }
    let messages: Vec<Message> = serde_json::from_value(case["messages"].clone()).expect("messages");
    Prompt::chat(messages, "")
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

/// Largest difference from the golden logits.
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
                LoadOptions { token_budget: Some(7), ..all },
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
    for (name, shares) in [("llama-reward", true), ("bert-nli", false), ("bart-nli", false), ("t5-regression", false)] {
        let (model, requests) = (load(name, LoadOptions::default()), requests(&golden(name)));
        let dry = DryModel::count(&model);
        dry.score_all(&requests).expect("plans");
        let plan = dry.into_cost();
        assert!(model.estimate(&plan).expect("measures").seconds > 0.0, "{name}");
        let (plan, mut run) = (plan.usage, Vec::new());
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
fn logits_on_candles_device_are_near() {
    let all = LoadOptions { devices: device::device().into(), ..LoadOptions::default() };
    for name in NAMES {
        let golden = golden(name);
        let gap_of = |options| gap(&golden, &load(name, options).score_all(&requests(&golden)).expect("scores"));
        for options in [all, LoadOptions { token_budget: Some(7), ..all }] {
            let gap = gap_of(options);
            println!("{name}: {gap:.1e}");
            assert!(gap <= 2e-4, "{name}: {gap}");
        }
        let fast = gap_of(LoadOptions { precision: Precision::Fast, ..all });
        println!("{name} in bf16: {fast:.1e}");
        assert!(fast > 1e-6 && fast < 0.3, "{name}: {fast}");
    }
}

#[test]
fn logits_are_the_bits_of_one_device_where_layers_are_divided() {
    let on = |devices: &str| LoadOptions { devices: devices.parse().expect("devices"), ..LoadOptions::default() };
    for name in NAMES {
        let requests = requests(&golden(name));
        let of = |devices| Ok(bits(&load_path(&folder(name), on(devices))?.score_all(&requests).expect("scores")));
        let divided: Result<Vec<u64>, LoadError> = of("candle-cpu+candle-cpu");
        match divided {
            Ok(divided) => assert_eq!(divided, of("candle-cpu").expect("loads"), "{name}"),
            // A model with a single layer.
            Err(error) => assert_eq!(error.to_string(), "the model has too few layers (1) for 2 devices", "{name}"),
        }
    }
}

#[test]
fn a_text_fills_the_context_to_its_end_and_no_further() {
    let model = load("bert-nli", LoadOptions::default());
    let text = |words: usize| ScoreRequest {
        id: words.to_string(),
        prompt: Prompt::Text(vec!["the"; words].join(" ")),
        ask: Ask::Classes,
    };
    // 128 with special tokens.
    let results = model.score_all(&[text(126), text(127)]).expect("scores");
    assert_eq!(results[0].outcome, Outcome::Scored);
    assert_eq!(results[1].outcome, Outcome::TooLong { tokens_needed: 129, limit: 128 });
}

#[test]
fn a_text_that_leaves_no_token_is_empty() {
    for name in ["bert-nli", "bart-nli", "t5-regression"] {
        let text = |text: &str| ScoreRequest { id: "x".into(), prompt: Prompt::Text(text.into()), ask: Ask::Classes };
        let results = load(name, LoadOptions::default()).score_all(&["", "the"].map(text)).expect("scores");
        assert_eq!([&results[0].outcome, &results[1].outcome], [&Outcome::Empty, &Outcome::Scored], "{name}");
    }
    // BERT's normaliser removes control characters.
    let text = ScoreRequest { id: "x".into(), prompt: Prompt::Text("\u{1}\u{2}".into()), ask: Ask::Classes };
    let results = load("bert-nli", LoadOptions::default()).score_all(&[text]).expect("scores");
    assert_eq!(results[0].outcome, Outcome::Empty);
}

#[test]
fn what_a_model_cannot_be_asked_is_refused_by_name() {
    let text = || Prompt::Text("The farmer".to_owned());
    let told = |error: LmError| {
        format!("{error}: {}", error.diagnostic_source().and_then(miette::Diagnostic::help).expect("a hint"))
    };
    let reward = load("llama-reward", LoadOptions::default());
    let labels = Ask::Labels(LabelSet::from_words(["A", "B"]).expect("labels"));
    let error = reward.score_all(&[ScoreRequest { id: "x".into(), prompt: text(), ask: labels }]).expect_err("refused");
    assert!(told(error).contains("is a classifier (LABEL_0) and has no token probabilities: use the method reward"));
    let error = reward
        .generate(&mut [GenerateRequest::greedy("x", text(), 4)].into_iter(), &mut |_, _| Ok(()))
        .expect_err("refused");
    assert!(told(error).contains("has no token probabilities"));
    let language = load_path(&folder("../models/llama"), LoadOptions::default()).expect("loads");
    let error =
        language.score_all(&[ScoreRequest { id: "x".into(), prompt: text(), ask: Ask::Classes }]).expect_err("refused");
    assert!(told(error).contains("no class head: use a reward model or a classifier"));
}

/// A copy of a checkpoint with a modified configuration.
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
    assert!(error.contains("no tensor `score.weight`") && error.contains("download the reward model"), "{error}");
    let two = |config: &mut Value| {
        config["id2label"] = json!({ "0": "bad", "1": "good" });
        config["label2id"] = json!({ "bad": 0, "good": 1 });
    };
    let path = changed("two", &folder("llama-reward"), two);
    assert!(refused(&path).contains("expected shape [2, 64], found [1, 64]"), "{}", refused(&path));
    let classifier = "`classifier.weight`";
    for (name, tensor) in [
        ("modernbert-nli", classifier),
        ("deberta-nli", classifier),
        ("bart-nli", "`classification_head.out_proj.weight`"),
    ] {
        let path = changed("two-of-three", &folder(name), two);
        let error = refused(&path);
        assert!(error.contains(tensor) && error.contains("found [3, 32]"), "{error}");
    }
    for name in ["modernbert", "deberta-v2"] {
        let as_classifier = |config: &mut Value| {
            config["architectures"] = json!(["SomeForSequenceClassification"]);
            config["vocab_size"] = json!(172);
        };
        let path = changed("no-classifier", &folder("../models").join(name), as_classifier);
        std::fs::copy(folder("deberta-nli").join("tokenizer.json"), path.join("tokenizer.json")).expect("copied");
        let error = refused(&path);
        assert!(error.contains("no tensor `classifier.weight`"), "{error}");
    }
    let path = changed("other-names", &folder("bert-nli"), |config| config["label2id"]["neutral"] = json!(2));
    assert!(refused(&path).contains("config field `label2id` is"), "{}", refused(&path));
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
    // The configuration determines the padding token; same result as transformers.
    let path = changed("padded", &folder("llama-reward"), |config| config["pad_token_id"] = json!(200));
    let (usual, padded) =
        (load("llama-reward", LoadOptions::default()), load_path(&path, LoadOptions::default()).expect("loads"));
    let expected = ask(&usual, &[]);
    assert_eq!(ask(&padded, &[]), expected);
    assert_eq!(ask(&padded, &[200, 200]), expected);
    assert_ne!(ask(&usual, &[200, 200]), expected);
    assert_eq!(ask(&usual, &[0]), expected, "it has another padding itself");
}

#[test]
fn a_pair_that_nothing_parts_is_refused() {
    let path = changed("pair", &folder("bert-nli"), |_| ());
    let file = path.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("JSON");
    tokenizer["post_processor"] = json!(null);
    std::fs::write(file, tokenizer.to_string()).expect("written");
    let model = load_path(&path, LoadOptions::default()).expect("loads");
    let ask = |prompt| model.score_all(&[ScoreRequest { id: "x".into(), prompt, ask: Ask::Classes }]);
    let messages = vec![Message::new(Role::User, "why?"), Message::new(Role::Assistant, "so.")];
    let error = ask(Prompt::chat(messages, "")).expect_err("refused").to_string();
    assert!(error.contains("no separator for a pair of texts"), "{error}");
    ask(Prompt::Text("why?".into())).expect("one text");
}

#[test]
fn what_a_template_changes_or_drops_is_not_judged_and_the_rest_is() {
    let texts = ["<|eot|> as|<|EOT|>", "Good."];
    for (shown, altered) in [
        ("message.content", [false, false]),
        ("message.content | trim", [false, false]),
        ("message.content | lower", [true, true]),
        ("message.content | replace('|', '')", [true, false]),
        ("messages[0].content", [true, true]),
        ("message.content[:8]", [true, false]),
    ] {
        let path = changed("template", &folder("llama-reward"), |_| ());
        let template = format!("{{% for message in messages %}}{{{{ {shown} }}}}\n{{% endfor %}}");
        std::fs::write(path.join("chat_template.jinja"), template).expect("written");
        let model = load_path(&path, LoadOptions::default()).expect("loads");
        let request = |text: &str| {
            let messages = vec![Message::new(Role::User, "why?"), Message::new(Role::Assistant, text)];
            let prompt = Prompt::chat(messages, "");
            ScoreRequest { id: "x".into(), prompt, ask: Ask::Classes }
        };
        let results = model.score_all(&texts.map(request)).expect("the rest go on");
        for (result, altered) in results.iter().zip(altered) {
            match &result.outcome {
                Outcome::Altered { why } => assert!(why.contains("omits or changes the message of"), "{why}"),
                outcome => assert_eq!(*outcome, Outcome::Scored, "{shown}"),
            }
            assert_eq!(result.answer.is_none(), altered, "{shown}: {result:?}");
        }
    }
}

#[test]
fn logits_mean_what_the_configuration_says() {
    for (name, said, kind) in [
        ("bert-nli", json!(null), ClassKind::SingleLabel),
        ("bert-nli", json!("multi_label_classification"), ClassKind::MultiLabel),
        ("t5-regression", json!("regression"), ClassKind::Regression),
    ] {
        let path = changed("meaning", &folder(name), |config| config["problem_type"] = said.clone());
        let model = load_path(&path, LoadOptions::default()).expect("loads");
        assert_eq!(model.description().class_kind, kind);
        let results = model.score_all(&requests(&golden(name))[..1]).expect("scores");
        let answer = results[0].classes().expect("classes");
        assert_eq!((answer.kind, logits(&results[0]).len()), (kind, answer.classes.len()));
    }
}

#[test]
fn a_text_without_the_end_at_which_a_decoders_head_reads_is_refused_by_name() {
    let ask = |model: &Model, prompt| model.score_all(&[ScoreRequest { id: "x".into(), prompt, ask: Ask::Classes }]);
    let told = |model: &Model, prompt| {
        let error = ask(model, prompt).expect_err("refused");
        format!("{error}: {}", error.diagnostic_source().and_then(miette::Diagnostic::help).expect("a hint"))
    };
    let model = load("t5-regression", LoadOptions::default());
    let error = told(&model, Prompt::Tokens(vec![40, 50]));
    assert!(error.contains("not contain token 1 (`</s>`)") && error.contains("eos_token_id"), "{error}");
    // Literals in a candidate do not count: its text has only the end tokens added by the tokenizer.
    let scores = ask(&model, Prompt::Text("the </s> farmer </s>".into())).expect("scores");
    assert_eq!(scores[0].outcome, Outcome::Scored);
    let ids = model.encoder().encode_whole_prompt(&Prompt::Text("the </s> farmer </s>".into())).expect("encodes");
    assert_eq!(ids.iter().filter(|id| **id == 1).count(), 1);
    let path = changed("other-end", &folder("t5-regression"), |config| config["eos_token_id"] = json!(7));
    let other = load_path(&path, LoadOptions::default()).expect("loads");
    assert!(told(&other, Prompt::Text("the".into())).contains("not contain token 7 (`"));
    let path = changed("no-end", &folder("bart-nli"), |config| config["eos_token_id"] = json!(null));
    let error = load_path(&path, LoadOptions::default()).err().expect("refused").to_string();
    assert!(error.contains("config field `eos_token_id` is missing"), "{error}");
}

#[test]
fn texts_of_a_decoders_head_are_as_long_as_there_is_memory_for() {
    let of = |cache_budget| {
        load("t5-regression", LoadOptions { cache_budget: Some(cache_budget), ..LoadOptions::default() })
    };
    let limit = of(1 << 20).token_limit();
    assert!(limit > 100 && limit < 100_000, "{limit}");
    let model = of(1 << 16);
    let text = |words: usize| ScoreRequest {
        id: words.to_string(),
        prompt: Prompt::Tokens([vec![40; words - 1], vec![1]].concat()),
        ask: Ask::Classes,
    };
    let results = model.score_all(&[text(model.token_limit()), text(model.token_limit() + 1)]).expect("scores");
    assert_eq!(results[0].outcome, Outcome::Scored);
    assert!(matches!(results[1].outcome, Outcome::TooLong { .. }));
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
