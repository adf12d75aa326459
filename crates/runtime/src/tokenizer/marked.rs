//! Text laid out by a template, in which data is protected, and what may be appended to it.

use super::added::{Protector, Specials};
use super::{Tokenizer, TokenizerError};

/// A text whose special tokens are meant, except where the sentinel keeps a literal of one apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marked {
    /// The text with sentinels.
    pub(crate) text: String,
    /// `None` for ordinary text, in which nothing is recognised.
    pub(crate) sentinel: Option<char>,
}

impl Marked {
    /// Ordinary text.
    pub(crate) fn ordinary(text: impl Into<String>) -> Self {
        Self { text: text.into(), sentinel: None }
    }

    fn specials(&self) -> Specials {
        if self.sentinel.is_some() { Specials::Recognised } else { Specials::AsText }
    }
}

impl Tokenizer {
    /// A character that none of the texts contains, to protect them with.
    pub(crate) fn sentinel<'a>(texts: &(impl Iterator<Item = &'a str> + Clone)) -> Result<char, TokenizerError> {
        Protector::sentinel(texts)
    }

    /// Data, made safe to stand in a text whose special tokens are recognised.
    pub(crate) fn protect(&self, data: &str, sentinel: char) -> Result<String, TokenizerError> {
        let protected = self.protector.protect(data, sentinel);
        if self.normalised.longest() == 0 || !self.protector.is_spelled_in(&self.engine.normalise(&protected)?) {
            return Ok(protected);
        }
        // A literal that only normalisation brings about (wide characters, case): every character is kept apart.
        Ok(data.chars().flat_map(|c| [c, sentinel]).collect())
    }

    /// The ids of a text.
    pub(crate) fn encode(&self, text: &Marked) -> Result<Vec<u32>, TokenizerError> {
        self.encode_marked(&text.text, text.sentinel, text.specials())
    }

    /// The ids of `text`, and of `text` followed by each of `suffixes` (data), each as one string.
    ///
    /// What comes before the last place that no suffix can reach (a special token, in some vocabularies the start of a
    /// line) is encoded once: `shared` begins all, `own` ends the text alone and `with_suffix[i]` ends it with suffix
    /// `i`.
    pub(crate) fn encode_joint(&self, text: &Marked, suffixes: &[String]) -> Result<JointEncoding, TokenizerError> {
        let cut = self.firm_cut(text);
        let shared = self.encode_marked(&text.text[..cut], text.sentinel, text.specials())?;
        // Only this part is encoded again for each suffix: prompts are long and labels short.
        let tail = &text.text[cut..];
        let own = self.encode_marked(tail, text.sentinel, text.specials())?;
        let with_suffix = suffixes.iter().map(|suffix| {
            let suffix = match text.sentinel {
                Some(sentinel) => self.protect(suffix, sentinel)?,
                None => suffix.clone(),
            };
            self.encode_marked(&format!("{tail}{suffix}"), text.sentinel, text.specials())
        });
        Ok(JointEncoding { shared, own, with_suffix: with_suffix.collect::<Result<_, _>>()? })
    }

    /// The last byte at which `text` may be cut so that both parts, encoded apart, give the ids of the whole whatever
    /// is appended.
    fn firm_cut(&self, text: &Marked) -> usize {
        let matches = self.raw.find(&text.text, text.specials());
        let special = matches.iter().rev().find(|m| m.firm).map_or(0, |m| m.range.start);
        if !self.newline_ends_word || self.normalised.longest() > 0 {
            return special;
        }
        // No added token may reach over the newline, neither one that is there nor one that a suffix completes.
        let bytes = text.text.as_bytes();
        let last_match_end = matches.last().map_or(0, |m| m.range.end);
        let limit = bytes.len().saturating_sub(self.raw.longest());
        // Two characters before the cut are looked at.
        let from = (last_match_end + 2).max(special);
        let line_start = (from..limit).rev().find(|&at| {
            bytes[at].is_ascii_alphabetic()
                && bytes[at - 1] == b'\n'
                && (bytes[at - 2].is_ascii_alphanumeric() || bytes[at - 2] == b'.')
        });
        line_start.unwrap_or(special)
    }
}

/// See [`Tokenizer::encode_joint`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JointEncoding {
    /// The ids that begin all.
    pub(crate) shared: Vec<u32>,
    /// The rest of the text alone.
    pub(crate) own: Vec<u32>,
    /// The rest of the text with each suffix.
    pub(crate) with_suffix: Vec<Vec<u32>>,
}
