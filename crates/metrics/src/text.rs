//! Characters and words as in Python, the language of the reference tools.

use crate::bleu::Tokens;
use crate::metric::MetricSettings;

/// Python's `str.isspace` for a character: Unicode white space and the four ASCII separators.
pub(crate) fn is_space(c: char) -> bool {
    // Rust uses only the Unicode property, which these four lack.
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Python's `str.split()`: the words between runs of white space.
pub(crate) fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

/// The text with white space between its words, optionally in lower case.
pub(crate) fn tokenized(tok: Tokens, lowercase: bool, text: &str) -> String {
    if lowercase { tok.apply(&text.to_lowercase()) } else { tok.apply(text) }
}

/// Signature settings of [`tokenized`].
pub(crate) fn word_settings(tok: Tokens, lowercase: bool) -> MetricSettings {
    vec![("case", if lowercase { "lc" } else { "mixed" }.to_owned()), ("tok", tok.name().to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_where_python_splits_them() {
        let text = "a\u{1c}b\u{1f}c\u{85}d\u{a0}e\u{2007}f\u{3000}g\u{200b}h\u{feff}i \n\tj ";
        assert_eq!(split_words(text).collect::<Vec<_>>(), ["a", "b", "c", "d", "e", "f", "g\u{200b}h\u{feff}i", "j"]);
    }
}
