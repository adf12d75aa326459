//! Sums that do not depend on the order of their values.

/// Sums values in order of magnitude, the smallest first, so that the order of data does not affect the last digit.
/// Lists of opposite values have opposite sums.
pub fn ordered_sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()).then(a.total_cmp(b)));
    values.iter().sum()
}

/// The mean of values by [`ordered_sum`]; `None` if empty.
pub fn ordered_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut count = 0_usize;
    let sum = ordered_sum(values.into_iter().inspect(|_| count += 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_are_the_same_in_any_order(
            (values, turned) in prop::collection::vec(-1e3_f64..1e3, 0..40)
                .prop_flat_map(|values| (Just(values.clone()), Just(values).prop_shuffle()))
        ) {
            prop_assert_eq!(ordered_sum(values.iter().copied()), ordered_sum(turned.iter().copied()));
            prop_assert_eq!(ordered_mean(values.iter().copied()), ordered_mean(turned.iter().copied()));
            let opposite = ordered_sum(values.iter().map(|value| -value));
            prop_assert_eq!(opposite, -ordered_sum(values));
        }
    }
}
