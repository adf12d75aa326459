//! Encoders compared with transformers (`scripts/goldens/make_encoder_models.py`), and with other batches.

use crate::checkpoints::{Checkpoint, Golden, goldens, largest_difference};
use crate::roster::{Kind, Suite, golden_names};
use candle_core::Tensor;
use probity_models::{Arithmetic, Compute, Isa, ModelConfig, PackedEncoder, WeightSource as _, load_encoder};
use serde_json::Value;

const TOLERANCE: f32 = 2e-4;

fn models() -> impl Iterator<Item = &'static str> {
    golden_names(Kind::Encoder, Suite::Logits)
}

fn load(name: &str, compute: impl Into<Compute>) -> Box<dyn PackedEncoder> {
    let checkpoint = Checkpoint::golden(name);
    load_checkpoint(&checkpoint, compute)
}

fn load_checkpoint(checkpoint: &Checkpoint, compute: impl Into<Compute>) -> Box<dyn PackedEncoder> {
    let ModelConfig::Encoder(config) = checkpoint.read_config() else { panic!("an encoder") };
    load_encoder(checkpoint, &config, compute).expect("complete checkpoint")
}

fn layers(name: &str) -> usize {
    Checkpoint::golden(name).read_config().layers().expect("layers that are shown")
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().expect("contiguous").to_vec1().expect("floats")
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn hidden_states_and_masked_logits_equal_transformers() {
    for name in models() {
        let (model, golden) = (load(name, Arithmetic::Exact), Golden::open(name));
        for k in 0..2 {
            let texts = [golden.ids(&format!("tokens{k}"))];
            let layers: Vec<usize> = (0..=layers(name)).collect();
            let states = model.encode(&texts, &layers).expect("runs").iter().flat_map(floats).collect::<Vec<_>>();
            let hidden = largest_difference(&states, &golden.floats(&format!("hidden{k}")));
            let all = model.masked(&texts, &[(0..texts[0].len()).collect()]).expect("has a head");
            let logits =
                largest_difference(&floats(&model.logits(&all).expect("runs")), &golden.floats(&format!("logits{k}")));
            println!("{name} {k}: {} tokens, hidden states differ by {hidden:e}, logits by {logits:e}", texts[0].len());
            assert!(hidden <= TOLERANCE && logits <= TOLERANCE, "{name} {k}: {hidden}, {logits}");
        }
    }
}

#[test]
fn a_text_has_the_same_bits_alone_and_among_others_and_its_rows_alone_and_among_all() {
    for (name, arithmetic) in models().flat_map(|name| [(name, Arithmetic::Exact), (name, Arithmetic::Tiles)]) {
        let (model, golden) = (load(name, arithmetic), Golden::open(name));
        let (long, short) = (golden.ids("tokens0"), golden.ids("tokens1"));
        // More rows than relative position products are computed for at a time.
        let mut texts = vec![short.clone(), long.clone(), short[..1].to_vec()];
        texts.extend([&long[..169], &long, &short[..5], &long[20..]].map(<[u32]>::to_vec));
        let layers = [layers(name), 1];
        let together = model.encode(&texts, &layers).expect("runs");
        let alone: Vec<Vec<Tensor>> =
            texts.iter().map(|text| model.encode(std::slice::from_ref(text), &layers).expect("runs")).collect();
        for layer in 0..2 {
            let expected: Vec<f32> = alone.iter().flat_map(|states| floats(&states[layer])).collect();
            assert_eq!(bits(&floats(&together[layer])), bits(&expected), "{name} in {arithmetic:?}");
        }
        let all = floats(&model.masked(std::slice::from_ref(&long), &[(0..long.len()).collect()]).expect("has a head"));
        let rows = vec![3, 40, 169];
        let wanted = [vec![], rows.clone(), vec![0], vec![], rows.clone(), vec![], vec![149]];
        let some = floats(&model.masked(&texts, &wanted).expect("has a head"));
        let width = all.len() / long.len();
        let expected: Vec<f32> = rows.into_iter().flat_map(|row| all[row * width..][..width].to_vec()).collect();
        for first in [0, 4] {
            let some = &some[first * width..][..3 * width];
            assert_eq!(bits(some), bits(&expected), "{name} in {arithmetic:?}: masked rows");
        }
        assert_eq!(some.len(), 8 * width);
    }
}

#[test]
fn final_states_are_those_behind_the_last_norm_where_there_is_one() {
    for (name, normed) in [("bert", false), ("deberta-v2", false), ("modernbert", true), ("modernbert-biases", true)] {
        let (model, texts) = (load(name, Arithmetic::Exact), [Golden::open(name).ids("tokens1")]);
        let last = floats(&model.last_states(&texts).expect("runs"));
        let behind = floats(&model.encode(&texts, &[layers(name)]).expect("runs")[0]);
        assert_eq!(bits(&last) != bits(&behind), normed, "{name}");
        if let Some(norm) = normed.then(|| last_norm(name)) {
            let width = norm[0].len();
            for (row, x) in last.chunks_exact(width).zip(behind.chunks_exact(width)) {
                let mean = x.iter().sum::<f32>() / width as f32;
                let scale = (x.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / width as f32 + 1e-5).sqrt();
                for (i, y) in row.iter().enumerate() {
                    let expected = (x[i] - mean) / scale * norm[0][i] + norm[1][i];
                    assert!((y - expected).abs() < 1e-5, "{name}: {y} for {expected}");
                }
            }
        }
    }
}

/// Weight and bias of `ModernBERT`'s final norm.
fn last_norm(name: &str) -> [Vec<f32>; 2] {
    let checkpoint = Checkpoint::golden(name);
    let read = |part: &str| {
        let name = format!("model.final_norm.{part}");
        if !checkpoint.contains(&name) {
            return vec![0.0; 32];
        }
        let raw = checkpoint.tensor(&name).expect("a tensor");
        let mut values = vec![0.0; 32];
        probity_kernels::dequantise(raw.weight_type, &raw.bytes, 0, &mut values);
        values
    };
    ["weight", "bias"].map(read)
}

#[test]
fn the_likeliest_token_at_a_masked_position_is_the_one_of_the_logits() {
    for name in models() {
        let (model, golden) = (load(name, Arithmetic::Exact), Golden::open(name));
        let (tokens, logits) = (golden.ids("tokens0"), golden.floats("logits0"));
        let wanted = [0, 17, 18, 100];
        let hidden = model.masked(&[tokens], &[wanted.to_vec()]).expect("has a head");
        for (row, short) in wanted.into_iter().zip(model.head(&hidden, &vec![vec![7]; 4]).expect("runs")) {
            let logits = &logits[row * 96..][..96];
            let largest = (0..96).fold(0, |best, id| if logits[id] > logits[best] { id } else { best });
            assert_eq!(short.greedy as usize, largest, "{name}, position {row}");
            assert!((short.logits[0] - logits[7]).abs() <= TOLERANCE, "{name}, position {row}");
        }
    }
}

#[test]
fn bits_depend_neither_on_threads_nor_on_the_instruction_set() {
    for (name, arithmetic) in models().flat_map(|name| [(name, Arithmetic::Exact), (name, Arithmetic::Tiles)]) {
        let texts = [Golden::open(name).ids("tokens0")];
        let run = |isa, threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            pool.install(|| {
                bits(&floats(
                    &load(name, Compute { arithmetic, isa }).encode(&texts, &[layers(name)]).expect("runs")[0],
                ))
            })
        };
        let plain = run(Isa::Plain, 1);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            assert_eq!(run(isa, 2), plain, "{name} in {arithmetic:?} on {}", isa.name());
        }
    }
}

#[test]
fn names_without_their_prefix_and_other_names_of_norms_and_heads_are_read() {
    let renames: [fn(&str) -> String; 2] = [
        |name| name.strip_prefix("bert.").unwrap_or(name).to_owned(),
        |name| {
            name.replace("gamma", "weight")
                .replace("beta", "bias")
                .replace("predictions.bias", "predictions.decoder.bias")
        },
    ];
    let texts = [Golden::open("bert").ids("tokens1")];
    let run = |checkpoint: Checkpoint| {
        let model = load_checkpoint(&checkpoint, Arithmetic::Exact);
        bits(&floats(&model.masked(&texts, &[vec![0, 1]]).expect("has a head")))
    };
    let expected = run(Checkpoint::golden("bert"));
    for rename in renames {
        assert_eq!(run(Checkpoint::golden("bert").renamed(rename)), expected);
    }
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let model = load("roberta", Arithmetic::Exact);
    let error = |result: candle_core::Result<Vec<Tensor>>| result.expect_err("refused").to_string();
    assert!(error(model.encode(&[vec![]], &[0])).contains("without tokens"));
    assert!(error(model.encode(&[vec![5]], &[3])).contains("layer 3"));
    assert!(error(model.encode(&[vec![5; 199]], &[0])).contains("beyond the 198"));
    assert!(
        model.encode(&[vec![5; 198]], &[0]).is_ok(),
        "as many tokens as there are positions behind that of padding"
    );
    assert!(model.masked(&[vec![5]], &[vec![1]]).expect_err("outside the text").to_string().contains("offsets"));

    assert_eq!(model.encode(&[], &[0]).expect("no text is no error")[0].dims(), [0, 32]);
    assert_eq!(model.masked(&[vec![5]], &[vec![]]).expect("nothing wanted is no error").dims(), [0, 32]);

    // DeBERTa's head is recognised only by the names in the configuration; ModernBERT's dense product is also used by
    // other heads.
    let headless = |name: &str, rename| {
        let model = load_checkpoint(&Checkpoint::golden(name).renamed(rename), Arithmetic::Exact);
        assert!(!model.has_masked_head(), "{name}");
        model
    };
    headless("deberta-v2", |name| name.replace("cls.predictions.transform", "lm_predictions.lm_head"));
    headless("modernbert", |name| name.replace("decoder", "classifier"));
    let model = headless("bert", |name| name.replace("cls.predictions", "elsewhere"));
    assert!(model.masked(&[vec![5]], &[vec![0]]).expect_err("no head").to_string().contains("no masked-language head"));
}

#[test]
fn minilm_embeds_as_transformers_does() {
    let Some(folder) =
        std::env::var_os("PROBITY_MODELS").map(|models| std::path::Path::new(&models).join("all-minilm-l6-v2"))
    else {
        println!("skipped: PROBITY_MODELS names no folder");
        return;
    };
    if !folder.exists() {
        println!("skipped: no {}", folder.display());
        return;
    }
    let golden: Value =
        serde_json::from_slice(&std::fs::read(goldens().join("minilm.json")).expect("golden")).expect("JSON");
    let sentences = golden["sentences"].as_array().expect("sentences");
    let ids = |s: &Value| {
        s["ids"].as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect::<Vec<_>>()
    };
    let texts: Vec<Vec<u32>> = sentences.iter().map(ids).collect();
    let checkpoint = Checkpoint::open(&folder);
    let model = load_checkpoint(&checkpoint, Arithmetic::Exact);
    let states = model.encode(&texts, &[6]).expect("runs").remove(0).to_vec2::<f32>().expect("a matrix");
    let (mut start, mut largest) = (0, 0.0f64);
    for (sentence, text) in sentences.iter().zip(&texts) {
        let rows = &states[start..start + text.len()];
        start += text.len();
        let mean = |i: usize| rows.iter().map(|row| f64::from(row[i])).sum::<f64>() / rows.len() as f64;
        let mean: Vec<f64> = (0..rows[0].len()).map(mean).collect();
        let norm = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
        let expected = sentence["embedding"].as_array().expect("numbers").iter().map(|x| x.as_f64().expect("a number"));
        let gaps = expected.zip(&mean).map(|(expected, x)| (x / norm - expected).abs());
        let of_norm = (norm - sentence["norm"].as_f64().expect("a number")).abs();
        largest = gaps.fold(largest.max(of_norm), f64::max);
    }
    println!("largest difference {largest:e}");
    assert!(largest <= golden["max_abs_difference"].as_f64().expect("a tolerance"), "{largest}");
}
