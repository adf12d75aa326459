//! Prompts for a model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Role of a chat message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// System instructions.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Name in chat templates.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One message of a chat. Its content is data and never becomes a special token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Role of the author.
    pub role: Role,
    /// Text, verbatim.
    pub content: String,
}

impl Message {
    /// Creates a message.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into() }
    }
}

/// The thought before an answer in a chat.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thought {
    /// As the template writes it by default.
    #[default]
    AsTemplate,
    /// No thought: switched off in the template, or written empty and closed. A model that does not think ignores it.
    Closed,
    /// An open thought, for the model to write.
    Open,
    /// This text as the complete thought, closed.
    Text(String),
}

/// What a chat template receives besides the messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatFormat {
    /// The thought before the answer.
    pub thought: Thought,
    /// Variables of the template, such as `reasoning_effort`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, Value>,
}

impl ChatFormat {
    /// Whether it is the default.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// What differs from the default, for display: a name and a text each.
    pub fn differences(&self) -> Vec<(&'static str, String)> {
        let thought = match &self.thought {
            Thought::AsTemplate => None,
            Thought::Closed => Some("(closed)".to_owned()),
            Thought::Open => Some("(open)".to_owned()),
            Thought::Text(text) => Some(text.clone()),
        };
        let variables: Vec<String> = self.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let variables = (!variables.is_empty()).then(|| variables.join(", "));
        [("template variables", variables), ("thought", thought)]
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)))
            .collect()
    }
}

/// A prompt in one of the forms a model accepts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// Plain text, encoded as ordinary text after the beginning-of-sequence token, if the model has one. For an
    /// encoder-decoder, the encoder's input.
    Text(String),
    /// A chat, formatted by the model's template up to the start of the assistant's answer. An encoder-decoder reads
    /// the messages joined by newlines and starts its answer with the prefix.
    Chat {
        /// The messages so far.
        messages: Vec<Message>,
        /// Prefilled beginning of the assistant's answer (`Answer:`). Empty for none.
        answer_prefix: String,
        /// The thought before the answer, and variables of the template.
        #[serde(default, skip_serializing_if = "ChatFormat::is_usual")]
        format: ChatFormat,
    },
    /// Token ids, used unchanged; only checked to exist. For an encoder-decoder, the encoder's input; its answer begins
    /// with the start token.
    Tokens(Vec<u32>),
    /// Token ids for an encoder-decoder, used unchanged: the encoder's input and the beginning of the answer including
    /// the start token.
    Pair {
        /// Input of the encoder.
        source: Vec<u32>,
        /// Input of the decoder.
        answer: Vec<u32>,
    },
}

impl Prompt {
    /// A chat with a single user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::chat(vec![Message::new(Role::User, content)], "")
    }

    /// A chat in the default format.
    pub fn chat(messages: Vec<Message>, answer_prefix: impl Into<String>) -> Self {
        Self::Chat { messages, answer_prefix: answer_prefix.into(), format: ChatFormat::default() }
    }

    /// The prompt's texts concatenated; empty for token ids. For scripted models and display.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Chat { messages, answer_prefix, .. } => {
                let mut text: String = messages.iter().flat_map(|m| [m.content.as_str(), "\n"]).collect();
                text.push_str(answer_prefix);
                text
            }
            Self::Tokens(_) | Self::Pair { .. } => String::new(),
        }
    }
}
