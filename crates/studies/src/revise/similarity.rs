//! The similarity of a text and its revision.

use probity_metrics::{Metric, MetricError, MetricItem, MetricModels, Score, choose};
use serde::Serialize;

use crate::figures::mean;

/// The similarity of two texts, from 0 (nothing in common) to 1 (equal). A figure is absent if neither text has any of
/// its units.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(crate) struct Similarity {
    /// 1 − Levenshtein distance in characters / length of the longer text.
    pub(crate) char: Option<f64>,
    /// The same for words.
    pub(crate) word: Option<f64>,
    /// F of the longest common subsequence of words.
    pub(crate) rouge_l: Option<f64>,
}

impl Similarity {
    pub(super) fn mean(all: &[Self]) -> Self {
        let mean_of = |value: fn(&Self) -> Option<f64>| mean(all.iter().filter_map(value));
        Self { char: mean_of(|s| s.char), word: mean_of(|s| s.word), rouge_l: mean_of(|s| s.rouge_l) }
    }
}

/// The metrics of [`Similarity`].
pub(crate) struct Measures([Box<dyn Metric>; 3]);

impl Measures {
    pub(crate) fn new() -> Self {
        let metric = |name: &str| {
            choose(name).and_then(|choices| choices[0].build(&MetricModels::default())).expect("a metric of text alone")
        };
        Self([metric("levenshtein"), metric("levenshtein:unit=word"), metric("rouge-l")])
    }

    /// The similarity of `text` to each of `others`, in order.
    pub(crate) fn similarities(&self, text: &str, others: &[&str]) -> Vec<Similarity> {
        if others.is_empty() {
            return Vec::new();
        }
        let items: Vec<MetricItem<'_>> =
            others.iter().map(|other| MetricItem { candidate: text, references: vec![other], source: None }).collect();
        let scores = self.0.each_ref().map(|metric| metric.score(&items, &|_| Ok(())).map(|scores| scores.items));
        let [chars, words, common] =
            scores.map(|scores: Result<Vec<Vec<Score>>, MetricError>| scores.expect("nothing stops it"));
        let likeness = |row: &[Score]| row[1].value().map(|distance| 1.0 - distance);
        let of = |k: usize| Similarity {
            char: likeness(&chars[k]),
            word: likeness(&words[k]),
            rouge_l: common[k][0].value(),
        };
        (0..others.len()).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeness_is_one_for_the_same_and_counts_edits() {
        let measures = Measures::new();
        let found = measures.similarities("a cat sat", &["a cat sat", "a dog sat", ""]);
        assert_eq!(found[0], Similarity { char: Some(1.0), word: Some(1.0), rouge_l: Some(1.0) });
        // Three of nine characters; one of three words; two common words of three each.
        let near = |value: Option<f64>, expected: f64| value.is_some_and(|value| (value - expected).abs() < 1e-12);
        assert!(
            near(found[1].char, 6.0 / 9.0) && near(found[1].word, 2.0 / 3.0) && near(found[1].rouge_l, 2.0 / 3.0),
            "{found:?}"
        );
        assert_eq!((found[2].char, found[2].word), (Some(0.0), Some(0.0)));
        assert_eq!(measures.similarities("", &[""])[0].char, None);
    }
}
