//! The metric trait, and the object-safe form used by the registry.

use std::marker::PhantomData;
use std::sync::Arc;

use probity_lm::{LanguageModel, TextEncoder};
use probity_options::{GivenOptions, OptionSpec, Options, read, specs};
use probity_stats::ordered_mean;
use rayon::prelude::*;
use serde_json::Value;

use crate::notes::Noted;
use crate::{MetricError, Stop};

/// A candidate with its references and source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricItem<'a> {
    /// The text to judge; may be empty.
    pub candidate: &'a str,
    /// Reference texts: at least one if the metric [needs](Needs) them.
    pub references: Vec<&'a str>,
    /// The source of the candidate: the sentence to correct or simplify, or the document to summarise.
    pub source: Option<&'a str>,
}

/// A number, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Score {
    /// Finite.
    Value(f64),
    /// Finite, with a note on a limitation of the number, in a few words without a final period.
    Noted(f64, &'static str),
    /// Why there is no number, in a few words without a final period.
    Undefined(&'static str),
}

impl Score {
    /// The number, if defined.
    pub fn value(self) -> Option<f64> {
        match self {
            Self::Value(value) | Self::Noted(value, _) => Some(value),
            Self::Undefined(_) => None,
        }
    }

    /// The note or the reason.
    pub fn why(self) -> Option<&'static str> {
        match self {
            Self::Value(_) => None,
            Self::Noted(_, why) | Self::Undefined(why) => Some(why),
        }
    }

    /// Adds a note, unless there is one already.
    pub(crate) fn noted(self, note: Option<&'static str>) -> Self {
        match (self, note) {
            (Self::Value(value), Some(note)) => Self::Noted(value, note),
            (score, _) => score,
        }
    }

    /// The mean of the defined scores, independent of their order; undefined if there are none.
    pub fn mean(scores: impl IntoIterator<Item = Self>) -> Self {
        let mean = ordered_mean(scores.into_iter().filter_map(Self::value));
        mean.map_or(Self::Undefined("there is nothing to take the mean of"), Self::Value)
    }
}

/// The scores of a metric. A row has the metric's own score, then its [parts](Definition::PARTS).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetricScores {
    /// One row per item, in order.
    pub items: Vec<Vec<Score>>,
    /// The row of all items together: from their summed counts if the metric defines them, otherwise their mean.
    pub corpus: Vec<Score>,
}

impl MetricScores {
    /// Rows of items and their means. A note on every item is also added to the mean.
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

/// An input of a metric besides the candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// At least one reference per item.
    References,
    /// The source of the candidate.
    Source,
    /// The encoder of [`MetricModels`].
    Encoder,
    /// The language model of [`MetricModels`].
    LanguageModel,
}

impl Need {
    fn no_model(self, metric: &str) -> MetricError {
        MetricError::NoModel { metric: metric.to_owned(), what: self.what(), hint: self.hint() }
    }
}

/// The inputs of a metric besides candidates.
pub type Needs = &'static [Need];

/// The available models.
#[derive(Default, Clone)]
pub struct MetricModels {
    /// Encoder for metrics that compare hidden states.
    pub encoder: Option<Arc<dyn TextEncoder>>,
    /// Language model for likelihoods of texts.
    pub language_model: Option<Arc<dyn LanguageModel>>,
}

impl MetricModels {
    /// The encoder, or an error for this metric.
    pub(crate) fn encoder(&self, metric: &str) -> Result<Arc<dyn TextEncoder>, MetricError> {
        self.encoder.clone().ok_or_else(|| Need::Encoder.no_model(metric))
    }

    /// The language model, or an error for this metric.
    pub(crate) fn language_model(&self, metric: &str) -> Result<Arc<dyn LanguageModel>, MetricError> {
        self.language_model.clone().ok_or_else(|| Need::LanguageModel.no_model(metric))
    }
}

/// Settings that affect scores, with their names and in their order in the signature.
pub type MetricSettings = Vec<(&'static str, String)>;

/// Progress callback with the number of newly finished items, called from any thread; an error stops the metric.
pub type Watch<'a> = &'a (dyn Fn(usize) -> Result<(), Stop> + Sync);

/// A metric with its options.
pub trait Metric: Sync {
    /// All settings that affect the score of all items together.
    fn settings(&self) -> MetricSettings;

    /// All settings that affect the score of one item, if they differ.
    fn item_settings(&self) -> MetricSettings {
        self.settings()
    }

    /// Note about texts in scripts without spaces between words, if the metric does not split them.
    fn note_without_spaces(&self) -> Option<&'static str> {
        None
    }

    /// Scores items that have the inputs of the metric. The result depends only on the items, not on threads, and the
    /// score of an item does not depend on the others (unless the metric documents that it weights words by all
    /// references).
    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError>;
}

/// A metric of the registry: one file with options, documentation and computation, and one line in the registry.
pub trait Definition {
    /// Options: `tok` of `bleu:tok=intl` is the field `tok`. Serialised, they are the options in force.
    type Options: Options;
    /// Name, such as `rouge-l`.
    const NAME: &'static str;
    /// One-line description, without a final period.
    const ABOUT: &'static str;
    /// What is computed, from which paper, equal to which tool, on which scale, and how items are combined.
    const LONG_ABOUT: &'static str;
    /// Further numbers of a row after the metric's own score, such as `precision`.
    const PARTS: &'static [&'static str] = &[];
    /// Inputs besides candidates.
    const NEEDS: Needs;
    /// Whether the score of all items together is their mean instead of being computed from summed counts.
    const MEAN: bool = false;
    /// Whether lower scores are better.
    const LOWER_IS_BETTER: bool = false;

    /// Builds the metric with these options.
    fn build(options: Self::Options, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError>;
}

/// Object-safe form of [`Definition`].
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
    /// The option specifications, for help and parsing.
    fn options(&self) -> Vec<OptionSpec>;
    /// The options including defaults, for the manifest; those in `given` were [checked](OptionSpec::check).
    fn options_in_force(&self, given: &GivenOptions) -> Value;
    /// [`Definition::build`] with the same options.
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

/// Calls `score` for each item in parallel and returns the results in order. `start` creates scratch memory that is
/// reused between items.
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
