//! Prediction intervals for human scores of a text, from a judge's score (split conformal prediction: Vovk et al. 2005;
//! Lei et al. 2018), with several texts per context (Lee, Barber and Willett 2023, arXiv:2306.06342, §3).

use serde::Serialize;

/// A linear prediction of human scores from a judge's, fitted on one half of the labels, with its error from the other
/// half.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ConformalScores {
    /// Intercept of the regression of human scores on the judge's.
    pub intercept: f64,
    /// Its slope.
    pub slope: f64,
    /// A human score for a text of a new context is within this distance of the line with at least the requested
    /// probability.
    pub reach: f64,
    /// Number of contexts that determine the reach.
    pub items: usize,
}

/// Why there is no interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error, miette::Diagnostic)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum NoConformal {
    /// Too few contexts for any finite distance.
    #[error("{needed} labelled samples are needed, you have {items}")]
    TooFew {
        /// Contexts with labels.
        items: usize,
        /// Minimum number of contexts.
        needed: usize,
    },
}

/// Tolerance for rounding of a share.
const ROUNDING: f64 = 1e-9;

/// Minimum number of contexts for an interval: the smallest n with n / (n + 1) ≥ confidence.
pub fn conformal_items(confidence: f64) -> usize {
    (confidence / (1.0 - confidence) - ROUNDING).ceil() as usize
}

impl ConformalScores {
    /// Fits pairs of a judge's score and a human score: `fitted` for the line, and `measured`, grouped by context
    /// without empty groups, for its reach. The two must have no context in common. Texts of one context are dependent:
    /// contexts are exchangeable, and each has the same weight, whatever its number of texts.
    ///
    /// # Errors
    /// There are too few contexts to measure the reach.
    pub fn fit(fitted: &[(f64, f64)], measured: &[Vec<(f64, f64)>], confidence: f64) -> Result<Self, NoConformal> {
        let (items, needed) = (measured.len(), conformal_items(confidence));
        let (intercept, slope) = line(fitted);
        let mut residuals: Vec<(f64, f64)> = Vec::new();
        for item in measured {
            let weight = 1.0 / ((items + 1) as f64 * item.len() as f64);
            residuals.extend(item.iter().map(|(score, people)| ((people - intercept - slope * score).abs(), weight)));
        }
        residuals.sort_by(|a, b| a.0.total_cmp(&b.0));
        // The new context has the same weight as each of these, and its error may be any value.
        let mut within = 0.0;
        let reach = residuals.into_iter().find(|(_, weight)| {
            within += weight;
            within >= confidence - ROUNDING
        });
        let (reach, _) = reach.ok_or(NoConformal::TooFew { items, needed })?;
        Ok(Self { intercept, slope, reach, items })
    }

    /// The prediction interval of a human score, given the judge's score.
    pub fn interval(&self, score: f64) -> (f64, f64) {
        let middle = self.intercept + self.slope * score;
        (middle - self.reach, middle + self.reach)
    }
}

/// The least-squares line; constant if the scores do not vary.
fn line(pairs: &[(f64, f64)]) -> (f64, f64) {
    let n = pairs.len().max(1) as f64;
    let (x, y) = pairs.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0 / n, y + pair.1 / n));
    let (product, square) = pairs.iter().fold((0.0, 0.0), |(product, square), pair| {
        (product + (pair.0 - x) * (pair.1 - y), square + (pair.0 - x).powi(2))
    });
    // If all scores are equal, only rounding would make the sum of squares positive.
    let differs = pairs.iter().any(|pair| pair.0 != pairs[0].0);
    let slope = if differs && square > 0.0 { product / square } else { 0.0 };
    (y - slope * x, slope)
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    use super::*;

    #[test]
    fn labels_needed_are_those_whose_rank_is_among_them() {
        assert_eq!([1e-12, 0.5, 0.8, 0.9, 0.95, 0.99].map(conformal_items), [0, 1, 4, 9, 19, 99]);
        let few = vec![(1.0, 1.0); 8];
        let alone = |pairs: &[(f64, f64)]| pairs.iter().map(|pair| vec![*pair]).collect::<Vec<_>>();
        let too_few = Err(NoConformal::TooFew { items: 8, needed: 9 });
        assert_eq!(ConformalScores::fit(&few, &alone(&few), 0.9), too_few);
        assert_eq!(ConformalScores::fit(&few, &vec![few.clone(); 8], 0.9), too_few, "items count, not texts");
        assert!(ConformalScores::fit(&few, &alone(&few), 1e-12).is_ok());
    }

    #[test]
    fn the_line_is_that_of_least_squares_and_the_reach_a_residual() {
        let pairs: Vec<(f64, f64)> = (0..40).map(f64::from).map(|k| (k, 3.0 + 0.5 * k)).collect();
        let measured: Vec<Vec<(f64, f64)>> = (1..=19).map(|k| vec![(0.0, 3.0 + f64::from(k))]).collect();
        let found = ConformalScores::fit(&pairs, &measured, 0.9).expect("enough");
        assert!((found.slope - 0.5).abs() < 1e-12 && (found.intercept - 3.0).abs() < 1e-12, "{found:?}");
        // ⌈20 · .9⌉ = 18th of 19.
        assert!((found.reach - 18.0).abs() < 1e-9, "{found:?}");
        assert!((found.interval(2.0).0 + 14.0).abs() < 1e-9);
        let level = ConformalScores::fit(&[(0.1, 2.0), (0.1, 4.0), (0.1, 3.0)], &measured, 0.5).expect("enough");
        assert_eq!(level.slope, 0.0);
        assert!((level.intercept - 3.0).abs() < 1e-12, "{level:?}");
    }

    #[test]
    fn intervals_cover_as_often_as_they_say() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        // Noise that is neither normal nor symmetric: the guarantee holds for any distribution.
        let mut pairs = |count: usize| -> Vec<(f64, f64)> {
            (0..count).map(|_| (uniform(), uniform())).map(|(x, noise)| (x, 2.0 * x + noise.powi(3))).collect()
        };
        let (mut covered, mut all) = (0, 0);
        for _ in 0..400 {
            let measured: Vec<Vec<(f64, f64)>> = pairs(30).into_iter().map(|pair| vec![pair]).collect();
            let found = ConformalScores::fit(&pairs(30), &measured, 0.9).expect("enough");
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

    #[test]
    fn they_cover_as_often_where_texts_of_a_context_hang_together() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        // The context effect is as large as the text effect; contexts have one to twelve texts.
        let mut items = |count: usize| -> Vec<Vec<(f64, f64)>> {
            let mut item = || -> Vec<(f64, f64)> {
                let (of_item, texts) = (4.0 * uniform(), 1 + (12.0 * uniform()) as usize);
                (0..texts).map(|_| (uniform(), uniform())).map(|(x, noise)| (x, x + of_item + noise)).collect()
            };
            (0..count).map(|_| item()).collect()
        };
        let (mut covered, mut all) = (0.0, 0);
        for _ in 0..400 {
            let found = ConformalScores::fit(&items(10).concat(), &items(19), 0.9).expect("enough");
            for item in items(20) {
                let within = |(score, people): &&(f64, f64)| {
                    let (low, high) = found.interval(*score);
                    (low..=high).contains(people)
                };
                covered += item.iter().filter(within).count() as f64 / item.len() as f64;
                all += 1;
            }
        }
        let share = covered / f64::from(all);
        assert!((0.895..0.94).contains(&share), "{share}");
    }
}
