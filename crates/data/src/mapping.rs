//! Maps the columns of a table to the fields of a sample.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use probity_lm::nearest;
use probity_options::written_as_text;

use crate::line_error::excerpt;

/// A field of a sample, as written in a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// `id`: the id of the sample.
    Id,
    /// `context`.
    Context,
    /// `instruction`.
    Instruction,
    /// `text.NAME`: a further named text.
    Text(String),
    /// `candidate`, `candidate.NAME`: candidate texts, named after their column, their position in a list, or `NAME`.
    Candidate(Option<String>),
    /// `candidate-id`: the id of the row's candidate.
    CandidateId,
    /// `reference`: one reference text or a list of them.
    Reference,
    /// `score.ATTRIBUTE`, `score.CANDIDATE.ATTRIBUTE`: gold scores.
    Score(String),
    /// `preference`: the preferred candidate.
    Preference,
    /// `preference.VALUE`: the candidate (not: the column) that this value of the preference means, or `tie`.
    PreferenceValue(String),
}

impl Field {
    const FORMS: &'static str = "id, context, instruction, text.NAME, candidate, candidate.NAME, candidate-id, \
                                 reference, \
                                 score.ATTRIBUTE, \
        score.CANDIDATE.ATTRIBUTE, preference, preference.VALUE";

    /// Whether several columns can be mapped to the field.
    pub(crate) fn takes_several(&self) -> bool {
        self.is_joined() || matches!(self, Self::Candidate(None) | Self::Reference)
    }

    fn may_be_constant(&self) -> bool {
        matches!(self, Self::Context | Self::Instruction | Self::Preference | Self::CandidateId)
    }

    /// Whether texts of several columns or list items are joined.
    pub(crate) fn is_joined(&self) -> bool {
        matches!(self, Self::Context | Self::Instruction | Self::Text(_))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id => f.write_str("id"),
            Self::Context => f.write_str("context"),
            Self::Instruction => f.write_str("instruction"),
            Self::Text(name) => write!(f, "text.{name}"),
            Self::Candidate(None) => f.write_str("candidate"),
            Self::Candidate(Some(name)) => write!(f, "candidate.{name}"),
            Self::CandidateId => f.write_str("candidate-id"),
            Self::Reference => f.write_str("reference"),
            Self::Score(of) => write!(f, "score.{of}"),
            Self::Preference => f.write_str("preference"),
            Self::PreferenceValue(value) => write!(f, "preference.{value}"),
        }
    }
}

impl FromStr for Field {
    type Err = MappingError;

    fn from_str(text: &str) -> Result<Self, MappingError> {
        Ok(match text {
            "id" => Self::Id,
            "context" => Self::Context,
            "instruction" => Self::Instruction,
            "candidate" => Self::Candidate(None),
            "candidate-id" => Self::CandidateId,
            "reference" => Self::Reference,
            "preference" => Self::Preference,
            _ => match text.split_once('.') {
                Some(("text", name)) if !name.is_empty() => Self::Text(name.to_owned()),
                Some(("candidate", name)) if !name.is_empty() => Self::Candidate(Some(name.to_owned())),
                Some(("score", of)) if !of.is_empty() => Self::Score(of.to_owned()),
                Some(("preference", value)) if !value.is_empty() => Self::PreferenceValue(value.to_owned()),
                _ => return Err(MappingError::UnknownField { field: excerpt(text), nearest: near_field(text) }),
            },
        })
    }
}

fn near_field(text: &str) -> Option<String> {
    let (stem, rest) = text.split_once('.').map_or((text, None), |(stem, rest)| (stem, Some(rest)));
    let stems =
        ["id", "context", "instruction", "text", "candidate", "candidate-id", "reference", "score", "preference"];
    let near = nearest(stem, stems)?;
    Some(match rest {
        Some(rest) if !rest.is_empty() => excerpt(&format!("{near}.{rest}")),
        _ if near == "score" => "score.ATTRIBUTE".to_owned(),
        _ if near == "text" => "text.NAME".to_owned(),
        _ => near.to_owned(),
    })
}

/// Invalid mapping.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum MappingError {
    /// The entry does not have the form `FIELD=COLUMN`.
    #[error("`{0}` is not of the form FIELD=COLUMN, such as context=article")]
    Form(String),
    /// Unknown field.
    #[error("unknown field `{field}`{}; the fields are {}", nearest.as_ref().map(|n| format!(" (did you mean \
        `{n}`?)")).unwrap_or_default(), Field::FORMS)]
    UnknownField {
        /// The text of the user.
        field: String,
        /// The most similar known name.
        nearest: Option<String>,
    },
    /// A constant for a field that differs per row.
    #[error("`{0}` cannot have a constant value; context, instruction, preference and candidate-id can")]
    Constant(String),
    /// Two columns for a field that takes one.
    #[error("`{field}` is mapped twice, to `{first}` and to `{second}`")]
    Twice {
        /// The field.
        field: String,
        /// Its first column.
        first: String,
        /// Its second column.
        second: String,
    },
}

/// A column and its field: one `--map FIELD=COLUMN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapEntry {
    /// The field.
    pub field: Field,
    /// Whether `column` is a constant value for every row: `FIELD:=VALUE`.
    pub constant: bool,
    /// Column name, or a path into its values (`input.text`, `turns[0]`, `responses[].text`). For
    /// [`Field::PreferenceValue`] a candidate.
    pub column: String,
}

impl MapEntry {
    /// Whether the field is disabled: `FIELD:=`. The context is then empty.
    pub(crate) fn is_left_out(&self) -> bool {
        let can_be = !matches!(self.field, Field::Candidate(_) | Field::PreferenceValue(_));
        self.constant && self.column.is_empty() && can_be
    }
}

impl FromStr for MapEntry {
    type Err = MappingError;

    fn from_str(text: &str) -> Result<Self, MappingError> {
        // Split at the first `=`: column names may contain more of them, field names contain none.
        let (field, column) = text.split_once('=').ok_or_else(|| MappingError::Form(excerpt(text)))?;
        let field = field.trim();
        let (field, constant) = field.strip_suffix(':').map_or((field, false), |field| (field, true));
        // A value may be empty, a column name may not.
        if column.is_empty() && !constant {
            return Err(MappingError::Form(excerpt(text)));
        }
        let entry = Self { field: field.trim().parse()?, constant, column: column.to_owned() };
        // An empty value disables the column named after the field.
        if constant && !entry.is_left_out() && !entry.field.may_be_constant() {
            return Err(MappingError::Constant(excerpt(&entry.field.to_string())));
        }
        Ok(entry)
    }
}

impl fmt::Display for MapEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}={}", self.field, if self.constant { ":" } else { "" }, self.column)
    }
}

written_as_text!(MapEntry);

/// The columns and their fields, in the order of the user; candidates of a sample keep this order.
///
/// Serialised as a map from a field to a column or a list of columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    pub(crate) entries: Vec<MapEntry>,
}

impl Mapping {
    /// Creates a mapping. Two columns for a field that takes one are an error.
    pub fn new(entries: impl IntoIterator<Item = MapEntry>) -> Result<Self, MappingError> {
        let mut mapping = Self::default();
        for entry in entries {
            mapping.add(entry)?;
        }
        Ok(mapping)
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[MapEntry] {
        &self.entries
    }

    fn add(&mut self, entry: MapEntry) -> Result<(), MappingError> {
        let twice = |known: &&MapEntry| {
            let is_repeated = known.column == entry.column || known.constant || entry.constant;
            known.field == entry.field && (!entry.field.takes_several() || is_repeated)
        };
        if let Some(known) = self.entries.iter().find(twice) {
            let (field, first, second) = (entry.field.to_string(), excerpt(&known.column), excerpt(&entry.column));
            return Err(MappingError::Twice { field: excerpt(&field), first, second });
        }
        self.entries.push(entry);
        Ok(())
    }
}

impl Serialize for Mapping {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields: Vec<(String, Vec<&str>)> = Vec::new();
        for entry in &self.entries {
            let name = format!("{}{}", entry.field, if entry.constant { ":" } else { "" });
            match fields.iter_mut().find(|(field, _)| *field == name) {
                Some((_, columns)) => columns.push(&entry.column),
                None => fields.push((name, vec![&entry.column])),
            }
        }
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (field, columns) in fields {
            match columns[..] {
                [column] => map.serialize_entry(&field, column)?,
                _ => map.serialize_entry(&field, &columns)?,
            }
        }
        map.end()
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a column or a list of columns")]
enum FieldColumns {
    One(String),
    Several(Vec<String>),
}

impl<'de> Deserialize<'de> for Mapping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldList;
        impl<'de> Visitor<'de> for FieldList {
            type Value = Mapping;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from fields to columns")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mapping, A::Error> {
                let mut mapping = Mapping::default();
                while let Some((field, columns)) = map.next_entry::<String, FieldColumns>()? {
                    let columns = match columns {
                        FieldColumns::One(column) => vec![column],
                        FieldColumns::Several(columns) => columns,
                    };
                    for column in columns {
                        // Goes through the text form, so that serialised mappings obey the same rules as typed ones.
                        let entry: MapEntry = format!("{field}={column}").parse().map_err(de::Error::custom)?;
                        mapping.add(entry).map_err(de::Error::custom)?;
                    }
                }
                Ok(mapping)
            }
        }
        deserializer.deserialize_map(FieldList)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(entries: &[&str]) -> Result<Mapping, MappingError> {
        Mapping::new(entries.iter().map(|entry| entry.parse()).collect::<Result<Vec<_>, _>>()?)
    }

    #[test]
    fn what_is_written_is_read_and_written_again() {
        let all = [
            "id=doc_id", "context=article", "instruction=prompt", "text.question=q", "candidate=summary_a",
            "candidate=summary_b", "candidate.gold one=c", "candidate-id=system", "reference=gold",
            "score.fluency=flu", "score.summary_a.coherence=x=y", "preference:=summary_a", "preference.0=summary_a",
        ];
        let mapping = mapping(&all).expect("a mapping");
        let written: Vec<String> = mapping.entries().iter().map(ToString::to_string).collect();
        assert_eq!(written, all);
        assert!("candidate:=a".parse::<MapEntry>().is_err() && "score.x:=1".parse::<MapEntry>().is_err());
        // An attribute name ending in a colon would be parsed as a value.
        assert!("score.x: =c".parse::<MapEntry>().is_err());
        let json = serde_json::to_value(&mapping).expect("JSON");
        assert_eq!(json["candidate"], serde_json::json!(["summary_a", "summary_b"]));
        assert_eq!(json["id"], "doc_id");
        assert_eq!(serde_json::from_value::<Mapping>(json).expect("a mapping"), mapping);
    }

    #[test]
    fn an_unknown_field_suggests_the_nearest() {
        let message = |entry: &str| entry.parse::<MapEntry>().expect_err("wrong").to_string();
        assert!(
            message("contxt=a")
                .contains("unknown field `contxt` (did you mean `context`?); the fields are id, context")
        );
        assert!(message("scores.fluency=a").contains("did you mean `score.fluency`?"));
        assert!(message("score=a").contains("did you mean `score.ATTRIBUTE`?"));
        assert!(message("article").contains("not of the form FIELD=COLUMN"));
        assert!(message("id=").contains("not of the form FIELD=COLUMN"));
    }

    #[test]
    fn a_field_of_one_column_is_mapped_once() {
        let message = mapping(&["id=a", "id=b"]).expect_err("twice").to_string();
        assert_eq!(message, "`id` is mapped twice, to `a` and to `b`");
        assert!(mapping(&["candidate=a", "candidate=a"]).is_err());
        assert!(mapping(&["context=a", "context:=b"]).is_err());
        for several in ["reference", "context", "instruction", "text.notes"] {
            assert!(mapping(&[&format!("{several}=a"), &format!("{several}=b")]).is_ok(), "{several}");
        }
        assert!(serde_json::from_str::<Mapping>(r#"{"id": ["a", "b"]}"#).is_err());
    }
}
