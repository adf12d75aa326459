//! The answer of a model to one question, and its row.

use probity_data::from_value;
use probity_lm::{GenerateResult, LabelAnswer, Outcome, ScoreResult};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::answer_text::answer_of;
use crate::figures::TokenCounts;
use crate::row;
use crate::stage::{RowError, row_outcome};

/// Tolerance for the sum of probabilities read from a row, which may be written with few digits.
const SUM_TOLERANCE: f64 = 1e-2;
/// Tolerance above 1 for a label mass read from a row: sums of exponentials are rounded.
const MASS_TOLERANCE: f64 = 1e-6;

/// An answer: its value or the outcome, and the figures it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<V> {
    /// Absent if nothing can be read or two labels are equally probable.
    pub value: Option<V>,
    /// Probability of each label, normalised; absent if the model was not queried for labels.
    pub probabilities: Option<Vec<f64>>,
    /// Probability of all labels together under the full vocabulary.
    pub mass: Option<f64>,
    /// The generated text that supports the value: a rationale, a reason.
    pub text: Option<String>,
    /// How the request ended.
    pub outcome: Outcome,
    /// Its tokens.
    pub counts: TokenCounts,
}

impl<V> Answer<V> {
    /// An answer without a value.
    pub fn none(outcome: Outcome) -> Self {
        Self { value: None, probabilities: None, mass: None, text: None, outcome, counts: TokenCounts::default() }
    }

    /// An answer with a value and no probabilities.
    pub fn new(value: V) -> Self {
        Self { value: Some(value), ..Self::none(Outcome::Scored) }
    }

    /// Reads an answer from label probabilities; an `Err` of `value` replaces the outcome.
    pub fn from_labels(result: &ScoreResult, value: impl FnOnce(&LabelAnswer) -> Result<Option<V>, Outcome>) -> Self {
        let counts = TokenCounts::of_prompt(result.prompt_tokens);
        let Some(labels) = result.labels() else {
            return Self { counts, ..Self::none(result.outcome.clone()) };
        };
        let (value, outcome) = match value(labels) {
            Ok(value) => (value, result.outcome.clone()),
            Err(outcome) => (None, outcome),
        };
        let probabilities = Some(labels.labels.iter().map(|label| label.prob).collect());
        Self { value, probabilities, mass: Some(labels.mass), counts, ..Self::none(outcome) }
    }

    /// Reads an answer from generated text without its thoughts. Truncated text has no value.
    pub fn from_text(result: &GenerateResult, read: impl FnOnce(&str) -> Result<V, Outcome>) -> Self {
        let answer = match &result.outcome {
            outcome if !outcome.has_text() => Self::none(outcome.clone()),
            _ => match answer_of(result).and_then(|text| read(&text)) {
                Ok(value) => Self::new(value),
                Err(outcome) => Self::none(outcome),
            },
        };
        Self { counts: result.into(), ..answer }
    }

    /// The fields that follow the value in a row: outcome and token counts.
    pub fn end(&self, is_generated: bool) -> Value {
        let TokenCounts { prompt_tokens, tokens } = self.counts;
        let generated = is_generated.then(|| row! { "tokens": tokens });
        row! { ..&self.outcome, "prompt_tokens": prompt_tokens, ..generated }
    }
}

/// The label that is more probable than every other; `None` for a tie.
pub fn likeliest(probabilities: &[f64]) -> Option<usize> {
    let most = probabilities.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut places = (0..probabilities.len()).filter(|place| probabilities[*place] == most);
    places.next().filter(|_| places.next().is_none())
}

impl Answer<usize> {
    /// The likeliest label.
    pub fn likeliest(result: &ScoreResult) -> Self {
        let answer = Self::from_labels(result, |_| Ok(None));
        Self { value: answer.probabilities.as_deref().and_then(likeliest), ..answer }
    }
}

/// How rows store label probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbabilityFields {
    /// `p`, the probability of the first of two, and `mass`.
    First,
    /// `probabilities` by option and `mass`.
    ByOption,
    /// Like [`ByOption`](Self::ByOption), if the model was queried for labels.
    ByOptionIfAny,
}

/// How rows store a choice among options.
#[derive(Debug, Clone, PartialEq)]
pub struct ChoiceFields {
    /// The field of the option; absent if the probabilities determine it.
    pub value: Option<&'static str>,
    /// The options in label order, as stored in rows.
    pub options: Vec<Value>,
    /// How rows store the probabilities.
    pub probabilities: ProbabilityFields,
    /// The field of the text, if any.
    pub text: Option<&'static str>,
    /// Whether rows count generated tokens.
    pub tokens: bool,
}

impl ChoiceFields {
    /// A choice between two options: the chosen name and the probability of the first.
    pub fn binary(field: &'static str, names: [&str; 2]) -> Self {
        let options = names.iter().map(|name| json!(name)).collect();
        Self { value: Some(field), options, probabilities: ProbabilityFields::First, text: None, tokens: false }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        self.options.iter().map(|option| option.as_str().map_or_else(|| option.to_string(), str::to_owned))
    }

    fn listed(&self) -> String {
        self.names().collect::<Vec<_>>().join(", ")
    }

    fn by_option(&self, probabilities: &[f64]) -> Value {
        Value::Object(self.names().zip(probabilities).map(|(name, p)| (name, json!(p))).collect())
    }

    /// The fields of an answer.
    pub fn row(&self, answer: &Answer<usize>) -> Value {
        let mut row = json!({});
        if let Some(field) = self.value {
            row[field] = answer.value.map_or(Value::Null, |place| self.options[place].clone());
        }
        let probabilities = answer.probabilities.as_deref();
        match (self.probabilities, probabilities) {
            (ProbabilityFields::First, _) => row["p"] = json!(probabilities.map(|all| all[0])),
            (ProbabilityFields::ByOptionIfAny, None) => {}
            (_, _) => row["probabilities"] = probabilities.map_or(Value::Null, |all| self.by_option(all)),
        }
        if self.probabilities != ProbabilityFields::ByOptionIfAny || probabilities.is_some() {
            row["mass"] = json!(answer.mass);
        }
        if let (Some(field), Some(text)) = (self.text, &answer.text) {
            row[field] = json!(text);
        }
        row! { ..row, ..answer.end(self.tokens) }
    }

    /// Reads the answer from a row, written by [`row`](Self::row) or by hand with only the option. Contradictory fields
    /// are an error. `unasked` is the answer to a question with nothing to judge.
    pub fn read(&self, row: &Value, unasked: &Answer<usize>) -> Result<Answer<usize>, RowError> {
        let Given { p, probabilities, mass } = from_value(row)?;
        let outcome = row_outcome(row)?;
        let probabilities = match (self.probabilities, p, probabilities) {
            (ProbabilityFields::First, Some(p), _) => {
                check_probability("p", p, 0.0)?;
                Some(vec![p, 1.0 - p])
            }
            (ProbabilityFields::First, None, _) | (_, _, None) => None,
            (_, _, Some(all)) => Some(self.read_probabilities(&all)?),
        };
        check_mass("mass", mass)?;
        let likeliest = probabilities.as_deref().map(likeliest);
        let value = match self.value {
            Some(field) => self.read_option(field, row)?,
            None => likeliest.flatten(),
        };
        if let (Some(field), Some(likeliest), Some(_)) = (self.value, likeliest, value)
            && likeliest != value
        {
            let by = match self.probabilities {
                ProbabilityFields::First => format!("`p` is {}", json!(p)),
                _ => "another option is at least as probable".to_owned(),
            };
            return Err(format!("`{field}` is {}, but {by}", row[field]).into());
        }
        let is_tie = outcome == Outcome::Tie || likeliest == Some(None);
        let (field, is_there, is_wanted) = match self.value {
            Some(field) if outcome == unasked.outcome => (field, value.is_some(), unasked.value.is_some()),
            Some(field) => (field, value.is_some(), outcome.has_answer() && !is_tie),
            None => ("probabilities", probabilities.is_some(), outcome.has_answer()),
        };
        if is_there != is_wanted {
            let given = row.get(field).cloned().unwrap_or_default();
            return Err(format!("`{field}` is {given}, but `outcome` is `{}`", outcome.name()).into());
        }
        let text = self.text.and_then(|field| row.get(field)?.as_str()).map(str::to_owned);
        Ok(Answer { value, probabilities, mass, text, outcome, counts: from_value(row)? })
    }

    fn read_option(&self, field: &str, row: &Value) -> Result<Option<usize>, RowError> {
        match row.get(field).filter(|option| !option.is_null()) {
            None => Ok(None),
            Some(given) => {
                let place = self.options.iter().position(|option| option == given);
                let refused = || format!("`{field}` is {given}; expected one of {}", self.listed());
                place.map(Some).ok_or_else(|| refused().into())
            }
        }
    }

    fn read_probabilities(&self, all: &Map<String, Value>) -> Result<Vec<f64>, RowError> {
        let refused = || format!("`probabilities` must have one value for each of {} and sum to 1", self.listed());
        probabilities_by_name(all, self.names()).ok_or_else(|| refused().into())
    }
}

/// The probabilities in a row: exactly one for each name. `None` if they do not sum to 1.
pub fn probabilities_by_name(all: &Map<String, Value>, names: impl Iterator<Item = String>) -> Option<Vec<f64>> {
    let found: Vec<f64> = names.map(|name| all.get(&name)?.as_f64()).collect::<Option<_>>()?;
    let is_whole = (found.iter().sum::<f64>() - 1.0).abs() < SUM_TOLERANCE;
    (is_whole && found.len() == all.len() && found.iter().all(|p| (0.0..=1.0).contains(p))).then_some(found)
}

/// An error if the mass in the row's field `field` is not a probability.
pub fn check_mass(field: &str, mass: Option<f64>) -> Result<(), RowError> {
    mass.map_or(Ok(()), |mass| check_probability(field, mass, MASS_TOLERANCE))
}

fn check_probability(field: &str, p: f64, above: f64) -> Result<(), RowError> {
    if (0.0..=1.0 + above).contains(&p) {
        return Ok(());
    }
    Err(format!("`{field}` is {p}; expected a probability from 0 to 1").into())
}

/// The fields of a row that are read; a value alone is enough.
#[derive(Deserialize)]
struct Given {
    p: Option<f64>,
    probabilities: Option<Map<String, Value>>,
    mass: Option<f64>,
}
