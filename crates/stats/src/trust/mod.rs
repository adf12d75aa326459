//! Trust in a judge, from human labels of a part of what it judged.
//!
//! The labelled part must be random, in independent units (one pair or text per context); every guarantee is over that
//! draw.

mod conformal;
mod prediction_powered;
mod selective;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

pub use conformal::{ConformalScores, NoConformal, conformal_items};
pub use prediction_powered::{CorrectedShare, PredictionPowered, corrected_share, prediction_powered};
pub use selective::{CheckedVerdict, NoSelection, Selection, SelectionRule, SelectionRuleError, thresholds};

/// Draws one index for each of several non-empty lists, given their lengths; deterministic for a seed.
pub fn drawn(seed: u64, lengths: &[usize]) -> Vec<usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // The upper half of a product is uniform to within one part in 2³² over the length.
    lengths.iter().map(|length| ((u64::from(random.next_u32()) * *length as u64) >> 32) as usize).collect()
}
