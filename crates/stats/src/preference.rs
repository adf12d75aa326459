//! Agreement of a judge's scores with human preferences.

use std::cmp::Ordering;

use crate::equal::order;
use crate::interval::{Interval, NoInterval, Range, Ratio};
use crate::sum::ordered_sum;

/// Credit for one choice among several candidates, with its chance level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChoicePoint {
    /// 1 if the preferred candidate has the best score, 1/k if it is one of k candidates with the best score up to
    /// rounding, otherwise 0: the expected result of a random choice among the best.
    pub point: f64,
    /// Expected result of a random choice among all, which is also the point of equal scores.
    pub chance: f64,
}

impl ChoicePoint {
    /// Whether the preferred candidate shares the best score.
    pub fn is_shared(self) -> bool {
        self.point > 0.0 && self.point < 1.0
    }
}

/// Scores a sample's choice of the preferred candidate. `None` without another candidate, or if any score is missing,
/// since that candidate might be the best.
///
/// # Panics
/// `preferred` is not an index into `scores`.
#[must_use]
pub fn choice_point(scores: &[Option<f64>], preferred: usize) -> Option<ChoicePoint> {
    let own = scores[preferred]?;
    let all: Vec<f64> = scores.iter().copied().collect::<Option<_>>()?;
    let chance = 1.0 / all.len() as f64;
    let is_beaten = all.iter().any(|other| order(own, *other) == Ordering::Less);
    let best = all.iter().filter(|other| order(own, **other) == Ordering::Equal).count();
    (all.len() > 1).then(|| ChoicePoint { point: if is_beaten { 0.0 } else { 1.0 / best as f64 }, chance })
}

/// Accuracy of a judge's choices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChoiceAccuracy {
    /// The mean of the points.
    pub accuracy: f64,
    /// Chance level: the mean of the chances.
    pub chance: f64,
    /// Clopper and Pearson's interval, with shared best scores as partial hits.
    pub interval: Interval,
    /// Two-sided p of the accuracy equalling chance.
    pub p: f64,
    /// Number of samples.
    pub samples: usize,
}

impl ChoiceAccuracy {
    /// Computes the accuracy of choices.
    ///
    /// # Errors
    /// There are no choices.
    pub fn from_choices(choices: &[ChoicePoint], confidence: f64) -> Result<Self, NoInterval> {
        let points: Vec<f64> = choices.iter().map(|choice| choice.point).collect();
        // Among values between the same ends verdicts have the largest spread, so their interval covers shared choices
        // too.
        let ratio = Ratio::verdicts(&points, Range::SHARE)?;
        let samples = points.len();
        let mean = |sum: f64| sum / samples as f64;
        let chance = mean(ordered_sum(choices.iter().map(|choice| choice.chance)));
        let (interval, p) = (ratio.interval(confidence), ratio.p(chance));
        Ok(Self { accuracy: mean(ordered_sum(points)), chance, interval, p, samples })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(scores: &[f64]) -> ChoicePoint {
        choice_point(&scores.iter().copied().map(Some).collect::<Vec<_>>(), 1).expect("a rival and all scores")
    }

    #[test]
    fn the_preferred_has_the_best_score_shares_it_or_has_not() {
        let point = |scores: &[f64]| choice(scores).point;
        assert_eq!(point(&[0.1, 0.9, 0.5]), 1.0);
        assert_eq!(point(&[0.1 + 0.2, 0.3, 0.1]), 0.5);
        assert_eq!(point(&[0.1, 0.3, 0.5]), 0.0);
        assert_eq!(point(&[0.5, 0.5, 0.9]), 0.0, "they share the second place");
        assert_eq!(point(&[0.5, 0.5, 0.5, 0.1]), 1.0 / 3.0);
    }

    #[test]
    fn equal_scores_have_what_guessing_has_however_many_candidates_there_are() {
        for candidates in 2..=10 {
            let found = choice(&vec![5.0; candidates]);
            assert_eq!(found.point, found.chance);
            let all = ChoiceAccuracy::from_choices(&[found; 40], 0.95).expect("choices");
            assert!((all.accuracy - all.chance).abs() < 1e-12 && all.p > 0.9, "{all:?}");
            assert!(all.interval.low < all.chance && all.chance < all.interval.high, "{all:?}");
        }
    }

    #[test]
    fn ties_among_four_have_clopper_and_pearsons_interval_of_their_parts() {
        // scipy 1.17.1: beta.ppf(0.025, 10, 31), beta.isf(0.025, 11, 30).
        let found = ChoiceAccuracy::from_choices(&[choice(&[5.0; 4]); 40], 0.95).expect("choices").interval;
        assert!((found.low - 0.126_914_8).abs() < 1e-7 && (found.high - 0.411_962).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn without_a_rival_or_a_score_of_each_nothing_is_said() {
        assert_eq!(choice_point(&[Some(1.0)], 0), None);
        assert_eq!(choice_point(&[Some(1.0), None, Some(0.5)], 0), None);
        assert_eq!(choice_point(&[None, Some(0.5)], 0), None);
        assert_eq!(ChoiceAccuracy::from_choices(&[], 0.95), Err(NoInterval::TooFew));
    }
}
