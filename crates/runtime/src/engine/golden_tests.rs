//! The forward pass compared with transformers (`scripts/goldens`) and with itself under other splits.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use probity_models::{
    ArchitectureKind, Arithmetic, DecoderConfig, DeviceChoice, KvSpan, PackedDecoder, PackedSegment, RawTensor,
    SourceError, TensorBytes, WeightSource, WeightType, experts_apart, known_architectures, load_decoder, read_config,
    text_part,
};
use proptest::prelude::*;

use super::scheduler::ScheduleLimits;
use super::token_scores::{ScheduleOptions, TokenQuery, score_tokens};
use super::walk::WalkError;
use crate::gguf_config;
use crate::hub::locate;
use crate::test_roster::{Kind, ROSTER, Suite, golden_models, golden_names};
use crate::weights::{GgufFile, SafetensorsFiles};
use crate::{Checkpoint, Drafting, TokenProgress};

/// Largest allowed difference from transformers' f32 logits.
pub(super) const TOLERANCE: f32 = 2e-4;

/// Configuration of a decoder-only model.
pub(super) fn decoder_config(json: &serde_json::Value) -> DecoderConfig {
    read_config(json).expect("supported").decoder().expect("a decoder")
}

pub(super) fn folder(name: &str) -> PathBuf {
    crate::test_device::goldens().join("models").join(name)
}

pub(super) fn load(name: &str) -> Box<dyn PackedDecoder> {
    let config = std::fs::read(folder(name).join("config.json")).expect("goldens are part of the repository");
    let config = serde_json::from_slice(&config).expect("valid JSON");
    let source = experts_apart(&config, SafetensorsFiles::open(&folder(name)).expect("valid checkpoint"));
    load_decoder(&*source, decoder_config(&config), Arithmetic::Exact).expect("complete checkpoint")
}

pub(super) fn load_gguf(path: &Path, arithmetic: Arithmetic) -> Box<dyn PackedDecoder> {
    let file = GgufFile::open(path).expect("valid GGUF");
    let config = decoder_config(&gguf_config(&file).expect("complete metadata"));
    load_decoder(&file, config, arithmetic).expect("complete checkpoint")
}

/// GGUF file of a known model, if downloaded.
pub(super) fn known(name: &str) -> Option<PathBuf> {
    match locate(name) {
        Ok(located) => Some(located.path),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Tensors of a golden file, by name.
pub(super) struct Tensors(Vec<u8>);

impl Tensors {
    pub(super) fn open(path: &Path) -> Self {
        Self(std::fs::read(path).expect("goldens are part of the repository"))
    }

    fn get<T>(&self, name: &str, of: impl Fn(&[u8]) -> T, size: usize) -> Vec<T> {
        let tensors = safetensors::SafeTensors::deserialize(&self.0).expect("valid goldens");
        tensors.tensor(name).expect("a golden of that name").data().chunks_exact(size).map(of).collect()
    }

    pub(super) fn ids(&self, name: &str) -> Vec<u32> {
        self.get(name, |b| i64::from_le_bytes(b.try_into().expect("8 bytes")) as u32, 8)
    }

    pub(super) fn floats(&self, name: &str) -> Vec<f32> {
        self.get(name, |b| f32::from_le_bytes(b.try_into().expect("4 bytes")), 4)
    }
}

pub(super) struct Golden {
    pub(super) tokens: Vec<u32>,
    pub(super) logits: Vec<Vec<f32>>,
}

pub(super) fn golden(name: &str) -> Golden {
    let tensors = Tensors::open(&folder(name).join("golden.safetensors"));
    let (tokens, logits) = (tensors.ids("tokens"), tensors.floats("logits"));
    let vocab_size = logits.len() / tokens.len();
    Golden { logits: logits.chunks(vocab_size).map(<[f32]>::to_vec).collect(), tokens }
}

pub(super) fn largest_difference<'a>(
    got: impl IntoIterator<Item = &'a f32>,
    expected: impl IntoIterator<Item = &'a f32>,
) -> f32 {
    got.into_iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

pub(super) fn top(logits: &[f32]) -> u32 {
    logits.iter().enumerate().fold(0, |best, (id, logit)| if *logit > logits[best] { id } else { best }) as u32
}

/// Logits at all positions, with the tokens run in spans of these lengths.
pub(super) fn in_pieces(model: &dyn PackedDecoder, tokens: &[u32], pieces: &[usize]) -> Vec<Vec<f32>> {
    let mut past: Vec<Arc<KvSpan>> = Vec::new();
    let mut logits = Vec::new();
    let mut start = 0;
    for len in pieces {
        let tokens = tokens[start..start + len].to_vec();
        let segment = PackedSegment { past: past.clone(), wanted: (0..*len).collect(), tokens };
        let output = model.forward(&[segment]).expect("runs");
        logits.extend(model.logits(&output.hidden).expect("runs").to_vec2::<f32>().expect("a matrix"));
        past.extend(output.spans);
        start += len;
    }
    logits
}

#[test]
fn every_golden_model_has_a_row_that_says_what_it_is_and_every_architecture_a_model() {
    let folders = std::fs::read_dir(folder("")).expect("goldens").map(|entry| entry.expect("a folder").file_name());
    let folders: BTreeSet<_> = folders.map(|name| name.into_string().expect("UTF-8")).collect();
    assert_eq!(ROSTER.iter().map(|model| model.name.clone()).collect::<BTreeSet<_>>(), folders);
    let known = known_architectures();
    let mut missing: BTreeSet<_> = known.iter().map(|one| one.name).collect();
    for model in ROSTER.iter() {
        let (name, path) = (&model.name, folder(&model.path()));
        assert_eq!(folder(name).join("golden.safetensors").exists(), !model.without.contains(&Suite::Logits), "{name}");
        let config = match model.file {
            Some(_) => gguf_config(&GgufFile::open(&path).expect("valid GGUF")).expect("complete metadata"),
            None => serde_json::from_slice(&std::fs::read(path.join("config.json")).expect("golden")).expect("JSON"),
        };
        let architecture = known.iter().find(|one| config["model_type"] == one.name).expect("a known architecture");
        let kind = match architecture.kind {
            ArchitectureKind::Decoder if text_part(&config).expect("supported").is_some() => Kind::WithImages,
            ArchitectureKind::Decoder => Kind::Decoder,
            ArchitectureKind::EncoderDecoder => Kind::EncoderDecoder,
            ArchitectureKind::Encoder => Kind::Encoder,
            ArchitectureKind::Bridged => Kind::Bridged,
        };
        assert_eq!(kind, model.kind, "{name}");
        missing.remove(architecture.name);
    }
    assert_eq!(missing, BTreeSet::new(), "architectures without a golden model");
}

#[test]
fn logits_equal_transformers_with_and_without_cache() {
    for name in golden_names(Kind::Decoder, Suite::Logits) {
        let (model, golden) = (load(name), golden(name));
        let whole = in_pieces(&*model, &golden.tokens, &[golden.tokens.len()]);
        let largest = largest_difference(whole.iter().flatten(), golden.logits.iter().flatten());
        println!("{name}: {} positions, largest difference {largest:e}", golden.tokens.len());
        assert!(golden.tokens.len() >= 64 && largest <= TOLERANCE, "{name} differs by {largest}");
        let single = vec![1; golden.tokens.len()];
        assert_eq!(in_pieces(&*model, &golden.tokens, &single), whole, "{name}: cached, token by token");
        assert_eq!(
            in_pieces(&*model, &golden.tokens, &[30, 1, 17, golden.tokens.len() - 48]),
            whole,
            "{name}: cached, in spans"
        );
    }
}

#[test]
fn text_models_of_models_with_images_equal_transformers() {
    for name in golden_names(Kind::WithImages, Suite::Logits) {
        let located = locate(folder(name).to_str().expect("UTF-8 path")).expect("golden");
        let checkpoint = Checkpoint::open(&located).expect("its text model is known");
        let model = checkpoint.load(Arithmetic::Exact, DeviceChoice::Cpu).expect("complete checkpoint");
        let golden = golden(name);
        let whole = in_pieces(&*model, &golden.tokens, &[golden.tokens.len()]);
        let largest = largest_difference(whole.iter().flatten(), golden.logits.iter().flatten());
        println!("{name}: largest difference {largest:e}");
        assert!(largest <= TOLERANCE, "{name} differs by {largest}");
    }
}

#[test]
fn gguf_checkpoints_of_every_weight_type_equal_transformers_dequantised_load() {
    for model in golden_models(Kind::Decoder, Suite::Logits).filter(|model| model.file.is_some()) {
        let (name, path) = (model.name.as_str(), folder(&model.path()));
        let golden = golden(name);
        let all = [golden.tokens.len()];
        let exact = in_pieces(&*load_gguf(&path, Arithmetic::Exact), &golden.tokens, &all);
        let largest = largest_difference(exact.iter().flatten(), golden.logits.iter().flatten());
        println!("{name}: exact differs by {largest:e}");
        assert!(largest <= TOLERANCE, "{name} differs by {largest}");
        for arithmetic in [Arithmetic::Dots, Arithmetic::Tiles] {
            let fast = in_pieces(&*load_gguf(&path, arithmetic), &golden.tokens, &all);
            let largest = largest_difference(fast.iter().flatten(), golden.logits.iter().flatten());
            println!("{name}: {arithmetic:?} differs by {largest:e}");
            // Near ties, rounding can route a row to different experts.
            let most = match name {
                "gguf-mixtral" | "gguf-qwen3-moe" | "gguf-glm4-moe" | "gguf-granitemoe" | "gguf-qwen3-next"
                | "gguf-qwen35-moe" => 4.0,
                "gguf-gpt-oss" => 8.0,
                _ => 1.0,
            };
            assert!(largest > TOLERANCE && largest < most, "{name}: {arithmetic:?} differs by {largest}");
        }
    }
}

#[test]
fn smollm2_equals_transformers_dequantised_load() {
    let Some(path) = known("smollm2-135m-instruct") else { return };
    let tensors = Tensors::open(&folder("../smollm2").join("golden.safetensors"));
    let exact = load_gguf(&path, Arithmetic::Exact);
    let rounding = [Arithmetic::Dots, Arithmetic::Tiles].map(|arithmetic| (arithmetic, load_gguf(&path, arithmetic)));
    let subset = tensors.ids("subset_ids");
    for prompt in 0..4 {
        let golden = |name: &str| format!("prompt{prompt}.{name}");
        let tokens = tensors.ids(&golden("tokens"));
        let logits = in_pieces(&*exact, &tokens, &[tokens.len()]);
        assert_eq!(logits.iter().map(|l| top(l)).collect::<Vec<_>>(), tensors.ids(&golden("top1")), "prompt {prompt}");
        let subsets = |logits: &[Vec<f32>]| -> Vec<f32> {
            logits.iter().flat_map(|l| subset.iter().map(|id| l[*id as usize])).collect()
        };
        let (expected, expected_last) =
            (tensors.floats(&golden("subset_logits")), tensors.floats(&golden("last_logits")));
        let last = logits[tokens.len() - 4..].iter().flatten();
        let largest = largest_difference(&subsets(&logits), &expected).max(largest_difference(last, &expected_last));
        assert!(largest <= 2e-3, "prompt {prompt} differs by {largest}");
        println!("prompt {prompt}: exact differs by {largest:e}");
        for (arithmetic, model) in &rounding {
            let rounded = in_pieces(&**model, &tokens, &[tokens.len()]);
            let agree = rounded.iter().zip(&logits).filter(|(a, b)| top(a) == top(b)).count();
            let loss = largest_difference(&subsets(&rounded), &expected);
            println!(
                "prompt {prompt}: {arithmetic:?} differs by {loss:.3}, and agrees on {agree} of {} top tokens",
                tokens.len()
            );
            assert!(
                loss > 2e-3 && agree * 10 >= tokens.len() * 7,
                "{arithmetic:?}: {loss}, {agree} of {}",
                tokens.len()
            );
        }
    }
}

#[test]
fn qwen2_with_a_head_of_its_own_equals_transformers_dequantised_load() {
    let Some(path) = known("qwen2.5-coder-0.5b-instruct") else { return };
    let tensors = Tensors::open(&folder("../qwen2.5-coder-0.5b").join("golden.safetensors"));
    let model = load_gguf(&path, Arithmetic::Exact);
    let subset = tensors.ids("subset_ids");
    for prompt in 0..2 {
        let golden = |name: &str| format!("prompt{prompt}.{name}");
        let tokens = tensors.ids(&golden("tokens"));
        let segment = PackedSegment { past: Vec::new(), wanted: (tokens.len() - 8..tokens.len()).collect(), tokens };
        let output = model.forward(&[segment]).expect("runs");
        let logits = model.logits(&output.hidden).expect("runs").to_vec2::<f32>().expect("a matrix");
        assert_eq!(logits.iter().map(|l| top(l)).collect::<Vec<_>>(), tensors.ids(&golden("top1")), "prompt {prompt}");
        let got: Vec<f32> = logits.iter().flat_map(|l| subset.iter().map(|id| l[*id as usize])).collect();
        let largest = largest_difference(&got, &tensors.floats(&golden("subset_logits")));
        println!("prompt {prompt}: differs by {largest:e}");
        assert!(largest <= 2e-3, "prompt {prompt} differs by {largest}");
    }
}

#[test]
fn the_window_of_mistral_matters() {
    let config = std::fs::read_to_string(folder("mistral-window").join("config.json")).expect("golden");
    let mut config = decoder_config(&serde_json::from_str(&config).expect("JSON"));
    let source = SafetensorsFiles::open(&folder("mistral-window")).expect("valid");
    let golden = golden("mistral-window");
    config.layers.iter_mut().for_each(|layer| layer.window = None);
    let open = load_decoder(&source, config, Arithmetic::Exact).expect("complete");
    let logits = in_pieces(&*open, &golden.tokens, &[golden.tokens.len()]);
    let difference = |i: usize| largest_difference(&logits[i], &golden.logits[i]);
    assert!(difference(0) < TOLERANCE && difference(golden.tokens.len() - 1) > 0.1);
}

#[test]
fn trained_llama_weights_under_a_mistral_config_equal_llama_and_with_a_window_transformers() {
    let Some(path) = known("smollm2-135m-instruct") else { return };
    let file = GgufFile::open(&path).expect("valid GGUF");
    let mistral = |window: Option<usize>| {
        let mut config = gguf_config(&file).expect("complete metadata");
        config["model_type"] = "mistral".into();
        config["sliding_window"] = window.into();
        load_decoder(&file, decoder_config(&config), Arithmetic::Exact).expect("complete checkpoint")
    };
    let golden = Tensors::open(&folder("../smollm2").join("mistral_window.safetensors"));
    let (tokens, subset) = (golden.ids("tokens"), golden.ids("subset_ids"));
    let whole = [tokens.len()];

    let llama = in_pieces(&*load_gguf(&path, Arithmetic::Exact), &tokens, &whole);
    assert_eq!(in_pieces(&*mistral(None), &tokens, &whole), llama, "without a window");

    let mistral = mistral(Some(24));
    let logits = in_pieces(&*mistral, &tokens, &whole);
    assert_eq!(logits.iter().map(|l| top(l)).collect::<Vec<_>>(), golden.ids("top1"));
    let got: Vec<f32> = logits.iter().flat_map(|l| subset.iter().map(|id| l[*id as usize])).collect();
    let largest = largest_difference(&got, &golden.floats("subset_logits"));
    println!("{} positions, a window of 24: differs by {largest:e}", tokens.len());
    assert!(got.len() == 80 * 64 && largest <= 2e-3, "differs by {largest}");
    assert_eq!(in_pieces(&*mistral, &tokens, &[30, 1, 17, 32]), logits, "cached, in spans");
    assert_eq!(logits[..24], llama[..24], "the window holds all of them");
    let moved = |(with, without): (&Vec<f32>, &Vec<f32>)| largest_difference(with, without) > 0.1;
    assert!(logits.iter().zip(&llama).skip(24).all(moved), "the window matters");
}

/// A checkpoint with `rope_freqs.weight` among its tensors, as in GGUF files of Llama 3.
struct WithFactors {
    source: SafetensorsFiles,
    factors: Vec<u8>,
}

impl WeightSource for WithFactors {
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
        if name != "rope_freqs.weight" {
            return self.source.tensor(name);
        }
        let range = 0..self.factors.len();
        let bytes = TensorBytes::slice(Arc::new(self.factors.clone()), range).expect("the whole");
        Ok(RawTensor { shape: vec![bytes.len() / 4], weight_type: WeightType::F32, bytes })
    }

    fn contains(&self, name: &str) -> bool {
        name == "rope_freqs.weight" || self.source.contains(name)
    }

    fn names(&self) -> Vec<String> {
        self.source.names()
    }

    fn path(&self) -> PathBuf {
        self.source.path()
    }
}

#[test]
fn llama3_scaling_may_come_as_factors_of_a_gguf() {
    let name = "llama3-rope";
    let text = std::fs::read_to_string(folder(name).join("config.json")).expect("golden");
    let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let scaled = decoder_config(&config);
    config["rope_scaling"] = serde_json::Value::Null;
    config["probity.rope_freq_factors"] = true.into();
    let config = decoder_config(&config);
    // As converters write them: divisors of the base frequencies.
    let pairs =
        config.ropes[0].frequencies(config.head_dim).into_iter().zip(scaled.ropes[0].frequencies(scaled.head_dim));
    let factors = pairs.flat_map(|(plain, scaled)| (plain / scaled).to_le_bytes()).collect();
    let source = WithFactors { source: SafetensorsFiles::open(&folder(name)).expect("valid"), factors };
    let model = load_decoder(&source, config, Arithmetic::Exact).expect("complete");
    let golden = golden(name);
    let logits = in_pieces(&*model, &golden.tokens, &[golden.tokens.len()]);
    assert!(largest_difference(logits.iter().flatten(), golden.logits.iter().flatten()) <= TOLERANCE);
}

#[test]
fn joined_spans_change_no_bit() {
    for name in ["qwen2", "qwen3", "qwen3_next", "qwen3_5_text", "lfm2"] {
        let (model, golden) = (load(name), golden(name));
        let run = |past: &[Arc<KvSpan>], tokens: &[u32]| {
            let segment =
                PackedSegment { past: past.to_vec(), tokens: tokens.to_vec(), wanted: vec![tokens.len() - 1] };
            let output = model.forward(&[segment]).expect("runs");
            (model.logits(&output.hidden).expect("runs").to_vec2::<f32>().expect("matrix"), output.spans[0].clone())
        };
        let mut past = Vec::new();
        for token in &golden.tokens[..20] {
            past.push(run(&past, &[*token]).1);
        }
        let joined = vec![past[0].clone(), model.join(&past[1..], 19).expect("joins")];
        let expected = run(&past, &golden.tokens[20..25]).0;
        assert_eq!(expected, run(&joined, &golden.tokens[20..25]).0, "{name}");
        // States are needed only at the end of the path.
        let last = past.len() - 1;
        past[..last].iter_mut().for_each(|span| *span = model.without_states(span));
        assert_eq!(expected, run(&past, &golden.tokens[20..25]).0, "{name}");
        let has_states = model.state_bytes() > 0;
        assert_eq!(past[0].can_continue(), !has_states, "{name}");
        assert_eq!(model.join(&past[1..], 18).is_err(), has_states, "{name}: a state cannot be cut");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn recurrent_states_do_not_depend_on_cuts_batches_or_shared_prefixes(
        cuts in prop::collection::btree_set(1usize..60, 0..8),
        shared in 1usize..40,
        name in prop::sample::select(vec!["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "lfm2"]),
    ) {
        let (model, golden) = (load(name), golden(name));
        let first = &golden.tokens[..60];
        let second = [&golden.tokens[..shared], &golden.tokens[60..80]].concat();
        let whole = |tokens: &[u32]| in_pieces(&*model, tokens, &[tokens.len()]);
        let ends: Vec<usize> = cuts.iter().copied().chain([60]).collect();
        let pieces: Vec<usize> = ends.iter().scan(0, |last, end| Some(end - std::mem::replace(last, *end))).collect();
        prop_assert_eq!(in_pieces(&*model, first, &pieces), whole(first));
        // Both continue the same prefix, in one batch, and with a text of its own beside them.
        let segment = |past: &[Arc<KvSpan>], tokens: &[u32]| PackedSegment {
            past: past.to_vec(),
            tokens: tokens.to_vec(),
            wanted: (0..tokens.len()).collect(),
        };
        let prefix = model.forward(&[segment(&[], &first[..shared])]).expect("runs").spans;
        let (own, rest) = (&golden.tokens[90..], [&first[shared..], &second[shared..]]);
        let batch = [segment(&prefix, rest[0]), segment(&[], own), segment(&prefix, rest[1])];
        let output = model.forward(&batch).expect("runs");
        let logits = model.logits(&output.hidden).expect("runs").to_vec2::<f32>().expect("a matrix");
        let expected = [&whole(first)[shared..], &whole(own), &whole(&second)[shared..]].concat();
        prop_assert_eq!(logits, expected);
    }
}

#[test]
fn a_span_of_a_model_with_states_counts_them_once_whatever_its_length() {
    // Four heads of 12 values, padded to 16, and 16 key elements; three tokens of 112 channels.
    let delta = 3 * (4 * 16 * 16 + 3 * 112);
    // Two tokens of 64 channels.
    let convolution = 2 * 2 * 64;
    for (name, elements) in [("qwen3_next", delta), ("qwen3_5_text", delta), ("lfm2", convolution), ("llama", 0)] {
        let model = load(name);
        assert_eq!(model.state_bytes(), elements * 4, "{name}");
        let (short, long) = (model.cache_bytes(1), model.cache_bytes(641));
        assert!(short > model.state_bytes() && long - short < 641 * (short - model.state_bytes()), "{name}");
    }
}

/// Queries the tokens from `from` on.
pub(super) fn token_query(tokens: &[u32], from: usize, request: usize) -> TokenQuery {
    TokenQuery {
        alternatives: 0,
        seen: tokens[..tokens.len() - 1].into(),
        asked: tokens[from..].to_vec(),
        source: 0,
        layers: Vec::new(),
        request,
    }
}

pub(super) fn scores(
    model: &dyn PackedDecoder,
    queries: &[TokenQuery],
    token_budget: usize,
    share_prefixes: bool,
) -> Vec<Vec<(u64, bool)>> {
    let mut results = vec![Vec::new(); queries.len()];
    let limits = ScheduleLimits { tokens: token_budget, cache: u64::MAX };
    let result = score_tokens(
        model,
        queries,
        ScheduleOptions {
            kept: None,
            limits,
            share_prefixes,
            drafting: Drafting::Off,
            side_by_side: 128,
            progress: &TokenProgress::default(),
        },
        &mut |query, scores| {
            let states = scores.states.iter().flatten().map(|value| (u64::from(value.to_bits()), false));
            results[query] = scores.scores.iter().map(|s| (s.logprob.to_bits(), s.is_greedy)).chain(states).collect();
            Ok::<(), std::convert::Infallible>(())
        },
    );
    match result {
        Ok(_) => results,
        Err(WalkError::Model(error)) => panic!("{error}"),
        Err(WalkError::Visitor(never)) => match never {},
    }
}

#[test]
fn scores_do_not_depend_on_sharing_budget_order_or_threads() {
    for name in ["llama3-rope", "mistral-window", "qwen3", "qwen3_next", "qwen3_5_text", "lfm2"] {
        let (model, golden) = (load(name), golden(name));
        let t = &golden.tokens;
        let query = |parts: &[&[u32]], from: usize| token_query(&parts.concat(), from, 0);
        let mut queries = vec![
            query(&[&t[..60]], 50),
            query(&[&t[..40], &t[70..90]], 59),
            query(&[&t[..40], &t[70..80], &t[3..9]], 1),
            query(&[&t[..60]], 59),
            query(&[&t[90..], &t[..5]], 4),
            query(&[&t[..2]], 1),
        ];
        // The same queries with states of one and of two layers, and a text that is a prefix of others.
        let reading = |query: TokenQuery, layers: Vec<usize>| {
            let last = query.asked.last().expect("a token");
            TokenQuery { seen: [&*query.seen, &[*last]].concat().into(), layers, ..query }
        };
        queries.push(reading(queries[0].clone(), vec![1]));
        queries.push(reading(queries[2].clone(), vec![0, 1]));
        queries.push(reading(query(&[&t[..52]], 50), vec![1]));
        queries.iter_mut().enumerate().for_each(|(request, query)| query.request = request);
        let expected = scores(&*model, &queries, 4096, true);
        assert!(expected[..6].iter().zip(&queries).all(|(s, q)| s.len() == q.asked.len()));
        assert!(expected[7].len() - queries[7].asked.len() == 2 * (expected[6].len() - queries[6].asked.len()));
        assert_eq!(expected[0], expected[6][..10], "states change no probability");
        assert!(expected[..6].iter().flatten().all(|(bits, _)| f64::from_bits(*bits).is_finite()));
        for (budget, share) in [(1, true), (7, true), (50, true), (7, false), (4096, false)] {
            assert_eq!(scores(&*model, &queries, budget, share), expected, "{name}: budget {budget}, sharing {share}");
        }
        let mut reversed: Vec<TokenQuery> = queries.iter().rev().cloned().collect();
        let mut backwards = scores(&*model, &reversed, 33, true);
        backwards.reverse();
        assert_eq!(backwards, expected, "{name}: order");
        reversed.truncate(1);
        assert_eq!(scores(&*model, &reversed, 33, true)[0], expected[8], "{name}: alone");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
        assert_eq!(pool.install(|| scores(&*model, &queries, 64, true)), expected, "{name}: threads");
    }
}

#[test]
fn token_scores_are_the_log_softmax_of_the_golden_logits() {
    let (model, golden) = (load("llama"), golden("llama"));
    let got = scores(&*model, &[token_query(&golden.tokens, 1, 0)], 32, true).remove(0);
    for (position, (bits, is_greedy)) in got.iter().enumerate() {
        let (logits, token) = (&golden.logits[position], golden.tokens[position + 1] as usize);
        let normaliser = logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln();
        let expected = f64::from(logits[token]) - normaliser;
        assert!((f64::from_bits(*bits) - expected).abs() < f64::from(TOLERANCE), "position {position}");
        let top = logits.iter().all(|l| *l <= logits[token]);
        assert_eq!(*is_greedy, top, "position {position}");
    }
}
