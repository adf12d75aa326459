//! What metrics are held over: the candidates of samples, in their order.

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_metrics::{ChosenMetric, Direction, MetricItem, MetricScores, Need, Score};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{MethodError, RoleModel};

/// Samples candidate by candidate.
pub(super) struct MetricMaterial<'s> {
    samples: &'s [Sample],
    /// Where each candidate stands: the positions of its sample and of itself.
    places: Vec<(usize, usize)>,
    /// The same, as metrics take them.
    pub(super) items: Vec<MetricItem<'s>>,
}

/// A row of `scores.jsonl`.
#[derive(Serialize)]
pub(super) struct MetricRow<'a> {
    item: &'a str,
    candidate: &'a str,
    /// The candidate's position in its sample.
    index: usize,
    metric: &'a str,
    score: Option<f64>,
    outcome: &'static str,
    /// Why there is no score, or why it says less than it seems to.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

/// The models that metrics of a method ask: options of every method that has metrics besides.
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
    /// Those that are named.
    pub fn roles(&self) -> Vec<RoleModel> {
        RoleModel::of_metrics(self.encoder.as_deref(), self.seq2seq.as_deref())
    }
}

/// Metrics of a method that lack what they work with: a model that no option names, or what a sample does not have.
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

/// How messages call a sample.
fn name(sample: &Sample) -> String {
    format!("sample `{}`", sample.id.escape_debug())
}

/// A candidate and what a metric holds it against; the sample's context is the source. Every sample has a context: an
/// empty one is how it has no source.
pub fn item<'a>(sample: &'a Sample, candidate: &'a str, references: Vec<&'a str>) -> MetricItem<'a> {
    MetricItem { candidate, references, source: Some(&*sample.context).filter(|context| !context.trim().is_empty()) }
}

/// The references that the data have.
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

    /// One number of a metric's rows by sample and candidate, higher being better.
    pub(super) fn upwards(&self, direction: Direction, scores: &MetricScores, part: usize) -> Vec<Vec<Option<f64>>> {
        let mut by_sample: Vec<Vec<Option<f64>>> = vec![Vec::new(); self.samples.len()];
        for ((sample, _), row) in self.places.iter().zip(&scores.items) {
            by_sample[*sample].push(row[part].value().map(|score| direction.upwards(score)));
        }
        by_sample
    }

    /// Positions among the items by candidate id, in the order in which ids come first; none where no two samples share
    /// an id, or all have one.
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

    /// How messages call the sample of an item.
    pub(super) fn sample_name(&self, item: usize) -> String {
        name(&self.samples[self.places[item].0])
    }

    /// The row of an item.
    pub(super) fn row<'a>(&'a self, item: usize, metric: &'a str, score: Score) -> MetricRow<'a> {
        let (sample, index) = self.places[item];
        let sample = &self.samples[sample];
        MetricRow {
            item: &sample.id,
            candidate: &sample.candidates[index].id,
            index,
            metric,
            score: score.value(),
            outcome: if score.value().is_some() { "scored" } else { "undefined" },
            why: score.why(),
        }
    }
}
