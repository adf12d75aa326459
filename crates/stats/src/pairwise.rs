//! Pairwise accuracy: does a prediction order candidates as gold does?

use std::cmp::Ordering;

use serde::Serialize;

use crate::equal::equalised;

/// Accuracy over pairs of candidates of one context with different gold scores.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PairwiseAccuracy {
    /// Pairs ordered as in gold.
    pub correct: usize,
    /// Pairs ordered the other way.
    pub wrong: usize,
    /// Pairs with equal predictions.
    pub tied: usize,
    /// Pairs omitted because a value is NaN.
    pub undefined: usize,
    /// (correct + tied / 2) / (correct + wrong + tied); absent without pairs.
    pub accuracy: Option<f64>,
}

impl PairwiseAccuracy {
    /// Counts one pair by the order of its predictions and of its gold scores; ties in gold are ignored.
    fn add(&mut self, predicted: Option<Ordering>, gold: Option<Ordering>) {
        match (predicted, gold) {
            (_, Some(Ordering::Equal)) => return,
            (Some(Ordering::Equal), Some(_)) => self.tied += 1,
            (Some(predicted), Some(gold)) if predicted == gold => self.correct += 1,
            (Some(_), Some(_)) => self.wrong += 1,
            (None, _) | (_, None) => self.undefined += 1,
        }
        let total = self.correct + self.wrong + self.tied;
        self.accuracy = (total > 0).then(|| (self.correct as f64 + self.tied as f64 / 2.0) / total as f64);
    }

    /// The accuracy over both sets of pairs.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let (correct, wrong, tied) = (self.correct + other.correct, self.wrong + other.wrong, self.tied + other.tied);
        let total = correct + wrong + tied;
        let accuracy = (total > 0).then(|| (correct as f64 + tied as f64 / 2.0) / total as f64);
        Self { correct, wrong, tied, undefined: self.undefined + other.undefined, accuracy }
    }
}

/// Pairwise accuracy of `(predicted, gold)` scores: each unordered pair of a context whose gold differs by more than
/// rounding ([`equalised`]), once.
///
/// # Panics
/// The lists of a context differ in length.
pub fn pairwise_accuracy<'a>(contexts: impl IntoIterator<Item = (&'a [f64], &'a [f64])>) -> PairwiseAccuracy {
    let mut result = PairwiseAccuracy::default();
    for (predicted, gold) in contexts {
        assert_eq!(predicted.len(), gold.len(), "each candidate has a prediction and a gold score");
        // By context: the rounding tolerance depends on the magnitude of the compared values.
        let (predicted, gold) = (equalised(predicted), equalised(gold));
        for i in 0..gold.len() {
            for j in 0..i {
                result.add(predicted[i].partial_cmp(&predicted[j]), gold[i].partial_cmp(&gold[j]));
            }
        }
    }
    result
}

/// Accuracy of single comparisons (paper 002, Table 7): p above `threshold` predicts the first as better, p at the
/// threshold is a tie. Each presentation order counts separately, so a pair judged in both orders counts twice.
///
/// # Panics
/// A comparison names a candidate outside `gold`.
pub fn comparison_accuracy(comparisons: &[crate::PairComparison], gold: &[f64], threshold: f64) -> PairwiseAccuracy {
    let gold = equalised(gold);
    let mut result = PairwiseAccuracy::default();
    for c in comparisons.iter().filter(|c| c.i != c.j) {
        result.add(c.p.partial_cmp(&threshold), gold[c.i].partial_cmp(&gold[c.j]));
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::PairComparison;

    #[test]
    fn a_perfect_judge_scores_one_and_a_reversed_one_zero() {
        let gold = [3.0, 1.0, 2.0, 2.0];
        let reversed = gold.map(|g| -g);
        let perfect = pairwise_accuracy([(&gold[..], &gold[..])]);
        assert_eq!((perfect.accuracy, perfect.correct), (Some(1.0), 5));
        assert_eq!(pairwise_accuracy([(&reversed[..], &gold[..])]).accuracy, Some(0.0));
        assert_eq!(
            pairwise_accuracy([(&[1.0; 4][..], &gold[..])]),
            PairwiseAccuracy { tied: 5, accuracy: Some(0.5), ..Default::default() }
        );
        assert_eq!(pairwise_accuracy([(&gold[..], &[1.0; 4][..])]).accuracy, None);
    }

    #[test]
    fn scores_that_rounding_alone_parts_are_tied() {
        let found = pairwise_accuracy([(&[0.1 + 0.2, 0.3][..], &[1.0, 2.0][..])]);
        assert_eq!(found, PairwiseAccuracy { tied: 1, accuracy: Some(0.5), ..Default::default() });
    }

    #[test]
    fn comparisons_are_counted_one_by_one_against_the_threshold() {
        let c = |i, j, p| PairComparison { i, j, p };
        let all = [c(0, 1, 0.8), c(1, 0, 0.7), c(0, 2, 0.6), c(2, 2, 0.9), c(1, 2, 0.1)];
        let result = comparison_accuracy(&all, &[3.0, 1.0, 1.0], 0.6);
        assert_eq!((result.correct, result.wrong, result.tied, result.accuracy), (1, 1, 1, Some(0.5)));
    }

    proptest! {
        #[test]
        fn merging_equals_counting_together(
            a in prop::collection::vec((0_u8..4, 0_u8..4), 0..8),
            b in prop::collection::vec((0_u8..4, 0_u8..4), 0..8),
        ) {
            let lists = |v: &[(u8, u8)]| -> (Vec<f64>, Vec<f64>) { v.iter().map(|&(p, g)| (f64::from(p), f64::from(g))).unzip() };
            let ((pa, ga), (pb, gb)) = (lists(&a), lists(&b));
            let together = pairwise_accuracy([(&pa[..], &ga[..]), (&pb[..], &gb[..])]);
            let merged = pairwise_accuracy([(&pa[..], &ga[..])]).merged(pairwise_accuracy([(&pb[..], &gb[..])]));
            prop_assert_eq!(together, merged);
        }
    }
}
