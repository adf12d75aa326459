//! Position bias of a comparative judge: measurement and correction (paper 002, §3.5).

use serde::{Deserialize, Serialize};

/// How often each position is selected (eq. 8).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PositionBias {
    /// Share of comparisons won by the first position; a tie counts as half a win.
    pub p_a: f64,
    /// Share won by the second position: 1 − `p_a`.
    pub p_b: f64,
    /// Comparisons whose probability is exactly the threshold.
    pub ties: usize,
    /// Number of comparisons.
    pub comparisons: usize,
}

impl PositionBias {
    /// Measures position bias over the probabilities p that the first of two is better, decided at `threshold`. `None`
    /// without comparisons, or if one is NaN.
    ///
    /// Only for a symmetric set (each pair in both orders) does a value off 0.5 depend on the judge alone and not on
    /// the candidates.
    pub fn measure(probabilities: &[f64], threshold: f64) -> Option<Self> {
        if probabilities.is_empty() || probabilities.iter().any(|p| p.is_nan()) {
            return None;
        }
        let first = probabilities.iter().filter(|&&p| p > threshold).count();
        let ties = probabilities.iter().filter(|&&p| p == threshold).count();
        let second = probabilities.len() - first - ties;
        let share = |wins: usize| (wins as f64 + ties as f64 / 2.0) / probabilities.len() as f64;
        Some(Self { p_a: share(first), p_b: share(second), ties, comparisons: probabilities.len() })
    }

    /// Whether ties are frequent (at least a tenth, and two), so that the threshold leaves a visible share undecided.
    /// The single tie at the median of an odd number does not count.
    pub fn many_ties(&self) -> bool {
        self.ties >= 2 && self.ties * 10 > self.comparisons
    }
}

/// The decision threshold at which both positions are selected equally often, and the equivalent reweighting.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PositionDebias {
    /// The threshold τ of eq. 10: the median of p, or the midpoint of the middle two.
    pub tau: f64,
    /// The weight α = (1 − τ) / τ of eq. 9; absent if τ is 0, where it is infinite.
    pub alpha: Option<f64>,
    /// Comparisons whose probability is exactly τ, which are ties; with several of them P(A) at τ may differ from 0.5
    /// (see `after`).
    pub at_tau: usize,
    /// Position bias at the threshold 0.5.
    pub before: PositionBias,
    /// Position bias at the threshold τ: exactly 0.5 unless several probabilities equal τ, otherwise as close as a
    /// threshold can get.
    pub after: PositionBias,
}

impl PositionDebias {
    /// Estimates τ from the probabilities p that the first of two is better. `None` without any, or if one is not in
    /// [0, 1].
    ///
    /// The set should be symmetric (each pair in both orders): otherwise true differences between the candidates are
    /// mistaken for bias.
    pub fn estimate(probabilities: &[f64]) -> Option<Self> {
        if probabilities.iter().any(|p| !(0.0..=1.0).contains(p)) {
            return None;
        }
        let tau = median(probabilities)?;
        let before = PositionBias::measure(probabilities, 0.5)?;
        let after = PositionBias::measure(probabilities, tau)?;
        let alpha = (tau > 0.0).then(|| (1.0 - tau) / tau).filter(|alpha| alpha.is_finite());
        Some(Self { tau, alpha, at_tau: after.ties, before, after })
    }

    /// [`reweighted`] by this τ.
    pub fn apply(&self, p: f64) -> f64 {
        reweighted(p, self.tau)
    }
}

/// Eq. 9: the probability `p` in [0, 1] reweighted by the threshold `tau`.
///
/// Non-decreasing in p; exactly 0.5 at τ, above it if and only if p > τ, and below it if and only if p < τ. Deciding it
/// at 0.5 is therefore deciding p at τ. For τ = 0 or 1 it is the limit: certainty on either side of τ.
pub fn reweighted(p: f64, tau: f64) -> f64 {
    if p == tau {
        return 0.5;
    }
    // 1 / (1 + odds against): each step is monotone in floating point, unlike the form of eq. 9.
    let against = ((1.0 - p) * tau) / (p * (1.0 - tau));
    let weighted = 1.0 / (1.0 + against);
    // A p next to τ may round to 0.5, which would be a tie.
    if p > tau { weighted.max(0.5_f64.next_up()) } else { weighted.min(0.5_f64.next_down()) }
}

/// The middle value, or the mean of the middle two; `None` if empty.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(sorted[sorted.len() / 2 - 1], upper)) }
}

/// Contradiction between two orders of one comparison: `|p_ij − (1 − p_ji)|`, 0 for a judge that ignores the order.
pub fn order_gap(p_ij: f64, p_ji: f64) -> f64 {
    (p_ij - (1.0 - p_ji)).abs()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_judge_who_always_says_a_is_measured_as_that() {
        let bias = PositionBias::measure(&[0.9, 0.8, 0.6, 0.5], 0.5).expect("some");
        assert_eq!((bias.p_a, bias.p_b, bias.ties, bias.comparisons), (0.875, 0.125, 1, 4));
        assert_eq!(PositionBias::measure(&[], 0.5), None);
        assert_eq!(PositionBias::measure(&[f64::NAN], 0.5), None);
    }

    #[test]
    fn the_threshold_is_the_median_and_alpha_its_odds_against() {
        let debias = PositionDebias::estimate(&[0.9, 0.6, 0.8, 0.9]).expect("some");
        assert!((debias.tau - 0.85).abs() < 1e-15);
        assert!((debias.alpha.expect("finite") - 0.15 / 0.85).abs() < 1e-12);
        assert_eq!((debias.before.p_a, debias.after.p_a), (1.0, 0.5));
        // Eq. 9 by hand for p = 0.9: 0.9 α / (0.9 α + 0.1) with α = 3/17.
        assert!((debias.apply(0.9) - 27.0 / 44.0).abs() < 1e-12, "{}", debias.apply(0.9));
    }

    #[test]
    fn many_values_at_the_median_are_ties_and_reported() {
        let debias = PositionDebias::estimate(&[0.2, 0.2, 0.2, 0.9]).expect("some");
        assert_eq!((debias.tau, debias.at_tau, debias.after.p_a), (0.2, 3, 0.625));
        assert_eq!(debias.apply(0.2), 0.5);
    }

    #[test]
    fn a_threshold_at_the_end_of_the_scale_gives_certainty_beside_it() {
        let zero = PositionDebias::estimate(&[0.0, 0.0, 0.3]).expect("some");
        assert_eq!((zero.tau, zero.alpha), (0.0, None));
        assert_eq!((zero.apply(0.0), zero.apply(0.3), zero.apply(1.0)), (0.5, 1.0, 1.0));
        let one = PositionDebias::estimate(&[1.0, 1.0, 0.3]).expect("some");
        assert_eq!((one.tau, one.alpha), (1.0, Some(0.0)));
        assert_eq!((one.apply(1.0), one.apply(0.3), one.apply(0.0)), (0.5, 0.0, 0.0));
    }

    #[test]
    fn what_is_no_probability_is_refused() {
        assert_eq!(PositionDebias::estimate(&[]), None);
        assert_eq!(PositionDebias::estimate(&[0.5, 1.5]), None);
        assert_eq!(PositionDebias::estimate(&[f64::NAN]), None);
    }

    #[test]
    fn a_judge_who_ignores_the_order_has_no_gap() {
        assert_eq!(order_gap(0.75, 0.25), 0.0);
        assert_eq!(order_gap(1.0, 1.0), 1.0);
    }

    proptest! {
        #[test]
        fn a_symmetric_set_with_an_order_bias_is_debiased_exactly(
            strengths in prop::collection::vec(-3.0..3.0_f64, 2..8),
            bias in -4.0..4.0_f64,
        ) {
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let mut all = Vec::new();
            for (i, a) in strengths.iter().enumerate() {
                for (j, b) in strengths.iter().enumerate() {
                    if i != j {
                        all.push(sigmoid(a - b + bias));
                    }
                }
            }
            let debias = PositionDebias::estimate(&all).expect("probabilities");
            if debias.at_tau <= 1 {
                prop_assert_eq!((debias.after.p_a, debias.after.p_b), (0.5, 0.5));
            }
            let reweighted: Vec<f64> = all.iter().map(|&p| debias.apply(p)).collect();
            prop_assert_eq!(PositionBias::measure(&reweighted, 0.5), Some(debias.after));
        }

        #[test]
        fn distinct_values_are_halved_exactly(values in prop::collection::btree_set(0_u32..1000, 1..50)) {
            let values: Vec<f64> = values.into_iter().map(|v| f64::from(v) / 1000.0).collect();
            prop_assert_eq!(PositionDebias::estimate(&values).expect("probabilities").after.p_a, 0.5);
        }

        #[test]
        fn reweighting_is_monotone_and_decides_as_the_threshold(
            tau in prop_oneof![Just(0.0), Just(1.0), 0.0..=1.0_f64, Just(1e-300), Just(1.0_f64.next_down())],
            p in 0.0..=1.0_f64,
            q in prop_oneof![0.0..=1.0_f64, Just(0.0), Just(1.0)],
            near in any::<bool>(),
        ) {
            let debias = PositionDebias::estimate(&[tau]).expect("a probability");
            let (p, q) = if near { (tau.next_up().min(1.0), tau.next_down().max(0.0)) } else { (p, q) };
            let (low, high) = (debias.apply(p.min(q)), debias.apply(p.max(q)));
            prop_assert!(0.0 <= low && low <= high && high <= 1.0, "{low} {high}");
            for p in [p, q] {
                prop_assert_eq!(debias.apply(p).partial_cmp(&0.5), p.partial_cmp(&tau));
            }
        }
    }
}
