//! SARI as in EASSE (Alva-Manchego et al. 2019): the version of the authors' experiments.

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

/// Options of SARI.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct SariEasseOptions {
    /// Tokenizer
    #[default(Tokens::V13a)]
    tok: Tokens,
    /// Distinguish case
    cased: bool,
    /// What to average over n-gram orders
    #[default(Average::F1)]
    average: Average,
    /// Score of deletions: F1 or precision
    #[default(Deletion::F1)]
    delete: Deletion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Average {
    F1,
    PrecisionRecall,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Deletion {
    F1,
    Precision,
}

/// SARI; see [`Definition::LONG_ABOUT`].
pub(crate) struct SariEasse(SariEasseOptions);

impl Definition for SariEasse {
    type Options = SariEasseOptions;
    const NAME: &'static str = "sari-easse";
    const ABOUT: &'static str = "SARI (edits of the source) as in EASSE, 0 to 100";
    const LONG_ABOUT: &'static str = "\
SARI (edits of the source) as in EASSE, 0 to 100.

N-grams rightly added to the source, kept and deleted (Xu et al. 2016). Equal to EASSE (Alva-Manchego et al. 2019). \
For n-grams of one to four words, the counts of additions, kept n-grams and deletions by the candidate, by the \
references, and by both are summed over all items. Each operation's precision and recall are computed from these sums, \
and SARI is the mean of the three operations' F1. `average` averages F1 over the orders, as in the authors' \
experiments, or precision and recall, as in the paper's equations; `delete` scores deletions by F1, or by precision as \
in those equations. Additions count once for each kind of n-gram. With R references the occurrences in source and \
candidate count R times, against the sum of the references'. An item's score is that of a corpus of this item. A share \
of nothing is 0, so a copy of a source that needed no change has 0 for add and delete. The other common \
implementations are sari-xu and sari-hf.";
    const PARTS: &'static [&'static str] = PARTS;
    const NEEDS: Needs = &[Need::References, Need::Source];

    fn build(options: SariEasseOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        Ok(Box::new(Self(options)))
    }
}

/// Counts of an operation: shared by candidate and references, in the candidate, in the references.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Operation {
    both: u64,
    candidate: u64,
    references: u64,
}

/// By order: add, keep, delete.
type OperationSums = [[Operation; 3]; ORDER];

impl Metric for SariEasse {
    fn settings(&self) -> MetricSettings {
        let options = &self.0;
        let average = if options.average == Average::F1 { "f1" } else { "pr" };
        let delete = if options.delete == Deletion::F1 { "f1" } else { "precision" };
        let mut settings = word_settings(options.tok, !options.cased);
        settings.extend([("average", average.to_owned()), ("delete", delete.to_owned())]);
        settings
    }

    fn note_without_spaces(&self) -> Option<&'static str> {
        self.0.tok.note_without_spaces()
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let sums = each(items, watch, || (), |(), item| self.sums(item))?;
        let mut corpus = OperationSums::default();
        for item in &sums {
            corpus = std::array::from_fn(|order| added(corpus[order], item[order]));
        }
        Ok(MetricScores { items: sums.iter().map(|sums| self.row(sums)).collect(), corpus: self.row(&corpus) })
    }
}

impl SariEasse {
    fn sums(&self, item: &MetricItem<'_>) -> OperationSums {
        let texts = texts(item, |text| tokenized(self.0.tok, !self.0.cased, text));
        let mut sums = OperationSums::default();
        for (order, counts) in counts(&texts, split_words) {
            sums[order] = added(sums[order], operations(counts));
        }
        sums
    }

    fn row(&self, sums: &OperationSums) -> Vec<Score> {
        if *sums == OperationSums::default() {
            return vec![EMPTY; 1 + PARTS.len()];
        }
        let shares = sums.map(|operations| operations.map(|operation| (operation.precision(), operation.recall())));
        let mean = |values: [f64; ORDER]| values.iter().sum::<f64>() / ORDER as f64;
        row(std::array::from_fn(|operation| {
            let by_order = shares.map(|operations| operations[operation]);
            let precision_alone = operation == 2 && self.0.delete == Deletion::Precision;
            let (precision, recall) =
                (mean(by_order.map(|(precision, _)| precision)), mean(by_order.map(|(_, recall)| recall)));
            match self.0.average {
                _ if precision_alone => precision,
                Average::F1 => mean(by_order.map(|(precision, recall)| f1(precision, recall))),
                Average::PrecisionRecall => f1(precision, recall),
            }
        }))
    }
}

/// The operations on one n-gram.
fn operations(SariCounts { source, candidate, references }: SariCounts) -> [Operation; 3] {
    let new = |text: u64| u64::from(text > 0 && source == 0);
    let operation = |both, candidate, references| Operation { both, candidate, references };
    let [kept, kept_there] = [source.min(candidate), source.min(references)];
    let [deleted, deleted_there] = [source.saturating_sub(candidate), source.saturating_sub(references)];
    [
        operation(new(candidate).min(new(references)), new(candidate), new(references)),
        operation(kept.min(kept_there), kept, kept_there),
        operation(deleted.min(deleted_there), deleted, deleted_there),
    ]
}

fn added(sums: [Operation; 3], more: [Operation; 3]) -> [Operation; 3] {
    let add = |a: Operation, b: Operation| Operation {
        both: a.both + b.both,
        candidate: a.candidate + b.candidate,
        references: a.references + b.references,
    };
    std::array::from_fn(|operation| add(sums[operation], more[operation]))
}

impl Operation {
    fn precision(self) -> f64 {
        share(self.both, self.candidate)
    }

    fn recall(self) -> f64 {
        share(self.both, self.references)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
