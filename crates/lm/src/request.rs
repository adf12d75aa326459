//! What can be asked of a model.

use serde::{Deserialize, Serialize};

use serde_json::Value;

use crate::{LabelSet, Prompt};

/// A prompt and a question about the tokens that follow it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRequest {
    /// Names the request in errors and logs; results are matched by position.
    pub id: String,
    /// What the model is shown.
    pub prompt: Prompt,
    /// What is asked.
    pub ask: Ask,
}

/// The question of a [`ScoreRequest`].
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// How probable is each label?
    Labels(LabelSet),
    /// How probable is each token of this text?
    Continuation(String),
    /// The same, and in what states is the model while it reads the text?
    Reading(Reading),
    /// How probable is each of these tokens, and which would have been likelier?
    Tokens(AskedTokens),
    /// What does the model's class head say of the prompt as a whole? Of a chat the last message is what is judged, and
    /// an answer is not begun.
    Classes,
}

/// Tokens that follow the prompt, used as they are, and how many others are wanted beside each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedTokens {
    /// What follows the prompt.
    pub ids: Vec<u32>,
    /// The likeliest so many tokens are told at each place, whichever of them stands there.
    pub alternatives: usize,
    /// Whether they are told of the place behind the last token too.
    pub next: bool,
}

/// A text that follows the prompt, and the layers whose states are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// What follows the prompt.
    pub text: String,
    /// Behind how many layers, each from 0 (what the first layer is given) to one less than
    /// [`ModelDescription::layers`](crate::ModelDescription::layers): transformers' `hidden_states`, without the last.
    pub layers: Vec<usize>,
}

/// A prompt to be continued by the model.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// Names the request in errors and logs; results are matched by position.
    pub id: String,
    /// What the model is shown.
    pub prompt: Prompt,
    /// At most so many tokens are generated.
    pub max_tokens: usize,
    /// Generation ends before the first of these; it is not part of the text.
    pub stop: Vec<String>,
    /// How a token is chosen.
    pub sampling: Sampling,
    /// What the text must be; absent where it may be anything.
    pub constraint: Option<Constraint>,
    /// Asks for label probabilities at a point of the generated text.
    pub verdict: Option<(String, LabelSet)>,
    /// Asks for the log-probabilities of the generated tokens (and of the one that ends the turn), and beside each for
    /// the likeliest so many; absent where none are wanted. They are the model's own: neither sampling nor constraint changes them.
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
    /// The most probable token, the lowest id among equals.
    Greedy,
    /// Drawn from softmax(logits / temperature) with a generator seeded by `seed`: the same seed gives the same text.
    Random {
        /// Above 0; 1 leaves the model's distribution as it is.
        temperature: f64,
        /// Only tokens that are still among the likeliest behind the limits are drawn; none by default.
        #[serde(flatten)]
        limits: SamplingLimits,
        /// Seed of this request alone, so that its text does not depend on its neighbours.
        seed: u64,
    },
}

/// Which tokens may be drawn. All limits are taken of softmax(logits / temperature), in the order of the fields, the
/// lowest id first among equals; the likeliest token always stays.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SamplingLimits {
    /// The most probable so many tokens, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<usize>,
    /// The fewest of the most probable tokens that together are at least so probable; above 0, at most 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Tokens at least so probable, in parts of the most probable one's probability; from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
}

/// What a generated text must be: tokens that would leave it are impossible, all others keep their logits. A text that
/// ends at its limit of tokens may be a part of such a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// One of these texts, whole.
    Choice(Vec<String>),
    /// A text that the regular expression matches as a whole.
    Regex(String),
    /// A JSON value that the JSON schema admits.
    JsonSchema(Value),
}
