//! Texts that a model writes to be used further on, and how they ended.

use std::fmt;

use probity_data::from_value;
use probity_lm::{Finish, GenerateResult, Outcome};
use probity_options::name;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::stage::{RowError, flatten_into};

/// How a text ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum WrittenOutcome {
    /// There it is, whole. Revisions call it `revised`.
    #[serde(alias = "revised")]
    Written,
    /// It reached the limit of tokens, or the end of the model's context, and is cut off.
    Truncated,
    /// The model wrote nothing, or there was nothing to show it.
    Empty,
    /// The prompt with the longest answer does not fit.
    TooLong {
        /// Tokens of prompt and longest answer.
        tokens_needed: usize,
        /// The model's limit.
        limit: usize,
    },
    /// The model's chat template would show another text than the one given.
    Altered {
        /// What differs.
        why: String,
    },
    /// The model's arithmetic gave no usable number.
    NotFinite {
        /// Which number.
        why: String,
    },
}

impl WrittenOutcome {
    /// How the text of a request ended.
    pub fn of(result: &GenerateResult) -> Self {
        match &result.outcome {
            Outcome::TooLong { tokens_needed, limit } => Self::TooLong { tokens_needed: *tokens_needed, limit: *limit },
            Outcome::Altered { why } => Self::Altered { why: why.clone() },
            Outcome::NotFinite { why } => Self::NotFinite { why: why.clone() },
            _ if result.text.trim().is_empty() => Self::Empty,
            _ if result.finish == Some(Finish::Length) => Self::Truncated,
            _ => Self::Written,
        }
    }

    /// Whether there is a text; either may be where the arithmetic failed.
    pub fn has_text(&self) -> Option<bool> {
        match self {
            Self::Written | Self::Truncated => Some(true),
            Self::Empty | Self::TooLong { .. } | Self::Altered { .. } => Some(false),
            Self::NotFinite { .. } => None,
        }
    }

    /// Whether the model can have finished so.
    pub fn may_finish(&self, finish: Finish) -> bool {
        match self {
            Self::Written => finish != Finish::Length,
            Self::Truncated => finish == Finish::Length,
            // White space alone may reach any end.
            Self::Empty => true,
            Self::TooLong { .. } | Self::Altered { .. } | Self::NotFinite { .. } => false,
        }
    }

    /// As rows have it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Truncated => "truncated",
            Self::Empty => "empty",
            Self::TooLong { .. } => "too_long",
            Self::Altered { .. } => "altered",
            Self::NotFinite { .. } => "not_finite",
        }
    }
}

/// A text in place of one that is not written. A frequent word is one token in every vocabulary. Such texts share
/// short beginnings only, as real texts do: the last digit comes first.
pub fn dry_text(number: impl fmt::Display, words: usize) -> String {
    let own: String = number.to_string().chars().rev().collect();
    format!("{own}{}", " the".repeat(words))
}

/// An answer with a text of so many tokens, in place of one that is not written.
pub fn dry_result(number: usize, tokens: usize) -> GenerateResult {
    let nothing = GenerateResult::without_text(Outcome::Scored, 0);
    GenerateResult { text: dry_text(number, tokens), token_ids: vec![0; tokens], ..nothing }
}

/// A text, or why there is none: the fields of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WrittenText {
    /// Without outer white space; nothing else is taken away.
    pub text: String,
    #[serde(flatten)]
    /// How it ended.
    pub ended: WrittenOutcome,
    /// Why the model stopped.
    pub finish: Option<Finish>,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<usize>,
    /// Not known of one that somebody else has written.
    pub tokens: Option<usize>,
}

impl WrittenText {
    /// What came of a request.
    pub fn of(result: &GenerateResult) -> Self {
        Self {
            text: result.text.trim().to_owned(),
            ended: WrittenOutcome::of(result),
            finish: result.finish,
            prompt_tokens: Some(result.prompt_tokens),
            tokens: Some(result.token_ids.len()),
        }
    }

    /// Of a prompt that would have nothing to show.
    pub fn nothing() -> Self {
        Self { text: String::new(), ended: WrittenOutcome::Empty, finish: None, prompt_tokens: None, tokens: Some(0) }
    }

    /// How it ended, as outcomes count it: what was cut off is used as far as it goes, and leaves nothing open.
    pub fn outcome(&self) -> &'static str {
        if self.ended == WrittenOutcome::Truncated { "truncated_used" } else { self.ended.name() }
    }

    /// Whether it may be used: a text that was cut off is used where it serves as far as it goes.
    pub fn usable(&self) -> Option<&str> {
        matches!(self.ended, WrittenOutcome::Written | WrittenOutcome::Truncated).then_some(self.text.as_str())
    }

    /// The row of which it is the rest.
    pub fn row(&self, identity: Value) -> serde_json::Result<Value> {
        let mut row = identity;
        flatten_into(&mut row, self)?;
        Ok(row)
    }

    /// What a row that was written before, or by somebody else, says: a text is enough.
    pub fn read(row: &Value) -> Result<Self, RowError> {
        let given: GivenText = from_value(row)?;
        let said = row.get("outcome").filter(|outcome| !outcome.is_null());
        let ended = match said {
            Some(_) => from_value(row)?,
            None => WrittenOutcome::Written,
        };
        let is_empty = given.text.trim().is_empty();
        let outcome = || match said {
            Some(said) => format!("`outcome` is `{}`", said.as_str().unwrap_or_default()),
            None => "no `outcome` says why".to_owned(),
        };
        if ended.has_text() == Some(is_empty) {
            let text = if is_empty { "`text` is empty" } else { "there is a `text`" };
            return Err(format!("{text}, and {}", outcome()).into());
        }
        if let Some(finish) = given.finish.filter(|finish| !ended.may_finish(*finish)) {
            return Err(format!("`finish` is `{}`, and {}", name(&finish), outcome()).into());
        }
        let GivenText { text, finish, prompt_tokens, tokens } = given;
        Ok(Self { text, ended, finish, prompt_tokens, tokens })
    }
}

#[derive(Deserialize)]
struct GivenText {
    text: String,
    finish: Option<Finish>,
    prompt_tokens: Option<usize>,
    tokens: Option<usize>,
}
