//! From comparisons to scores (paper 002, §3.4 and appendix B).
//!
//! Every way gives each candidate a score, higher is better, `None` for a candidate that no comparison involves. No score depends on the order
//! in which the comparisons come.

mod bradley_terry;
mod likelihood;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use bradley_terry::{BRADLEY_TERRY_PRIOR, Strength};
pub use likelihood::{EXACT_SEARCH, LikelihoodRanking, PROBABILITY_FLOOR};

/// A judged comparison: candidate `i` stood first and is better than `j` with probability `p`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The candidate in the first position, from 0.
    pub i: usize,
    /// The candidate in the second position, from 0.
    pub j: usize,
    /// P(`i` is better than `j`), in [0, 1].
    pub p: f64,
}

/// Why comparisons cannot be ranked.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum RankingError {
    /// A comparison names a candidate that is not there.
    #[error("a comparison of candidates {i} and {j}, but there are only {candidates} (counted from 0)")]
    OutOfRange {
        /// The first.
        i: usize,
        /// The second.
        j: usize,
        /// How many candidates there are.
        candidates: usize,
    },
    /// A probability that is none.
    #[error("the comparison of candidates {i} and {j} has p = {p}, which is not a probability")]
    NotAProbability {
        /// The first.
        i: usize,
        /// The second.
        j: usize,
        /// The value.
        p: f64,
    },
}

/// The judged comparisons among a context's candidates, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparisons {
    candidates: usize,
    // Sorted, so that sums have one order; without the diagonal.
    judged: Vec<Comparison>,
}

impl Comparisons {
    /// Comparisons among `candidates` candidates. One of a candidate with itself says nothing and is dropped; the same pair may come several
    /// times, each counts.
    pub fn new(candidates: usize, comparisons: impl IntoIterator<Item = Comparison>) -> Result<Self, RankingError> {
        let mut judged = Vec::new();
        for Comparison { i, j, p } in comparisons {
            if i >= candidates || j >= candidates {
                return Err(RankingError::OutOfRange { i, j, candidates });
            }
            if !(0.0..=1.0).contains(&p) {
                return Err(RankingError::NotAProbability { i, j, p });
            }
            if i != j {
                judged.push(Comparison { i, j, p });
            }
        }
        judged.sort_by(|a, b| (a.i, a.j).cmp(&(b.i, b.j)).then(a.p.total_cmp(&b.p)));
        Ok(Self { candidates, judged })
    }

    /// How many candidates there are, judged or not.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    /// The comparisons by (i, j, p), without those of a candidate with itself.
    pub fn judged(&self) -> &[Comparison] {
        &self.judged
    }

    /// Whether each pair was judged equally often in both orders.
    pub fn is_symmetric(&self) -> bool {
        let pairs = |turn: bool| {
            let mut pairs: Vec<_> = self.judged.iter().map(|c| if turn { (c.j, c.i) } else { (c.i, c.j) }).collect();
            pairs.sort_unstable();
            pairs
        };
        pairs(false) == pairs(true)
    }

    /// The comparisons of the pairs that were judged equally often in both orders: the largest symmetric part that leaves no pair half out.
    /// Over it, as over a symmetric set, a median of p off 0.5 speaks of the judge and not of which candidates came first.
    #[must_use]
    pub fn in_both_orders(&self) -> Self {
        let times = |i: usize, j: usize| {
            let at = |limit: (usize, usize)| self.judged.partition_point(|c| (c.i, c.j) < limit);
            at((i, j + 1)) - at((i, j))
        };
        let judged = self.judged.iter().filter(|c| times(c.i, c.j) == times(c.j, c.i)).copied().collect();
        Self { candidates: self.candidates, judged }
    }

    /// Eq. 6: wins / comparisons involving the candidate. The first of a comparison wins where p > `threshold`, the second where p is below; at
    /// the threshold each has half a win.
    pub fn win_ratio(&self, threshold: f64) -> Vec<Option<f64>> {
        self.mean_of(|p| if p == threshold { 0.5 } else { f64::from(u8::from(p > threshold)) })
    }

    /// The mean probability of being the better one, over the comparisons involving the candidate.
    pub fn mean_probability(&self) -> Vec<Option<f64>> {
        self.mean_of(|p| p)
    }

    /// The mean over each candidate's comparisons of `share(p)` where it stood first and 1 − `share(p)` where it stood second.
    fn mean_of(&self, share: impl Fn(f64) -> f64) -> Vec<Option<f64>> {
        let mut sums = vec![(0.0, 0_usize); self.candidates];
        for c in &self.judged {
            let first = share(c.p);
            for (candidate, win) in [(c.i, first), (c.j, 1.0 - first)] {
                sums[candidate].0 += win;
                sums[candidate].1 += 1;
            }
        }
        sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / count as f64)).collect()
    }

    /// The positions of candidates that some comparison involves.
    fn involved(&self) -> Vec<usize> {
        let mut involved = vec![false; self.candidates];
        for c in &self.judged {
            involved[c.i] = true;
            involved[c.j] = true;
        }
        (0..self.candidates).filter(|&i| involved[i]).collect()
    }

    /// `|p_ij − (1 − p_ji)|` for each pair judged in both orders, as `(i, j, gap)` with i < j; repeated judgements of an order are averaged first.
    pub fn order_gaps(&self) -> Vec<(usize, usize, f64)> {
        let mean = |group: &[Comparison]| group.iter().map(|c| c.p).sum::<f64>() / group.len() as f64;
        let by_order: Vec<(usize, usize, f64)> =
            self.judged.chunk_by(|a, b| (a.i, a.j) == (b.i, b.j)).map(|g| (g[0].i, g[0].j, mean(g))).collect();
        let find = |i: usize, j: usize| by_order.binary_search_by_key(&(i, j), |&(i, j, _)| (i, j)).ok().map(|at| by_order[at].2);
        let forward = by_order.iter().filter(|(i, j, _)| i < j);
        forward.filter_map(|&(i, j, p)| find(j, i).map(|turned| (i, j, crate::debias::order_gap(p, turned)))).collect()
    }
}

/// A way from comparisons to scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankMethod {
    /// [`Comparisons::win_ratio`].
    WinRatio,
    /// [`Comparisons::mean_probability`].
    MeanProb,
    /// [`Comparisons::bradley_terry`].
    BradleyTerry,
    /// [`Comparisons::max_likelihood`].
    Likelihood,
    /// [`Comparisons::max_approximate_likelihood`] with symmetric conditionals.
    HardLikelihood,
}

impl RankMethod {
    /// All ways.
    pub const ALL: [Self; 5] = [Self::WinRatio, Self::MeanProb, Self::BradleyTerry, Self::Likelihood, Self::HardLikelihood];

    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::WinRatio => "win-ratio",
            Self::MeanProb => "mean-prob",
            Self::BradleyTerry => "bradley-terry",
            Self::Likelihood => "likelihood",
            Self::HardLikelihood => "hard-likelihood",
        }
    }

    /// The scores by candidate, decisions at 0.5.
    pub fn scores(self, comparisons: &Comparisons) -> Vec<Option<f64>> {
        match self {
            Self::WinRatio => comparisons.win_ratio(0.5),
            Self::MeanProb => comparisons.mean_probability(),
            Self::BradleyTerry => comparisons.bradley_terry(BRADLEY_TERRY_PRIOR),
            Self::Likelihood => comparisons.max_likelihood().scores,
            Self::HardLikelihood => comparisons.max_approximate_likelihood(0.5).scores,
        }
    }
}

impl fmt::Display for RankMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no [`RankMethod`] has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no ranking method `{}`\n\nhint: the methods are {}", name.escape_debug(), RankMethod::ALL.map(RankMethod::name).join(", "))]
pub struct UnknownRankMethod {
    /// The name.
    pub name: String,
}

impl FromStr for RankMethod {
    type Err = UnknownRankMethod;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| UnknownRankMethod { name: name.to_owned() })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn comparisons(n: usize, list: &[(usize, usize, f64)]) -> Comparisons {
        Comparisons::new(n, list.iter().map(|&(i, j, p)| Comparison { i, j, p })).expect("valid")
    }

    /// All ordered pairs of `strengths`, judged by their logistic difference plus a bias towards the first.
    pub(crate) fn full(strengths: &[f64], bias: f64) -> Comparisons {
        let n = strengths.len();
        let all = (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| i != j);
        let p = |i: usize, j: usize| 1.0 / (1.0 + (-(strengths[i] - strengths[j] + bias)).exp());
        Comparisons::new(n, all.map(|(i, j)| Comparison { i, j, p: p(i, j) })).expect("valid")
    }

    pub(crate) fn any_comparisons(most: usize) -> impl Strategy<Value = Comparisons> {
        (2..=most).prop_flat_map(|n| {
            let p = prop_oneof![Just(0.0), Just(0.5), Just(1.0), 0.0..=1.0_f64];
            prop::collection::vec((0..n, 0..n, p), 0..30).prop_map(move |list| comparisons(n, &list))
        })
    }

    #[test]
    fn a_perfect_ranking_of_three_gives_one_a_half_and_zero() {
        let perfect = comparisons(3, &[(0, 1, 0.9), (1, 0, 0.1), (0, 2, 0.9), (2, 0, 0.2), (1, 2, 0.7), (2, 1, 0.4), (1, 1, 0.9)]);
        assert_eq!(perfect.win_ratio(0.5), [Some(1.0), Some(0.5), Some(0.0)]);
    }

    #[test]
    fn only_judged_comparisons_count_and_a_tie_is_half_a_win() {
        let some = comparisons(4, &[(0, 1, 0.6), (0, 2, 0.9), (2, 2, 1.0)]);
        assert_eq!(some.win_ratio(0.6), [Some(0.75), Some(0.5), Some(0.0), None]);
        let mean = some.mean_probability();
        assert_eq!((mean[0], mean[1], mean[3]), (Some(0.75), Some(0.4), None));
    }

    #[test]
    fn what_cannot_be_ranked_is_refused() {
        let one = |i, j, p| Comparisons::new(2, [Comparison { i, j, p }]);
        assert_eq!(one(0, 2, 0.5), Err(RankingError::OutOfRange { i: 0, j: 2, candidates: 2 }));
        assert!(matches!(one(0, 1, f64::NAN), Err(RankingError::NotAProbability { .. })));
        assert!(one(0, 1, -0.1).is_err());
    }

    #[test]
    fn symmetry_and_order_gaps_are_told() {
        let both = comparisons(3, &[(0, 1, 0.9), (1, 0, 0.6), (1, 0, 0.8)]);
        assert!(!both.is_symmetric());
        let gaps = both.order_gaps();
        assert_eq!(gaps.len(), 1);
        assert!((gaps[0].0, gaps[0].1) == (0, 1) && (gaps[0].2 - 0.6).abs() < 1e-12);
        assert!(full(&[1.0, 2.0, 0.0], 0.3).is_symmetric());
        assert!(comparisons(3, &[(0, 1, 0.9)]).order_gaps().is_empty());
    }

    #[test]
    fn pairs_with_one_order_missing_are_no_part_of_the_symmetric_set() {
        let mixed = comparisons(4, &[(0, 1, 0.9), (1, 0, 0.6), (0, 2, 0.7), (3, 2, 0.1), (2, 3, 0.2), (2, 3, 0.3)]);
        let both = mixed.in_both_orders();
        assert_eq!((both.candidates(), both.judged()), (4, comparisons(4, &[(0, 1, 0.9), (1, 0, 0.6)]).judged()));
        assert!(both.is_symmetric() && !mixed.is_symmetric());
        let whole = full(&[1.0, 2.0, 0.0], 0.3);
        assert_eq!(whole.in_both_orders(), whole);
    }

    #[test]
    fn names_are_read_back_and_an_unknown_one_lists_them() {
        for method in RankMethod::ALL {
            assert_eq!(method.name().parse(), Ok(method));
            assert_eq!(serde_json::to_value(method).expect("a string"), method.name());
        }
        let message = "elo".parse::<RankMethod>().expect_err("unknown").to_string();
        assert!(message.ends_with("win-ratio, mean-prob, bradley-terry, likelihood, hard-likelihood"), "{message}");
    }

    #[test]
    fn every_way_orders_consistent_comparisons_by_strength() {
        let strengths = [0.3, 2.0, -1.0, 1.1, -2.0];
        for method in RankMethod::ALL {
            let scores: Vec<f64> = method.scores(&full(&strengths, 0.0)).into_iter().map(|s| s.expect("judged")).collect();
            assert_eq!(crate::spearman(&scores, &strengths), Some(1.0), "{method}: {scores:?}");
        }
    }

    proptest! {
        #[test]
        fn scores_are_finite_and_absent_exactly_where_nothing_was_judged(c in any_comparisons(6)) {
            let involved = c.involved();
            for method in RankMethod::ALL {
                let scores = method.scores(&c);
                prop_assert_eq!(scores.len(), c.candidates());
                for (i, score) in scores.iter().enumerate() {
                    prop_assert_eq!(score.is_some(), involved.contains(&i));
                    prop_assert!(score.is_none_or(f64::is_finite));
                }
            }
        }

        #[test]
        fn naming_the_candidates_otherwise_changes_nothing(c in any_comparisons(6)) {
            let n = c.candidates();
            let turned = Comparisons::new(n, c.judged().iter().rev().map(|c| Comparison { i: n - 1 - c.i, j: n - 1 - c.j, p: c.p })).expect("valid");
            for method in RankMethod::ALL {
                for (a, b) in method.scores(&c).into_iter().zip(method.scores(&turned).into_iter().rev()) {
                    prop_assert!(a.is_some() == b.is_some() && (a.unwrap_or(0.0) - b.unwrap_or(0.0)).abs() < 1e-8, "{method}: {a:?} {b:?}");
                }
            }
        }

        #[test]
        fn turning_each_comparison_round_changes_nothing_without_bias(c in any_comparisons(6)) {
            let turned = Comparisons::new(c.candidates(), c.judged().iter().map(|c| Comparison { i: c.j, j: c.i, p: 1.0 - c.p })).expect("valid");
            for (a, b) in c.mean_probability().into_iter().zip(turned.mean_probability()) {
                prop_assert!((a.unwrap_or(0.0) - b.unwrap_or(0.0)).abs() < 1e-12);
            }
        }
    }
}
