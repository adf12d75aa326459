//! Characters and words as Python sees them, since the tools that metrics are held against are written in it.

use crate::bleu::Tokens;
use crate::metric::MetricSettings;

/// Python's `str.isspace` of a character: Unicode's white space and the four separators of ASCII.
pub(crate) fn is_space(c: char) -> bool {
    // Rust goes by Unicode's property alone, which these four lack.
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Python's `str.split()`: the words between runs of white space.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

/// A text with white space between its words, in lower case if that is wanted.
pub(crate) fn tokenized(tok: Tokens, lowercase: bool, text: &str) -> String {
    if lowercase { tok.apply(&text.to_lowercase()) } else { tok.apply(text) }
}

/// How [`tokenized`] makes words, for signatures.
pub(crate) fn word_settings(tok: Tokens, lowercase: bool) -> MetricSettings {
    vec![("case", if lowercase { "lc" } else { "mixed" }.to_owned()), ("tok", tok.name().to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_where_python_splits_them() {
        let text = "a\u{1c}b\u{1f}c\u{85}d\u{a0}e\u{2007}f\u{3000}g\u{200b}h\u{feff}i \n\tj ";
        assert_eq!(words(text).collect::<Vec<_>>(), ["a", "b", "c", "d", "e", "f", "g\u{200b}h\u{feff}i", "j"]);
    }
}
