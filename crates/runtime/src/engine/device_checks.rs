//! Checks on a new device besides agreement of logits (`device_tests`): where states begin to differ, block and window
//! boundaries, long texts, unlimited positions, repeatability.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use probity_lm::{Ask, GenerateRequest, LabelSet, LanguageModel as _, Precision, Prompt, ScoreRequest, ScoreResult};
use probity_models::{
    Arithmetic, DeviceChoice, KvSpan, LayerTaps, PackedDecoder, PackedSegment, RawTensor, SourceError, TensorBytes,
    WeightSource, WeightType, load_decoder_on,
};
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::device_tests::{Pair, assert_close};
use super::golden_tests::{TOLERANCE, decoder_config, folder, golden, in_pieces, largest_difference, top};
use crate::hub::locate;
use crate::test_device::device;
use crate::{Checkpoint, LoadOptions, Model};

/// A golden checkpoint with its number of positions, and a trained model if downloaded and fast.
fn models(golden: &str) -> Vec<String> {
    let mut models = vec![folder(golden).to_str().expect("UTF-8 path").to_owned()];
    if device() != DeviceChoice::CandleCpu {
        models.extend(locate("smollm2-135m-instruct").is_ok().then(|| "smollm2-135m-instruct".to_owned()));
    }
    models
}

fn on_device(model: &str, precision: Precision) -> Model {
    let options = LoadOptions { devices: device().into(), precision, ..LoadOptions::default() };
    Model::load(&locate(model).expect("a model lies there"), options).expect("loads")
}

fn states(model: &dyn PackedDecoder, tokens: &[u32], layers: usize) -> Vec<Vec<f32>> {
    let layers: Vec<usize> = (0..layers).collect();
    let mut states = vec![Vec::new(); layers.len()];
    let see = &mut |place: usize, rows: &[f32]| states[place] = rows.to_vec();
    let segment = PackedSegment { past: Vec::new(), tokens: tokens.to_vec(), wanted: vec![tokens.len() - 1] };
    model.forward_tapped(&[segment], &mut LayerTaps { layers: &layers, see }).expect("runs");
    states
}

#[test]
fn states_agree_layer_by_layer() {
    for (name, pair) in Pair::all() {
        let tokens = golden(name).tokens;
        let located = locate(folder(name).to_str().expect("UTF-8 path")).or_else(|_| {
            let path = ["model.gguf", "model-00001-of-00003.gguf"].map(|file| folder(name).join(file));
            let there = path.iter().find(|path| path.is_file()).expect("a GGUF file");
            locate(there.to_str().expect("UTF-8 path"))
        });
        let layers = Checkpoint::open(&located.expect("a model lies there")).expect("opens").config.layers();
        let [expected, got] =
            [&pair.kernels, &pair.candle].map(|model| states(&**model, &tokens, layers.expect("layers")));
        for (layer, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let size = expected.iter().fold(1.0f32, |size, x| size.max(x.abs()));
            let largest = largest_difference(got, expected) / size;
            assert!(got.len() == expected.len() && largest <= TOLERANCE, "{name}, behind {layer} layers: {largest:e}");
        }
        println!("{name}: {} layers agree", expected.len());
    }
}

/// Texts of 1, 2 and 9 tokens after a prefix: as spans of one batch beside one without queries, then alone.
fn behind_prefix(model: &dyn PackedDecoder, prefix: &[u32], texts: &[&[u32]]) -> [Vec<Vec<f32>>; 2] {
    let run = |past: Vec<Arc<KvSpan>>, texts: &[&[u32]]| {
        let segment =
            |text: &&[u32]| PackedSegment { past: past.clone(), tokens: text.to_vec(), wanted: vec![text.len() - 1] };
        let mut segments: Vec<PackedSegment> = texts.iter().map(segment).collect();
        segments.push(PackedSegment { wanted: Vec::new(), ..segments[0].clone() });
        let output = model.forward(&segments).expect("runs");
        model.logits(&output.hidden).expect("runs").to_vec2::<f32>().expect("a matrix")
    };
    let segment = PackedSegment { past: Vec::new(), tokens: prefix.to_vec(), wanted: Vec::new() };
    let spans = model.forward(&[segment]).expect("runs").spans;
    let whole = texts.iter().map(|text| [prefix, text].concat());
    [run(spans, texts), whole.map(|text| run(Vec::new(), &[&text]).remove(0)).collect()]
}

#[test]
fn prefixes_at_the_edges_of_blocks_and_windows_packed_and_alone() {
    for (name, window) in [("llama", None), ("mistral-window", Some(24)), ("mistral-window", Some(512))] {
        let pair = Pair::changed(name, |config| config.layers.iter_mut().for_each(|layer| layer.window = window));
        let tokens: Vec<u32> = golden(name).tokens.iter().copied().cycle().take(560).collect();
        for prefix in [23, 24, 25, 511, 512, 513] {
            let texts = [1, 2, 9].map(|len| &tokens[prefix + len..][..len]);
            let [_, expected] = behind_prefix(&*pair.kernels, &tokens[..prefix], &texts);
            for got in behind_prefix(&*pair.candle, &tokens[..prefix], &texts) {
                assert_close(&format!("{name}, window {window:?}, a prefix of {prefix}"), &got, &expected);
            }
        }
    }
}

#[test]
fn fast_is_the_same_packed_and_alone_but_for_rounding() {
    let mut furthest = 0.0f32;
    for name in ["llama", "mistral-window", "gemma2"] {
        let checkpoint = Checkpoint::open(&locate(folder(name).to_str().expect("UTF-8 path")).expect("is there"));
        let model = checkpoint.expect("opens").load(Arithmetic::Tiles, device()).expect("loads");
        let tokens: Vec<u32> = golden(name).tokens.iter().copied().cycle().take(560).collect();
        for prefix in [24, 513] {
            let texts = [1, 2, 9].map(|len| &tokens[prefix + len..][..len]);
            let [packed, alone] = behind_prefix(&*model, &tokens[..prefix], &texts);
            furthest = furthest.max(largest_difference(packed.iter().flatten(), alone.iter().flatten()));
        }
    }
    println!("fast: largest difference {furthest:e}");
    assert!(furthest < 0.5, "differs by {furthest}");
}

/// Flash attention has kernels for head sizes 32, 64, 96, 128 and 256. It uses the 96 kernel for size 80, and does not
/// support size 160.
#[test]
fn fast_is_near_exact_for_every_head_length() {
    let tokens: Vec<u32> = (0..320).map(|at| at * 7919 % 311).collect();
    let texts = [1, 2, 9].map(|len| &tokens[300 + len..][..len]);
    let mut furthest = 0.0f32;
    for head_dim in [32, 64, 80, 96, 128, 160, 256] {
        for window in [None, Some(24)] {
            let [exact, fast] = [(DeviceChoice::Cpu, Arithmetic::Exact), (device(), Arithmetic::Tiles)].map(|by| {
                let model = one_layer(by, [4, 2, head_dim], window);
                behind_prefix(&*model, &tokens[..300], &texts)
            });
            let largest = largest_difference(fast.iter().flatten().flatten(), exact.iter().flatten().flatten());
            let most = exact.iter().flatten().flatten().fold(0.0f32, |most, logit| most.max(logit.abs()));
            println!("heads of {head_dim}, window {window:?}: largest difference {largest:e} of {most}");
            furthest = furthest.max(largest / most);
        }
    }
    // Without flash attention 0.068: these weights amplify bf16 rounding.
    assert!(furthest < 0.1, "differs by {furthest} of the largest logit");
}

#[test]
fn greedy_texts_are_the_likeliest_when_they_are_read_in_one_pass() {
    for name in models("tiny-gguf/model.gguf") {
        let mut written = Vec::new();
        let prompt = vec![11, 12, 13];
        let request = GenerateRequest::greedy("0", Prompt::Tokens(prompt.clone()), 300);
        let take = &mut |_: usize, result: probity_lm::GenerateResult| {
            written = result.token_ids;
            Ok(())
        };
        on_device(&name, Precision::Exact).generate(&mut std::iter::once(request), take).expect("generates");
        let tokens = [prompt, written].concat();
        let checkpoint = Checkpoint::open(&locate(&name).expect("is there")).expect("opens");
        let model = checkpoint.load(Arithmetic::Exact, device()).expect("loads");
        let logits = in_pieces(&*model, &tokens, &[tokens.len()]);
        // Equal up to rounding: either of two such tokens may be generated.
        let other = |(row, token): &(&Vec<f32>, &u32)| row[top(row) as usize] - row[**token as usize] > TOLERANCE;
        let others = logits[2..].iter().zip(&tokens[3..]).filter(other).count();
        println!("{name}: {} tokens, of {others} another was likelier", tokens.len() - 3);
        assert!(tokens.len() > 60 && others == 0, "{name}: {others} of {}", tokens.len());
    }
}

#[test]
fn a_device_still_computes_after_a_token_outside_the_vocabulary() {
    let pair = Pair::changed("llama", |_| ());
    let tokens = golden("llama").tokens;
    for wrong in [320, 1_000_000, u32::MAX] {
        let segment = PackedSegment { past: Vec::new(), tokens: vec![1, wrong], wanted: vec![1] };
        pair.candle.forward(&[segment]).expect_err("no such token");
    }
    let [got, expected] = [&pair.candle, &pair.kernels].map(|model| in_pieces(&**model, &tokens, &[tokens.len()]));
    assert_close("llama, after errors", &got, &expected);
}

/// Seeded random weights with these shapes.
struct Seeded(BTreeMap<String, Vec<usize>>);

impl WeightSource for Seeded {
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
        let shape = self.0[name].clone();
        let mut random = ChaCha8Rng::seed_from_u64(name.bytes().map(u64::from).sum());
        let mut number = |_| if shape.len() == 1 { 1.0 } else { random.random_range(-0.5f32..0.5) };
        let bytes: Vec<u8> = (0..shape.iter().product()).map(&mut number).flat_map(f32::to_le_bytes).collect();
        let range = 0..bytes.len();
        let bytes = TensorBytes::slice(Arc::new(bytes), range).expect("the whole");
        Ok(RawTensor { shape, weight_type: WeightType::F32, bytes })
    }

    fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn path(&self) -> PathBuf {
        "seeded".into()
    }
}

/// A one-layer Llama with seeded weights. Head parameters: query heads, key-value heads, head size.
fn one_layer(
    (device, arithmetic): (DeviceChoice, Arithmetic),
    [heads, kv_heads, head_dim]: [usize; 3],
    window: Option<usize>,
) -> Box<dyn PackedDecoder> {
    let config = std::fs::read(folder("llama").join("config.json")).expect("goldens are part of the repository");
    let mut config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    for (name, value) in [
        ("num_hidden_layers", 1),
        ("hidden_size", 128),
        ("intermediate_size", 64),
        ("num_attention_heads", heads),
        ("num_key_value_heads", kv_heads),
        ("head_dim", head_dim),
        ("max_position_embeddings", 1 << 20),
    ] {
        config[name] = value.into();
    }
    let mut shapes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (name, shape) in [("embed_tokens", vec![320, 128]), ("norm", vec![128])] {
        shapes.insert(format!("model.{name}.weight"), shape);
    }
    shapes.insert("lm_head.weight".to_owned(), vec![320, 128]);
    for (name, shape) in [
        ("self_attn.q_proj", vec![heads * head_dim, 128]),
        ("self_attn.k_proj", vec![kv_heads * head_dim, 128]),
        ("self_attn.v_proj", vec![kv_heads * head_dim, 128]),
        ("self_attn.o_proj", vec![128, heads * head_dim]),
        ("mlp.gate_proj", vec![64, 128]),
        ("mlp.up_proj", vec![64, 128]),
        ("mlp.down_proj", vec![128, 64]),
        ("input_layernorm", vec![128]),
        ("post_attention_layernorm", vec![128]),
    ] {
        shapes.insert(format!("model.layers.0.{name}.weight"), shape);
    }
    let mut config = decoder_config(&config);
    for layer in &mut config.layers {
        layer.window = window;
    }
    load_decoder_on(device, &Seeded(shapes), config, arithmetic).expect("complete")
}

#[test]
fn heads_times_rows_times_positions_may_be_beyond_32_bits() {
    // Exceeds 32 bits from 65,536 positions: 64 heads, 512 rows.
    let positions: usize = std::env::var("PROBITY_TEST_POSITIONS").map_or(700, |n| n.parse().expect("a number"));
    let tokens: Vec<u32> = (0..positions).map(|at| (at * 7919 % 311) as u32).collect();
    let last = |device: DeviceChoice, piece: usize| {
        let model = one_layer((device, Arithmetic::Exact), [64, 64, 2], None);
        let (mut past, mut start) = (Vec::new(), 0);
        loop {
            let end = positions.min(start + piece);
            let wanted = if end == positions { (end - start).saturating_sub(512)..end - start } else { 0..0 };
            let segment =
                PackedSegment { past: past.clone(), tokens: tokens[start..end].to_vec(), wanted: wanted.collect() };
            let output = model.forward(&[segment]).expect("runs");
            if end == positions {
                let logits = model.logits(&output.hidden).expect("runs").to_vec2::<f32>().expect("a matrix");
                return logits[logits.len().saturating_sub(positions % 512)..].to_vec();
            }
            past.extend(output.spans);
            start = end;
        }
    };
    let expected = last(DeviceChoice::Cpu, 4096);
    assert_close(&format!("{positions} positions in pieces"), &last(device(), 512), &expected);
    assert_close(&format!("{positions} positions at once"), &last(device(), positions), &expected);
}

#[test]
fn repeats_in_other_orders_differ_by_rounding_alone() {
    let labels = LabelSet::from_words(["A", "B"]).expect("labels");
    let request = |id: usize| ScoreRequest {
        id: id.to_string(),
        prompt: Prompt::Text(format!("{}Text {id}: A or B?", "The ferry stopped. ".repeat(id % 5))),
        ask: Ask::Labels(labels.clone()),
    };
    let requests: Vec<ScoreRequest> = (0..24).map(request).collect();
    for (name, precision) in models("llama")
        .iter()
        .flat_map(|name| [Precision::Exact, Precision::Fast].map(|precision| (name.clone(), precision)))
    {
        let model = on_device(&name, precision);
        let mut seen = vec![Vec::new(); requests.len()];
        for seed in 0..20 {
            let mut shuffled = requests.clone();
            shuffled.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
            for (request, result) in shuffled.iter().zip(model.score_all(&shuffled).expect("scores")) {
                let logprob = |result: &ScoreResult| result.labels().expect("labels").labels[0].logprob;
                seen[request.id.parse::<usize>().expect("a number")].push(logprob(&result));
            }
        }
        let spread = |values: &Vec<f64>| {
            let [least, most] = [f64::min, f64::max].map(|of| values.iter().copied().reduce(of).expect("some"));
            most - least
        };
        let widest = seen.iter().map(spread).fold(0.0, f64::max);
        println!("{name}, {}: 20 repeats, largest difference {widest:e}", precision.as_str());
        let most = if precision == Precision::Exact { f64::from(TOLERANCE) } else { 0.2 };
        assert!(seen.iter().all(|values| values.len() == 20) && widest <= most, "{name}: {widest}");
    }
}
