//! What can be asked of a model.

use serde::{Deserialize, Serialize};

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
    /// Asks for label probabilities at a point of the generated text.
    pub verdict: Option<(String, LabelSet)>,
}

impl GenerateRequest {
    /// A greedy request without stop sequences.
    pub fn greedy(id: impl Into<String>, prompt: Prompt, max_tokens: usize) -> Self {
        Self { id: id.into(), prompt, max_tokens, stop: Vec::new(), sampling: Sampling::Greedy, verdict: None }
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
        /// Seed of this request alone, so that its text does not depend on its neighbours.
        seed: u64,
    },
}
