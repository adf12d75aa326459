//! How byte-level vocabularies cut text into words before merging, by the name that GGUF files give
//! (`tokenizer.ggml.pre`).

use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use super::TokenizerError;

/// Words with a contraction, letters after at most one other character, digits in groups of up to `{1,3}` or one by
/// one.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// A family of byte-level tokenizers.
#[expect(clippy::struct_excessive_bools, reason = "independent properties that the table states one by one")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    /// Patterns that cut the text, one after another.
    cuts: &'static [Cut],
    /// A word that is in the vocabulary is taken whole, without merging.
    pub(super) ignore_merges: bool,
    /// Unicode normal form C comes first.
    pub(super) nfc: bool,
    /// A beginning-of-sequence token is put first unless the file says otherwise.
    pub(super) adds_bos: bool,
    /// A newline between a character that is not white space and a Latin letter always ends a word, and what follows it
    /// cannot change how what precedes it is cut.
    pub(super) newline_ends_word: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Pattern(&'static str),
    EachDigit,
}

/// Names that files use, and their families.
const FAMILIES: [(&[&str], Family); 6] = [
    (
        &["gpt-2", "gpt2", "phi-2", "olmo"],
        Family {
            cuts: &[Cut::Pattern(GPT2)],
            ignore_merges: false,
            nfc: false,
            adds_bos: false,
            newline_ends_word: true,
        },
    ),
    (
        &["smollm", "starcoder", "refact", "codeshell"],
        Family {
            cuts: &[Cut::EachDigit, Cut::Pattern(GPT2)],
            ignore_merges: false,
            nfc: false,
            adds_bos: false,
            newline_ends_word: true,
        },
    ),
    (
        &["qwen2", "deepseek-r1-qwen", "megrez"],
        Family {
            cuts: &[Cut::Pattern(QWEN2)],
            ignore_merges: false,
            nfc: true,
            adds_bos: false,
            newline_ends_word: true,
        },
    ),
    (
        &["llama-bpe", "llama3", "llama-v3"],
        Family {
            cuts: &[Cut::Pattern(LLAMA3)],
            ignore_merges: true,
            nfc: false,
            adds_bos: true,
            newline_ends_word: true,
        },
    ),
    (
        &["tekken"],
        Family {
            cuts: &[Cut::Pattern(TEKKEN)],
            ignore_merges: true,
            nfc: false,
            adds_bos: true,
            newline_ends_word: false,
        },
    ),
    (
        &["default"],
        Family {
            cuts: &[
                Cut::Pattern(r"[\p{P}\$\+<=>\^~\|]+"),
                Cut::Pattern(GPT2),
                Cut::Pattern(r"\p{N}+"),
                Cut::Pattern("[0-9][0-9][0-9]"),
            ],
            ignore_merges: false,
            nfc: false,
            adds_bos: false,
            newline_ends_word: false,
        },
    ),
];

/// The family of that name.
pub(super) fn family(name: &str) -> Option<Family> {
    FAMILIES.iter().find(|(names, _)| names.contains(&name)).map(|(_, family)| *family)
}

/// All names, for messages.
pub(super) fn known() -> String {
    let names: Vec<&str> = FAMILIES.iter().flat_map(|(names, _)| names.iter().copied()).collect();
    names.join(", ")
}

/// Whether a pattern of a `tokenizer.json` is one for which [`Family::newline_ends_word`] holds.
pub(super) fn newline_ends_word(pattern: &str) -> bool {
    [LLAMA3, QWEN2, GPT2].contains(&pattern)
}

impl Family {
    /// The pre-tokenizer that cuts as the family does and then writes bytes as characters.
    pub(super) fn pre_tokenizer(self) -> Result<PreTokenizerWrapper, TokenizerError> {
        let mut steps = Vec::new();
        for cut in self.cuts {
            steps.push(match cut {
                Cut::EachDigit => PreTokenizerWrapper::Digits(Digits::new(true)),
                Cut::Pattern(pattern) => {
                    let pattern = SplitPattern::Regex((*pattern).to_owned());
                    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                        .map_err(|source| TokenizerError::unsupported("the pre-tokenizer", source.to_string()))?;
                    PreTokenizerWrapper::Split(split)
                }
            });
        }
        // Without the library's own expression: the cuts above are all there are.
        steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, false)));
        Ok(PreTokenizerWrapper::Sequence(Sequence::new(steps)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_a_valid_pre_tokenizer_and_names_are_unique() {
        let mut names: Vec<&str> = FAMILIES.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        for name in &names {
            family(name).expect("listed").pre_tokenizer().expect("valid patterns");
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(family("no-such-family"), None);
    }
}
