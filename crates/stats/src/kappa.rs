//! Agreement and association of categories.

use serde::Serialize;

/// Weight of a disagreement in Cohen's κ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KappaWeights {
    /// Equal for all disagreements.
    Plain,
    /// Number of categories between them, in order.
    Linear,
    /// The square of that number.
    Quadratic,
}

impl KappaWeights {
    fn weight(self, i: usize, j: usize) -> f64 {
        let apart = i.abs_diff(j) as f64;
        match self {
            Self::Plain => f64::from(u8::from(i != j)),
            Self::Linear => apart,
            Self::Quadratic => apart * apart,
        }
    }
}

/// Cohen's κ of two raters over the same items (Cohen 1960; weighted 1968). Categories are the distinct values in
/// ascending order, as in scikit-learn's `cohen_kappa_score`: weights count categories, not the distance between
/// values.
///
/// `None` without items, if both raters use a single common category (chance agreement is certain), and if values
/// cannot be ordered.
///
/// # Panics
/// The lists differ in length.
pub fn cohen_kappa<T: PartialOrd>(first: &[T], second: &[T], weights: KappaWeights) -> Option<f64> {
    assert_eq!(first.len(), second.len(), "both raters rate each item");
    let categories = categories(first.iter().chain(second))?;
    let counts = counts(first, second, &categories, &categories);
    let (rows, columns, n) = margins(&counts);
    let (mut observed, mut expected) = (0.0, 0.0);
    for (i, row) in counts.iter().enumerate() {
        for (j, count) in row.iter().enumerate() {
            let weight = weights.weight(i, j);
            observed += weight * count;
            expected += weight * rows[i] * columns[j] / n;
        }
    }
    // Without chance disagreement both raters have one category, and 0 / 0 is undefined.
    (expected > 0.0).then(|| 1.0 - observed / expected)
}

/// Association between two categorical variables.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Association {
    /// Cramér's V, in [0, 1]: the root of χ² / (n · (fewer categories − 1)).
    pub cramers_v: f64,
    /// Corrected for the bias of small samples (Bergsma 2013); absent if the correction leaves one category.
    pub corrected: Option<f64>,
    /// Number of pairs.
    pub n: usize,
}

/// Cramér's V between two variables, as in scipy's `contingency.association`.
///
/// `None` if one of them has fewer than two categories, and if values cannot be ordered.
///
/// # Panics
/// The lists differ in length.
pub fn association<T: PartialOrd, U: PartialOrd>(first: &[T], second: &[U]) -> Option<Association> {
    assert_eq!(first.len(), second.len(), "each item has both values");
    let counts = counts(first, second, &categories(first)?, &categories(second)?);
    let (rows, columns, n) = margins(&counts);
    let fewer = rows.len().min(columns.len());
    if fewer < 2 {
        return None;
    }
    let cell = |(i, j): (usize, usize)| {
        let expected = rows[i] * columns[j] / n;
        (counts[i][j] - expected).powi(2) / expected
    };
    let phi2 = (0..rows.len()).flat_map(|i| (0..columns.len()).map(move |j| (i, j))).map(cell).sum::<f64>() / n;
    let (r, k) = (rows.len() as f64, columns.len() as f64);
    let less = |v: f64| v - (v - 1.0) * (v - 1.0) / (n - 1.0);
    let unbiased = (phi2 - (r - 1.0) * (k - 1.0) / (n - 1.0)).max(0.0);
    let room = less(r).min(less(k)) - 1.0;
    Some(Association {
        // May exceed 1 by rounding.
        cramers_v: (phi2 / (fewer as f64 - 1.0)).sqrt().min(1.0),
        corrected: (room > 0.0).then(|| (unbiased / room).sqrt()),
        n: first.len(),
    })
}

/// The distinct values in ascending order; `None` if two cannot be ordered.
fn categories<'a, T: PartialOrd + 'a>(values: impl IntoIterator<Item = &'a T>) -> Option<Vec<&'a T>> {
    let mut all: Vec<&T> = values.into_iter().collect();
    // Values that are not ordered even with themselves (NaN) would make sorting panic below.
    if all.iter().any(|value| value.partial_cmp(value).is_none()) {
        return None;
    }
    all.sort_by(|a, b| a.partial_cmp(b).expect("each can be ordered"));
    all.dedup_by(|a, b| a == b);
    Some(all)
}

fn place<T: PartialOrd>(categories: &[&T], value: &T) -> usize {
    categories.partition_point(|category| *category < value)
}

fn counts<T: PartialOrd, U: PartialOrd>(first: &[T], second: &[U], rows: &[&T], columns: &[&U]) -> Vec<Vec<f64>> {
    let mut counts = vec![vec![0.0; columns.len()]; rows.len()];
    for (a, b) in first.iter().zip(second) {
        counts[place(rows, a)][place(columns, b)] += 1.0;
    }
    counts
}

/// Row sums, column sums and total.
fn margins(counts: &[Vec<f64>]) -> (Vec<f64>, Vec<f64>, f64) {
    let rows: Vec<f64> = counts.iter().map(|row| row.iter().sum()).collect();
    let width = counts.first().map_or(0, Vec::len);
    let columns = (0..width).map(|j| counts.iter().map(|row| row[j]).sum()).collect();
    let n = rows.iter().sum();
    (rows, columns, n)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::golden::GOLDEN;

    const WEIGHTS: [KappaWeights; 3] = [KappaWeights::Plain, KappaWeights::Linear, KappaWeights::Quadratic];

    #[test]
    fn kappas_and_associations_equal_scikit_learns_and_scipys() {
        for case in &GOLDEN.categories {
            for (weights, expected) in WEIGHTS.into_iter().zip(case.kappas) {
                let found = cohen_kappa(&case.first, &case.second, weights).expect("defined");
                assert!((found - expected).abs() < 1e-12, "{weights:?} {found} {expected}");
            }
            let found = association(&case.first, &case.second).expect("defined");
            assert!((found.cramers_v - case.cramers_v).abs() < 1e-12, "{found:?} {}", case.cramers_v);
            assert!((found.corrected.expect("room") - case.corrected).abs() < 1e-12, "{found:?} {}", case.corrected);
        }
    }

    #[test]
    fn one_category_leaves_nothing_to_agree_about() {
        for weights in WEIGHTS {
            assert_eq!(cohen_kappa(&["x", "x"], &["x", "x"], weights), None);
            assert_eq!(cohen_kappa::<i64>(&[], &[], weights), None);
            // Each rater has a different single category: no agreement, and no chance agreement either.
            assert_eq!(cohen_kappa(&[1, 1], &[2, 2], weights), Some(0.0));
        }
        assert_eq!(association(&[1, 1], &[1, 2]), None);
    }

    #[test]
    fn values_without_an_order_are_refused() {
        assert_eq!(cohen_kappa(&[1.0, f64::NAN], &[1.0, 2.0], KappaWeights::Plain), None);
        assert_eq!(association(&[1.0, f64::NAN], &[1, 2]), None);
    }

    #[test]
    fn two_items_that_tell_each_other_have_no_room_for_a_correction() {
        let found = association(&[1, 2], &["a", "b"]).expect("two categories each");
        assert_eq!((found.cramers_v, found.corrected), (1.0, None));
    }

    proptest! {
        #[test]
        fn kappa_is_symmetric_and_one_for_equal_raters(pairs in prop::collection::vec((0_u8..4, 0_u8..4), 2..30)) {
            let (a, b): (Vec<u8>, Vec<u8>) = pairs.into_iter().unzip();
            for weights in WEIGHTS {
                let (ab, ba) = (cohen_kappa(&a, &b, weights), cohen_kappa(&b, &a, weights));
                prop_assert_eq!(ab.is_some(), ba.is_some());
                prop_assert!(ab.is_none_or(|ab| ab <= 1.0 && (ab - ba.unwrap_or(9.0)).abs() < 1e-12));
                prop_assert!(cohen_kappa(&a, &a, weights).is_none_or(|k| k == 1.0));
            }
            let found = association(&a, &b);
            prop_assert!(found.is_none_or(|v| (0.0..=1.0).contains(&v.cramers_v) && v.corrected.is_none_or(|c| c >= 0.0)));
        }
    }
}
