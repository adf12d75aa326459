//! Counts over equal bins.

use serde::Serialize;

/// Counts over equal bins of a range. Values outside count in the first or last bin; the upper end belongs to the last.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Histogram {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) counts: Vec<u64>,
    pub(crate) total: u64,
    pub(crate) sum: f64,
}

impl Histogram {
    pub(crate) fn new(low: f64, high: f64, bins: usize) -> Self {
        Self { low, high, counts: vec![0; bins], total: 0, sum: 0.0 }
    }

    /// Chooses the range from the values, with ends rounded for an axis. `None` without finite values.
    pub(crate) fn from_values(values: &[f64], bins: usize) -> Option<Self> {
        let (low, high) = range(values)?;
        // Equal values would give bins without width.
        let (low, high) = if low == high { (low - 0.5, high + 0.5) } else { (low, high) };
        let mut histogram = Self::new(low, high, bins);
        values.iter().filter(|v| v.is_finite()).for_each(|v| histogram.add(*v));
        Some(histogram)
    }

    pub(crate) fn add(&mut self, value: f64) {
        let share = (value - self.low) / (self.high - self.low);
        let bin = ((share * self.counts.len() as f64).max(0.0) as usize).min(self.counts.len() - 1);
        self.counts[bin] += 1;
        self.total += 1;
        self.sum += value;
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        (self.total > 0).then(|| self.sum / self.total as f64)
    }

    pub(crate) fn edge(&self, bin: usize) -> f64 {
        self.low + (self.high - self.low) * bin as f64 / self.counts.len() as f64
    }
}

/// Minimum and maximum of the finite values.
pub(crate) fn range(values: &[f64]) -> Option<(f64, f64)> {
    values.iter().copied().filter(|v| v.is_finite()).fold(None, |range, v| {
        let (low, high) = range.unwrap_or((v, v));
        Some((f64::min(low, v), f64::max(high, v)))
    })
}
