//! Intervals for what people would say of a text, from a judge's score of it (split conformal prediction: Vovk et al.
//! 2005; Lei et al. 2018).

use serde::Serialize;

/// What a score says of people's, fitted on one half of the labels, and how far people's lie from that on the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ConformalScores {
    /// The line from the judge's scores to people's.
    pub intercept: f64,
    /// Its slope.
    pub slope: f64,
    /// People's score of a new text lies within this of the line with the probability that was asked for, or more.
    pub reach: f64,
    /// Labels that the reach is of.
    pub labels: usize,
}

/// Why there is no interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error, miette::Diagnostic)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum NoConformal {
    /// No number of them would do with fewer labels.
    #[error("{labels} labels to measure by are too few: {needed} are needed")]
    TooFew {
        /// Labels that there are.
        labels: usize,
        /// Labels that are needed at least.
        needed: usize,
    },
}

/// How many labels an interval needs to be measured by: the smallest n with ⌈(n + 1) · confidence⌉ ≤ n.
pub fn conformal_labels(confidence: f64) -> usize {
    let mut labels = (confidence / (1.0 - confidence)).floor() as usize;
    // By the rule itself: the quotient is rounded.
    while rank(labels, confidence) > labels {
        labels += 1;
    }
    labels
}

/// Which of so many residuals, by size from 1, is the reach.
fn rank(labels: usize, confidence: f64) -> usize {
    // What rounding alone puts above a whole number is that number.
    ((labels as f64 + 1.0) * confidence - 1e-9).ceil() as usize
}

impl ConformalScores {
    /// From pairs of a judge's score and people's: `fitted` for the line, `measured` for its reach; the two must have
    /// no context in common.
    ///
    /// # Errors
    /// Where there are too few labels to measure by.
    pub fn fit(fitted: &[(f64, f64)], measured: &[(f64, f64)], confidence: f64) -> Result<Self, NoConformal> {
        let needed = conformal_labels(confidence);
        if measured.len() < needed {
            return Err(NoConformal::TooFew { labels: measured.len(), needed });
        }
        let (intercept, slope) = line(fitted);
        let mut residuals: Vec<f64> =
            measured.iter().map(|(score, people)| (people - intercept - slope * score).abs()).collect();
        residuals.sort_by(f64::total_cmp);
        let reach = residuals[rank(residuals.len(), confidence) - 1];
        Ok(Self { intercept, slope, reach, labels: residuals.len() })
    }

    /// Between which values people's score of a text lies, given the judge's.
    pub fn interval(&self, score: f64) -> (f64, f64) {
        let middle = self.intercept + self.slope * score;
        (middle - self.reach, middle + self.reach)
    }
}

/// The line of least squares; level where the scores do not differ.
fn line(pairs: &[(f64, f64)]) -> (f64, f64) {
    let n = pairs.len().max(1) as f64;
    let (x, y) = pairs.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0 / n, y + pair.1 / n));
    let (product, square) = pairs.iter().fold((0.0, 0.0), |(product, square), pair| {
        (product + (pair.0 - x) * (pair.1 - y), square + (pair.0 - x).powi(2))
    });
    let slope = if square > 0.0 { product / square } else { 0.0 };
    (y - slope * x, slope)
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    use super::*;

    #[test]
    fn labels_needed_are_those_whose_rank_is_among_them() {
        assert_eq!([0.5, 0.8, 0.9, 0.95, 0.99].map(conformal_labels), [1, 4, 9, 19, 99]);
        let few = vec![(1.0, 1.0); 8];
        assert_eq!(ConformalScores::fit(&few, &few, 0.9), Err(NoConformal::TooFew { labels: 8, needed: 9 }));
    }

    #[test]
    fn the_line_is_that_of_least_squares_and_the_reach_a_residual() {
        let pairs: Vec<(f64, f64)> = (0..40).map(f64::from).map(|k| (k, 3.0 + 0.5 * k)).collect();
        let measured: Vec<(f64, f64)> = (1..=19).map(|k| (0.0, 3.0 + f64::from(k))).collect();
        let found = ConformalScores::fit(&pairs, &measured, 0.9).expect("enough");
        assert!((found.slope - 0.5).abs() < 1e-12 && (found.intercept - 3.0).abs() < 1e-12, "{found:?}");
        // ⌈20 · .9⌉ = 18th of 19.
        assert!((found.reach - 18.0).abs() < 1e-9, "{found:?}");
        assert!((found.interval(2.0).0 + 14.0).abs() < 1e-9);
        let level = ConformalScores::fit(&[(1.0, 2.0), (1.0, 4.0)], &measured, 0.5).expect("enough");
        assert_eq!((level.slope, level.intercept), (0.0, 3.0));
    }

    #[test]
    fn intervals_cover_as_often_as_they_say() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        // Noise that is neither normal nor even: the promise is of any distribution.
        let mut pairs = |count: usize| -> Vec<(f64, f64)> {
            (0..count).map(|_| (uniform(), uniform())).map(|(x, noise)| (x, 2.0 * x + noise.powi(3))).collect()
        };
        let (mut covered, mut all) = (0, 0);
        for _ in 0..400 {
            let found = ConformalScores::fit(&pairs(30), &pairs(30), 0.9).expect("enough");
            for (score, people) in pairs(20) {
                let (low, high) = found.interval(score);
                covered += usize::from((low..=high).contains(&people));
                all += 1;
            }
        }
        // With 30 labels it is ⌈31 · .9⌉ / 31 = .903 on average.
        let share = covered as f64 / f64::from(all);
        assert!((share - 0.903).abs() < 0.015, "{share}");
    }
}
