//! Paired differences between two systems on the same units: intervals, t tests, randomisation and the bootstrap.
//! Seeded and reproducible on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Serialize;

use crate::interval::{Interval, Jackknifed, NoInterval, Range};

/// Maximum number of swaps that a randomisation test enumerates.
pub const ALL_SWAPS: usize = 4096;

/// Default confidence level of intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Settings of intervals and tests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Resampling {
    /// Number of bootstrap draws, and of random swaps in a randomisation test that cannot enumerate all.
    pub rounds: usize,
    /// Confidence level of intervals, in (0, 1).
    pub confidence: f64,
    /// Seed of the generator (`ChaCha8`). Every call restarts it, so tests of the same units see the same swaps.
    pub seed: u64,
}

impl Default for Resampling {
    fn default() -> Self {
        Self { rounds: 1000, confidence: CONFIDENCE, seed: 0 }
    }
}

/// A difference between two systems that judged the same units.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairedDifference {
    /// Over all units.
    pub difference: f64,
    /// By the jackknife over units; absent if no method reaches its coverage.
    pub interval: Option<Interval>,
    /// Why it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_interval: Option<NoInterval>,
    /// Two-sided p of the difference being 0: Student's t with the jackknife error. Absent without an interval.
    pub p: Option<f64>,
}

impl PairedDifference {
    /// A difference of figures without an interval.
    pub(crate) fn without_interval(difference: f64, why: NoInterval) -> Self {
        Self { difference, interval: None, no_interval: Some(why), p: None }
    }
}

impl Resampling {
    /// The difference between two systems whose figures have this range, over all units and without each of them.
    /// `None` if undefined over all units.
    pub fn paired_difference(
        &self,
        units: usize,
        range: Range,
        mut difference: impl FnMut(&[usize]) -> Option<f64>,
    ) -> Option<PairedDifference> {
        let observed = difference(&(0..units).collect::<Vec<_>>())?;
        let range = range.for_difference();
        let found = Jackknifed::new(units, range, difference);
        let interval = found.map(|found| found.interval(self.confidence));
        let p = found.ok().map(|found| found.p(0.0));
        Some(PairedDifference { difference: observed, interval: interval.ok(), no_interval: interval.err(), p })
    }

    /// The bootstrap (Efron 1979; for systems Koehn 2004): `rounds` draws of as many units as given, with replacement.
    /// A draw from no units is empty.
    pub fn draws(&self, units: usize) -> impl Iterator<Item = Vec<usize>> {
        // One generator for all draws: the same seed draws the same units, whatever the statistic.
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        (0..self.rounds).map(move |_| {
            // The upper half of a product is uniform to within one part in 2³² over the units.
            (0..units).map(|_| ((u64::from(rng.next_u32()) * units as u64) >> 32) as usize).collect()
        })
    }

    /// Randomisation test (Fisher 1935; Noreen 1989): the two-sided p-value of a difference if the two systems' results
    /// are swapped in each unit with probability ½. `difference` receives for each unit whether it is swapped. `None`
    /// if it is undefined without swaps.
    ///
    /// Exact over all swaps if there are at most [`ALL_SWAPS`] or `rounds`; otherwise `rounds` swaps are drawn and the
    /// unswapped units count as one of them (Riezler and Maxwell 2005).
    pub fn randomisation(&self, units: usize, mut difference: impl FnMut(&[bool]) -> Option<f64>) -> Option<f64> {
        let mut swapped = vec![false; units];
        // The tolerance counts swaps whose difference is equal up to the rounding of sums.
        let observed = difference(&swapped)?.abs() - 1e-12;
        let is_far = |value: &f64| value.abs() >= observed;
        let all = u32::try_from(units)
            .ok()
            .and_then(|units| 1usize.checked_shl(units))
            .filter(|all| *all <= self.rounds.max(ALL_SWAPS));
        let (mut far, mut count) = (0usize, 0usize);
        let mut add = |value: Option<f64>| {
            if let Some(value) = value {
                far += usize::from(is_far(&value));
                count += 1;
            }
        };
        if let Some(all) = all {
            for number in 0..all {
                swapped.iter_mut().enumerate().for_each(|(unit, swap)| *swap = number >> unit & 1 == 1);
                add(difference(&swapped));
            }
        } else {
            add(difference(&swapped));
            // A new generator each time, so that tests of the same units see the same swaps.
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
            for _ in 0..self.rounds {
                swapped.fill_with(|| rng.next_u32() >> 31 == 1);
                add(difference(&swapped));
            }
        }
        Some(far as f64 / count as f64)
    }
}

/// The quantile at `share` (0 to 1) of ascending values, with linear interpolation (numpy's default). `None` if empty.
pub fn quantile(ascending: &[f64], share: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    Some(ascending[below] + (ascending[above] - ascending[below]) * (place - below as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::GOLDEN;

    #[test]
    fn quantiles_equal_numpys() {
        for (share, value) in &GOLDEN.quantiles {
            let mut values = GOLDEN.units_a.clone();
            values.sort_by(f64::total_cmp);
            assert!((quantile(&values, *share).expect("values") - value).abs() < 1e-12, "{share}");
        }
        assert_eq!((quantile(&[], 0.5), quantile(&[3.0], 0.9)), (None, Some(3.0)));
    }

    #[test]
    fn differences_and_their_p_values_are_scipys() {
        let (a, b) = (&GOLDEN.units_a, &GOLDEN.units_b);
        let difference =
            |kept: &[usize]| Some(kept.iter().map(|unit| a[*unit] - b[*unit]).sum::<f64>() / kept.len() as f64);
        let found = Resampling::default().paired_difference(a.len(), Range::Unbounded, difference).expect("defined");
        assert!((found.difference - GOLDEN.difference).abs() < 1e-12);
        assert!((found.p.expect("defined") - GOLDEN.paired_p).abs() < 1e-10, "{found:?} {}", GOLDEN.paired_p);
        let swapped = |swapped: &[bool]| {
            let turned = a.iter().zip(b).zip(swapped).map(|((a, b), swap)| if *swap { b - a } else { a - b });
            Some(turned.sum::<f64>() / a.len() as f64)
        };
        let every = Resampling { rounds: 1 << 14, ..Resampling::default() };
        let exact = every.randomisation(a.len(), swapped).expect("defined");
        assert!((exact - GOLDEN.randomisation_p).abs() < 1e-12, "{exact} {}", GOLDEN.randomisation_p);
        let drawn =
            Resampling { rounds: 10_000, ..Resampling::default() }.randomisation(a.len(), swapped).expect("defined");
        assert!((drawn - exact).abs() < 0.012, "{drawn} {exact}");
    }

    #[test]
    fn two_samples_are_no_evidence() {
        let differences = [0.2, 0.21];
        let mean = |kept: &[usize]| Some(kept.iter().map(|unit| differences[*unit]).sum::<f64>() / kept.len() as f64);
        let swapped = |swapped: &[bool]| {
            Some(differences.iter().zip(swapped).map(|(d, swap)| if *swap { -d } else { *d }).sum::<f64>())
        };
        assert_eq!(Resampling::default().randomisation(2, swapped), Some(0.5));
        let same = Resampling::default().paired_difference(2, Range::SHARE, |_| Some(0.2)).expect("defined");
        assert_eq!((same.interval, same.p, same.no_interval), (None, None, Some(NoInterval::AllAlike)));
        assert!(
            Resampling::default()
                .paired_difference(2, Range::SHARE, mean)
                .and_then(|found| found.p)
                .is_some_and(|p| p > 0.01)
        );
    }

    #[test]
    fn what_is_undefined_is_none() {
        let resampling = Resampling::default();
        assert_eq!(resampling.paired_difference(0, Range::SHARE, |_| None), None);
        assert_eq!(resampling.randomisation(4, |_| None), None);
    }

    #[test]
    fn no_difference_is_not_significant_and_a_clear_one_is() {
        let same = |swapped: &[bool]| Some(swapped.iter().map(|_| 0.0).sum::<f64>());
        assert_eq!(Resampling::default().randomisation(40, same), Some(1.0));
        let clear = |swapped: &[bool]| Some(swapped.iter().map(|s| if *s { -1.0 } else { 1.0 }).sum::<f64>());
        assert_eq!(Resampling::default().randomisation(40, clear), Some(1.0 / 1001.0));
        assert_eq!(Resampling::default().randomisation(10, clear), Some(2.0 / 1024.0));
    }
}
