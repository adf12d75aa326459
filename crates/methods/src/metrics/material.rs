//! The items of metrics: the candidates of all samples, in order.

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_metrics::{ChosenMetric, Direction, MetricItem, MetricScores, Need, Score};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{MethodError, RoleModel, row};

/// Samples as a list of candidates.
pub(super) struct MetricMaterial<'s> {
    samples: &'s [Sample],
    /// The positions of each candidate's sample and of the candidate in it.
    places: Vec<(usize, usize)>,
    /// The same candidates as metric items.
    pub(super) items: Vec<MetricItem<'s>>,
}

/// The models for metrics: shared options of all methods with metrics.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MetricModelOptions {
    /// Encoder for metrics, such as bert-score
    ///
    /// Used by bert-score, mover-score, blanc and bets.
    #[schemars(extend("form" = "NAME|PATH"))]
    pub encoder: Option<String>,
    /// Sequence-to-sequence model of bart-score
    #[schemars(extend("form" = "NAME|PATH"))]
    pub seq2seq: Option<String>,
}

impl MetricModelOptions {
    /// The named models.
    pub fn roles(&self) -> Vec<RoleModel> {
        RoleModel::for_metrics(self.encoder.as_deref(), self.seq2seq.as_deref())
    }
}

/// Metrics whose requirements are not met: a model that no option names, or a field that a sample lacks.
pub fn check_needs<'c, 's>(
    choices: impl IntoIterator<Item = &'c ChosenMetric>,
    models: &MetricModelOptions,
    samples: &'s [Sample],
    item: impl Fn(&'s Sample) -> MetricItem<'s>,
) -> Result<(), MethodError> {
    for choice in choices {
        for need in choice.definition().needs() {
            let bare = samples.iter().find(|sample| need.is_missing(&item(sample)));
            let hint = match need {
                Need::Encoder if models.encoder.is_none() => need.hint(),
                Need::LanguageModel if models.seq2seq.is_none() => "name one with --seq2seq",
                Need::Source | Need::References if bare.is_some() => need.hint(),
                _ => continue,
            };
            let of = bare.map(|sample| format!("; {} has none", name(sample))).unwrap_or_default();
            let why = format!("it needs {}{of}", need.what());
            return MethodError::refuse(format!("--metric {}", choice.label()), why, hint);
        }
    }
    Ok(())
}

/// The name of a sample in messages.
fn name(sample: &Sample) -> String {
    format!("sample `{}`", sample.id.escape_debug())
}

/// A candidate with its references; the sample's context is the source. An empty context means no source.
pub fn item<'a>(sample: &'a Sample, candidate: &'a str, references: Vec<&'a str>) -> MetricItem<'a> {
    MetricItem { candidate, references, source: Some(&*sample.context).filter(|context| !context.trim().is_empty()) }
}

/// The references in the data.
pub fn references(sample: &Sample) -> Vec<&str> {
    sample.references.iter().map(|text| &**text).collect()
}

impl<'s> MetricMaterial<'s> {
    pub(super) fn new(samples: &'s [Sample]) -> Self {
        let of =
            |(index, sample): (usize, &Sample)| (0..sample.candidates.len()).map(move |candidate| (index, candidate));
        let candidates = samples
            .iter()
            .flat_map(|sample| sample.candidates.iter().map(move |c| item(sample, &c.text, references(sample))));
        Self { samples, places: samples.iter().enumerate().flat_map(of).collect(), items: candidates.collect() }
    }

    /// One score column by sample and candidate, oriented so that higher is better.
    pub(super) fn upwards(&self, direction: Direction, scores: &MetricScores, part: usize) -> Vec<Vec<Option<f64>>> {
        let mut by_sample: Vec<Vec<Option<f64>>> = vec![Vec::new(); self.samples.len()];
        for ((sample, _), row) in self.places.iter().zip(&scores.items) {
            by_sample[*sample].push(row[part].value().map(|score| direction.upwards(score)));
        }
        by_sample
    }

    /// Item positions by candidate id, in order of first occurrence. Empty if no two samples share an id, or all
    /// candidates have the same id.
    pub(super) fn systems(&self) -> Vec<(&'s str, Vec<usize>)> {
        let mut order: Vec<(&str, Vec<usize>)> = Vec::new();
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        for (position, (sample, candidate)) in self.places.iter().enumerate() {
            let id = self.samples[*sample].candidates[*candidate].id.as_str();
            let place = *known.entry(id).or_insert_with(|| {
                order.push((id, Vec::new()));
                order.len() - 1
            });
            order[place].1.push(position);
        }
        let shared = order.len() > 1 && order.iter().any(|(_, positions)| positions.len() > 1);
        if shared { order } else { Vec::new() }
    }

    /// The name of an item's sample in messages.
    pub(super) fn sample_name(&self, item: usize) -> String {
        name(&self.samples[self.places[item].0])
    }

    /// The row of an item in `scores.jsonl`; `why` is the reason for a missing score, or a caveat.
    pub(super) fn row(&self, item: usize, metric: &str, score: Score) -> Value {
        let (sample, index) = self.places[item];
        let sample = &self.samples[sample];
        row! {
            "item": sample.id, "candidate": sample.candidates[index].id, "index": index, "metric": metric,
            "score": score.value(), "outcome": if score.value().is_some() { "scored" } else { "undefined" },
            "why"?: score.why(),
        }
    }
}
