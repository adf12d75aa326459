//! How far to trust a conclusion, by its doubts and by those of the answers that the scores were made from.

use probity_lm::text::counted;
use serde::{Deserialize, Serialize};

use super::{Conclusion, ConclusionCase, Doubt, Finding, Trust, percent};
use crate::thresholds::{MANY_LOW, MANY_TURN, MANY_UNSCORED, MOST_LOW, MOST_TURN};

/// What speaks against scores in the answers that they were made from, whatever people say of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerDoubts {
    /// The share of pairs whose verdict turns with the order, and how many pairs were seen in both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turned: Option<(f64, usize)>,
    /// The share of comparisons that the text shown first wins, where no pair was seen in both orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_wins: Option<f64>,
    /// The share of answers in which the model hardly considers the labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_mass: Option<f64>,
}

impl AnswerDoubts {
    /// Under which name a conclusion's figures have them.
    pub(super) const FIELD: &'static str = "answers";

    /// Those that a run's conclusion about `attribute` tells of; of a run that concludes about one thing alone, its own.
    pub(crate) fn of_run(verdict: &[Conclusion], attribute: Option<&str>) -> Self {
        let about = |one: &&Conclusion| one.about.as_deref() == attribute;
        let found = verdict.iter().find(about).or(if let [only] = verdict { Some(only) } else { None });
        let told = found.and_then(|one| serde_json::from_value(one.figures[Self::FIELD].clone()).ok());
        told.unwrap_or_default()
    }

    /// The share of verdicts that follow the order. Pairs seen in both orders come first: the share won by the first
    /// place also follows which texts stood there. That share counts twice as far from one half as it is, which is what
    /// changes with the order, seen from one side.
    fn order_share(&self) -> Option<f64> {
        let by_place = self.first_wins.map(|share| 2.0 * (share - 0.5).abs());
        self.turned.map(|(share, _)| share).or(by_place)
    }

    /// Whether they make scores unreliable that are compared with no gold.
    pub(super) fn outweigh_scores(&self) -> bool {
        let above = |share: Option<f64>, limit: f64| share.is_some_and(|share| share > limit);
        above(self.order_share(), MOST_TURN) || above(self.low_mass, MOST_LOW)
    }
}

impl ConclusionCase<'_> {
    /// What agrees with gold in spite of places or of labels that are hardly considered has some worth, which was shown;
    /// else these outweigh a caution and a clear interval alike: what was measured then is places, or next to nothing.
    pub(super) fn trust(&self, said: &Finding) -> (Trust, String) {
        let held = matches!(said.doubt, Doubt::None);
        let turns = self.answers.turned.map(|(share, pairs)| {
            format!("swapping the two texts changes the verdict in {} of {}", percent(share), counted(pairs, "pair"))
        });
        let by_place = self
            .answers
            .first_wins
            .map(|share| format!("no pair was judged in both orders, and the first text wins {}", percent(share)));
        let turns = self.answers.order_share().zip(turns.or(by_place));
        let low = self
            .answers
            .low_mass
            .map(|share| (share, format!("{} of the answers have low label mass", percent(share))));
        let unscored = self.unscored.or_else(|| self.without_score());
        let unscored = unscored.map(|share| (share, format!("{} of the results have no score", percent(share))));
        let above = |found: &Option<(f64, String)>, limit: f64| found.as_ref().is_some_and(|(share, _)| *share > limit);
        let many = above(&turns, MANY_TURN) || above(&low, MANY_LOW) || above(&unscored, MANY_UNSCORED);
        let trust = match said.doubt {
            Doubt::Unreliable(_) => Trust::Unreliable,
            _ if self.answers.outweigh_scores() => {
                if held {
                    Trust::Caution
                } else {
                    Trust::Unreliable
                }
            }
            Doubt::None if !many => Trust::Reliable,
            Doubt::None | Doubt::Caution(_) | Doubt::Mute(_) => Trust::Caution,
        };
        if trust == Trust::Reliable {
            let order = turns.map(|(_, why)| format!(", and {why}")).unwrap_or_default();
            return (trust, format!("compared with gold, and the interval excludes chance{order}"));
        }
        let turns = turns.filter(|(share, _)| *share > MANY_TURN);
        let low = low.filter(|(share, _)| *share > MANY_LOW);
        let unscored = unscored.filter(|(share, _)| *share > MANY_UNSCORED);
        let causes: Vec<String> = turns.into_iter().chain(low).chain(unscored).map(|(_, why)| why).collect();
        let because = match &said.doubt {
            Doubt::None => causes.join("; "),
            Doubt::Caution(why) | Doubt::Mute(why) | Doubt::Unreliable(why) if causes.is_empty() => why.clone(),
            Doubt::Caution(why) | Doubt::Mute(why) => format!("{}; {why}", causes.join("; ")),
            Doubt::Unreliable(why) => format!("{}, and {why}", causes.join("; ")),
        };
        (trust, because)
    }
}
