//! Trust in a conclusion, from its own doubts and from the quality of the model's answers.

use probity_lm::text::counted;
use serde::{Deserialize, Serialize};

use super::{Conclusion, ConclusionCase, Doubt, Finding, Trust, percent};
use crate::thresholds::{MANY_LOW, MANY_TURN, MANY_UNSCORED, MOST_LOW, MOST_TURN};

/// Signs of unreliable scores in the model's answers, independent of gold.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerDoubts {
    /// Share of pairs whose verdict changes with presentation order, and the number of pairs judged in both orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turned: Option<(f64, usize)>,
    /// Share of comparisons won by the first text, if no pair was judged in both orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_wins: Option<f64>,
    /// Share of answers with low label mass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_mass: Option<f64>,
}

impl AnswerDoubts {
    /// Field of these values in a conclusion's figures.
    pub(super) const FIELD: &'static str = "answers";

    /// Reads them from a run's conclusion about `attribute`, or from its only conclusion.
    pub(crate) fn from_conclusions(verdict: &[Conclusion], attribute: Option<&str>) -> Self {
        let about = |one: &&Conclusion| one.about.as_deref() == attribute;
        let found = verdict.iter().find(about).or(if let [only] = verdict { Some(only) } else { None });
        let told = found.and_then(|one| serde_json::from_value(one.figures[Self::FIELD].clone()).ok());
        told.unwrap_or_default()
    }

    /// Share of verdicts that follow presentation order.
    ///
    /// Pairs judged in both orders take precedence, because the share won by the first position also depends on the
    /// texts there. That share is converted to the same scale: twice its distance from one half.
    fn order_share(&self) -> Option<f64> {
        let by_place = self.first_wins.map(|share| 2.0 * (share - 0.5).abs());
        self.turned.map(|(share, _)| share).or(by_place)
    }

    /// Whether they make scores unreliable that are not compared with gold.
    pub(super) fn outweigh_scores(&self) -> bool {
        let above = |share: Option<f64>, limit: f64| share.is_some_and(|share| share > limit);
        above(self.order_share(), MOST_TURN) || above(self.low_mass, MOST_LOW)
    }
}

impl ConclusionCase<'_> {
    /// Combines the finding with the doubts about the answers. Agreement with gold despite position bias or low label
    /// mass lowers trust to caution; without such agreement, these doubts make the conclusion unreliable.
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
