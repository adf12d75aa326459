//! Samples: contexts, candidate texts and their human labels.

use std::collections::BTreeMap;
use std::fmt;

use bytestring::ByteString;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::LineError;
use crate::values::{MOST_SCORE, NumberError, refuse_rounded};
use probity_lm::nearest;

use crate::line_error::excerpt;

/// A text that may be borrowed from foreign memory, such as a table in memory. Cloning does not copy the text.
pub type SharedText = ByteString;

/// A context with its candidate texts: one line of JSON lines.
///
/// ```json
/// {"id": "a1", "context": "…", "candidates": [{"id": "1", "text": "…", "scores": {"coherence": 4.5}}], "preference": "1"}
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Id of the sample; not empty, unique in its file.
    pub id: String,
    /// What the candidates are about: a source document, a dialogue or a question. May be empty.
    pub context: SharedText,
    /// The task of the candidates, if it differs from the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<SharedText>,
    /// Further named texts for methods that use them, such as `question`, `answer` and `reference_answer` for
    /// critiques.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "unique_entries")]
    pub texts: BTreeMap<String, SharedText>,
    /// The texts to judge: at least one, in the order of the file.
    pub candidates: Vec<Candidate>,
    /// Texts known to be good answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<SharedText>,
    /// The candidate that people preferred, if labelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<Preference>,
}

/// A text to judge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Id of the candidate (often the system that wrote it); not empty, unique in its sample.
    pub id: String,
    /// The text, verbatim. May be empty: methods return an explicit outcome for it.
    pub text: SharedText,
    /// Gold scores by attribute: finite, higher is better.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "unique_scores")]
    pub scores: BTreeMap<String, f64>,
}

/// A human preference. In JSON the id of the better candidate, or `"tie"`; a sample with a preference must not have a
/// candidate called `tie`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Preference {
    /// This candidate is better than all others.
    Candidate(String),
    /// No candidate is better.
    Tie,
}

/// JSON form of [`Preference::Tie`].
pub const TIE: &str = "tie";

/// Error for a candidate called `tie` in a sample with a preference.
pub fn called_tie(field: impl Into<String>) -> LineError {
    let why = "a candidate named `tie` is ambiguous with a tie";
    LineError::content(field, why).with_hint("use another id for this candidate")
}

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
        let id = String::deserialize(deserializer)?;
        Ok(if id == TIE { Self::Tie } else { Self::Candidate(id) })
    }
}

impl Sample {
    /// The further text with this name, unless empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(|text| &**text).filter(|text| !text.trim().is_empty())
    }

    /// The candidate with this id.
    pub fn candidate(&self, id: &str) -> Option<&Candidate> {
        self.candidates.iter().find(|c| c.id == id)
    }

    /// Validates everything except the shape and the sample's own id: unnamed texts; missing candidates; empty or
    /// repeated candidate ids, and `tie` beside a preference; unnamed or non-finite scores; a preference for an unknown
    /// candidate.
    pub fn check(&self) -> Vec<LineError> {
        let mut wrong = Vec::new();
        if self.texts.contains_key("") {
            wrong.push(LineError::content("texts", "a text has no name"));
        }
        if self.candidates.is_empty() {
            wrong.push(LineError::content("candidates", "no candidates"));
        }
        let mut seen = BTreeMap::new();
        for (i, candidate) in self.candidates.iter().enumerate() {
            let id = format!("candidates[{i}].id");
            if candidate.id.is_empty() {
                wrong.push(LineError::content(id, "empty"));
            } else if let Some(first) = seen.get(&candidate.id) {
                let why = format!("duplicate candidate `{}`, first at candidates[{first}]", excerpt(&candidate.id));
                wrong.push(LineError::content(id, why));
            // Without a preference, `tie` is an ordinary id.
            } else if candidate.id == TIE && self.preference.is_some() {
                wrong.push(called_tie(id));
            } else {
                seen.insert(&candidate.id, i);
            }
            wrong.extend(candidate.check_scores(i));
        }
        if let Some(Preference::Candidate(id)) = &self.preference
            && self.candidate(id).is_none()
        {
            let near = nearest(id, self.candidates.iter().map(|c| c.id.as_str()));
            let near = near.map(|n| format!("; did you mean `{}`?", excerpt(n))).unwrap_or_default();
            wrong.push(LineError::content("preference", format!("unknown candidate `{}`{near}", excerpt(id))));
        }
        wrong
    }
}

impl Candidate {
    fn check_scores(&self, index: usize) -> impl Iterator<Item = LineError> {
        self.scores.iter().filter_map(move |(attribute, score)| {
            if attribute.is_empty() {
                Some(LineError::content(format!("candidates[{index}].scores"), "an attribute has no name"))
            } else {
                let why = if !score.is_finite() {
                    "the score is not a finite number".to_owned()
                } else if score.abs() > MOST_SCORE {
                    NumberError::Far.to_string()
                } else {
                    return None;
                };
                Some(LineError::content(format!("candidates[{index}].scores.{attribute}"), why))
            }
        })
    }
}

/// Scores by attribute; an integer that would be rounded is an error.
fn unique_scores<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    struct ExactScore(f64);

    impl<'de> Deserialize<'de> for ExactScore {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_f64(ScoreVisitor).map(Self)
        }
    }

    struct ScoreVisitor;

    impl de::Visitor<'_> for ScoreVisitor {
        type Value = f64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number")
        }

        fn visit_f64<E: de::Error>(self, score: f64) -> Result<f64, E> {
            Ok(score)
        }

        fn visit_i64<E: de::Error>(self, score: i64) -> Result<f64, E> {
            refuse_rounded(&score.to_string()).map(|()| score as f64).map_err(E::custom)
        }

        fn visit_u64<E: de::Error>(self, score: u64) -> Result<f64, E> {
            refuse_rounded(&score.to_string()).map(|()| score as f64).map_err(E::custom)
        }
    }

    let scores: BTreeMap<String, ExactScore> = unique_entries(deserializer)?;
    Ok(scores.into_iter().map(|(attribute, ExactScore(score))| (attribute, score)).collect())
}

/// A map with distinct keys: serde would silently keep the last of two values.
pub(crate) fn unique_entries<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    Ok(unique_map(deserializer)?.into_iter().collect())
}

/// The entries of a map in the order of the file; a repeated key is an error.
pub(crate) fn unique_map<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<(String, T)>, D::Error> {
    struct Entries<T>(std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Entries<T> {
        type Value = Vec<(String, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut seen = std::collections::BTreeSet::new();
            let mut entries = Vec::new();
            while let Some((key, value)) = map.next_entry::<String, T>()? {
                if !seen.insert(key.clone()) {
                    return Err(de::Error::custom(format_args!("duplicate key `{key}`")));
                }
                entries.push((key, value));
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_map(Entries(std::marker::PhantomData))
}
