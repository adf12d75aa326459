//! Kendall's τ-b and its test.

use crate::equal::equalised;
use crate::significance::two_sided_normal;

/// Maximum number of values for the exact distribution without ties, as in scipy.
const EXACT_LIMIT: u64 = 33;

/// Pair counts of two lists, in O(n log n) (Knight, 1966).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PairCounts {
    n: u64,
    all: u64,
    discordant: u64,
    tied_both: u64,
    x: TieSums,
    y: TieSums,
}

/// The ties of one list: over groups of t equal values, the sums of t(t−1)/2, t(t−1)(t−2) and t(t−1)(2t+5).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct TieSums {
    pairs: u64,
    cubic: f64,
    variance: f64,
}

impl TieSums {
    fn from_groups<'a, T: 'a>(groups: impl Iterator<Item = &'a [T]>) -> Self {
        groups.fold(Self::default(), |sums, group| {
            let t = group.len() as f64;
            Self {
                pairs: sums.pairs + pairs_of(group.len()),
                cubic: sums.cubic + t * (t - 1.0) * (t - 2.0),
                variance: sums.variance + t * (t - 1.0) * (2.0 * t + 5.0),
            }
        })
    }
}

impl PairCounts {
    /// `None` if a value is not finite or a list is constant.
    pub(crate) fn count(x: &[f64], y: &[f64]) -> Option<Self> {
        assert_eq!(x.len(), y.len(), "correlated lists have one length");
        if x.iter().chain(y).any(|v| !v.is_finite()) {
            return None;
        }
        // Adding zero makes -0.0 equal to 0.0 in the total order.
        let mut pairs: Vec<(f64, f64)> =
            equalised(x).into_iter().zip(equalised(y)).map(|(x, y)| (x + 0.0, y + 0.0)).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let x_ties = TieSums::from_groups(pairs.chunk_by(|a, b| a.0 == b.0));
        let tied_both = TieSums::from_groups(pairs.chunk_by(|a, b| a == b)).pairs;
        let mut ys: Vec<f64> = pairs.into_iter().map(|(_, y)| y).collect();
        let discordant = sort_counting_swaps(&mut ys);
        // Counting has sorted them, so equal values are adjacent.
        let y_ties = TieSums::from_groups(ys.chunk_by(|a, b| a == b));
        let all = pairs_of(x.len());
        let defined = x_ties.pairs < all && y_ties.pairs < all;
        defined.then_some(Self { n: x.len() as u64, all, discordant, tied_both, x: x_ties, y: y_ties })
    }

    /// Concordant minus discordant pairs.
    fn excess(&self) -> f64 {
        // In floats from the start: the ties of both lists together may exceed the number of pairs.
        self.all as f64 - self.x.pairs as f64 - self.y.pairs as f64 + self.tied_both as f64
            - 2.0 * self.discordant as f64
    }

    /// τ-b, in [-1, 1].
    pub(crate) fn tau_b(&self) -> f64 {
        let tau = self.excess() / ((self.all - self.x.pairs) as f64 * (self.all - self.y.pairs) as f64).sqrt();
        tau.clamp(-1.0, 1.0)
    }

    /// Two-sided p-value of independence: exact without ties for up to 33 values or with at most one discordant pair,
    /// otherwise normal with the variance corrected for ties (Kendall 1970, §4; the default of scipy's `kendalltau`).
    pub(crate) fn p(&self) -> f64 {
        let fewer = self.discordant.min(self.all - self.discordant);
        if self.x.pairs == 0 && self.y.pairs == 0 && (self.n <= EXACT_LIMIT || fewer <= 1) {
            return exact_p(self.n as usize, fewer as usize);
        }
        let n = self.n as f64;
        let m = n * (n - 1.0);
        let variance = (m * (2.0 * n + 5.0) - self.x.variance - self.y.variance) / 18.0
            + 2.0 * self.x.pairs as f64 * self.y.pairs as f64 / m
            + self.x.cubic * self.y.cubic / (9.0 * m * (n - 2.0));
        two_sided_normal(self.excess() / variance.sqrt())
    }
}

/// Twice the probability that a random order of `n` has at most `inversions` inversions, which are at most half of all
/// pairs; capped at 1.
fn exact_p(n: usize, inversions: usize) -> f64 {
    // The probability of each number of inversions, element by element: the j-th adds 0 to j − 1, each equally likely.
    let mut probabilities = vec![0.0; inversions + 1];
    probabilities[0] = 1.0;
    for j in 2..=n {
        let before = probabilities.clone();
        for (k, p) in probabilities.iter_mut().enumerate() {
            *p = before[k.saturating_sub(j - 1)..=k].iter().sum::<f64>() / j as f64;
        }
    }
    let middle = 4 * inversions == n * (n - 1);
    if middle { 1.0 } else { (2.0 * probabilities.iter().sum::<f64>()).min(1.0) }
}

fn pairs_of(n: usize) -> u64 {
    let n = n as u64;
    n * n.saturating_sub(1) / 2
}

/// Sorts, and counts the pairs in the wrong order; equal values never are.
fn sort_counting_swaps(values: &mut [f64]) -> u64 {
    if values.len() < 2 {
        return 0;
    }
    let (left, right) = values.split_at_mut(values.len() / 2);
    let mut swaps = sort_counting_swaps(left) + sort_counting_swaps(right);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut l, mut r) = (0, 0);
    while l < left.len() && r < right.len() {
        // Strictly less: equal values are not in the wrong order.
        if right[r] < left[l] {
            swaps += (left.len() - l) as u64;
            merged.push(right[r]);
            r += 1;
        } else {
            merged.push(left[l]);
            l += 1;
        }
    }
    merged.extend_from_slice(&left[l..]);
    merged.extend_from_slice(&right[r..]);
    values.copy_from_slice(&merged);
    swaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_that_rounding_alone_parts_are_tied() {
        // One pair is tied, two are concordant: 2 / √(2 · 3).
        let tau = crate::kendall_tau_b(&[0.1 + 0.2, 0.3, 0.9], &[1.0, 2.0, 3.0]).expect("defined");
        assert!((tau - 2.0 / 6.0_f64.sqrt()).abs() < 1e-12, "{tau}");
    }

    #[test]
    fn exact_p_values_are_those_of_all_orders() {
        // Of the 24 orders of four, 1, 3, 5, 6, 5, 3 and 1 have 0 to 6 inversions.
        for (inversions, expected) in [(0, 2.0 / 24.0), (1, 8.0 / 24.0), (2, 18.0 / 24.0), (3, 1.0)] {
            assert!((exact_p(4, inversions) - expected).abs() < 1e-15, "{inversions}");
        }
        assert_eq!((exact_p(2, 0), exact_p(1, 0)), (1.0, 1.0));
        assert_eq!(exact_p(400, 0), 0.0, "below the smallest number");
    }
}
