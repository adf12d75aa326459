//! Shared parts of the methods' prompts: layout and attribute words.

use std::collections::{BTreeMap, BTreeSet};

use probity_data::Sample;
use probity_lm::{Label, LabelSet, ModelDescription};
use probity_options::read_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use smart_default::SmartDefault;

use crate::MethodError;
use crate::attributes::{self, AttributeWords, attribute_words};
use crate::builtin::DataSlot;
use crate::defence::Defence;
use crate::template::PromptLayout;

/// How prompts are presented to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PromptFormat {
    /// Chat if the model has a chat template, else plain text
    #[default]
    Auto,
    /// Chat, through the model's own template
    Chat,
    /// Plain text that ends in the answer prefix
    Text,
}

/// Shared options of all methods that judge candidates by an attribute.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SubjectOptions {
    /// Attribute to judge, such as coherence; repeatable
    ///
    /// Any word is accepted. Known attributes also have an adjective form for prompts. Each attribute is judged
    /// separately.
    #[schemars(length(min = 1), inner(length(min = 1)), extend("form" = "NAME", "signed" = "attributes"))]
    pub attribute: Vec<String>,
    /// Word for a candidate in prompts
    #[schemars(length(min = 1), extend("form" = "WORD"))]
    #[default("summary".to_owned())]
    pub noun: String,
    /// Adjective form of the attribute
    ///
    /// Used by prompts that describe a text as ADJECTIVE. Needed only where the built-in form does not fit, and allowed
    /// with one attribute only.
    #[schemars(length(min = 1), extend("form" = "WORD"))]
    pub adjective: Option<String>,
    /// Skip comparison with gold scores and preferences
    #[schemars(extend("scores" = false))]
    pub no_gold: bool,
}

impl SubjectOptions {
    /// The word forms of each attribute; an adjective needs a single attribute.
    pub fn attribute_words(&self) -> Result<Vec<AttributeWords>, MethodError> {
        let attributes = &self.attribute;
        if let Some(several) = attributes.iter().find(|attribute| attribute.contains(',')) {
            let why = "it looks like several attributes";
            return MethodError::refuse(format!("--attribute {several}"), why, "pass each with a separate --attribute");
        }
        let plain: Vec<String> = attributes.iter().map(|attribute| attributes::plain(attribute)).collect();
        if let Some(twice) = first_duplicate(&plain) {
            return MethodError::refuse(format!("--attribute {twice}"), "repeated", "name each attribute once");
        }
        if let (Some(adjective), true) = (&self.adjective, attributes.len() > 1) {
            let why = "applies to one attribute only";
            let hint = "judge each attribute in a separate run, or omit --adjective";
            return MethodError::refuse(format!("--adjective {adjective}"), why, hint);
        }
        Ok(attributes.iter().map(|attribute| attribute_words(attribute, self.adjective.as_deref())).collect())
    }
}

/// Layout of prompts and answers: shared options of all methods with prompts.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LayoutOptions {
    /// Prompt format: chat or plain text
    #[schemars(extend("signed" = "method"))]
    pub format: PromptFormat,
    /// Text that begins the model's answer
    ///
    /// An empty text means no prefix. Without this option, a chat has no prefix, because the answer is a separate turn.
    /// Plain text ends in the prefix of the method: `Answer:` in most methods, `Score:` for ratings.
    #[schemars(extend("form" = "TEXT", "signed" = "method"))]
    pub answer_prefix: Option<String>,
    /// Defence against manipulative texts; repeatable
    ///
    /// `sandwich` adds a reminder after the last text: instructions inside the texts are to be ignored. `nonce:KEY`
    /// adds a code derived from KEY to the markers around texts. `paraphrase` shows the model its own paraphrases of
    /// the candidates. `perplexity:NATS` excludes a candidate if the mean negative log-probability of any 20
    /// consecutive tokens is above NATS. The last two need a method that judges candidates. docs/methods/attack.md
    /// lists the effect and the cost of each defence.
    #[schemars(extend("form" = "DEFENCE", "signed" = "method"))]
    pub defence: Vec<Defence>,
}

impl LayoutOptions {
    /// The layout for `model`; `default_prefix` begins an answer in plain text. Chats have no default prefix:
    /// instruction-tuned models answer a turn directly, and a forced prefix lowers label mass (0.83 instead of 0.998
    /// for Qwen2.5-Coder-1.5B in ten comparisons).
    pub fn layout(&self, model: &ModelDescription, default_prefix: &'static str) -> Result<PromptLayout, MethodError> {
        let chat = match self.format {
            PromptFormat::Auto => model.has_chat_template,
            PromptFormat::Text => false,
            PromptFormat::Chat if model.has_chat_template => true,
            PromptFormat::Chat => {
                let why = format!("the model `{}` has no usable chat template", model.name);
                let hint = "inspect the template with `probity model inspect`, omit --format, or use --format text";
                return MethodError::refuse("--format chat", why, hint);
            }
        };
        let answer_prefix = self.answer_prefix.as_deref().unwrap_or(if chat { "" } else { default_prefix }).to_owned();
        let defences = self.defence.clone();
        if let Some(twice) = first_duplicate(&defences.iter().map(Defence::name).collect::<Vec<_>>()) {
            return MethodError::refuse(format!("--defence {twice}"), "repeated", "name each defence once");
        }
        Ok(PromptLayout { chat, answer_prefix, guarded: default_prefix, defences })
    }
}

/// The data slots that any template about a sample may use.
pub const MATERIAL: [DataSlot; 2] = [DataSlot::optional("context"), DataSlot::optional("instruction")];

/// The data slots of a prompt about one candidate.
pub const RATED: &[DataSlot] = &[DataSlot::required("candidate"), MATERIAL[0], MATERIAL[1]];

/// The values of [`MATERIAL`] for a sample.
pub fn material(sample: &Sample) -> [(&'static str, &str); 2] {
    [("context", &sample.context), ("instruction", sample.instruction.as_deref().unwrap_or(""))]
}

/// The settings that any template about an attribute may use.
pub fn word_settings(words: &AttributeWords, noun: &str) -> BTreeMap<&'static str, String> {
    let AttributeWords { attribute, adjective, comparative } = words.clone();
    let noun = noun.to_owned();
    BTreeMap::from([("attribute", attribute), ("adjective", adjective), ("comparative", comparative), ("noun", noun)])
}

/// Labels in lower case and capitalised, each with and without a leading space.
pub fn labels_in_any_case(names: &[&str]) -> Result<LabelSet, MethodError> {
    let label = |name: &&str| {
        let forms = [(*name).to_owned(), capitalised(name)];
        let variants = forms.into_iter().flat_map(|form| [format!(" {form}"), form]);
        Label { name: (*name).to_owned(), variants: variants.collect() }
    };
    Ok(LabelSet::new(names.iter().map(label).collect())?)
}

/// The first duplicate.
pub fn first_duplicate<T: Ord>(all: &[T]) -> Option<&T> {
    let mut known = BTreeSet::new();
    all.iter().find(|one| !known.insert(*one))
}

/// The word with its first letter capitalised.
pub fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The text of an option, or of the file if it is `@FILE`. Empty texts are refused.
pub fn text_or_file(option: &'static str, value: &str) -> Result<String, MethodError> {
    let text = match value.strip_prefix('@') {
        None => value.to_owned(),
        Some("") => return MethodError::refuse(option, "`@` without a file", "write @FILE or a text"),
        Some(path) => read_text(path.as_ref())
            .map(|text| text.trim().to_owned())
            .map_err(|source| MethodError::File { option: option.to_owned(), path: path.to_owned(), source })?,
    };
    if text.trim().is_empty() {
        return MethodError::refuse(option, "the text is empty", "omit it for the built-in text");
    }
    // Editors do not write these control characters: the file has another encoding or is not text.
    if let Some(control) = text.replace("\r\n", "\n").chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        let why = format!("`{value}` contains the control character {}", control.escape_unicode());
        return MethodError::refuse(option, why, "pass UTF-8 text with LF or CRLF line ends");
    }
    Ok(text)
}

/// The definition of an attribute, from the user or built in. An error if neither exists, or if one text is meant for
/// several attributes.
pub fn criteria(given: Option<&str>, words: &AttributeWords, attributes: usize) -> Result<String, MethodError> {
    match (given, attributes::lookup(&words.attribute)) {
        (Some(_), _) if attributes > 1 => {
            let why = "applies to one attribute only";
            MethodError::refuse("--criteria", why, "judge each attribute in a separate run")
        }
        (Some(criteria), _) => text_or_file("--criteria", criteria),
        (None, Some(known)) => Ok(known.definition.clone()),
        (None, None) => {
            let known = attributes::KNOWN.iter().map(|known| known.name.as_str()).collect::<Vec<_>>().join(", ");
            let near = probity_lm::did_you_mean(attributes::near_known_attribute(&words.attribute));
            let why = format!("no built-in definition of `{}`{near}", words.attribute);
            MethodError::refuse("--attribute", why, format!("define it with --criteria, or use one of {known}"))
        }
    }
}

/// Twelve hex digits of a hash over texts that are part of prompts but not of their templates.
pub fn short_hash<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    // Hashing hashes keeps different splits of the same text apart.
    let digests = texts.into_iter().fold(Sha256::new(), |all, text| all.chain_update(Sha256::digest(text.as_bytes())));
    format!("{:x}", digests.finalize())[..12].to_owned()
}
