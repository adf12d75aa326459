//! What scores are worth: everything that is computed from the scores of a run and the labels of its samples.
//!
//! - [`gold`]: agreement with gold scores and preferences.
//! - [`conclusion`]: the first sentence of a run, and how far to trust it.
//! - [`trust`]: what labels promise of scores.
//! - [`MetaInputs`]: any table of scores compared with people's ([`MetaParams`] are its options).
//! - [`gate()`]: a run compared with a baseline.
//!
//! Thresholds of words such as "weak" or "few" are constants of [`thresholds`].

pub mod conclusion;
mod error;
pub mod figures;
mod gate;
pub mod gold;
mod gold_columns;
mod headline;
mod meta;
#[cfg(test)]
mod order_tests;
pub mod plot;
mod scores;
mod table;
#[cfg(test)]
mod testing;
pub mod thresholds;
pub mod trust;

pub use error::{AnalysisError, NoOverlap, UnknownGold};
pub use gate::{GateOptions, GateOutcome, Gated, GatedScores, gate};
pub use gold_columns::GoldColumns;
pub use headline::Headline;
pub use meta::{MetaFindings, MetaInputs, MetaParams};
pub use scores::{AttributeScores, RunScores};
pub use table::{Cell, Table};
