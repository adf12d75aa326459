//! Figures over what was scored, and how tables write them.

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_stats::{
    CONFIDENCE, FigureEstimate, Interval, NoInterval, Range, mean_interval, ordered_mean, ordered_sum,
};
use serde::Serialize;

use crate::table::Cell;

/// The probability of the labels under the full vocabulary, over answers.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Mass {
    /// The mean; `None` of no answer.
    pub mean: Option<f64>,
    /// The lowest.
    pub min: Option<f64>,
    /// The share flagged [`Outcome::LowMass`](probity_lm::Outcome::LowMass).
    pub low_share: Option<f64>,
    /// Answers flagged so.
    pub low: usize,
    /// Answers with a mass.
    pub answers: usize,
}

impl Mass {
    /// Over `(mass, flagged as low)`.
    pub fn of(answers: impl Iterator<Item = (f64, bool)>) -> Self {
        let answers: Vec<(f64, bool)> = answers.collect();
        Self {
            mean: mean(answers.iter().map(|a| a.0)),
            min: answers.iter().map(|a| a.0).reduce(f64::min),
            low_share: mean(answers.iter().map(|a| f64::from(u8::from(a.1)))),
            low: answers.iter().filter(|a| a.1).count(),
            answers: answers.len(),
        }
    }

    /// How many of all these answers are flagged; `None` where there is none.
    pub fn flagged(masses: impl IntoIterator<Item = Self>) -> Option<Self> {
        let (low, answers) = masses.into_iter().fold((0, 0), |(l, a), one| (l + one.low, a + one.answers));
        (answers > 0).then(|| Self { low_share: Some(low as f64 / answers as f64), low, answers, ..Self::default() })
    }
}

/// Tokens in and out of one kind of question to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TokenTally {
    /// Questions asked.
    pub requests: usize,
    /// Tokens of the prompts.
    pub tokens_in: usize,
    /// Tokens generated.
    pub tokens_out: usize,
}

impl TokenTally {
    /// Counts one.
    pub fn add(&mut self, tokens_in: Option<usize>, tokens_out: Option<usize>) {
        self.requests += 1;
        // Tables that were given may say anything.
        self.tokens_in = self.tokens_in.saturating_add(tokens_in.unwrap_or(0));
        self.tokens_out = self.tokens_out.saturating_add(tokens_out.unwrap_or(0));
    }

    /// The sum of several.
    pub fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, one| Self {
            requests: sum.requests + one.requests,
            tokens_in: sum.tokens_in.saturating_add(one.tokens_in),
            tokens_out: sum.tokens_out.saturating_add(one.tokens_out),
        })
    }
}

/// A number of at most three decimals for people, or nothing.
pub fn number(value: Option<f64>) -> Cell {
    decimals(value, 3)
}

/// A number of so many decimals for people, or nothing.
pub fn decimals(value: Option<f64>, decimals: u8) -> Cell {
    value.filter(|value| value.is_finite()).map_or(Cell::Missing, |value| Cell::Number { value, decimals })
}

/// An interval's ends, or nothing.
pub fn bounds(interval: Option<Interval>) -> Cell {
    interval.map_or(Cell::Missing, |Interval { low, high, .. }| Cell::Bounds { low, high })
}

/// A share in percent, or nothing.
pub fn percent(share: Option<f64>) -> Cell {
    share.filter(|share| share.is_finite()).map_or(Cell::Missing, |share| Cell::Share { share })
}

/// A p-value: three decimals for people, and what is smaller by its power of ten.
pub fn p_value(p: Option<f64>) -> Cell {
    p.filter(|p| p.is_finite()).map_or(Cell::Missing, |p| Cell::PValue { p })
}

/// A number with its interval where there is one, or nothing.
pub fn estimate(value: Option<f64>, interval: Option<Interval>) -> Cell {
    match (value, interval) {
        (Some(value), Some(Interval { low, high, .. })) => Cell::Estimate { value, low, high },
        _ => number(value),
    }
}

/// What a table says of its columns `given order` and `turned`.
pub const BY_ORDER: &str = "Given order: accuracy, over samples, of the verdicts on pairs as the data have them; \
                            turned: of those \
                                   with the second candidate shown first.";

/// What a table says of scores that were turned before they were held against people.
pub fn lower_is_better(names: &[String]) -> String {
    format!(
        "Lower is better: {}. Their scores are held against people with their signs turned, so that a higher figure is \
         more agreement.",
        names.join("; ")
    )
}

/// The sum and the number of scores by candidate id.
pub(crate) fn sums_by_id<'s>(samples: &'s [Sample], scores: &[Vec<Option<f64>>]) -> BTreeMap<&'s str, (f64, usize)> {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (sample, scores) in samples.iter().zip(scores) {
        for (candidate, score) in sample.candidates.iter().zip(scores) {
            if let Some(score) = score {
                all.entry(&candidate.id).or_default().push(*score);
            }
        }
    }
    all.into_iter().map(|(id, scores)| (id, (ordered_sum(scores.iter().copied()), scores.len()))).collect()
}

/// A share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ShareFigure {
    /// `None` of nothing.
    pub share: Option<f64>,
}

/// The share of what is so (1) among all points, with its interval.
pub fn share_estimate(points: &[f64]) -> FigureEstimate<ShareFigure> {
    FigureEstimate::new(ShareFigure { share: mean(points.iter().copied()) }, share_interval(points))
}

/// Of a share: the mean of points between 0 and 1.
pub fn share_interval(points: &[f64]) -> Result<Interval, NoInterval> {
    mean_interval(points, CONFIDENCE, Range::SHARE)
}

/// The mean, the same in any order of the values; `None` of nothing.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    ordered_mean(values)
}
