//! Which scores are the better ones, and which numbers of a table are a metric's own.

use crate::metric::DynDefinition;
use crate::registry::metric;

/// In which direction scores get better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// As of similarities and probabilities.
    #[default]
    HigherIsBetter,
    /// As of distances and error rates.
    LowerIsBetter,
}

impl Direction {
    /// Of the metric that a table of scores names so; of what is no metric's label a higher score is better.
    pub fn of_label(label: &str) -> Self {
        definition(label).map_or(Self::HigherIsBetter, Self::of)
    }

    /// Of a metric of the registry, and of its parts.
    pub fn of(definition: &dyn DynDefinition) -> Self {
        if definition.lower_is_better() { Self::LowerIsBetter } else { Self::HigherIsBetter }
    }

    /// The score with the sign that makes the higher of two the better; of what it gives, the score again.
    pub fn upwards(self, score: f64) -> f64 {
        match self {
            Self::HigherIsBetter => score,
            // Not −score: zero stays the zero that it was.
            Self::LowerIsBetter => 0.0 - score,
        }
    }
}

/// Of the label of a part, the label of the metric: `rouge-l:stem=yes` of `rouge-l:stem=yes.recall`.
pub fn whole(label: &str) -> Option<&str> {
    let parts = definition(label)?.parts();
    let (whole, part) = label.rsplit_once('.')?;
    parts.contains(&part).then_some(whole)
}

/// Whether a label is of a count beside a metric, such as `bert-score.left-out`, the tokens that the model did not see: it
/// is no score of a text.
pub fn is_count(label: &str) -> bool {
    whole(label).is_some() && label.ends_with(LEFT_OUT)
}

/// The ending of the part that counts tokens.
const LEFT_OUT: &str = ".left-out";

/// Labels are `NAME`, `NAME:OPTIONS` and either with `.PART`; before them may stand what they were held against, as in
/// `adapted/bleu`. Tables of other tools write names as they like, `TER` say.
fn definition(label: &str) -> Option<&'static dyn DynDefinition> {
    let name = label.split([':', '.']).next().unwrap_or(label);
    metric(&name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_tells_its_direction_with_options_parts_and_kinds_of_reference() {
        let lower = [
            "ter", "TER", "ter:normalized=yes", "Levenshtein.normalised",
            "adapted/levenshtein-source:unit=word.normalised",
        ];
        assert!(lower.iter().all(|label| Direction::of_label(label) == Direction::LowerIsBetter));
        let higher = ["bleu", "rouge-l.recall", "adapted/judge", "compare", "meteor:wordnet=/data/ter", "TERSE", ""];
        assert!(higher.iter().all(|label| Direction::of_label(label) == Direction::HigherIsBetter));
    }

    #[test]
    fn parts_name_their_wholes() {
        assert_eq!(whole("rouge-l:stem=yes.recall"), Some("rouge-l:stem=yes"));
        assert_eq!(whole("adapted/meteor:alpha=0.85"), None, "the point is the option's");
        assert_eq!(["rouge-l", "rouge-l.other", "x.recall"].map(whole), [None; 3]);
    }

    #[test]
    fn counts_beside_a_metric_are_no_scores() {
        assert!(is_count("bert-score.left-out") && is_count("adapted/mover-score:n=2.left-out"));
        assert!(!is_count("bert-score.recall") && !is_count("mine.left-out") && !is_count("left-out"));
    }

    #[test]
    fn a_score_turned_twice_is_itself() {
        let turned = Direction::LowerIsBetter.upwards(3.0);
        assert_eq!((turned, Direction::LowerIsBetter.upwards(turned)), (-3.0, 3.0));
        assert!(Direction::LowerIsBetter.upwards(0.0).is_sign_positive());
    }
}
