//! Cross-validation folds of groups.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A seeded permutation of `0..count` (Fisher and Yates over `ChaCha8`).
pub fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for last in (1..count).rev() {
        // A multiple of 2⁶⁴ / (last + 1): biased by less than 2⁻³² for any count of contexts.
        let place = (u128::from(random.next_u64()) * (last as u128 + 1)) >> 64;
        order.swap(last, place as usize);
    }
    order
}

/// Assignment of groups to folds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folds {
    /// Fold of each group.
    pub part: Vec<usize>,
    /// Number of folds.
    pub parts: usize,
}

impl Folds {
    /// Distributes shuffled groups over at most `parts` folds, whose sizes differ by at most one.
    pub fn new(groups: usize, parts: usize, seed: u64) -> Self {
        let parts = parts.min(groups).max(1);
        let mut part = vec![0; groups];
        for (place, group) in shuffled(groups, seed).into_iter().enumerate() {
            part[group] = place % parts;
        }
        Self { part, parts }
    }
}
