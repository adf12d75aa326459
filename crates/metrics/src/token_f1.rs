//! F1 of common words, as in question answering (Rajpurkar et al. 2016; with empty answers 2018).

use std::sync::LazyLock;

use regex::{Captures, Regex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::MetricError;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch, each,
};
use crate::ngrams::{Interner, Ngrams};
use crate::notes::no_spaces;
use crate::text::split_words;

/// It has no options.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct TokenF1Options {}

/// `token-f1`; see [`Definition::LONG_ABOUT`].
pub(crate) struct TokenF1;

impl Definition for TokenF1 {
    type Options = TokenF1Options;
    const NAME: &'static str = "token-f1";
    const ABOUT: &'static str = "F1 of common words and exact match of answers, 0 to 1";
    const LONG_ABOUT: &'static str = "\
F1 of common words and exact match of answers, 0 to 1.

Rajpurkar et al. 2016. Equal to the official script of SQuAD 2.0, which reports per cent. Texts are lower-cased, ASCII \
punctuation and the articles a, an, the are removed, and the rest is split at white space. `exact` is 1 if the same \
words remain in the same order. With several references each number takes its best; an empty reference counts only if \
all are empty, and agrees only with an empty answer. The score of all items is the mean.";
    const PARTS: &'static [&'static str] = &["exact"];
    const NEEDS: Needs = &[Need::References];
    const MEAN: bool = true;

    fn build(_: TokenF1Options, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        Ok(Box::new(AnswerMatch))
    }
}

struct AnswerMatch;

impl Metric for AnswerMatch {
    fn settings(&self) -> MetricSettings {
        vec![("case", "lc".to_owned()), ("tok", "squad".to_owned()), ("refs", "best".to_owned())]
    }

    fn note_without_spaces(&self) -> Option<&'static str> {
        Some(no_spaces!("rouge-l:tok=unicode and chrf do without spaces"))
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let rows = each(items, watch, Ngrams::new, |ngrams, item| {
            let best = item_scores(item, ngrams).into_iter().reduce(|best, next| [0, 1].map(|i| best[i].max(next[i])));
            best.unwrap_or_default().map(Score::Value).to_vec()
        })?;
        Ok(MetricScores::with_means(rows))
    }
}

/// F1 and exact match with each reference.
fn item_scores(item: &MetricItem<'_>, ngrams: &mut Ngrams) -> Vec<[f64; 2]> {
    let candidate = normalised(item.candidate);
    let mut references: Vec<String> = item.references.iter().map(|text| normalised(text)).collect();
    if references.iter().any(|text| split_words(text).next().is_some()) {
        references.retain(|text| split_words(text).next().is_some());
    }
    let mut interner = Interner::default();
    let candidate = interner.ids(split_words(&candidate));
    let references: Vec<Vec<u32>> = references.iter().map(|text| interner.ids(split_words(text))).collect();
    references.iter().map(|reference| scores(&candidate, reference, ngrams)).collect()
}

fn scores(candidate: &[u32], reference: &[u32], ngrams: &mut Ngrams) -> [f64; 2] {
    let exact = f64::from(u8::from(candidate == reference));
    if candidate.is_empty() || reference.is_empty() {
        return [exact; 2];
    }
    let mut hits = [0];
    ngrams.read([reference], 1);
    ngrams.matches(candidate, &mut hits);
    let precision = f64::from(hits[0]) / candidate.len() as f64;
    let recall = f64::from(hits[0]) / reference.len() as f64;
    [if hits[0] == 0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }, exact]
}

/// The characters around which `\b` of Python's `re` matches: letters and numbers, without the marks of Rust's `\w`;
/// `_` is punctuation and already removed.
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[\p{L}\p{N}]+").expect("a valid pattern"));

/// The script's `normalize_answer`, without its normalisation of white space.
fn normalised(text: &str) -> String {
    let mut text = text.to_lowercase();
    // Before articles are removed: `a-b` becomes one word, so its a is not an article.
    text.retain(|c| !c.is_ascii_punctuation());
    WORD.replace_all(
        &text,
        |word: &Captures<'_>| if ["a", "an", "the"].contains(&&word[0]) { " ".to_owned() } else { word[0].to_owned() },
    )
    .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn articles_and_punctuation_go_and_words_that_hold_them_stay() {
        for (text, expected) in [
            ("The Cat, a dog & an owl!", "cat dog owl"),
            ("a-b the_end U.S.A.", "ab theend usa"),
            ("Theo ate another banana", "theo ate another banana"),
            ("ना a\u{93f}b", "ना \u{93f}b"),
            ("à la “the” café–a", "à la “ ” café–"),
            ("THE\u{1f}A", ""),
        ] {
            assert_eq!(split_words(&normalised(text)).collect::<Vec<_>>().join(" "), expected);
        }
    }

    #[test]
    fn empty_answers_agree_with_empty_references_alone() {
        let score = |candidate, references: &[&'static str]| {
            let item = MetricItem { candidate, references: references.to_vec(), source: None };
            let found = AnswerMatch.score(&[item], &|_| Ok(())).expect("scored");
            [0, 1].map(|part| found.items[0][part].value().expect("a number"))
        };
        assert_eq!(score("", &["", "the"]), [1.0, 1.0]);
        assert_eq!(score("", &["", "two"]), [0.0, 0.0], "an empty reference beside others is none");
        assert_eq!(score("one", &[""]), [0.0, 0.0]);
        assert_eq!(score("two one", &["one two", "two"]), [1.0, 0.0]);
    }
}
