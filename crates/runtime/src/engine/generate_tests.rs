//! Generated texts compared with transformers (`scripts/goldens/make_generated.py`), with and without drafts.

use std::path::Path;
use std::sync::Arc;

use probity_lm::{Finish, Sampling, SamplingLimits, Usage};
use probity_models::{
    Arithmetic, ModelConfig, PackedDecoder, experts_apart, load_decoder, load_encoder_decoder, read_config,
};
use serde_json::Value;

use super::behind::BehindText;
use super::generate::{GeneratedText, GenerationVocabulary, TokenPrompt, generate};
use super::golden_tests::folder;
use super::scheduler::ScheduleLimits;
use super::token_scores::ScheduleOptions;
use super::walk::WalkError;
use crate::constraint::ConstraintError;
use crate::test_roster::{Kind, Suite, golden_names};
use crate::weights::SafetensorsFiles;
use crate::{Drafting, TokenProgress};

fn models() -> impl Iterator<Item = &'static str> {
    [Kind::Decoder, Kind::EncoderDecoder].into_iter().flat_map(|kind| golden_names(kind, Suite::Generated))
}

fn load(name: &str, arithmetic: Arithmetic) -> Box<dyn PackedDecoder> {
    let config = std::fs::read(folder(name).join("config.json")).expect("goldens are part of the repository");
    let config = serde_json::from_slice(&config).expect("valid JSON");
    let source = experts_apart(&config, SafetensorsFiles::open(&folder(name)).expect("valid checkpoint"));
    match read_config(&config).expect("supported") {
        ModelConfig::Decoder(config) => load_decoder(&*source, *config, arithmetic),
        ModelConfig::EncoderDecoder(config) => load_encoder_decoder(&*source, &config, arithmetic),
        ModelConfig::Encoder(_) | ModelConfig::Bridged(_) => panic!("{name} generates nothing with our kernels"),
    }
    .expect("complete checkpoint")
}

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/generated.json");
    serde_json::from_slice(&std::fs::read(path).expect("golden")).expect("JSON")
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

/// The golden prompt of a model, with a token limit.
fn prompt(golden: &Value, max_tokens: usize, sampling: Sampling) -> TokenPrompt {
    let (source, tokens) = (ids(&golden["source"]), ids(&golden["prompt"]));
    TokenPrompt {
        source: source.len(),
        tokens: [source, tokens].concat(),
        max_tokens,
        stop: Vec::new(),
        sampling,
        constraint: None,
    }
}

/// Decodes token ids as characters, so that every text has its own stop sequences.
fn letters(tokens: &[u32]) -> String {
    tokens.iter().map(|token| char::from_u32(0x4e00 + token).expect("a character")).collect()
}

fn texts(
    model: &dyn PackedDecoder,
    prompts: &[TokenPrompt],
    ends: &[u32],
    drafting: Drafting,
    tokens: usize,
) -> (Vec<GeneratedText>, Usage) {
    let mut texts: Vec<Option<GeneratedText>> = prompts.iter().map(|_| None).collect();
    let limits = ScheduleLimits { tokens, cache: u64::MAX };
    let schedule = ScheduleOptions {
        kept: None,
        limits,
        share_prefixes: true,
        drafting,
        side_by_side: 128,
        progress: &TokenProgress::default(),
    };
    let prompts: Vec<Arc<TokenPrompt>> = prompts.iter().cloned().map(Arc::new).collect();
    let usage = generate(
        model,
        &prompts,
        &GenerationVocabulary {
            decode: &|tokens| Ok(letters(tokens)),
            ends,
            constrain: &|_| Err(ConstraintError::NoChoice),
        },
        schedule,
        &mut |index: usize, generated: GeneratedText, _: &mut BehindText<'_>| {
            assert!(texts[index].replace(generated).is_none(), "each text once");
            Ok::<(), WalkError<std::convert::Infallible>>(())
        },
    );
    (texts.into_iter().map(|text| text.expect("each prompt is continued")).collect(), usage.expect("runs"))
}

#[test]
fn greedy_texts_of_every_decoder_are_those_of_transformers() {
    for name in models() {
        let golden = &golden()["tiny"][name];
        let expected = ids(&golden["tokens"]);
        let until = golden["first_tie"].as_u64().map_or(expected.len(), |at| at as usize);
        let model = load(name, Arithmetic::Exact);
        for drafting in [Drafting::Off, Drafting::Lookup] {
            let (text, _) = texts(&*model, &[prompt(golden, expected.len(), Sampling::Greedy)], &[], drafting, 512);
            assert_eq!((text[0].token_ids.len(), text[0].finish), (expected.len(), Some(Finish::Length)), "{name}");
            assert_eq!(text[0].token_ids[..until], expected[..until], "{name}, {drafting:?}, tied at {until}");
        }
        assert!(until > 100, "{name}: a tie at {until} leaves little to compare");
    }
}

#[test]
fn guesses_change_no_token_of_any_decoder() {
    let mut total = (0, 0);
    for name in models() {
        let golden = &golden()["tiny"][name];
        let random = |temperature, limits, seed| Sampling::Random { temperature, limits, seed };
        let limits = SamplingLimits { top_k: Some(9), top_p: Some(0.9), min_p: Some(0.01) };
        for arithmetic in [Arithmetic::Exact, Arithmetic::Dots, Arithmetic::Tiles] {
            let model = load(name, arithmetic);
            let mut prompts: Vec<TokenPrompt> =
                [Sampling::Greedy, random(0.02, SamplingLimits::default(), 3), random(0.5, limits, 4)]
                    .map(|sampling| prompt(golden, 90, sampling))
                    .into();
            let (plain, usage) = texts(&*model, &prompts, &[], Drafting::Off, 512);
            assert_eq!((usage.tokens_drafted, usage.tokens_generated), (0, 270));
            // End tokens and stop sequences of two tokens that occur in some of these texts.
            let end = plain[2].token_ids[70];
            let stop = letters(&plain[0].token_ids[40..42]);
            prompts.iter_mut().take(2).for_each(|prompt| prompt.stop = vec![stop.clone()]);
            let (plain, _) = texts(&*model, &prompts, &[end], Drafting::Off, 512);
            assert!(plain.iter().any(|text| text.finish != Some(Finish::Length)), "{name}");
            let (drafted, usage) = texts(&*model, &prompts, &[end], Drafting::Lookup, 7);
            let accepted: usize = drafted.iter().map(|text| text.accepted).sum();
            assert_eq!(usage.drafts_accepted, accepted as u64, "{name}");
            total = (total.0 + usage.tokens_drafted, total.1 + usage.drafts_accepted);
            for (index, (a, b)) in plain.iter().zip(&drafted).enumerate() {
                assert_eq!(
                    (&a.token_ids, &a.text, a.finish),
                    (&b.token_ids, &b.text, b.finish),
                    "{name}, {arithmetic:?}, text {index}"
                );
                let (alone, _) = texts(&*model, &prompts[index..=index], &[end], Drafting::Lookup, 512);
                assert_eq!(
                    (&alone[0].token_ids, alone[0].finish),
                    (&b.token_ids, b.finish),
                    "{name}, {arithmetic:?}, text {index} alone"
                );
            }
        }
    }
    assert!(total.0 > total.1 && total.1 > 100, "{total:?} guesses, and right ones");
}
