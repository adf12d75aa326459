//! SARI (Xu et al. 2016): compares what a simplification adds, keeps and deletes of its source with the references.
//! Three implementations with different scores are in use: [`SariEasse`], [`SariXu`] and [`SariHf`].

mod easse;
mod xu;

pub(crate) use easse::SariEasse;
pub(crate) use xu::{SariHf, SariXu};

use crate::metric::{MetricItem, Score};
use crate::ngrams::Interner;
use crate::tally::NgramTally;

/// Maximum n-gram order, in all implementations.
const ORDER: usize = 4;

/// Further numbers of a row after the mean of the three.
const PARTS: &[&str] = &["add", "keep", "delete"];

/// Reason if the texts have no words.
const EMPTY: Score = Score::Undefined("neither the candidate nor its source nor a reference has a word");

/// Occurrences of an n-gram; counts of source and candidate are multiplied by the number of references, counts of
/// references are summed.
#[derive(Debug, Clone, Copy)]
struct SariCounts {
    source: u64,
    candidate: u64,
    references: u64,
}

/// Source, candidate and references, prepared for tokenization.
fn texts(item: &MetricItem<'_>, ready: impl Fn(&str) -> String) -> Vec<String> {
    [item.source.unwrap_or_default(), item.candidate].iter().chain(&item.references).map(|text| ready(text)).collect()
}

/// Each n-gram of an item's texts: its length minus one, and its counts.
fn counts<'t, W: IntoIterator<Item = &'t str>>(
    texts: &'t [String],
    cut: impl Fn(&'t str) -> W,
) -> Vec<(usize, SariCounts)> {
    let mut interner = Interner::default();
    let texts: Vec<Vec<u32>> = texts.iter().map(|text| interner.ids(cut(text))).collect();
    let tally = NgramTally::new(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>(), ORDER);
    let references = texts.len() as u64 - 2;
    let count = |row: &[u32]| SariCounts {
        source: u64::from(row[0]) * references,
        candidate: u64::from(row[1]) * references,
        references: row[2..].iter().map(|count| u64::from(*count)).sum(),
    };
    tally.rows().map(|(order, row)| (order - 1, count(row))).collect()
}

/// The mean of add, keep and delete, followed by these, from 0 to 100.
fn row(operations: [f64; 3]) -> Vec<Score> {
    let [add, keep, delete] = operations.map(|score| 100.0 * score);
    [(add + keep + delete) / 3.0, add, keep, delete].map(Score::Value).to_vec()
}

/// The harmonic mean; 0 if both are 0.
fn f1(precision: f64, recall: f64) -> f64 {
    if precision + recall == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }
}
