//! Values with several forms, and types shared by the text endpoints.

use std::borrow::Cow;
use std::fmt;

use probity_lm::Prompt;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize as DeriveDeserialize, Serialize};

/// A prompt other than a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlainPrompt {
    Text(String),
    Ids(Vec<u32>),
}

impl From<PlainPrompt> for Prompt {
    fn from(prompt: PlainPrompt) -> Self {
        match prompt {
            PlainPrompt::Text(text) => Self::Text(text),
            PlainPrompt::Ids(ids) => Self::Tokens(ids),
        }
    }
}

/// One prompt or several: a text, a list of texts, the ids of one prompt, or a list of id lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlainPrompts(pub(crate) Vec<PlainPrompt>);

/// First element of a list, which determines the type of the others.
enum First {
    Text(String),
    Id(u32),
    Ids(Vec<u32>),
}

impl<'de> Deserialize<'de> for First {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = First;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a token id or a list of token ids")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<First, E> {
                Ok(First::Text(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, id: u64) -> Result<First, E> {
                u32::try_from(id).map(First::Id).map_err(|_| E::custom(format!("{id} is not a token id")))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<First, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(First::Ids)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

impl<'de> Deserialize<'de> for PlainPrompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = PlainPrompts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a list of texts, a list of token ids, or a list of such lists")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PlainPrompts, E> {
                Ok(PlainPrompts(vec![PlainPrompt::Text(text.to_owned())]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PlainPrompts, A::Error> {
                // Parsed by the type of the first element, so that a million ids are stored as ids.
                let prompts = match list.next_element::<First>()? {
                    None => Vec::new(),
                    Some(First::Text(text)) => rest(text, list)?.into_iter().map(PlainPrompt::Text).collect(),
                    Some(First::Id(id)) => vec![PlainPrompt::Ids(rest(id, list)?)],
                    Some(First::Ids(ids)) => rest(ids, list)?.into_iter().map(PlainPrompt::Ids).collect(),
                };
                Ok(PlainPrompts(prompts))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

fn rest<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(first: T, mut list: A) -> Result<Vec<T>, A::Error> {
    let mut all = vec![first];
    while let Some(next) = list.next_element()? {
        all.push(next);
    }
    Ok(all)
}

fn ids_schema() -> Schema {
    json_schema!({"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": u32::MAX}})
}

impl JsonSchema for PlainPrompts {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PlainPrompts".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let ids = ids_schema();
        json_schema!({"anyOf": [
            {"type": "string", "minLength": 1}, {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
            ids, {"type": "array", "minItems": 1, "items": ids}
        ]})
    }
}

/// A text, or token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextOrIds(pub(crate) PlainPrompt);

impl<'de> Deserialize<'de> for TextOrIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = TextOrIds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of token ids")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TextOrIds, E> {
                Ok(TextOrIds(PlainPrompt::Text(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<TextOrIds, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(PlainPrompt::Ids).map(TextOrIds)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for TextOrIds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "TextOrIds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "string", "minLength": 1}, ids_schema()]})
    }
}

/// Options of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamOptions {
    /// Send the usage in a last chunk without choices.
    pub(crate) include_usage: Option<bool>,
}

/// Fields that begin each part of an answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Header {
    /// A hash of the request: the same request has the same id.
    pub(crate) id: String,
    /// The kind of the object: `chat.completion`, `chat.completion.chunk`, `text_completion` or `list`.
    pub(crate) object: &'static str,
    /// Start time of the server, in seconds.
    pub(crate) created: u64,
    /// The model's id.
    pub(crate) model: String,
    /// Version, fingerprint of the model and precision.
    pub(crate) system_fingerprint: String,
}

/// Token usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "they are the API's")]
pub(crate) struct UsageBody {
    /// Tokens of all prompts as the model sees them; a prompt with several choices counts once.
    pub(crate) prompt_tokens: usize,
    /// Tokens of all texts, without the token that ends an answer.
    pub(crate) completion_tokens: usize,
    /// The sum of both.
    pub(crate) total_tokens: usize,
}

impl UsageBody {
    pub(crate) fn new(prompt_tokens: usize, completion_tokens: usize) -> Self {
        Self { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens }
    }
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishReason {
    /// The model ended it, or a stop sequence occurred.
    Stop,
    /// The limit of tokens was reached.
    Length,
}

/// Maximum number of stop sequences.
pub(crate) const MOST_STOPS: usize = 16;
/// Maximum number of alternatives per position.
pub(crate) const MOST_ALTERNATIVES: usize = 20;
/// Maximum number of choices per prompt.
pub(crate) const MOST_CHOICES: usize = 128;
