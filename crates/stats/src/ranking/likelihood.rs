//! Maximum-likelihood ranks (paper 002, appendix B).
//!
//! Eq. 12 as printed adds the two powers; the likelihood described in its text is their product, Π p^z (1 − p)^(1 − z),
//! which is maximised here. Its logarithm is, up to a constant, a sum over ordered pairs of the evidence for one being
//! ahead of the other, so the best ranks solve a linear ordering problem.

use serde::Serialize;

use super::linear_order::LinearOrder;
use super::{Comparisons, Conditionals};

/// Maximum number of judged texts for an exhaustive search over orders; beyond, local searches find an order and a
/// bound on the possible gain.
pub const EXACT_SEARCH: usize = super::linear_order::EXACT_SEARCH;

/// Probabilities are clipped to this distance from 0 and 1, so that contradictory certainties stay comparable.
pub const PROBABILITY_FLOOR: f64 = 1e-12;

/// Mean positions differ by rounding below this.
pub(super) const PLACE_ROUNDING: f64 = 1e-9;

/// Maximum-likelihood ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LikelihoodRanking {
    /// Number of judged candidates ranked below each candidate: the best of n has n − 1. Ties are averaged over all
    /// equally likely orders (exact search), or over neighbours that are indistinguishable (local search).
    pub scores: Vec<Option<f64>>,
    /// Natural logarithm of the likelihood of the order found.
    pub log_likelihood: f64,
    /// Upper bound of the log-likelihood of any order; equals `log_likelihood` after an exact search.
    pub upper_bound: f64,
    /// Whether the order is proven optimal, by exhaustive search or by the bound.
    pub exact: bool,
}

impl Comparisons {
    /// Eqs. 11–12: the ranks that maximise Π p^z (1 − p)^(1 − z), with z = 1 if the first is ranked above the second.
    pub fn max_likelihood(&self) -> LikelihoodRanking {
        self.most_likely(|p| (log(p), log(1.0 - p)))
    }

    /// Eq. 13: the same from hard decisions at `threshold`, with the likelihoods in `conditionals`. A probability at
    /// the threshold is no decision.
    pub fn max_approximate_likelihood(&self, threshold: f64, conditionals: &Conditionals) -> LikelihoodRanking {
        let Conditionals { said_where_better: better, said_where_worse: worse } = *conditionals;
        self.most_likely(|p| match p.partial_cmp(&threshold) {
            Some(std::cmp::Ordering::Greater) => (log(better), log(worse)),
            Some(std::cmp::Ordering::Less) => (log(1.0 - better), log(1.0 - worse)),
            _ => (0.0, 0.0),
        })
    }

    /// `evidence(p)`: the log-likelihood of a comparison if its first is better, and if it is not.
    fn most_likely(&self, evidence: impl Fn(f64) -> (f64, f64)) -> LikelihoodRanking {
        let involved = self.involved();
        let mut position = vec![0; self.candidates()];
        involved.iter().enumerate().for_each(|(at, &text)| position[text] = at);
        let mut gains = vec![vec![0.0; involved.len()]; involved.len()];
        let mut base = 0.0;
        for c in self.between_texts().into_iter().filter(|c| c.i != c.j) {
            let (for_first, for_second) = evidence(c.p);
            let (i, j) = (position[c.i], position[c.j]);
            // Half on either side of the diagonal: the linear ordering problem needs antisymmetric gains, and `base`
            // has the rest.
            gains[i][j] += (for_first - for_second) / 2.0;
            gains[j][i] -= (for_first - for_second) / 2.0;
            base += f64::midpoint(for_first, for_second);
        }
        let widths: Vec<usize> = involved.iter().map(|&text| self.copies(text)).collect();
        let candidates: usize = widths.iter().sum();
        // Rounding errors of sums of gains are proportional to all terms.
        let tolerance = 1e-12 * (1.0 + gains.iter().flatten().map(|g| g.abs()).sum::<f64>());
        let found = LinearOrder { gains, tolerance, widths }.best(self.start(&involved));
        let below = involved
            .into_iter()
            .zip(found.places)
            .map(|(text, place)| (text, candidates as f64 - 1.0 - place))
            .collect();
        LikelihoodRanking {
            scores: self.spread(below, PLACE_ROUNDING),
            log_likelihood: base + found.value,
            upper_bound: base + found.bound,
            exact: found.bound - found.value <= tolerance,
        }
    }

    /// Indices of the involved texts by mean probability, the best first.
    fn start(&self, involved: &[usize]) -> Vec<usize> {
        let mean = self.mean_probability();
        let score = |at: usize| mean[involved[at]].expect("an involved candidate has a mean");
        let mut order: Vec<usize> = (0..involved.len()).collect();
        order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
        order
    }
}

/// The logarithm of a probability clipped at [`PROBABILITY_FLOOR`].
fn log(p: f64) -> f64 {
    p.max(PROBABILITY_FLOOR).ln()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::PairComparison;
    use super::super::tests::{any_comparisons, comparisons, full};
    use super::*;

    /// Every order of 0..n.
    fn orders(n: usize) -> Vec<Vec<usize>> {
        if n == 0 {
            return vec![vec![]];
        }
        let shorter = orders(n - 1);
        shorter.iter().flat_map(|o| (0..n).map(move |at| [&o[..at], &[n - 1], &o[at..]].concat())).collect()
    }

    /// The log-likelihood of an order, straight from eq. 12 (as a product).
    fn log_likelihood(c: &Comparisons, order: &[usize]) -> f64 {
        let place = |i: usize| order.iter().position(|&o| o == i).expect("in the order");
        let agreed = |c: &PairComparison| if place(c.i) < place(c.j) { c.p } else { 1.0 - c.p };
        c.judged().iter().map(|c| agreed(c).max(PROBABILITY_FLOOR).ln()).sum()
    }

    /// The best log-likelihood, and each candidate's mean number of candidates below it over all best orders.
    fn brute_force(c: &Comparisons, involved: &[usize]) -> (f64, Vec<f64>) {
        let all: Vec<(f64, Vec<usize>)> = orders(involved.len())
            .into_iter()
            .map(|o| o.into_iter().map(|at| involved[at]).collect::<Vec<_>>())
            .map(|o| (log_likelihood(c, &o), o))
            .collect();
        let top = all.iter().fold(f64::NEG_INFINITY, |m, (v, _)| m.max(*v));
        let best: Vec<&Vec<usize>> = all.iter().filter(|(v, _)| top - v < 1e-9).map(|(_, o)| o).collect();
        let below = |i: usize, o: &[usize]| o.len() - 1 - o.iter().position(|&c| c == i).expect("in the order");
        let mean = |i: &usize| best.iter().map(|o| below(*i, o) as f64).sum::<f64>() / best.len() as f64;
        (top, involved.iter().map(mean).collect())
    }

    #[test]
    fn eight_candidates_equal_brute_force() {
        let mut list = Vec::new();
        // Pseudo-random probabilities: the fractional parts of multiples of the golden ratio.
        for (k, (i, j)) in (0..8).flat_map(|i| (0..8).map(move |j| (i, j))).filter(|(i, j)| i != j).enumerate() {
            list.push((i, j, ((k + 1) as f64 * 0.618_033_988_749_895).fract()));
        }
        let c = comparisons(8, &list);
        let found = c.max_likelihood();
        let (value, mean) = brute_force(&c, &(0..8).collect::<Vec<_>>());
        assert!(found.exact && (found.log_likelihood - value).abs() < 1e-9);
        assert!(found.scores.iter().zip(mean).all(|(s, m)| (s.expect("judged") - m).abs() < 1e-9));
    }

    #[test]
    fn what_nothing_tells_apart_shares_a_score() {
        let even = comparisons(4, &[(0, 1, 0.5), (1, 2, 0.5), (2, 0, 0.5)]).max_likelihood();
        assert_eq!(even.scores, [Some(1.0), Some(1.0), Some(1.0), None]);
        let circle = comparisons(3, &[(0, 1, 0.8), (1, 2, 0.8), (2, 0, 0.8)]);
        for score in circle.max_likelihood().scores {
            assert!((score.expect("judged") - 1.0).abs() < 1e-12);
        }
        let none = LikelihoodRanking { scores: vec![None; 2], log_likelihood: 0.0, upper_bound: 0.0, exact: true };
        assert_eq!(comparisons(2, &[]).max_likelihood(), none);
    }

    #[test]
    fn contradicting_certainties_cancel() {
        let scores = comparisons(3, &[(0, 1, 1.0), (1, 0, 1.0), (1, 2, 0.9), (0, 2, 0.9)]).max_likelihood().scores;
        assert_eq!(scores, [Some(1.5), Some(1.5), Some(0.0)]);
    }

    #[test]
    fn more_candidates_than_exact_search_takes_are_ordered_by_strength() {
        let strengths: Vec<f64> = (0..31).map(|i| f64::from((i * 7) % 31) / 10.0).collect();
        let found = full(&strengths, 0.0).max_likelihood();
        let scores: Vec<f64> = found.scores.into_iter().map(|s| s.expect("judged")).collect();
        assert!(found.exact, "each pair has its own way, so the bound is reached");
        assert_eq!(crate::spearman(&scores, &strengths), Some(1.0));
        let even: Vec<_> = (1..30).map(|i| (i - 1, i, 0.5)).collect();
        assert!(comparisons(30, &even).max_likelihood().scores.iter().all(|s| *s == Some(14.5)));
    }

    /// All ordered pairs of `n` candidates, with pseudo-random probabilities.
    fn whims(n: usize, seed: usize) -> Comparisons {
        let pairs = (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| i != j).enumerate();
        let p = |k: usize| (((k + 1) * (2 * seed + 3)) as f64 * 0.618_033_988_749_895).fract();
        comparisons(n, &pairs.map(|(k, (i, j))| (i, j, p(k))).collect::<Vec<_>>())
    }

    #[test]
    fn up_to_exact_search_the_order_is_the_most_likely_one() {
        assert_eq!(EXACT_SEARCH, 20);
        for n in [17, 20] {
            let found = whims(n, 1).max_likelihood();
            assert!(found.exact && (found.upper_bound - found.log_likelihood).abs() < 1e-9, "{n}: {found:?}");
        }
    }

    #[test]
    fn above_exact_search_the_result_says_how_much_a_better_order_could_win() {
        let found = whims(24, 1).max_likelihood();
        assert!(!found.exact && found.upper_bound > found.log_likelihood, "{found:?}");
    }

    #[test]
    fn sixteen_candidates_are_searched_exactly() {
        let strengths: Vec<f64> = (0..16).map(|i| f64::from((i * 7) % 16) / 4.0).collect();
        let found = full(&strengths, 1.0).max_likelihood();
        let scores: Vec<f64> = found.scores.into_iter().map(|s| s.expect("judged")).collect();
        assert!(found.exact);
        assert_eq!(crate::spearman(&scores, &strengths), Some(1.0));
    }

    #[test]
    fn decisions_that_contradict_each_other_leave_both_in_the_middle() {
        let c = comparisons(2, &[(0, 1, 0.9), (0, 1, 0.2)]);
        assert_eq!(c.max_approximate_likelihood(0.5, &Conditionals::SYMMETRIC).scores, [Some(0.5), Some(0.5)]);
        assert_eq!(c.max_approximate_likelihood(0.1, &Conditionals::SYMMETRIC).scores, [Some(1.0), Some(0.0)]);
    }

    proptest! {
        #[test]
        fn exact_search_equals_brute_force(c in any_comparisons(6)) {
            let involved = c.involved();
            let (value, mean) = brute_force(&c, &involved);
            let found = c.max_likelihood();
            prop_assert!((found.log_likelihood - value).abs() < 1e-9, "{} {value}", found.log_likelihood);
            for (i, mean) in involved.into_iter().zip(mean) {
                prop_assert!((found.scores[i].expect("judged") - mean).abs() < 1e-9, "{:?} {mean}", found.scores[i]);
            }
        }

        #[test]
        fn hard_decisions_of_equal_weight_maximise_agreements(c in any_comparisons(6)) {
            let involved = c.involved();
            let agreements = |o: &[usize]| {
                let place = |i: usize| o.iter().position(|&at| involved[at] == i).expect("in the order");
                c.judged().iter().filter(|c| c.p != 0.5 && (c.p > 0.5) == (place(c.i) < place(c.j))).count()
            };
            let most = orders(involved.len()).iter().map(|o| agreements(o)).max().unwrap_or(0);
            let decided = c.judged().iter().filter(|c| c.p != 0.5).count();
            let right = std::f64::consts::E / (1.0 + std::f64::consts::E);
            let expected = most as f64 * right.ln() + (decided - most) as f64 * (1.0 - right).ln();
            let found = c.max_approximate_likelihood(0.5, &Conditionals::SYMMETRIC);
            prop_assert!((found.log_likelihood - expected).abs() < 1e-9);
        }
    }
}
