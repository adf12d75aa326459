//! chrF (Popović 2015) and chrF++ (Popović 2017), equal to sacrebleu (Post 2018).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch, each,
};
use crate::ngrams::{Interner, Ngrams, total};
use crate::text::{is_space, split_words};

/// Options of chrF.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ChrfOptions {
    /// Longest character n-grams
    #[schemars(range(min = 1, max = 16))]
    #[default(6)]
    char_order: u8,
    /// Longest word n-grams; 2 is chrF++
    #[schemars(range(max = 16))]
    #[default(0)]
    word_order: u8,
    /// Weight of recall relative to precision
    #[schemars(range(min = 1, max = 16))]
    #[default(2)]
    beta: u8,
    /// Ignore case
    lowercase: bool,
    /// Count white space as characters
    whitespace: bool,
    /// Average F over all orders, as chrF++.py does
    eps: bool,
}

/// chrF; see [`Definition::LONG_ABOUT`].
pub(crate) struct Chrf(ChrfOptions);

impl Definition for Chrf {
    type Options = ChrfOptions;
    const NAME: &'static str = "chrf";
    const ABOUT: &'static str = "Character n-gram F-score, 0 to 100 (chrF++: word-order=2)";
    const LONG_ABOUT: &'static str = "\
Character n-gram F-score, 0 to 100 (chrF++: word-order=2).

Popović 2015. N-grams have up to six characters by default. Equal to sacrebleu (Post 2018). With several references \
the best score counts. The corpus score is computed from summed counts; it is not a mean over items. Precision and \
recall are averaged over the orders that exist. With eps F is averaged over all orders instead, and an order without \
n-grams counts almost nothing.";
    const NEEDS: Needs = &[Need::References];

    fn build(options: ChrfOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        Ok(Box::new(Self(options)))
    }
}

/// N-gram counts of one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ChrfCounts {
    /// In the candidate; 0 if the reference has none of this order.
    candidate: u64,
    reference: u64,
    matches: u64,
}

impl Metric for Chrf {
    fn settings(&self) -> MetricSettings {
        let options = &self.0;
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let mut settings = vec![
            ("case", if options.lowercase { "lc" } else { "mixed" }.to_owned()),
            ("eff", yes(!options.eps)),
            ("nc", options.char_order.to_string()),
            ("nw", options.word_order.to_string()),
            ("space", yes(options.whitespace)),
        ];
        // sacrebleu's signature has no beta; it is added only for other values than the default, so that default
        // signatures match.
        if options.beta != 2 {
            settings.push(("beta", options.beta.to_string()));
        }
        settings
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let counts = each(items, watch, Ngrams::new, |ngrams, item| self.best(item, ngrams))?;
        let mut sum = vec![ChrfCounts::default(); self.orders()];
        for counts in &counts {
            sum.iter_mut().zip(counts).for_each(|(sum, more)| sum.add(*more));
        }
        let row = |counts: &[ChrfCounts]| vec![Score::Value(self.value(counts))];
        Ok(MetricScores { items: counts.iter().map(|counts| row(counts)).collect(), corpus: row(&sum) })
    }
}

impl Chrf {
    fn orders(&self) -> usize {
        usize::from(self.0.char_order) + usize::from(self.0.word_order)
    }

    /// The counts of every order against the best-scoring reference; the first of equals.
    fn best(&self, item: &MetricItem<'_>, ngrams: &mut Ngrams) -> Vec<ChrfCounts> {
        let lowered = |text: &str| if self.0.lowercase { text.to_lowercase() } else { text.to_owned() };
        let chars = |text: &str| {
            text.chars().filter(|c| self.0.whitespace || !is_space(*c)).map(u32::from).collect::<Vec<u32>>()
        };
        let candidate = lowered(item.candidate);
        let candidate_chars = chars(&candidate);
        let mut best: Option<(f64, Vec<ChrfCounts>)> = None;
        for reference in &item.references {
            let reference = lowered(reference);
            let mut counts = count(ngrams, &candidate_chars, &chars(&reference), self.0.char_order);
            if self.0.word_order > 0 {
                let mut interner = Interner::default();
                let [candidate, reference] =
                    [&candidate, &reference].map(|text| interner.ids(split_words(text).flat_map(apart)));
                counts.extend(count(ngrams, &candidate, &reference, self.0.word_order));
            }
            let value = self.value(&counts);
            if best.as_ref().is_none_or(|(most, _)| value > *most) {
                best = Some((value, counts));
            }
        }
        best.map_or_else(|| vec![ChrfCounts::default(); self.orders()], |(_, counts)| counts)
    }

    /// From 0 to 100.
    fn value(&self, counts: &[ChrfCounts]) -> f64 {
        // The constant of chrF++.py.
        const EPS: f64 = 1e-16;
        let factor = f64::from(self.0.beta).powi(2);
        let f = |precision: f64, recall: f64| (1.0 + factor) * precision * recall / (factor * precision + recall);
        let part = |matches: u64, of: u64| if of > 0 { matches as f64 / of as f64 } else { EPS };
        if self.0.eps {
            let scores = counts.iter().map(|c| (part(c.matches, c.candidate), part(c.matches, c.reference)));
            let sum: f64 = scores
                .map(|(precision, recall)| if precision + recall > 0.0 { f(precision, recall) } else { EPS })
                .sum();
            return 100.0 * sum / counts.len() as f64;
        }
        let (mut precision, mut recall, mut orders) = (0.0, 0.0, 0.0);
        for c in counts.iter().filter(|c| c.candidate > 0 && c.reference > 0) {
            precision += part(c.matches, c.candidate);
            recall += part(c.matches, c.reference);
            orders += 1.0;
        }
        if precision + recall > 0.0 { 100.0 * f(precision / orders, recall / orders) } else { 0.0 }
    }
}

impl ChrfCounts {
    fn add(&mut self, more: Self) {
        self.candidate += more.candidate;
        self.reference += more.reference;
        self.matches += more.matches;
    }
}

/// The counts of orders `1..=order`.
fn count(ngrams: &mut Ngrams, candidate: &[u32], reference: &[u32], order: u8) -> Vec<ChrfCounts> {
    ngrams.read([reference], usize::from(order));
    let mut matches = vec![0; usize::from(order)];
    ngrams.matches(candidate, &mut matches);
    let counts = matches.iter().zip(1..).map(|(matches, n)| {
        let reference = total(reference.len(), n) as u64;
        // sacrebleu ignores candidates' n-grams of an order that the reference lacks. This affects sums over a corpus.
        let candidate = if reference > 0 { total(candidate.len(), n) as u64 } else { 0 };
        ChrfCounts { candidate, reference, matches: u64::from(*matches) }
    });
    counts.collect()
}

/// A word of chrF++: one ASCII punctuation mark is separated from its end, or else from its beginning.
fn apart(word: &str) -> impl Iterator<Item = &str> {
    let is_mark = |c: char| c.is_ascii_punctuation();
    let cut = match (word.chars().next(), word.chars().next_back()) {
        // A single mark is a word and stays whole.
        _ if word.chars().nth(1).is_none() => word.len(),
        (_, Some(last)) if is_mark(last) => word.len() - 1,
        (Some(first), _) if is_mark(first) => 1,
        _ => word.len(),
    };
    let (head, tail) = word.split_at(cut);
    [head, tail].into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_loses_one_mark() {
        let parts = |word| apart(word).collect::<Vec<_>>();
        assert_eq!(parts("(hi)"), ["(hi", ")"]);
        assert_eq!(parts("(hi"), ["(", "hi"]);
        assert_eq!(
            (parts("."), parts("é"), parts("né."), parts("“hi”")),
            (vec!["."], vec!["é"], vec!["né", "."], vec!["“hi”"])
        );
    }
}
