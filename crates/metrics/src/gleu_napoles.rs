//! GLEU of grammatical error correction (Napoles et al. 2015, revised 2016), equal to its authors' tool.

use rand_mt::Mt;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::bleu::Tokens;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch, each,
};
use crate::ngrams::{Interner, total};
use crate::tally::NgramTally;
use crate::text::{split_words, tokenized, word_settings};

/// Fixed in the tool, whose option of this name has no effect.
const ORDER: usize = 4;

const EMPTY: &str = "the candidate has no word, and the tool counts zeros as ones";
const SHORT: &str = "no candidate has four words, so the score is 0";

/// Options of GLEU.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct GleuNapolesOptions {
    /// Tokenizer
    #[default(Tokens::None)]
    tok: Tokens,
    /// Ignore case
    lowercase: bool,
    /// Draws of one reference per item, for the corpus
    #[schemars(range(min = 1, max = 100_000))]
    #[default(500)]
    draws: u32,
}

/// GLEU; see [`Definition::LONG_ABOUT`].
pub(crate) struct GleuNapoles(GleuNapolesOptions);

impl Definition for GleuNapoles {
    type Options = GleuNapolesOptions;
    const NAME: &'static str = "gleu-napoles";
    const ABOUT: &'static str = "BLEU variant for corrections of a source text, 0 to 1";
    const LONG_ABOUT: &'static str = "\
BLEU variant for corrections of a source text, 0 to 1.

Napoles et al. 2016: the revision of the measure of 2015 (GLEU without tuning, arXiv 1605.02592), equal to its \
authors' tool. For n-grams of one to four words the numerator is max(0, matches with the reference - matches with \
n-grams of the source that the reference does not have), and the denominator is the n-grams of the candidate; BLEU's \
geometric mean and brevity penalty follow. An item's score is the mean over its references, where each count of zero \
is replaced by one. The corpus score is computed from summed counts without smoothing. With several references it is \
the mean over draws of one reference for each item, with items and their references in the order of their texts \
(source, candidate, references). The seed is 101 times the number of the draw, with the generator of Python 3 (Python \
2, used for the published tool, draws others: the mean differs by chance, about 0.0005 on the test set of JFLEG). The \
tool splits words at white space, which is the default here: texts should be tokenized. For Google's GLEU, see \
gleu-google.";
    const NEEDS: Needs = &[Need::References, Need::Source];

    fn build(options: GleuNapolesOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        Ok(Box::new(Self(options)))
    }
}

/// Statistics of the score, summed over items.
#[derive(Debug, Clone, Copy, Default)]
struct GleuCounts {
    candidate: u64,
    reference: u64,
    /// By order: the numerator, and n-grams of the candidate.
    orders: [(u64, u64); ORDER],
}

impl Metric for GleuNapoles {
    fn settings(&self) -> MetricSettings {
        let mut settings = self.item_settings();
        settings.push(("draws", self.0.draws.to_string()));
        settings
    }

    fn item_settings(&self) -> MetricSettings {
        word_settings(self.0.tok, self.0.lowercase)
    }

    fn note_without_spaces(&self) -> Option<&'static str> {
        self.0.tok.note_without_spaces()
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let counts = each(items, watch, || (), |(), item| self.counts(item))?;
        let all = || counts.iter().flatten();
        let item = |counts: &Vec<GleuCounts>| {
            let is_empty = counts.iter().all(|counts| counts.candidate == 0);
            vec![mean(counts.iter().map(GleuCounts::smoothed)).noted(is_empty.then_some(EMPTY))]
        };
        let is_short =
            all().all(|counts| counts.orders[ORDER - 1].1 == 0) && all().any(|counts| counts.orders[0].0 > 0);
        let corpus = self.corpus(&by_text(items, &counts)).noted(is_short.then_some(SHORT));
        Ok(MetricScores { items: counts.iter().map(item).collect(), corpus: vec![corpus] })
    }
}

impl GleuNapoles {
    /// Counts against each reference.
    fn counts(&self, item: &MetricItem<'_>) -> Vec<GleuCounts> {
        let texts =
            [item.candidate, item.source.unwrap_or_default()].into_iter().chain(item.references.iter().copied());
        let texts: Vec<String> = texts.map(|text| tokenized(self.0.tok, self.0.lowercase, text)).collect();
        let mut interner = Interner::default();
        let texts: Vec<Vec<u32>> = texts.iter().map(|text| interner.ids(split_words(text))).collect();
        let tally = NgramTally::new(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>(), ORDER);
        let mut signed = vec![[0_i64; ORDER]; item.references.len()];
        for (order, row) in tally.rows() {
            let [candidate, source, references @ ..] = row else { continue };
            for (sums, reference) in signed.iter_mut().zip(references) {
                // The revision of 2016 penalises only n-grams that the reference does not contain.
                let penalty = if *reference == 0 { candidate.min(source) } else { &0 };
                sums[order - 1] += i64::from(*candidate.min(reference)) - i64::from(*penalty);
            }
        }
        let length = texts[0].len();
        let totals = std::array::from_fn::<_, ORDER, _>(|index| total(length, index + 1) as u64);
        let counts = |(sums, reference): ([i64; ORDER], &Vec<u32>)| GleuCounts {
            candidate: length as u64,
            reference: reference.len() as u64,
            // Clipped at 0 after summing, not per n-gram: penalties of one n-gram cancel matches of others.
            orders: std::array::from_fn(|index| (sums[index].max(0) as u64, totals[index])),
        };
        signed.into_iter().zip(&texts[2..]).map(counts).collect()
    }

    /// The mean over draws; a single draw if there is nothing to draw.
    fn corpus(&self, items: &[Vec<GleuCounts>]) -> Score {
        // With one reference each, all draws are equal.
        let draws = if items.iter().all(|references| references.len() == 1) { 1 } else { self.0.draws };
        let values: Vec<f64> = (0..draws).into_par_iter().map(|draw| drawn(items, draw).value()).collect();
        mean(values.into_iter())
    }
}

/// The counts of each item and of its references, sorted by text, so that draws do not depend on the order of data and
/// references.
fn by_text(items: &[MetricItem<'_>], counts: &[Vec<GleuCounts>]) -> Vec<Vec<GleuCounts>> {
    let mut ordered = Vec::with_capacity(items.len());
    for (item, counts) in items.iter().zip(counts) {
        let mut references: Vec<(&str, GleuCounts)> =
            item.references.iter().copied().zip(counts.iter().copied()).collect();
        references.sort_by(|a, b| a.0.cmp(b.0));
        let (texts, counts): (Vec<&str>, Vec<GleuCounts>) = references.into_iter().unzip();
        ordered.push(((item.source, item.candidate, texts), counts));
    }
    ordered.sort_by(|a, b| a.0.cmp(&b.0));
    ordered.into_iter().map(|(_, counts)| counts).collect()
}

/// The sum over items of the counts of one random reference each.
fn drawn(items: &[Vec<GleuCounts>], draw: u32) -> GleuCounts {
    // Python seeds by an array even if the seed is one number; plain seeding gives other draws.
    let mut random = Mt::new_with_key([draw * 101]);
    let mut sum = GleuCounts::default();
    for references in items {
        // Draws a number even for an item with one reference, as Python does; later draws depend on it.
        sum.add(&references[below(&mut random, references.len())]);
    }
    sum
}

/// A number below `n`, like Python 3's `random.randint(0, n - 1)`: draws as many high bits as `n` has until the result
/// is below `n`.
fn below(random: &mut Mt, n: usize) -> usize {
    let shift = (n as u32).leading_zeros();
    loop {
        let number = (random.next_u32() >> shift) as usize;
        if number < n {
            return number;
        }
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> Score {
    Score::mean(values.map(Score::Value))
}

impl GleuCounts {
    fn add(&mut self, other: &Self) {
        self.candidate += other.candidate;
        self.reference += other.reference;
        for (sum, more) in self.orders.iter_mut().zip(other.orders) {
            sum.0 += more.0;
            sum.1 += more.1;
        }
    }

    /// The score with each zero replaced by one.
    fn smoothed(&self) -> f64 {
        let one = |(matches, total): (u64, u64)| (matches.max(1), total.max(1));
        Self { candidate: self.candidate.max(1), reference: self.reference.max(1), orders: self.orders.map(one) }
            .value()
    }

    /// The score; 0 if any count is 0.
    fn value(&self) -> f64 {
        if self.candidate == 0
            || self.reference == 0
            || self.orders.iter().any(|(matches, total)| matches.min(total) == &0)
        {
            return 0.0;
        }
        let logs: f64 = self.orders.iter().map(|(matches, total)| (*matches as f64 / *total as f64).ln()).sum();
        let brevity = (1.0 - self.reference as f64 / self.candidate as f64).min(0.0);
        (brevity + logs / ORDER as f64).exp()
    }
}
