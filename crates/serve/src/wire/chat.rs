//! `POST /v1/chat/completions`.

use std::borrow::Cow;
use std::fmt;

use probity_lm::{OneOrMany, Role};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::forms::{FinishReason, StreamOptions, UsageBody};
use super::unhonoured::{Unhonoured, only_absent};

/// An answer to a conversation.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatRequest {
    /// The id of the model that is served; may be left out.
    pub(crate) model: Option<String>,
    /// The conversation so far, laid out by the model's own template. No text in it becomes a special token.
    #[schemars(length(min = 1))]
    pub(crate) messages: Vec<ChatMessage>,
    /// Where an answer ends at the latest; as far as the server's limit and the model's context go by default.
    #[schemars(range(min = 1))]
    pub(crate) max_completion_tokens: Option<u32>,
    /// The same by its older name.
    #[schemars(range(min = 1))]
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
    /// What is drawn follows from it: the same seed gives the same answer; 0 by default. The second choice is drawn by
    /// the next seed, and so on.
    pub(crate) seed: Option<i64>,
    /// How many choices.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) n: Option<usize>,
    /// An answer ends before the first of these.
    pub(crate) stop: Option<OneOrMany<String>>,
    /// Whether log-probabilities of the answer's tokens are wanted.
    pub(crate) logprobs: Option<bool>,
    /// Of how many likeliest tokens beside each; goes with `logprobs`.
    #[schemars(range(min = 0, max = 20))]
    pub(crate) top_logprobs: Option<usize>,
    /// What the answer must be.
    pub(crate) response_format: Option<ResponseFormat>,
    /// Whether the answer is sent as it is written; with `logprobs` it comes in one piece.
    pub(crate) stream: Option<bool>,
    /// How the stream is told.
    pub(crate) stream_options: Option<StreamOptions>,
    /// Who asks; accepted, and used for nothing.
    #[expect(dead_code, reason = "clients may say it")]
    pub(crate) user: Option<Value>,
    /// Accepted, and used for nothing.
    #[expect(dead_code, reason = "clients may say it")]
    pub(crate) metadata: Option<Value>,
    /// Accepted, and used for nothing.
    #[expect(dead_code, reason = "clients may say it")]
    pub(crate) safety_identifier: Option<Value>,
    /// Accepted, and used for nothing: what prompts share is found by itself.
    #[expect(dead_code, reason = "clients may say it")]
    pub(crate) prompt_cache_key: Option<Value>,
    /// Accepted: without tools it means nothing.
    #[expect(dead_code, reason = "clients may say it")]
    pub(crate) parallel_tool_calls: Option<bool>,
    /// Not honoured: false or left out.
    #[schemars(with = "Option<bool>", extend("enum" = [false, null]))]
    pub(crate) store: Option<Value>,
    /// Not honoured: 0 or left out.
    #[schemars(with = "Option<f64>", extend("enum" = [0, null]))]
    pub(crate) presence_penalty: Option<Value>,
    /// Not honoured: 0 or left out.
    #[schemars(with = "Option<f64>", extend("enum" = [0, null]))]
    pub(crate) frequency_penalty: Option<Value>,
    /// Not honoured: empty or left out.
    #[schemars(with = "Option<Map<String, Value>>", extend("maxProperties" = 0))]
    pub(crate) logit_bias: Option<Value>,
    /// Not honoured: empty or left out.
    #[schemars(with = "Option<Vec<Value>>", extend("maxItems" = 0))]
    pub(crate) tools: Option<Value>,
    /// Not honoured: `none`, `auto` or left out.
    #[schemars(with = "Option<String>", extend("enum" = ["none", "auto", null]))]
    pub(crate) tool_choice: Option<Value>,
    /// Not honoured: empty or left out.
    #[schemars(with = "Option<Vec<Value>>", extend("maxItems" = 0))]
    pub(crate) functions: Option<Value>,
    /// Not honoured: `none`, `auto` or left out.
    #[schemars(with = "Option<String>", extend("enum" = ["none", "auto", null]))]
    pub(crate) function_call: Option<Value>,
    /// Not honoured: `["text"]` or left out.
    #[schemars(with = "Option<Vec<String>>", extend("enum" = [["text"], null]))]
    pub(crate) modalities: Option<Value>,
    /// Not honoured: `auto`, `default` or left out.
    #[schemars(with = "Option<String>", extend("enum" = ["auto", "default", null]))]
    pub(crate) service_tier: Option<Value>,
    /// Not honoured.
    #[schemars(with = "()")]
    pub(crate) reasoning_effort: Option<Value>,
}

impl ChatRequest {
    /// What is not honoured.
    pub(crate) fn unhonoured(&self) -> [Unhonoured<'_>; 11] {
        [
            ("store", &self.store, json!([false])),
            ("presence_penalty", &self.presence_penalty, json!([0])),
            ("frequency_penalty", &self.frequency_penalty, json!([0])),
            ("logit_bias", &self.logit_bias, json!([{}])),
            ("tools", &self.tools, json!([[]])),
            ("tool_choice", &self.tool_choice, json!(["none", "auto"])),
            ("functions", &self.functions, json!([[]])),
            ("function_call", &self.function_call, json!(["none", "auto"])),
            ("modalities", &self.modalities, json!([["text"]])),
            ("service_tier", &self.service_tier, json!(["auto", "default"])),
            ("reasoning_effort", &self.reasoning_effort, only_absent()),
        ]
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatMessage {
    /// Who speaks.
    pub(crate) role: ChatRole,
    /// What is said: a text, or parts of type `text`, which are read as one.
    pub(crate) content: Content,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChatRole {
    /// Instructions.
    System,
    /// The same by its newer name.
    Developer,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
}

impl From<ChatRole> for Role {
    fn from(role: ChatRole) -> Self {
        match role {
            ChatRole::System | ChatRole::Developer => Self::System,
            ChatRole::User => Self::User,
            ChatRole::Assistant => Self::Assistant,
        }
    }
}

/// The text of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content(pub(crate) String);

/// A part of a message.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ContentPart {
    /// A text.
    Text {
        /// What is said.
        text: String,
    },
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of parts of type `text`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Content, A::Error> {
                let parts: Vec<ContentPart> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Content(parts.into_iter().map(|ContentPart::Text { text }| text).collect()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Content {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Content".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let part = generator.subschema_for::<ContentPart>();
        json_schema!({"anyOf": [{"type": "string"}, {"type": "array", "items": part}]})
    }
}

/// What an answer must be.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ResponseFormat {
    /// Anything.
    Text {},
    /// A JSON object.
    JsonObject {},
    /// A JSON value that a schema admits. What of a schema cannot be kept is refused by name.
    JsonSchema {
        /// The schema.
        json_schema: NamedSchema,
    },
}

/// A JSON schema with a name.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedSchema {
    /// Accepted, and used for nothing.
    pub(crate) name: Option<String>,
    /// Accepted, and used for nothing.
    pub(crate) description: Option<String>,
    /// Accepted: a schema is always kept.
    pub(crate) strict: Option<bool>,
    /// The schema.
    #[schemars(with = "Map<String, Value>")]
    pub(crate) schema: Value,
}

/// The answers.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatBody {
    /// By the request's content: the same request has the same id.
    pub(crate) id: String,
    /// `chat.completion`.
    pub(crate) object: &'static str,
    /// When the server was started, in seconds.
    pub(crate) created: u64,
    /// The model's id.
    pub(crate) model: String,
    /// What computed: version, model's fingerprint and arithmetic.
    pub(crate) system_fingerprint: String,
    /// In order.
    pub(crate) choices: Vec<ChatChoice>,
    /// What it took.
    pub(crate) usage: UsageBody,
}

/// An answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatChoice {
    /// Its place.
    pub(crate) index: usize,
    /// What the model says.
    pub(crate) message: AnswerMessage,
    /// Of its tokens, where asked for.
    pub(crate) logprobs: Option<ChatLogprobs>,
    /// Why it ended.
    pub(crate) finish_reason: FinishReason,
}

/// What the model says.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct AnswerMessage {
    /// `assistant`.
    pub(crate) role: &'static str,
    /// The text.
    pub(crate) content: String,
    /// Always null.
    pub(crate) refusal: Option<String>,
}

/// A part of a streamed answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatChunk {
    /// That of the whole answer.
    pub(crate) id: String,
    /// `chat.completion.chunk`.
    pub(crate) object: &'static str,
    /// When the server was started, in seconds.
    pub(crate) created: u64,
    /// The model's id.
    pub(crate) model: String,
    /// What computed.
    pub(crate) system_fingerprint: String,
    /// One, or none beside the usage.
    pub(crate) choices: Vec<ChunkChoice>,
    /// In the last chunk, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<UsageBody>,
}

/// What a chunk adds to an answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChunkChoice {
    /// The answer's place.
    pub(crate) index: usize,
    /// What is new.
    pub(crate) delta: Delta,
    /// Of all its tokens, in the chunk that has the text.
    pub(crate) logprobs: Option<ChatLogprobs>,
    /// Why it ended, in its last chunk.
    pub(crate) finish_reason: Option<FinishReason>,
}

/// What is new in a chunk.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(crate) struct Delta {
    /// `assistant`, in the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<&'static str>,
    /// Text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
}

/// Log-probabilities of an answer's tokens.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatLogprobs {
    /// Of each token.
    pub(crate) content: Vec<ChatToken>,
    /// Always null.
    pub(crate) refusal: Option<Vec<ChatToken>>,
}

/// A token and the likeliest ones at its place; natural logarithms under the full vocabulary, minus infinity is -9999.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatToken {
    /// Its text; of a part of a character a replacement.
    pub(crate) token: String,
    /// log P.
    pub(crate) logprob: f64,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// The likeliest first.
    pub(crate) top_logprobs: Vec<ChatAlternative>,
}

/// A token that could have come.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatAlternative {
    /// Its text; of a part of a character a replacement.
    pub(crate) token: String,
    /// log P.
    pub(crate) logprob: f64,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}
