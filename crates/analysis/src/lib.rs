//! Evaluation of scores: everything computed from the scores of a run and the labels of its samples.
//!
//! - [`gold`]: agreement with gold scores and preferences.
//! - [`measures`]: the same agreement from the rows of a run, and differences between two runs.
//! - [`conclusion`]: the main result of a run, and how far to trust it.
//! - [`trust`]: guarantees that labels give for scores.
//! - [`MetaInputs`]: any table of scores compared with human judgements ([`MetaParams`] are its options).
//! - [`gate()`]: a run compared with a baseline.
//!
//! The limits of words such as "weak" or "few" are constants in [`thresholds`].

pub mod conclusion;
mod error;
pub mod figures;
mod gate;
pub mod gold;
mod gold_columns;
mod headline;
pub mod measures;
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
