//! GLEU of Google's translation system (Wu et al. 2016), equal to nltk. Unrelated to the GLEU of grammatical error
//! correction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::bleu::Tokens;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch, each,
};
use crate::ngrams::{Interner, Ngrams, total};
use crate::text::{split_words, tokenized, word_settings};

/// Options of Google's GLEU.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct GleuGoogleOptions {
    /// Tokenizer
    #[default(Tokens::V13a)]
    tok: Tokens,
    /// Ignore case
    lowercase: bool,
    /// Shortest n-grams
    #[schemars(range(min = 1, max = 16))]
    #[default(1)]
    min: u8,
    /// Longest n-grams
    #[schemars(range(min = 1, max = 16))]
    #[default(4)]
    max: u8,
}

/// GLEU; see [`Definition::LONG_ABOUT`].
pub(crate) struct GleuGoogle(GleuGoogleOptions);

impl Definition for GleuGoogle {
    type Options = GleuGoogleOptions;
    const NAME: &'static str = "gleu-google";
    const ABOUT: &'static str = "Lesser of n-gram precision and recall, 0 to 1";
    const LONG_ABOUT: &'static str = "\
Lesser of n-gram precision and recall, 0 to 1.

Wu et al. 2016, §5 of the paper on Google's translation system. Equal to nltk's gleu_score: matches / max(n-grams of \
the candidate, n-grams of the reference), for n-grams of one to four words by default. Each n-gram matches at most as \
often as the reference has it. With several references the highest score counts. The corpus score divides the sums of \
both numbers. If neither text has an n-gram, there is no score (nltk: 0). For the GLEU of grammatical error \
correction, see gleu-napoles.";
    const NEEDS: Needs = &[Need::References];

    fn build(options: GleuGoogleOptions, _: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        if options.min > options.max {
            return Err(MetricError::Option {
                metric: Self::NAME.to_owned(),
                why: format!("`min` is {} and `max` is {}", options.min, options.max),
                hint: "min must not be above max".to_owned(),
            });
        }
        Ok(Box::new(Self(options)))
    }
}

impl Metric for GleuGoogle {
    fn settings(&self) -> MetricSettings {
        let mut settings = word_settings(self.0.tok, self.0.lowercase);
        settings.push(("order", format!("{}-{}", self.0.min, self.0.max)));
        settings
    }

    fn note_without_spaces(&self) -> Option<&'static str> {
        self.0.tok.note_without_spaces()
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let counts = each(items, watch, Ngrams::new, |ngrams, item| self.counts(item, ngrams))?;
        let sum = counts.iter().fold((0, 0), |sum, item| (sum.0 + item.0, sum.1 + item.1));
        Ok(MetricScores {
            items: counts.into_iter().map(|counts| vec![value(counts)]).collect(),
            corpus: vec![value(sum)],
        })
    }
}

impl GleuGoogle {
    /// Matches and the larger number of n-grams, for the best reference; zeros without n-grams.
    fn counts(&self, item: &MetricItem<'_>, ngrams: &mut Ngrams) -> (u64, u64) {
        let cut = |text| tokenized(self.0.tok, self.0.lowercase, text);
        let (candidate, references) =
            (cut(item.candidate), item.references.iter().map(|text| cut(text)).collect::<Vec<_>>());
        let mut interner = Interner::default();
        let candidate = interner.ids(split_words(&candidate));
        let orders = usize::from(self.0.min)..=usize::from(self.0.max);
        let totals = |length| orders.clone().map(|order| total(length, order)).sum::<usize>() as u64;
        let mut best = (0, 0);
        for reference in &references {
            let reference = interner.ids(split_words(reference));
            ngrams.read([reference.as_slice()], usize::from(self.0.max));
            let mut matches = vec![0; usize::from(self.0.max)];
            ngrams.matches(&candidate, &mut matches);
            let matches: u32 = matches[usize::from(self.0.min) - 1..].iter().sum();
            // nltk divides by the larger number of n-grams, which gives the smaller of precision and recall: both have
            // the same numerator.
            let counts = (u64::from(matches), totals(candidate.len()).max(totals(reference.len())));
            // Compares products of integer counts, without rounding.
            if best.1 == 0 || u128::from(counts.0) * u128::from(best.1) > u128::from(best.0) * u128::from(counts.1) {
                best = counts;
            }
        }
        best
    }
}

fn value((matches, total): (u64, u64)) -> Score {
    if total == 0 {
        return Score::Undefined("neither the candidate nor a reference has an n-gram");
    }
    Score::Value(matches as f64 / total as f64)
}
