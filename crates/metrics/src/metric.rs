//! What a metric is, and how the registry holds metrics of different options side by side.

use std::marker::PhantomData;
use std::sync::Arc;

use probity_lm::{LanguageModel, TextEncoder};
use probity_options::{GivenOptions, OptionSpec, Options, read, specs};
use probity_stats::ordered_mean;
use rayon::prelude::*;
use serde_json::Value;

use crate::notes::Noted;
use crate::{MetricError, Stop};

/// A candidate and what it is held against.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricItem<'a> {
    /// The text to judge; may be empty.
    pub candidate: &'a str,
    /// Texts known to be good: at least one where the metric [needs](Needs) them.
    pub references: Vec<&'a str>,
    /// The text that the candidate was made from: the sentence to be corrected or simplified, the document to be
    /// summarised.
    pub source: Option<&'a str>,
}

/// One number, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Score {
    /// Finite.
    Value(f64),
    /// Finite, with a note on why the number says less than it seems to, in a few words without a final period.
    Noted(f64, &'static str),
    /// Why there is no number, in a few words without a final period.
    Undefined(&'static str),
}

impl Score {
    /// The number, where there is one.
    pub fn value(self) -> Option<f64> {
        match self {
            Self::Value(value) | Self::Noted(value, _) => Some(value),
            Self::Undefined(_) => None,
        }
    }

    /// Why there is no number, or why it says less than it seems to.
    pub fn why(self) -> Option<&'static str> {
        match self {
            Self::Value(_) => None,
            Self::Noted(_, why) | Self::Undefined(why) => Some(why),
        }
    }

    /// The number with this note; the first note stays.
    pub(crate) fn noted(self, note: Option<&'static str>) -> Self {
        match (self, note) {
            (Self::Value(value), Some(note)) => Self::Noted(value, note),
            (score, _) => score,
        }
    }

    /// The mean of what is defined, the same in any order of the scores; undefined where nothing is.
    pub fn mean(scores: impl IntoIterator<Item = Self>) -> Self {
        let mean = ordered_mean(scores.into_iter().filter_map(Self::value));
        mean.map_or(Self::Undefined("there is nothing to take the mean of"), Self::Value)
    }
}

/// What a metric says of its items. A row has the metric's own score, then its [parts](Definition::PARTS).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetricScores {
    /// A row for each item, in their order.
    pub items: Vec<Vec<Score>>,
    /// The row of all items together: from their summed counts where the metric has such, else their mean.
    pub corpus: Vec<Score>,
}

impl MetricScores {
    /// Rows of items and their means. A note beside each item stands beside their mean too.
    pub fn with_means(items: Vec<Vec<Score>>) -> Self {
        let width = items.first().map_or(0, Vec::len);
        let mean = |part: usize| {
            let column = || items.iter().map(|row| row[part]);
            let note = column().next().and_then(Score::why);
            Score::mean(column()).noted(note.filter(|_| column().all(|score| score.why() == note)))
        };
        let corpus = (0..width).map(mean).collect();
        Self { items, corpus }
    }
}

/// Something besides the candidate that a metric works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// At least one reference for each item.
    References,
    /// The text that the candidate was made from.
    Source,
    /// A model that reads texts, the encoder of [`MetricModels`].
    Encoder,
    /// A model that tells how probable texts are, the language model of [`MetricModels`].
    LanguageModel,
}

impl Need {
    fn no_model(self, metric: &str) -> MetricError {
        MetricError::NoModel { metric: metric.to_owned(), what: self.what(), hint: self.hint() }
    }
}

/// What a metric works with besides candidates.
pub type Needs = &'static [Need];

/// Models that metrics are made with, as far as they are there.
#[derive(Default, Clone)]
pub struct MetricModels {
    /// What reads texts for metrics that compare hidden states.
    pub encoder: Option<Arc<dyn TextEncoder>>,
    /// What tells how probable texts are.
    pub language_model: Option<Arc<dyn LanguageModel>>,
}

impl MetricModels {
    /// The encoder, for the metric of that name.
    pub(crate) fn encoder(&self, metric: &str) -> Result<Arc<dyn TextEncoder>, MetricError> {
        self.encoder.clone().ok_or_else(|| Need::Encoder.no_model(metric))
    }

    /// The language model, for the metric of that name.
    pub(crate) fn language_model(&self, metric: &str) -> Result<Arc<dyn LanguageModel>, MetricError> {
        self.language_model.clone().ok_or_else(|| Need::LanguageModel.no_model(metric))
    }
}

/// Settings that change scores, by the names and in the order in which the signature has them.
pub type MetricSettings = Vec<(&'static str, String)>;

/// Told how many more items are done, from any thread; an error stops the metric.
pub type Watch<'a> = &'a (dyn Fn(usize) -> Result<(), Stop> + Sync);

/// A metric with its options, ready to score.
pub trait Metric: Sync {
    /// All settings that change the score of all items together.
    fn settings(&self) -> MetricSettings;

    /// All settings that change the score of an item, where they are others.
    fn item_settings(&self) -> MetricSettings {
        self.settings()
    }

    /// A note for texts in scripts without spaces between words; absent where the metric cuts such texts into words too.
    fn note_without_spaces(&self) -> Option<&'static str> {
        None
    }

    /// Scores items, which have what the metric [needs](Definition::NEEDS). The result depends on the items alone: not
    /// on threads, and what is said of an item not on the others (save where the metric weighs words by all references,
    /// and says so).
    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError>;
}

/// What the registry knows of a metric: one file with options, documentation and computation, and one line in the
/// registry.
pub trait Definition {
    /// Options: `tok` of `bleu:tok=intl` is the field `tok`. Serialised, they are the options in force.
    type Options: Options;
    /// The name, such as `rouge-l`.
    const NAME: &'static str;
    /// One line, without a final period.
    const ABOUT: &'static str;
    /// What is computed, from which paper, equal to which tool, on which scale, and what all items together mean.
    const LONG_ABOUT: &'static str;
    /// What a row has after the metric's own score, such as `precision`.
    const PARTS: &'static [&'static str] = &[];
    /// What it works with besides candidates.
    const NEEDS: Needs;
    /// Whether the score of all items together is the mean of theirs; else it is made of summed counts.
    const MEAN: bool = false;
    /// Whether a lower score is a better one.
    const LOWER_IS_BETTER: bool = false;

    /// The metric with these options.
    fn build(options: Self::Options, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError>;
}

/// A [`Definition`] with its types erased.
pub trait DynDefinition: Sync {
    /// [`Definition::NAME`].
    fn name(&self) -> &'static str;
    /// [`Definition::ABOUT`].
    fn about(&self) -> &'static str;
    /// [`Definition::LONG_ABOUT`].
    fn long_about(&self) -> &'static str;
    /// [`Definition::PARTS`].
    fn parts(&self) -> &'static [&'static str];
    /// [`Definition::NEEDS`].
    fn needs(&self) -> Needs;
    /// [`Definition::MEAN`].
    fn is_mean(&self) -> bool;
    /// [`Definition::LOWER_IS_BETTER`].
    fn lower_is_better(&self) -> bool;
    /// The options, for help and for reading them.
    fn options(&self) -> Vec<OptionSpec>;
    /// The options with defaults filled in, for the manifest; those given were [checked](OptionSpec::check).
    fn options_in_force(&self, given: &GivenOptions) -> Value;
    /// [`Definition::build`], of the same.
    fn build(&self, given: &GivenOptions, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError>;
}

struct ErasedMetric<D>(PhantomData<fn() -> D>);

/// A registry entry.
pub(crate) const fn entry<D: Definition + 'static>() -> &'static dyn DynDefinition {
    const { &ErasedMetric::<D>(PhantomData) }
}

impl<D: Definition + 'static> DynDefinition for ErasedMetric<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn about(&self) -> &'static str {
        D::ABOUT
    }

    fn long_about(&self) -> &'static str {
        D::LONG_ABOUT
    }

    fn parts(&self) -> &'static [&'static str] {
        D::PARTS
    }

    fn needs(&self) -> Needs {
        D::NEEDS
    }

    fn is_mean(&self) -> bool {
        D::MEAN
    }

    fn lower_is_better(&self) -> bool {
        D::LOWER_IS_BETTER
    }

    fn options(&self) -> Vec<OptionSpec> {
        specs::<D::Options>()
    }

    fn options_in_force(&self, given: &GivenOptions) -> Value {
        serde_json::to_value(Self::read(given)).expect("options are plain values under string keys")
    }

    fn build(&self, given: &GivenOptions, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        let metric = D::build(Self::read(given), models)?;
        Ok(Box::new(Noted { metric, has_references: D::NEEDS.contains(&Need::References) }))
    }
}

impl<D: Definition> ErasedMetric<D> {
    fn read(given: &GivenOptions) -> D::Options {
        read(given).expect("each option was checked when it was chosen")
    }
}

/// What `score` says of each item, in their order, computed in parallel. `start` makes memory that is used from item to
/// item.
pub(crate) fn each<'a, S, T: Send>(
    items: &[MetricItem<'a>],
    watch: Watch<'_>,
    start: impl Fn() -> S + Sync + Send,
    score: impl Fn(&mut S, &MetricItem<'a>) -> T + Sync + Send,
) -> Result<Vec<T>, MetricError> {
    const AT_ONCE: usize = 64;
    let chunk = |scratch: &mut S, items: &[MetricItem<'a>]| {
        let scores: Vec<T> = items.iter().map(|item| score(scratch, item)).collect();
        watch(items.len()).map_err(MetricError::Stopped)?;
        Ok(scores)
    };
    let chunks: Result<Vec<_>, MetricError> = items.par_chunks(AT_ONCE).map_init(start, chunk).collect();
    Ok(chunks?.into_iter().flatten().collect())
}
