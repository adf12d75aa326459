//! The forward pass with candle's operations compared with our kernels, on candle's CPU device or on a device from the
//! environment.

use std::path::Path;
use std::sync::Arc;

use probity_models::{
    Arithmetic, DecoderConfig, DeviceChoice, KvSpan, ModelConfig, PackedDecoder, PackedSegment, experts_apart,
    load_decoder_on, load_encoder_decoder_on, read_config,
};

use super::golden_tests::{
    TOLERANCE, Tensors, decoder_config, folder, golden, in_pieces, known, largest_difference, scores, token_query,
};
use crate::gguf_config;
use crate::test_device::device;
use crate::test_roster::{Kind, Suite, golden_models, golden_names};
use crate::weights::{GgufFile, SafetensorsFiles};

/// The same checkpoint with our kernels and with candle's operations.
pub(super) struct Pair {
    pub(super) kernels: Box<dyn PackedDecoder>,
    pub(super) candle: Box<dyn PackedDecoder>,
}

impl Pair {
    fn new(load: impl Fn(DeviceChoice) -> Box<dyn PackedDecoder>) -> Self {
        Self { kernels: load(DeviceChoice::Cpu), candle: load(device()) }
    }

    fn safetensors(name: &str) -> Self {
        Self::changed(name, |_| ())
    }

    /// With a modified configuration.
    pub(super) fn changed(name: &str, change: impl Fn(&mut DecoderConfig)) -> Self {
        let config = std::fs::read(folder(name).join("config.json")).expect("goldens are part of the repository");
        let config = serde_json::from_slice(&config).expect("valid JSON");
        let source = experts_apart(&config, SafetensorsFiles::open(&folder(name)).expect("valid checkpoint"));
        let mut config = decoder_config(&config);
        change(&mut config);
        Self::new(|device| {
            load_decoder_on(device, &*source, config.clone(), Arithmetic::Exact).expect("complete checkpoint")
        })
    }

    fn gguf(path: &Path) -> Self {
        let file = GgufFile::open(path).expect("valid GGUF");
        let config = decoder_config(&gguf_config(&file).expect("complete metadata"));
        Self::new(|device| {
            load_decoder_on(device, &file, config.clone(), Arithmetic::Exact).expect("complete checkpoint")
        })
    }

    fn encoder_decoder(name: &str) -> Self {
        let config = std::fs::read(folder(name).join("config.json")).expect("goldens are part of the repository");
        let config = read_config(&serde_json::from_slice(&config).expect("valid JSON")).expect("supported");
        let ModelConfig::EncoderDecoder(config) = config else { panic!("an encoder-decoder") };
        let source = SafetensorsFiles::open(&folder(name)).expect("valid checkpoint");
        Self::new(|device| {
            load_encoder_decoder_on(device, &source, &config, Arithmetic::Exact).expect("complete checkpoint")
        })
    }

    /// Every golden checkpoint of a decoder that devices compute.
    pub(super) fn all() -> impl Iterator<Item = (&'static str, Self)> {
        let models = golden_models(Kind::Decoder, Suite::Logits).filter(|model| model.has(Suite::Devices));
        models.map(|model| match model.file {
            None => (model.name.as_str(), Self::safetensors(&model.name)),
            Some(_) => (model.name.as_str(), Self::gguf(&folder(&model.path()))),
        })
    }
}

#[track_caller]
pub(super) fn assert_close(what: &str, got: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(got.len(), expected.len(), "{what}: rows");
    let largest = largest_difference(got.iter().flatten(), expected.iter().flatten());
    println!("{what}: {} rows, largest difference {largest:e}", got.len());
    assert!(largest <= TOLERANCE, "{what} differs by {largest}");
}

#[test]
fn candles_operations_give_the_logits_of_our_kernels_with_and_without_cache() {
    for (name, pair) in Pair::all() {
        let golden = golden(name);
        let len = golden.tokens.len();
        let expected = in_pieces(&*pair.kernels, &golden.tokens, &[len]);
        assert_close(&format!("{name}, kernels against the reference"), &expected, &golden.logits);
        for pieces in [vec![len], vec![30, 1, 17, len - 48], vec![1; len]] {
            let got = in_pieces(&*pair.candle, &golden.tokens, &pieces);
            assert_close(&format!("{name} in {} pieces", pieces.len()), &got, &expected);
        }
    }
}

/// Whether the number is exact in bf16, the upper half of an f32.
fn is_bf16(x: f32) -> bool {
    x.to_bits().trailing_zeros() >= 16
}

#[test]
fn logits_under_fast_are_not_rounded_to_bf16() {
    for (name, tied) in [("llama", false), ("llama-head-dim", true), ("gemma2", true), ("mixtral", false)] {
        let config = std::fs::read(folder(name).join("config.json")).expect("goldens are part of the repository");
        let config = decoder_config(&serde_json::from_slice(&config).expect("valid JSON"));
        assert_eq!(config.tie_word_embeddings, tied, "{name}");
        let source = SafetensorsFiles::open(&folder(name)).expect("valid checkpoint");
        let model = load_decoder_on(device(), &source, config, Arithmetic::Tiles).expect("loads");
        let rows = in_pieces(&*model, &golden(name).tokens, &[96]);
        let count = rows.iter().flatten().count();
        let on_grid = rows.iter().flatten().filter(|x| is_bf16(**x)).count();
        assert!(on_grid * 100 < count, "{name}: {on_grid} of {count} logits lie on the grid of bf16");
    }
    for name in golden_names(Kind::EncoderDecoder, Suite::Logits) {
        let config = std::fs::read(folder(name).join("config.json")).expect("goldens are part of the repository");
        let config = read_config(&serde_json::from_slice(&config).expect("valid JSON")).expect("supported");
        let ModelConfig::EncoderDecoder(config) = config else { panic!("an encoder-decoder") };
        let source = SafetensorsFiles::open(&folder(name)).expect("valid checkpoint");
        let model = load_encoder_decoder_on(device(), &source, &config, Arithmetic::Tiles).expect("loads");
        let segment = |past, wanted| PackedSegment { past, tokens: vec![5, 6, 7], wanted };
        let source = model.forward(&[segment(Vec::new(), Vec::new())]).expect("runs").spans.remove(0);
        let (rows, _, _) = run(&*model, &[segment(vec![source], vec![0, 1, 2])]);
        let on_grid = rows.iter().flatten().filter(|x| is_bf16(**x)).count();
        assert!(on_grid * 100 < rows.iter().flatten().count(), "{name}: {on_grid} logits lie on the grid of bf16");
    }
}

#[test]
fn long_segments_attend_in_blocks_with_and_without_a_window() {
    for name in ["llama", "mistral-window"] {
        let (pair, golden) = (Pair::safetensors(name), golden(name));
        let tokens: Vec<u32> = golden.tokens.iter().copied().cycle().take(1100).collect();
        let expected = in_pieces(&*pair.kernels, &tokens, &[1100]);
        assert_close(name, &in_pieces(&*pair.candle, &tokens, &[1100]), &expected);
        assert_close(&format!("{name} with a past"), &in_pieces(&*pair.candle, &tokens, &[40, 1060]), &expected);
    }
}

/// Logits of all requested rows, their normalisers, and the new spans.
fn run(model: &dyn PackedDecoder, segments: &[PackedSegment]) -> (Vec<Vec<f32>>, Vec<f64>, Vec<Arc<KvSpan>>) {
    let output = model.forward(segments).expect("runs");
    let logits = model.logits(&output.hidden).expect("runs");
    let rows = model.head(&output.hidden, &vec![Vec::new(); logits.dim(0).expect("a matrix")]).expect("runs");
    (logits.to_vec2().expect("a matrix"), rows.iter().map(|row| row.normaliser).collect(), output.spans)
}

/// A context; two continuations of it beside an independent segment; then a token after each, with the first path
/// joined.
fn packed(model: &dyn PackedDecoder, t: &[u32]) -> (Vec<Vec<f32>>, Vec<f64>) {
    let segment = |past: &[&Arc<KvSpan>], tokens: &[u32], wanted: &[usize]| PackedSegment {
        past: past.iter().map(|span| (*span).clone()).collect(),
        tokens: tokens.to_vec(),
        wanted: wanted.to_vec(),
    };
    let output = model.forward(&[segment(&[], &t[..20], &[])]).expect("runs");
    assert_eq!(output.hidden.dims()[0], 0, "nothing was asked for");
    let context = &output.spans[0];
    let children = [
        segment(&[context], &t[20..31], &[0, 10]),
        segment(&[], &t[5..9], &[3]),
        segment(&[context], &t[40..43], &[1]),
    ];
    let (mut logits, mut normalisers, spans) = run(model, &children);
    let joined = model.join(&[context.clone(), spans[0].clone()], context.len() + spans[0].len()).expect("joins");
    assert_eq!(joined.len(), 31);
    let last = [
        segment(&[&joined], &t[31..32], &[0]),
        segment(&[&spans[1]], &t[9..10], &[0]),
        segment(&[context, &spans[2]], &t[43..44], &[0]),
    ];
    let (more, sums, _) = run(model, &last);
    logits.extend(more);
    normalisers.extend(sums);
    (logits, normalisers)
}

#[test]
fn packed_segments_of_several_pasts_agree_with_our_kernels() {
    for (name, pair) in Pair::all() {
        let tokens = golden(name).tokens;
        let ((logits, normalisers), (expected, sums)) =
            (packed(&*pair.candle, &tokens), packed(&*pair.kernels, &tokens));
        assert_eq!(logits.len(), 7);
        assert_close(name, &logits, &expected);
        let furthest = normalisers.iter().zip(&sums).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(furthest <= f64::from(TOLERANCE), "{name}: normalisers differ by {furthest}");
    }
}

/// A long context with many continuations, two of which are continued again, beside independent texts.
fn packed_over_one_context(model: &dyn PackedDecoder, t: &[u32]) -> Vec<Vec<f32>> {
    let segment = |past: Vec<Arc<KvSpan>>, tokens: &[u32]| PackedSegment {
        past,
        tokens: tokens.to_vec(),
        wanted: vec![tokens.len() - 1],
    };
    let context = model.forward(&[segment(Vec::new(), &t[..200])]).expect("runs").spans.remove(0);
    let of_context = |range: std::ops::Range<usize>| segment(vec![context.clone()], &t[range]);
    let nodes = run(model, &[of_context(200..300), of_context(210..290), segment(Vec::new(), &t[..30])]);
    let below =
        |node: usize, range: std::ops::Range<usize>| segment(vec![context.clone(), nodes.2[node].clone()], &t[range]);
    let mut texts: Vec<PackedSegment> = (0..5).map(|text| below(0, 300 + text..310 + 3 * text)).collect();
    texts.push(segment(vec![nodes.2[2].clone()], &t[30..37]));
    texts.extend((0..4).map(|text| below(1, 290 + text..291 + text)));
    texts.push(segment(Vec::new(), &t[40..60]));
    [nodes.0, run(model, &texts).0].concat()
}

#[test]
fn what_several_texts_see_is_read_once_and_gives_the_same() {
    for (name, pair) in Pair::all() {
        let tokens: Vec<u32> = golden(name).tokens.iter().copied().cycle().take(400).collect();
        let [expected, got] = [&pair.kernels, &pair.candle].map(|model| packed_over_one_context(&**model, &tokens));
        assert_eq!(got.len(), 14);
        assert_close(name, &got, &expected);
    }
}

#[test]
fn a_source_that_several_texts_look_at_is_read_once_and_gives_the_same() {
    for name in golden_names(Kind::EncoderDecoder, Suite::Logits) {
        let (pair, golden) = (Pair::encoder_decoder(name), Tensors::open(&folder(name).join("golden.safetensors")));
        let (text, tokens) = (golden.ids("source0"), golden.ids("tokens0"));
        let long: Vec<u32> = text.iter().copied().cycle().take(100).collect();
        let logits = |model: &dyn PackedDecoder| {
            let spans = model.forward(&[source(&long), source(&text)]).expect("runs").spans;
            let of = |source: usize, tokens: &[u32]| PackedSegment {
                past: vec![spans[source].clone()],
                tokens: tokens.to_vec(),
                wanted: vec![tokens.len() - 1],
            };
            let mut texts: Vec<PackedSegment> = (1..6).map(|len| of(0, &tokens[..len])).collect();
            texts.insert(2, of(1, &tokens[..7]));
            run(model, &texts).0
        };
        assert_close(name, &logits(&*pair.candle), &logits(&*pair.kernels));
    }
}

fn source(tokens: &[u32]) -> PackedSegment {
    PackedSegment { past: Vec::new(), tokens: tokens.to_vec(), wanted: Vec::new() }
}

/// Two sources; a text of each beside a third source, with and without a past; then texts over a joined past.
fn packed_over_sources(model: &dyn PackedDecoder, texts: &[Vec<u32>; 2], t: &[u32]) -> (Vec<Vec<f32>>, Vec<f64>) {
    let segment = |past: &[&Arc<KvSpan>], tokens: &[u32], wanted: &[usize]| PackedSegment {
        past: past.iter().map(|span| (*span).clone()).collect(),
        tokens: tokens.to_vec(),
        wanted: wanted.to_vec(),
    };
    let output = model.forward(&[source(&texts[0]), source(&texts[1])]).expect("runs");
    assert_eq!(output.hidden.dims()[0], 0, "nothing was asked for");
    let [long, short] = [&output.spans[0], &output.spans[1]];
    let first = model.forward(&[segment(&[long], &t[..12], &[])]).expect("runs").spans;
    let children = [
        segment(&[short], &t[..4], &[0, 3]),
        source(&texts[1][..5]),
        segment(&[long, &first[0]], &t[12..20], &[1, 7]),
        segment(&[long], &t[30..33], &[]),
    ];
    let (mut logits, mut normalisers, spans) = run(model, &children);
    // Drop some of the draft tokens.
    let joined = model.join(&[first[0].clone(), spans[2].clone()], 17).expect("joins");
    assert_eq!(joined.len(), 17);
    let last = [
        segment(&[long, &joined], &t[17..18], &[0]),
        segment(&[&spans[1]], &t[5..9], &[3]),
        segment(&[short, &spans[0]], &t[4..5], &[0]),
        segment(&[long, &spans[3]], &t[33..34], &[0]),
    ];
    let (more, sums, _) = run(model, &last);
    logits.extend(more);
    normalisers.extend(sums);
    (logits, normalisers)
}

#[test]
fn sources_and_texts_of_an_encoder_decoder_packed_together_agree_with_our_kernels() {
    for name in golden_names(Kind::EncoderDecoder, Suite::Logits) {
        let (pair, golden) = (Pair::encoder_decoder(name), Tensors::open(&folder(name).join("golden.safetensors")));
        let (texts, tokens) = (["source0", "source1"].map(|text| golden.ids(text)), golden.ids("tokens0"));
        let [(expected, sums), (logits, normalisers)] =
            [&pair.kernels, &pair.candle].map(|model| packed_over_sources(&**model, &texts, &tokens));
        assert_eq!(logits.len(), 8);
        assert_close(name, &logits, &expected);
        let furthest = normalisers.iter().zip(&sums).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(furthest <= f64::from(TOLERANCE), "{name}: normalisers differ by {furthest}");
    }
}

#[test]
fn long_sources_and_texts_attend_in_blocks_with_their_distances() {
    for name in ["t5", "flan-t5"] {
        let (pair, golden) = (Pair::encoder_decoder(name), Tensors::open(&folder(name).join("golden.safetensors")));
        let tokens: Vec<u32> = golden.ids("tokens0").into_iter().cycle().take(1100).collect();
        let cut = |model: &dyn PackedDecoder, pieces: &[usize]| -> Vec<Vec<f32>> {
            let mut past = model.forward(&[source(&tokens)]).expect("runs").spans;
            let (mut logits, mut start) = (Vec::new(), 0);
            for len in pieces {
                let piece = &tokens[start..start + len];
                let segment = PackedSegment { past: past.clone(), tokens: piece.to_vec(), wanted: (0..*len).collect() };
                let output = model.forward(&[segment]).expect("runs");
                logits.extend(model.logits(&output.hidden).expect("runs").to_vec2::<f32>().expect("a matrix"));
                past.extend(output.spans);
                start += len;
            }
            logits
        };
        let expected = cut(&*pair.kernels, &[1100]);
        assert_close(name, &cut(&*pair.candle, &[1100]), &expected);
        assert_close(&format!("{name} with a past"), &cut(&*pair.candle, &[40, 1060]), &expected);
    }
}

#[test]
fn the_output_head_agrees_with_our_kernels_and_with_the_logits() {
    for (name, pair) in Pair::all() {
        let tokens = golden(name).tokens;
        let asked: Vec<Vec<u32>> =
            (0..tokens.len() as u32).map(|row| (0..row % 4).map(|i| row + i * 7).collect()).collect();
        let head = |model: &dyn PackedDecoder| {
            let segment =
                PackedSegment { past: Vec::new(), tokens: tokens.clone(), wanted: (0..tokens.len()).collect() };
            model.head(&model.forward(&[segment]).expect("runs").hidden, &asked).expect("runs")
        };
        let (rows, expected) = (head(&*pair.candle), head(&*pair.kernels));
        let logits = in_pieces(&*pair.candle, &tokens, &[tokens.len()]);
        for ((row, expected), (logits, asked)) in rows.iter().zip(&expected).zip(logits.iter().zip(&asked)) {
            assert!((row.normaliser - expected.normaliser).abs() <= f64::from(TOLERANCE), "{name}");
            assert_eq!(row.greedy, expected.greedy, "{name}");
            let same = row.logits.iter().zip(asked).all(|(logit, id)| (logit - logits[*id as usize]).abs() <= 1e-5);
            assert!(row.logits.len() == asked.len() && same, "{name}");
        }
        assert!(rows.len() == tokens.len() && rows.len() > 64, "more than are held at a time");
    }
}

#[test]
fn hidden_states_that_are_no_numbers_have_no_finite_normaliser() {
    let pair = Pair::safetensors("llama");
    for model in [&pair.kernels, &pair.candle] {
        let segment = PackedSegment { past: Vec::new(), tokens: vec![1, 2, 3], wanted: vec![0, 1, 2] };
        let mut hidden = model.forward(&[segment]).expect("runs").hidden.to_vec2::<f32>().expect("a matrix");
        (hidden[0][3], hidden[2][5]) = (f32::NAN, f32::INFINITY);
        let hidden = candle_core::Tensor::new(hidden, &candle_core::Device::Cpu).expect("a matrix");
        let rows = model.head(&hidden, &[const { Vec::new() }; 3]).expect("runs");
        assert_eq!(rows.iter().map(|row| row.normaliser.is_finite()).collect::<Vec<_>>(), [false, true, false]);
    }
}

#[test]
fn token_scores_agree_with_our_kernels_shared_or_not() {
    for name in ["llama3-rope", "mistral-window", "qwen2", "qwen3"] {
        let (pair, golden) = (Pair::safetensors(name), golden(name));
        let t = &golden.tokens;
        let query = |parts: &[&[u32]], from: usize, request: usize| token_query(&parts.concat(), from, request);
        let queries = [
            query(&[&t[..60]], 50, 0),
            query(&[&t[..40], &t[70..90]], 59, 1),
            query(&[&t[..40], &t[70..80], &t[3..9]], 1, 2),
        ];
        let expected = scores(&*pair.kernels, &queries, 4096, true);
        for (budget, share) in [(4096, true), (7, true), (50, false)] {
            let got = scores(&*pair.candle, &queries, budget, share);
            for ((a, _), (b, _)) in got.iter().flatten().zip(expected.iter().flatten()) {
                let (a, b) = (f64::from_bits(*a), f64::from_bits(*b));
                assert!((a - b).abs() <= f64::from(TOLERANCE), "{name}: {a} and {b}");
            }
            assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [10, 1, 55]);
        }
    }
}

#[test]
fn bf16_on_a_device_is_near_and_not_the_same() {
    // The bound is for these models: the effect of rounding depends on the weights, and gguf-smollm3 differs by 1.4.
    for name in ["tiny-gguf", "tiny-gguf-mixed", "tiny-gguf-qwen3"] {
        let golden = golden(name);
        let file = GgufFile::open(&folder(name).join("model.gguf")).expect("valid GGUF");
        let config = decoder_config(&gguf_config(&file).expect("complete metadata"));
        let model = load_decoder_on(device(), &file, config, Arithmetic::Tiles).expect("complete checkpoint");
        let logits = in_pieces(&*model, &golden.tokens, &[30, 1, 17, golden.tokens.len() - 48]);
        let largest = largest_difference(logits.iter().flatten(), golden.logits.iter().flatten());
        println!("{name}: bf16 differs by {largest:e}");
        assert!(largest > TOLERANCE && largest < 1.0, "{name}: bf16 differs by {largest}");
    }
}

#[test]
fn trained_weights_give_the_logits_of_our_kernels() {
    for name in ["smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct"] {
        let Some(path) = known(name) else { continue };
        let pair = Pair::gguf(&path);
        let tokens: Vec<u32> = (0..96).map(|i| 100 + i * 37 % 5000).collect();
        let expected = in_pieces(&*pair.kernels, &tokens, &[96]);
        assert_close(name, &in_pieces(&*pair.candle, &tokens, &[60, 1, 35]), &expected);
    }
}

#[test]
fn a_token_outside_the_vocabulary_is_an_error() {
    let pair = Pair::safetensors("llama");
    let segment = PackedSegment { past: Vec::new(), tokens: vec![1_000_000], wanted: vec![0] };
    let error = pair.candle.forward(&[segment]).expect_err("no such token").to_string();
    assert!(error.contains("1000000 is outside the vocabulary"), "{error}");
}
