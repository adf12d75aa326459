//! How far a judge can be trusted, from the labels that people have given for a part of what it judged.
//!
//! What is labelled must be a random part of what is judged, in units that are independent of one another (one pair or
//! text of a context); every guarantee here is over that draw.

mod conformal;
mod prediction_powered;
mod selective;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

pub use conformal::{ConformalScores, NoConformal, conformal_items};
pub use prediction_powered::{CorrectedShare, PredictionPowered, corrected_share, prediction_powered};
pub use selective::{CheckedVerdict, NoSelection, Selection, SelectionRule, SelectionRuleError, thresholds};

/// One of each of several lists, by their lengths, none of them 0: the same for one seed.
pub fn drawn(seed: u64, lengths: &[usize]) -> Vec<usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // The upper half of a product is uniform up to one part in 2³² over the length.
    lengths.iter().map(|length| ((u64::from(random.next_u32()) * *length as u64) >> 32) as usize).collect()
}
