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

    /// The percentile interval of drawn values; `None` where no more than half of them are defined.
    pub(crate) fn percentiles(&self, values: Vec<Option<f64>>) -> Option<Interval> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::correlation::spearman;
    use crate::golden;

    const MANY: Resampling = Resampling { rounds: 20_000, confidence: 0.95, seed: 0 };

    fn mean_of(values: &[f64]) -> impl Fn(&[usize]) -> Option<f64> {
        |drawn| (!drawn.is_empty()).then(|| drawn.iter().map(|i| values[*i]).sum::<f64>() / drawn.len() as f64)
    }

    #[test]
    fn quantiles_equal_numpys() {
        for (share, value) in golden::QUANTILES {
            let mut values = golden::UNITS_A.to_vec();
            values.sort_by(f64::total_cmp);
            assert!((quantile(&values, *share).expect("values") - value).abs() < 1e-12, "{share}");
        }
        assert_eq!((quantile(&[], 0.5), quantile(&[3.0], 0.9)), (None, Some(3.0)));
    }

    #[test]
    fn intervals_are_scipys_within_the_error_of_drawing() {
        let mean = MANY.interval(golden::UNITS_A.len(), mean_of(golden::UNITS_A)).expect("defined");
        let of = |drawn: &[usize], list: &[f64]| drawn.iter().map(|i| list[*i]).collect::<Vec<f64>>();
        let rho = MANY.interval(golden::UNITS_A.len(), |d| spearman(&of(d, golden::UNITS_A), &of(d, golden::UNITS_B))).expect("defined");
        for (ours, theirs) in [(mean, golden::MEAN_INTERVAL), (rho, golden::SPEARMAN_INTERVAL)] {
            assert!((ours.low - theirs.0).abs() < 0.02 && (ours.high - theirs.1).abs() < 0.02, "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn p_values_are_those_of_all_swaps_and_of_numpys_draws_within_the_error_of_drawing() {
        let (a, b) = (golden::UNITS_A, golden::UNITS_B);
        let difference = |drawn: &[usize]| Some(mean_of(a)(drawn)? - mean_of(b)(drawn)?);
        let paired = MANY.paired_bootstrap(a.len(), difference).expect("defined");
        assert!((paired.difference - golden::DIFFERENCE).abs() < 1e-12);
        assert!((paired.p - golden::BOOTSTRAP_P).abs() < 0.012, "{} {}", paired.p, golden::BOOTSTRAP_P);
        let swapped = |swapped: &[bool]| {
            let turned = a.iter().zip(b).zip(swapped).map(|((a, b), swap)| if *swap { b - a } else { a - b });
            Some(turned.sum::<f64>() / a.len() as f64)
        };
        let p = MANY.approximate_randomisation(a.len(), swapped).expect("defined");
        assert!((p - golden::RANDOMISATION_P).abs() < 0.012, "{p} {}", golden::RANDOMISATION_P);
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_seed_does_not() {
        let few = Resampling { rounds: 3, ..Resampling::default() };
        let drawn = |resampling: Resampling| resampling.distribution(5, <[usize]>::to_vec);
        assert_eq!(drawn(few), drawn(few));
        assert_ne!(drawn(few), drawn(Resampling { seed: 1, ..few }));
    }

    #[test]
    fn what_is_undefined_is_none_or_counted() {
        let resampling = Resampling::default();
        assert_eq!(resampling.interval(0, |_| Some(1.0)), None);
        assert_eq!(resampling.interval(4, |_| None), None);
        assert_eq!(resampling.paired_bootstrap(0, |_| None), None);
        assert_eq!(resampling.approximate_randomisation(4, |_| None), None);
        // Undefined where the first unit is not drawn: in a quarter of the resamples of two units.
        let some = resampling.interval(2, |drawn| drawn.contains(&0).then_some(1.0)).expect("mostly defined");
        assert!((150..350).contains(&some.undefined) && some.low == 1.0 && some.high == 1.0, "{some:?}");
    }

    #[test]
    fn no_difference_is_not_significant_and_a_clear_one_is() {
        let list: Vec<f64> = (0..40).map(f64::from).collect();
        let same = |swapped: &[bool]| Some(swapped.iter().map(|_| 0.0).sum::<f64>());
        assert_eq!(Resampling::default().approximate_randomisation(list.len(), same), Some(1.0));
        let clear = |swapped: &[bool]| Some(swapped.iter().map(|s| if *s { -1.0 } else { 1.0 }).sum::<f64>());
        assert_eq!(Resampling::default().approximate_randomisation(40, clear), Some(1.0 / 1001.0));
    }

    proptest! {
        #[test]
        fn an_interval_is_in_order_and_inside_the_values(values in prop::collection::vec(-5.0_f64..5.0, 1..20), seed in 0_u64..9) {
            let resampling = Resampling { rounds: 50, confidence: 0.9, seed };
            let interval = resampling.interval(values.len(), mean_of(&values)).expect("defined");
            let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
            prop_assert!(low - 1e-9 <= interval.low && interval.low <= interval.high && interval.high <= high + 1e-9);
        }
    }
}
