//! How far a judge can be trusted, from the labels that people have given for a part of what it judged.
//!
//! What is labelled must be a random part of what is judged, in units that are independent of one another (one pair or
//! text of a context); every guarantee here is over that draw.

mod conformal;
mod prediction_powered;
mod selective;

pub use conformal::{ConformalScores, NoConformal, conformal_labels};
pub use prediction_powered::{PredictionPowered, prediction_powered};
pub use selective::{CheckedVerdict, NoSelection, Selection, SelectionRule, SelectionRuleError, thresholds};
