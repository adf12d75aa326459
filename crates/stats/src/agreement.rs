//! How well predicted scores agree with gold: per context, per system, per pair.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::correlation::{is_constant, spearman};

/// Spearman per context, then the mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PerContext {
    /// The mean over the counted contexts; absent where there is none.
    pub mean: Option<f64>,
    /// Contexts in the mean, those with constant predictions among them.
    pub contexts: usize,
    /// Contexts left out because their gold scores are all equal: nothing could be right or wrong about them.
    pub skipped_constant_gold: usize,
    /// Contexts left out because they have fewer than two scored candidates.
    pub skipped_too_few: usize,
    /// Contexts left out because a value is not finite.
    pub skipped_not_finite: usize,
    /// Contexts whose predictions are all equal though gold is not: each counts as a correlation of 0.
    pub constant_predictions: usize,
}

/// The mean of each context's Spearman correlation between `(predicted, gold)` scores of its candidates.
///
/// # Panics
/// Where a context's lists differ in length.
pub fn per_context_spearman<'a>(contexts: impl IntoIterator<Item = (&'a [f64], &'a [f64])>) -> PerContext {
    let mut result = PerContext {
        mean: None,
        contexts: 0,
        skipped_constant_gold: 0,
        skipped_too_few: 0,
        skipped_not_finite: 0,
        constant_predictions: 0,
    };
    let mut sum = 0.0;
    for (predicted, gold) in contexts {
        assert_eq!(predicted.len(), gold.len(), "each candidate has a prediction and a gold score");
        if gold.len() < 2 {
            result.skipped_too_few += 1;
        } else if predicted.iter().chain(gold).any(|v| !v.is_finite()) {
            result.skipped_not_finite += 1;
        } else if is_constant(gold) {
            result.skipped_constant_gold += 1;
        } else {
            result.contexts += 1;
            match spearman(predicted, gold) {
                Some(rho) => sum += rho,
                None => result.constant_predictions += 1,
            }
        }
    }
    result.mean = (result.contexts > 0).then(|| sum / result.contexts as f64);
    result
}

/// One candidate's scores, with the system that wrote it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SystemScore<'a> {
    /// The candidate's id, the same in each context.
    pub system: &'a str,
    /// The predicted score; finite.
    pub predicted: f64,
    /// The gold score; finite.
    pub gold: f64,
}

/// Spearman between the systems' mean predicted and mean gold scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SystemLevel {
    /// The correlation; absent with fewer than two systems, or where the means on one side are all equal.
    pub spearman: Option<f64>,
    /// Systems that took part.
    pub systems: usize,
    /// Systems left out because too few contexts have a score of theirs.
    pub excluded: usize,
    /// Contexts with any score.
    pub contexts: usize,
}

/// System-level Spearman over the scores of each context.
///
/// A system takes part where it has scores in at least the share `coverage` (0 to 1) of the contexts that have any. With 1 all means are
/// over the same contexts; with less they are over those that the system has.
///
/// A system twice in one context counts once in coverage and with each score in the means.
pub fn system_level_spearman<'a>(contexts: &[Vec<SystemScore<'a>>], coverage: f64) -> SystemLevel {
    #[derive(Default)]
    struct Sums {
        predicted: f64,
        gold: f64,
        scores: usize,
        contexts: usize,
        last: Option<usize>,
    }

    let mut systems: BTreeMap<&'a str, Sums> = BTreeMap::new();
    for (number, context) in contexts.iter().enumerate() {
        for score in context {
            let sums = systems.entry(score.system).or_default();
            sums.predicted += score.predicted;
            sums.gold += score.gold;
            sums.scores += 1;
            if sums.last.replace(number) != Some(number) {
                sums.contexts += 1;
            }
        }
    }
    let with_scores = contexts.iter().filter(|c| !c.is_empty()).count();
    let needed = coverage * with_scores as f64;
    let part: Vec<&Sums> = systems.values().filter(|s| s.contexts as f64 >= needed).collect();
    let mean = |total: fn(&Sums) -> f64| part.iter().map(|s| total(s) / s.scores as f64).collect::<Vec<f64>>();
    SystemLevel {
        spearman: spearman(&mean(|s| s.predicted), &mean(|s| s.gold)),
        systems: part.len(),
        excluded: systems.len() - part.len(),
        contexts: with_scores,
    }
}

/// Over pairs of candidates of one context whose gold scores differ: does the prediction order them as gold does?
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PairwiseAccuracy {
    /// Pairs ordered as in gold.
    pub correct: usize,
    /// Pairs ordered the other way round.
    pub wrong: usize,
    /// Pairs whose predictions are equal.
    pub tied: usize,
    /// Pairs left out because a value is not a number.
    pub undefined: usize,
    /// (correct + tied / 2) / (correct + wrong + tied); absent where there is no pair.
    pub accuracy: Option<f64>,
}

impl PairwiseAccuracy {
    /// Counts one pair by how its predictions and its gold scores compare; a tie in gold is no pair.
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

    /// The accuracy over the pairs of both.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let (correct, wrong, tied) = (self.correct + other.correct, self.wrong + other.wrong, self.tied + other.tied);
        let total = correct + wrong + tied;
        let accuracy = (total > 0).then(|| (correct as f64 + tied as f64 / 2.0) / total as f64);
        Self { correct, wrong, tied, undefined: self.undefined + other.undefined, accuracy }
    }
}

/// Pairwise accuracy of `(predicted, gold)` scores: each unordered pair of each context whose gold differs, once.
///
/// # Panics
/// Where a context's lists differ in length.
pub fn pairwise_accuracy<'a>(contexts: impl IntoIterator<Item = (&'a [f64], &'a [f64])>) -> PairwiseAccuracy {
    let mut result = PairwiseAccuracy::default();
    for (predicted, gold) in contexts {
        assert_eq!(predicted.len(), gold.len(), "each candidate has a prediction and a gold score");
        for i in 0..gold.len() {
            for j in 0..i {
                result.add(predicted[i].partial_cmp(&predicted[j]), gold[i].partial_cmp(&gold[j]));
            }
        }
    }
    result
}

/// Accuracy of single comparisons (paper 002, Table 7): p above `threshold` says that the first is better, at the threshold is a tie. Each
/// judged order counts for itself, so a pair judged both ways counts twice.
///
/// # Panics
/// Where a comparison names a candidate without a place in `gold`.
pub fn comparison_accuracy(comparisons: &[crate::Comparison], gold: &[f64], threshold: f64) -> PairwiseAccuracy {
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
    use crate::{Comparison, golden};

    #[test]
    fn constant_gold_is_skipped_and_constant_predictions_count_as_zero() {
        let contexts: [(&[f64], &[f64]); 5] = [
            (&[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]),
            (&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]),
            (&[1.0, 2.0, 3.0], &[4.0, 4.0, 4.0]),
            (&[1.0], &[4.0]),
            (&[1.0, f64::NAN], &[4.0, 5.0]),
        ];
        let result = per_context_spearman(contexts);
        assert_eq!(result.mean, Some(0.5));
        assert_eq!((result.contexts, result.constant_predictions), (2, 1));
        assert_eq!((result.skipped_constant_gold, result.skipped_too_few, result.skipped_not_finite), (1, 1, 1));
        assert_eq!(per_context_spearman([(&[1.0, 2.0][..], &[4.0, 4.0][..])]).mean, None);
    }

    #[test]
    fn per_context_mean_equals_scipys() {
        let result = per_context_spearman(golden::CORRELATIONS.iter().map(|c| (c.x, c.y)));
        assert!((result.mean.expect("defined") - golden::MEAN_SPEARMAN).abs() < 1e-12);
    }

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
    fn comparisons_are_counted_one_by_one_against_the_threshold() {
        let c = |i, j, p| Comparison { i, j, p };
        let all = [c(0, 1, 0.8), c(1, 0, 0.7), c(0, 2, 0.6), c(2, 2, 0.9), c(1, 2, 0.1)];
        let result = comparison_accuracy(&all, &[3.0, 1.0, 1.0], 0.6);
        assert_eq!((result.correct, result.wrong, result.tied, result.accuracy), (1, 1, 1, Some(0.5)));
    }

    fn score(system: &str, predicted: f64, gold: f64) -> SystemScore<'_> {
        SystemScore { system, predicted, gold }
    }

    #[test]
    fn systems_are_correlated_by_their_means() {
        let contexts = [
            vec![score("a", 1.0, 9.0), score("b", 2.0, 1.0), score("c", 5.0, 5.0)],
            vec![score("a", 3.0, 1.0), score("b", 8.0, 3.0), score("c", 9.0, 6.0)],
            vec![],
        ];
        // Means: predicted 2, 5, 7; gold 5, 2, 5.5: ranks 1 2 3 against 2 1 3.
        let result = system_level_spearman(&contexts, 1.0);
        assert_eq!((result.systems, result.excluded, result.contexts), (3, 0, 2));
        assert!((result.spearman.expect("defined") - 0.5).abs() < 1e-12);
    }

    #[test]
    fn a_system_with_too_few_contexts_is_left_out_and_counted() {
        let contexts =
            [vec![score("a", 1.0, 1.0), score("b", 2.0, 2.0), score("c", 0.0, 9.0)], vec![score("a", 1.0, 1.0), score("b", 2.0, 2.0)]];
        let strict = system_level_spearman(&contexts, 1.0);
        assert_eq!((strict.systems, strict.excluded, strict.spearman), (2, 1, Some(1.0)));
        let lenient = system_level_spearman(&contexts, 0.5);
        assert_eq!((lenient.systems, lenient.excluded), (3, 0));
        assert_eq!(system_level_spearman(&[], 1.0).spearman, None);
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
