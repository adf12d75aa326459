//! The rows that a run has written of its scores.

use serde_json::Value;

/// A row with a score.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRow {
    /// The sample's id.
    pub item: String,
    /// Empty where the method judges by no attribute.
    pub attribute: String,
    /// The candidate's id.
    pub candidate: String,
    /// The score.
    pub score: f64,
}

impl ScoreRow {
    /// Reads a row of the table of scores; `None` where it has no score.
    pub fn from_row(row: &Value) -> Option<Self> {
        let text = |field: &str| row[field].as_str().map(str::to_owned);
        let attribute = text("attribute").unwrap_or_default();
        Some(Self { item: text("item")?, attribute, candidate: text("candidate")?, score: row["score"].as_f64()? })
    }
}
