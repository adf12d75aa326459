//! Scores from pairwise comparisons (paper 002, §3.4 and appendix B).
//!
//! Every method gives each candidate a score, higher is better; `None` for a candidate without comparisons. Scores do
//! not depend on the order of the comparisons, candidates with the same text have the same score, and scores equal up
//! to rounding are identical.

mod bradley_terry;
mod conditionals;
mod experts;
mod likelihood;
mod linear_order;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use bradley_terry::STRENGTH_ROUNDING;
use likelihood::PLACE_ROUNDING;

use crate::equal::{equalised, equalised_within};
pub use bradley_terry::BRADLEY_TERRY_PRIOR;
pub use conditionals::Conditionals;
pub use experts::{ProductOfExperts, Settled, log_odds};
pub use likelihood::{EXACT_SEARCH, LikelihoodRanking, PROBABILITY_FLOOR};

/// A judged comparison: candidate `i` was presented first and is better than `j` with probability `p`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PairComparison {
    /// Index of the candidate in the first position.
    pub i: usize,
    /// Index of the candidate in the second position.
    pub j: usize,
    /// P(`i` is better than `j`), in [0, 1].
    pub p: f64,
}

/// Invalid comparisons.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum RankingError {
    /// A comparison has a candidate index that is out of range.
    #[error("a comparison of candidates {i} and {j}, but there are only {candidates} (counted from 0)")]
    OutOfRange {
        /// The first index.
        i: usize,
        /// The second index.
        j: usize,
        /// Number of candidates.
        candidates: usize,
    },
    /// A value that is not a probability.
    #[error("the comparison of candidates {i} and {j} has p = {p}, which is not a probability")]
    NotAProbability {
        /// The first index.
        i: usize,
        /// The second index.
        j: usize,
        /// The value.
        p: f64,
    },
}

/// Validated comparisons among a context's candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparisons {
    // For each candidate the first one with the same text, possibly itself.
    texts: Vec<usize>,
    // Sorted, so that sums are reproducible; without self-comparisons.
    judged: Vec<PairComparison>,
}

impl Comparisons {
    /// Comparisons among `candidates` candidates. Self-comparisons are dropped; repeated comparisons all count.
    pub fn new(candidates: usize, comparisons: impl IntoIterator<Item = PairComparison>) -> Result<Self, RankingError> {
        let mut judged = Vec::new();
        for PairComparison { i, j, p } in comparisons {
            if i >= candidates || j >= candidates {
                return Err(RankingError::OutOfRange { i, j, candidates });
            }
            if !(0.0..=1.0).contains(&p) {
                return Err(RankingError::NotAProbability { i, j, p });
            }
            if i != j {
                judged.push(PairComparison { i, j, p });
            }
        }
        // Answers arrive in any order, and the order of a sum affects its last bits.
        judged.sort_by(|a, b| (a.i, a.j).cmp(&(b.i, b.j)).then(a.p.total_cmp(&b.p)));
        Ok(Self { texts: (0..candidates).collect(), judged })
    }

    /// Merges candidates with equal texts: they are ranked as one by all of their comparisons, and comparisons between
    /// them are ignored. Otherwise the sampling of comparisons would separate equal texts.
    ///
    /// # Panics
    /// The number of texts differs from the number of candidates.
    #[must_use]
    pub fn with_texts<T: PartialEq>(mut self, texts: &[T]) -> Self {
        assert_eq!(texts.len(), self.candidates(), "each candidate has a text");
        self.texts = texts
            .iter()
            .map(|text| texts.iter().position(|other| other == text).expect("it is its own first"))
            .collect();
        self
    }

    /// The same candidates and texts with the comparisons returned by `change`.
    ///
    /// # Panics
    /// A changed comparison is invalid.
    #[must_use]
    pub fn changed(&self, change: impl Fn(&PairComparison) -> Option<PairComparison>) -> Self {
        let changed = Self::new(self.candidates(), self.judged.iter().filter_map(change))
            .expect("a comparison of the same candidates stays one");
        Self { texts: self.texts.clone(), ..changed }
    }

    /// Number of candidates, judged or not.
    pub fn candidates(&self) -> usize {
        self.texts.len()
    }

    /// The comparisons sorted by (i, j, p), without self-comparisons.
    pub fn judged(&self) -> &[PairComparison] {
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

    /// The comparisons of pairs judged equally often in both orders: the largest symmetric subset of whole pairs. For a
    /// symmetric set, a median of p off 0.5 reflects the judge and not which candidates came first.
    #[must_use]
    pub fn in_both_orders(&self) -> Self {
        let times = |i: usize, j: usize| {
            let at = |limit: (usize, usize)| self.judged.partition_point(|c| (c.i, c.j) < limit);
            at((i, j + 1)) - at((i, j))
        };
        self.changed(|c| (times(c.i, c.j) == times(c.j, c.i)).then_some(*c))
    }

    /// Eq. 6: wins / comparisons involving the candidate. The first of a comparison wins if p > `threshold`, the second
    /// if p is below; at the threshold each has half a win.
    pub fn win_ratio(&self, threshold: f64) -> Vec<Option<f64>> {
        self.mean_of(|p| if p == threshold { 0.5 } else { f64::from(u8::from(p > threshold)) })
    }

    /// The mean probability of being better, over the comparisons involving the candidate.
    pub fn mean_probability(&self) -> Vec<Option<f64>> {
        self.mean_of(|p| p)
    }

    /// The mean over each candidate's comparisons of `share(p)` in first position and 1 − `share(p)` in second
    /// position.
    fn mean_of(&self, share: impl Fn(f64) -> f64) -> Vec<Option<f64>> {
        let mut sums = vec![(0.0, 0_usize); self.candidates()];
        for c in self.between_texts() {
            // A text neither wins nor loses against itself.
            let first = if c.i == c.j { 0.5 } else { share(c.p) };
            for (candidate, win) in [(c.i, first), (c.j, 1.0 - first)] {
                sums[candidate].0 += win;
                sums[candidate].1 += 1;
            }
        }
        let means: Vec<(usize, f64)> = sums
            .iter()
            .enumerate()
            .filter(|(_, (_, count))| *count > 0)
            .map(|(i, &(sum, count))| (i, sum / count as f64))
            .collect();
        self.spread(means, MEAN_ROUNDING)
    }

    /// The comparisons with each candidate replaced by the first one of the same text, in the same order, including
    /// those within a text.
    fn between_texts(&self) -> Vec<PairComparison> {
        let mut between: Vec<PairComparison> =
            self.judged.iter().map(|c| PairComparison { i: self.texts[c.i], j: self.texts[c.j], p: c.p }).collect();
        between.sort_by(|a, b| (a.i, a.j).cmp(&(b.i, b.j)).then(a.p.total_cmp(&b.p)));
        between
    }

    /// The texts with any comparison, each by its first candidate.
    fn involved(&self) -> Vec<usize> {
        let mut involved = vec![false; self.candidates()];
        for c in &self.judged {
            involved[self.texts[c.i]] = true;
            involved[self.texts[c.j]] = true;
        }
        (0..self.candidates()).filter(|&i| involved[i]).collect()
    }

    /// Number of candidates whose first equal text is `text`.
    fn copies(&self, text: usize) -> usize {
        self.texts.iter().filter(|&&of| of == text).count()
    }

    /// Expands values of texts to all their candidates; values within `rounding` of each other become equal.
    fn spread(&self, of_texts: Vec<(usize, f64)>, rounding: f64) -> Vec<Option<f64>> {
        let (texts, values): (Vec<usize>, Vec<f64>) = of_texts.into_iter().unzip();
        let mut first = vec![None; self.candidates()];
        for (text, value) in texts.into_iter().zip(equalised_within(&values, rounding)) {
            first[text] = Some(value);
        }
        self.texts.iter().map(|&text| first[text]).collect()
    }

    /// p in the orders (i, j) and (j, i) for each pair i < j judged in both; repeated judgements of an order are
    /// averaged first.
    pub fn pairs_in_both_orders(&self) -> Vec<(f64, f64)> {
        self.both_orders().into_iter().map(|(_, _, p, turned)| (p, turned)).collect()
    }

    /// `|p_ij − (1 − p_ji)|` for each pair judged in both orders, as `(i, j, gap)` with i < j; repeated judgements of
    /// an order are averaged first.
    pub fn order_gaps(&self) -> Vec<(usize, usize, f64)> {
        self.both_orders().into_iter().map(|(i, j, p, turned)| (i, j, crate::debias::order_gap(p, turned))).collect()
    }

    /// `(i, j, p_ij, p_ji)` of the pairs i < j judged in both orders.
    fn both_orders(&self) -> Vec<(usize, usize, f64, f64)> {
        let mean = |group: &[PairComparison]| group.iter().map(|c| c.p).sum::<f64>() / group.len() as f64;
        let by_order: Vec<(usize, usize, f64)> =
            self.judged.chunk_by(|a, b| (a.i, a.j) == (b.i, b.j)).map(|g| (g[0].i, g[0].j, mean(g))).collect();
        let find = |i: usize, j: usize| {
            by_order.binary_search_by_key(&(i, j), |&(i, j, _)| (i, j)).ok().map(|at| by_order[at].2)
        };
        let forward = by_order.iter().filter(|(i, j, _)| i < j);
        forward.filter_map(|&(i, j, p)| find(j, i).map(|turned| (i, j, p, turned))).collect()
    }
}

/// Equal means of shares differ by rounding below this.
const MEAN_ROUNDING: f64 = 1e-12;

/// A ranking method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankMethod {
    /// [`Comparisons::win_ratio`].
    WinRatio,
    /// [`Comparisons::mean_probability`].
    MeanProb,
    /// [`Comparisons::bradley_terry`].
    BradleyTerry,
    /// [`Comparisons::experts`].
    Experts,
    /// [`Comparisons::max_likelihood`].
    Likelihood,
    /// [`Comparisons::max_approximate_likelihood`] with [`Conditionals::estimate`].
    HardLikelihood,
    /// [`Comparisons::max_approximate_likelihood`] with [`Conditionals::SYMMETRIC`].
    HardLikelihoodSymmetric,
}

impl RankMethod {
    /// All methods.
    pub const ALL: [Self; 7] = [
        Self::WinRatio,
        Self::MeanProb,
        Self::BradleyTerry,
        Self::Experts,
        Self::Likelihood,
        Self::HardLikelihood,
        Self::HardLikelihoodSymmetric,
    ];

    /// Name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::WinRatio => "win-ratio",
            Self::MeanProb => "mean-prob",
            Self::BradleyTerry => "bradley-terry",
            Self::Experts => "experts",
            Self::Likelihood => "likelihood",
            Self::HardLikelihood => "hard-likelihood",
            Self::HardLikelihoodSymmetric => "hard-likelihood-symmetric",
        }
    }

    /// The scores by candidate, with decisions at 0.5. `conditionals` are those of the judge's decisions over all
    /// contexts; only [`RankMethod::HardLikelihood`] uses them.
    pub fn scores(self, comparisons: &Comparisons, conditionals: &Conditionals) -> Vec<Option<f64>> {
        match self {
            // At one half: debiased probabilities are shifted so that this is their threshold.
            Self::WinRatio => comparisons.win_ratio(0.5),
            Self::MeanProb => comparisons.mean_probability(),
            Self::BradleyTerry => comparisons.bradley_terry(BRADLEY_TERRY_PRIOR),
            Self::Experts => comparisons.experts(),
            Self::Likelihood | Self::HardLikelihood | Self::HardLikelihoodSymmetric => {
                self.search(comparisons, conditionals).map(|found| found.scores).unwrap_or_default()
            }
        }
    }

    /// Equalises scores of this method, or their means, that differ only by rounding: sums to their last digits,
    /// strengths and positions to the tolerance of their search.
    #[must_use]
    pub fn equalised(self, scores: &[f64]) -> Vec<f64> {
        match self {
            Self::WinRatio | Self::MeanProb => equalised(scores),
            Self::BradleyTerry | Self::Experts => equalised_within(scores, STRENGTH_ROUNDING),
            Self::Likelihood | Self::HardLikelihood | Self::HardLikelihoodSymmetric => {
                equalised_within(scores, PLACE_ROUNDING)
            }
        }
    }

    /// The search result, for methods whose scores are positions in a most likely order.
    pub fn search(self, comparisons: &Comparisons, conditionals: &Conditionals) -> Option<LikelihoodRanking> {
        match self {
            Self::WinRatio | Self::MeanProb | Self::BradleyTerry | Self::Experts => None,
            Self::Likelihood => Some(comparisons.max_likelihood()),
            Self::HardLikelihood => Some(comparisons.max_approximate_likelihood(0.5, conditionals)),
            Self::HardLikelihoodSymmetric => {
                Some(comparisons.max_approximate_likelihood(0.5, &Conditionals::SYMMETRIC))
            }
        }
    }
}

impl fmt::Display for RankMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Unknown name of a [`RankMethod`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("there is no ranking method `{}`", name.escape_debug())]
#[diagnostic(help("the methods are {}", RankMethod::ALL.map(RankMethod::name).join(", ")))]
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
    use miette::Diagnostic as _;
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn comparisons(n: usize, list: &[(usize, usize, f64)]) -> Comparisons {
        Comparisons::new(n, list.iter().map(|&(i, j, p)| PairComparison { i, j, p })).expect("valid")
    }

    /// All ordered pairs of `strengths`, judged by their logistic difference plus a position bias towards the first.
    pub(crate) fn full(strengths: &[f64], bias: f64) -> Comparisons {
        let n = strengths.len();
        let all = (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| i != j);
        let p = |i: usize, j: usize| 1.0 / (1.0 + (-(strengths[i] - strengths[j] + bias)).exp());
        Comparisons::new(n, all.map(|(i, j)| PairComparison { i, j, p: p(i, j) })).expect("valid")
    }

    fn conditionals(c: &Comparisons) -> Conditionals {
        Conditionals::estimate([c], 0.5).unwrap_or(Conditionals::SYMMETRIC)
    }

    pub(crate) fn any_comparisons(most: usize) -> impl Strategy<Value = Comparisons> {
        (2..=most).prop_flat_map(|n| {
            let p = prop_oneof![Just(0.0), Just(0.5), Just(1.0), 0.0..=1.0_f64];
            prop::collection::vec((0..n, 0..n, p), 0..30).prop_map(move |list| comparisons(n, &list))
        })
    }

    #[test]
    fn a_perfect_ranking_of_three_gives_one_a_half_and_zero() {
        let perfect = comparisons(
            3,
            &[(0, 1, 0.9), (1, 0, 0.1), (0, 2, 0.9), (2, 0, 0.2), (1, 2, 0.7), (2, 1, 0.4), (1, 1, 0.9)],
        );
        assert_eq!(perfect.win_ratio(0.5), [Some(1.0), Some(0.5), Some(0.0)]);
    }

    #[test]
    fn only_judged_comparisons_count_and_a_tie_is_half_a_win() {
        let some = comparisons(4, &[(0, 1, 0.6), (0, 2, 0.9), (2, 2, 1.0)]);
        assert_eq!(some.win_ratio(0.6), [Some(0.75), Some(0.5), Some(0.0), None]);
        let mean = some.mean_probability();
        assert_eq!((mean[0], mean[1], mean[3]), (Some(0.75), Some(0.4), None));
    }

    /// Every pair in both orders, from a judge whose p depends only on the position, up to rounding.
    fn noise(n: usize) -> Comparisons {
        let pairs = (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| i != j);
        comparisons(n, &pairs.map(|(i, j)| (i, j, 0.1 * 3.0 + 1e-16 * (i * n + j) as f64)).collect::<Vec<_>>())
    }

    #[test]
    fn scores_that_rounding_alone_tells_apart_are_one_number() {
        for method in RankMethod::ALL {
            let scores = method.scores(&noise(5), &conditionals(&noise(5)));
            assert!(scores.windows(2).all(|w| w[0] == w[1]), "{method}: {scores:?}");
        }
    }

    #[test]
    fn candidates_of_one_text_have_one_score_whichever_of_their_comparisons_were_drawn() {
        let drawn = [(0, 1, 0.9), (1, 0, 0.3), (1, 2, 0.8), (2, 1, 0.6), (0, 2, 0.7), (2, 0, 0.7), (3, 1, 0.4)];
        let judged = comparisons(4, &drawn).with_texts(&["a", "b", "a", "c"]);
        for method in RankMethod::ALL {
            let scores = method.scores(&judged, &Conditionals::SYMMETRIC);
            assert!(scores[0] == scores[2] && scores[0] != scores[1], "{method}: {scores:?}");
        }
        let alone = comparisons(3, &[(0, 1, 0.9), (1, 0, 0.8), (2, 1, 0.7), (1, 2, 0.9)]).with_texts(&["a"; 3]);
        for method in RankMethod::ALL {
            let scores = method.scores(&alone, &Conditionals::SYMMETRIC);
            assert!(scores.iter().all(|s| s.is_some() && *s == scores[0]), "{method}: {scores:?}");
        }
    }

    #[test]
    fn what_cannot_be_ranked_is_refused() {
        let one = |i, j, p| Comparisons::new(2, [PairComparison { i, j, p }]);
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
        let hint = "elo".parse::<RankMethod>().expect_err("unknown").help().expect("a hint").to_string();
        assert_eq!(
            hint,
            "the methods are win-ratio, mean-prob, bradley-terry, experts, likelihood, hard-likelihood, \
             hard-likelihood-symmetric"
        );
    }

    #[test]
    fn every_way_orders_consistent_comparisons_by_strength() {
        let strengths = [0.3, 2.0, -1.0, 1.1, -2.0];
        for method in RankMethod::ALL {
            let judged = full(&strengths, 0.0);
            let scores: Vec<f64> =
                method.scores(&judged, &conditionals(&judged)).into_iter().map(|s| s.expect("judged")).collect();
            assert_eq!(crate::spearman(&scores, &strengths), Some(1.0), "{method}: {scores:?}");
        }
    }

    proptest! {
        #[test]
        fn scores_are_finite_and_absent_exactly_where_nothing_was_judged(c in any_comparisons(6)) {
            let involved = c.involved();
            for method in RankMethod::ALL {
                let scores = method.scores(&c, &conditionals(&c));
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
            let turned = Comparisons::new(n, c.judged().iter().rev().map(|c| PairComparison { i: n - 1 - c.i, j: n - 1 - c.j, p: c.p })).expect("valid");
            for method in RankMethod::ALL {
                for (a, b) in method.scores(&c, &conditionals(&c)).into_iter().zip(method.scores(&turned, &conditionals(&turned)).into_iter().rev()) {
                    prop_assert!(a.is_some() == b.is_some() && (a.unwrap_or(0.0) - b.unwrap_or(0.0)).abs() < 1e-8, "{method}: {a:?} {b:?}");
                }
            }
        }

        #[test]
        fn turning_each_comparison_round_changes_nothing_without_bias(c in any_comparisons(6)) {
            let turned = Comparisons::new(c.candidates(), c.judged().iter().map(|c| PairComparison { i: c.j, j: c.i, p: 1.0 - c.p })).expect("valid");
            for (a, b) in c.mean_probability().into_iter().zip(turned.mean_probability()) {
                prop_assert!((a.unwrap_or(0.0) - b.unwrap_or(0.0)).abs() < 1e-12);
            }
        }
    }
}
