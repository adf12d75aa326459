//! Encoder metrics compared with bert-score, moverscore and blanc, whose tokenizer and model were replaced by stand-ins
//! identical to the ones here: this checks everything except a real model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use probity_lm::{MaskedSequence, ScriptedEncoder};
use probity_metrics::{MetricItem, MetricModels, Score, choose};
use serde_json::Value;

const LAYERS: usize = 6;
const WIDTH: u64 = 16;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/embedding")
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(name)).expect("a golden file");
    serde_json::from_str(&text).expect("JSON")
}

/// splitmix64's output for a key, as a 24-bit number from −1/2 to 1/2.
fn uniform(key: u64) -> f32 {
    let mut z = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 40) as f32 / (1 << 24) as f32 - 0.5
}

fn states(ids: &[u32], layer: usize) -> Vec<f32> {
    let layer = layer as u64;
    let state = |(at, id): (usize, &u32)| {
        let (at, id) = (at as u64, u64::from(*id));
        (0..WIDTH).map(move |d| {
            let by_place = uniform(1_000_000_000_000 + layer * 1_000_000_000 + (id * 512 + at) * 64 + d);
            uniform(id * 1000 + layer * 1_000_000 + d) + 0.5 * by_place
        })
    };
    ids.iter().enumerate().flat_map(state).collect()
}

fn predicted(sequence: &MaskedSequence, last: u32) -> Vec<u32> {
    let sum: u32 = sequence.ids.iter().sum();
    let at = |&at: &usize| (sequence.ids[at - 1] + 1 + (sum * 31 + at as u32) % 3 / 2).min(last);
    sequence.positions.iter().map(at).collect()
}

fn models(context_length: usize) -> MetricModels {
    let words = (0..40)
        .map(|i| format!("w{i}"))
        .chain((0..10).map(|i| format!("##s{i}")))
        .chain([".", ",", "("].map(str::to_owned));
    let words: Vec<String> = words.collect();
    let last = words.len() as u32 + 3;
    let vocabulary: Vec<&str> = words.iter().map(String::as_str).collect();
    let encoder = ScriptedEncoder::new(&vocabulary, LAYERS, WIDTH as usize, states);
    let encoder = encoder.with_context_length(context_length).with_masked(move |sequence| predicted(sequence, last));
    MetricModels { encoder: Some(Arc::new(encoder)), ..MetricModels::default() }
}

/// The rows of a metric over all items.
fn scored(metric: &str, items: &Value) -> Vec<Vec<Score>> {
    let items = items["items"].as_array().expect("items");
    let texts = |item: &'static Value| MetricItem {
        candidate: item["candidate"].as_str().expect("a text"),
        references: item["references"]
            .as_array()
            .expect("texts")
            .iter()
            .map(|text| text.as_str().expect("a text"))
            .collect(),
        source: item["source"].as_str(),
    };
    // Leaked, so that the texts outlive the test.
    let items: &'static [Value] = items.clone().leak();
    let items: Vec<MetricItem<'_>> = items.iter().map(texts).collect();
    // The stand-ins for bert-score and moverscore see 64 tokens, blanc truncates at 512.
    let models = models(if metric.starts_with("blanc") { 512 } else { 64 });
    let metric = choose(metric).expect("well formed")[0].build(&models).expect("suits");
    metric.score(&items, &|_| Ok(())).expect("scripted").items
}

/// Each golden row is a prefix of our row; if it is missing, ours is undefined.
fn compare(kind: &str, metric: &str, golden: &Value, expected: &Value, items: &Value) {
    let tolerance = golden["max_abs_difference"][kind].as_f64().expect("a tolerance");
    let rows = scored(metric, items);
    let expected = expected.as_array().expect("rows");
    assert_eq!(rows.len(), expected.len());
    for (index, (row, expected)) in rows.iter().zip(expected).enumerate() {
        let numbers: Vec<f64> = match expected {
            Value::Null => {
                assert!(
                    row[0].value().is_none(),
                    "{metric}, item {index}: {row:?} where the tool has nothing to compare"
                );
                continue;
            }
            Value::Array(numbers) => numbers.iter().map(|number| number.as_f64().expect("a number")).collect(),
            number => vec![number.as_f64().expect("a number")],
        };
        for (score, expected) in row.iter().zip(numbers) {
            let near = score.value().is_some_and(|value| (value - expected).abs() <= tolerance);
            assert!(near, "{metric}, item {index}: {row:?} is not {expected}");
        }
    }
}

#[test]
fn bert_score_is_the_package_s() {
    let (golden, items) = (read("algorithm.json"), read("items.json"));
    for (name, expected) in golden["bert_score"].as_object().expect("metrics") {
        let metric = match name.strip_suffix("baseline") {
            Some(rest) => format!("{rest}baseline={}", folder().join("baseline.tsv").display()),
            None => name.clone(),
        };
        compare("bert_score", &metric, &golden, expected, &items);
    }
}

#[test]
fn mover_score_is_the_package_s_with_an_exact_solver_and_near_it_with_its_own() {
    let (golden, items) = (read("algorithm.json"), read("items.json"));
    for kind in ["mover_score_exact", "mover_score"] {
        for (metric, expected) in golden[kind].as_object().expect("metrics") {
            compare(kind, metric, &golden, expected, &items);
        }
    }
}

#[test]
fn blanc_is_the_package_s() {
    let (golden, items) = (read("algorithm.json"), read("items.json"));
    for (metric, expected) in golden["blanc"].as_object().expect("metrics") {
        compare("blanc", metric, &golden, expected, &items);
    }
}
