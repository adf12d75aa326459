//! The figures of metrics over all candidates and per system.

use std::collections::BTreeMap;

use probity_lm::text::counted;
use probity_metrics::{ChosenMetric, MetricScores, Score};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::figures::decimals;
use crate::{Cell, Conclusion, Headline, MethodReport, Outcomes, Signature, Table, cells};

/// One score column of a metric.
#[derive(Debug, Serialize)]
pub(super) struct MetricEntry {
    metric: String,
    /// Whether it is a component, such as recall, instead of the main score.
    #[serde(skip)]
    is_part: bool,
    /// The signature of the corpus score.
    signature: String,
    /// The signature of candidate scores, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    item_signature: Option<String>,
    /// The score of all candidates together; null if undefined.
    corpus: Option<f64>,
    /// The mean of the candidate scores.
    mean: Option<f64>,
    undefined: usize,
    /// The number of candidates without a score, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    why: BTreeMap<&'static str, usize>,
    /// A caveat of the corpus score.
    #[serde(skip_serializing_if = "Option::is_none")]
    corpus_note: Option<&'static str>,
    /// The number of candidates whose score has a caveat, by caveat.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    notes: BTreeMap<&'static str, usize>,
    /// Figures by candidate id, for ids shared by several samples.
    #[serde(skip_serializing_if = "Map::is_empty")]
    systems: Map<String, Value>,
    #[serde(skip)]
    scored: usize,
}

impl MetricEntry {
    /// One entry for each score column.
    pub(super) fn all(
        choice: &ChosenMetric,
        signatures: &[String; 2],
        scores: &MetricScores,
        systems: &[(&str, Vec<Score>)],
    ) -> Vec<Self> {
        let of = |(part, label)| Self::new(label, signatures, part, scores, systems);
        choice.components().into_iter().enumerate().map(of).collect()
    }

    /// The entry for score column `part`.
    fn new(
        metric: String,
        signatures: &[String; 2],
        part: usize,
        scores: &MetricScores,
        systems: &[(&str, Vec<Score>)],
    ) -> Self {
        let [signature, item_signature] = signatures;
        let column = || scores.items.iter().map(|row| row[part]);
        let (mut why, mut notes) = (BTreeMap::new(), BTreeMap::new());
        for (score, reason) in column().filter_map(|score| Some((score, score.why()?))) {
            let counts = if score.value().is_some() { &mut notes } else { &mut why };
            *counts.entry(reason).or_default() += 1;
        }
        let undefined = why.values().sum();
        Self {
            metric,
            is_part: part > 0,
            signature: signature.clone(),
            item_signature: (item_signature != signature).then(|| item_signature.clone()),
            corpus: scores.corpus[part].value(),
            mean: Score::mean(column()).value(),
            undefined,
            why,
            corpus_note: scores.corpus[part].why().filter(|_| scores.corpus[part].value().is_some()),
            notes,
            systems: systems.iter().map(|(name, scores)| ((*name).to_owned(), json!(scores[part].value()))).collect(),
            scored: scores.items.len() - undefined,
        }
    }
}

impl MetricEntry {
    /// Each distinct note with the figures it applies to.
    fn note_lines(&self) -> Vec<String> {
        let is_alone = |note: &&str| !self.notes.contains_key(*note);
        let of_corpus = self.corpus_note.filter(is_alone).map(|note| format!("{}, all: {note}", self.metric));
        let of_items = self.notes.iter().map(|(note, count)| {
            let all = if self.corpus_note == Some(*note) { "all and " } else { "" };
            format!("{}, {all}{}: {note}", self.metric, counted(*count, "candidate"))
        });
        of_corpus.into_iter().chain(of_items).collect()
    }
}

/// The report over all candidates.
pub(super) fn report(
    samples: usize,
    candidates: usize,
    metrics: &[MetricEntry],
    verdict: Vec<Conclusion>,
    signature: Signature,
) -> MethodReport {
    let mut outcomes = Outcomes::default();
    outcomes.add_several("scored", metrics.iter().map(|entry| entry.scored).sum());
    outcomes.add_several("undefined", metrics.iter().map(|entry| entry.undefined).sum());
    let whole = metrics.iter().filter(|entry| !entry.is_part);
    MethodReport {
        values: json!({"samples": samples, "candidates": candidates, "metrics": metrics}),
        tables: tables(samples, candidates, metrics),
        outcomes,
        headline: whole.map(|entry| Headline::new(entry.metric.clone(), None, entry.corpus)).collect(),
        verdict,
        ..MethodReport::new(signature)
    }
}

/// More candidate ids than this get a separate table.
const MOST_COLUMNS: usize = 6;

fn tables(samples: usize, candidates: usize, metrics: &[MetricEntry]) -> Vec<Table> {
    let names: Vec<&String> = metrics.first().map(|entry| entry.systems.keys().collect()).unwrap_or_default();
    let is_wide = names.len() > MOST_COLUMNS;
    let beside: &[&String] = if is_wide { &[] } else { &names };
    let title = format!("{} of {}", counted(candidates, "candidate"), counted(samples, "sample"));
    let columns = ["metric", "all", "mean", "undefined"].into_iter().chain(beside.iter().map(|name| name.as_str()));
    let mut all = Table::new(&title, columns);
    for entry in metrics {
        let systems = beside.iter().map(|name| number(entry.systems[*name].as_f64()));
        let cells = cells![&entry.metric, number(entry.corpus), number(entry.mean), entry.undefined];
        all.push(cells.into_iter().chain(systems));
    }
    for entry in metrics.iter().filter(|entry| !entry.is_part) {
        all.notes.push(format!("{}|{}", entry.metric, entry.signature));
    }
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (why, count) in metrics.iter().flat_map(|entry| &entry.why) {
        *reasons.entry(*why).or_default() += count;
    }
    for entry in metrics.iter().filter(|entry| !entry.is_part) {
        all.notes.extend(entry.note_lines());
    }
    all.notes.extend(reasons.iter().map(|(why, count)| format!("undefined {}: {why}", counted(count, "time"))));
    if !is_wide {
        return vec![all];
    }
    let columns = std::iter::once("candidate").chain(metrics.iter().map(|entry| entry.metric.as_str()));
    let mut systems = Table::new("Metrics by candidate id", columns);
    for name in names {
        let numbers = metrics.iter().map(|entry| number(entry.systems[name].as_f64()));
        systems.push(cells![name].into_iter().chain(numbers));
    }
    vec![all, systems]
}

fn number(value: Option<f64>) -> Cell {
    decimals(value, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_whose_options_hold_a_point_has_its_headline_and_signature() {
        let scores = MetricScores { items: vec![vec![Score::Value(0.5); 2]], corpus: vec![Score::Value(0.5); 2] };
        let signatures = ["v:1".to_owned(), "v:1".to_owned()];
        let label = "meteor:alpha=0.85";
        let entry = |part: usize, label: &str| MetricEntry::new(label.to_owned(), &signatures, part, &scores, &[]);
        let entries = [entry(0, label), entry(1, &format!("{label}.recall"))];
        let report = report(1, 1, &entries, Vec::new(), Signature::without_model("metrics"));
        assert_eq!(report.headline.len(), 1);
        assert_eq!(report.tables[0].notes, [format!("{label}|v:1")]);
    }
}
