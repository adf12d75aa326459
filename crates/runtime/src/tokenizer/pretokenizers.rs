//! How byte-level vocabularies split text into words before merging, by the name in GGUF files (`tokenizer.ggml.pre`).

use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use super::TokenizerError;

/// Words with a contraction, letters after at most one other character, digits in groups of up to `{1,3}` or single.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// `o200k`: words begin at capital letters, and contractions stay with their word.
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Like [`QWEN2`] with marks as letters.
const QWEN35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const CJK: &str = r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+";
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"##,
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Latin, Greek, Cyrillic and other letters with case.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-z\x{00b5}\x{00c0}-\x{00d6}\x{00d8}-\x{00f6}\x{00f8}-\x{01ba}\x{01bc}-\x{01bf}\x{01c4}-\x{0293}",
    r"\x{0295}-\x{02af}\x{0370}-\x{0373}\x{0376}\x{0377}\x{037b}-\x{037d}\x{037f}\x{0386}\x{0388}-\x{038a}",
    r"\x{038c}\x{038e}-\x{03a1}\x{03a3}-\x{03f5}\x{03f7}-\x{0481}\x{048a}-\x{052f}\x{0531}-\x{0556}",
    r"\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}",
    r"\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}",
    r"\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}",
    r"\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}",
    r"\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}",
    r"\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}",
    r"\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}",
    r"\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}",
    r"\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}",
    r"\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+"
);
const DEEPSEEK_CJK: &str = r"[\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+";
/// From BLOOM's tokenizer, with punctuation of several scripts separated.
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

/// A family of byte-level tokenizers.
#[expect(clippy::struct_excessive_bools, reason = "independent properties that the table states one by one")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    /// Patterns that split the text, in order.
    cuts: &'static [Cut],
    /// Whether a word in the vocabulary is used whole, without merging.
    pub(super) ignore_merges: bool,
    /// Whether text is normalised to NFC first.
    pub(super) nfc: bool,
    /// Whether a beginning-of-sequence token is added unless the file says otherwise.
    pub(super) adds_bos: bool,
    /// Whether a newline between a character that is not white space and a Latin letter always ends a word, and later
    /// text cannot change the split before it.
    pub(super) newline_ends_word: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Pattern(&'static str),
    EachDigit,
}

impl Family {
    const fn new(cuts: &'static [Cut]) -> Self {
        Self { cuts, ignore_merges: false, nfc: false, adds_bos: false, newline_ends_word: false }
    }

    const fn whole_words(self) -> Self {
        Self { ignore_merges: true, ..self }
    }

    const fn nfc(self) -> Self {
        Self { nfc: true, ..self }
    }

    const fn bos(self) -> Self {
        Self { adds_bos: true, ..self }
    }

    const fn lines(self) -> Self {
        Self { newline_ends_word: true, ..self }
    }
}

const GPT2_FAMILY: Family = Family::new(&[Cut::Pattern(GPT2)]).lines();
const STARCODER: Family = Family::new(&[Cut::EachDigit, Cut::Pattern(GPT2)]).lines();
const QWEN2_FAMILY: Family = Family::new(&[Cut::Pattern(QWEN2)]).lines();
const LLAMA3_FAMILY: Family = Family::new(&[Cut::Pattern(LLAMA3)]).lines();
/// Written by converters that did not recognise the tokenizer.
pub(super) const UNKNOWN_TO_CONVERTER: &str = "default";

/// Names in files, and their families: those of llama.cpp for supported architectures, and those in its test
/// vocabularies. NFC is part of the original tokenizers; llama.cpp omits it.
const FAMILIES: &[(&[&str], Family)] = &[
    (&["gpt-2", "gpt2", "phi-2", "a.x-4.0", "mellum", "trillion", "granite-docling"], GPT2_FAMILY),
    (&["olmo", "mpt"], GPT2_FAMILY.nfc()),
    (&["smollm", "starcoder", "refact", "codeshell", "minerva-7b"], STARCODER),
    (&["command-r"], STARCODER.nfc()),
    (&["qwen2", "deepseek-r1-qwen", "megrez", "f2llmv2"], QWEN2_FAMILY.nfc()),
    (&["stablelm2", "kormo"], QWEN2_FAMILY),
    (&["qwen35"], Family::new(&[Cut::Pattern(QWEN35)]).nfc()),
    (&["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0", "lfm2"], LLAMA3_FAMILY.whole_words().bos()),
    (&["dbrx", "glm4", "chatglm-bpe"], LLAMA3_FAMILY),
    (&["smaug-bpe"], LLAMA3_FAMILY.whole_words()),
    (
        &["minicpm5"],
        Family::new(&[
            Cut::Pattern(r"\p{N}{1,3}"),
            Cut::Pattern(concat!(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|",
                r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            )),
        ])
        .whole_words(),
    ),
    (&["tekken"], Family::new(&[Cut::Pattern(TEKKEN)]).whole_words().bos()),
    (&["gpt-4o", "llama4"], Family::new(&[Cut::Pattern(O200K)])),
    (
        &["deepseek-llm"],
        Family::new(&[
            Cut::Pattern(r"[\r\n]"),
            Cut::Pattern(DEEPSEEK_LETTERS),
            Cut::Pattern(r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+"),
            Cut::Pattern(r"\s+$"),
            Cut::Pattern(DEEPSEEK_CJK),
            Cut::EachDigit,
        ]),
    ),
    (
        &["deepseek-coder"],
        Family::new(&[
            Cut::Pattern(r"[\r\n]"),
            Cut::Pattern(r"\s?\p{L}+"),
            Cut::Pattern(r"\s?\p{P}+"),
            Cut::Pattern(DEEPSEEK_CJK),
            Cut::EachDigit,
        ]),
    ),
    (&["deepseek-v3"], Family::new(&[Cut::Pattern(r"\p{N}{1,3}"), Cut::Pattern(CJK), Cut::Pattern(DEEPSEEK3)])),
    (
        &["seed-coder"],
        Family::new(&[Cut::Pattern(concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|",
            r" ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
        ))]),
    ),
    (&["viking"], Family::new(&[Cut::Pattern(BLOOM), Cut::EachDigit])),
    (
        &["falcon"],
        Family::new(&[Cut::Pattern(r"[\p{P}\$\+<=>\^~\|`]+"), Cut::Pattern(GPT2), Cut::Pattern("[0-9][0-9][0-9]")]),
    ),
    (
        &[UNKNOWN_TO_CONVERTER],
        Family::new(&[
            Cut::Pattern(r"[\p{P}\$\+<=>\^~\|]+"),
            Cut::Pattern(GPT2),
            Cut::Pattern(r"\p{N}+"),
            Cut::Pattern("[0-9][0-9][0-9]"),
        ]),
    ),
];

/// The family with this name.
pub(super) fn family(name: &str) -> Option<Family> {
    FAMILIES.iter().find(|(names, _)| names.contains(&name)).map(|(_, family)| *family)
}

/// All names, for messages.
pub(super) fn known() -> String {
    let names: Vec<&str> = FAMILIES.iter().flat_map(|(names, _)| names.iter().copied()).collect();
    names.join(", ")
}

/// Whether [`Family::newline_ends_word`] is known to hold for a pattern of a `tokenizer.json`.
pub(super) fn newline_ends_word(pattern: &str) -> bool {
    [LLAMA3, QWEN2, GPT2].contains(&pattern)
}

impl Family {
    /// The pre-tokenizer that splits like the family and then maps bytes to characters.
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
        // Without the library's own expression; only the patterns above split.
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
