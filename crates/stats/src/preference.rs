//! A judge's scores against the candidate that people preferred.

use std::cmp::Ordering;

use crate::equal::order;
use crate::interval::{Interval, NoInterval, Range, Ratio};
use crate::sum::ordered_sum;

/// A judge's choice of one among several, with what a guess would have had.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChoicePoint {
    /// 1 where the preferred candidate has the best score, 1/k where rounding alone parts k candidates and it is one of
    /// them (½ of two), else 0: what a guess among the best has on average.
    pub point: f64,
    /// What a guess among all has on average, which is also the point of equal scores.
    pub chance: f64,
}

impl ChoicePoint {
    /// Whether the preferred candidate shares the best score.
    pub fn is_shared(self) -> bool {
        self.point > 0.0 && self.point < 1.0
    }
}

/// How a sample's scores choose the preferred candidate. `None` without another, or without a score of all candidates:
/// one that has none might be the best.
///
/// # Panics
/// Where `preferred` is not a place in `scores`.
#[must_use]
pub fn choice_point(scores: &[Option<f64>], preferred: usize) -> Option<ChoicePoint> {
    let own = scores[preferred]?;
    let all: Vec<f64> = scores.iter().copied().collect::<Option<_>>()?;
    let chance = 1.0 / all.len() as f64;
    let is_beaten = all.iter().any(|other| order(own, *other) == Ordering::Less);
    let best = all.iter().filter(|other| order(own, **other) == Ordering::Equal).count();
    (all.len() > 1).then(|| ChoicePoint { point: if is_beaten { 0.0 } else { 1.0 / best as f64 }, chance })
}

/// How often the choices of a judge are people's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChoiceAccuracy {
    /// The mean of the points.
    pub accuracy: f64,
    /// What guessing has: the mean of the chances.
    pub chance: f64,
    /// Clopper and Pearson's, shared best scores counting as the part of a hit that they are.
    pub interval: Interval,
    /// Two-sided, of the accuracy being what guessing has.
    pub p: f64,
    /// Of how many samples.
    pub samples: usize,
}

impl ChoiceAccuracy {
    /// # Errors
    /// Without a choice.
    pub fn of(choices: &[ChoicePoint], confidence: f64) -> Result<Self, NoInterval> {
        let points: Vec<f64> = choices.iter().map(|choice| choice.point).collect();
        // Of values between the same ends verdicts spread most: so their interval covers shared ones too.
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
            let all = ChoiceAccuracy::of(&[found; 40], 0.95).expect("choices");
            assert!((all.accuracy - all.chance).abs() < 1e-12 && all.p > 0.9, "{all:?}");
            assert!(all.interval.low < all.chance && all.chance < all.interval.high, "{all:?}");
        }
    }

    #[test]
    fn ties_among_four_have_clopper_and_pearsons_interval_of_their_parts() {
        // scipy 1.17.1: beta.ppf(0.025, 10, 31), beta.isf(0.025, 11, 30).
        let found = ChoiceAccuracy::of(&[choice(&[5.0; 4]); 40], 0.95).expect("choices").interval;
        assert!((found.low - 0.126_914_8).abs() < 1e-7 && (found.high - 0.411_962).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn without_a_rival_or_a_score_of_each_nothing_is_said() {
        assert_eq!(choice_point(&[Some(1.0)], 0), None);
        assert_eq!(choice_point(&[Some(1.0), None, Some(0.5)], 0), None);
        assert_eq!(choice_point(&[None, Some(0.5)], 0), None);
        assert_eq!(ChoiceAccuracy::of(&[], 0.95), Err(NoInterval::TooFew));
    }
}
