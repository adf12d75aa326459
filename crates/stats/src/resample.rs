//! Resampling: percentile intervals, the paired bootstrap, and approximate randomisation. Seeded, and the same on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Serialize;

/// How resamples are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Resampling {
    /// How many resamples.
    pub rounds: usize,
    /// The share of resamples inside an interval, in (0, 1).
    pub confidence: f64,
    /// The seed of the generator (`ChaCha8`). Every call begins with it, so statistics of the same units see the same resamples.
    pub seed: u64,
}

impl Default for Resampling {
    fn default() -> Self {
        Self { rounds: 1000, confidence: 0.95, seed: 0 }
    }
}

/// A percentile interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Resamples in which the statistic was not defined; they are left out.
    pub undefined: usize,
}

/// What the paired bootstrap says of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairedBootstrap {
    /// The difference over the units as they are.
    pub difference: f64,
    /// Its percentile interval.
    pub interval: Interval,
    /// Two-sided: how often a resample lies at least as far from the resamples' mean as the difference lies from 0, counting the difference itself
    /// (Koehn 2004, as sacrebleu computes it).
    pub p: f64,
}

impl Resampling {
    /// The statistic over each resample of `units` units with replacement, in the order of drawing. The statistic is given the units' numbers.
    /// An index is ⌊u · units / 2³²⌋ of a 32-bit u, so up to 2³² units.
    pub fn distribution<T>(&self, units: usize, mut statistic: impl FnMut(&[usize]) -> T) -> Vec<T> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut drawn = vec![0; units];
        let mut draw = || {
            drawn.fill_with(|| ((u64::from(rng.next_u32()) * units as u64) >> 32) as usize);
            statistic(&drawn)
        };
        (0..self.rounds).map(|_| draw()).collect()
    }

    /// The percentile interval of a statistic. `None` without units, or where the statistic is defined in no more than half of the resamples.
    pub fn interval(&self, units: usize, statistic: impl FnMut(&[usize]) -> Option<f64>) -> Option<Interval> {
        (units > 0).then(|| self.distribution(units, statistic)).and_then(|values| self.percentiles(values))
    }

    /// The paired bootstrap (Efron and Tibshirani 1993; Koehn 2004) of a difference between two systems that judged the same units.
    /// `None` where [`Resampling::interval`] is, or where the difference over the units as they are is not defined.
    pub fn paired_bootstrap(&self, units: usize, mut difference: impl FnMut(&[usize]) -> Option<f64>) -> Option<PairedBootstrap> {
        let observed = difference(&(0..units).collect::<Vec<_>>())?;
        let values = if units > 0 { self.distribution(units, difference) } else { Vec::new() };
        let defined: Vec<f64> = values.iter().flatten().copied().collect();
        let mean = defined.iter().sum::<f64>() / defined.len().max(1) as f64;
        let p = share_as_far(observed, defined.iter().map(|d| d - mean));
        Some(PairedBootstrap { difference: observed, interval: self.percentiles(values)?, p })
    }

    /// Approximate randomisation (Riezler and Maxwell 2005): the two-sided p-value of a difference under swapping the two systems' results in each
    /// unit with probability ½. `difference` is told for each unit whether it is swapped. `None` where it is not defined unswapped.
    pub fn approximate_randomisation(&self, units: usize, mut difference: impl FnMut(&[bool]) -> Option<f64>) -> Option<f64> {
        let mut swapped = vec![false; units];
        let observed = difference(&swapped)?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let values = (0..self.rounds).filter_map(|_| {
            swapped.fill_with(|| rng.next_u32() >> 31 == 1);
            difference(&swapped)
        });
        Some(share_as_far(observed, values))
    }

    fn percentiles(&self, values: Vec<Option<f64>>) -> Option<Interval> {
        let rounds = values.len();
        let mut defined: Vec<f64> = values.into_iter().flatten().filter(|v| v.is_finite()).collect();
        if 2 * defined.len() <= rounds {
            return None;
        }
        defined.sort_by(f64::total_cmp);
        let tail = (1.0 - self.confidence) / 2.0;
        Some(Interval { low: quantile(&defined, tail)?, high: quantile(&defined, 1.0 - tail)?, undefined: rounds - defined.len() })
    }
}

/// (1 + how many are at least as far from 0 as `observed`) / (1 + how many), with room for rounding.
fn share_as_far(observed: f64, values: impl Iterator<Item = f64>) -> f64 {
    let (far, all) = values.fold((1usize, 1usize), |(far, all), v| (far + usize::from(v.abs() >= observed.abs() - 1e-12), all + 1));
    far as f64 / all as f64
}

/// The quantile at `share` (0 to 1) of ascending values, linear between neighbours (as numpy's default). `None` of none.
pub fn quantile(ascending: &[f64], share: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    Some(ascending[below] + (ascending[above] - ascending[below]) * (place - below as f64))
}
