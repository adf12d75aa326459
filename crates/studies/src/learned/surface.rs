//! Surface statistics of a text, without a model. People's preferences depend on many of them, so a head must beat
//! them.

use std::collections::{BTreeMap, BTreeSet};

use unicode_segmentation::UnicodeSegmentation;

/// The names in the order of [`surface`].
pub(super) const SURFACE: [&str; 28] = [
    // Length.
    "words", "log_words", "characters", "sentences", "words_per_sentence", "letters_per_word",
    // Repetition: the share of distinct words; the share of repeated bigrams and trigrams.
    "distinct_words", "repeated_bigrams", "repeated_trigrams",
    // The share of words and n-grams that the source does not contain.
    "novel_words", "novel_bigrams", "novel_trigrams", "novel_fourgrams",
    // Copying: fragments found greedily by length. The longest in words and as a share of the text; the density of
    // Grusky et al. (2018): squared lengths per word; fragments per word.
    "longest_copy", "longest_copy_share", "copy_density", "copies_per_word",
    // The positions in the source (0 to 1) of fragments of at least three words: mean, spread and first; the share of
    // neighbours in source order.
    "copy_position", "copy_spread", "first_copy", "copies_in_order",
    // Style: shares of characters; whether it begins with a capital and ends like a sentence; the share of sentences
    // that begin with a capital.
    "capitals", "digits", "punctuation", "starts_capital", "ends_sentence", "capital_sentences",
    // Its number of words relative to the source.
    "length_ratio",
];
/// The index of `log_words`.
pub(super) const LOG_WORDS: usize = 1;

/// Shorter fragments match by chance and do not identify a source position.
const TELLING: usize = 3;

/// A copied fragment: its start in the text, its start in the source, and its length in words.
struct Fragment {
    source: usize,
    words: usize,
}

/// Words as numbers, for fast comparison.
#[derive(Default)]
struct WordNumbers<'t>(BTreeMap<&'t str, u32>);

impl<'t> WordNumbers<'t> {
    fn number(&mut self, word: &'t str) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(word).or_insert(next)
    }
}

/// The features of a text given its source, in the order of [`SURFACE`]. Words and sentences follow Unicode's
/// segmentation; words ignore case.
pub(super) fn surface(source: &str, text: &str) -> Vec<f64> {
    let text = text.trim();
    let lower = [source.to_lowercase(), text.to_lowercase()];
    let [source_words, words] = lower.each_ref().map(|text| text.unicode_words().collect::<Vec<&str>>());
    let letters: usize = words.iter().map(|word| word.chars().count()).sum();
    let mut numbers = WordNumbers::default();
    let source_words: Vec<u32> = source_words.into_iter().map(|word| numbers.number(word)).collect();
    let words: Vec<u32> = words.into_iter().map(|word| numbers.number(word)).collect();
    let sentences: Vec<&str> = text.unicode_sentences().filter(|one| one.chars().any(char::is_alphanumeric)).collect();
    let count = words.len().max(1) as f64;
    let characters = text.chars().count().max(1) as f64;
    let share = |of: &dyn Fn(char) -> bool| text.chars().filter(|c| of(*c)).count() as f64 / characters;
    let distinct: BTreeSet<u32> = words.iter().copied().collect();
    let mut features = vec![
        words.len() as f64,
        libm::log(count),
        text.chars().count() as f64,
        sentences.len() as f64,
        count / sentences.len().max(1) as f64,
        letters as f64 / count,
        distinct.len() as f64 / count,
        repeated(&words, 2),
        repeated(&words, 3),
    ];
    features.extend((1..=4).map(|length| novel(&source_words, &words, length)));
    let fragments = fragments(&source_words, &words);
    let longest = fragments.iter().map(|one| one.words).max().unwrap_or(0) as f64;
    let squares: usize = fragments.iter().map(|one| one.words * one.words).sum();
    features.extend([longest, longest / count, squares as f64 / count, fragments.len() as f64 / count]);
    features.extend(origins(&fragments, source_words.len()));
    let begins_capital = |text: &str| text.chars().find(|c| c.is_alphanumeric()).is_some_and(char::is_uppercase);
    let capital = sentences.iter().filter(|one| begins_capital(one)).count() as f64;
    features.extend([
        share(&char::is_uppercase),
        share(&char::is_numeric),
        share(&|c| !c.is_alphanumeric() && !c.is_whitespace()),
        f64::from(begins_capital(text)),
        f64::from(text.ends_with(['.', '!', '?', '"', '\'', '”', '’', '。', '！', '？'])),
        if sentences.is_empty() { 0.0 } else { capital / sentences.len() as f64 },
        count / source_words.len().max(1) as f64,
    ]);
    features
}

/// The share of n-grams of this length that occurred earlier in the text.
fn repeated(words: &[u32], length: usize) -> f64 {
    let runs = words.windows(length).count();
    let distinct: BTreeSet<&[u32]> = words.windows(length).collect();
    if runs == 0 { 0.0 } else { 1.0 - distinct.len() as f64 / runs as f64 }
}

/// The share of n-grams of this length that the source does not contain.
fn novel(source: &[u32], words: &[u32], length: usize) -> f64 {
    let known: BTreeSet<&[u32]> = source.windows(length).collect();
    let runs = words.windows(length).count();
    let new = words.windows(length).filter(|run| !known.contains(run)).count();
    if runs == 0 { 0.0 } else { new as f64 / runs as f64 }
}

/// The copied fragments from left to right, each the longest match, and of equally long ones the first in the source
/// (Grusky, Naaman and Artzi 2018). The number of steps is at most the number of word pairs of both texts.
fn fragments(source: &[u32], words: &[u32]) -> Vec<Fragment> {
    let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, word) in source.iter().enumerate() {
        places.entry(*word).or_default().push(place);
    }
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let same = |place: usize| source[place..].iter().zip(&words[at..]).take_while(|(a, b)| a == b).count();
        let candidates = places.get(&words[at]).into_iter().flatten().map(|place| (same(*place), *place));
        let longest = candidates.max_by_key(|(words, place)| (*words, std::cmp::Reverse(*place)));
        at += longest.map_or(1, |(words, _)| words);
        found.extend(longest.map(|(words, source)| Fragment { source, words }));
    }
    found
}

/// Mean position in the source, spread, first position, and the share of neighbours in order, over fragments that are
/// long enough.
fn origins(fragments: &[Fragment], source_words: usize) -> [f64; 4] {
    let telling: Vec<usize> = fragments.iter().filter(|one| one.words >= TELLING).map(|one| one.source).collect();
    if telling.is_empty() {
        return [0.5, 0.0, 0.5, 1.0];
    }
    let places: Vec<f64> = telling.iter().map(|place| *place as f64 / source_words.max(1) as f64).collect();
    let mean = places.iter().sum::<f64>() / places.len() as f64;
    let variance = places.iter().map(|place| (place - mean) * (place - mean)).sum::<f64>() / places.len() as f64;
    let first = places.iter().copied().fold(f64::INFINITY, f64::min);
    let pairs = telling.len() - 1;
    let in_order = telling.windows(2).filter(|pair| pair[1] > pair[0]).count();
    [mean, variance.sqrt(), first, if pairs == 0 { 1.0 } else { in_order as f64 / pairs as f64 }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(source: &str, text: &str, name: &str) -> f64 {
        surface(source, text)[SURFACE.iter().position(|known| *known == name).expect("a feature")]
    }

    const SOURCE: &str = "The mill burned down in 1874. A storm took the roof, and nobody built it again.";

    #[test]
    fn what_is_copied_is_found_with_its_length_place_and_order() {
        let text = "A storm took the roof. The mill burned down in 1900!";
        assert_eq!(feature(SOURCE, text, "words"), 11.0);
        assert_eq!(feature(SOURCE, text, "sentences"), 2.0);
        assert_eq!(feature(SOURCE, text, "longest_copy"), 5.0);
        // Two fragments of five words, and one word without a match.
        assert_eq!(feature(SOURCE, text, "copy_density"), 50.0 / 11.0);
        assert_eq!(feature(SOURCE, text, "copies_in_order"), 0.0);
        assert_eq!(feature(SOURCE, text, "first_copy"), 0.0);
        assert!((feature(SOURCE, text, "copy_position") - 3.0 / 16.0).abs() < 1e-12);
        assert_eq!(feature(SOURCE, text, "novel_words"), 1.0 / 11.0);
        // a storm, storm took, took the, the roof; the mill, mill burned, burned down, down in: known. Two are new.
        assert_eq!(feature(SOURCE, text, "novel_bigrams"), 2.0 / 10.0);
        assert_eq!(feature(SOURCE, text, "ends_sentence"), 1.0);
        assert_eq!(feature(SOURCE, text, "capital_sentences"), 1.0);
    }

    #[test]
    fn repetition_is_what_was_there_before() {
        assert_eq!(feature("", "no no no no", "repeated_bigrams"), 1.0 - 1.0 / 3.0);
        assert_eq!(feature("", "no no no no", "distinct_words"), 0.25);
        assert_eq!(feature("", "one two three", "repeated_trigrams"), 0.0);
    }

    #[test]
    fn every_text_has_finite_features_and_as_many_as_there_are_names() {
        let long = "word ".repeat(3000);
        for (source, text) in
            [("", ""), ("", "!"), (SOURCE, ""), ("", SOURCE), ("日本語の文。", "日本"), (&long, &long)]
        {
            let features = surface(source, text);
            assert_eq!(features.len(), SURFACE.len());
            assert!(features.iter().all(|value| value.is_finite()), "{features:?}");
        }
    }
}
