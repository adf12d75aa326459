//! The ranks under which the comparisons are most likely (paper 002, appendix B).
//!
//! Eq. 12 as printed adds the two powers; the likelihood that its text describes is their product, Π p^z (1 − p)^(1 − z), which is what is
//! maximised here. Up to a constant its logarithm is a sum over ordered pairs of how much the evidence speaks for one being before the other, so
//! the best ranks are a linear ordering problem.

use serde::Serialize;

use super::Comparisons;

/// Up to so many judged candidates all orders are searched; beyond, a local search gives an order that no single move improves.
pub const EXACT_SEARCH: usize = 16;

/// A probability nearer to 0 or 1 counts as this near: contradicting certainties stay comparable.
pub const PROBABILITY_FLOOR: f64 = 1e-12;

/// The most likely ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LikelihoodRanking {
    /// How many judged candidates stand below the candidate: the best of n has n − 1. Where several orders are equally likely it is the mean
    /// over them (exact search), or over the places of neighbours that nothing tells apart (local search).
    pub scores: Vec<Option<f64>>,
    /// The natural logarithm of the likelihood of the best order.
    pub log_likelihood: f64,
    /// Whether no order is more likely. Otherwise the search was local.
    pub exact: bool,
}

impl Comparisons {
    /// Eqs. 11–12: the ranks that maximise Π p^z (1 − p)^(1 − z), z = 1 where the first stands above the second.
    pub fn max_likelihood(&self) -> LikelihoodRanking {
        self.most_likely(|p| (p.max(PROBABILITY_FLOOR).ln(), (1.0 - p).max(PROBABILITY_FLOOR).ln()))
    }

    /// Eq. 13 for a judge without positional bias: the same from hard decisions at `threshold`. A probability at the threshold is no decision.
    ///
    /// The ranks are those that agree with most decisions, whatever P(first wins | first is better) is as long as it is above 0.5; it is set
    /// to e / (1 + e), so that a decision weighs exactly one natural unit.
    pub fn max_approximate_likelihood(&self, threshold: f64) -> LikelihoodRanking {
        let right = 1.0 / (1.0 + (-1.0_f64).exp());
        let (right, wrong) = (right.ln(), (1.0 - right).ln());
        self.most_likely(|p| match p.partial_cmp(&threshold) {
            Some(std::cmp::Ordering::Greater) => (right, wrong),
            Some(std::cmp::Ordering::Less) => (wrong, right),
            _ => (0.0, 0.0),
        })
    }

    /// `evidence(p)`: the log-likelihood of a comparison where its first is the better one, and where it is not.
    fn most_likely(&self, evidence: impl Fn(f64) -> (f64, f64)) -> LikelihoodRanking {
        let involved = self.involved();
        let mut position = vec![0; self.candidates];
        involved.iter().enumerate().for_each(|(at, &candidate)| position[candidate] = at);
        let mut ordering = Ordering { gains: vec![vec![0.0; involved.len()]; involved.len()], base: 0.0, tolerance: 0.0 };
        for c in &self.judged {
            let (for_first, for_second) = evidence(c.p);
            let (i, j) = (position[c.i], position[c.j]);
            ordering.gains[i][j] += (for_first - for_second) / 2.0;
            ordering.gains[j][i] -= (for_first - for_second) / 2.0;
            ordering.base += f64::midpoint(for_first, for_second);
        }
        ordering.tolerance = 1e-12 * (1.0 + ordering.gains.iter().flatten().map(|g| g.abs()).sum::<f64>());
        let exact = involved.len() <= EXACT_SEARCH;
        let (places, best) = if exact { ordering.exact() } else { ordering.local(self.start(&involved)) };
        let mut scores = vec![None; self.candidates];
        for (&candidate, place) in involved.iter().zip(places) {
            scores[candidate] = Some(involved.len() as f64 - 1.0 - place);
        }
        LikelihoodRanking { scores, log_likelihood: ordering.base + best, exact }
    }

    /// Positions among the involved candidates by mean probability, the best first.
    fn start(&self, involved: &[usize]) -> Vec<usize> {
        let mean = self.mean_probability();
        let score = |at: usize| mean[involved[at]].expect("an involved candidate has a mean");
        let mut order: Vec<usize> = (0..involved.len()).collect();
        order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
        order
    }
}

/// The linear ordering problem: `gains[i][j]` is won where i stands before j; antisymmetric.
struct Ordering {
    gains: Vec<Vec<f64>>,
    base: f64,
    // Sums that differ by less are equal but for rounding.
    tolerance: f64,
}

impl Ordering {
    /// The mean place (from 0) of each over all best orders, and what these win: dynamic programming over the sets that can stand in front.
    fn exact(&self) -> (Vec<f64>, f64) {
        let n = self.gains.len();
        let sets = 1_usize << n;
        let members = |set: usize| (0..n).filter(move |i| set >> i & 1 == 1);
        // What is won by putting `last` behind all others of the set.
        let won = |set: usize, last: usize| -> f64 { members(set).map(|i| self.gains[i][last]).sum() };
        let mut best = vec![0.0_f64; sets];
        let mut ways = vec![0.0_f64; sets];
        // Which members of the set stand last in a best order of it.
        let mut lasts = vec![0_u32; sets];
        ways[0] = 1.0;
        for set in 1..sets {
            let value = |last: usize| best[set & !(1 << last)] + won(set, last);
            let values: Vec<(usize, f64)> = members(set).map(|last| (last, value(last))).collect();
            let top = values.iter().fold(f64::NEG_INFINITY, |m, (_, v)| m.max(*v));
            for (last, _) in values.into_iter().filter(|(_, v)| top - v <= self.tolerance) {
                lasts[set] |= 1 << last;
                ways[set] += ways[set & !(1 << last)];
            }
            best[set] = top;
        }
        // Backwards: the share of all best orders that go through each set.
        let mut share = vec![0.0_f64; sets];
        share[sets - 1] = 1.0;
        let mut places = vec![0.0; n];
        for set in (1..sets).rev().filter(|&s| ways[s] > 0.0) {
            for last in members(lasts[set] as usize) {
                let front = set & !(1 << last);
                let part = share[set] * ways[front] / ways[set];
                share[front] += part;
                places[last] += part * f64::from(front.count_ones());
            }
        }
        (places, best[sets - 1])
    }

    /// The place of each in the order that a local search finds from `order`, and what it wins.
    fn local(&self, order: Vec<usize>) -> (Vec<f64>, f64) {
        let order = self.improved(order);
        (self.shared_places(&order), self.value(&order))
    }

    /// Moves one to another place while that wins anything, the best move first.
    fn improved(&self, mut order: Vec<usize>) -> Vec<usize> {
        while let Some((from, to)) = self.best_move(&order) {
            let moved = order.remove(from);
            order.insert(to, moved);
        }
        order
    }

    fn value(&self, order: &[usize]) -> f64 {
        order.iter().enumerate().flat_map(|(at, &i)| order[at + 1..].iter().map(move |&j| self.gains[i][j])).sum()
    }

    fn best_move(&self, order: &[usize]) -> Option<(usize, usize)> {
        let mut best = (self.tolerance, None);
        for from in 0..order.len() {
            let i = order[from];
            let mut gain = 0.0;
            for (to, &j) in order.iter().enumerate().take(from).rev() {
                gain += 2.0 * self.gains[i][j];
                if gain > best.0 {
                    best = (gain, Some((from, to)));
                }
            }
            gain = 0.0;
            for (to, &j) in order.iter().enumerate().skip(from + 1) {
                gain += 2.0 * self.gains[j][i];
                if gain > best.0 {
                    best = (gain, Some((from, to)));
                }
            }
        }
        best.1
    }

    /// Neighbours among whom no gain tells one from another share the mean of their places.
    fn shared_places(&self, order: &[usize]) -> Vec<f64> {
        let mut places = vec![0.0; order.len()];
        let mut start = 0;
        while start < order.len() {
            let mut end = start + 1;
            while end < order.len() && order[start..end].iter().all(|&i| self.gains[i][order[end]].abs() <= self.tolerance) {
                end += 1;
            }
            for &i in &order[start..end] {
                places[i] = (start + end - 1) as f64 / 2.0;
            }
            start = end;
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Comparison;
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
        let agreed = |c: &Comparison| if place(c.i) < place(c.j) { c.p } else { 1.0 - c.p };
        c.judged().iter().map(|c| agreed(c).max(PROBABILITY_FLOOR).ln()).sum()
    }

    /// The best log-likelihood and each candidate's mean number of candidates below it over all best orders.
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
        // A judge of seeded whims: the fractional parts of multiples of the golden ratio.
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
        assert_eq!(comparisons(2, &[]).max_likelihood(), LikelihoodRanking { scores: vec![None; 2], log_likelihood: 0.0, exact: true });
    }

    #[test]
    fn contradicting_certainties_cancel() {
        let scores = comparisons(3, &[(0, 1, 1.0), (1, 0, 1.0), (1, 2, 0.9), (0, 2, 0.9)]).max_likelihood().scores;
        assert_eq!(scores, [Some(1.5), Some(1.5), Some(0.0)]);
    }

    #[test]
    fn more_candidates_than_exact_search_takes_are_ordered_by_strength() {
        let strengths: Vec<f64> = (0..20).map(|i| f64::from((i * 7) % 20) / 10.0).collect();
        let found = full(&strengths, 0.4).max_likelihood();
        let scores: Vec<f64> = found.scores.into_iter().map(|s| s.expect("judged")).collect();
        assert!(!found.exact);
        assert_eq!(crate::spearman(&scores, &strengths), Some(1.0));
        let even: Vec<_> = (1..20).map(|i| (i - 1, i, 0.5)).collect();
        assert!(comparisons(20, &even).max_likelihood().scores.iter().all(|s| *s == Some(9.5)));
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
        assert_eq!(c.max_approximate_likelihood(0.5).scores, [Some(0.5), Some(0.5)]);
        assert_eq!(c.max_approximate_likelihood(0.1).scores, [Some(1.0), Some(0.0)]);
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
            let found = c.max_approximate_likelihood(0.5);
            prop_assert!((found.log_likelihood - expected).abs() < 1e-9);
        }

        #[test]
        fn local_search_improves_to_where_no_move_helps_and_never_beyond_exact_search(c in any_comparisons(8)) {
            let mut ordering = Ordering { gains: vec![vec![0.0; 8]; 8], base: 0.0, tolerance: 1e-12 };
            for k in c.judged() {
                ordering.gains[k.i][k.j] += k.p - 0.5;
                ordering.gains[k.j][k.i] -= k.p - 0.5;
            }
            let start: Vec<usize> = (0..8).collect();
            let order = ordering.improved(start.clone());
            prop_assert!(ordering.best_move(&order).is_none());
            let (places, value) = ordering.local(start.clone());
            prop_assert!(ordering.value(&start) <= value + 1e-9 && value <= ordering.exact().1 + 1e-9);
            prop_assert!(order.windows(2).all(|w| places[w[0]] <= places[w[1]]));
            prop_assert_eq!(places.iter().sum::<f64>(), 28.0);
        }

        #[test]
        fn the_gain_of_a_move_is_the_difference_in_value(c in any_comparisons(8)) {
            let mut ordering = Ordering { gains: vec![vec![0.0; 8]; 8], base: 0.0, tolerance: 1e-12 };
            for k in c.judged() {
                ordering.gains[k.i][k.j] += k.p - 0.5;
                ordering.gains[k.j][k.i] -= k.p - 0.5;
            }
            let order: Vec<usize> = (0..8).collect();
            let moved = |from: usize, to: usize| { let mut o = order.clone(); let m = o.remove(from); o.insert(to, m); o };
            let values = (0..8).flat_map(|from| (0..8).map(move |to| (from, to))).map(|(from, to)| ordering.value(&moved(from, to)));
            let top = values.fold(f64::NEG_INFINITY, f64::max);
            let chosen = ordering.best_move(&order).map_or_else(|| ordering.value(&order), |(from, to)| ordering.value(&moved(from, to)));
            prop_assert!((top - chosen).abs() < 1e-9, "{top} {chosen}");
        }
    }
}
