//! Distinctive words of texts.

use std::collections::BTreeSet;

/// Words without content.
const FUNCTION_WORDS: [&str; 60] = [
    "the", "and", "for", "with", "that", "this", "from", "was", "were", "are", "has", "have", "had", "been", "its",
    "his", "her", "their", "they", "which", "who", "whom", "whose", "what", "when", "where", "how", "why", "into",
    "than", "then", "also", "not", "but", "any", "all", "can", "could", "will", "would", "may", "might", "did", "does",
    "about", "after", "before", "between", "over", "under", "such", "some", "most", "more", "other", "there", "these",
    "those", "said", "being",
];

/// Words that begin questions or occur in them.
pub(super) const INTERROGATIVES: [&str; 9] = ["what", "who", "whom", "whose", "which", "when", "where", "why", "how"];
/// Verbs that request an answer at the beginning of a sentence.
const DEMANDS: [&str; 12] = [
    "name", "list", "describe", "explain", "tell", "give", "state", "say", "summarize", "summarise", "identify",
    "outline",
];
/// Question marks of all scripts.
const MARKS: [char; 7] = ['?', '？', '؟', '\u{37e}', '՞', '፧', '⁇'];

/// Whether a text is a question: it has a question mark, or begins with an interrogative or a request. Texts without
/// Latin letters count as questions, since their languages may omit the mark.
pub(super) fn asks(text: &str) -> bool {
    let lower = text.to_lowercase();
    let first = lower.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty()).unwrap_or_default();
    text.contains(MARKS)
        || !text.contains(|c: char| c.is_ascii_alphabetic())
        || INTERROGATIVES.contains(&first)
        || DEMANDS.contains(&first)
}

/// The number of words in a text.
pub(super) fn count_words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Whether two texts are equal except for case, spacing and punctuation.
pub(super) fn same_words(a: &str, b: &str) -> bool {
    let plain = |text: &str| -> Vec<String> {
        let lower = text.to_lowercase();
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    plain(a) == plain(b)
}

/// The distinctive words of a text: numbers, and words of at least three letters that are not function words.
pub(super) fn telling_words(text: &str) -> BTreeSet<String> {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| {
        let is_number = word.chars().any(|c| c.is_ascii_digit());
        (is_number || word.chars().count() >= 3) && !FUNCTION_WORDS.contains(word)
    });
    words.map(str::to_owned).collect()
}

/// Whether `text` contains at least half of the distinctive words of `said`.
pub(super) fn has_half_of(text: &BTreeSet<String>, said: &str) -> bool {
    let own = telling_words(said);
    2 * own.intersection(text).count() >= own.len()
}
