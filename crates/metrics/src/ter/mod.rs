//! Translation edit rate (Snover et al. 2006), equal to sacrebleu (Post 2018), which follows tercom.

mod distance;
mod shifts;
mod tokens;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch, each,
};
use crate::ngrams::Interner;
use crate::notes::no_spaces;
use crate::text::split_words;

/// Options of TER.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "four switches of tercom, each an option by itself")]
pub(crate) struct TerOptions {
    /// Split off punctuation and decode XML entities
    normalized: bool,
    /// Remove punctuation
    no_punct: bool,
    /// Also treat Chinese and Japanese, by character
    asian: bool,
    /// Distinguish case
    case_sensitive: bool,
}

/// TER; see [`Definition::LONG_ABOUT`].
pub(crate) struct Ter(TerOptions);

impl Definition for Ter {
    type Options = TerOptions;
    const NAME: &'static str = "ter";
    const ABOUT: &'static str = "Word edits in % of reference words; lower is better";
    const LONG_ABOUT: &'static str = "\
Word edits in % of reference words; lower is better.

Snover et al. 2006. Shifts of word sequences count as edits too. Equal to sacrebleu (Post 2018), with its limits: \
shifts of up to 10 words over up to 50, at most 1000 tried, edits within 25 words of the diagonal. With several \
references the one with the fewest edits counts, over the mean of their lengths. The corpus rate divides summed edits \
by summed lengths; it is not a mean over items. It may exceed 100.

`normalized` splits off punctuation and decodes XML entities, as tercom does on request. With `asian` this and \
`no-punct` apply to Chinese and Japanese too, and `normalized` makes each of their characters a word.";
    const NEEDS: Needs = &[Need::References];
    const LOWER_IS_BETTER: bool = true;

    fn build(options: TerOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        Ok(Box::new(Self(options)))
    }
}

/// Number of edits to the nearest reference, and the mean length of references in words.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct TerCounts {
    edits: f64,
    length: f64,
}

impl Metric for Ter {
    fn settings(&self) -> MetricSettings {
        let options = &self.0;
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        vec![
            ("case", if options.case_sensitive { "mixed" } else { "lc" }.to_owned()),
            ("tok", "tercom".to_owned()),
            ("norm", yes(options.normalized)),
            ("punct", yes(!options.no_punct)),
            ("asian", yes(options.asian)),
        ]
    }

    fn note_without_spaces(&self) -> Option<&'static str> {
        let note =
            no_spaces!("asian=yes,normalized=yes sets Chinese and Japanese characters apart; chrf does without spaces");
        (!(self.0.asian && self.0.normalized)).then_some(note)
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let counts = each(items, watch, || (), |(), item| self.counts(item))?;
        let mut sum = TerCounts::default();
        for counts in &counts {
            sum = TerCounts { edits: sum.edits + counts.edits, length: sum.length + counts.length };
        }
        let row = |counts: &TerCounts| vec![Score::Value(counts.rate())];
        Ok(MetricScores { items: counts.iter().map(row).collect(), corpus: row(&sum) })
    }
}

impl Ter {
    fn counts(&self, item: &MetricItem<'_>) -> TerCounts {
        let candidate = self.0.tokenized(item.candidate);
        // sacrebleu tokenizes references twice: the second pass separates `'s` before a former mark, and turns
        // `&amp;lt;` into `<`.
        let twice = |reference: &&str| self.0.tokenized(&self.0.tokenized(reference));
        let references: Vec<String> = item.references.iter().map(twice).collect();
        let mut interner = Interner::default();
        let candidate = interner.ids(split_words(&candidate));
        let references: Vec<Vec<u32>> = references.iter().map(|text| interner.ids(split_words(text))).collect();
        let edits = references.iter().map(|reference| shifts::edits(&candidate, reference)).min().unwrap_or(0);
        let length: usize = references.iter().map(Vec::len).sum();
        TerCounts { edits: edits as f64, length: length as f64 / references.len().max(1) as f64 }
    }
}

impl TerCounts {
    /// In percent; 100 for any text against empty references.
    fn rate(&self) -> f64 {
        match () {
            () if self.length > 0.0 => 100.0 * (self.edits / self.length),
            () if self.edits > 0.0 => 100.0,
            () => 0.0,
        }
    }
}
