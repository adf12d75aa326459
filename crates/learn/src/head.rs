//! What was learnt.

use serde::{Deserialize, Serialize};

use crate::cholesky::dot;

/// A linear function of features as they come, each held against its mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinearHead {
    /// Of each feature.
    pub coefficients: Vec<f64>,
    /// Each feature's mean over the rows that were learnt from.
    pub means: Vec<f64>,
    /// What a row of means comes to.
    pub intercept: f64,
}

impl LinearHead {
    /// What a row of features comes to: a score, or log-odds.
    pub fn predict(&self, row: &[f64]) -> f64 {
        let distances: Vec<f64> = row.iter().zip(&self.means).map(|(x, mean)| x - mean).collect();
        self.intercept + dot(&self.coefficients, &distances)
    }
}
