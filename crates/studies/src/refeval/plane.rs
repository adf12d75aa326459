//! Projects embeddings to two dimensions for a plot.

/// Iterations of the power method, more than enough for a plot.
const TURNS: usize = 64;

/// The first two principal components of vectors of equal length. The sign of each direction makes its largest
/// component positive, so that the result is deterministic.
pub(super) fn plane(vectors: &[Vec<f32>]) -> Vec<[f64; 2]> {
    let Some(first) = vectors.first() else { return Vec::new() };
    let size = first.len();
    let mean: Vec<f64> = (0..size)
        .map(|k| vectors.iter().map(|vector| f64::from(vector[k])).sum::<f64>() / vectors.len() as f64)
        .collect();
    let centred: Vec<Vec<f64>> = vectors
        .iter()
        .map(|vector| vector.iter().zip(&mean).map(|(value, mean)| f64::from(*value) - mean).collect())
        .collect();
    let first = direction(&centred, size, None);
    let second = direction(&centred, size, Some(&first));
    centred.iter().map(|vector| [dot(vector, &first), dot(vector, &second)]).collect()
}

/// The direction of maximum variance, orthogonal to `beside` if set.
fn direction(centred: &[Vec<f64>], size: usize, beside: Option<&[f64]>) -> Vec<f64> {
    // A fixed start that is not orthogonal to likely directions.
    let mut found: Vec<f64> = (0..size).map(|k| 1.0 + (k % 7) as f64 / 7.0).collect();
    for _ in 0..TURNS {
        let mut next = vec![0.0; size];
        for vector in centred {
            let weight = dot(vector, &found);
            next.iter_mut().zip(vector).for_each(|(sum, value)| *sum += weight * value);
        }
        if let Some(beside) = beside {
            let along = dot(&next, beside);
            next.iter_mut().zip(beside).for_each(|(sum, value)| *sum -= along * value);
        }
        let length = dot(&next, &next).sqrt();
        if length == 0.0 {
            return vec![0.0; size];
        }
        found = next.into_iter().map(|value| value / length).collect();
    }
    let largest =
        found.iter().copied().fold(0.0, |most: f64, value| if value.abs() > most.abs() { value } else { most });
    let sign = if largest < 0.0 { -1.0 } else { 1.0 };
    found.into_iter().map(|value| sign * value).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_direction_comes_first() {
        // Along (3, 4) / 5, with small deviations.
        let vectors: Vec<Vec<f32>> = [(-2.0_f32, 0.1_f32), (-1.0, -0.1), (0.0, 0.0), (1.0, 0.1), (2.0, -0.1)]
            .iter()
            .map(|(along, across)| vec![3.0 / 5.0 * along - 0.8 * across, 0.8 * along + 0.6 * across])
            .collect();
        let found = plane(&vectors);
        let along: Vec<f64> = found.iter().map(|point| point[0]).collect();
        for (found, expected) in along.iter().zip([-2.0, -1.0, 0.0, 1.0, 2.0]) {
            assert!((found - expected).abs() < 0.05, "{along:?}");
        }
        assert!(found.iter().all(|point| point[1].abs() < 0.2));
        assert_eq!(plane(&[]), Vec::<[f64; 2]>::new());
        assert_eq!(plane(&[vec![1.0, 2.0]]), [[0.0, 0.0]]);
    }
}
