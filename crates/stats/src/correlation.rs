//! Ranks and correlation coefficients.
//!
//! A coefficient is `None` where it is not defined: fewer than two values, a constant input, or a value that is not finite. It is never NaN.

/// The rank of each value, from 1 for the lowest; equal values share the mean of their ranks. `None` where a value is NaN.
pub fn average_ranks(values: &[f64]) -> Option<Vec<f64>> {
    if values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    // `==` and not the total order: -0.0 and 0.0 are one value.
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let mean = (2 * start + equal.len() + 1) as f64 / 2.0;
        for &i in equal {
            ranks[i] = mean;
        }
        start += equal.len();
    }
    Some(ranks)
}

/// Whether all values are equal; true of none and of one.
pub(crate) fn is_constant(values: &[f64]) -> bool {
    values.windows(2).all(|w| w[0] == w[1])
}

/// Pearson's r of two equally long lists, in [-1, 1].
///
/// # Panics
/// Where the lists differ in length.
pub fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "correlated lists have one length");
    cosine(&centred(x)?, &centred(y)?)
}

/// The correlation of deviations. Exactly ±1 where the lists are equal or opposite: the square root of a square is exact.
fn cosine(x: &[f64], y: &[f64]) -> Option<f64> {
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let r = sum(x, y) / (sum(x, x) * sum(y, y)).sqrt();
    r.is_finite().then(|| r.clamp(-1.0, 1.0))
}

/// Deviations from the mean, scaled so that the largest is ±1: squares neither overflow nor vanish.
fn centred(values: &[f64]) -> Option<Vec<f64>> {
    if is_constant(values) || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let largest = |v: &[f64]| v.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    // A power of two, so that scaling rounds nothing.
    let scale = 2.0_f64.powi(-(largest(values).log2() as i32).clamp(-1022, 1022));
    let scaled: Vec<f64> = values.iter().map(|v| v * scale).collect();
    let mean = scaled.iter().sum::<f64>() / scaled.len() as f64;
    let deviations: Vec<f64> = scaled.iter().map(|v| v - mean).collect();
    let spread = largest(&deviations);
    (spread > 0.0).then(|| deviations.into_iter().map(|d| d / spread).collect())
}

/// Spearman's ρ of two equally long lists, in [-1, 1]: Pearson's r of their average ranks. Exactly 1 where the ranks are equal.
///
/// # Panics
/// Where the lists differ in length.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "correlated lists have one length");
    if x.iter().chain(y).any(|v| !v.is_finite()) {
        return None;
    }
    // Twice the deviation of a rank from the mean rank is an integer, so all sums are exact.
    let deviations = |v: &[f64]| Some(average_ranks(v)?.into_iter().map(|r| 2.0 * r - (v.len() + 1) as f64).collect::<Vec<f64>>());
    cosine(&deviations(x)?, &deviations(y)?)
}

/// Kendall's τ-b of two equally long lists, in [-1, 1], in O(n log n) (Knight, 1966).
///
/// # Panics
/// Where the lists differ in length.
pub fn kendall_tau_b(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "correlated lists have one length");
    if x.iter().chain(y).any(|v| !v.is_finite()) {
        return None;
    }
    // Adding zero makes -0.0 equal to 0.0 in the total order.
    let mut pairs: Vec<(f64, f64)> = x.iter().zip(y).map(|(x, y)| (x + 0.0, y + 0.0)).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let all = pairs_of(pairs.len());
    let tied_x: u64 = pairs.chunk_by(|a, b| a.0 == b.0).map(|c| pairs_of(c.len())).sum();
    let tied_both: u64 = pairs.chunk_by(|a, b| a == b).map(|c| pairs_of(c.len())).sum();
    let mut ys: Vec<f64> = pairs.into_iter().map(|(_, y)| y).collect();
    let discordant = sort_counting_swaps(&mut ys);
    let tied_y: u64 = ys.chunk_by(|a, b| a == b).map(|c| pairs_of(c.len())).sum();
    if tied_x == all || tied_y == all {
        return None;
    }
    let excess = all as f64 - tied_x as f64 - tied_y as f64 + tied_both as f64 - 2.0 * discordant as f64;
    let tau = excess / ((all - tied_x) as f64 * (all - tied_y) as f64).sqrt();
    Some(tau.clamp(-1.0, 1.0))
}

fn pairs_of(n: usize) -> u64 {
    let n = n as u64;
    n * n.saturating_sub(1) / 2
}

/// Sorts, and counts the pairs that stood in the wrong order; equal values never do.
fn sort_counting_swaps(values: &mut [f64]) -> u64 {
    if values.len() < 2 {
        return 0;
    }
    let (left, right) = values.split_at_mut(values.len() / 2);
    let mut swaps = sort_counting_swaps(left) + sort_counting_swaps(right);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut l, mut r) = (0, 0);
    while l < left.len() && r < right.len() {
        if right[r] < left[l] {
            swaps += (left.len() - l) as u64;
            merged.push(right[r]);
            r += 1;
        } else {
            merged.push(left[l]);
            l += 1;
        }
    }
    merged.extend_from_slice(&left[l..]);
    merged.extend_from_slice(&right[r..]);
    values.copy_from_slice(&merged);
    swaps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::golden;

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-12)
    }

    #[test]
    fn coefficients_equal_scipys() {
        for case in golden::CORRELATIONS {
            assert!(close(pearson(case.x, case.y), case.pearson), "{case:?}: {:?}", pearson(case.x, case.y));
            assert!(close(spearman(case.x, case.y), case.spearman), "{case:?}: {:?}", spearman(case.x, case.y));
            assert!(close(kendall_tau_b(case.x, case.y), case.kendall), "{case:?}: {:?}", kendall_tau_b(case.x, case.y));
        }
    }

    #[test]
    fn equal_values_share_the_mean_rank() {
        assert_eq!(average_ranks(&[3.0, 1.0, 3.0, 2.0]), Some(vec![3.5, 1.0, 3.5, 2.0]));
        assert_eq!(average_ranks(&[0.0, -0.0]), Some(vec![1.5, 1.5]));
        assert_eq!(average_ranks(&[]), Some(vec![]));
        assert_eq!(average_ranks(&[f64::NAN]), None);
    }

    #[test]
    fn what_is_undefined_is_none() {
        let varied = [1.0, 2.0, 4.0];
        for other in [[5.0; 3], [1.0, f64::NAN, 2.0], [1.0, f64::INFINITY, 2.0]] {
            for f in [pearson, spearman, kendall_tau_b] {
                assert_eq!((f(&varied, &other), f(&other, &varied)), (None, None), "{other:?}");
            }
        }
        assert_eq!((pearson(&[], &[]), spearman(&[1.0], &[1.0]), kendall_tau_b(&[1.0], &[1.0])), (None, None, None));
    }

    #[test]
    fn extreme_magnitudes_neither_overflow_nor_vanish() {
        for scale in [1e307, 1e-320] {
            let x: Vec<f64> = [1.0, 2.0, 4.0].iter().map(|v| v * scale).collect();
            assert!(pearson(&x, &[1.0, 2.0, 4.0]).is_some_and(|r| (r - 1.0).abs() < 1e-3), "{scale}");
        }
    }

    fn lists() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
        prop::collection::vec((-4_i8..5, -4_i8..5), 0..40).prop_map(|v| v.into_iter().map(|(x, y)| (f64::from(x), f64::from(y))).unzip())
    }

    fn tau_by_definition(x: &[f64], y: &[f64]) -> Option<f64> {
        let sign = |a: f64, b: f64| a.partial_cmp(&b).map_or(0.0, |o| f64::from(o as i8));
        let pairs = || (0..x.len()).flat_map(|i| (0..i).map(move |j| (sign(x[i], x[j]), sign(y[i], y[j]))));
        let sum = |f: fn((f64, f64)) -> f64| pairs().map(f).sum::<f64>();
        let (sx, sy) = (sum(|(a, _)| a * a), sum(|(_, b)| b * b));
        (sx > 0.0 && sy > 0.0).then(|| sum(|(a, b)| a * b) / (sx * sy).sqrt())
    }

    proptest! {
        #[test]
        fn tau_equals_its_definition((x, y) in lists()) {
            if let Some(tau) = tau_by_definition(&x, &y) {
                prop_assert!(close(kendall_tau_b(&x, &y), tau));
            } else {
                prop_assert_eq!(kendall_tau_b(&x, &y), None);
            }
        }

        #[test]
        fn coefficients_are_symmetric_bounded_and_turn_with_the_sign((x, y) in lists()) {
            let negative: Vec<f64> = y.iter().map(|v| -v).collect();
            for f in [pearson, spearman, kendall_tau_b] {
                let (r, turned) = (f(&x, &y), f(&y, &x));
                prop_assert_eq!(r.is_some(), !is_constant(&x) && !is_constant(&y));
                if let Some(r) = r {
                    prop_assert!((-1.0..=1.0).contains(&r) && close(turned, r) && close(f(&x, &negative), -r));
                }
            }
        }

        #[test]
        fn ranks_sum_as_without_ties(x in prop::collection::vec(-4_i8..5, 0..40)) {
            let values: Vec<f64> = x.into_iter().map(f64::from).collect();
            let ranks = average_ranks(&values).expect("no NaN");
            prop_assert_eq!(ranks.iter().sum::<f64>(), (values.len() * (values.len() + 1)) as f64 / 2.0);
        }

        #[test]
        fn any_floats_give_a_number_or_none(v in prop::collection::vec((any::<f64>(), any::<f64>()), 0..12)) {
            let (x, y): (Vec<f64>, Vec<f64>) = v.into_iter().unzip();
            for f in [pearson, spearman, kendall_tau_b] {
                prop_assert!(f(&x, &y).is_none_or(|r| (-1.0..=1.0).contains(&r)));
            }
        }
    }
}
