//! The options of `meta`.

use std::path::PathBuf;

use probity_data::ReadOptions;
use probity_stats::{Resampling, SelectionRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::trust::Promise;

/// Options of `meta`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MetaParams {
    /// Scores: a run's folder, or a table (JSON lines, CSV, TSV or Parquet); once for each
    #[schemars(length(min = 1), extend("form" = "FILE|DIR", "signed" = "method"))]
    pub scores: Vec<PathBuf>,
    /// Gold: samples, or a table of scores (whatever has a column `item`). Without it, the samples that the first run
    /// kept
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub gold: Option<PathBuf>,
    /// What people said when `probity label` asked them: besides gold, of what gold says nothing; once for each file
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub labels: Vec<PathBuf>,
    /// How samples that are gold are read.
    #[serde(flatten)]
    pub read: ReadOptions,
    /// Only these metrics, separated by commas
    #[schemars(extend("form" = "NAMES", "signed" = "metrics"))]
    pub metric: Vec<String>,
    /// Only these gold attributes, separated by commas
    #[schemars(extend("form" = "NAMES", "signed" = "attributes"))]
    pub attribute: Vec<String>,
    /// Print every table: other levels, pairs, what was compared, what labels promise
    #[schemars(extend("scores" = false))]
    pub details: bool,
    /// Also average each metric's figures over the attributes
    pub average: bool,
    /// Test the difference between two metrics: Williams' test, t over contexts, randomisation; once for each pair
    #[schemars(extend("form" = "A,B"))]
    pub compare: Vec<String>,
    /// Swaps that a randomisation test draws where it cannot go through all (more than 4,096)
    #[schemars(range(min = 1, max = 1_000_000), extend("form" = "N"))]
    #[default(1000)]
    pub rounds: u32,
    /// How often an interval holds what it is of
    #[serde(deserialize_with = "share")]
    #[schemars(extend("form" = "SHARE"))]
    #[default(0.95)]
    pub confidence: f64,
    /// Of pairs that are left to the judge, people are to see this share otherwise at most
    #[serde(deserialize_with = "share")]
    #[schemars(extend("form" = "SHARE"))]
    #[default(0.2)]
    pub alpha: f64,
    /// How often labels may mislead about that
    #[serde(deserialize_with = "share")]
    #[schemars(extend("form" = "SHARE"))]
    #[default(0.1)]
    pub delta: f64,
    /// Seed of what is drawn: swaps, pairs of items, halves of the labels
    #[schemars(extend("form" = "N"))]
    pub seed: u64,
}

impl MetaParams {
    /// How sure intervals are, and how tests draw.
    pub(crate) fn resampling(&self) -> Resampling {
        Resampling { rounds: self.rounds as usize, confidence: self.confidence, seed: self.seed }
    }
}

impl MetaParams {
    /// What is to be promised of scores.
    pub(crate) fn promise(&self) -> Promise {
        let rule = SelectionRule::new(self.alpha, self.delta).expect("options are shares");
        Promise { rule, confidence: self.confidence, seed: self.seed }
    }
}

/// An interval that always holds what it is of says nothing, and neither does one that never does.
fn share<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let share = f64::deserialize(deserializer)?;
    if share > 0.0 && share < 1.0 {
        return Ok(share);
    }
    Err(serde::de::Error::custom("expected a number above 0 and below 1"))
}
