//! Whether the agreement with gold depends on a few systems.

use probity_lm::text::fixed;
use probity_stats::{Interval, SystemScore, WithoutSystems, lowest_without_systems};

use super::{ConclusionCase, bracket};
use crate::gold;
use crate::thresholds::WEAK_CORRELATION;

/// Category of agreement by value and interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AgreementStrength {
    Chance,
    Weak,
    Strong,
}

impl AgreementStrength {
    fn new(value: f64, interval: Option<Interval>) -> Self {
        match interval {
            Some(Interval { low, .. }) if low > 0.0 && value >= WEAK_CORRELATION => Self::Strong,
            Some(Interval { low, .. }) if low > 0.0 => Self::Weak,
            _ => Self::Chance,
        }
    }
}

/// Systems without which the agreement falls into a lower category.
pub(super) struct Carried {
    pub(super) without: WithoutSystems,
    pub(super) why: String,
}

impl ConclusionCase<'_> {
    /// The smallest set of systems, one or two, without which the agreement falls into a lower category.
    pub(super) fn carried(&self, value: f64, interval: Option<Interval>) -> Option<Carried> {
        let own: Vec<Vec<SystemScore<'_>>>;
        let contexts = match (self.contexts, self.attribute) {
            (Some(contexts), _) => contexts,
            (None, Some(attribute)) => {
                own = gold::contexts(self.samples, attribute, self.scores);
                &own
            }
            (None, None) => return None,
        };
        let all = AgreementStrength::new(value, interval);
        if all == AgreementStrength::Chance {
            return None;
        }
        let strength =
            |one: &WithoutSystems| Some(AgreementStrength::new(one.spearman.figure.mean?, one.spearman.interval));
        let found = lowest_without_systems(contexts, self.confidence);
        let without = found.into_iter().find(|one| strength(one).is_some_and(|without| without < all))?;
        let (mean, interval) = (without.spearman.figure.mean?, bracket(without.spearman.interval, self.confidence));
        let names = without.systems.join(" and ");
        let number = if without.systems.len() == 1 { "one system" } else { "two systems" };
        let why =
            format!("the agreement depends on {number}: without {names}, Spearman is {}{interval}", fixed(mean, 3));
        Some(Carried { without, why })
    }
}

#[cfg(test)]
mod tests {
    use probity_stats::{AgreementFigures, Resampling};

    use super::*;
    use crate::conclusion::{AgreementCase, AnswerDoubts, Conclusion, Trust, agreement_with_gold};

    /// Seven systems in twenty contexts: five with nearly equal scores, and two with much lower ones.
    fn contexts(carrying: bool) -> Vec<Vec<SystemScore<'static>>> {
        const IDS: [&str; 7] = ["a", "b", "c", "d", "e", "poor", "worse"];
        let context = |k: usize| {
            let score = |at: usize| {
                // Among the five, gold alternates between the order of the scores and its reverse.
                let own = (at * 2 + k) % 5;
                let gold = if k.is_multiple_of(2) { own } else { 4 - own };
                let far = match (carrying, at) {
                    (true, 5..) => 20 + 3 * at,
                    _ => 0,
                };
                let (own, gold) = if carrying { (own, gold) } else { (at + k % 2, at) };
                SystemScore { system: IDS[at], predicted: own as f64 - far as f64, gold: gold as f64 - far as f64 }
            };
            (0..7).map(score).collect()
        };
        (0..20).map(context).collect()
    }

    fn concluded(contexts: &[Vec<SystemScore<'_>>]) -> Conclusion {
        let figures = AgreementFigures::from_scores(contexts, &Resampling::default());
        let case = AgreementCase { unscored: None, answers: AnswerDoubts::default(), confidence: 0.95 };
        agreement_with_gold(&figures, contexts, case).expect("gold")
    }

    #[test]
    fn agreement_that_two_systems_carry_is_named_and_no_more_than_caution() {
        let found = concluded(&contexts(true));
        assert_eq!(found.trust, Trust::Caution, "{found:?}");
        assert!(
            found.because.contains("depends on two systems") && found.because.contains("worse"),
            "{}",
            found.because
        );
        assert!(found.figures["without_systems"]["mean"].as_f64().is_some_and(|rho| rho < WEAK_CORRELATION));
        let of_all = concluded(&contexts(false));
        assert_eq!((of_all.trust, &of_all.figures["without_systems"]), (Trust::Reliable, &serde_json::Value::Null));
    }

    #[test]
    fn a_figure_above_an_interval_that_reaches_below_the_limit_is_no_more_than_caution() {
        const IDS: [&str; 4] = ["a", "b", "c", "d"];
        // Spearman is 0.8 in nine contexts and -0.4 in three: 0.5, with an interval that starts below 0.3.
        let context = |k: usize| {
            let order = if k.is_multiple_of(4) { [4.0, 2.0, 1.0, 3.0] } else { [1.0, 2.0, 4.0, 3.0] };
            let score = |at: usize| SystemScore { system: IDS[at], predicted: order[at], gold: at as f64 };
            (0..4).map(score).collect::<Vec<_>>()
        };
        let found = concluded(&(0..12).map(context).collect::<Vec<_>>());
        assert!((found.figures["spearman"].as_f64().expect("defined") - 0.5).abs() < 1e-12);
        assert_eq!(found.trust, Trust::Caution);
        assert!(found.because.starts_with("the agreement may be weak: the interval starts at"), "{}", found.because);
    }
}
