//! Krippendorff's α: agreement of any number of raters, with missing ratings.

use serde::Serialize;

/// Distance between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasurementLevel {
    /// Equal or not.
    Nominal,
    /// Number of ratings between them in the overall ranking.
    Ordinal,
    /// Their difference.
    Interval,
    /// Their difference relative to their sum.
    Ratio,
}

/// Krippendorff's α over units, each a list of its ratings (Krippendorff 2011, "Computing Krippendorff's
/// Alpha-Reliability", §E); missing ratings are omitted. Units with a single rating are ignored.
///
/// 1 − observed / expected disagreement: 1 for perfect agreement, 0 for chance. `None` if no unit has two ratings, if
/// all ratings are equal, or if a rating is not finite.
pub fn krippendorff_alpha(units: &[Vec<f64>], level: MeasurementLevel) -> Option<f64> {
    let pairable: Vec<&Vec<f64>> = units.iter().filter(|unit| unit.len() > 1).collect();
    // Adding zero makes -0.0 equal to 0.0 in the total order.
    let mut values: Vec<f64> = pairable.iter().flat_map(|unit| unit.iter().map(|v| v + 0.0)).collect();
    if units.iter().flatten().any(|v| !v.is_finite()) {
        return None;
    }
    let ratings = values.len() as f64;
    values.sort_by(f64::total_cmp);
    let totals: Vec<(f64, f64)> = values.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as f64)).collect();
    let distances = Distances::new(level, &totals);
    let place = |value: f64| totals.partition_point(|(known, _)| *known < value);
    let mut observed = 0.0;
    for unit in &pairable {
        let places: Vec<usize> = unit.iter().map(|v| place(*v)).collect();
        let disagreement: f64 = places.iter().flat_map(|i| places.iter().map(|j| distances.squared(*i, *j))).sum();
        observed += disagreement / (unit.len() as f64 - 1.0);
    }
    let mut expected = 0.0;
    for (i, (_, a)) in totals.iter().enumerate() {
        expected += totals.iter().enumerate().map(|(j, (_, b))| a * b * distances.squared(i, j)).sum::<f64>();
    }
    (expected > 0.0).then(|| 1.0 - (ratings - 1.0) * observed / expected)
}

/// The distinct values and, for ordinal values, their mean ranks.
struct Distances {
    level: MeasurementLevel,
    at: Vec<f64>,
}

impl Distances {
    fn new(level: MeasurementLevel, totals: &[(f64, f64)]) -> Self {
        let mut below = 0.0;
        let at = |&(value, count): &(f64, f64)| {
            below += count;
            if level == MeasurementLevel::Ordinal { below - count / 2.0 } else { value }
        };
        Self { level, at: totals.iter().map(at).collect() }
    }

    fn squared(&self, i: usize, j: usize) -> f64 {
        let (a, b) = (self.at[i], self.at[j]);
        match self.level {
            _ if i == j => 0.0,
            MeasurementLevel::Nominal => 1.0,
            MeasurementLevel::Ordinal | MeasurementLevel::Interval => (a - b) * (a - b),
            // Two zeros do not differ, but the formula would be 0/0.
            MeasurementLevel::Ratio if a + b == 0.0 => 0.0,
            MeasurementLevel::Ratio => ((a - b) / (a + b)).powi(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::GOLDEN;

    const LEVELS: [MeasurementLevel; 4] =
        [MeasurementLevel::Nominal, MeasurementLevel::Ordinal, MeasurementLevel::Interval, MeasurementLevel::Ratio];

    #[test]
    fn alphas_equal_the_krippendorff_packages() {
        for (units, alphas) in &GOLDEN.alpha {
            for (level, expected) in LEVELS.into_iter().zip(*alphas) {
                let found = krippendorff_alpha(units, level).expect("defined");
                assert!((found - expected).abs() < 1e-10, "{level:?} {found} {expected}");
            }
        }
    }

    #[test]
    fn the_papers_example_has_the_papers_values() {
        // Krippendorff 2011, §C to E: four observers, twelve units, missing ratings.
        let units = [
            vec![1.0, 1.0, 1.0],
            vec![2.0, 2.0, 3.0, 2.0],
            vec![3.0, 3.0, 3.0, 3.0],
            vec![3.0, 3.0, 3.0, 3.0],
            vec![2.0, 2.0, 2.0, 2.0],
            vec![1.0, 2.0, 3.0, 4.0],
            vec![4.0, 4.0, 4.0, 4.0],
            vec![1.0, 1.0, 2.0, 1.0],
            vec![2.0, 2.0, 2.0, 2.0],
            vec![5.0, 5.0, 5.0],
            vec![1.0, 1.0],
            vec![3.0],
        ];
        for (level, expected) in LEVELS.into_iter().zip([0.743, 0.815, 0.849, 0.797]) {
            let found = krippendorff_alpha(&units, level).expect("defined");
            assert!((found - expected).abs() < 6e-4, "{level:?} {found}");
        }
    }

    #[test]
    fn what_cannot_disagree_is_undefined() {
        for level in LEVELS {
            assert_eq!(krippendorff_alpha(&[], level), None);
            assert_eq!(krippendorff_alpha(&[vec![1.0], vec![2.0]], level), None, "no unit was rated twice");
            assert_eq!(krippendorff_alpha(&[vec![2.0, 2.0], vec![2.0, 2.0]], level), None, "one value");
            assert_eq!(krippendorff_alpha(&[vec![1.0, f64::NAN], vec![2.0, 1.0]], level), None);
            assert_eq!(krippendorff_alpha(&[vec![1.0, 1.0], vec![2.0, 2.0]], level), Some(1.0));
        }
    }
}
