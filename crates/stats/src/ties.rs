//! Pairwise accuracy with ties (Deutsch, Foster and Freitag 2023, "Ties Matter").
//!
//! Human scores are often tied, metrics with many decimals hardly ever. A metric's scores therefore count as tied if
//! they differ by at most ε, with the ε that maximises the accuracy.

use serde::Serialize;

use crate::equal::equalised;
use crate::sum::ordered_sum;

/// Maximum number of pairs for calibration, which holds them in memory.
pub const PAIR_LIMIT: usize = 5_000_000;

/// Pair counts by ties and by agreement with gold's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TiedPairs {
    /// In gold's order.
    pub concordant: usize,
    /// In the opposite order.
    pub discordant: usize,
    /// Tied only in gold.
    pub tied_gold: usize,
    /// Tied only in the predictions.
    pub tied_predicted: usize,
    /// Tied in both.
    pub tied_both: usize,
}

impl TiedPairs {
    /// Counts a pair; predictions that differ by at most `epsilon` are tied.
    fn add(&mut self, pair: &ScorePair, epsilon: f64) {
        *match (pair.gold_tied, pair.difference <= epsilon, pair.concordant) {
            (true, true, _) => &mut self.tied_both,
            (true, false, _) => &mut self.tied_gold,
            (false, true, _) => &mut self.tied_predicted,
            (false, false, true) => &mut self.concordant,
            (false, false, false) => &mut self.discordant,
        } += 1;
    }
}

/// The accuracy with ties, (concordant + tied in both) / all pairs, at the best ε.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TieCalibration {
    /// Mean over contexts at `epsilon`.
    pub accuracy: f64,
    /// Predictions that differ by at most this are tied; 0 if ties do not help. The smallest of equally good values.
    pub epsilon: f64,
    /// Mean over contexts with unchanged predictions (ε = 0).
    pub uncalibrated: f64,
    /// Contexts with a pair.
    pub contexts: usize,
    /// Pair counts of all contexts at ε = 0.
    pub as_is: TiedPairs,
    /// Pair counts of all contexts at `epsilon`.
    pub calibrated: TiedPairs,
}

#[derive(Debug, Clone, Copy)]
struct ScorePair {
    difference: f64,
    context: u32,
    gold_tied: bool,
    concordant: bool,
}

/// Calibrates ties over the pairs within each context and averages the accuracy over contexts. A single context covers
/// all its pairs.
///
/// `None` without a pair, if a value is not finite, and above [`PAIR_LIMIT`] pairs.
///
/// # Panics
/// The lists of a context differ in length.
pub fn tie_calibration<'a>(contexts: impl IntoIterator<Item = (&'a [f64], &'a [f64])>) -> Option<TieCalibration> {
    let mut pairs = pairs(contexts)?;
    let mut sizes: Vec<usize> = Vec::new();
    for pair in &pairs {
        sizes.resize(pair.context as usize + 1, 0);
        sizes[pair.context as usize] += 1;
    }
    pairs.sort_by(|a, b| a.difference.total_cmp(&b.difference));
    let epsilon = best_epsilon(&pairs, &sizes);
    let at = |epsilon: f64| {
        let mut correct = vec![0usize; sizes.len()];
        let mut counts = TiedPairs::default();
        for pair in &pairs {
            counts.add(pair, epsilon);
            correct[pair.context as usize] += usize::from(pair.is_correct(epsilon));
        }
        let judged = correct.iter().zip(&sizes).filter(|(_, size)| **size > 0);
        let sum = ordered_sum(judged.map(|(c, size)| *c as f64 / *size as f64));
        (sum, counts)
    };
    let contexts = sizes.iter().filter(|size| **size > 0).count();
    let ((plain, as_is), (best, calibrated)) = (at(0.0), at(epsilon));
    let mean = |sum: f64| sum / contexts as f64;
    (contexts > 0).then(|| TieCalibration {
        accuracy: mean(best),
        epsilon,
        uncalibrated: mean(plain),
        contexts,
        as_is,
        calibrated,
    })
}

/// The accuracy with ties of one list at a fixed ε; `None` without a pair.
pub(crate) fn pair_accuracy(predicted: &[f64], gold: &[f64], epsilon: f64) -> Option<f64> {
    let pairs = pairs([(predicted, gold)])?;
    let correct = pairs.iter().filter(|pair| pair.is_correct(epsilon)).count();
    (!pairs.is_empty()).then(|| correct as f64 / pairs.len() as f64)
}

fn pairs<'a>(contexts: impl IntoIterator<Item = (&'a [f64], &'a [f64])>) -> Option<Vec<ScorePair>> {
    let mut pairs = Vec::new();
    for (context, (predicted, gold)) in contexts.into_iter().enumerate() {
        assert_eq!(predicted.len(), gold.len(), "each candidate has a prediction and a gold score");
        let more = gold.len() * gold.len().saturating_sub(1) / 2;
        if pairs.len() + more > PAIR_LIMIT || predicted.iter().chain(gold).any(|v| !v.is_finite()) {
            return None;
        }
        // Values equal up to rounding are ties at ε = 0 too, so that ε does not merely correct rounding.
        let (predicted, gold) = (equalised(predicted), equalised(gold));
        for i in 0..gold.len() {
            for j in 0..i {
                let concordant = (predicted[i] > predicted[j]) == (gold[i] > gold[j]);
                let difference = (predicted[i] - predicted[j]).abs();
                pairs.push(ScorePair {
                    difference,
                    context: context as u32,
                    gold_tied: gold[i] == gold[j],
                    concordant,
                });
            }
        }
    }
    Some(pairs)
}

impl ScorePair {
    fn is_correct(&self, epsilon: f64) -> bool {
        if self.difference <= epsilon { self.gold_tied } else { !self.gold_tied && self.concordant }
    }
}

/// Adds ties pair by pair, the closest predictions first, and keeps the first best sum of the contexts' accuracies.
fn best_epsilon(pairs: &[ScorePair], sizes: &[usize]) -> f64 {
    // Sums of quotients carry rounding: smaller improvements do not count.
    const NOISE: f64 = 1e-9;
    let (mut sum, mut best, mut epsilon) = (0.0, 0.0, 0.0);
    for equal in pairs.chunk_by(|a, b| a.difference == b.difference) {
        for pair in equal.iter().filter(|pair| pair.difference > 0.0) {
            let change = i8::from(pair.gold_tied) - i8::from(pair.is_correct(0.0));
            sum += f64::from(change) / sizes[pair.context as usize] as f64;
        }
        if sum > best + NOISE {
            (best, epsilon) = (sum, equal[0].difference);
        }
    }
    epsilon
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::golden::GOLDEN;

    #[test]
    fn calibration_equals_the_authors_implementation() {
        for case in &GOLDEN.ties {
            let contexts = || case.predicted.iter().zip(&case.gold).map(|(p, g)| (p.as_slice(), g.as_slice()));
            let found = tie_calibration(contexts()).expect("pairs");
            assert!((found.accuracy - case.accuracy).abs() < 1e-12, "{found:?} {}", case.accuracy);
            assert!((found.uncalibrated - case.uncalibrated).abs() < 1e-12, "{found:?} {}", case.uncalibrated);
            assert!((found.epsilon - case.epsilon).abs() < 1e-12, "{found:?} {}", case.epsilon);
        }
    }

    #[test]
    fn near_predictions_of_equal_texts_become_ties() {
        let found = tie_calibration([(&[0.50, 0.51, 0.90][..], &[1.0, 1.0, 2.0][..])]).expect("pairs");
        assert!((found.epsilon - 0.01).abs() < 1e-12 && found.accuracy == 1.0, "{found:?}");
        assert!((found.uncalibrated - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(found.as_is, TiedPairs { concordant: 2, tied_gold: 1, ..TiedPairs::default() });
        assert_eq!(found.calibrated, TiedPairs { concordant: 2, tied_both: 1, ..TiedPairs::default() });
    }

    #[test]
    fn scores_that_rounding_alone_parts_are_tied() {
        let found = tie_calibration([(&[0.1 + 0.2, 0.3, 0.9][..], &[1.0, 2.0, 3.0][..])]).expect("pairs");
        assert_eq!(found.as_is, TiedPairs { concordant: 2, tied_predicted: 1, ..TiedPairs::default() });
    }

    #[test]
    fn no_more_ties_are_made_where_they_do_not_help() {
        let found = tie_calibration([(&[1.0, 2.0, 3.0][..], &[1.0, 2.0, 3.0][..])]).expect("pairs");
        assert_eq!((found.epsilon, found.accuracy, found.uncalibrated), (0.0, 1.0, 1.0));
    }

    #[test]
    fn what_has_no_pairs_or_no_numbers_is_none() {
        assert_eq!(tie_calibration([]), None);
        assert_eq!(tie_calibration([(&[1.0][..], &[1.0][..])]), None);
        assert_eq!(tie_calibration([(&[1.0, f64::NAN][..], &[1.0, 2.0][..])]), None);
        let many = vec![0.0; 3200];
        assert_eq!(tie_calibration([(many.as_slice(), many.as_slice())]), None, "more than the limit");
        let found = tie_calibration([(&[1.0][..], &[1.0][..]), (&[1.0, 2.0][..], &[2.0, 1.0][..])]).expect("one pair");
        assert_eq!((found.contexts, found.accuracy), (1, 0.0));
    }

    proptest! {
        #[test]
        fn no_epsilon_is_better_than_the_one_found(
            rows in prop::collection::vec(prop::collection::vec((0_u8..12, 0_u8..4), 2..7), 1..4),
        ) {
            let lists: Vec<(Vec<f64>, Vec<f64>)> =
                rows.iter().map(|row| row.iter().map(|&(p, g)| (f64::from(p) / 8.0, f64::from(g))).unzip()).collect();
            let slices = || lists.iter().map(|(p, g)| (p.as_slice(), g.as_slice()));
            let found = tie_calibration(slices()).expect("pairs");
            for step in 0..13 {
                let epsilon = f64::from(step) / 8.0;
                let accuracy = |(p, g): &(Vec<f64>, Vec<f64>)| pair_accuracy(p, g, epsilon).expect("pairs");
                let mean = lists.iter().map(accuracy).sum::<f64>() / lists.len() as f64;
                prop_assert!(mean <= found.accuracy + 1e-9);
                prop_assert!(epsilon != found.epsilon || (mean - found.accuracy).abs() < 1e-12);
            }
        }
    }
}
