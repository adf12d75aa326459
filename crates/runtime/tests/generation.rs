//! Texts of a trained model compared with transformers (`scripts/goldens/make_generated.py`), with and without drafts.

use std::path::Path;

use probity_lm::{Finish, GenerateRequest, GenerateResult, LanguageModel, Precision, Prompt, Usage};
use probity_runtime::hub::locate;
use probity_runtime::{Drafting, LoadOptions, Model};
use serde_json::Value;

fn smollm2(options: LoadOptions) -> Option<Model> {
    match locate("smollm2-135m-instruct") {
        Ok(located) => Some(Model::load(&located, options).expect("loads")),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/generated.json");
    serde_json::from_slice(&std::fs::read(path).expect("golden")).expect("JSON")
}

fn generate(model: &Model, requests: &[GenerateRequest]) -> (Vec<GenerateResult>, Usage) {
    let mut results = vec![None; requests.len()];
    let mut sink = |index: usize, result| {
        results[index] = Some(result);
        Ok(())
    };
    let usage = model.generate(&mut requests.iter().cloned(), &mut sink).expect("generates");
    (results.into_iter().map(|result| result.expect("each is answered")).collect(), usage)
}

fn requests(golden: &Value) -> Vec<GenerateRequest> {
    let texts = golden["smollm2"].as_array().expect("texts").iter();
    texts.map(|text| GenerateRequest::greedy("r", Prompt::user(text["task"].as_str().expect("text")), 128)).collect()
}

#[test]
fn greedy_texts_are_those_of_transformers_up_to_the_first_tie() {
    let Some(mut model) = smollm2(LoadOptions::default()) else { return };
    let golden = golden();
    let (drafted, usage) = generate(&model, &requests(&golden));
    let mut compared = 0;
    for (index, (text, result)) in golden["smollm2"].as_array().expect("texts").iter().zip(&drafted).enumerate() {
        let expected: Vec<u32> = serde_json::from_value(text["tokens"].clone()).expect("ids");
        let until = text["first_tie"].as_u64().map_or(expected.len(), |at| at as usize);
        if until < expected.len() {
            println!("text {index}: the two likeliest tokens are tied at {until} of {}", expected.len());
        }
        assert_eq!(result.prompt_tokens as u64, text["prompt_tokens"].as_u64().expect("a number"));
        assert_eq!(
            result.token_ids[..until.min(result.token_ids.len())],
            expected[..until],
            "text {index}, tied at {until}"
        );
        if text["first_tie"].is_null() {
            assert_eq!(
                result.finish == Some(Finish::EndOfTurn),
                text["ended"].as_bool().expect("a truth"),
                "text {index}"
            );
        }
        compared += until;
    }
    assert!(compared > 1500, "{compared} tokens before ties");
    assert!(usage.drafts_accepted > 100, "{usage:?}");
    model
        .run_with(LoadOptions { drafting: Drafting::Off, threads: Some(1), side_by_side: 3, ..LoadOptions::default() })
        .expect("options");
    let (plain, usage) = generate(&model, &requests(&golden)[..5]);
    assert_eq!((&plain[..], usage.tokens_drafted), (&drafted[..5], 0));
}

#[test]
fn guesses_change_no_text_in_any_precision() {
    let golden = golden();
    for precision in [Precision::Dots, Precision::Tiles] {
        let options = LoadOptions { precision, ..LoadOptions::default() };
        let Some(mut model) = smollm2(options) else { return };
        let requests: Vec<GenerateRequest> = requests(&golden).into_iter().take(6).collect();
        let (drafted, usage) = generate(&model, &requests);
        assert!(usage.drafts_accepted > 20, "{usage:?}");
        model.run_with(LoadOptions { drafting: Drafting::Off, ..options }).expect("options");
        assert_eq!(generate(&model, &requests).0, drafted, "{precision:?}");
    }
}
