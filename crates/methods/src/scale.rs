//! The ratings that a model may give.

use probity_lm::{Label, LabelSet, Termination};
use probity_options::written_as_text;

use crate::MethodError;

/// Whether a label begins another. By the digits and not by tokens, so that a scale has the same labels for every
/// model.
pub(crate) fn one_begins_another(names: &[String]) -> bool {
    names.iter().any(|short| names.iter().any(|long| long != short && long.starts_with(short.as_str())))
}

/// Whole numbers from `min` to `max`, of which there are at least two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RatingScale {
    /// The lowest rating.
    pub min: u32,
    /// The highest.
    pub max: u32,
}

/// More ratings than this are more than anyone can tell apart, and more labels than a prompt should ask for.
const MAX_RATINGS: u32 = 101;

/// Why a text is no [`RatingScale`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum ScaleError {
    /// There are no two ends.
    #[error("expected MIN..MAX, such as 1..5")]
    Form,
    /// An end is no whole number.
    #[error("`{0}` is not a whole number")]
    Number(String),
    /// The ends are the wrong way round, or one rating.
    #[error("{min} is not below {max}")]
    Order {
        /// What was to be the lower end.
        min: u32,
        /// What was to be the upper end.
        max: u32,
    },
    /// There are too many ratings.
    #[error("at most {MAX_RATINGS} ratings can be asked for")]
    TooMany,
}

impl std::str::FromStr for RatingScale {
    type Err = ScaleError;

    fn from_str(text: &str) -> Result<Self, ScaleError> {
        let (min, max) = text.split_once("..").ok_or(ScaleError::Form)?;
        let number = |part: &str| {
            // Rust's `1..=5` is understood too.
            part.trim_start_matches('=').parse::<u32>().map_err(|_| ScaleError::Number(part.to_owned()))
        };
        let (min, max) = (number(min)?, number(max)?);
        if min >= max {
            return Err(ScaleError::Order { min, max });
        }
        if max - min >= MAX_RATINGS {
            return Err(ScaleError::TooMany);
        }
        Ok(Self { min, max })
    }
}

impl std::fmt::Display for RatingScale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.min, self.max)
    }
}

written_as_text!(RatingScale);

impl RatingScale {
    /// From the worst to the best.
    pub fn ratings(self) -> std::ops::RangeInclusive<u32> {
        self.min..=self.max
    }

    /// The lowest and the highest rating.
    pub fn ends(self) -> [f64; 2] {
        [self.min, self.max].map(f64::from)
    }

    /// One label per rating. Where the digits of one begin another (1 and 10), every label includes the end of the
    /// answer.
    pub fn labels(self) -> Result<LabelSet, MethodError> {
        let names: Vec<String> = self.ratings().map(|k| k.to_string()).collect();
        let label = |name: &String| Label { name: name.clone(), variants: vec![name.clone(), format!(" {name}")] };
        let labels = LabelSet::new(names.iter().map(label).collect())?;
        Ok(if one_begins_another(&names) { labels.with_termination(Termination::EndOfTurn) } else { labels })
    }
}

#[cfg(test)]
mod tests {
    use super::RatingScale;

    #[test]
    fn malformed_scales_are_refused() {
        for (text, part) in [("5", "MIN..MAX"), ("5..1", "not below"), ("1..x", "`x`"), ("1..1000", "at most")] {
            assert!(text.parse::<RatingScale>().expect_err("malformed").to_string().contains(part), "{text}");
        }
    }
}
