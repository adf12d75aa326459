//! Levenshtein's distance (1966): the minimum number of insertions, deletions and replacements of characters or words
//! that turn one text into another.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch, each,
};
use crate::ngrams::Interner;
use crate::text::split_words;

/// Options of the distance.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct LevenshteinOptions {
    /// Unit of an edit: characters or words
    #[default(EditUnit::Char)]
    unit: EditUnit,
    /// Ignore case
    lowercase: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum EditUnit {
    Char,
    Word,
}

/// Distance to the reference; see [`Definition::LONG_ABOUT`].
pub(crate) struct Levenshtein;

/// Distance to the source; see [`Definition::LONG_ABOUT`].
pub(crate) struct LevenshteinSource;

const PARTS: &[&str] = &["normalised"];

impl Definition for Levenshtein {
    type Options = LevenshteinOptions;
    const NAME: &'static str = "levenshtein";
    const ABOUT: &'static str = "Edits from candidate to reference; lower is better";
    const LONG_ABOUT: &'static str = "\
Edits from candidate to reference; lower is better.

Levenshtein 1966. The number of characters (Unicode scalar values) or words (between white space) to insert, delete or \
replace. Exact, with costs of one; 0 means equal texts. `normalised` divides by the length of the longer text, from 0 \
to 1; it is undefined for two empty texts. With several references the nearest counts, the longest of equally near \
ones. For all items: the mean distance, and the sum of distances divided by the sum of the longer lengths.";
    const PARTS: &'static [&'static str] = PARTS;
    const NEEDS: Needs = &[Need::References];
    const LOWER_IS_BETTER: bool = true;

    fn build(options: LevenshteinOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        Ok(Box::new(EditDistance { options, from: Need::References }))
    }
}

impl Definition for LevenshteinSource {
    type Options = LevenshteinOptions;
    const NAME: &'static str = "levenshtein-source";
    const ABOUT: &'static str = "Edits from source to candidate; lower is better";
    const LONG_ABOUT: &'static str = "\
Edits from source to candidate; lower is better.

Levenshtein 1966. How much was edited: as `levenshtein`, but against the source instead of references.";
    const PARTS: &'static [&'static str] = PARTS;
    const NEEDS: Needs = &[Need::Source];
    const LOWER_IS_BETTER: bool = true;

    fn build(options: LevenshteinOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        Ok(Box::new(EditDistance { options, from: Need::Source }))
    }
}

struct EditDistance {
    options: LevenshteinOptions,
    from: Need,
}

impl Metric for EditDistance {
    fn settings(&self) -> MetricSettings {
        let unit = if self.options.unit == EditUnit::Char { "char" } else { "word" };
        vec![("case", if self.options.lowercase { "lc" } else { "mixed" }.to_owned()), ("unit", unit.to_owned())]
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let found = each(items, watch, || (), |(), item| self.item(item))?;
        let sum = found.iter().fold((0, 0), |sum, item| (sum.0 + item.0, sum.1 + item.1));
        let mean = Score::mean(found.iter().map(|(distance, _)| Score::Value(*distance as f64)));
        Ok(MetricScores {
            items: found.into_iter().map(|item| vec![Score::Value(item.0 as f64), normalised(item)]).collect(),
            corpus: vec![mean, normalised(sum)],
        })
    }
}

impl EditDistance {
    /// The smallest distance, and the longer of the two lengths.
    fn item(&self, item: &MetricItem<'_>) -> (usize, usize) {
        let lowered = |text: &&str| if self.options.lowercase { text.to_lowercase() } else { (*text).to_owned() };
        let others = if self.from == Need::Source {
            item.source.iter().map(lowered).collect()
        } else {
            item.references.iter().map(lowered).collect::<Vec<_>>()
        };
        let candidate = lowered(&item.candidate);
        let mut interner = Interner::default();
        let mut units = |text| self.units(text, &mut interner);
        let candidate = units(&candidate);
        let compared = others.iter().map(|other| {
            let other = units(other);
            (distance(&candidate, &other), candidate.len().max(other.len()))
        });
        compared.min_by_key(|(distance, longer)| (*distance, std::cmp::Reverse(*longer))).unwrap_or_default()
    }

    fn units<'t>(&self, text: &'t str, interner: &mut Interner<'t>) -> Vec<u32> {
        match self.options.unit {
            EditUnit::Char => text.chars().map(u32::from).collect(),
            EditUnit::Word => interner.ids(split_words(text)),
        }
    }
}

fn normalised((distance, longer): (usize, usize)) -> Score {
    if longer == 0 { Score::Undefined("both texts are empty") } else { Score::Value(distance as f64 / longer as f64) }
}

/// Levenshtein's distance, in |a| |b| / 64 steps: the bit vectors of Myers (1999) with the carries of Hyyrö (2003), 64
/// rows of the matrix at a time. Blocks pass on the differences along their lowest row.
fn distance(a: &[u32], b: &[u32]) -> usize {
    // Common prefixes and suffixes cost nothing, and are most of an edited text.
    let prefix = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[prefix..], &b[prefix..]);
    let suffix = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - suffix], &b[..b.len() - suffix]);
    // Renumbers symbols, so that the table below has the size of the texts' alphabet instead of Unicode's.
    let mut number: HashMap<u32, usize, FxBuildHasher> = HashMap::default();
    let mut numbers = |symbols: &[u32]| -> Vec<usize> {
        let number_of = |symbol: &u32| {
            let next = number.len();
            *number.entry(*symbol).or_insert(next)
        };
        symbols.iter().map(number_of).collect()
    };
    let (a, b) = (numbers(a), numbers(b));
    // By column: whether the row above is one more, one less or the same as in the column before. Row 0 counts columns:
    // one more.
    let (mut more, mut less) = (vec![1_u64; b.len()], vec![0_u64; b.len()]);
    let mut equal = vec![0_u64; number.len()];
    for block in a.chunks(64) {
        for (row, symbol) in block.iter().enumerate() {
            equal[*symbol] |= 1 << row;
        }
        columns(&equal, block.len() - 1, &b, &mut more, &mut less);
        // Cleared symbol by symbol and reused for all blocks: a new table per block is quadratic if texts have no unit
        // in common.
        for symbol in block {
            equal[*symbol] = 0;
        }
    }
    a.len() + more.iter().sum::<u64>() as usize - less.iter().sum::<u64>() as usize
}

/// Computes a block of rows; `equal` has the matching rows of each symbol, and `more` and `less` become those of row
/// `last`.
fn columns(equal: &[u64], last: usize, b: &[usize], more: &mut [u64], less: &mut [u64]) {
    // Differences down the column, by row: one more, one less.
    let (mut down_more, mut down_less) = (!0_u64, 0_u64);
    for ((symbol, more), less) in b.iter().zip(more).zip(less) {
        let matches = equal[*symbol];
        let vertical = matches | down_less;
        let matches = matches | *less;
        let horizontal = ((matches & down_more).wrapping_add(down_more) ^ down_more) | matches;
        let (right_more, right_less) = (down_less | !(horizontal | down_more), down_more & horizontal);
        let (shifted_more, shifted_less) = (right_more << 1 | *more, right_less << 1 | *less);
        (*more, *less) = (right_more >> last & 1, right_less >> last & 1);
        down_more = shifted_less | !(vertical | shifted_more);
        down_less = shifted_more & vertical;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chars(text: &str) -> Vec<u32> {
        text.chars().map(u32::from).collect()
    }

    #[test]
    fn known_distances() {
        let cases = [
            ("kitten", "sitting", 3),
            ("", "", 0),
            ("", "añb", 3),
            ("flaw", "lawn", 2),
            ("e\u{301}", "é", 2),
            ("😀b", "b😀", 2),
            ("abc", "abc", 0),
        ];
        for (a, b, expected) in cases {
            assert_eq!(distance(&chars(a), &chars(b)), expected, "{a} {b}");
        }
    }

    #[test]
    fn long_texts_without_a_common_unit_take_little_memory() {
        let a: Vec<u32> = (0..20_000).collect();
        let b: Vec<u32> = (20_000..39_000).collect();
        assert_eq!(distance(&a, &b), 20_000);
    }

    fn texts() -> impl Strategy<Value = (Vec<u32>, Vec<u32>)> {
        let text = |symbols: u32| proptest::collection::vec(0..symbols, 0..300);
        (1_u32..6).prop_flat_map(move |symbols| (text(symbols), text(symbols)))
    }

    proptest! {
        #[test]
        fn equals_the_plain_matrix((a, b) in texts()) {
            prop_assert_eq!(distance(&a, &b), strsim::generic_levenshtein(&a, &b));
        }

        #[test]
        fn is_a_metric((a, b) in texts(), (c, _) in texts()) {
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert_eq!(distance(&a, &a), 0);
            prop_assert!(distance(&a, &c) <= distance(&a, &b) + distance(&b, &c));
            prop_assert!(distance(&a, &b) >= a.len().abs_diff(b.len()) && distance(&a, &b) <= a.len().max(b.len()));
        }
    }
}
