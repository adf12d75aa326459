//! The scores of a run.

use serde::Serialize;

/// The scores of a run, as declared by its method. They are serialised into `summary.json` for reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunScores {
    /// Range of the scores, which also limits intervals of their means; `None` if unbounded.
    #[serde(rename = "scores_within", skip_serializing_if = "Option::is_none")]
    pub within: Option<[f64; 2]>,
    /// Whether the method's own tables compare its scores with gold, so that a report need not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tells_agreement: bool,
    /// Contents of the table of scores; empty if the method judges no candidates.
    #[serde(skip)]
    pub attributes: Vec<AttributeScores>,
}

/// The scores of one attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct AttributeScores {
    /// Absent if the method has no attribute.
    pub attribute: Option<String>,
    /// Scores by sample and candidate.
    pub scores: Vec<Vec<Option<f64>>>,
}

impl AttributeScores {
    /// Whether there is any score.
    pub(crate) fn is_scored(&self) -> bool {
        self.scores.iter().flatten().any(Option::is_some)
    }
}

impl RunScores {
    /// Empty scores with a range; see [`Self::within`].
    pub fn new(within: Option<[f64; 2]>) -> Self {
        Self { within, ..Self::default() }
    }

    /// Adds the scores of an attribute, by sample and candidate.
    pub fn push(&mut self, attribute: Option<&str>, scores: Vec<Vec<Option<f64>>>) {
        self.attributes.push(AttributeScores { attribute: attribute.map(str::to_owned), scores });
    }
}
