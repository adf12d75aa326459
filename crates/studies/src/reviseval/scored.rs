//! The verdicts of metrics with each kind of reference.

use probity_data::Sample;
use probity_lm::Outcome;
use probity_metrics::{ChosenMetric as Chosen, Direction, Metric, MetricError, MetricItem, MetricModels, Score};
use probity_stats::order;
use serde_json::{Value, json};

use super::options::Reference;
use super::references::{ReferenceGroup, ReferencePool};
use crate::MethodError;
use crate::judge::{Decision, JudgedUnit, PairChoice};
use crate::metrics::item;

/// A metric that is ready to score.
pub(super) struct ReadyMetric {
    pub(super) choice: Chosen,
    metric: Box<dyn Metric>,
}

/// The position of a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ScorePlace {
    unit: usize,
    candidate: usize,
    /// Position among the unit's references.
    reference: usize,
}

/// The scores of one metric with one kind of reference.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReferenceScores {
    /// Raw scores by unit and reference, for each of the unit's candidates; empty for units without references.
    by_unit: Vec<Vec<Vec<Option<f64>>>>,
    pub(super) direction: Direction,
}

impl ReadyMetric {
    pub(super) fn new(choice: &Chosen, models: &MetricModels) -> Result<Self, MetricError> {
        Ok(Self { metric: choice.build(models)?, choice: choice.clone() })
    }

    /// The name with options, and the signature of the scores.
    pub(super) fn described(&self) -> Value {
        let item = MetricItem { references: vec![""], ..MetricItem::default() };
        json!({ "metric": self.choice.label(), "signature": self.choice.signature(self.metric.item_settings(), &[item]) })
    }

    /// Scores each candidate of each unit against each of its references.
    pub(super) fn score(
        &self,
        samples: &[Sample],
        units: &[JudgedUnit],
        pool: &ReferencePool<'_>,
        reference: Reference,
    ) -> Result<ReferenceScores, MethodError> {
        let held: Vec<Vec<ReferenceGroup<'_>>> = units.iter().map(|unit| pool.references(reference, *unit)).collect();
        let (mut places, mut items) = (Vec::new(), Vec::new());
        for (number, (unit, held)) in units.iter().zip(&held).enumerate() {
            let sample = &samples[unit.item];
            for (position, group) in held.iter().enumerate() {
                for (at, candidate) in unit.candidates().enumerate() {
                    places.push(ScorePlace { unit: number, candidate: at, reference: position });
                    items.push(item(sample, &sample.candidates[candidate].text, group.texts.clone()));
                }
            }
        }
        let candidates = |unit: &JudgedUnit| vec![None; unit.candidates().count()];
        let mut by_unit: Vec<Vec<Vec<Option<f64>>>> =
            units.iter().zip(&held).map(|(unit, held)| vec![candidates(unit); held.len()]).collect();
        if !items.is_empty() {
            let scores = self.metric.score(&items, &|_| Ok(()))?;
            for (place, row) in places.into_iter().zip(scores.items) {
                by_unit[place.unit][place.reference][place.candidate] = Score::value(row[0]);
            }
        }
        Ok(ReferenceScores { by_unit, direction: Direction::from_definition(self.choice.definition()) })
    }
}

impl ReferenceScores {
    /// The mean over a unit's references with a score, by candidate.
    pub(super) fn mean(&self, unit: usize) -> Vec<Option<f64>> {
        let references = &self.by_unit[unit];
        let of = |candidate: usize| crate::figures::mean(references.iter().filter_map(|scores| scores[candidate]));
        (0..references.first().map_or(0, Vec::len)).map(of).collect()
    }

    /// The mean over all scores of a unit.
    pub(super) fn overall(&self, unit: usize) -> Option<f64> {
        crate::figures::mean(self.mean(unit).into_iter().flatten())
    }

    /// The verdict on a unit. A pair is decided by its better score, with one vote per reference, or (`averaged`) by
    /// the mean over references; a single text gets its mean score. `None` without a reference.
    pub(super) fn decided(&self, unit: usize, pair: bool, averaged: bool) -> Option<Decision> {
        let references = &self.by_unit[unit];
        if references.is_empty() {
            return None;
        }
        if !pair {
            return Some(self.mean(unit)[0].map_or_else(|| Decision::none(Outcome::Empty), Decision::rated));
        }
        if averaged || references.len() == 1 {
            return Some(self.preferred(&self.mean(unit)));
        }
        Some(Decision::vote(&references.iter().map(|scores| self.preferred(scores)).collect::<Vec<_>>()))
    }

    /// 1 if metric(y1, r*) > metric(y2, r*), a tie if equal; no verdict if either is undefined.
    fn preferred(&self, scores: &[Option<f64>]) -> Decision {
        let [Some(first), Some(second)] = scores else { return Decision::none(Outcome::Empty) };
        let [first, second] = [first, second].map(|score| self.direction.upwards(*score));
        Decision::chosen(match order(first, second) {
            std::cmp::Ordering::Greater => PairChoice::First,
            std::cmp::Ordering::Less => PairChoice::Second,
            std::cmp::Ordering::Equal => PairChoice::Tie,
        })
    }
}
