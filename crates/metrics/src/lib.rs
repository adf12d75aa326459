//! Reference-based metrics of generated text.
//!
//! A [`Metric`] compares candidates with references, or with their source text, and returns one [`Score`] per item and
//! one for all items. The registry [`metrics`] lists all metrics; [`choose()`] parses them with their options:
//! `bleu:tok=intl,rouge-l:stem=yes`. A new metric is one file and one line.
//!
//! Each metric equals a published tool, named in its documentation, including the tool's scale and its results for
//! empty texts. If the tool would compute 0/0, the score is undefined.
//!
//! ```
//! use probity_metrics::{MetricItem, MetricModels, choose};
//!
//! let items = [MetricItem { candidate: "the cat sat", references: vec!["the cat sat down"], source: None }];
//! for choice in choose("rouge-l:stem=yes,ter")? {
//!     choice.check(&items)?;
//!     let metric = choice.build(&MetricModels::default())?;
//!     let scores = metric.score(&items, &|_| Ok(()))?;
//!     println!("{} {:?} {}", choice.label(), scores.corpus, choice.signature(metric.settings(), &items));
//! }
//! # Ok::<(), probity_metrics::MetricError>(())
//! ```

mod bart_score;
mod bert_score;
mod bets;
mod blanc;
mod bleu;
mod choose;
mod chrf;
mod direction;
mod encoded;
mod error;
#[cfg(test)]
mod fixture;
mod gleu_google;
mod gleu_napoles;
mod lcs;
mod levenshtein;
mod meteor;
mod metric;
mod mover_score;
mod ngrams;
mod notes;
mod registry;
mod rouge;
mod sari;
mod stem;
mod tally;
mod ter;
mod text;
mod token_f1;
mod transport;

pub use choose::{ChosenMetric, choose};
pub use direction::{Direction, is_count, whole};
pub use error::{MetricError, Stop};
pub use metric::{
    Definition, DynDefinition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score,
    Watch,
};
pub use registry::{metric, metrics};
