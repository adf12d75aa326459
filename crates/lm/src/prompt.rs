//! What a model is shown before it is asked.

use serde::{Deserialize, Serialize};

/// Who speaks in a chat message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions that stand above the conversation.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The name that chat templates use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One message of a chat. The content is data: no text in it ever becomes a special token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, verbatim.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into() }
    }
}

/// A prompt in one of the forms a model accepts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// Plain text, encoded as ordinary text after the model's own beginning-of-sequence token where it has one. What an
    /// encoder-decoder reads.
    Text(String),
    /// A chat, laid out by the model's own template up to where the assistant's answer begins. An encoder-decoder reads
    /// its messages, one below the other, and begins its answer with the prefix.
    Chat {
        /// The conversation so far.
        messages: Vec<Message>,
        /// The beginning of the assistant's answer, put into its mouth (`Answer:`). Empty for none.
        answer_prefix: String,
    },
    /// Token ids, used as they are: nothing is added or checked but that each id exists. What an encoder-decoder reads;
    /// its answer then begins with its start token.
    Tokens(Vec<u32>),
    /// Token ids for an encoder-decoder, used as they are: what it reads, and what its answer begins with, the start
    /// token included.
    Pair {
        /// For the encoder.
        source: Vec<u32>,
        /// For the decoder.
        answer: Vec<u32>,
    },
}

impl Prompt {
    /// A chat of a single user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::Chat { messages: vec![Message::new(Role::User, content)], answer_prefix: String::new() }
    }

    /// The texts of the prompt, one after another; empty for token ids. For scripted models and displays.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Chat { messages, answer_prefix } => {
                let mut text: String = messages.iter().flat_map(|m| [m.content.as_str(), "\n"]).collect();
                text.push_str(answer_prefix);
                text
            }
            Self::Tokens(_) | Self::Pair { .. } => String::new(),
        }
    }
}
