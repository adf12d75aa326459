//! Selects the verdicts that can be left to a judge, with a bound on human disagreement with them (Jung et al. 2024,
//! arXiv:2407.18370, §2.1).

use std::ops::RangeInclusive;

use serde::Serialize;

use crate::significance::beta_quantile;

/// A verdict with a human label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CheckedVerdict {
    /// Confidence of the judge; any scale.
    pub confidence: f64,
    /// Whether the human label differs.
    pub disagrees: bool,
}

/// The guarantee for the trusted verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SelectionRule {
    alpha: f64,
    delta: f64,
}

/// Invalid rule.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error, miette::Diagnostic)]
#[error("{what} is {value}, and must lie between 0 and 1")]
pub struct SelectionRuleError {
    /// `alpha` or `delta`.
    what: &'static str,
    value: f64,
}

/// The trusted verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Selection {
    /// Minimum confidence of a trusted verdict.
    pub threshold: f64,
    /// Number of labelled verdicts among them.
    pub labelled: usize,
    /// Number of labels that disagree.
    pub disagreements: usize,
    /// Upper bound of the disagreement, exceeded with probability δ at most.
    pub bound: f64,
}

/// Why no verdict can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, thiserror::Error, miette::Diagnostic)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum NoSelection {
    /// Too few labels, even without a single disagreement.
    #[error("at least {needed} labelled samples are needed, you have {labels}")]
    TooFew {
        /// Labels of eligible verdicts.
        labels: usize,
        /// Minimum number of labels.
        needed: usize,
    },
    /// The most confident verdicts disagree with people too often.
    #[error(
        "{disagreements} of the {labelled} surest verdicts disagree with people: up to {bound:.3} of such verdicts may"
    )]
    Disagrees {
        /// Number of the most confident verdicts in the test.
        labelled: usize,
        /// Those that disagree.
        disagreements: usize,
        /// Upper bound of the disagreement, exceeded with probability δ at most.
        bound: f64,
    },
}

/// Upper limit of a search for the number of labels.
const MOST_LABELS: usize = 100_000;

impl SelectionRule {
    /// Allows disagreement with at most a share `alpha` of trusted verdicts, except with probability `delta` over the
    /// draw of labels.
    ///
    /// # Errors
    /// Either value is not a share.
    pub fn new(alpha: f64, delta: f64) -> Result<Self, SelectionRuleError> {
        for (what, value) in [("alpha", alpha), ("delta", delta)] {
            if !(value > 0.0 && value < 1.0) {
                return Err(SelectionRuleError { what, value });
            }
        }
        Ok(Self { alpha, delta })
    }

    /// Minimum number of labels if none disagrees: the smallest n with (1 − α)ⁿ ≤ δ.
    pub fn labels_needed(self) -> usize {
        (self.delta.ln() / (-self.alpha).ln_1p()).ceil() as usize
    }

    /// Number of further labels needed, if the most confident verdicts disagree at the same rate as so far. `None` if
    /// they disagree too often for any number.
    pub fn still_needed(self, why: NoSelection) -> Option<usize> {
        let (labelled, disagreements) = match why {
            NoSelection::TooFew { labels, needed } => return Some(needed.saturating_sub(labels)),
            NoSelection::Disagrees { labelled, disagreements, .. } => (labelled, disagreements),
        };
        if disagreements == 0 {
            return Some(self.labels_needed().saturating_sub(labelled));
        }
        if disagreements as f64 >= self.alpha * labelled as f64 {
            return None;
        }
        // One more disagreement raises the bound sharply, one more label lowers it: for each number of disagreements,
        // check the largest number of labels first.
        let holds = |disagreements: usize, labels: usize| self.bound(disagreements, labels) <= self.alpha;
        let of = |more: usize| more * labelled / disagreements;
        let most = MOST_LABELS * disagreements / labelled;
        let seen = (disagreements..=most).find(|more| holds(*more, of(*more)))?;
        let enough = first(of(seen - 1) + 1..=of(seen), |labels| holds(seen, labels))?;
        Some(enough.saturating_sub(labelled))
    }

    /// Minimum number of further labels that could pass the first test: all more confident than the existing ones and
    /// without disagreement. Each may push a disagreement out of the test.
    pub fn fewest_needed(self, verdicts: &[CheckedVerdict]) -> usize {
        let mut surest: Vec<CheckedVerdict> = verdicts.to_vec();
        surest.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
        let passes = |more: &usize| {
            let first = self.first_test(verdicts.len() + more);
            let kept = surest.iter().take(first.saturating_sub(*more));
            // With fewer labels than the test needs, it is not made.
            verdicts.len() + more >= first && self.bound(kept.filter(|one| one.disagrees).count(), first) <= self.alpha
        };
        (1..MOST_LABELS).find(passes).unwrap_or(MOST_LABELS)
    }

    /// Number of most confident labels in the first test. A single disagreement among the minimum number would end the
    /// procedure, so it uses half of the labels, at most thirty.
    fn first_test(self, labels: usize) -> usize {
        self.labels_needed().max((labels / 2).min(30))
    }

    /// Upper bound of the disagreement rate r, with BinomCDF(k; n, r) = δ.
    fn bound(self, disagreements: usize, labelled: usize) -> f64 {
        if disagreements == labelled {
            return 1.0;
        }
        beta_quantile(1.0 - self.delta, disagreements as f64 + 1.0, (labelled - disagreements) as f64)
    }

    /// Tests thresholds in descending order until the bound exceeds α. Thresholds must not depend on the labels. Each
    /// is tested only if all higher ones have passed, so no correction for multiple tests is needed (fixed-sequence
    /// testing).
    ///
    /// # Errors
    /// The reason if nothing can be trusted.
    pub fn select(self, verdicts: &[CheckedVerdict], thresholds: &[f64]) -> Result<Selection, NoSelection> {
        let needed = self.labels_needed();
        let last = thresholds.last().copied().unwrap_or(f64::INFINITY);
        let labels = verdicts.iter().filter(|verdict| verdict.confidence >= last).count();
        let first = self.first_test(labels);
        let mut found = Err(NoSelection::TooFew { labels, needed });
        for &threshold in thresholds {
            let sure = || verdicts.iter().filter(|verdict| verdict.confidence >= threshold);
            let (labelled, disagreements) = (sure().count(), sure().filter(|verdict| verdict.disagrees).count());
            // The number of labels is independent of their values, so skipping a threshold is not a test.
            if labelled < first {
                continue;
            }
            let bound = self.bound(disagreements, labelled);
            if bound > self.alpha {
                let too_often = NoSelection::Disagrees { labelled, disagreements, bound };
                return found.or(Err(too_often));
            }
            found = Ok(Selection { threshold, labelled, disagreements, bound });
        }
        found
    }
}

/// At most `most` thresholds, descending: quantiles of the confidence of all verdicts, labelled or not. The last keeps
/// all.
pub fn thresholds(confidences: &[f64], most: usize) -> Vec<f64> {
    let mut sorted = confidences.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let count = most.min(sorted.len());
    let mut chosen: Vec<f64> = (1..=count).map(|k| sorted[k * sorted.len() / count - 1]).collect();
    chosen.dedup();
    chosen
}

/// The first value in the range that satisfies `holds`, which must be monotone.
fn first(within: RangeInclusive<usize>, holds: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut low, mut high) = within.into_inner();
    if low > high || !holds(high) {
        return None;
    }
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    use super::*;

    fn uniform(random: &mut ChaCha8Rng) -> f64 {
        (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn what_is_still_needed_is_enough_and_no_label_more() {
        let rule = SelectionRule::new(0.2, 0.1).expect("a rule");
        let broken = |labelled, disagreements| NoSelection::Disagrees { labelled, disagreements, bound: 1.0 };
        let needed = rule.still_needed(broken(40, 6)).expect("15% is below α");
        let at = |labels: usize| rule.bound((labels * 6).div_ceil(40), labels);
        assert!((40..40 + needed).all(|labels| at(labels) > 0.2) && at(40 + needed) <= 0.2, "{needed}");
        // 44 of 264 is the first number with a valid bound.
        assert_eq!(rule.still_needed(broken(30, 5)), Some(234));
        assert_eq!(rule.still_needed(broken(40, 9)), None, "22% is above α, and stays there");
        assert_eq!(rule.still_needed(NoSelection::TooFew { labels: 4, needed: 11 }), Some(7));
        // Fewer labels suffice than between the largest numbers of consecutive disagreement counts: the first number of
        // all.
        for (labelled, disagreements, alpha, delta) in [(34, 9, 0.3, 0.2), (31, 6, 0.2, 0.1), (30, 13, 0.45, 0.1)] {
            let rule = SelectionRule::new(alpha, delta).expect("a rule");
            let holds = |labels: &usize| rule.bound((labels * disagreements).div_ceil(labelled), *labels) <= alpha;
            let expected = (labelled..20_000).find(holds).map(|labels| labels - labelled);
            assert_eq!(rule.still_needed(broken(labelled, disagreements)), expected, "{disagreements} of {labelled}");
        }
    }

    #[test]
    fn the_bound_is_clopper_and_pearsons_and_the_labels_needed_are_its_zero() {
        let rule = SelectionRule::new(0.1, 0.1).expect("a rule");
        assert_eq!(rule.labels_needed(), 22);
        // scipy's beta.ppf(0.9, 4, 47).
        assert!((rule.bound(3, 50) - 0.128_756_422_586_6).abs() < 1e-9, "{}", rule.bound(3, 50));
        assert!(rule.bound(0, 22) <= 0.1 && rule.bound(0, 21) > 0.1);
        assert_eq!(rule.bound(5, 5), 1.0);
        let wrong = SelectionRule::new(0.0, 0.1).expect_err("promises nothing");
        assert_eq!(wrong.to_string(), "alpha is 0, and must lie between 0 and 1");
        assert!(SelectionRule::new(0.1, 1.0).is_err() && SelectionRule::new(f64::NAN, 0.1).is_err());
    }

    #[test]
    fn too_few_labels_and_a_judge_that_is_wrong_when_sure_are_told() {
        let rule = SelectionRule::new(0.1, 0.1).expect("a rule");
        let verdicts = |count: usize, disagrees| vec![CheckedVerdict { confidence: 1.0, disagrees }; count];
        assert_eq!(rule.select(&verdicts(21, false), &[1.0]), Err(NoSelection::TooFew { labels: 21, needed: 22 }));
        assert!(rule.select(&verdicts(22, false), &[1.0]).is_ok_and(|found| found.labelled == 22));
        let wrong = rule.select(&verdicts(40, true), &[1.0]);
        assert_eq!(wrong, Err(NoSelection::Disagrees { labelled: 40, disagreements: 40, bound: 1.0 }));
    }

    /// Twelve labels, the tenth most confident of which disagrees: 21 more are needed at that rate, two more confident
    /// ones that agree suffice, and one that disagrees changes nothing.
    #[test]
    fn two_agreeing_labels_may_be_enough_and_the_range_of_what_is_needed_says_so() {
        let rule = SelectionRule::new(0.2, 0.1).expect("a rule");
        let at = |confidence: f64, disagrees: bool| CheckedVerdict { confidence, disagrees };
        let mut verdicts: Vec<CheckedVerdict> = (0..12_u8).map(|k| at(1.0 - f64::from(k) / 16.0, k == 9)).collect();
        let grid: Vec<f64> = (0..=32).map(|k| 2.0 - f64::from(k) / 16.0).collect();
        let why = rule.select(&verdicts, &grid).expect_err("one of eleven disagrees");
        assert_eq!(why, NoSelection::Disagrees { labelled: 11, disagreements: 1, bound: rule.bound(1, 11) });
        assert_eq!((rule.still_needed(why), rule.fewest_needed(&verdicts)), (Some(21), 2));
        verdicts.push(at(0.2, true));
        let again = rule.select(&verdicts, &grid).expect_err("the same test");
        assert_eq!((rule.still_needed(again), rule.fewest_needed(&verdicts)), (Some(21), 2));
        verdicts.extend([at(1.9, false), at(1.8, false)]);
        assert!(rule.select(&verdicts, &grid).is_ok_and(|found| found.labelled == 11), "they push it out of the test");
    }

    #[test]
    fn thresholds_are_quantiles_and_end_with_all() {
        let confidences: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(thresholds(&confidences, 4), [75.0, 50.0, 25.0, 0.0]);
        assert_eq!(thresholds(&[1.0, 1.0, 1.0], 2), [1.0]);
        assert!(thresholds(&[], 4).is_empty());
    }

    /// A judge whose verdicts are wrong with probability ½ − c / 2 at confidence c.
    #[test]
    fn disagreement_exceeds_alpha_in_no_more_than_delta_of_draws() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        for (alpha, delta) in [(0.2, 0.1), (0.3, 0.2)] {
            let rule = SelectionRule::new(alpha, delta).expect("a rule");
            let grid: Vec<f64> = (0..20).map(|k| 1.0 - f64::from(k) / 20.0).collect();
            let (mut wrong, mut kept, draws) = (0, 0.0, 2000);
            for _ in 0..draws {
                let verdicts: Vec<CheckedVerdict> = (0..200)
                    .map(|_| {
                        let confidence = uniform(&mut random);
                        CheckedVerdict { confidence, disagrees: uniform(&mut random) < 0.5 - confidence / 2.0 }
                    })
                    .collect();
                if let Ok(found) = rule.select(&verdicts, &grid) {
                    // The mean of ½ − c / 2 over c from the threshold to 1.
                    let truth = 0.5 - (1.0 + found.threshold) / 4.0;
                    wrong += usize::from(truth > alpha);
                    kept += 1.0 - found.threshold;
                }
            }
            let (share, kept) = (wrong as f64 / f64::from(draws), kept / f64::from(draws));
            assert!(share <= delta + 0.02, "{share} of draws exceed {alpha}");
            // The bound is not too conservative: the largest share that could be kept is 4α.
            assert!(kept > 0.5 * (4.0 * alpha).min(1.0), "{kept} kept at {alpha}");
        }
    }
}
