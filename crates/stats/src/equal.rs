//! Values that are equal up to rounding.
//!
//! A mean of the same numbers summed in another order, or a strength reached by other steps, differs in its last
//! digits. Ranking would turn that noise into a verdict. Every ranking or comparison therefore first equalises values
//! that differ only by rounding. Integers are exact and are not equalised.

use std::cmp::Ordering;

/// Values closer than this share of the list's largest magnitude are equal. Rounding of sums of a million terms stays
/// below it; meaningful differences are much larger.
pub const TIE_TOLERANCE: f64 = 1e-12;

/// Whether all values are integers. From 2⁵³ on every `f64` is one and counts as exact: readers of scores reject
/// integers that would be rounded.
pub(crate) fn are_exact(values: &[f64]) -> bool {
    values.iter().all(|value| value.fract() == 0.0)
}

/// Replaces values that are equal under [`TIE_TOLERANCE`] by a common value. Integers equal only themselves.
///
/// Neighbours in sorted order are joined, so equality is symmetric and transitive. The common value of a group is its
/// middle value. Non-finite values are unchanged.
#[must_use]
pub fn equalised(values: &[f64]) -> Vec<f64> {
    if are_exact(values) {
        return equalised_within(values, 0.0);
    }
    let largest = values.iter().copied().filter(|v| v.is_finite()).fold(0.0_f64, |m, v| m.max(v.abs()));
    equalised_within(values, TIE_TOLERANCE * largest)
}

/// [`equalised`] with an explicit distance, for values with known rounding, such as an iteration that stops at 1e-10.
#[must_use]
pub fn equalised_within(values: &[f64], distance: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).filter(|&i| values[i].is_finite()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut result = values.to_vec();
    for group in order.chunk_by(|&a, &b| values[b] - values[a] <= distance) {
        let middle = values[group[(group.len() - 1) / 2]];
        for &i in group {
            result[i] = middle;
        }
    }
    result
}

/// Whether two values are closer than this share of the larger; integers only if they are equal.
#[must_use]
pub fn are_level(first: f64, second: f64, share: f64) -> bool {
    let tolerance = if are_exact(&[first, second]) { 0.0 } else { share * first.abs().max(second.abs()) };
    (first - second).abs() <= tolerance
}

/// Compares two values; equal if rounding may explain the difference: [`equalised`] for a list of two.
#[must_use]
pub fn order(first: f64, second: f64) -> Ordering {
    let largest = first.abs().max(second.abs());
    let near = largest.is_finite() && are_level(first, second, TIE_TOLERANCE);
    if near { Ordering::Equal } else { first.total_cmp(&second) }
}

/// Whether all values are equal up to rounding; true for empty lists and single values.
pub(crate) fn is_constant(values: &[f64]) -> bool {
    equalised(values).windows(2).all(|w| w[0] == w[1])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_rounding_alone_tells_apart_is_one_value() {
        assert_eq!(equalised(&[2.0, 1.999_999_999_999_999_6, 1.0, 2.0]), [2.0, 2.0, 1.0, 2.0]);
        assert_eq!(equalised(&[0.1 + 0.2, 0.3]).windows(2).filter(|w| w[0] == w[1]).count(), 1);
        assert_eq!(equalised_within(&[-1.24e-15, -1.39e-15, 1e-16], 1e-9), [-1.24e-15; 3]);
    }

    #[test]
    fn of_two_that_rounding_alone_parts_none_is_greater() {
        assert_eq!(order(0.1 + 0.2, 0.3), Ordering::Equal);
        assert_eq!(
            (order(0.3, 0.3 + 1e-9), order(-1e-15, -2e-15), order(0.0, -0.0)),
            (Ordering::Less, Ordering::Greater, Ordering::Equal)
        );
        assert_eq!(order(f64::INFINITY, 1.0), Ordering::Greater);
    }

    #[test]
    fn whole_numbers_are_exact_however_large() {
        let large = [1e15, 1e15 + 1.0, 1e15 + 2.0, 1e15 + 3.0, -0.0, 0.0];
        assert_eq!(equalised(&large), large);
        assert_eq!((order(1e15, 1e15 + 1.0), order(-0.0, 0.0)), (Ordering::Less, Ordering::Equal));
        // Beyond 2^53 neighbours are at least two apart.
        let two_to_53 = 9_007_199_254_740_992.0_f64;
        let beyond = [0.0, 2.0, 4.0, 6.0].map(|more| two_to_53 + more);
        assert_eq!(equalised(&beyond), beyond);
        assert_eq!(crate::spearman(&beyond, &[4.0, 3.0, 2.0, 1.0]), Some(-1.0));
        assert_eq!(order(1e17, 1e17 + 16.0), Ordering::Less);
    }

    #[test]
    fn small_values_of_a_list_of_small_values_stay_apart() {
        let small = [1e-15, 2e-15, 3e-300];
        assert_eq!(equalised(&small), small);
    }

    #[test]
    fn what_is_no_number_stays_and_joins_nothing() {
        let odd = equalised(&[f64::NAN, f64::INFINITY, 1.0, f64::NEG_INFINITY]);
        assert!(odd[0].is_nan() && odd[1] == f64::INFINITY && odd[2] == 1.0 && odd[3] == f64::NEG_INFINITY);
        assert!(equalised(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn equal_values_are_one_group_however_they_are_listed(values in prop::collection::vec(-3.0_f64..3.0, 1..20), turn in 0_usize..20) {
            let noisy: Vec<f64> = values.iter().flat_map(|v| [*v, v * (1.0 + 2.0 * f64::EPSILON)]).collect();
            let once = equalised(&noisy);
            prop_assert!(once.chunks(2).all(|pair| pair[0] == pair[1]));
            prop_assert_eq!(equalised(&once), once.clone());
            let turn = turn % noisy.len();
            let turned = equalised(&[&noisy[turn..], &noisy[..turn]].concat());
            prop_assert_eq!([&once[turn..], &once[..turn]].concat(), turned);
        }
    }
}
