//! Scores held against gold: how well metrics and methods agree with what people said.
//!
//! [`Meta`] is a stage of plans as methods are ([`probity_methods::DynMethod`]). It judges no samples and asks no model:
//! it reads tables of scores, those of other runs among them, and gold, and comes to a summary of correlations,
//! accuracy of pairs and tests between metrics.

mod align;
mod error;
mod evaluate;
mod gate;
mod gold;
mod options;
#[cfg(test)]
mod order_tests;
mod preference;
mod scores;
mod stage;
mod tables;
mod trust;

pub use error::{MetaError, NoOverlap};
pub use gate::{GateOptions, GateOutcome, Gated, GatedScores, gate};
pub use options::MetaParams;
pub use stage::Meta;
