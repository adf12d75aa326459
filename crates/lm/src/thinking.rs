//! How models think before they answer, and whether a run lets them.
//!
//! Label probabilities are meaningful only at the position where the model would write its answer. A model that thinks
//! first writes the mark of a thought there, and label mass is near 0. [`ThinkingModel`](crate::ThinkingModel)
//! therefore closes the thought, or lets the model write it and queries the labels after it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Thought;

/// Who opens a thought when the template has its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenedBy {
    /// The template: a thought is open where the answer begins.
    Template,
    /// The model, with the first token that it writes.
    Model,
    /// No thoughts by default; a variable of the template may turn them on.
    Off,
    /// Unknown: the vocabulary has marks of thoughts, but the template does not mention them.
    Unclear,
}

/// How a model thinks, read from its chat template and vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinkingStyle {
    /// Who opens a thought.
    pub opened_by: OpenedBy,
    /// The text before a thought.
    pub open: String,
    /// The text between a thought and the answer.
    pub close: String,
    /// The variable of the template that turns thoughts off, with its value. Without one, an empty thought is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<(String, Value)>,
    /// The variable that turns thoughts on, if they are off by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<(String, Value)>,
}

impl ThinkingStyle {
    /// The variable of the template that turns thoughts on or off.
    pub fn switch(&self) -> Option<&str> {
        self.off.as_ref().or(self.on.as_ref()).map(|(name, _)| name.as_str())
    }

    /// Texts that end a thought: the first mark of the closing text, or its first line that is not blank.
    pub fn stops(&self) -> Vec<String> {
        let close = self.close.trim_start();
        let end = ['>', ']', '▷'].into_iter().filter_map(|mark| Some(close.find(mark)? + mark.len_utf8())).min();
        let end = end.unwrap_or_else(|| close.find('\n').unwrap_or(close.len()));
        let mut stops = vec![close[..end].to_owned()];
        // Control tokens are not part of a text, so the role after one is a second end.
        if let Some((_, role)) = close[end..].split_once("<|start|>") {
            stops.push(role.trim_end().to_owned());
        }
        stops
    }
}

/// A text without the beginning of a mark at its end, where the text was cut off.
pub(crate) fn without_cut_mark<'t>(text: &'t str, marks: &[String]) -> &'t str {
    let cut = |mark: &String| {
        // A role before a mark counts as a whole: its first letters may end a word.
        let least = mark.find(['<', '[', '◁']).unwrap_or(0).max(1);
        (least..mark.len()).rev().find(|&end| mark.is_char_boundary(end) && text.ends_with(&mark[..end])).unwrap_or(0)
    };
    &text[..text.len() - marks.iter().map(cut).max().unwrap_or(0)]
}

/// One line for display.
impl fmt::Display for ThinkingStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { opened_by, open, close, off, on } = self;
        match opened_by {
            OpenedBy::Template => write!(f, "the chat template opens a thought"),
            OpenedBy::Model => write!(f, "the model opens a thought with {open:?}"),
            OpenedBy::Off => write!(f, "off by default"),
            OpenedBy::Unclear => write!(f, "perhaps, between {open:?} and {close:?}: the chat template does not say"),
        }?;
        if matches!(opened_by, OpenedBy::Template | OpenedBy::Model) {
            match off {
                Some((name, value)) => write!(f, "; {name}={value} turns it off"),
                None => write!(f, "; closed with {close:?}"),
            }?;
        }
        on.iter().try_for_each(|(name, value)| write!(f, "; {name}={value} turns it on"))
    }
}

/// Whether a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThinkMode {
    /// Thoughts are closed for questions about labels and for constrained answers. Other texts begin as the template
    /// has it.
    #[default]
    Auto,
    /// Thoughts are closed everywhere.
    Off,
    /// The model writes a thought of at most this many tokens, which is then closed.
    AtMost(u32),
}

impl ThinkMode {
    /// Whether it is the default.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Why a text is no [`ThinkMode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("expected auto, off, or the maximum number of tokens of a thought, from 1 to {}", MOST_THOUGHT_TOKENS)]
pub struct ThinkModeError;

const MOST_THOUGHT_TOKENS: u32 = 1 << 20;

impl FromStr for ThinkMode {
    type Err = ThinkModeError;

    fn from_str(text: &str) -> Result<Self, ThinkModeError> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => {
                let tokens = text.parse().ok().filter(|tokens| (1..=MOST_THOUGHT_TOKENS).contains(tokens));
                tokens.map(Self::AtMost).ok_or(ThinkModeError)
            }
        }
    }
}

impl fmt::Display for ThinkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::AtMost(tokens) => tokens.fmt(f),
        }
    }
}

/// How chats are formatted and whether the model thinks. Part of every result's signature.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatOptions {
    /// Thoughts before answers.
    #[serde(with = "mode", skip_serializing_if = "ThinkMode::is_auto")]
    pub think: ThinkMode,
    /// Number of thoughts over which label probabilities are averaged; absent for one greedy thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thoughts: Option<u32>,
    /// Variables of the chat template.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, Value>,
}

impl ChatOptions {
    /// Whether all have their defaults.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// The thought before an answer of a model with this style, unless the model writes it. `is_free_text`: the answer
    /// is neither a label nor constrained.
    pub fn thought_before(&self, style: Option<&ThinkingStyle>, is_free_text: bool) -> Thought {
        let Some(style) = style else { return Thought::AsTemplate };
        let is_set = style.switch().is_some_and(|name| self.variables.contains_key(name));
        let closes = match self.think {
            ThinkMode::Auto => !is_free_text && style.opened_by != OpenedBy::Unclear && !is_set,
            ThinkMode::Off | ThinkMode::AtMost(_) => true,
        };
        if closes { Thought::Closed } else { Thought::AsTemplate }
    }
}

mod mode {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use super::ThinkMode;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    pub(super) fn serialize<S: Serializer>(mode: &ThinkMode, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(mode)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ThinkMode, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
