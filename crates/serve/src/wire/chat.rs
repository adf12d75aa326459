//! `POST /v1/chat/completions`.

use std::borrow::Cow;
use std::fmt;

use probity_lm::{Constraint, Message, Prompt, Role};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::forms::{FinishReason, Header, UsageBody};
use super::logprobs::{bytes, finite};
use super::text::{DoneText, Event, FormatNames, TextFormat, TextRequest, ToldTokens, Writing, text_request};
use crate::api_error::ApiError;

text_request! {
    /// An answer to a conversation.
    struct ChatRequest {
        /// The conversation so far, laid out by the model's own template. No text in it becomes a special token.
        #[schemars(length(min = 1))]
        messages: Vec<ChatMessage>,
        /// Where an answer ends at the latest; as far as the server's limit and the model's context go by default.
        #[schemars(range(min = 1))]
        max_completion_tokens: Option<u32>,
        /// The same by its older name.
        #[schemars(range(min = 1))]
        max_tokens: Option<u32>,
        /// Whether log-probabilities of the answer's tokens are wanted.
        logprobs: Option<bool>,
        /// Of how many likeliest tokens beside each; goes with `logprobs`.
        #[schemars(range(min = 0, max = 20))]
        top_logprobs: Option<usize>,
        /// What the answer must be.
        response_format: Option<ResponseFormat>,
        /// Accepted, and used for nothing.
        #[expect(dead_code, reason = "clients may say it")]
        safety_identifier: Option<Value>,
        /// Accepted, and used for nothing: what prompts share is found by itself.
        #[expect(dead_code, reason = "clients may say it")]
        prompt_cache_key: Option<Value>,
        /// Accepted: without tools it means nothing.
        #[expect(dead_code, reason = "clients may say it")]
        parallel_tool_calls: Option<bool>,
    }
    unhonoured {
        /// Not honoured: false or left out.
        store: "Option<bool>" = [false],
        /// Not honoured: 0 or left out.
        presence_penalty: "Option<f64>" = [0],
        /// Not honoured: 0 or left out.
        frequency_penalty: "Option<f64>" = [0],
        /// Not honoured: empty or left out.
        logit_bias: "Option<Map<String, Value>>" = [{}],
        /// Not honoured: empty or left out.
        tools: "Option<Vec<Value>>" = [[]],
        /// Not honoured: `none`, `auto` or left out.
        tool_choice: "Option<String>" = ["none", "auto"],
        /// Not honoured: empty or left out.
        functions: "Option<Vec<Value>>" = [[]],
        /// Not honoured: `none`, `auto` or left out.
        function_call: "Option<String>" = ["none", "auto"],
        /// Not honoured: `["text"]` or left out.
        modalities: "Option<Vec<String>>" = [["text"]],
        /// Not honoured: `auto`, `default` or left out.
        service_tier: "Option<String>" = ["auto", "default"],
        /// Not honoured.
        reasoning_effort: "()" = [],
    }
}

impl TextFormat for ChatRequest {
    const NAMES: FormatNames = FormatNames {
        id: "chatcmpl",
        objects: ("chat.completion", "chat.completion.chunk"),
        prompts: ("messages", "there is no message"),
        alternatives: "top_logprobs",
    };

    fn model(&self) -> Option<&String> {
        self.model.as_ref()
    }

    fn read(mut self) -> Result<TextRequest, ApiError> {
        let request = self.common()?;
        let wants_logprobs = self.logprobs.unwrap_or(false);
        if self.top_logprobs.is_some() && !wants_logprobs {
            return Err(ApiError::field("top_logprobs", "goes with `logprobs` only"));
        }
        let max_tokens = match (self.max_completion_tokens, self.max_tokens) {
            (Some(new), Some(old)) if new != old => {
                return Err(ApiError::field(
                    "max_tokens", "differs from `max_completion_tokens`, which means the same",
                ));
            }
            (Some(tokens), _) => ("max_completion_tokens", Some(tokens)),
            (None, tokens) => ("max_tokens", tokens),
        };
        if max_tokens.1 == Some(0) {
            return Err(ApiError::field(max_tokens.0, "must be at least 1"));
        }
        let writing = Writing {
            constraint: self.response_format.and_then(ResponseFormat::constraint),
            alternatives: wants_logprobs.then(|| self.top_logprobs.unwrap_or(0)),
            ..request.writing
        };
        let chat = |messages| Prompt::Chat { messages, answer_prefix: String::new() };
        let prompts = ChatMessage::all(self.messages).map(chat).into_iter().collect();
        Ok(TextRequest { writing, prompts, max_tokens, ..request })
    }

    fn body<'a>(header: Header, texts: impl Iterator<Item = DoneText<'a>>, usage: UsageBody) -> impl Serialize {
        ChatBody { header, choices: texts.map(ChatChoice::from).collect(), usage }
    }

    fn event(header: Header, event: Event<'_>) -> Option<impl Serialize + Send + use<>> {
        let said = |content: String| Delta { role: None, content: (!content.is_empty()).then_some(content) };
        let chunk = |index, delta| ChunkChoice { index, delta, logprobs: None, finish_reason: None };
        let (choice, usage) = match event {
            Event::Opened(index) => {
                (Some(chunk(index, Delta { role: Some("assistant"), content: Some(String::new()) })), None)
            }
            Event::Grown(index, text) => (Some(chunk(index, said(text))), None),
            Event::Done(DoneText { index, text, finish, told }) => {
                let logprobs = told.and_then(|told| ChatLogprobs::of(&told));
                (Some(ChunkChoice { logprobs, finish_reason: Some(finish), ..chunk(index, said(text)) }), None)
            }
            Event::Usage(usage) => (None, Some(usage)),
        };
        Some(ChatChunk { header, choices: Vec::from_iter(choice), usage })
    }
}

impl From<DoneText<'_>> for ChatChoice {
    fn from(DoneText { index, text, finish, told }: DoneText<'_>) -> Self {
        let message = AnswerMessage { role: "assistant", content: text, refusal: None };
        Self { index, message, logprobs: told.and_then(|told| ChatLogprobs::of(&told)), finish_reason: finish }
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

impl ChatMessage {
    /// The messages of a chat; absent if there are none.
    pub(crate) fn all(messages: Vec<Self>) -> Option<Vec<Message>> {
        let message = |message: Self| Message::new(message.role.into(), message.content.0);
        (!messages.is_empty()).then(|| messages.into_iter().map(message).collect())
    }
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

impl ResponseFormat {
    fn constraint(self) -> Option<Constraint> {
        match self {
            Self::Text {} => None,
            Self::JsonObject {} => Some(Constraint::JsonSchema(json!({"type": "object"}))),
            Self::JsonSchema { json_schema } => Some(Constraint::JsonSchema(json_schema.schema)),
        }
    }
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
    /// Fields that all answers have.
    #[serde(flatten)]
    pub(crate) header: Header,
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
    /// Fields that all answers have.
    #[serde(flatten)]
    pub(crate) header: Header,
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

/// A token and the likeliest ones at its place.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatToken {
    /// The token.
    #[serde(flatten)]
    pub(crate) token: ChatAlternative,
    /// The likeliest first.
    pub(crate) top_logprobs: Vec<ChatAlternative>,
}

/// A token with its probability: a natural logarithm under the full vocabulary, minus infinity is -9999.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatAlternative {
    /// Its text; of a part of a character a replacement.
    pub(crate) token: String,
    /// log P.
    pub(crate) logprob: f64,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

impl ChatLogprobs {
    /// Of a text's tokens, without the one that ended it.
    fn of(told: &ToldTokens<'_>) -> Option<Self> {
        let tokens = told.written.tokens.as_ref()?;
        let token = |id, logprob| {
            let bytes = bytes(told.model, id);
            ChatAlternative { token: String::from_utf8_lossy(&bytes).into_owned(), logprob: finite(logprob), bytes }
        };
        let places = tokens.continuation.token_logprobs.iter().zip(&tokens.alternatives);
        let ids = tokens.continuation.token_ids.iter().take(told.reported().min(told.written.ids.len()));
        let content = ids.zip(places).map(|(id, (logprob, others))| ChatToken {
            token: token(*id, *logprob),
            top_logprobs: others.iter().take(told.count).map(|other| token(other.id, other.logprob)).collect(),
        });
        Some(Self { content: content.collect(), refusal: None })
    }
}
