//! `POST /v1/score`.

use probity_lm::{ClassAnswer, ClassScore, ContinuationAnswer, NamedLabels, OneOrMany, Single, Termination};
use schemars::JsonSchema;
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use super::chat::ChatMessage;
use super::forms::{Header, TextOrIds, UsageBody};

/// Questions about what follows prompts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScoreBatch {
    /// The id of the model that is served; may be left out.
    pub(crate) model: Option<String>,
    /// One question or many. What they share is computed once.
    pub(crate) items: OneOrMany<ScoreItem>,
}

/// A prompt, and what is asked about the tokens that follow it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("allOf" = [
    {"anyOf": [{"required": ["prompt"]}, {"required": ["messages"]}]},
    {"anyOf": [{"required": ["labels"]}, {"required": ["continuation"]}, {"required": ["classes"]}]},
]))]
pub(crate) struct ScoreItem {
    /// Comes back with the answer.
    pub(crate) id: Option<String>,
    /// A text or token ids; or `messages`.
    pub(crate) prompt: Option<TextOrIds>,
    /// A chat, laid out by the model's own template.
    #[schemars(length(min = 1))]
    pub(crate) messages: Option<Vec<ChatMessage>>,
    /// What the answer begins with, such as `Answer:`; goes with `messages`.
    pub(crate) answer_prefix: Option<String>,
    /// The labels, each with its surface variants: `{"A": ["A", " A"]}`; or `continuation`.
    pub(crate) labels: Option<NamedLabels>,
    /// Whether the answer begins with a label (`open`, the default) or is one (`end_of_turn`); goes with `labels`.
    pub(crate) termination: Option<Termination>,
    /// A text, or token ids, whose log-probabilities are wanted.
    pub(crate) continuation: Option<TextOrIds>,
    /// `true`: what the model's class head says of the prompt. Of `messages` the last is what is judged.
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
    /// In the order of the questions.
    pub(crate) data: Vec<ScoreEntry>,
    /// What it took.
    pub(crate) usage: UsageBody,
}

/// What a question came to.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ScoreEntry {
    /// `score`.
    pub(crate) object: &'static str,
    /// Its place.
    pub(crate) index: usize,
    /// The question's, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// `scored`, `low_mass` or `tie` where there is an answer; `too_long`, `altered`, `empty` or `not_finite` where there is none.
    pub(crate) outcome: &'static str,
    /// Why there is no answer, or none that can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// Of a prompt that is too long, with its longest answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens_needed: Option<usize>,
    /// Of a prompt that is too long, what there is room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
    /// The prompt's tokens as the model sees it.
    pub(crate) prompt_tokens: usize,
    /// Of each label, in the order of the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels: Option<Vec<LabelEntry>>,
    /// Σ P(labels) under the full vocabulary: how much the model wanted to say one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mass: Option<f64>,
    /// Of the continuation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) continuation: Option<TokensEntry>,
    /// Of each class, in the order of its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) classes: Option<Vec<ClassEntry>>,
}

/// What a class head says of a class.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ClassEntry {
    /// Its name.
    pub(crate) name: String,
    /// Its logit: the reward, or the value, where that is what it means.
    pub(crate) logit: f64,
    /// log P(class | prompt); absent where the logit is a reward or a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logprob: Option<f64>,
    /// P(class | prompt): among all classes, or by itself where several may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prob: Option<f64>,
}

impl ClassEntry {
    /// Those of all classes.
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
    /// The variants that differ in tokens.
    pub(crate) variants: Vec<TokensEntry>,
}

/// Tokens and their probabilities.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct TokensEntry {
    /// Σ log P(token | before); minus infinity is null.
    pub(crate) logprob: Option<f64>,
    /// P of all of them, under the full vocabulary.
    pub(crate) probability: f64,
    /// Texts, lossy where a token is a part of a character.
    pub(crate) tokens: Vec<String>,
    /// Ids.
    pub(crate) token_ids: Vec<u32>,
    /// log P of each; minus infinity is null.
    pub(crate) token_logprobs: Vec<Option<f64>>,
    /// Whether each is the likeliest at its place.
    pub(crate) is_greedy: bool,
}

/// A logarithm that JSON can hold.
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
