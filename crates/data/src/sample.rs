//! What is evaluated: contexts, candidate texts and what people said about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// One context with the candidate texts that answer it: a line of our JSONL.
///
/// ```json
/// {"id": "a1", "context": "…", "candidates": [{"id": "1", "text": "…", "scores": {"coherence": 4.5}}], "preference": "1"}
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Names the sample; not empty, unique in its file.
    pub id: String,
    /// What the candidates are about: a source document, a dialogue so far, a question. May be empty.
    pub context: String,
    /// What the candidates were asked to do, where it differs from the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// The texts to judge: at least one, in the order of the file.
    pub candidates: Vec<Candidate>,
    /// Texts known to be good answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// Which candidate people preferred, where they were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<Preference>,
}

/// A text to judge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Names the candidate (often the system that wrote it); not empty, unique in its sample.
    pub id: String,
    /// The text, verbatim. May be empty: methods answer that with an explicit outcome.
    pub text: String,
    /// Gold scores by attribute, higher is better; finite.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, f64>,
}

/// What people preferred. In JSON the id of the better candidate, or `"tie"`: no candidate can be called `tie` where there is a preference.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Preference {
    /// The candidate of this id is better than all others.
    Candidate(String),
    /// No candidate is better.
    Tie,
}

/// How [`Preference::Tie`] is written.
pub const TIE: &str = "tie";

impl Serialize for Preference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Candidate(id) => id,
            Self::Tie => TIE,
        })
    }
}

impl<'de> Deserialize<'de> for Preference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer).map_err(de::Error::custom)?;
        Ok(if id == TIE { Self::Tie } else { Self::Candidate(id) })
    }
}

impl Sample {
    /// The candidate of that id.
    pub fn candidate(&self, id: &str) -> Option<&Candidate> {
        self.candidates.iter().find(|c| c.id == id)
    }
}
