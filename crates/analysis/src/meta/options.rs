//! The options of `meta`.

use std::path::PathBuf;

use probity_data::ReadOptions;
use probity_stats::{CONFIDENCE, Resampling, SelectionRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::thresholds::{ALPHA, DELTA};
use crate::trust::Promise;

/// Options of `meta`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MetaParams {
    /// Scores: a run folder or a table; repeatable
    ///
    /// A table is JSON lines, CSV, TSV or Parquet.
    #[schemars(length(min = 1), extend("form" = "FILE|DIR", "signed" = "method"))]
    pub scores: Vec<PathBuf>,
    /// Gold: samples, or a table of scores
    ///
    /// A table of scores has a column `item`. Without --gold, gold comes from the first run folder with stored samples.
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub gold: Option<PathBuf>,
    /// Human labels from `probity label`; repeatable
    ///
    /// They supplement gold where it has no value.
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
    /// Print every table
    ///
    /// Adds other levels, pairs, the scores compared, and the guarantees from labels.
    #[schemars(extend("scores" = false))]
    pub details: bool,
    /// Also average figures over the attributes
    pub average: bool,
    /// Test the difference of two metrics; repeatable
    ///
    /// The tests are Williams' test, t over contexts, and randomisation.
    #[schemars(extend("form" = "A,B"))]
    pub compare: Vec<String>,
    /// Random swaps of a randomisation test
    ///
    /// Used if there are more than 4,096 possible swaps; else the test is exact.
    #[schemars(range(min = 1, max = 1_000_000), extend("form" = "N"))]
    #[default(1000)]
    pub rounds: u32,
    /// Confidence level of intervals
    #[serde(deserialize_with = "share")]
    #[schemars(extend("form" = "SHARE"))]
    #[default(CONFIDENCE)]
    pub confidence: f64,
    /// Allowed share of disagreement with people
    ///
    /// It applies to the pairs that can be left to the metric (docs/promises.md).
    #[serde(deserialize_with = "share")]
    #[schemars(extend("form" = "SHARE"))]
    #[default(ALPHA)]
    pub alpha: f64,
    /// Allowed probability that --alpha is exceeded
    ///
    /// The labels may mislead by chance, and too many pairs are then left to the metric.
    #[serde(deserialize_with = "share")]
    #[schemars(extend("form" = "SHARE"))]
    #[default(DELTA)]
    pub delta: f64,
    /// Random seed
    ///
    /// It sets the swaps of randomisation tests, the pair drawn from each labelled item, the labels that fit the line
    /// from scores to human scores, and the order of what to label.
    #[schemars(extend("form" = "N"))]
    pub seed: u64,
}

impl MetaParams {
    /// Confidence level and random draws of tests.
    pub(crate) fn resampling(&self) -> Resampling {
        Resampling { rounds: self.rounds as usize, confidence: self.confidence, seed: self.seed }
    }
}

impl MetaParams {
    /// Parameters of the guarantees.
    pub(crate) fn promise(&self) -> Promise {
        let rule = SelectionRule::new(self.alpha, self.delta).expect("options are shares");
        Promise { rule, confidence: self.confidence, seed: self.seed }
    }
}

/// Reads a share strictly between 0 and 1: an interval that always or never contains the truth is useless.
fn share<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let share = f64::deserialize(deserializer)?;
    if share > 0.0 && share < 1.0 {
        return Ok(share);
    }
    Err(serde::de::Error::custom("expected a number above 0 and below 1"))
}
