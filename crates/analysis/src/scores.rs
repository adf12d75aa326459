//! The scores of a run.

use serde::Serialize;

/// The scores of a run, as its method declares them. Serialised, these are the facts in `summary.json` that a report needs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunScores {
    /// Between which values scores are, so that intervals of their means end there; `None` where they may have any value.
    #[serde(rename = "scores_within", skip_serializing_if = "Option::is_none")]
    pub within: Option<[f64; 2]>,
    /// Whether the method's own tables compare its scores with people's, so that a report need not do so for each score
    /// and attribute.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tells_agreement: bool,
    /// What is in the table of scores; empty where the method judges no candidates.
    #[serde(skip)]
    pub attributes: Vec<AttributeScores>,
}

/// The scores of one attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct AttributeScores {
    /// Absent where the method judges by no attribute.
    pub attribute: Option<String>,
    /// By sample and candidate.
    pub scores: Vec<Vec<Option<f64>>>,
}

impl AttributeScores {
    /// Whether there is any score.
    pub(crate) fn is_scored(&self) -> bool {
        self.scores.iter().flatten().any(Option::is_some)
    }
}

impl RunScores {
    /// Scores between two values, or anywhere; see [`Self::within`].
    pub fn new(within: Option<[f64; 2]>) -> Self {
        Self { within, ..Self::default() }
    }

    /// Adds the scores of an attribute, by sample and candidate.
    pub fn push(&mut self, attribute: Option<&str>, scores: Vec<Vec<Option<f64>>>) {
        self.attributes.push(AttributeScores { attribute: attribute.map(str::to_owned), scores });
    }
}
