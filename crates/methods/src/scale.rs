//! Rating scales.

use probity_lm::{Label, LabelSet, Termination};
use probity_options::written_as_text;

use crate::MethodError;

/// Whether a label is a prefix of another. Compares digits, not tokens, so that a scale has the same labels for every
/// model.
pub(crate) fn one_begins_another(names: &[String]) -> bool {
    names.iter().any(|short| names.iter().any(|long| long != short && long.starts_with(short.as_str())))
}

/// The whole numbers from `min` to `max`, at least two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RatingScale {
    /// The lowest rating.
    pub min: u32,
    /// The highest rating.
    pub max: u32,
}

/// The maximum number of ratings: finer scales are not distinguishable, and need too many labels.
const MAX_RATINGS: u32 = 101;

/// A text that is not a [`RatingScale`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum ScaleError {
    /// The two ends are missing.
    #[error("expected MIN..MAX, such as 1..5")]
    Form,
    /// An end is not a whole number.
    #[error("`{0}` is not a whole number")]
    Number(String),
    /// The ends are reversed or equal.
    #[error("{min} is not below {max}")]
    Order {
        /// The lower end, as written.
        min: u32,
        /// The upper end, as written.
        max: u32,
    },
    /// Too many ratings.
    #[error("the maximum is {MAX_RATINGS} ratings")]
    TooMany,
}

impl std::str::FromStr for RatingScale {
    type Err = ScaleError;

    fn from_str(text: &str) -> Result<Self, ScaleError> {
        let (min, max) = text.split_once("..").ok_or(ScaleError::Form)?;
        let number = |part: &str| {
            // Also accepts Rust's `1..=5`.
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
    /// All ratings, from worst to best.
    pub fn ratings(self) -> std::ops::RangeInclusive<u32> {
        self.min..=self.max
    }

    /// The lowest and the highest rating.
    pub fn ends(self) -> [f64; 2] {
        [self.min, self.max].map(f64::from)
    }

    /// One label per rating. If the digits of one are a prefix of another (1 and 10), every label includes the end of
    /// the answer.
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
        for (text, part) in [("5", "MIN..MAX"), ("5..1", "not below"), ("1..x", "`x`"), ("1..1000", "the maximum")] {
            assert!(text.parse::<RatingScale>().expect_err("malformed").to_string().contains(part), "{text}");
        }
    }
}
