//! Requests to a model.

use serde::{Deserialize, Serialize};

use serde_json::Value;

use crate::{LabelSet, Prompt};

/// A prompt and a query about the tokens that follow it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRequest {
    /// Names the request in errors and logs. Results are matched by position.
    pub id: String,
    /// Prompt.
    pub prompt: Prompt,
    /// Query.
    pub ask: Ask,
}

/// The query of a [`ScoreRequest`].
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Probability of each label.
    Labels(LabelSet),
    /// Probability of each token of a text.
    Continuation(String),
    /// Probability of each token of a text, and the hidden states over it.
    Reading(Reading),
    /// Probability of each of these tokens, and the most probable alternatives.
    Tokens(AskedTokens),
    /// The class head's output for the whole prompt. For a chat, the last message is judged and no answer is begun.
    Classes,
}

/// Token ids that follow the prompt, used unchanged, and the number of alternatives per position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedTokens {
    /// Tokens after the prompt.
    pub ids: Vec<u32>,
    /// Number of most probable tokens to report per position, including the actual token if it is among them.
    pub alternatives: usize,
    /// Whether to report alternatives for the position after the last token too.
    pub next: bool,
}

/// A text that follows the prompt, and the layers whose states are requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Text after the prompt.
    pub text: String,
    /// Number of layers applied, from 0 (input of the first layer) to one less than
    /// [`ModelDescription::layers`](crate::ModelDescription::layers). Same as `hidden_states` in transformers without
    /// the last.
    pub layers: Vec<usize>,
}

/// A prompt for the model to continue.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// Names the request in errors and logs. Results are matched by position.
    pub id: String,
    /// Prompt.
    pub prompt: Prompt,
    /// Maximum number of tokens to generate.
    pub max_tokens: usize,
    /// Stop sequences. Generation ends before the first; it is not part of the text.
    pub stop: Vec<String>,
    /// Sampling method.
    pub sampling: Sampling,
    /// Constraint on the text, if any.
    pub constraint: Option<Constraint>,
    /// Requests label probabilities at a point in the generated text.
    pub verdict: Option<(String, LabelSet)>,
    /// Requests log-probabilities of the generated tokens (and of the end-of-turn token) with this many alternatives
    /// each. They are the model's own, before sampling and constraints.
    pub alternatives: Option<usize>,
}

impl GenerateRequest {
    /// A greedy request without stop sequences.
    pub fn greedy(id: impl Into<String>, prompt: Prompt, max_tokens: usize) -> Self {
        Self {
            id: id.into(),
            prompt,
            max_tokens,
            stop: Vec::new(),
            sampling: Sampling::Greedy,
            constraint: None,
            verdict: None,
            alternatives: None,
        }
    }
}

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// The most probable token; ties go to the lowest id.
    Greedy,
    /// Drawn from softmax(logits / temperature) with a generator seeded by `seed`: the same seed gives the same text.
    Random {
        /// Positive; 1 leaves the model's distribution unchanged.
        temperature: f64,
        /// Limits on the tokens that can be drawn; none by default.
        #[serde(flatten)]
        limits: SamplingLimits,
        /// Seed for this request only, so that its text does not depend on other requests.
        seed: u64,
    },
}

/// Which tokens can be drawn. Limits apply to softmax(logits / temperature) in field order; ties go to the lowest id.
/// The most probable token always remains.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SamplingLimits {
    /// Number of most probable tokens to keep, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<usize>,
    /// Keep the fewest most probable tokens with this total probability; above 0, at most 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Minimum probability relative to the most probable token; 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
}

/// Constraint on a generated text. Tokens that would violate it become impossible; others keep their logits. A text cut
/// at the token limit may be incomplete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// Exactly one of these texts.
    Choice(Vec<String>),
    /// A text that matches the whole regular expression.
    Regex(String),
    /// A JSON value that is valid under the JSON schema.
    JsonSchema(Value),
}
