//! BLEU (Papineni et al. 2002), equal to sacrebleu (Post 2018).

mod tokens;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch, each,
};
use crate::ngrams::{Interner, Ngrams, total};
use crate::text::{is_space, split_words};
pub(crate) use tokens::{Tokens, points, set_apart};

/// Options of BLEU.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct BleuOptions {
    /// Tokenizer
    #[default(Tokens::V13a)]
    tok: Tokens,
    /// Smoothing of n-gram orders without a match
    #[default(Smooth::Exp)]
    smooth: Smooth,
    /// Smoothing value [default: 0.1 for floor, 1 for add-k]
    #[schemars(extend("exclusiveMinimum" = 0))]
    k: Option<f64>,
    /// Omit orders for which a candidate is too short
    #[default(Effective::Items)]
    eff: Effective,
    /// Longest n-grams
    #[schemars(range(min = 1, max = 16))]
    #[default(4)]
    order: u8,
    /// Ignore case
    lowercase: bool,
}

/// Smoothing (Chen and Cherry 2014: methods 3, 1, 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Smooth {
    Exp,
    Floor,
    AddK,
    None,
}

/// Where the effective order is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Effective {
    Items,
    Yes,
    No,
}

/// BLEU; see [`Definition::LONG_ABOUT`].
pub(crate) struct Bleu(BleuOptions);

impl Definition for Bleu {
    type Options = BleuOptions;
    const NAME: &'static str = "bleu";
    const ABOUT: &'static str = "N-gram precision with a brevity penalty, 0 to 100";
    const LONG_ABOUT: &'static str = "\
N-gram precision with a brevity penalty, 0 to 100.

Papineni et al. 2002. Equal to sacrebleu (Post 2018). With several references an n-gram matches as often as in the \
reference that has it most, and the reference length is the one nearest to the candidate's, the shorter of two. The \
corpus score is computed from summed counts; it is not a mean over items.

An order without a match counts by `smooth`: exp halves its value with each such order (NIST), floor uses k, add-k \
adds k to all orders except the first, none leaves it at zero. `eff` omits orders for which a candidate is too short: \
items for the scores of single items, as in sacrebleu's sentence scores, yes for the corpus too, no never.";
    const NEEDS: Needs = &[Need::References];

    fn build(options: BleuOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        Ok(Box::new(Self(options)))
    }
}

/// Statistics of BLEU, summed over items.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BleuCounts {
    candidate: u64,
    reference: u64,
    /// By order: matches, and n-grams of the candidate.
    orders: Vec<(u64, u64)>,
}

impl Metric for Bleu {
    fn settings(&self) -> MetricSettings {
        self.settings(self.0.eff == Effective::Yes)
    }

    fn item_settings(&self) -> MetricSettings {
        self.settings(self.0.eff != Effective::No)
    }

    fn note_without_spaces(&self) -> Option<&'static str> {
        self.0.tok.note_without_spaces()
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let counts = each(items, watch, Ngrams::new, |ngrams, item| self.counts(item, ngrams))?;
        let mut sum = BleuCounts { candidate: 0, reference: 0, orders: vec![(0, 0); usize::from(self.0.order)] };
        for counts in &counts {
            sum.add(counts);
        }
        let row = |counts: &BleuCounts, effective| {
            vec![Score::Value(self.value(counts, effective)).noted(short(counts, effective))]
        };
        Ok(MetricScores {
            items: counts.iter().map(|counts| row(counts, self.0.eff != Effective::No)).collect(),
            corpus: row(&sum, self.0.eff == Effective::Yes),
        })
    }
}

impl Bleu {
    fn settings(&self, effective: bool) -> MetricSettings {
        let options = &self.0;
        let k = self.k();
        let smooth = match options.smooth {
            Smooth::Exp => "exp".to_owned(),
            Smooth::None => "none".to_owned(),
            Smooth::Floor => format!("floor[{k:.2}]"),
            Smooth::AddK => format!("add-k[{k:.2}]"),
        };
        let mut settings = vec![
            ("case", if options.lowercase { "lc" } else { "mixed" }.to_owned()),
            ("eff", if effective { "yes" } else { "no" }.to_owned()),
            ("tok", options.tok.name().to_owned()),
            ("smooth", smooth),
        ];
        if options.order != 4 {
            settings.push(("order", options.order.to_string()));
        }
        settings
    }

    fn k(&self) -> f64 {
        self.0.k.unwrap_or(if self.0.smooth == Smooth::Floor { 0.1 } else { 1.0 })
    }

    fn tokenized(&self, text: &str) -> String {
        let lowered = self.0.lowercase.then(|| text.to_lowercase());
        // sacrebleu lower-cases, trims only trailing white space, and then tokenizes.
        self.0.tok.apply(lowered.as_deref().unwrap_or(text).trim_end_matches(is_space))
    }

    fn counts(&self, item: &MetricItem<'_>, ngrams: &mut Ngrams) -> BleuCounts {
        let order = usize::from(self.0.order);
        let candidate = self.tokenized(item.candidate);
        let references: Vec<String> = item.references.iter().map(|reference| self.tokenized(reference)).collect();
        let mut interner = Interner::default();
        let references: Vec<Vec<u32>> = references.iter().map(|text| interner.ids(split_words(text))).collect();
        let candidate = interner.ids(split_words(&candidate));
        ngrams.read(references.iter().map(Vec::as_slice), order);
        let mut matches = vec![0; order];
        ngrams.matches(&candidate, &mut matches);
        // The shorter of equally near lengths; otherwise the penalty would depend on the order of references.
        let nearest = references.iter().map(Vec::len).min_by_key(|len| (len.abs_diff(candidate.len()), *len));
        BleuCounts {
            candidate: candidate.len() as u64,
            reference: nearest.unwrap_or(0) as u64,
            orders: matches
                .iter()
                .zip(1..)
                .map(|(matches, n)| (u64::from(*matches), total(candidate.len(), n) as u64))
                .collect(),
        }
    }

    /// From 0 to 100.
    fn value(&self, counts: &BleuCounts, effective: bool) -> f64 {
        // Before smoothing, which would give a score to texts without a common word.
        if counts.orders.iter().all(|(matches, _)| *matches == 0) {
            return 0.0;
        }
        let (mut halved, mut logs, mut orders) = (1.0, 0.0, 0_u8);
        for (index, (matches, total)) in counts.orders.iter().enumerate() {
            // Not for single words: method 2 of Chen and Cherry (2014), as in sacrebleu.
            let add = if self.0.smooth == Smooth::AddK && index > 0 { self.k() } else { 0.0 };
            let (matches, total) = (*matches as f64 + add, *total as f64 + add);
            if total == 0.0 {
                break;
            }
            let precision = match self.0.smooth {
                _ if matches > 0.0 => 100.0 * matches / total,
                Smooth::Exp => {
                    halved *= 2.0;
                    100.0 / (halved * total)
                }
                Smooth::Floor => 100.0 * self.k() / total,
                // The geometric mean of zero is zero.
                Smooth::AddK | Smooth::None => return 0.0,
            };
            logs += precision.ln();
            orders += 1;
        }
        // sacrebleu uses −9999999999 as the logarithm of a missing order, so the score is 0.
        if orders < self.0.order && !effective {
            return 0.0;
        }
        brevity(counts) * (logs / f64::from(orders)).exp()
    }
}

/// Note for a score with matches whose candidates are all shorter than the longest n-grams.
fn short(counts: &BleuCounts, effective: bool) -> Option<&'static str> {
    let is_short = counts.orders.last().is_some_and(|(_, total)| *total == 0);
    let has_match = counts.orders.iter().any(|(matches, _)| *matches > 0);
    (is_short && has_match).then_some(if effective {
        "the candidate has fewer words than the longest n-grams, so its score counts only the shorter ones, and so \
         does the \
         mean"
    } else {
        "no candidate has as many words as the longest n-grams, so the score is 0; bleu:eff=yes counts shorter ones"
    })
}

/// The brevity penalty; there is a match, so neither text is empty.
fn brevity(counts: &BleuCounts) -> f64 {
    if counts.candidate < counts.reference {
        (1.0 - counts.reference as f64 / counts.candidate as f64).exp()
    } else {
        1.0
    }
}

impl BleuCounts {
    fn add(&mut self, other: &Self) {
        self.candidate += other.candidate;
        self.reference += other.reference;
        for (sum, more) in self.orders.iter_mut().zip(&other.orders) {
            sum.0 += more.0;
            sum.1 += more.1;
        }
    }
}
