//! `POST /v1/completions`.

use probity_lm::OneOrMany;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::forms::{FinishReason, PlainPrompts, StreamOptions, UsageBody};
use super::unhonoured::Unhonoured;

/// Texts that go on from prompts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompletionRequest {
    /// The id of the model that is served; may be left out.
    pub(crate) model: Option<String>,
    /// A text, a list of texts, the token ids of a prompt, or a list of these. Text is encoded as ordinary text, behind
    /// the model's own beginning-of-sequence token where it has one; ids are used as they are.
    pub(crate) prompt: PlainPrompts,
    /// Where a text ends at the latest; 0 with `echo` for the prompt alone.
    #[schemars(range(min = 0))]
    pub(crate) max_tokens: Option<u32>,
    /// 0, the default, takes the likeliest token; above it tokens are drawn.
    #[schemars(range(min = 0, max = 2))]
    pub(crate) temperature: Option<f64>,
    /// The fewest of the likeliest tokens that together are so probable may be drawn.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub(crate) top_p: Option<f64>,
    /// The likeliest so many tokens may be drawn. Not in `OpenAI`'s API.
    #[schemars(range(min = 1))]
    pub(crate) top_k: Option<usize>,
    /// Tokens that are at least so probable, in parts of the likeliest one's probability, may be drawn. Not in `OpenAI`'s API.
    #[schemars(range(min = 0, max = 1))]
    pub(crate) min_p: Option<f64>,
    /// What is drawn follows from it: the same seed gives the same text; 0 by default. The second choice of a prompt is
    /// drawn by the next seed, and so on.
    pub(crate) seed: Option<i64>,
    /// How many choices for each prompt.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) n: Option<usize>,
    /// A text ends before the first of these.
    pub(crate) stop: Option<OneOrMany<String>>,
    /// Whether the prompt stands before the text.
    pub(crate) echo: Option<bool>,
    /// The log-probabilities of the tokens, and of so many likeliest ones beside each.
    #[schemars(range(min = 0, max = 20))]
    pub(crate) logprobs: Option<usize>,
    /// Whether the text is sent as it is written; with `logprobs` it comes in one piece.
    pub(crate) stream: Option<bool>,
    /// How the stream is told.
    pub(crate) stream_options: Option<StreamOptions>,
    /// Who asks; accepted, and used for nothing.
    #[expect(dead_code, reason = "clients may say it")]
    pub(crate) user: Option<Value>,
    /// Accepted, and used for nothing.
    #[expect(dead_code, reason = "clients may say it")]
    pub(crate) metadata: Option<Value>,
    /// Not honoured: 0 or left out.
    #[schemars(with = "Option<f64>", extend("enum" = [0, null]))]
    pub(crate) presence_penalty: Option<Value>,
    /// Not honoured: 0 or left out.
    #[schemars(with = "Option<f64>", extend("enum" = [0, null]))]
    pub(crate) frequency_penalty: Option<Value>,
    /// Not honoured: empty or left out.
    #[schemars(with = "Option<Map<String, Value>>", extend("maxProperties" = 0))]
    pub(crate) logit_bias: Option<Value>,
    /// Not honoured: 1 or left out.
    #[schemars(with = "Option<u32>", extend("enum" = [1, null]))]
    pub(crate) best_of: Option<Value>,
    /// Not honoured: empty or left out.
    #[schemars(with = "Option<String>", extend("enum" = ["", null]))]
    pub(crate) suffix: Option<Value>,
}

impl CompletionRequest {
    /// What is not honoured.
    pub(crate) fn unhonoured(&self) -> [Unhonoured<'_>; 5] {
        [
            ("presence_penalty", &self.presence_penalty, json!([0])),
            ("frequency_penalty", &self.frequency_penalty, json!([0])),
            ("logit_bias", &self.logit_bias, json!([{}])),
            ("best_of", &self.best_of, json!([1])),
            ("suffix", &self.suffix, json!([""])),
        ]
    }
}

/// The texts.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct CompletionBody {
    /// By the request's content: the same request has the same id.
    pub(crate) id: String,
    /// `text_completion`.
    pub(crate) object: &'static str,
    /// When the server was started, in seconds.
    pub(crate) created: u64,
    /// The model's id.
    pub(crate) model: String,
    /// What computed: version, model's fingerprint and arithmetic.
    pub(crate) system_fingerprint: String,
    /// In the order of the prompts, those of one prompt one after another.
    pub(crate) choices: Vec<CompletionChoice>,
    /// Absent in chunks of a stream but the last, and null there without `include_usage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<UsageBody>,
}

/// A text.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct CompletionChoice {
    /// Its place.
    pub(crate) index: usize,
    /// What was written, behind the prompt with `echo`.
    pub(crate) text: String,
    /// Of its tokens, where asked for.
    pub(crate) logprobs: Option<CompletionLogprobs>,
    /// Why it ended; null in chunks but the last.
    pub(crate) finish_reason: Option<FinishReason>,
}

/// Log-probabilities token by token, natural logarithms under the full vocabulary. A token that ended the answer stands
/// last.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct CompletionLogprobs {
    /// Texts; a token that is a part of a character as `bytes:\x..`.
    pub(crate) tokens: Vec<String>,
    /// Of each token; null for a prompt's first, which nothing stands before. Minus infinity is -9999.
    pub(crate) token_logprobs: Vec<Option<f64>>,
    /// At each place the likeliest tokens, and the one that stands there; null for a prompt's first.
    pub(crate) top_logprobs: Vec<Option<Map<String, Value>>>,
    /// Where each token begins, in characters.
    pub(crate) text_offset: Vec<usize>,
}
