//! Texts that a model writes for later use, and their outcomes.

use std::fmt;

use probity_data::from_value;
use probity_lm::{Finish, GenerateResult, Outcome};
use probity_options::name;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figures::TokenCounts;
use crate::stage::RowError;

/// The outcome of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum WrittenOutcome {
    /// The text is complete. Revisions call it `revised`.
    #[serde(alias = "revised")]
    Written,
    /// The text was truncated at the token limit or the end of the context.
    Truncated,
    /// The model wrote nothing, or the prompt had nothing to show.
    Empty,
    /// The prompt with the longest possible answer exceeds the context.
    TooLong {
        /// Tokens of prompt and longest answer.
        tokens_needed: usize,
        /// The model's limit.
        limit: usize,
    },
    /// The model's chat template would alter the text.
    Altered {
        /// What differs.
        why: String,
    },
    /// The model computed no finite number.
    NotFinite {
        /// The number concerned.
        why: String,
    },
}

impl WrittenOutcome {
    /// The outcome of a generation.
    pub fn from_result(result: &GenerateResult) -> Self {
        match &result.outcome {
            Outcome::TooLong { tokens_needed, limit } => Self::TooLong { tokens_needed: *tokens_needed, limit: *limit },
            Outcome::Altered { why } => Self::Altered { why: why.clone() },
            Outcome::NotFinite { why } => Self::NotFinite { why: why.clone() },
            _ if result.text.trim().is_empty() => Self::Empty,
            _ if result.finish == Some(Finish::Length) => Self::Truncated,
            _ => Self::Written,
        }
    }

    /// Whether there is a text; `None` if either is possible because the arithmetic failed.
    pub fn has_text(&self) -> Option<bool> {
        match self {
            Self::Written | Self::Truncated => Some(true),
            Self::Empty | Self::TooLong { .. } | Self::Altered { .. } => Some(false),
            Self::NotFinite { .. } => None,
        }
    }

    /// Whether this outcome is consistent with the finish reason.
    pub fn may_finish(&self, finish: Finish) -> bool {
        match self {
            Self::Written => finish != Finish::Length,
            Self::Truncated => finish == Finish::Length,
            // White space alone may have any finish reason.
            Self::Empty => true,
            Self::TooLong { .. } | Self::Altered { .. } | Self::NotFinite { .. } => false,
        }
    }

    /// The name in rows.
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

/// A stand-in text in a dry run. A frequent word is one token in every vocabulary. The last digit comes first, so that
/// stand-ins share only short prefixes, like real texts.
pub fn dry_text(number: impl fmt::Display, words: usize) -> String {
    let own: String = number.to_string().chars().rev().collect();
    format!("{own}{}", " the".repeat(words))
}

/// A stand-in answer with a text of this many tokens.
pub fn dry_result(number: usize, tokens: usize) -> GenerateResult {
    let nothing = GenerateResult::without_text(Outcome::Scored, 0);
    GenerateResult { text: dry_text(number, tokens), token_ids: vec![0; tokens], ..nothing }
}

/// A text, or why it is missing: the fields of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WrittenText {
    /// The text, trimmed but otherwise unchanged.
    pub text: String,
    #[serde(flatten)]
    /// The outcome.
    pub ended: WrittenOutcome,
    /// Why the model stopped.
    pub finish: Option<Finish>,
    /// Its tokens.
    #[serde(flatten)]
    pub counts: TokenCounts,
}

impl WrittenText {
    /// The text of a generation.
    pub fn from_result(result: &GenerateResult) -> Self {
        Self {
            text: result.text.trim().to_owned(),
            ended: WrittenOutcome::from_result(result),
            finish: result.finish,
            counts: result.into(),
        }
    }

    /// The result of a prompt with nothing to show.
    pub fn nothing() -> Self {
        let counts = TokenCounts { prompt_tokens: None, tokens: Some(0) };
        Self { text: String::new(), ended: WrittenOutcome::Empty, finish: None, counts }
    }

    /// The outcome for counting: truncated text is used, so it counts as answered.
    pub fn outcome(&self) -> &'static str {
        if self.ended == WrittenOutcome::Truncated { "truncated_used" } else { self.ended.name() }
    }

    /// The text, if it is complete or truncated.
    pub fn usable(&self) -> Option<&str> {
        matches!(self.ended, WrittenOutcome::Written | WrittenOutcome::Truncated).then_some(self.text.as_str())
    }

    /// Reads a row written before or provided by the user; a text alone is enough.
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
            None => "`outcome` is missing".to_owned(),
        };
        if ended.has_text() == Some(is_empty) {
            let text = if is_empty { "`text` is empty" } else { "`text` exists" };
            return Err(format!("{text}, but {}", outcome()).into());
        }
        if let Some(finish) = given.finish.filter(|finish| !ended.may_finish(*finish)) {
            return Err(format!("`finish` is `{}`, but {}", name(&finish), outcome()).into());
        }
        let GivenText { text, finish } = given;
        Ok(Self { text, ended, finish, counts: from_value(row)? })
    }
}

#[derive(Deserialize)]
struct GivenText {
    text: String,
    finish: Option<Finish>,
}
