//! p-values of Student's t and the normal distribution, and tests based on them.
//!
//! They have a relative accuracy of 1e-10, down to the smallest numbers and up to a million degrees of freedom.
//! Existing crates do not: statrs 0.19 and puruspe 0.4 have 1e-8 for the incomplete beta function, and statrs 1e-11 for
//! erfc.

use std::f64::consts::{PI, SQRT_2};

use serde::Serialize;

use crate::equal::TIE_TOLERANCE;
use crate::sum::ordered_sum;

/// Two-sided p-value of a correlation coefficient of `n` pairs under independence: t with n − 2 degrees of freedom,
/// which is exact for Pearson's r of normal values and the usual approximation for Spearman's ρ. `None` below three
/// pairs.
pub(crate) fn correlation_p(r: f64, n: usize) -> Option<f64> {
    // (1 − r)(1 + r) instead of 1 − r²: near ±1 the square loses the significant digits of the p-value.
    (n > 2).then(|| incomplete_beta((n - 2) as f64 / 2.0, (1.0 - r) * (1.0 + r), r * r))
}

/// Two-sided p-value of Student's t.
pub(crate) fn two_sided_t(t: f64, degrees: f64) -> f64 {
    let square = t * t;
    // Infinity over infinity would be NaN.
    if square.is_infinite() {
        0.0
    } else {
        incomplete_beta(degrees / 2.0, degrees / (degrees + square), square / (degrees + square))
    }
}

/// Two-sided p-value of a standard normal value.
pub(crate) fn two_sided_normal(z: f64) -> f64 {
    libm::erfc(z.abs() / SQRT_2)
}

/// The two-sided quantile of Student's t: |t| is below it with probability `confidence`, in (0, 1).
pub(crate) fn t_quantile(confidence: f64, degrees: f64) -> f64 {
    two_sided_quantile(confidence, |t| two_sided_t(t, degrees))
}

/// The two-sided quantile of a standard normal value.
pub(crate) fn normal_quantile(confidence: f64) -> f64 {
    two_sided_quantile(confidence, two_sided_normal)
}

fn two_sided_quantile(confidence: f64, p: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while p(high) > 1.0 - confidence {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if p(middle) > 1.0 - confidence { low = middle } else { high = middle }
    }
    high
}

/// The quantile of a beta distribution, for a probability in (0, 1).
pub(crate) fn beta_quantile(probability: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if beta_share(a, b, middle) < probability { low = middle } else { high = middle }
    }
    high
}

/// I(x; a, b), the regularised incomplete beta function: to 1e-11 for up to thousands of trials, which is sufficient
/// for the ends of intervals.
pub(crate) fn beta_share(a: f64, b: f64, x: f64) -> f64 {
    let front = (a * x.ln() + b * (-x).ln_1p() + libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b)).exp();
    // The fraction converges fast only on this side of the mean; on the other side, use the other tail.
    if x < (a + 1.0) / (a + b + 2.0) {
        front / a * fraction(a, b, x)
    } else {
        1.0 - front / b * fraction(b, a, 1.0 - x)
    }
}

/// Sign test: two-sided p-value of these wins and losses under even chances; ties are omitted beforehand. `None`
/// without either.
#[must_use]
pub fn sign_test(wins: usize, losses: usize) -> Option<f64> {
    let (fewer, more) = (wins.min(losses) as f64, wins.max(losses) as f64);
    // P(at most the fewer) = I(½; more, fewer + 1).
    (wins + losses > 0).then(|| if fewer == more { 1.0 } else { (2.0 * beta_share(more, fewer + 1.0, 0.5)).min(1.0) })
}

/// Two-sided p-value of the mean being 0 (Student's one-sample t-test). `None` below two values, or if all are equal.
pub fn mean_p(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = ordered_sum(values.iter().copied()) / n;
    let spread = ordered_sum(values.iter().map(|v| (v - mean) * (v - mean)));
    // Rounding may give equal values a tiny spread, with which any mean would be significant.
    if crate::equal::is_constant(values) || spread == 0.0 {
        return None;
    }
    Some(two_sided_t(mean / (spread / (n - 1.0) / n).sqrt(), n - 1.0))
}

/// Result of Williams' test of two dependent correlations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Williams {
    /// Positive if the first correlation is larger.
    pub t: f64,
    /// Degrees of freedom: n − 3.
    pub degrees: usize,
    /// Two-sided; halve it for a one-sided hypothesis made in advance.
    pub p: f64,
}

/// Tests whether two metrics' correlations with the same gold scores differ, given the correlation between the metrics,
/// over `n` common items (Williams 1959, in the form of Steiger 1980, eq. 7; Graham and Baldwin 2014). Defined for
/// Pearson's r; an approximation for ranks.
///
/// `None` below four items, for values that are not coefficients, and if the metrics are linearly related.
pub fn williams(first: f64, second: f64, between: f64, n: usize) -> Option<Williams> {
    if n < 4 || [first, second, between].iter().any(|r| !(-1.0..=1.0).contains(r)) {
        return None;
    }
    // 1 up to rounding.
    if 1.0 - between <= TIE_TOLERANCE {
        return None;
    }
    let count = n as f64;
    let determinant = 1.0 - first * first - second * second - between * between + 2.0 * first * second * between;
    let mean = f64::midpoint(first, second);
    // May be below 0 by rounding.
    let spread = 2.0 * determinant.max(0.0) * (count - 1.0) / (count - 3.0) + mean * mean * (1.0 - between).powi(3);
    let t = (first - second) * ((count - 1.0) * (1.0 + between) / spread).sqrt();
    t.is_finite().then(|| Williams { t, degrees: n - 3, p: two_sided_t(t, count - 3.0) })
}

/// I(x; a, ½), the regularised incomplete beta function, for x and y = 1 − x.
fn incomplete_beta(a: f64, x: f64, y: f64) -> f64 {
    if x <= 0.0 || y <= 0.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    // x^a √y / B(a, ½)
    // Uses the smaller of x and y: the logarithm of 1 − y keeps the digits of a small y.
    let power = a * if y < 0.5 { (-y).ln_1p() } else { x.ln() };
    let front = power.exp() * (y / PI).sqrt() * half_step(a);
    if x < (a + 1.0) / (a + 2.5) { front / a * fraction(a, 0.5, x) } else { 1.0 - 2.0 * front * fraction(0.5, a, y) }
}

/// Γ(a + ½) / Γ(a): the asymptotic series, exact to rounding from 40, and the recurrence below.
fn half_step(a: f64) -> f64 {
    let (mut a, mut factor) = (a, 1.0);
    while a < 40.0 {
        factor *= a / (a + 0.5);
        a += 1.0;
    }
    let terms = [
        1.0,
        -1.0 / 8.0,
        1.0 / 128.0,
        5.0 / 1024.0,
        -21.0 / 32768.0,
        -399.0 / 262_144.0,
        869.0 / 4_194_304.0,
        39325.0 / 33_554_432.0,
    ];
    factor * a.sqrt() * terms.iter().rev().fold(0.0, |sum, term| sum / a + term)
}

/// The continued fraction of I(x; a, b) (DLMF 8.17.22) by Lentz's method; it converges in O(√max(a, b)) steps.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const STEPS: u32 = 100_000;
    let away_from_zero = |v: f64| if v.abs() < f64::MIN_POSITIVE { f64::MIN_POSITIVE } else { v };
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let (mut c, mut value) = (1.0, d);
    for step in 1..STEPS {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            change = c * d;
            value *= change;
        }
        if (change - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::GOLDEN;

    #[test]
    fn students_t_equals_scipys_at_any_degrees_of_freedom() {
        for &(t, degrees, p) in &GOLDEN.student {
            let found = two_sided_t(t, degrees);
            assert!((found - p).abs() <= 1e-10 * p + 1e-300, "t {t}, {degrees} degrees: {found:e} {p:e}");
            assert_eq!(two_sided_t(-t, degrees), found);
        }
        assert_eq!((two_sided_t(0.0, 3.0), two_sided_t(f64::INFINITY, 3.0), two_sided_t(1e200, 3.0)), (1.0, 0.0, 0.0));
    }

    #[test]
    fn the_normal_quantile_turns_its_probability_back() {
        assert!((normal_quantile(0.95) - 1.959_963_984_540_054).abs() < 1e-12);
        assert!((normal_quantile(0.99) - 2.575_829_303_548_900_4).abs() < 1e-12);
        assert!(normal_quantile(1e-9) < 1e-8);
    }

    #[test]
    fn sign_tests_are_scipys_binomial_tests() {
        for (wins, losses, p) in [
            (8, 2, 0.109_375),
            (0, 5, 0.0625),
            (60, 40, 0.056_887_933_640_981_4),
            (5, 5, 1.0),
            (1000, 900, 0.023_108_845_108_901_193),
        ] {
            let found = sign_test(wins, losses).expect("defined");
            assert!((found - p).abs() < 1e-9, "{wins} {losses} {found} {p}");
        }
        assert_eq!(sign_test(0, 0), None);
    }

    #[test]
    fn quantiles_of_t_turn_the_probability_back() {
        for (degrees, quantile) in
            [(1.0, 12.706_204_736_432_095), (3.0, 3.182_446_305_284_263), (39.0, 2.022_690_920_036_76)]
        {
            assert!((t_quantile(0.95, degrees) - quantile).abs() < 1e-9 * quantile, "{degrees}");
        }
    }

    #[test]
    fn williams_test_equals_the_published_implementations() {
        for &(first, second, between, n, p) in &GOLDEN.williams {
            let found = williams(first, second, between, n).expect("defined");
            assert!((found.p - p).abs() <= 1e-10 * p, "{found:?} {p}");
            assert_eq!((found.t > 0.0, found.degrees), (first > second, n - 3));
            let turned = williams(second, first, between, n).expect("defined");
            assert!((turned.t + found.t).abs() < 1e-12 && (turned.p - found.p).abs() < 1e-12);
        }
    }

    #[test]
    fn williams_test_is_undefined_where_nothing_can_be_told_apart() {
        assert_eq!(williams(0.5, 0.4, 0.3, 3), None, "too few items");
        assert_eq!(williams(0.5, 0.5, 1.0, 30), None, "one metric twice");
        assert_eq!(williams(f64::NAN, 0.5, 0.2, 30), None);
        assert_eq!(williams(1.5, 0.5, 0.2, 30), None);
        assert_eq!(williams(0.5, 0.5, 0.2, 30).map(|w| (w.t, w.p)), Some((0.0, 1.0)));
    }

    #[test]
    fn a_mean_without_spread_has_no_test() {
        assert_eq!((mean_p(&[]), mean_p(&[1.0]), mean_p(&[0.5, 0.5])), (None, None, None));
        assert!(mean_p(&[1.0, -1.0]).is_some_and(|p| (p - 1.0).abs() < 1e-12));
    }
}
