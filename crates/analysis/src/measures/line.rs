//! A regression line with its band.

use probity_stats::{Range, jackknife};

/// Regression line of score on gold, with a band.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedLine {
    /// Score at a gold score of 0.
    pub intercept: f64,
    /// Change of the score with gold.
    pub slope: f64,
    /// `(gold, low, high)` from left to right; empty if there are too few samples or all are equal.
    pub band: Vec<(f64, f64, f64)>,
}

/// Number of steps along the band.
const BAND_STEPS: usize = 40;

impl FittedLine {
    /// Least squares fit of the `(score, gold)` of each sample, with a pointwise jackknife band over samples from gold
    /// `low` to `high`. `None` if gold is constant.
    pub fn fit(samples: &[Vec<(f64, f64)>], (low, high): (f64, f64), confidence: f64) -> Option<Self> {
        let sums: Vec<[f64; 5]> = samples.iter().map(|sample| sums(sample, low)).collect();
        let fit = |kept: &mut dyn Iterator<Item = &[f64; 5]>| {
            let total = kept.fold([0.0; 5], |total, one| std::array::from_fn(|k| total[k] + one[k]));
            let [n, x, y, xx, xy] = total;
            let spread = n * xx - x * x;
            // Gold values that differ by rounding alone give no line.
            (spread > 1e-9 * n * xx).then(|| {
                let slope = (n * xy - x * y) / spread;
                ((y - slope * x) / n, slope)
            })
        };
        let (at_low, slope) = fit(&mut sums.iter())?;
        let at_step = |step: usize| {
            let along = (high - low) * step as f64 / BAND_STEPS as f64;
            let at = |kept: &[usize]| {
                fit(&mut kept.iter().map(|sample| &sums[*sample])).map(|(start, slope)| start + slope * along)
            };
            jackknife(samples.len(), confidence, Range::Unbounded, at)
                .map(|found| (low + along, found.low, found.high))
                .ok()
        };
        // All of the band or none: a band with gaps would look too certain.
        let band: Option<Vec<_>> = if samples.len() > 2 { (0..=BAND_STEPS).map(at_step).collect() } else { None };
        Some(Self { intercept: at_low - slope * low, slope, band: band.unwrap_or_default() })
    }
}

/// n, Σx, Σy, Σx², Σxy, where x is relative to `low` to keep the sums small.
fn sums(sample: &[(f64, f64)], low: f64) -> [f64; 5] {
    sample.iter().fold([0.0; 5], |[n, sx, sy, sxx, sxy], (y, gold)| {
        let x = gold - low;
        [n + 1.0, sx + x, sy + y, sxx + x * x, sxy + x * y]
    })
}
