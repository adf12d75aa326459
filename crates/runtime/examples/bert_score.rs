//! Measures `BERTScore` for `scripts/bench/embedding_metrics.py`. Prints one JSON object per line.
//!
//! ```text
//! cargo run --release -p probity-runtime --example bert_score -- MODEL PAIRS THREADS PRECISION REPETITIONS
//! ```
//!
//! PAIRS is a JSON file of pairs of a candidate and a reference. A first pair warms up and is not reported.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use probity_lm::{Precision, TextEncoder as _};
use probity_metrics::{MetricItem, MetricModels, choose};
use probity_runtime::hub::locate;
use probity_runtime::{LoadOptions, TextModel};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, pairs, threads, precision, repetitions] = arguments.as_slice() else {
        return Err("MODEL PAIRS THREADS PRECISION REPETITIONS are needed".into());
    };
    let precision = match precision.as_str() {
        "exact" => Precision::Exact,
        "tiles" => Precision::Tiles,
        other => return Err(format!("precision `{other}` is neither exact nor tiles").into()),
    };
    let threads = threads.parse()?;
    // States are compared on rayon's own threads.
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    let encoder =
        TextModel::load(&locate(model)?, LoadOptions { threads: Some(threads), precision, ..LoadOptions::default() })?;
    println!("{}", json!({"model": encoder.config().description}));
    let pairs: Vec<[String; 2]> = serde_json::from_slice(&std::fs::read(pairs)?)?;
    let items: Vec<MetricItem<'_>> = pairs
        .iter()
        .map(|[candidate, reference]| MetricItem { candidate, references: vec![reference], source: None })
        .collect();
    let models = MetricModels { encoder: Some(Arc::new(encoder)), ..MetricModels::default() };
    let metric = choose("bert-score")?[0].build(&models)?;
    metric.score(&items[..1.min(items.len())], &|_| Ok(()))?;
    for _ in 0..repetitions.parse()? {
        let start = Instant::now();
        let scores = metric.score(&items, &|_| Ok(()))?;
        let seconds = start.elapsed().as_secs_f64();
        let answers: Vec<Option<f64>> = scores.items.iter().map(|row| row[0].value()).collect();
        println!("{}", json!({"seconds": seconds, "answers": answers}));
    }
    Ok(())
}
