//! Words of texts, as far as they tell what a text says.

use std::collections::BTreeSet;

/// Words that say nothing by themselves.
const FUNCTION_WORDS: [&str; 60] = [
    "the", "and", "for", "with", "that", "this", "from", "was", "were", "are", "has", "have", "had", "been", "its",
    "his", "her", "their", "they", "which", "who", "whom", "whose", "what", "when", "where", "how", "why", "into",
    "than", "then", "also", "not", "but", "any", "all", "can", "could", "will", "would", "may", "might", "did", "does",
    "about", "after", "before", "between", "over", "under", "such", "some", "most", "more", "other", "there", "these",
    "those", "said", "being",
];

/// Words that questions begin with, or have in them.
pub(super) const INTERROGATIVES: [&str; 9] = ["what", "who", "whom", "whose", "which", "when", "where", "why", "how"];
/// Words that demand an answer at the beginning of a sentence.
const DEMANDS: [&str; 12] = [
    "name", "list", "describe", "explain", "tell", "give", "state", "say", "summarize", "summarise", "identify",
    "outline",
];
/// Question marks of whatever script.
const MARKS: [char; 7] = ['?', '？', '؟', '\u{37e}', '՞', '፧', '⁇'];

/// Whether a text asks: it has a question mark, or begins with a word that asks or demands. Of texts without Latin
/// letters, whose languages may do without a mark, nothing is known.
pub(super) fn asks(text: &str) -> bool {
    let lower = text.to_lowercase();
    let first = lower.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty()).unwrap_or_default();
    text.contains(MARKS)
        || !text.contains(|c: char| c.is_ascii_alphabetic())
        || INTERROGATIVES.contains(&first)
        || DEMANDS.contains(&first)
}

/// How many words a text has.
pub(super) fn count_words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Whether two texts are the same but for case, spacing and punctuation.
pub(super) fn same_words(a: &str, b: &str) -> bool {
    let plain = |text: &str| -> Vec<String> {
        let lower = text.to_lowercase();
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    plain(a) == plain(b)
}

/// The words of a text that say something: numbers, and words of three letters and more that are no function words.
pub(super) fn telling_words(text: &str) -> BTreeSet<String> {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| {
        let is_number = word.chars().any(|c| c.is_ascii_digit());
        (is_number || word.chars().count() >= 3) && !FUNCTION_WORDS.contains(word)
    });
    words.map(str::to_owned).collect()
}

/// Whether a text has at least half of the words of another that say something.
pub(super) fn has_half_of(text: &BTreeSet<String>, said: &str) -> bool {
    let own = telling_words(said);
    2 * own.intersection(text).count() >= own.len()
}
