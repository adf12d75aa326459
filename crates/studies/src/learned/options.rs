//! The options of `learn` and of `learned`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MethodError;
use crate::question::first_duplicate;

/// A block of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FeatureBlock {
    /// Token log-probabilities, with and without the source
    Likelihood,
    /// Counts without a model: length, repetition, copied text
    Surface,
    /// Hidden state of the model, averaged over the tokens
    State,
    /// State after reading that the first of two is better
    Comparison,
}

impl FeatureBlock {
    /// All blocks in column order.
    pub(super) const ALL: [Self; 4] = [Self::Likelihood, Self::Surface, Self::State, Self::Comparison];

    /// The name in tables.
    pub(super) fn name(self) -> String {
        probity_options::name(&self)
    }

    /// Whether it contains the columns of the block with this name in a feature table.
    pub(super) fn has(self, block: &str) -> bool {
        block == self.name() || (self == Self::Likelihood && block == LOG_PROBABILITY)
    }
}

/// The block with the single column that needs no labels.
pub(super) const LOG_PROBABILITY: &str = "log_probability";

/// Options of `learn`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct LearnParams {
    /// Gold scores to learn from; repeatable
    ///
    /// Each attribute has a separate head. Omitted, preferences are learnt.
    #[schemars(inner(length(min = 1)), extend("form" = "NAME", "signed" = "attributes"))]
    pub attribute: Vec<String>,
    /// Features to use, separated by commas
    ///
    /// Omitted: likelihood, surface and state for scores; state alone for preferences, where the other blocks reduce
    /// accuracy if labels are few. `comparison` needs samples with two candidates.
    #[schemars(extend("form" = "BLOCK,…"))]
    pub features: Vec<FeatureBlock>,
    /// Table of scores to use as features; repeatable
    ///
    /// Any table of scores that a run wrote (`scores.jsonl`): ratings, log-odds, metrics.
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub scores: Vec<PathBuf>,
    /// Word for a candidate in prompts
    #[schemars(length(min = 1), extend("form" = "WORD"))]
    #[default("summary".to_owned())]
    pub noun: String,
    /// Prompt template: NAME or FILE
    ///
    /// The candidate follows the prompt. Built in: 1, the template of `gpt-score`.
    #[schemars(extend("form" = "NAME|FILE", "signed" = "method"))]
    #[default("1".to_owned())]
    pub template: String,
    /// Layer whose output is the state
    ///
    /// Omitted: two thirds of the layers.
    #[schemars(extend("form" = "N"))]
    pub layer: Option<u32>,
    /// Folds of the cross-validation
    ///
    /// All samples of a context are in the same fold.
    #[schemars(range(min = 2, max = 1000), extend("form" = "N"))]
    #[default(10)]
    pub folds: u32,
    /// Numbers of labels for the learning curve
    #[schemars(inner(range(min = 2)), extend("form" = "N,…", "scores" = false))]
    #[default(vec![20, 30, 50, 100, 200, 300, 500])]
    pub curve: Vec<u32>,
    /// Random draws for each point of --curve
    #[schemars(range(min = 2, max = 1000), extend("form" = "N", "scores" = false))]
    #[default(20)]
    pub draws: u32,
    /// Random seed
    ///
    /// For folds and draws.
    #[schemars(extend("form" = "N"))]
    pub seed: u64,
}

impl LearnParams {
    /// The feature blocks to learn from.
    pub(super) fn blocks(&self) -> &[FeatureBlock] {
        match (self.features.as_slice(), self.attribute.is_empty()) {
            ([], true) => &[FeatureBlock::State],
            ([], false) => &[FeatureBlock::Likelihood, FeatureBlock::Surface, FeatureBlock::State],
            (named, _) => named,
        }
    }

    pub(super) fn has(&self, block: FeatureBlock) -> bool {
        self.blocks().contains(&block)
    }

    /// Refuses options that contradict each other.
    pub(super) fn check(&self) -> Result<(), MethodError> {
        if let Some(twice) = first_duplicate(&self.features) {
            return MethodError::refuse(format!("--features {}", twice.name()), "repeated", "name each block once");
        }
        if let Some(twice) = first_duplicate(&self.attribute) {
            return MethodError::refuse(format!("--attribute {twice}"), "repeated", "name each attribute once");
        }
        if let Some(twice) = first_duplicate(&self.curve) {
            return MethodError::refuse(format!("--curve {twice}"), "repeated", "name each number once");
        }
        if let (Some(_), false) = (self.layer, self.has(FeatureBlock::State) || self.has(FeatureBlock::Comparison)) {
            let hint = "omit --layer, or add `state` or `comparison` to --features";
            return MethodError::refuse("--layer", "no features depend on a layer", hint);
        }
        Ok(())
    }
}

/// Options of `learned`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct LearnedParams {
    /// Run folder of `probity learn`, or its head.jsonl
    #[schemars(length(min = 1), extend("form" = "FILE|DIR", "signed" = "method"))]
    pub head: PathBuf,
    /// Attribute of the head to score; repeatable
    ///
    /// Omitted: all.
    #[schemars(inner(length(min = 1)), extend("form" = "NAME", "signed" = "attributes"))]
    pub attribute: Vec<String>,
    /// Table of scores that the head uses; repeatable
    ///
    /// The same tables as in `learn`, for these samples and in the same order.
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub scores: Vec<PathBuf>,
    /// Skip comparison with gold scores and preferences
    #[schemars(extend("scores" = false))]
    pub no_gold: bool,
}
