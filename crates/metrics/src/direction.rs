//! Which direction of scores is better, and which columns of a table are a metric's own scores.

use crate::metric::DynDefinition;
use crate::registry::metric;

/// Direction in which scores improve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// For similarities and probabilities.
    #[default]
    HigherIsBetter,
    /// For distances and error rates.
    LowerIsBetter,
}

impl Direction {
    /// The direction of a metric label; higher is better for unknown labels.
    pub fn for_metric(label: &str) -> Self {
        definition(label).map_or(Self::HigherIsBetter, Self::from_definition)
    }

    /// The direction of a metric of the registry and of its parts.
    pub fn from_definition(definition: &dyn DynDefinition) -> Self {
        if definition.lower_is_better() { Self::LowerIsBetter } else { Self::HigherIsBetter }
    }

    /// Changes the sign such that higher is better; applied twice, it returns the score.
    pub fn upwards(self, score: f64) -> f64 {
        match self {
            Self::HigherIsBetter => score,
            // Not −score: 0 stays positive zero.
            Self::LowerIsBetter => 0.0 - score,
        }
    }
}

/// The metric label of a part's label: `rouge-l:stem=yes` for `rouge-l:stem=yes.recall`.
pub fn whole(label: &str) -> Option<&str> {
    let parts = definition(label)?.parts();
    let (whole, part) = label.rsplit_once('.')?;
    parts.contains(&part).then_some(whole)
}

/// Whether a label is a count beside a metric instead of a score, such as `bert-score.left-out`, the number of
/// truncated tokens.
pub fn is_count(label: &str) -> bool {
    whole(label).is_some() && label.ends_with(LEFT_OUT)
}

/// The suffix of the part that counts tokens.
const LEFT_OUT: &str = ".left-out";

/// Labels are `NAME`, `NAME:OPTIONS` and either with `.PART`, optionally with a prefix for the target of the
/// comparison, as in `adapted/bleu`. Tables of other tools may use other spellings, such as `TER`.
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
        assert!(lower.iter().all(|label| Direction::for_metric(label) == Direction::LowerIsBetter));
        let higher = ["bleu", "rouge-l.recall", "adapted/judge", "compare", "meteor:wordnet=/data/ter", "TERSE", ""];
        assert!(higher.iter().all(|label| Direction::for_metric(label) == Direction::HigherIsBetter));
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
