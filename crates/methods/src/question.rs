//! What the methods' prompts have in common: their layout and the words of an attribute.

use std::collections::{BTreeMap, BTreeSet};

use probity_data::Sample;
use probity_lm::{Label, LabelSet, ModelDescription};
use probity_options::read_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use smart_default::SmartDefault;

use crate::MethodError;
use crate::attributes::{self, AttributeWords, words};
use crate::builtin::DataSlot;
use crate::defence::Defence;
use crate::template::PromptLayout;

/// How prompts are put to the model.
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

/// What is judged: options of every method that judges candidates by an attribute.
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
    /// The word forms of each attribute; an adjective is given for one attribute only.
    pub fn words(&self) -> Result<Vec<AttributeWords>, MethodError> {
        let attributes = &self.attribute;
        if let Some(several) = attributes.iter().find(|attribute| attribute.contains(',')) {
            let why = "it reads like several, and would be asked about as one";
            return MethodError::refuse(format!("--attribute {several}"), why, "give each an --attribute of its own");
        }
        let plain: Vec<String> = attributes.iter().map(|attribute| attributes::plain(attribute)).collect();
        if let Some(twice) = given_twice(&plain) {
            return MethodError::refuse(format!("--attribute {twice}"), "given twice", "name each attribute once");
        }
        if let (Some(adjective), true) = (&self.adjective, attributes.len() > 1) {
            let why = "an adjective stands for one attribute, and there are several";
            let hint = "run each attribute by itself, or leave --adjective out";
            return MethodError::refuse(format!("--adjective {adjective}"), why, hint);
        }
        Ok(attributes.iter().map(|attribute| words(attribute, self.adjective.as_deref())).collect())
    }
}

/// How prompts and answers are laid out: options of every method that asks.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LayoutOptions {
    /// Prompt format: chat or plain text
    #[schemars(extend("signed" = "method"))]
    pub format: PromptFormat,
    /// Text that begins the model's answer
    ///
    /// An empty text means no prefix. Omitted, there is none in a chat, where the answer is a separate turn; plain text
    /// ends in the prefix of the method, such as `Answer:`, or `Score:` for ratings.
    #[schemars(extend("form" = "TEXT", "signed" = "method"))]
    pub answer_prefix: Option<String>,
    /// Defence against manipulative texts; repeatable
    ///
    /// `sandwich` repeats after the last text that instructions inside texts are to be ignored. `nonce:KEY` adds a code
    /// derived from KEY to the markers around texts. Where candidates are judged, `paraphrase` shows the model its own
    /// paraphrases of them, and `perplexity:NATS` withholds a candidate if any twenty consecutive tokens cost more than
    /// NATS nats each. docs/methods/attack.md lists the effect and the cost of each defence.
    #[schemars(extend("form" = "DEFENCE", "signed" = "method"))]
    pub defence: Vec<Defence>,
}

impl LayoutOptions {
    /// `default_prefix` begins an answer in plain text. In a chat nothing does unless asked for: instruction-tuned
    /// models answer a turn directly, and a word put before the answer costs label mass (0.83 against 0.998 for
    /// Qwen2.5-Coder-1.5B, in ten comparisons).
    pub fn layout(&self, model: &ModelDescription, default_prefix: &'static str) -> Result<PromptLayout, MethodError> {
        let chat = match self.format {
            PromptFormat::Auto => model.has_chat_template,
            PromptFormat::Text => false,
            PromptFormat::Chat if model.has_chat_template => true,
            PromptFormat::Chat => {
                let why = format!("the model `{}` has no chat template that can be used", model.name);
                let hint = "probity model inspect says whether there is one and what is wrong with it; leave --format \
                            out, or say --format text";
                return MethodError::refuse("--format chat", why, hint);
            }
        };
        let answer_prefix = self.answer_prefix.as_deref().unwrap_or(if chat { "" } else { default_prefix }).to_owned();
        let defences = self.defence.clone();
        if let Some(twice) = given_twice(&defences.iter().map(Defence::name).collect::<Vec<_>>()) {
            return MethodError::refuse(format!("--defence {twice}"), "given twice", "name each defence once");
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

/// Labels, each with and without a capital and a space before it.
pub fn labels_in_any_case(names: &[&str]) -> Result<LabelSet, MethodError> {
    let label = |name: &&str| {
        let forms = [(*name).to_owned(), capitalised(name)];
        let variants = forms.into_iter().flat_map(|form| [format!(" {form}"), form]);
        Label { name: (*name).to_owned(), variants: variants.collect() }
    };
    Ok(LabelSet::new(names.iter().map(label).collect())?)
}

/// What stands there a second time.
pub fn given_twice<T: Ord>(all: &[T]) -> Option<&T> {
    let mut known = BTreeSet::new();
    all.iter().find(|one| !known.insert(*one))
}

/// A word with a capital first letter.
pub fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The text of an option, or of the file where it is `@FILE`; an empty one is refused.
pub fn text_or_file(option: &'static str, value: &str) -> Result<String, MethodError> {
    let text = match value.strip_prefix('@') {
        None => value.to_owned(),
        Some("") => return MethodError::refuse(option, "`@` without a file", "write @FILE, or the text itself"),
        Some(path) => read_text(path.as_ref())
            .map(|text| text.trim().to_owned())
            .map_err(|source| MethodError::File { option: option.to_owned(), path: path.to_owned(), source })?,
    };
    if text.trim().is_empty() {
        return MethodError::refuse(option, "the text is empty", "leave it out for the built-in text");
    }
    // Written by no editor as part of a text: a file of another encoding, or one that is no text.
    if let Some(control) = text.replace("\r\n", "\n").chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        let why = format!("`{value}` holds the control character {}", control.escape_unicode());
        return MethodError::refuse(option, why, "a text in UTF-8 is wanted, with lines that end in LF or CRLF");
    }
    Ok(text)
}

/// The meaning of an attribute as the user gives it, or the built-in one; an error where there is neither, or one text
/// for several attributes.
pub fn criteria(given: Option<&str>, words: &AttributeWords, attributes: usize) -> Result<String, MethodError> {
    match (given, attributes::lookup(&words.attribute)) {
        (Some(_), _) if attributes > 1 => {
            let why = "one text cannot define several attributes";
            MethodError::refuse("--criteria", why, "judge each attribute in a run of its own")
        }
        (Some(criteria), _) => text_or_file("--criteria", criteria),
        (None, Some(known)) => Ok(known.definition.to_owned()),
        (None, None) => {
            let known = attributes::KNOWN.iter().map(|k| k.name).collect::<Vec<_>>().join(", ");
            let near = probity_lm::did_you_mean(attributes::near_known_attribute(&words.attribute));
            let why = format!("no definition of `{}` is built in{near}", words.attribute);
            MethodError::refuse("--attribute", why, format!("say what it means with --criteria, or use one of {known}"))
        }
    }
}

/// Twelve digits of a hash over texts that are part of prompts but not of their templates.
pub fn short_hash<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    // A hash of hashes: joined as they are, two texts could be parted elsewhere and look the same.
    let digests = texts.into_iter().fold(Sha256::new(), |all, text| all.chain_update(Sha256::digest(text.as_bytes())));
    format!("{:x}", digests.finalize())[..12].to_owned()
}
