//! Whether a few systems carry the agreement with gold.

use probity_lm::text::fixed;
use probity_stats::{Interval, SystemScore, WithoutSystems, lowest_without_systems};

use super::{ConclusionCase, WEAK_CORRELATION, bracket};
use crate::gold;

/// What agreement is worth, by its figure and interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Chance,
    Weak,
    Strong,
}

impl Strength {
    fn of(value: f64, interval: Option<Interval>) -> Self {
        match interval {
            Some(Interval { low, .. }) if low > 0.0 && value >= WEAK_CORRELATION => Self::Strong,
            Some(Interval { low, .. }) if low > 0.0 => Self::Weak,
            _ => Self::Chance,
        }
    }
}

/// Systems without which the agreement is worth less.
pub(super) struct Carried {
    pub(super) without: WithoutSystems,
    pub(super) why: String,
}

impl ConclusionCase<'_> {
    /// The fewest systems, one or two, without which the agreement falls below what it is taken for.
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
        let all = Strength::of(value, interval);
        if all == Strength::Chance {
            return None;
        }
        let strength = |one: &WithoutSystems| Some(Strength::of(one.spearman.figure.mean?, one.spearman.interval));
        let found = lowest_without_systems(contexts, self.confidence);
        let without = found.into_iter().find(|one| strength(one).is_some_and(|without| without < all))?;
        let (mean, interval) = (without.spearman.figure.mean?, bracket(without.spearman.interval, self.confidence));
        let names = without.systems.join(" and ");
        let carries = if without.systems.len() == 1 { "one system carries" } else { "two systems carry" };
        let why = format!("{carries} the agreement: without {names} Spearman is {}{interval}", fixed(mean, 3));
        Some(Carried { without, why })
    }
}
