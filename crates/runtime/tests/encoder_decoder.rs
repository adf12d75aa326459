//! The language model interface on an encoder-decoder, compared with transformers
//! (`scripts/goldens/make_encoder_decoder.py`) and with itself.

use std::path::{Path, PathBuf};

use probity_lm::{
    Ask, GenerateRequest, GenerateResult, Label, LabelSet, LanguageModel, Outcome, Precision, Prompt, ScoreRequest,
    ScoreResult, Termination,
};
use probity_runtime::hub::locate;
use probity_runtime::{DryModel, LoadOptions, Model};
use serde_json::{Value, json};

/// Tolerance of log-probabilities.
const TOLERANCE: f64 = 2e-4;

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens")
}

fn tiny(options: LoadOptions) -> Model {
    let folder = goldens().join("models/tiny-flan-t5");
    Model::load(&locate(folder.to_str().expect("UTF-8 path")).expect("a model lies there"), options).expect("loads")
}

fn golden() -> Value {
    serde_json::from_slice(&std::fs::read(goldens().join("tiny-flan-t5.json")).expect("golden")).expect("JSON")
}

fn cases(kind: &str) -> Vec<Value> {
    golden()[kind].as_array().expect("cases").clone()
}

fn prompt_of(case: &Value) -> Prompt {
    match case["prompt"].as_str() {
        Some(text) => Prompt::Text(text.to_owned()),
        None => Prompt::chat(
            serde_json::from_value(case["messages"].clone()).expect("messages"),
            case["answer_prefix"].as_str().unwrap_or_default(),
        ),
    }
}

fn labels_of(case: &Value) -> LabelSet {
    let label = |(name, variants): (&String, &Value)| Label {
        name: name.clone(),
        variants: serde_json::from_value(variants.clone()).expect("variants"),
    };
    let set = LabelSet::new(case["labels"].as_object().expect("labels").iter().map(label).collect()).expect("valid");
    set.with_termination(if case["termination"] == "end_of_turn" { Termination::EndOfTurn } else { Termination::Open })
}

/// Every request of the golden file.
fn work_list() -> Vec<ScoreRequest> {
    let labels = cases("labels").into_iter().map(|case| (prompt_of(&case), Ask::Labels(labels_of(&case)), case));
    let texts = cases("continuations").into_iter();
    let texts = texts
        .map(|case| (prompt_of(&case), Ask::Continuation(case["continuation"].as_str().expect("text").into()), case));
    labels.chain(texts).map(|(prompt, ask, case)| ScoreRequest { id: case["name"].to_string(), prompt, ask }).collect()
}

fn generate(model: &Model, requests: &[GenerateRequest]) -> Vec<GenerateResult> {
    let mut results = vec![None; requests.len()];
    let mut sink = |index: usize, result| {
        results[index] = Some(result);
        Ok(())
    };
    model.generate(&mut requests.iter().cloned(), &mut sink).expect("generates");
    results.into_iter().map(|result| result.expect("each is answered")).collect()
}

/// All numbers, as bits.
fn bits(results: &[ScoreResult]) -> Vec<u64> {
    let of = |result: &ScoreResult| match (result.labels(), result.continuation()) {
        (Some(labels), _) => labels.labels.iter().map(|label| label.logprob.to_bits()).collect::<Vec<_>>(),
        (_, Some(text)) => text.token_logprobs.iter().map(|logprob| logprob.to_bits()).collect(),
        _ => panic!("an answer to {result:?}"),
    };
    results.iter().flat_map(of).collect()
}

#[test]
fn label_words_at_the_first_step_and_behind_a_prefix_equal_transformers() {
    let model = tiny(LoadOptions::default());
    let requests = work_list();
    let results = model.score_all(&requests).expect("scores");
    for (case, (request, result)) in cases("labels").iter().zip(requests.iter().zip(&results)) {
        let Ask::Labels(set) = &request.ask else { panic!("labels") };
        let encoded = model.encoder().encode_labels(&request.prompt, set).expect("encodes");
        let (source, answer) = encoded.prefix.split_at(encoded.source);
        assert_eq!((json!(source), json!(answer)), (case["source"].clone(), case["prefix"].clone()), "{}", request.id);
        for label in &result.labels().expect("an answer").labels {
            let expected = case["logprobs"][&label.name].as_f64().expect("a number");
            assert!(
                (label.logprob - expected).abs() < TOLERANCE,
                "{}, {}: {} for {expected}",
                request.id,
                label.name,
                label.logprob
            );
        }
    }
    let rest = cases("continuations");
    for (case, result) in rest.iter().zip(&results[results.len() - rest.len()..]) {
        let answer = result.continuation().expect("an answer");
        assert_eq!(json!(answer.token_ids), case["tokens"]);
        for (logprob, expected) in answer.token_logprobs.iter().zip(case["logprobs"].as_array().expect("numbers")) {
            assert!((logprob - expected.as_f64().expect("a number")).abs() < TOLERANCE);
        }
    }
}

#[test]
fn a_gguf_file_of_the_model_gives_the_same_bits() {
    let file = goldens().join("models/tiny-flan-t5-gguf/model.gguf");
    let gguf =
        Model::load(&locate(file.to_str().expect("UTF-8 path")).expect("a model lies there"), LoadOptions::default())
            .expect("loads");
    let (requests, folder) = (work_list(), tiny(LoadOptions::default()));
    assert_eq!(bits(&gguf.score_all(&requests).expect("scores")), bits(&folder.score_all(&requests).expect("scores")));
}

#[test]
fn greedy_texts_equal_transformers() {
    let (model, golden) = (tiny(LoadOptions::default()), golden());
    let prompt = Prompt::Text(golden["generated"]["prompt"].as_str().expect("text").into());
    let expected: Vec<u32> = serde_json::from_value(golden["generated"]["tokens"].clone()).expect("ids");
    let requests: Vec<GenerateRequest> =
        (0..5).map(|k| GenerateRequest::greedy(k.to_string(), prompt.clone(), expected.len())).collect();
    for result in generate(&model, &requests) {
        assert_eq!(result.token_ids, expected);
    }
}

#[test]
fn results_have_the_same_bits_whatever_runs_together() {
    let requests = work_list();
    for precision in [Precision::Exact, Precision::Dots, Precision::Tiles] {
        let options = LoadOptions { precision, ..LoadOptions::default() };
        let mut model = tiny(options);
        let expected = bits(&model.score_all(&requests).expect("scores"));
        let alone: Vec<ScoreResult> = requests
            .iter()
            .flat_map(|request| model.score_all(std::slice::from_ref(request)).expect("scores"))
            .collect();
        assert_eq!(bits(&alone), expected, "{precision:?}, one by one");
        for other in [
            LoadOptions { share_prefixes: false, ..options },
            // The longest source exceeds the first of these budgets; it runs as a whole anyway.
            LoadOptions { token_budget: Some(7), threads: Some(1), ..options },
            LoadOptions { cache_budget: Some(model.cache_bytes(900)), threads: Some(3), ..options },
            LoadOptions { window_tokens: 1, ..options },
        ] {
            model.run_with(other).expect("options");
            assert_eq!(bits(&model.score_all(&requests).expect("scores")), expected, "{other:?}");
        }
    }
}

#[test]
fn a_source_is_read_once_for_all_that_is_asked_about_it() {
    let model = tiny(LoadOptions::default());
    let requests: Vec<ScoreRequest> = work_list().into_iter().filter(|request| request.id.contains("prefix")).collect();
    assert_eq!(requests.len(), 3);
    let usage = model.score(&mut requests.iter().cloned(), &mut |_, _| Ok(())).expect("scores");
    let case = &cases("labels")[2];
    let len = |name: &str| case[name].as_array().expect("ids").len();
    let (source, prefix) = (len("source"), len("prefix"));
    // All three share the start of their answers. The continuation's prefix has one more token, and all its tokens
    // except the last are input.
    let continued = cases("continuations")[1]["tokens"].as_array().expect("ids").len();
    assert_eq!(usage.tokens_computed as usize, source + prefix + 1 + 1 + continued - 1);
    assert_eq!(usage.tokens_unshared as usize, 3 * source + 2 * (prefix + 1) + prefix + 1 + continued - 1);
}

#[test]
fn a_verdict_is_asked_about_the_same_source() {
    let model = tiny(LoadOptions::default());
    let prompt = Prompt::Text("Which one is better?".into());
    let mut request = GenerateRequest::greedy("g", prompt.clone(), 12);
    let plain = generate(&model, std::slice::from_ref(&request)).remove(0);
    let marker = model.encoder().tokenizer().decode(&plain.token_ids[..4]).expect("decodes");
    let set = LabelSet::from_words(["A", "B"]).expect("valid");
    request.verdict = Some((marker.clone(), set.clone()));
    let judged = generate(&model, &[request]).remove(0);
    let verdict = judged.verdict.expect("the marker is there");
    let end = judged.text.rfind(&marker).expect("the marker is there") + marker.len();
    let decode = |count: usize| model.encoder().tokenizer().decode(&judged.token_ids[..count]).expect("decodes");
    let count = (0..=judged.token_ids.len())
        .rev()
        .find(|&count| judged.text[..end].starts_with(&decode(count)))
        .expect("none at least");
    let source = model.encoder().encode_labels(&prompt, &set).expect("encodes");
    let (source, start) = source.prefix.split_at(source.source);
    let pair = Prompt::Pair { source: source.to_vec(), answer: [start, &judged.token_ids[..count]].concat() };
    let asked = ScoreRequest { id: "v".into(), prompt: pair, ask: Ask::Labels(set) };
    assert_eq!(verdict, model.score_all(&[asked]).expect("scores").remove(0));
}

#[test]
fn prompts_in_tokens_are_checked_and_a_plan_costs_what_a_run_does() {
    let model = tiny(LoadOptions::default());
    let ask = |prompt| ScoreRequest {
        id: "t".into(),
        prompt,
        ask: Ask::Labels(LabelSet::from_words(["A", "B"]).expect("valid")),
    };
    let error = |prompt| model.score_all(&[ask(prompt)]).expect_err("refused").to_string();
    assert!(error(Prompt::Pair { source: vec![5], answer: Vec::new() }).contains("needs at least one token"));
    assert!(error(Prompt::Pair { source: vec![5], answer: vec![9999] }).contains("vocabulary"));
    // The same source as tokens and as text.
    let text = ask(Prompt::Text("Which one?".into()));
    let encoded = model
        .encoder()
        .encode_labels(&text.prompt, &LabelSet::from_words(["A", "B"]).expect("valid"))
        .expect("encodes");
    let tokens = ask(Prompt::Tokens(encoded.prefix[..encoded.source].to_vec()));
    let results = model.score_all(&[text, tokens]).expect("scores");
    assert_eq!(results[0].labels().map(|l| l.mass.to_bits()), results[1].labels().map(|l| l.mass.to_bits()));
    let dry = DryModel::count(&model);
    dry.score(&mut work_list().into_iter(), &mut |_, result| {
        assert_eq!(result.outcome, Outcome::Empty);
        Ok(())
    })
    .expect("plans");
    let plan = dry.into_cost();
    let usage = model.score(&mut work_list().into_iter(), &mut |_, _| Ok(())).expect("scores");
    assert_eq!(plan.usage, usage);
    assert!(model.estimate(&plan).expect("measures").seconds > 0.0);
}

#[test]
fn a_prompt_is_too_long_only_where_memory_ends() {
    let mut model = tiny(LoadOptions::default());
    assert_eq!(model.description().context_length, None);
    let request = work_list().remove(6);
    model
        .run_with(LoadOptions { cache_budget: Some(model.cache_bytes(100)), ..LoadOptions::default() })
        .expect("options");
    let result = model.score_all(&[request]).expect("scores").remove(0);
    assert!(matches!(result.outcome, Outcome::TooLong { limit, .. } if limit >= 100), "{:?}", result.outcome);
}
