//! The probabilities of a judge's decisions given which of two candidates is better (paper 002, eq. 13).

use serde::Serialize;

use super::Comparisons;

/// P(the judge prefers the first | the first is better), and P(the judge prefers the first | the second is better).
/// They determine the other two conditionals of eq. 13.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Conditionals {
    /// If the first is better.
    pub said_where_better: f64,
    /// If the second is better.
    pub said_where_worse: f64,
}

impl Conditionals {
    /// A judge without position bias: the two are p and 1 − p. For any p above one half the most likely ranks agree
    /// with the most decisions; p = e / (1 + e) makes a decision weigh one natural unit.
    pub const SYMMETRIC: Self =
        Self { said_where_better: 0.731_058_578_630_004_9, said_where_worse: 0.268_941_421_369_995_1 };

    /// Estimates both from the judge's own decisions at `threshold` over all pairs judged in both orders (eq. 13:
    /// "setting one probability will set the other three").
    ///
    /// Each candidate is first once per pair, so the share of decisions for the first is (a + b) / 2, where a and b are
    /// the two conditionals. If the decisions on both orders are independent given the better candidate, both orders
    /// name the same winner with probability a (1 − b) + (1 − a) b. These two equations determine a and b. A decision
    /// at the threshold counts half.
    ///
    /// If a judge's orders agree less often than those of a judge that ignores the texts, there is no real solution:
    /// its decisions are uninformative, and a = b. `None` if no pair was judged in both orders. Both are in [0, 1], and
    /// `said_where_better` is at least as large as the other.
    pub fn estimate<'c>(items: impl IntoIterator<Item = &'c Comparisons>, threshold: f64) -> Option<Self> {
        let decision =
            |p: f64| p.partial_cmp(&threshold).map_or(0.5, |order| f64::midpoint(f64::from(order as i8), 1.0));
        let (mut pairs, mut first, mut same) = (0_usize, 0.0, 0.0);
        for item in items {
            for (there, back) in item.pairs_in_both_orders() {
                let (there, back) = (decision(there), decision(back));
                pairs += 1;
                first += there + back;
                same += there * (1.0 - back) + (1.0 - there) * back;
            }
        }
        if pairs == 0 {
            return None;
        }
        let (sum, same) = (first / pairs as f64, same / pairs as f64);
        // The roots of x² − sum·x + (sum − same) / 2.
        let apart = (sum * sum - 2.0 * (sum - same)).max(0.0).sqrt();
        let root = |signed: f64| f64::midpoint(sum, signed).clamp(0.0, 1.0);
        Some(Self { said_where_better: root(apart), said_where_worse: root(-apart) })
    }

    /// Whether decisions are informative about the texts.
    pub fn are_informative(&self) -> bool {
        self.said_where_better > self.said_where_worse
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::comparisons;
    use super::*;

    /// Pairs with decisions in both orders, in these counts.
    fn judged(counts: [usize; 4]) -> Vec<Comparisons> {
        let decisions = [(0.9, 0.1), (0.1, 0.9), (0.9, 0.9), (0.1, 0.1)];
        let each = counts
            .into_iter()
            .zip(decisions)
            .flat_map(|(count, (there, back))| std::iter::repeat_n((there, back), count));
        each.map(|(there, back)| comparisons(2, &[(0, 1, there), (1, 0, back)])).collect()
    }

    #[test]
    fn conditionals_are_found_again_from_the_decisions_that_they_make() {
        // 0 is better in all 400 pairs; the judge has a = 0.8, b = 0.5 and independent orders.
        let (a, b) = (0.8, 0.5);
        let expected = [a * (1.0 - b), (1.0 - a) * b, a * b, (1.0 - a) * (1.0 - b)]
            .map(|share| (share * 400.0_f64).round() as usize);
        let found = Conditionals::estimate(&judged(expected), 0.5).expect("pairs");
        assert!((found.said_where_better - a).abs() < 1e-12 && (found.said_where_worse - b).abs() < 1e-12, "{found:?}");
        assert!(found.are_informative());
    }

    #[test]
    fn a_judge_of_places_and_one_of_texts_are_told_apart() {
        let places = Conditionals::estimate(&judged([0, 0, 9, 0]), 0.5).expect("pairs");
        assert_eq!((places.said_where_better, places.said_where_worse, places.are_informative()), (1.0, 1.0, false));
        let texts = Conditionals::estimate(&judged([9, 0, 0, 0]), 0.5).expect("pairs");
        assert_eq!((texts.said_where_better, texts.said_where_worse), (1.0, 0.0));
        // Orders that contradict each other more often than chance.
        assert!(!Conditionals::estimate(&judged([0, 0, 5, 5]), 0.5).expect("pairs").are_informative());
    }

    #[test]
    fn without_a_pair_in_both_orders_there_is_no_estimate() {
        assert_eq!(Conditionals::estimate(&[comparisons(3, &[(0, 1, 0.9), (1, 2, 0.4)])], 0.5), None);
    }
}
