//! SARI as in the script of Xu et al. (2016), and as in Hugging Face's `evaluate`, which changed that script.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::{EMPTY, ORDER, PARTS, SariCounts, counts, f1, row, texts};
use crate::MetricError;
use crate::bleu::Tokens;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch, each,
};
use crate::text::{split_words, tokenized, word_settings};

/// Options of the script's SARI.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct SariXuOptions {
    /// Tokenizer; none splits at each single space
    #[default(Tokens::None)]
    tok: Tokens,
    /// Distinguish case
    cased: bool,
}

/// Options of `evaluate`'s SARI.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct SariHfOptions {
    /// Tokenizer; none splits at each single space
    #[default(Tokens::V13a)]
    tok: Tokens,
    /// Distinguish case
    cased: bool,
}

/// SARI of the original script; see [`Definition::LONG_ABOUT`].
pub(crate) struct SariXu;

/// SARI of `evaluate`; see [`Definition::LONG_ABOUT`].
pub(crate) struct SariHf;

impl Definition for SariXu {
    type Options = SariXuOptions;
    const NAME: &'static str = "sari-xu";
    const ABOUT: &'static str = "SARI (edits of the source) as in SARI.py, 0 to 100";
    const LONG_ABOUT: &'static str = "\
SARI (edits of the source) as in SARI.py, 0 to 100.

N-grams rightly added to the source, kept and deleted, by sentence (Xu et al. 2016). Equal to the authors' script \
SARI.py, times 100. For n-grams of one to four words, precision and recall of keeping average, over kinds of n-grams, \
the share of kept occurrences that the references keep too. Deletions count by precision, averaged in the same way; \
deleted occurrences are right as far as they outnumber those in the references. Additions count by F1 over kinds of \
n-grams. SARI is the mean of F1 of keeping, precision of deleting and F1 of adding, each averaged over the four \
lengths; a share of nothing is 0. With R references the occurrences in source and candidate count R times, against the \
sum of the references'. The corpus score is the mean over items. Texts should be tokenized; the script splits at each \
single space (tok=none). The other common implementations are sari-easse and sari-hf.";
    const PARTS: &'static [&'static str] = PARTS;
    const NEEDS: Needs = &[Need::References, Need::Source];
    const MEAN: bool = true;

    fn build(SariXuOptions { tok, cased }: SariXuOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        Ok(Box::new(Script { tok, cased, changed: false }))
    }
}

impl Definition for SariHf {
    type Options = SariHfOptions;
    const NAME: &'static str = "sari-hf";
    const ABOUT: &'static str = "SARI (edits of the source) as in evaluate, 0 to 100";
    const LONG_ABOUT: &'static str = "\
SARI (edits of the source) as in evaluate, 0 to 100.

N-grams rightly added to the source, kept and deleted, by sentence. Equal to the metric sari of Hugging Face's \
evaluate, adopted from tensor2tensor: the authors' script (sari-xu) with two changes. A share of nothing is 1, so a \
text that needed no change loses nothing; and recall of keeping divides sums of occurrences. The corpus score is the \
mean over items.";
    const PARTS: &'static [&'static str] = PARTS;
    const NEEDS: Needs = &[Need::References, Need::Source];
    const MEAN: bool = true;

    fn build(SariHfOptions { tok, cased }: SariHfOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        Ok(Box::new(Script { tok, cased, changed: true }))
    }
}

struct Script {
    tok: Tokens,
    cased: bool,
    /// With the changes of `evaluate`.
    changed: bool,
}

impl Metric for Script {
    fn settings(&self) -> MetricSettings {
        word_settings(self.tok, !self.cased)
    }

    fn note_without_spaces(&self) -> Option<&'static str> {
        self.tok.note_without_spaces()
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        Ok(MetricScores::with_means(each(items, watch, || (), |(), item| self.item(item))?))
    }
}

impl Script {
    fn item(&self, item: &MetricItem<'_>) -> Vec<Score> {
        let texts = texts(item, |text| {
            let text = tokenized(self.tok, !self.cased, text);
            // The script splits at each single space, but our tokenizers may leave several in a row.
            if self.tok == Tokens::None { text } else { split_words(&text).collect::<Vec<_>>().join(" ") }
        });
        if texts.iter().all(String::is_empty) {
            return vec![EMPTY; 1 + PARTS.len()];
        }
        let mut sums = [XuSums::default(); ORDER];
        // As in Python, an empty text has one empty word.
        for (order, counts) in counts(&texts, |text| text.split(' ')) {
            sums[order].add(counts);
        }
        let operations = sums.map(|sums| sums.operations(self.changed));
        row(std::array::from_fn(|operation| {
            operations.iter().map(|operations| operations[operation]).sum::<f64>() / ORDER as f64
        }))
    }
}

/// Sums over the n-grams of one order.
#[derive(Debug, Clone, Copy, Default)]
struct XuSums {
    keep: XuShares,
    delete: XuShares,
    /// Distinct n-grams added by both, by the candidate, and by the references.
    added: [u64; 3],
}

/// Sums over the n-grams of one operation.
#[derive(Debug, Clone, Copy, Default)]
struct XuShares {
    /// Sum of the shares of the candidate's occurrences that agree with the references.
    precision: f64,
    /// Distinct n-grams in the candidate.
    kinds: u64,
    /// Sum of the shares of the references' occurrences that agree with the candidate.
    recall: f64,
    /// Distinct n-grams in the references.
    reference_kinds: u64,
    /// Occurrences in both, and in the references.
    occurrences: [u64; 2],
}

impl XuSums {
    fn add(&mut self, SariCounts { source, candidate, references }: SariCounts) {
        self.keep.add(source.min(candidate), source.min(references), source.min(candidate).min(references));
        let deleted = source.saturating_sub(candidate);
        // Specific to the script: not the occurrences deleted by both, but the excess of deletions over the references'
        // occurrences.
        self.delete.add(deleted, source.saturating_sub(references), deleted.saturating_sub(references));
        let new = |text: u64| u64::from(text > 0 && source == 0);
        let [both, own, theirs] = &mut self.added;
        *both += new(candidate.min(references));
        *own += new(candidate);
        *theirs += new(references);
    }

    /// Add, keep, delete, from 0 to 1.
    fn operations(&self, changed: bool) -> [f64; 3] {
        // 0/0 is 0 in the authors' script and 1 in `evaluate`.
        let share = |part: f64, whole: u64| if whole > 0 { part / whole as f64 } else { f64::from(u8::from(changed)) };
        let [both, own, theirs] = self.added;
        let add = f1(share(both as f64, own), share(both as f64, theirs));
        let keep = &self.keep;
        let recall = if changed {
            share(keep.occurrences[0] as f64, keep.occurrences[1])
        } else {
            share(keep.recall, keep.reference_kinds)
        };
        [add, f1(share(keep.precision, keep.kinds), recall), share(self.delete.precision, self.delete.kinds)]
    }
}

impl XuShares {
    /// Adds the occurrences of one n-gram in the candidate, in the references, and in both.
    fn add(&mut self, own: u64, theirs: u64, both: u64) {
        if own > 0 {
            self.precision += both as f64 / own as f64;
            self.kinds += 1;
        }
        if theirs > 0 {
            self.recall += both as f64 / theirs as f64;
            self.reference_kinds += 1;
        }
        self.occurrences[0] += both;
        self.occurrences[1] += theirs;
    }
}
