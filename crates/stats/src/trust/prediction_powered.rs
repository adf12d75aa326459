//! Means of human scores, from a few labels and a judge's scores of everything (PPI++: Angelopoulos et al. 2023,
//! arXiv:2311.01453).

use serde::Serialize;

use crate::interval::{Interval, NoInterval, verdict_interval};
use crate::significance::{beta_quantile, normal_quantile, t_quantile};
use crate::sum::ordered_sum;

/// A mean estimated with the judge's scores, and the mean of the labels alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PredictionPowered {
    /// The mean.
    pub value: f64,
    /// Its interval.
    pub interval: Interval,
    /// The mean of the labels alone, with its interval.
    pub labels_alone: (f64, Interval),
    /// Weight of the judge's scores: 0 if they are uninformative about the labels, above 1 if their spread is smaller.
    pub lambda: f64,
    /// Number of labelled units.
    pub labels: usize,
    /// Number of unlabelled units with scores.
    pub unlabelled: usize,
    /// Width of the interval relative to that of the labels alone: the benefit of the judge.
    pub width: f64,
    /// Residual variance of a label given its score; divided by the number of labels it is their part of the mean's
    /// variance.
    #[serde(skip)]
    pub label_variance: f64,
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    ordered_sum(values) / n
}

/// Sample covariance, with denominator n − 1.
fn covariance(pairs: &[(f64, f64)]) -> f64 {
    let (x, y) = (mean(pairs.iter().map(|pair| pair.0)), mean(pairs.iter().map(|pair| pair.1)));
    ordered_sum(pairs.iter().map(|pair| (pair.0 - x) * (pair.1 - y))) / (pairs.len() - 1) as f64
}

fn variance(values: &[f64]) -> f64 {
    let pairs: Vec<(f64, f64)> = values.iter().map(|value| (*value, *value)).collect();
    if pairs.len() < 2 { 0.0 } else { covariance(&pairs) }
}

/// Estimates the mean of human scores over all units. The labelled units (the judge's score and the human score) are a
/// random part of all.
///
/// θ = λ · mean(f without label) + mean(Y − λ f), λ = Cov(Y, f) / ((1 + n / N) · Var f), at least 0. The interval is
/// Student's t over the labels with SE² = λ² Var(f without label) / N + Var(Y − λ f) / n. λ is not capped at 1, as the
/// paper does for predictions of the labels themselves: a judge's scores may have any scale.
///
/// # Errors
/// There is a single label, or all labels are equal.
pub fn prediction_powered(
    labelled: &[(f64, f64)],
    unlabelled: &[f64],
    confidence: f64,
) -> Result<PredictionPowered, NoInterval> {
    let (n, more) = (labelled.len(), unlabelled.len());
    if n < 2 {
        return Err(NoInterval::TooFew);
    }
    let lambda = tuned_lambda(labelled, unlabelled);
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
    let CorrectedMean { value, squared_error, label_variance } = CorrectedMean::new(labelled, unlabelled, lambda);
    Ok(PredictionPowered {
        label_variance,
        value,
        interval: around(value, squared_error),
        labels_alone: (alone.0, around(alone.0, alone.1)),
        lambda,
        labels: n,
        unlabelled: more,
        width: (squared_error / alone.1).sqrt(),
    })
}

/// λ = Cov(Y, f) / ((1 + n / N) · Var f), at least 0: the weight of the scores f that minimises the variance of the
/// mean.
fn tuned_lambda(labelled: &[(f64, f64)], unlabelled: &[f64]) -> f64 {
    let (n, more) = (labelled.len(), unlabelled.len());
    let scores: Vec<f64> = labelled.iter().map(|pair| pair.0).chain(unlabelled.iter().copied()).collect();
    let spread = variance(&scores) * (1.0 + n as f64 / more.max(1) as f64);
    if more < 2 || spread <= 0.0 { 0.0 } else { (covariance(labelled) / spread).max(0.0) }
}

/// A mean of labels corrected by scores with a given weight.
struct CorrectedMean {
    value: f64,
    squared_error: f64,
    label_variance: f64,
}

impl CorrectedMean {
    /// θ = λ · mean(f without label) + mean(Y − λ f), SE² = λ² Var(f without label) / N + Var(Y − λ f) / n.
    fn new(labelled: &[(f64, f64)], unlabelled: &[f64], lambda: f64) -> Self {
        let more = unlabelled.len();
        let rest: Vec<f64> = labelled.iter().map(|(score, label)| label - lambda * score).collect();
        let of_scores = if more < 2 { (0.0, 0.0) } else { (mean(unlabelled.iter().copied()), variance(unlabelled)) };
        let label_variance = variance(&rest);
        let of_labels = label_variance / labelled.len() as f64;
        Self {
            value: lambda * of_scores.0 + mean(rest.iter().copied()),
            squared_error: lambda.powi(2) * of_scores.1 / more.max(1) as f64 + of_labels,
            label_variance,
        }
    }
}

/// A share in human verdicts, from a judge's verdicts on all units and human verdicts on some.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CorrectedShare {
    /// The share, between 0 and 1.
    pub share: f64,
    /// Its interval.
    pub interval: Interval,
    /// Weight of the judge's verdicts, from 0 (only labels count) to 1.
    pub lambda: f64,
    /// Units with a human verdict.
    pub labels: usize,
    /// Units with only the judge's verdict.
    pub unlabelled: usize,
}

/// A win rate corrected by labels: the share of all units that people would give to one of two systems (1 for a win, ½
/// for a tie, 0 for a loss). Each labelled unit is `(judge's verdict, human verdict)`; the labelled units must be a
/// random part of all.
///
/// PPI++ for a mean (Angelopoulos, Duchi and Zrnic 2023, "PPI++: Efficient Prediction-Powered Inference",
/// arXiv:2311.01453, with power tuning): θ = λ · mean(f without label) + mean(Y − λ f), λ = Cov(Y, f) / ((1 + n / N) ·
/// Var f), cut to [0, 1] since f predicts Y itself, SE² = λ² Var(f without label) / N + Var(Y − λ f) / n.
///
/// The interval is Clopper and Pearson's at the effective number of units θ (1 − θ) / SE² · (z / t)², with z the normal
/// quantile and t Student's of n − 1 degrees (Korn and Graubard 1998, "Confidence intervals for proportions with small
/// expected number of positive counts estimated from survey data"): the paper's normal approximation covers 0.88 at a
/// nominal 0.95, for a win rate of 0.9 and 50 labels. The effective number is at least the number of labels, so
/// verdicts never reduce the value of the labels. With λ = 0, λ near 0, or labels that are all equal, the interval is
/// that of the labels alone. Without this limit the step from λ = 0 to the smallest λ cost two of nine labels.
///
/// # Errors
/// There are fewer than two labels.
pub fn corrected_share(
    labelled: &[(f64, f64)],
    unlabelled: &[f64],
    confidence: f64,
) -> Result<CorrectedShare, NoInterval> {
    let (labels, more) = (labelled.len(), unlabelled.len());
    if labels < 2 {
        return Err(NoInterval::TooFew);
    }
    let lambda = tuned_lambda(labelled, unlabelled).min(1.0);
    let people: Vec<f64> = labelled.iter().map(|pair| pair.1).collect();
    // Labels that are all equal leave λ at 0: they have no covariance with the judge's verdicts.
    if lambda == 0.0 {
        let (share, interval) = (mean(people.iter().copied()), verdict_interval(&people, confidence)?);
        return Ok(CorrectedShare { share, interval, lambda, labels, unlabelled: more });
    }
    let CorrectedMean { value, squared_error, .. } = CorrectedMean::new(labelled, unlabelled, lambda);
    let all = (labels + more) as f64;
    let share = value.clamp(0.0, 1.0);
    // At an end of the range the variance is 0: use a value half a unit inside.
    let inside = share.clamp(0.5 / all, 1.0 - 0.5 / all);
    let narrowing = (normal_quantile(confidence) / t_quantile(confidence, (labels - 1) as f64)).powi(2);
    let effective = ((inside * (1.0 - inside) / squared_error).min(all) * narrowing).max(labels as f64);
    let (hits, misses, tail) = (inside * effective, (1.0 - inside) * effective, (1.0 - confidence) / 2.0);
    let interval = Interval {
        low: beta_quantile(tail, hits, misses + 1.0).min(share),
        high: (1.0 - beta_quantile(tail, misses, hits + 1.0)).max(share),
    };
    Ok(CorrectedShare { share, interval, lambda, labels, unlabelled: more })
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
        // Without unlabelled units, it is the mean of the labels.
        let alone = prediction_powered(&[(1.0, 2.0), (2.0, 3.0)], &[], 0.95).expect("defined");
        assert_eq!((alone.lambda, alone.value, alone.width), (0.0, 2.5, 1.0));
    }

    /// A judge that is right up to noise, an uninformative one, and one that is always wrong.
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

    /// `ppi_py`'s λ uses n in the covariance and variances, ours n − 1.
    #[test]
    fn win_rates_are_corrected_as_ppi_py_corrects_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/win_rates.json");
        let golden: serde_json::Value =
            serde_json::from_slice(&std::fs::read(path).expect("there")).expect("a golden file");
        let z = normal_quantile(golden["confidence"].as_f64().expect("a number"));
        let cases = golden["cases"].as_array().expect("cases");
        assert_eq!(cases.len(), 5);
        for case in cases {
            let read = |name: &str| serde_json::from_value::<Vec<f64>>(case[name].clone()).expect("numbers");
            let number = |name: &str| case[name].as_f64().expect("a number");
            let labelled: Vec<(f64, f64)> = serde_json::from_value(case["labelled"].clone()).expect("pairs");
            let (unlabelled, lambda) = (read("unlabelled"), number("lambda"));
            let [n, more] = [labelled.len(), unlabelled.len()].map(|count| count as f64);
            let found = corrected_share(&labelled, &unlabelled, 0.95).expect("labels");
            let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(close(found.lambda, (lambda * n / (n - 1.0)).min(1.0)), "{found:?} {lambda}");
            let by_theirs = CorrectedMean::new(&labelled, &unlabelled, lambda);
            assert!(close(by_theirs.value, number("value")), "{} {}", by_theirs.value, number("value"));
            let [low, high]: [f64; 2] = read("interval").try_into().expect("two ends");
            let squared = ((high - low) / 2.0 / z).powi(2);
            let bounds = [(n - 1.0) / n, (more - 1.0) / more].map(|ratio| ratio * by_theirs.squared_error);
            let (least, most) = (bounds[0].min(bounds[1]), bounds[0].max(bounds[1]));
            assert!(least - 1e-12 < squared && squared < most + 1e-12, "{squared} {least} {most}");
        }
    }

    #[test]
    fn a_corrected_share_is_the_labels_own_where_nothing_can_be_corrected() {
        let labels = [(1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 1.0)];
        let alone = verdict_interval(&[1.0, 1.0, 0.0, 1.0], 0.95).expect("verdicts");
        // No other units; uninformative verdicts; labels that are all equal.
        for (labelled, unlabelled, share, interval) in [
            (&labels[..], &[][..], 0.75, alone),
            (&labels, &[1.0, 1.0, 0.0], 0.75, alone),
            (&[(1.0, 1.0), (0.0, 1.0)], &[1.0, 0.0], 1.0, verdict_interval(&[1.0, 1.0], 0.95).expect("two")),
        ] {
            let found = corrected_share(labelled, unlabelled, 0.95).expect("labels");
            assert_eq!((found.share, found.interval, found.lambda), (share, interval, 0.0));
            assert_eq!((found.labels, found.unlabelled), (labelled.len(), unlabelled.len()));
        }
        assert_eq!(corrected_share(&labels[..1], &[1.0], 0.95), Err(NoInterval::TooFew));
    }

    /// Twelve labels, and verdicts whose covariance with them ranges from below 0 through 0 to slightly above.
    #[test]
    fn a_judge_that_is_hardly_better_than_none_gives_the_interval_of_the_labels_alone() {
        let people = |k: usize| f64::from(u8::from(!k.is_multiple_of(3)));
        let alone = verdict_interval(&(0..12).map(people).collect::<Vec<_>>(), 0.95).expect("verdicts");
        // Two thirds of the human ones and of the zeros have a verdict of 1: zero covariance, up to `more`.
        let corrected = |more: f64| {
            let score = |k: usize| f64::from(u8::from(!k.is_multiple_of(4))) + more * people(k);
            let labelled: Vec<(f64, f64)> = (0..12).map(|k| (score(k), people(k))).collect();
            let unlabelled: Vec<f64> = (0..24).map(score).collect();
            corrected_share(&labelled, &unlabelled, 0.95).expect("labels")
        };
        for more in [-0.01, 0.0, 1e-6, 1e-3, 0.01, 0.05] {
            let CorrectedShare { lambda, interval, .. } = corrected(more);
            assert!(if more > 0.0 { lambda > 0.0 && lambda < 0.1 } else { lambda < 1e-12 }, "{more}: {lambda}");
            let off = (interval.low - alone.low).abs().max((interval.high - alone.high).abs());
            assert!(off < 0.01, "{more}: {interval:?} {alone:?}");
        }
    }

    #[test]
    fn intervals_of_corrected_shares_cover_with_few_labels_and_a_good_judge_makes_them_narrower() {
        let mut random = ChaCha8Rng::seed_from_u64(47);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        for rate in [0.5, 0.7, 0.9] {
            for (n, more) in [(3, 27), (12, 18), (50, 200)] {
                let mut widths = [0.0; 2];
                for (place, right) in [0.5, 0.95].into_iter().enumerate() {
                    let draws = 1000;
                    let mut covered = 0;
                    for _ in 0..draws {
                        let mut unit = || {
                            let people = f64::from(u8::from(uniform() < rate));
                            (if uniform() < right { people } else { 1.0 - people }, people)
                        };
                        let labelled: Vec<(f64, f64)> = (0..n).map(|_| unit()).collect();
                        let unlabelled: Vec<f64> = (0..more).map(|_| unit().0).collect();
                        let found = corrected_share(&labelled, &unlabelled, 0.95).expect("labels");
                        let Interval { low, high } = found.interval;
                        assert!(0.0 <= low && low <= found.share && found.share <= high && high <= 1.0, "{found:?}");
                        covered += usize::from(low <= rate && rate <= high);
                        widths[place] += (high - low) / f64::from(draws);
                    }
                    assert!(covered >= 925, "{rate} {n} {right}: {covered} of {draws}");
                }
                assert!(widths[1] < widths[0], "{rate} {n}: {widths:?}");
            }
        }
    }
}
