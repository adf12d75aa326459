//! The conclusions of metrics: which agrees best with people, or which candidates score best.

use std::collections::BTreeSet;

use probity_data::Sample;
use probity_metrics::{ChosenMetric, Direction, MetricScores, is_count};

use super::material::MetricMaterial;
use crate::conclusion::{Conclusion, ConclusionCase, best_agreement};
use crate::gold;

/// The metrics scored so far, with the human judgements of the samples.
pub(super) struct MetricConclusions<'s> {
    samples: &'s [Sample],
    /// Whether human judgements are ignored.
    no_gold: bool,
    metrics: Vec<MetricVerdict>,
}

/// A metric's scores, oriented so that higher is better.
struct MetricVerdict {
    label: String,
    direction: Direction,
    scores: Vec<Vec<Option<f64>>>,
    /// Its components by label, without counts.
    parts: Vec<(String, Vec<Vec<Option<f64>>>)>,
}

impl<'s> MetricConclusions<'s> {
    pub(super) fn new(samples: &'s [Sample], no_gold: bool) -> Self {
        Self { samples, no_gold, metrics: Vec::new() }
    }

    pub(super) fn add(&mut self, choice: &ChosenMetric, material: &MetricMaterial<'_>, scores: &MetricScores) {
        let direction = Direction::from_definition(choice.definition());
        let labels = choice.components().into_iter().enumerate().skip(1).filter(|(_, label)| !is_count(label));
        let parts = labels.map(|(part, label)| (label, material.upwards(direction, scores, part))).collect();
        let scores = material.upwards(direction, scores, 0);
        self.metrics.push(MetricVerdict { label: choice.label().to_owned(), direction, scores, parts });
    }

    /// With human judgements: for each attribute, the metric that agrees best. Otherwise: the best candidates of each
    /// metric.
    pub(super) fn conclusions(&self) -> Vec<Conclusion> {
        let agreed = if self.no_gold { Vec::new() } else { self.agreements() };
        if agreed.is_empty() {
            return self.metrics.iter().map(|metric| self.case(metric).conclusion()).collect();
        }
        agreed
    }

    /// The metric that agrees best with people, for each attribute and for preferences.
    fn agreements(&self) -> Vec<Conclusion> {
        let attributes: BTreeSet<&str> =
            self.samples.iter().flat_map(|s| &s.candidates).flat_map(|c| c.scores.keys().map(String::as_str)).collect();
        let of_attribute = |attribute: &&str| {
            let agreement = |metric: &MetricVerdict| {
                let figures = gold::against(self.samples, attribute, &metric.scores);
                let (gold, attribute) = (Some(&figures), Some(*attribute));
                ConclusionCase { gold, attribute, ..self.case(metric) }.labelled()
            };
            let found = self.metrics.iter().filter_map(agreement).collect();
            best_agreement(Some(attribute), found, &self.parts(|scores| spearman(self.samples, attribute, scores)))
        };
        let mut agreed: Vec<Conclusion> = attributes.iter().filter_map(of_attribute).collect();
        if self.samples.iter().any(|sample| sample.preference.is_some()) {
            let agreement =
                |metric: &MetricVerdict| ConclusionCase { preferences: true, ..self.case(metric) }.labelled();
            let found = self.metrics.iter().filter_map(agreement).collect();
            let accuracy = |scores: &[Vec<Option<f64>>]| {
                let case = ConclusionCase { samples: self.samples, preferences: true, ..ConclusionCase::default() };
                ConclusionCase { scores, ..case }.labelled()?.figures["accuracy"].as_f64()
            };
            agreed.extend(best_agreement(None, found, &self.parts(accuracy)));
        }
        agreed
    }

    /// A figure of each component that has one.
    fn parts(&self, figure: impl Fn(&[Vec<Option<f64>>]) -> Option<f64>) -> Vec<(String, f64)> {
        let parts = self.metrics.iter().flat_map(|metric| &metric.parts);
        parts.filter_map(|(label, scores)| Some((label.clone(), figure(scores)?))).collect()
    }

    fn case<'c>(&'c self, metric: &'c MetricVerdict) -> ConclusionCase<'c> {
        let MetricVerdict { label, direction, scores, .. } = metric;
        let about = Some(label.clone());
        let case = ConclusionCase { about, judge: "metric", ..ConclusionCase::default() };
        ConclusionCase { samples: self.samples, scores, direction: *direction, ..case }
    }
}

/// The mean over contexts, or pooled if no sample has several candidates.
fn spearman(samples: &[Sample], attribute: &str, scores: &[Vec<Option<f64>>]) -> Option<f64> {
    gold::spearman(samples, attribute, scores).or_else(|| {
        let contexts = gold::contexts(samples, attribute, scores);
        let (predicted, gold): (Vec<f64>, Vec<f64>) =
            contexts.iter().flatten().map(|one| (one.predicted, one.gold)).unzip();
        probity_stats::spearman(&predicted, &gold)
    })
}
