//! One of two labels, by their probabilities: the part of a stage, and its row.

use probity_data::from_value;
use probity_lm::{Outcome, ScoreResult};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::stage::{RowError, flatten_into, given_outcome};

/// Which of two labels it is, or why neither.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TwoLabels {
    /// Whether it is the first; at even odds too.
    pub(crate) is_first: Option<bool>,
    /// P(first) / (P(first) + P(second)).
    p: Option<f64>,
    mass: Option<f64>,
    pub(crate) outcome: Outcome,
    pub(crate) prompt_tokens: Option<usize>,
}

impl TwoLabels {
    /// Of a question that was not asked.
    pub(crate) fn none(outcome: Outcome) -> Self {
        Self { is_first: None, p: None, mass: None, outcome, prompt_tokens: None }
    }

    /// The first label, as nobody has said it.
    pub(crate) fn stand_in() -> Self {
        Self { is_first: Some(true), ..Self::none(Outcome::Scored) }
    }

    pub(crate) fn of(result: &ScoreResult) -> Self {
        let labels = result.labels();
        let p = labels.map(|answer| answer.labels[0].prob);
        Self {
            is_first: p.map(|p| p >= 0.5),
            p,
            mass: labels.map(|answer| answer.mass),
            prompt_tokens: Some(result.prompt_tokens),
            ..Self::none(result.outcome.clone())
        }
    }

    /// The row of which it is the rest: the label in that field.
    pub(crate) fn row(&self, identity: Value, field: &str, names: [&str; 2]) -> serde_json::Result<Vec<Value>> {
        let mut row = identity;
        row[field] = json!(self.is_first.map(|is_first| names[usize::from(!is_first)]));
        row["p"] = json!(self.p);
        row["mass"] = json!(self.mass);
        flatten_into(&mut row, &self.outcome)?;
        row["prompt_tokens"] = json!(self.prompt_tokens);
        Ok(vec![row])
    }

    /// What a row that was written before, or by somebody else, says: the label is enough.
    pub(crate) fn read(row: &Value, field: &str, names: [&str; 2]) -> Result<Self, RowError> {
        let Given { p, mass, prompt_tokens } = from_value(row)?;
        let is_first = match row.get(field).filter(|label| !label.is_null()) {
            None => None,
            Some(label) => match names.iter().position(|name| label == name) {
                Some(place) => Some(place == 0),
                None => return Err(format!("`{field}` is {label}, and may be {} or {}", names[0], names[1]).into()),
            },
        };
        let outcome = given_outcome(row)?;
        if outcome.has_answer() != is_first.is_some() {
            let label = row.get(field).cloned().unwrap_or_default();
            return Err(format!("`{field}` is {label}, and `outcome` is `{}`", outcome.name()).into());
        }
        if p.zip(is_first).is_some_and(|(p, is_first)| (p >= 0.5) != is_first) {
            return Err(format!("`{field}` is {}, and `p` is {}", row[field], json!(p)).into());
        }
        Ok(Self { is_first, p, mass, outcome, prompt_tokens })
    }
}

#[derive(Deserialize)]
struct Given {
    p: Option<f64>,
    mass: Option<f64>,
    prompt_tokens: Option<usize>,
}
