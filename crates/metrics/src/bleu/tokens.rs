//! BLEU's tokenizers, from sacrebleu: those of NIST's mteval-v13a and mteval-v14, and two for scripts without spaces.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::notes::no_spaces;

/// A tokenizer: puts spaces between words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tokens {
    #[serde(rename = "13a")]
    V13a,
    Intl,
    Char,
    Zh,
    None,
}

impl Tokens {
    /// Name in signatures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::V13a => "13a",
            Self::Intl => "intl",
            Self::Char => "char",
            Self::Zh => "zh",
        }
    }

    /// Note about texts in scripts without spaces, if this tokenizer does not split them.
    pub(crate) fn note_without_spaces(self) -> Option<&'static str> {
        let cuts_at_spaces = matches!(self, Self::V13a | Self::Intl | Self::None);
        cuts_at_spaces.then_some(no_spaces!("tok=char makes each character a word"))
    }

    /// The text with white space between its words.
    pub(crate) fn apply(self, text: &str) -> String {
        match self {
            Self::None => text.to_owned(),
            // The spaces give the first and last character a neighbour, which the rules for points check. sacrebleu
            // adds none for zh.
            Self::V13a => western(&format!(" {} ", without_markup(text))),
            Self::Intl => international(text),
            Self::Char => text.chars().flat_map(|c| [c, ' ']).collect(),
            Self::Zh => western(&chinese(text.trim_matches(crate::text::is_space))),
        }
    }
}

/// Removes markup like mteval: marks of skipped segments, hyphens at line ends, four entities.
fn without_markup(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    // In this order: `&amp;` is replaced before `&lt;`, so that `&amp;lt;` becomes `<`, as in sacrebleu.
    for (what, by) in
        [("<skipped>", ""), ("-\n", ""), ("\n", " "), ("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")]
    {
        if text.contains(what) {
            text = Cow::Owned(text.replace(what, by));
        }
    }
    text
}

/// The rules of mteval for Western scripts.
fn western(text: &str) -> String {
    points(&set_apart(text))
}

/// Separates most ASCII punctuation.
pub(crate) fn set_apart(text: &str) -> String {
    let mut apart = Vec::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            // The ranges of mteval's expression. It includes the space, but not apostrophe, comma, hyphen and period.
            b'{'..=b'~' | b'['..=b'`' | b' '..=b'&' | b'('..=b'+' | b':'..=b'@' | b'/' => {
                apart.extend([b' ', byte, b' ']);
            }
            _ => apart.push(byte),
        }
    }
    String::from_utf8(apart).expect("spaces come beside ASCII only")
}

/// Separates periods and commas except between digits, and hyphens after a digit. Each rule runs once over the text,
/// from left to right, without overlaps.
pub(crate) fn points(text: &str) -> String {
    let point = |c: u8| matches!(c, b'.' | b',');
    // Bytes are sufficient: all marks and digits are ASCII, and bytes of longer characters are not.
    let first = pairs(text.as_bytes(), |a, b| !a.is_ascii_digit() && point(b), |a, b| [a, b' ', b, b' ']);
    let second = pairs(&first, |a, b| point(a) && !b.is_ascii_digit(), |a, b| [b' ', a, b' ', b]);
    let third = pairs(&second, |a, b| a.is_ascii_digit() && b == b'-', |a, b| [a, b' ', b, b' ']);
    String::from_utf8(third).expect("spaces come beside ASCII or before a whole character only")
}

/// Rewrites pairs of neighbours; a byte is part of at most one pair.
fn pairs(text: &[u8], is: impl Fn(u8, u8) -> bool, by: impl Fn(u8, u8) -> [u8; 4]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() * 5 / 4);
    let mut rest = text;
    while let [a, tail @ ..] = rest {
        match tail {
            [b, after @ ..] if is(*a, *b) => {
                out.extend(by(*a, *b));
                rest = after;
            }
            _ => {
                out.push(*a);
                rest = tail;
            }
        }
    }
    out
}

/// The rules of mteval-v14: separates punctuation except between numbers, and symbols always.
fn international(text: &str) -> String {
    static RULES: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
        [(r"(\P{N})(\p{P})", "$1 $2 "), (r"(\p{P})(\P{N})", " $1 $2"), (r"(\p{S})", " $1 ")]
            .map(|(rule, by)| (Regex::new(rule).expect("a valid rule"), by))
    });
    RULES.iter().fold(text.to_owned(), |text, (rule, by)| rule.replace_all(&text, *by).into_owned())
}

/// Puts spaces around the characters that sacrebleu counts as Chinese. Two of its ranges mistakenly have four
/// hexadecimal digits: U+2001 to U+2A6D and U+2F81 to U+2FA1 instead of U+20000 to U+2A6D6 and U+2F800 to U+2FA1D.
/// Reproduced here for equal scores.
fn chinese(text: &str) -> String {
    const RANGES: [(char, char); 21] = [
        ('\u{2001}', '\u{2a6d}'),
        ('\u{2e80}', '\u{2eff}'),
        ('\u{2f00}', '\u{2fdf}'),
        ('\u{2f81}', '\u{2fa1}'),
        ('\u{2ff0}', '\u{2fff}'),
        ('\u{3000}', '\u{303f}'),
        ('\u{3100}', '\u{312f}'),
        ('\u{31a0}', '\u{31bf}'),
        ('\u{31c0}', '\u{31ef}'),
        ('\u{3200}', '\u{32ff}'),
        ('\u{3300}', '\u{33ff}'),
        ('\u{3400}', '\u{4db5}'),
        ('\u{4e00}', '\u{9fa5}'),
        ('\u{9fa6}', '\u{9fbb}'),
        ('\u{f900}', '\u{fa2d}'),
        ('\u{fa30}', '\u{fa6a}'),
        ('\u{fa70}', '\u{fad9}'),
        ('\u{fe10}', '\u{fe1f}'),
        ('\u{fe30}', '\u{fe4f}'),
        ('\u{ff00}', '\u{ffef}'),
        ('\u{2600}', '\u{27bf}'),
    ];
    let is_chinese = |c: char| RANGES.iter().any(|(first, last)| (*first..=*last).contains(&c));
    let mut spaced = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        if is_chinese(c) { spaced.extend([' ', c, ' ']) } else { spaced.push(c) }
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::split_words;

    fn cut(tokens: Tokens, text: &str) -> Vec<String> {
        split_words(&tokens.apply(text)).map(str::to_owned).collect()
    }

    #[test]
    fn tokenizers_cut_where_their_rules_say() {
        assert_eq!(
            cut(Tokens::V13a, "It's 3.5, or 1-2. &quot;Yes&quot;"),
            ["It's", "3.5", ",", "or", "1", "-", "2", ".", "\"", "Yes", "\""]
        );
        assert_eq!(cut(Tokens::Intl, "It's 3,5 €."), ["It", "'", "s", "3,5", "€", "."]);
        assert_eq!(cut(Tokens::Char, "a b"), ["a", "b"]);
        assert_eq!(cut(Tokens::Zh, "我爱AI。"), ["我", "爱", "AI", "。"]);
        assert_eq!(cut(Tokens::None, "It's."), ["It's."]);
    }
}
