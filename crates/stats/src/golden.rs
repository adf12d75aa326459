//! Golden values of scipy, scikit-learn, krippendorff and mt-metrics-eval: `tests/goldens/stats.json`,
//! written by `scripts/goldens/make_stats.py`, which names the versions. Tolerance: 1e-12; p-values 1e-10 of
//! themselves; strengths 1e-7.

use std::sync::LazyLock;

use serde::Deserialize;

pub(crate) static GOLDEN: LazyLock<Golden> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../tests/goldens/stats.json")).expect("of this form"));

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Golden {
    /// Coefficients and p-values of Pearson, Spearman and Kendall.
    pub(crate) correlations: Vec<GoldenCorrelation>,
    /// Coefficient, its mean over the lists above, and p of that being 0.
    pub(crate) per_context: Vec<(usize, f64, f64)>,
    /// Generated lists: n, modulus, coefficients, p-values.
    pub(crate) generated: Vec<(u64, u64, [f64; 3], [f64; 3])>,
    /// t, degrees of freedom, two-sided p.
    pub(crate) student: Vec<(f64, f64, f64)>,
    /// First and second metric with gold, between the metrics, n, p (two-sided).
    pub(crate) williams: Vec<(f64, f64, f64, usize, f64)>,
    pub(crate) ties: Vec<GoldenTies>,
    pub(crate) categories: Vec<GoldenCategories>,
    /// Units with their ratings; nominal, ordinal, interval, ratio.
    pub(crate) alpha: Vec<(Vec<Vec<f64>>, [f64; 4])>,
    pub(crate) bradley_terry: Vec<GoldenStrengths>,
    pub(crate) units_a: Vec<f64>,
    pub(crate) units_b: Vec<f64>,
    /// Shares and quantiles of `units_a`.
    pub(crate) quantiles: Vec<(f64, f64)>,
    pub(crate) mean_interval: (f64, f64),
    pub(crate) spearman_interval: (f64, f64),
    pub(crate) difference: f64,
    pub(crate) paired_p: f64,
    pub(crate) randomisation_p: f64,
    /// Hits, with ties as half, number of trials, and Clopper and Pearson's interval.
    pub(crate) proportions: Vec<(f64, usize, f64, f64)>,
    pub(crate) compared: GoldenComparison,
}

#[derive(Debug, Deserialize)]
pub(crate) struct GoldenCorrelation {
    pub(crate) x: Vec<f64>,
    pub(crate) y: Vec<f64>,
    pub(crate) coefficients: [f64; 3],
    pub(crate) p: [Option<f64>; 3],
}

#[derive(Deserialize)]
pub(crate) struct GoldenTies {
    pub(crate) predicted: Vec<Vec<f64>>,
    pub(crate) gold: Vec<Vec<f64>>,
    pub(crate) accuracy: f64,
    pub(crate) uncalibrated: f64,
    pub(crate) epsilon: f64,
}

#[derive(Deserialize)]
pub(crate) struct GoldenCategories {
    pub(crate) first: Vec<i64>,
    pub(crate) second: Vec<i64>,
    pub(crate) kappas: [f64; 3],
    pub(crate) cramers_v: f64,
    pub(crate) corrected: f64,
}

#[derive(Deserialize)]
pub(crate) struct GoldenStrengths {
    pub(crate) candidates: usize,
    pub(crate) prior: f64,
    pub(crate) comparisons: Vec<(usize, usize, f64)>,
    pub(crate) strengths: Vec<f64>,
}

/// Contexts of four; the difference, its interval, p of t and of all swaps: pooled, per context, systems, pairs.
#[derive(Deserialize)]
pub(crate) struct GoldenComparison {
    pub(crate) first: Vec<f64>,
    pub(crate) second: Vec<f64>,
    pub(crate) gold: Vec<f64>,
    pub(crate) differences: Vec<(f64, f64, f64, f64, f64)>,
    pub(crate) williams_p: f64,
}
