//! Means of what people would say, from a few of their labels and a judge's scores of everything (PPI++: Angelopoulos et
//! al. 2023, arXiv:2311.01453).

use serde::Serialize;

use crate::interval::{Interval, NoInterval};
use crate::significance::t_quantile;

/// A mean with the judge's help, beside that of the labels alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PredictionPowered {
    /// The mean.
    pub value: f64,
    /// Its interval.
    pub interval: Interval,
    /// The mean of the labels alone, and its interval.
    pub labels_alone: (f64, Interval),
    /// How much the judge's scores count: 0 where they say nothing of the labels, and more than 1 where they are spread
    /// less than these.
    pub lambda: f64,
    /// Labels, and scores without one.
    pub labels: usize,
    /// Scores of what has no label.
    pub unlabelled: usize,
    /// The interval's width against that of the labels alone: what the judge brings.
    pub width: f64,
    /// The variance that a label has beside its score: so much over their number is their part of the mean's.
    #[serde(skip)]
    pub label_variance: f64,
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}

/// The covariance of a sample, n − 1 below it.
fn covariance(pairs: &[(f64, f64)]) -> f64 {
    let (x, y) = (mean(pairs.iter().map(|pair| pair.0)), mean(pairs.iter().map(|pair| pair.1)));
    pairs.iter().map(|pair| (pair.0 - x) * (pair.1 - y)).sum::<f64>() / (pairs.len() - 1) as f64
}

fn variance(values: &[f64]) -> f64 {
    let pairs: Vec<(f64, f64)> = values.iter().map(|value| (*value, *value)).collect();
    if pairs.len() < 2 { 0.0 } else { covariance(&pairs) }
}

/// The mean of people's scores over all units, of which those with a label (the judge's score, and people's) are a
/// random part.
///
/// θ = λ · mean(f without label) + mean(Y − λ f), λ = Cov(Y, f) / ((1 + n / N) · Var f), at least 0, and the interval is
/// Student's t of the labels by SE² = λ² Var(f without label) / N + Var(Y − λ f) / n. λ is not cut off at 1, as the paper
/// has it for predictions of the labels themselves: a judge's scores may have any scale.
///
/// # Errors
/// Where one label says nothing of how labels differ, or all are alike.
pub fn prediction_powered(
    labelled: &[(f64, f64)],
    unlabelled: &[f64],
    confidence: f64,
) -> Result<PredictionPowered, NoInterval> {
    let (n, more) = (labelled.len(), unlabelled.len());
    if n < 2 {
        return Err(NoInterval::TooFew);
    }
    let scores: Vec<f64> = labelled.iter().map(|pair| pair.0).chain(unlabelled.iter().copied()).collect();
    let spread = variance(&scores) * (1.0 + n as f64 / more.max(1) as f64);
    let lambda = if more < 2 || spread <= 0.0 { 0.0 } else { (covariance(labelled) / spread).max(0.0) };
    let t = t_quantile(confidence, (n - 1) as f64);
    let around = |value: f64, variance: f64| {
        let reach = t * variance.sqrt();
        Interval { low: value - reach, high: value + reach }
    };
    let labels: Vec<f64> = labelled.iter().map(|pair| pair.1).collect();
    let alone = (mean(labels.iter().copied()), variance(&labels) / n as f64);
    if alone.1 <= 0.0 {
        return Err(NoInterval::AllAlike);
    }
    let rest: Vec<f64> = labelled.iter().map(|(score, label)| label - lambda * score).collect();
    let of_scores = if more < 2 { (0.0, 0.0) } else { (mean(unlabelled.iter().copied()), variance(unlabelled)) };
    let value = lambda * of_scores.0 + mean(rest.iter().copied());
    let squared = lambda.powi(2) * of_scores.1 / more.max(1) as f64 + variance(&rest) / n as f64;
    Ok(PredictionPowered {
        label_variance: variance(&rest),
        value,
        interval: around(value, squared),
        labels_alone: (alone.0, around(alone.0, alone.1)),
        lambda,
        labels: n,
        unlabelled: more,
        width: (squared / alone.1).sqrt(),
    })
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    use super::*;

    #[test]
    fn by_hand() {
        let found =
            prediction_powered(&[(1.0, 2.0), (2.0, 3.0), (3.0, 7.0)], &[1.0, 2.0, 6.0, 3.0], 0.95).expect("defined");
        // Cov = 2.5; Var of 1 2 3 1 2 6 3 is 62/21; (1 + 3/4) of it is 31/6; λ = 15/31.
        assert!((found.lambda - 15.0 / 31.0).abs() < 1e-12, "{found:?}");
        assert!((found.value - (15.0 / 31.0 * 3.0 + 4.0 - 15.0 / 31.0 * 2.0)).abs() < 1e-12, "{found:?}");
        assert_eq!((found.labels_alone.0, found.labels, found.unlabelled), (4.0, 3, 4));
        assert_eq!(prediction_powered(&[(1.0, 2.0)], &[1.0], 0.95), Err(NoInterval::TooFew));
        assert_eq!(prediction_powered(&[(1.0, 2.0), (3.0, 2.0)], &[1.0], 0.95), Err(NoInterval::AllAlike));
        // Without anything to add, it is the mean of the labels.
        let alone = prediction_powered(&[(1.0, 2.0), (2.0, 3.0)], &[], 0.95).expect("defined");
        assert_eq!((alone.lambda, alone.value, alone.width), (0.0, 2.5, 1.0));
    }

    /// A judge that is right but for noise, one that says nothing, and one that says the opposite.
    #[test]
    fn intervals_cover_and_a_good_judge_makes_them_narrower() {
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        for (sign, narrower) in [(1.0, true), (0.0, false), (-1.0, false)] {
            let (mut covered, mut width, draws) = (0, 0.0, 1000);
            for _ in 0..draws {
                let mut unit = || {
                    let people = uniform();
                    (sign * people + 0.3 * uniform(), people)
                };
                let labelled: Vec<(f64, f64)> = (0..30).map(|_| unit()).collect();
                let unlabelled: Vec<f64> = (0..300).map(|_| unit().0).collect();
                let found = prediction_powered(&labelled, &unlabelled, 0.95).expect("defined");
                covered += usize::from(found.interval.low <= 0.0 && found.interval.high >= 0.0);
                width += found.width / f64::from(draws);
            }
            let share = covered as f64 / f64::from(draws);
            assert!((0.925..0.975).contains(&share), "{sign}: {share}");
            assert!(if narrower { width < 0.5 } else { (0.97..=1.01).contains(&width) }, "{sign}: {width}");
        }
    }
}
