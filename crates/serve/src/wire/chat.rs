//! `POST /v1/chat/completions`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use probity_lm::{ChatFormat, Constraint, Message, Prompt, Role};
use probity_runtime::is_reserved_variable;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::forms::{FinishReason, Header, UsageBody};
use super::logprobs::{bytes, finite};
use super::text::{DoneText, Event, FormatNames, RequestedLogprobs, TextFormat, TextRequest, Writing, text_request};
use crate::api_error::ApiError;

text_request! {
    /// An answer to a conversation.
    struct ChatRequest {
        /// The conversation so far, formatted by the model's chat template. No text in it becomes a special token.
        #[schemars(length(min = 1))]
        messages: Vec<ChatMessage>,
        /// Maximum number of tokens of an answer; by default as many as the server's limit and the context allow.
        #[schemars(range(min = 1))]
        max_completion_tokens: Option<u32>,
        /// Older name of `max_completion_tokens`.
        #[schemars(range(min = 1))]
        max_tokens: Option<u32>,
        /// Return log-probabilities of the answer's tokens.
        logprobs: Option<bool>,
        /// Number of most likely tokens to return at each position; requires `logprobs`.
        #[schemars(range(min = 0, max = 20))]
        top_logprobs: Option<usize>,
        /// Format of the answer.
        response_format: Option<ResponseFormat>,
        /// Variables of the chat template, such as `enable_thinking`.
        chat_template_kwargs: Option<Map<String, Value>>,
        /// The template's variable of this name; an error if it has none.
        reasoning_effort: Option<String>,
        /// Accepted and ignored.
        #[expect(dead_code, reason = "clients may say it")]
        safety_identifier: Option<Value>,
        /// Accepted and ignored: shared prefixes are detected automatically.
        #[expect(dead_code, reason = "clients may say it")]
        prompt_cache_key: Option<Value>,
        /// Accepted and ignored, because there are no tools.
        #[expect(dead_code, reason = "clients may say it")]
        parallel_tool_calls: Option<bool>,
    }
    unhonoured {
        /// Not supported: false or omitted.
        store: "Option<bool>" = [false],
        /// Not supported: 0 or omitted.
        presence_penalty: "Option<f64>" = [0],
        /// Not supported: 0 or omitted.
        frequency_penalty: "Option<f64>" = [0],
        /// Not supported: empty or omitted.
        logit_bias: "Option<Map<String, Value>>" = [{}],
        /// Not supported: empty or omitted.
        tools: "Option<Vec<Value>>" = [[]],
        /// Not supported: `none`, `auto` or omitted.
        tool_choice: "Option<String>" = ["none", "auto"],
        /// Not supported: empty or omitted.
        functions: "Option<Vec<Value>>" = [[]],
        /// Not supported: `none`, `auto` or omitted.
        function_call: "Option<String>" = ["none", "auto"],
        /// Not supported: `["text"]` or omitted.
        modalities: "Option<Vec<String>>" = [["text"]],
        /// Not supported: `auto`, `default` or omitted.
        service_tier: "Option<String>" = ["auto", "default"],
    }
}

/// Variable of templates, and field of requests.
pub(crate) const EFFORT: &str = "reasoning_effort";

impl TextFormat for ChatRequest {
    const NAMES: FormatNames = FormatNames {
        id: "chatcmpl",
        objects: ("chat.completion", "chat.completion.chunk"),
        prompts: ("messages", "the list is empty"),
        alternatives: "top_logprobs",
        has_thoughts: true,
    };

    fn model(&self) -> Option<&String> {
        self.model.as_ref()
    }

    fn read(mut self) -> Result<TextRequest, ApiError> {
        let request = self.common()?;
        let wants_logprobs = self.logprobs.unwrap_or(false);
        if self.top_logprobs.is_some() && !wants_logprobs {
            return Err(ApiError::field("top_logprobs", "requires `logprobs`"));
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
        let mut variables: BTreeMap<String, Value> =
            self.chat_template_kwargs.unwrap_or_default().into_iter().collect();
        if let Some(name) = variables.keys().find(|name| is_reserved_variable(name)) {
            return Err(ApiError::field("chat_template_kwargs", format!("`{name}` cannot be set")));
        }
        variables.extend(self.reasoning_effort.map(|effort| (EFFORT.to_owned(), effort.into())));
        let format = ChatFormat { variables, ..ChatFormat::default() };
        let chat = |messages| Prompt::Chat { messages, answer_prefix: String::new(), format };
        let prompts = ChatMessage::all(self.messages).map(chat).into_iter().collect();
        Ok(TextRequest { writing, prompts, max_tokens, ..request })
    }

    fn body<'a>(header: Header, texts: impl Iterator<Item = DoneText<'a>>, usage: UsageBody) -> impl Serialize {
        ChatBody { header, choices: texts.map(ChatChoice::from).collect(), usage }
    }

    fn event(header: Header, event: Event<'_>) -> Option<impl Serialize + Send + use<>> {
        let said = |content: String| Delta { content: (!content.is_empty()).then_some(content), ..Delta::default() };
        let thought = |text: String| Delta { reasoning_content: Some(text), ..Delta::default() };
        let chunk = |index, delta| ChunkChoice { index, delta, logprobs: None, finish_reason: None };
        let (choice, usage) = match event {
            Event::Opened(index) => {
                let opened = Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
                (Some(chunk(index, opened)), None)
            }
            Event::Grown(index, text) => (Some(chunk(index, said(text))), None),
            Event::Thought(index, text) => (Some(chunk(index, thought(text))), None),
            Event::Done(DoneText { index, text, thought, finish, logprobs }) => {
                let logprobs = logprobs.and_then(|requested| ChatLogprobs::from_tokens(&requested));
                let delta = Delta { reasoning_content: thought, ..said(text) };
                (Some(ChunkChoice { logprobs, finish_reason: Some(finish), ..chunk(index, delta) }), None)
            }
            Event::Usage(usage) => (None, Some(usage)),
        };
        Some(ChatChunk { header, choices: Vec::from_iter(choice), usage })
    }
}

impl From<DoneText<'_>> for ChatChoice {
    fn from(DoneText { index, text, thought, finish, logprobs }: DoneText<'_>) -> Self {
        let message = AnswerMessage { role: "assistant", content: text, reasoning_content: thought, refusal: None };
        Self {
            index,
            message,
            logprobs: logprobs.and_then(|requested| ChatLogprobs::from_tokens(&requested)),
            finish_reason: finish,
        }
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatMessage {
    /// Role of the speaker.
    pub(crate) role: ChatRole,
    /// Content: a text, or parts of type `text`, which are joined.
    pub(crate) content: Content,
    /// Accepted and ignored: chat templates omit earlier thoughts.
    reasoning_content: Option<String>,
}

impl ChatMessage {
    /// Converts the messages of a chat; `None` if there are none.
    pub(crate) fn all(messages: Vec<Self>) -> Option<Vec<Message>> {
        let message = |message: Self| Message::new(message.role.into(), message.content.0);
        (!messages.is_empty()).then(|| messages.into_iter().map(message).collect())
    }
}

/// Role of the speaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChatRole {
    /// Instructions.
    System,
    /// Newer name of `system`.
    Developer,
    /// The user.
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
        /// The text.
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

/// Format of an answer.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ResponseFormat {
    /// Anything.
    Text {},
    /// A JSON object.
    JsonObject {},
    /// A JSON value that conforms to a schema. Unsupported parts of a schema are rejected by name.
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
    /// Accepted and ignored.
    pub(crate) name: Option<String>,
    /// Accepted and ignored.
    pub(crate) description: Option<String>,
    /// Accepted: a schema is always enforced.
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
    /// In order of their index.
    pub(crate) choices: Vec<ChatChoice>,
    /// Token usage.
    pub(crate) usage: UsageBody,
}

/// An answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatChoice {
    /// Its index.
    pub(crate) index: usize,
    /// The model's message.
    pub(crate) message: AnswerMessage,
    /// Log-probabilities of its tokens, if requested.
    pub(crate) logprobs: Option<ChatLogprobs>,
    /// Why it ended.
    pub(crate) finish_reason: FinishReason,
}

/// The model's message.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct AnswerMessage {
    /// `assistant`.
    pub(crate) role: &'static str,
    /// The text after the thought.
    pub(crate) content: String,
    /// The thought, if the model wrote one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    /// Always null.
    pub(crate) refusal: Option<String>,
}

/// A part of a streamed answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatChunk {
    /// Fields that all answers have.
    #[serde(flatten)]
    pub(crate) header: Header,
    /// One choice, or none in the chunk with the usage.
    pub(crate) choices: Vec<ChunkChoice>,
    /// In the last chunk, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<UsageBody>,
}

/// Addition of a chunk to an answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChunkChoice {
    /// Index of the answer.
    pub(crate) index: usize,
    /// The new part.
    pub(crate) delta: Delta,
    /// Log-probabilities of all its tokens, in the chunk that has the text.
    pub(crate) logprobs: Option<ChatLogprobs>,
    /// Why it ended, in its last chunk.
    pub(crate) finish_reason: Option<FinishReason>,
}

/// New part of a chunk.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(crate) struct Delta {
    /// `assistant`, in the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<&'static str>,
    /// Text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
    /// Part of a thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
}

/// Log-probabilities of an answer's tokens.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatLogprobs {
    /// One entry per token.
    pub(crate) content: Vec<ChatToken>,
    /// Always null.
    pub(crate) refusal: Option<Vec<ChatToken>>,
}

/// A token and the most likely tokens at its position.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatToken {
    /// The token.
    #[serde(flatten)]
    pub(crate) token: ChatAlternative,
    /// The most likely first.
    pub(crate) top_logprobs: Vec<ChatAlternative>,
}

/// A token with its natural log-probability under the full vocabulary; minus infinity is -9999.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ChatAlternative {
    /// Its text; the replacement character for a part of a character.
    pub(crate) token: String,
    /// log P.
    pub(crate) logprob: f64,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

impl ChatLogprobs {
    /// Log-probabilities of a text's tokens, without the token that ended it.
    fn from_tokens(requested: &RequestedLogprobs<'_>) -> Option<Self> {
        let tokens = requested.written.tokens.as_ref()?;
        let token = |id, logprob| {
            let bytes = bytes(requested.model, id);
            ChatAlternative { token: String::from_utf8_lossy(&bytes).into_owned(), logprob: finite(logprob), bytes }
        };
        let places = tokens.continuation.token_logprobs.iter().zip(&tokens.alternatives);
        let ids = tokens.continuation.token_ids.iter().take(requested.reported().min(requested.written.ids.len()));
        let content = ids.zip(places).map(|(id, (logprob, others))| ChatToken {
            token: token(*id, *logprob),
            top_logprobs: others.iter().take(requested.count).map(|other| token(other.id, other.logprob)).collect(),
        });
        Some(Self { content: content.collect(), refusal: None })
    }
}
