//! `POST /v1/score`.

use probity_lm::{ClassAnswer, ClassScore, ContinuationAnswer, NamedLabels, OneOrMany, Single, Termination};
use schemars::JsonSchema;
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use super::chat::ChatMessage;
use super::forms::{Header, TextOrIds, UsageBody};

/// Queries for probabilities after prompts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScoreBatch {
    /// Id of the served model; optional.
    pub(crate) model: Option<String>,
    /// One query or many. Shared prefixes are computed once.
    pub(crate) items: OneOrMany<ScoreItem>,
}

/// A prompt, and a query about the tokens after it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("allOf" = [
    {"anyOf": [{"required": ["prompt"]}, {"required": ["messages"]}]},
    {"anyOf": [{"required": ["labels"]}, {"required": ["continuation"]}, {"required": ["classes"]}]},
]))]
pub(crate) struct ScoreItem {
    /// Returned with the answer.
    pub(crate) id: Option<String>,
    /// A text or token ids; or `messages`.
    pub(crate) prompt: Option<TextOrIds>,
    /// A chat, formatted by the model's chat template.
    #[schemars(length(min = 1))]
    pub(crate) messages: Option<Vec<ChatMessage>>,
    /// Beginning of the answer, such as `Answer:`; requires `messages`.
    pub(crate) answer_prefix: Option<String>,
    /// The labels, each with its surface variants: `{"A": ["A", " A"]}`; or `continuation`.
    pub(crate) labels: Option<NamedLabels>,
    /// Whether the answer begins with a label (`open`, the default) or is one (`end_of_turn`); requires `labels`.
    pub(crate) termination: Option<Termination>,
    /// A text or token ids to compute log-probabilities of.
    pub(crate) continuation: Option<TextOrIds>,
    /// `true`: the output of the model's class head for the prompt. The last of `messages` is judged.
    pub(crate) classes: Option<bool>,
}

impl Single for ScoreItem {
    const NAMED: &'static str = "question";

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }
}

/// The answers.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ScoreBody {
    /// Fields that all answers have.
    #[serde(flatten)]
    pub(crate) header: Header,
    /// In the order of the queries.
    pub(crate) data: Vec<ScoreEntry>,
    /// Token usage.
    pub(crate) usage: UsageBody,
}

/// Result of a query.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ScoreEntry {
    /// `score`.
    pub(crate) object: &'static str,
    /// Its index.
    pub(crate) index: usize,
    /// Id of the query, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// With an answer: `scored`, `low_mass` or `tie`. Without: `too_long`, `altered`, `empty` or `not_finite`.
    pub(crate) outcome: &'static str,
    /// Why there is no usable answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// Tokens of a prompt that is too long, with its longest answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens_needed: Option<usize>,
    /// Limit that a prompt exceeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
    /// Number of prompt tokens as the model sees them.
    pub(crate) prompt_tokens: usize,
    /// One entry per label, in the order of the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels: Option<Vec<LabelEntry>>,
    /// Label mass: Σ P(labels) under the full vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mass: Option<f64>,
    /// Result for the continuation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) continuation: Option<TokensEntry>,
    /// One entry per class, in numerical order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) classes: Option<Vec<ClassEntry>>,
}

/// Output of a class head for a class.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ClassEntry {
    /// Its name.
    pub(crate) name: String,
    /// Its logit; a reward or a value for models of that kind.
    pub(crate) logit: f64,
    /// log P(class | prompt); absent for a reward or a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logprob: Option<f64>,
    /// P(class | prompt): among all classes, or independently for multi-label models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prob: Option<f64>,
}

impl ClassEntry {
    /// Entries of all classes.
    pub(crate) fn all(answer: &ClassAnswer) -> Vec<Self> {
        let said = answer.probabilities();
        let entry = |(place, class): (usize, &ClassScore)| {
            let said = said.as_ref().map(|said| said[place]);
            let (logprob, prob) = (said.map(|(logprob, _)| logprob), said.map(|(_, prob)| prob));
            Self { name: class.name.clone(), logit: class.logit, logprob, prob }
        };
        answer.classes.iter().enumerate().map(entry).collect()
    }
}

/// A label's probability.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LabelEntry {
    /// Its name.
    pub(crate) name: String,
    /// log P(label | prompt) under the full vocabulary, summed over its variants; minus infinity is null.
    pub(crate) logprob: Option<f64>,
    /// P(label | prompt) under the full vocabulary.
    pub(crate) probability: f64,
    /// P(label) / Σ P(labels).
    pub(crate) prob: f64,
    /// Variants that differ in their tokens.
    pub(crate) variants: Vec<TokensEntry>,
}

/// Tokens and their probabilities.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct TokensEntry {
    /// Σ log P(token | before); minus infinity is null.
    pub(crate) logprob: Option<f64>,
    /// Probability of all of them under the full vocabulary.
    pub(crate) probability: f64,
    /// Token texts; lossy for a part of a character.
    pub(crate) tokens: Vec<String>,
    /// Token ids.
    pub(crate) token_ids: Vec<u32>,
    /// log P of each; minus infinity is null.
    pub(crate) token_logprobs: Vec<Option<f64>>,
    /// Whether each token is the most likely at its position.
    pub(crate) is_greedy: bool,
}

/// A logarithm; `None` if it is not finite, which JSON cannot represent.
pub(crate) fn finite(logprob: f64) -> Option<f64> {
    Some(logprob).filter(|logprob| logprob.is_finite())
}

impl From<&ContinuationAnswer> for TokensEntry {
    fn from(answer: &ContinuationAnswer) -> Self {
        Self {
            logprob: finite(answer.logprob),
            probability: libm::exp(answer.logprob),
            tokens: answer.tokens.clone(),
            token_ids: answer.token_ids.clone(),
            token_logprobs: answer.token_logprobs.iter().map(|logprob| finite(*logprob)).collect(),
            is_greedy: answer.is_greedy,
        }
    }
}
