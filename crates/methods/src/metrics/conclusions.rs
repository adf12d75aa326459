//! What metrics say first: which agrees best with people, or which candidates they find best.

use std::collections::BTreeSet;

use probity_data::{Preference, Sample};
use probity_metrics::{ChosenMetric, Direction, MetricScores};

use super::material::MetricMaterial;
use crate::conclusion::{Conclusion, ConclusionCase, best_agreement};
use crate::gold;

/// Metrics as they are scored, with the people's judgement in the samples.
pub(super) struct MetricConclusions<'s> {
    samples: &'s [Sample],
    metrics: Vec<MetricVerdict>,
}

/// A metric's own scores, higher being better.
struct MetricVerdict {
    label: String,
    direction: Direction,
    scores: Vec<Vec<Option<f64>>>,
}

impl<'s> MetricConclusions<'s> {
    pub(super) fn new(samples: &'s [Sample]) -> Self {
        Self { samples, metrics: Vec::new() }
    }

    pub(super) fn add(&mut self, choice: &ChosenMetric, material: &MetricMaterial<'_>, scores: &MetricScores) {
        let direction = Direction::of(choice.definition());
        let scores = material.upwards(direction, scores);
        self.metrics.push(MetricVerdict { label: choice.label().to_owned(), direction, scores });
    }

    /// Where people were asked, for each attribute which metric agrees best with them; else what each metric finds
    /// best.
    pub(super) fn conclusions(&self) -> Vec<Conclusion> {
        let attributes: BTreeSet<&str> =
            self.samples.iter().flat_map(|s| &s.candidates).flat_map(|c| c.scores.keys().map(String::as_str)).collect();
        let of_attribute = |attribute: &&str| {
            let agreement = |metric: &MetricVerdict| {
                let figures = gold::against(self.samples, attribute, &metric.scores);
                ConclusionCase { gold: Some(&figures), ..self.case(metric) }.agreement()
            };
            best_agreement(Some(attribute), self.metrics.iter().filter_map(agreement).collect())
        };
        let mut agreed: Vec<Conclusion> = attributes.iter().filter_map(of_attribute).collect();
        let preferred = |sample: &Sample| matches!(sample.preference, Some(Preference::Candidate(_)));
        if self.samples.iter().any(preferred) {
            let agreement =
                |metric: &MetricVerdict| ConclusionCase { preferences: true, ..self.case(metric) }.agreement();
            agreed.extend(best_agreement(None, self.metrics.iter().filter_map(agreement).collect()));
        }
        if agreed.is_empty() {
            agreed.extend(self.metrics.iter().map(|metric| self.case(metric).conclusion()));
        }
        agreed
    }

    fn case<'c>(&'c self, metric: &'c MetricVerdict) -> ConclusionCase<'c> {
        let MetricVerdict { label, direction, scores } = metric;
        let about = Some(label.clone());
        ConclusionCase { about, samples: self.samples, scores, direction: *direction, ..ConclusionCase::default() }
    }
}
