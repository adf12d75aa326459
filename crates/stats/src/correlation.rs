//! Ranks and correlation coefficients.
//!
//! A coefficient is `None` if it is undefined: fewer than two values, a constant input, or a non-finite value. It is
//! never NaN.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::equal::{equalised, is_constant};
use crate::kendall::PairCounts;
use crate::significance::correlation_p;
use crate::sum::ordered_sum;

/// A correlation coefficient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Correlation {
    /// [`pearson`].
    Pearson,
    /// [`spearman`].
    Spearman,
    /// [`kendall_tau_b`].
    Kendall,
}

/// A coefficient and its p-value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tested {
    /// In [-1, 1].
    pub coefficient: f64,
    /// Two-sided p-value of independence, as scipy's defaults; absent if undefined (Spearman of two).
    pub p: Option<f64>,
    /// Number of pairs.
    pub n: usize,
}

/// Why a correlation is undefined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error, miette::Diagnostic)]
#[serde(rename_all = "snake_case")]
pub enum Undefined {
    /// Fewer than two pairs.
    #[error("fewer than two pairs")]
    TooFew,
    /// A value is infinite or NaN.
    #[error("a value is not finite")]
    NotFinite,
    /// All gold scores are equal.
    #[error("all gold scores are equal")]
    ConstantGold,
    /// All predictions are equal.
    #[error("all scores are equal")]
    ConstantPredictions,
}

impl Correlation {
    /// All coefficients.
    pub const ALL: [Self; 3] = [Self::Pearson, Self::Spearman, Self::Kendall];

    /// Name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pearson => "pearson",
            Self::Spearman => "spearman",
            Self::Kendall => "kendall",
        }
    }

    /// Name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Pearson => "Pearson",
            Self::Spearman => "Spearman",
            Self::Kendall => "Kendall τ-b",
        }
    }

    /// The coefficient of two lists.
    ///
    /// # Panics
    /// The lists differ in length.
    pub fn coefficient(self, x: &[f64], y: &[f64]) -> Option<f64> {
        match self {
            Self::Pearson => pearson(x, y),
            Self::Spearman => spearman(x, y),
            Self::Kendall => kendall_tau_b(x, y),
        }
    }

    /// The coefficient of predicted and gold scores with its p-value, or why it is undefined.
    ///
    /// Pearson: the exact distribution for normal values (1 for two pairs). Spearman: t with n − 2 degrees of freedom.
    /// Kendall: exact without ties for up to 33 pairs or with at most one discordant pair, otherwise normal with the
    /// variance corrected for ties.
    ///
    /// # Panics
    /// The lists differ in length.
    pub fn test(self, predicted: &[f64], gold: &[f64]) -> Result<Tested, Undefined> {
        let n = predicted.len();
        let pairs = || PairCounts::count(predicted, gold).map(|pairs| (pairs.tau_b(), Some(pairs.p())));
        let tested = match self {
            Self::Pearson => {
                // Two points always lie on a line. Without a degree of freedom t is undefined, and scipy returns 1.
                pearson(predicted, gold).map(|r| (r, if n == 2 { Some(1.0) } else { correlation_p(r, n) }))
            }
            Self::Spearman => spearman(predicted, gold).map(|r| (r, correlation_p(r, n))),
            Self::Kendall => pairs(),
        };
        tested.map(|(coefficient, p)| Tested { coefficient, p, n }).ok_or_else(|| Undefined::why(predicted, gold))
    }
}

impl fmt::Display for Correlation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Undefined {
    /// The reason for lists without a defined correlation.
    pub(crate) fn why(predicted: &[f64], gold: &[f64]) -> Self {
        if predicted.len() < 2 {
            Self::TooFew
        } else if predicted.iter().chain(gold).any(|v| !v.is_finite()) {
            Self::NotFinite
        // Gold comes first: if both are constant, no metric could have been right.
        } else if is_constant(gold) {
            Self::ConstantGold
        } else {
            Self::ConstantPredictions
        }
    }
}

/// The rank of each value, from 1 for the lowest; values equal up to rounding ([`equalised`]) share their mean rank.
/// `None` if a value is NaN.
pub fn average_ranks(values: &[f64]) -> Option<Vec<f64>> {
    if values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let values = equalised(values);
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    // `==` instead of the total order: -0.0 and 0.0 are equal.
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let mean = (2 * start + equal.len() + 1) as f64 / 2.0;
        for &i in equal {
            ranks[i] = mean;
        }
        start += equal.len();
    }
    Some(ranks)
}

/// Pearson's r of two equally long lists, in [-1, 1].
///
/// # Panics
/// The lists differ in length.
pub fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "correlated lists have one length");
    cosine(&centred(x)?, &centred(y)?)
}

/// Correlation of deviations. Exactly ±1 for equal or opposite lists: the square root of a square is exact.
fn cosine(x: &[f64], y: &[f64]) -> Option<f64> {
    let sum = |a: &[f64], b: &[f64]| ordered_sum(a.iter().zip(b).map(|(a, b)| a * b));
    let r = sum(x, y) / (sum(x, x) * sum(y, y)).sqrt();
    r.is_finite().then(|| r.clamp(-1.0, 1.0))
}

/// Deviations from the mean, scaled so that the largest is ±1: squares neither overflow nor underflow.
fn centred(values: &[f64]) -> Option<Vec<f64>> {
    if is_constant(values) || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let largest = |v: &[f64]| v.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    // A power of two, so that scaling does not round.
    let scale = 2.0_f64.powi(-(largest(values).log2() as i32).clamp(-1022, 1022));
    // Relative to the lowest value: differences of close values are exact, while the mean of a large common part may
    // have a rounding error as large as they are (integers beyond 10^12).
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let scaled: Vec<f64> = values.iter().map(|v| v * scale - lowest * scale).collect();
    let mean = ordered_sum(scaled.iter().copied()) / scaled.len() as f64;
    let deviations: Vec<f64> = scaled.iter().map(|v| v - mean).collect();
    let spread = largest(&deviations);
    (spread > 0.0).then(|| deviations.into_iter().map(|d| d / spread).collect())
}

/// Spearman's ρ of two equally long lists, in [-1, 1]: Pearson's r of their average ranks. Exactly 1 for equal ranks.
///
/// # Panics
/// The lists differ in length.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "correlated lists have one length");
    if x.iter().chain(y).any(|v| !v.is_finite()) {
        return None;
    }
    // Twice the deviation of a rank from the mean rank is an integer, so all sums are exact.
    let deviations =
        |v: &[f64]| Some(average_ranks(v)?.into_iter().map(|r| 2.0 * r - (v.len() + 1) as f64).collect::<Vec<f64>>());
    cosine(&deviations(x)?, &deviations(y)?)
}

/// Kendall's τ-b of two equally long lists, in [-1, 1], in O(n log n) (Knight, 1966).
///
/// # Panics
/// The lists differ in length.
pub fn kendall_tau_b(x: &[f64], y: &[f64]) -> Option<f64> {
    PairCounts::count(x, y).map(|pairs| pairs.tau_b())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::golden::GOLDEN;

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-12)
    }

    #[test]
    fn coefficients_and_p_values_equal_scipys() {
        for case in &GOLDEN.correlations {
            for (of, (coefficient, p)) in Correlation::ALL.into_iter().zip(case.coefficients.into_iter().zip(case.p)) {
                let found = of.test(&case.x, &case.y).expect("defined");
                assert!((found.coefficient - coefficient).abs() < 1e-12, "{of} {case:?}: {found:?}");
                assert_eq!((found.p.is_some(), found.n), (p.is_some(), case.x.len()), "{of} {case:?}: {found:?}");
                // Near ±1 the last bit of a coefficient halves a p-value of 1e-8.
                let near = |a: f64, b: f64| {
                    (a - b).abs() <= 1e-10 * b.abs() || 1.0 - coefficient.abs() < 1e-9 && a.max(b) < 1e-7
                };
                assert!(p.is_none_or(|p| near(found.p.unwrap_or(9.0), p)), "{of} {case:?}: {found:?}");
            }
        }
    }

    #[test]
    fn long_lists_with_and_without_ties_equal_scipys() {
        for &(n, modulus, coefficients, p) in &GOLDEN.generated {
            let x: Vec<f64> = (0..n).map(|i| (i * 7919 % 10007 % modulus) as f64).collect();
            let y: Vec<f64> =
                (0..n).map(|i| ((3 * (i * 7919 % 10007) + i * i * 31 % 40009) % 20011 % modulus) as f64).collect();
            for (of, (coefficient, p)) in Correlation::ALL.into_iter().zip(coefficients.into_iter().zip(p)) {
                let found = of.test(&x, &y).expect("defined");
                assert!((found.coefficient - coefficient).abs() < 1e-12, "{of} {n} {modulus}: {found:?} {coefficient}");
                assert!((found.p.expect("defined") - p).abs() <= 1e-10 * p, "{of} {n} {modulus}: {found:?} {p}");
            }
        }
    }

    #[test]
    fn whole_numbers_of_any_size_are_told_apart() {
        // scipy 1.17.1: pearsonr, spearmanr and kendalltau return -1 here.
        let large: Vec<f64> = (0..4).map(|k| 1e15 + f64::from(k)).collect();
        let reversed: Vec<f64> = large.iter().rev().copied().collect();
        for of in Correlation::ALL {
            let found = of.test(&large, &reversed).expect("defined").coefficient;
            assert!((found + 1.0).abs() < 1e-12, "{of}: {found}");
        }
    }

    #[test]
    fn what_is_undefined_has_its_reason() {
        let varied = [1.0, 2.0, 4.0];
        for of in Correlation::ALL {
            assert_eq!(of.test(&varied, &[5.0; 3]), Err(Undefined::ConstantGold));
            assert_eq!(of.test(&[5.0; 3], &varied), Err(Undefined::ConstantPredictions));
            assert_eq!(of.test(&varied, &[1.0, f64::NAN, 2.0]), Err(Undefined::NotFinite));
            assert_eq!(of.test(&[f64::INFINITY; 3], &varied), Err(Undefined::NotFinite));
            assert_eq!((of.test(&[1.0], &[1.0]), of.test(&[], &[])), (Err(Undefined::TooFew), Err(Undefined::TooFew)));
        }
    }

    #[test]
    fn equal_values_share_the_mean_rank() {
        assert_eq!(average_ranks(&[3.0, 1.0, 3.0, 2.0]), Some(vec![3.5, 1.0, 3.5, 2.0]));
        assert_eq!(average_ranks(&[0.0, -0.0]), Some(vec![1.5, 1.5]));
        assert_eq!(average_ranks(&[]), Some(vec![]));
        assert_eq!(average_ranks(&[f64::NAN]), None);
    }

    #[test]
    fn what_is_undefined_is_none() {
        let varied = [1.0, 2.0, 4.0];
        for other in [[5.0; 3], [1.0, f64::NAN, 2.0], [1.0, f64::INFINITY, 2.0]] {
            for f in [pearson, spearman, kendall_tau_b] {
                assert_eq!((f(&varied, &other), f(&other, &varied)), (None, None), "{other:?}");
            }
        }
        assert_eq!((pearson(&[], &[]), spearman(&[1.0], &[1.0]), kendall_tau_b(&[1.0], &[1.0])), (None, None, None));
    }

    #[test]
    fn extreme_magnitudes_neither_overflow_nor_vanish() {
        for scale in [1e307, 1e-320] {
            let x: Vec<f64> = [1.0, 2.0, 4.0].iter().map(|v| v * scale).collect();
            assert!(pearson(&x, &[1.0, 2.0, 4.0]).is_some_and(|r| (r - 1.0).abs() < 1e-3), "{scale}");
        }
    }

    fn lists() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
        prop::collection::vec((-4_i8..5, -4_i8..5), 0..40)
            .prop_map(|v| v.into_iter().map(|(x, y)| (f64::from(x), f64::from(y))).unzip())
    }

    fn tau_by_definition(x: &[f64], y: &[f64]) -> Option<f64> {
        let sign = |a: f64, b: f64| a.partial_cmp(&b).map_or(0.0, |o| f64::from(o as i8));
        let pairs = || (0..x.len()).flat_map(|i| (0..i).map(move |j| (sign(x[i], x[j]), sign(y[i], y[j]))));
        let sum = |f: fn((f64, f64)) -> f64| pairs().map(f).sum::<f64>();
        let (sx, sy) = (sum(|(a, _)| a * a), sum(|(_, b)| b * b));
        (sx > 0.0 && sy > 0.0).then(|| sum(|(a, b)| a * b) / (sx * sy).sqrt())
    }

    proptest! {
        #[test]
        fn tau_equals_its_definition((x, y) in lists()) {
            if let Some(tau) = tau_by_definition(&x, &y) {
                prop_assert!(close(kendall_tau_b(&x, &y), tau));
            } else {
                prop_assert_eq!(kendall_tau_b(&x, &y), None);
            }
        }

        #[test]
        fn coefficients_are_symmetric_bounded_and_turn_with_the_sign((x, y) in lists()) {
            let negative: Vec<f64> = y.iter().map(|v| -v).collect();
            for f in [pearson, spearman, kendall_tau_b] {
                let (r, turned) = (f(&x, &y), f(&y, &x));
                prop_assert_eq!(r.is_some(), !is_constant(&x) && !is_constant(&y));
                if let Some(r) = r {
                    prop_assert!((-1.0..=1.0).contains(&r) && close(turned, r) && close(f(&x, &negative), -r));
                }
            }
        }

        #[test]
        fn ranks_sum_as_without_ties(x in prop::collection::vec(-4_i8..5, 0..40)) {
            let values: Vec<f64> = x.into_iter().map(f64::from).collect();
            let ranks = average_ranks(&values).expect("no NaN");
            prop_assert_eq!(ranks.iter().sum::<f64>(), (values.len() * (values.len() + 1)) as f64 / 2.0);
        }

        #[test]
        fn any_floats_give_a_number_or_none(v in prop::collection::vec((any::<f64>(), any::<f64>()), 0..12)) {
            let (x, y): (Vec<f64>, Vec<f64>) = v.into_iter().unzip();
            for f in [pearson, spearman, kendall_tau_b] {
                prop_assert!(f(&x, &y).is_none_or(|r| (-1.0..=1.0).contains(&r)));
            }
        }
    }
}
