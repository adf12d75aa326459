//! Template text with protected data, and suffixes to it.

use std::sync::PoisonError;

use super::added::{Protector, Specials};
use super::{Tokenizer, TokenizerError};

/// A text whose special tokens are intended, except for literals with a sentinel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marked {
    /// The text with sentinels.
    pub(crate) text: String,
    /// `None` for ordinary text, in which no special tokens are recognised.
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

    /// The text before byte `at`.
    fn up_to(&self, at: usize) -> Self {
        Self { text: self.text[..at].to_owned(), sentinel: self.sentinel }
    }
}

/// The last encoded text, reused for the next one with the same prefix: prompts of a work list share long texts.
#[derive(Default)]
pub(super) struct LastText {
    text: Option<Marked>,
    /// Possible split points in bytes, ascending, each with the number of ids before it.
    cuts: Vec<(usize, usize)>,
    /// Ids up to the last split point.
    ids: Vec<u32>,
}

impl LastText {
    /// Length in bytes of the common prefix with `text`.
    fn common_len(&self, text: &Marked) -> usize {
        let alike = self.text.as_ref().filter(|last| last.sentinel == text.sentinel);
        alike.map_or(0, |last| last.text.bytes().zip(text.text.bytes()).take_while(|(a, b)| a == b).count())
    }
}

impl Tokenizer {
    /// A character that occurs in none of the texts, for protecting them.
    pub(crate) fn sentinel<'a>(texts: &(impl Iterator<Item = &'a str> + Clone)) -> Result<char, TokenizerError> {
        Protector::sentinel(texts)
    }

    /// Protects data for a text in which special tokens are recognised.
    pub(crate) fn protect(&self, data: &str, sentinel: char) -> Result<String, TokenizerError> {
        let protected = self.protector.protect(data, sentinel);
        if self.normalised.longest() == 0 || !self.protector.is_spelled_in(&self.engine.normalise(&protected)?) {
            return Ok(protected);
        }
        // For a literal that only appears after normalisation (wide characters, case), every character is separated.
        Ok(data.chars().flat_map(|c| [c, sentinel]).collect())
    }

    /// The ids of a text.
    pub(crate) fn encode(&self, text: &Marked) -> Result<Vec<u32>, TokenizerError> {
        self.encode_after_last(text.clone())
    }

    /// The ids of a text, reusing those of the prefix shared with the last text.
    fn encode_after_last(&self, text: Marked) -> Result<Vec<u32>, TokenizerError> {
        // Taken, not held: concurrent callers do not wait and find nothing to reuse.
        let lock = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = std::mem::take(&mut *lock());
        // An added token that starts before this is in both texts or in neither.
        let reach = last.common_len(&text).saturating_sub(self.raw.longest());
        let cut = self.firm_cut(&text, reach);
        last.cuts.retain(|(at, _)| *at <= cut);
        let (from, count) = last.cuts.last().copied().unwrap_or_default();
        last.ids.truncate(count);
        let encode = |part: &str| self.encode_marked(part, text.sentinel, text.specials());
        if from < cut {
            last.ids.extend(encode(&text.text[from..cut])?);
            last.cuts.push((cut, last.ids.len()));
        }
        let rest = encode(&text.text[cut..])?;
        let ids = [last.ids.as_slice(), &rest].concat();
        *lock() = LastText { text: Some(text), ..last };
        Ok(ids)
    }

    /// The ids of `text`, and of `text` followed by each of `suffixes` (data), each encoded as one string.
    ///
    /// The part before the last position that no suffix can affect (a special token, in some vocabularies the start of
    /// a line) is encoded once: `shared` is the common prefix, `own` the rest of the text alone, and `with_suffix[i]`
    /// the rest with suffix `i`.
    pub(crate) fn encode_joint(&self, text: &Marked, suffixes: &[String]) -> Result<JointEncoding, TokenizerError> {
        let cut = self.firm_cut(text, text.text.len());
        let shared = self.encode_after_last(text.up_to(cut))?;
        // Only this part is encoded for each suffix, because prompts are long and labels short.
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

    /// The last byte up to `end` at which `text` can be split, so that both parts encoded separately give the ids of
    /// the whole regardless of the suffix.
    fn firm_cut(&self, text: &Marked, end: usize) -> usize {
        let matches = self.raw.find(&text.text, text.specials());
        let special = matches.iter().rev().find(|m| m.firm && m.range.end <= end).map_or(0, |m| m.range.start);
        if !self.newline_ends_word || self.normalised.longest() > 0 {
            return special;
        }
        // No added token may span the newline, neither an existing one nor one that a suffix completes.
        let bytes = text.text.as_bytes();
        let limit = bytes.len().saturating_sub(self.raw.longest()).min(end);
        let last_match_end = matches.iter().rev().find(|m| m.range.start < limit).map_or(0, |m| m.range.end);
        // The split depends on the two characters before it.
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
    /// Common prefix of all.
    pub(crate) shared: Vec<u32>,
    /// The rest of the text alone.
    pub(crate) own: Vec<u32>,
    /// The rest of the text with each suffix.
    pub(crate) with_suffix: Vec<Vec<u32>>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_a_text_shares_with_the_last_is_encoded_once() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/tokenizers/tiny-bpe-qwen2");
        let tokenizer = Tokenizer::from_json(&folder.join("tokenizer.json")).expect("a committed file");
        let last_cut = || tokenizer.last.lock().expect("not poisoned").cuts.last().map_or(0, |(at, _)| *at);
        let line = "The line says so.\n";
        let article = line.repeat(40);
        let encode = |text: String| {
            let whole = tokenizer.encode_text(&format!("{text} yes")).expect("encodable");
            let joint = tokenizer.encode_joint(&Marked::ordinary(text), &[" yes".to_owned()]).expect("encodable");
            assert_eq!([joint.shared.as_slice(), &joint.with_suffix[0]].concat(), whole);
        };
        encode(format!("{article}Is it so?\nAnswer:"));
        assert_eq!(last_cut(), 0, "nothing stood before it");
        for question in ["Was it ever so?", "And why?\nSay it.", "Is it?"] {
            encode(format!("{article}{question}\nAnswer:"));
            assert!((article.len() - 2 * line.len()..=article.len()).contains(&last_cut()), "{}", last_cut());
        }
        encode(format!("{}And now?\nAnswer:", line.repeat(3)));
        assert!(last_cut() <= 3 * line.len(), "a shorter beginning is cut where it ends");
        encode("Something else.\nAnswer:".to_owned());
        assert_eq!(last_cut(), 0);
    }
}
