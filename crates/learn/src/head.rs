//! Linear heads.

use serde::{Deserialize, Serialize};

use crate::cholesky::dot;

/// A linear function of mean-centred features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinearHead {
    /// Coefficient of each feature.
    pub coefficients: Vec<f64>,
    /// Mean of each feature over the training rows.
    pub means: Vec<f64>,
    /// Value at the feature means.
    pub intercept: f64,
}

impl LinearHead {
    /// Predicts a row of features: a score, or log-odds.
    pub fn predict(&self, row: &[f64]) -> f64 {
        let distances: Vec<f64> = row.iter().zip(&self.means).map(|(x, mean)| x - mean).collect();
        self.intercept + dot(&self.coefficients, &distances)
    }
}
