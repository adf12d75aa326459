//! The options of `learn` and of `learned`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MethodError;
use crate::question::given_twice;

/// A block of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FeatureBlock {
    /// How probable the model finds the candidate's tokens, with what it is about before it and without.
    Likelihood,
    /// What can be counted without a model: length, repetition, what was copied from the source and in which order.
    Surface,
    /// The model's state while it reads the candidate, the mean over its tokens.
    State,
    /// The model's state while it reads that the candidate, shown first, is the better one of two. Of samples with two
    /// candidates.
    Comparison,
}

impl FeatureBlock {
    /// All of them, in the order of their columns.
    pub(super) const ALL: [Self; 4] = [Self::Likelihood, Self::Surface, Self::State, Self::Comparison];

    /// What tables call it.
    pub(super) fn name(self) -> String {
        probity_options::name(&self)
    }

    /// Whether it has the columns that go by this name in a table of features.
    pub(super) fn has(self, block: &str) -> bool {
        block == self.name() || (self == Self::Likelihood && block == LOG_PROBABILITY)
    }
}

/// The block of the one column that needs no label.
pub(super) const LOG_PROBABILITY: &str = "log_probability";

/// Options of `learn`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct LearnParams {
    /// Which of the candidates' scores are learnt. May be given several times; each has a head of its own. Left out: the
    /// samples' preferences.
    #[schemars(inner(length(min = 1)), extend("form" = "NAME", "signed" = "attributes"))]
    pub attribute: Vec<String>,
    /// The features, with commas between them. Left out: likelihood, surface and state; of preferences state alone, from
    /// which the others take more than they give where labels are few.
    #[schemars(extend("form" = "BLOCK,…"))]
    pub features: Vec<FeatureBlock>,
    /// A table of scores whose columns are features too, as runs write them (`scores.jsonl`): ratings, log-odds, metrics.
    /// May be given several times.
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub scores: Vec<PathBuf>,
    /// What a candidate is called in the prompt.
    #[schemars(length(min = 1), extend("form" = "WORD"))]
    #[default("summary".to_owned())]
    pub noun: String,
    /// The prompt that the candidate follows: the built-in template of `gpt-score` (1) or a file of your own.
    #[schemars(extend("form" = "NAME|FILE", "signed" = "method"))]
    #[default("1".to_owned())]
    pub template: String,
    /// Behind how many layers the state is taken. Left out: two thirds of them.
    #[schemars(extend("form" = "N"))]
    pub layer: Option<u32>,
    /// Folds of the cross-validation; a context is in one fold.
    #[schemars(range(min = 2, max = 1000), extend("form" = "N"))]
    #[default(10)]
    pub folds: u32,
    /// How many labels the points of the learning curve have.
    #[schemars(inner(range(min = 2)), extend("form" = "N,…", "scores" = false))]
    #[default(vec![20, 30, 50, 100, 200, 300, 500])]
    pub curve: Vec<u32>,
    /// How often labels are drawn for a point of the learning curve.
    #[schemars(range(min = 2, max = 1000), extend("form" = "N", "scores" = false))]
    #[default(20)]
    pub draws: u32,
    /// Of folds and draws.
    #[schemars(extend("form" = "N"))]
    pub seed: u64,
}

impl LearnParams {
    /// The features that are learnt from.
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

    /// Refuses what contradicts itself.
    pub(super) fn check(&self) -> Result<(), MethodError> {
        if let Some(twice) = given_twice(&self.features) {
            return MethodError::refuse(format!("--features {}", twice.name()), "given twice", "name each block once");
        }
        if let Some(twice) = given_twice(&self.attribute) {
            return MethodError::refuse(format!("--attribute {twice}"), "given twice", "name each attribute once");
        }
        if let Some(twice) = given_twice(&self.curve) {
            return MethodError::refuse(format!("--curve {twice}"), "given twice", "name each number once");
        }
        if let (Some(_), false) = (self.layer, self.has(FeatureBlock::State) || self.has(FeatureBlock::Comparison)) {
            let hint = "leave --layer out, or add `state` or `comparison` to --features";
            return MethodError::refuse("--layer", "it says where the state is taken, and none is", hint);
        }
        Ok(())
    }
}

/// Options of `learned`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct LearnedParams {
    /// What was learnt: the folder of a run of `probity learn`, or its `head.jsonl`.
    #[schemars(length(min = 1), extend("form" = "FILE|DIR", "signed" = "method"))]
    pub head: PathBuf,
    /// Which of its attributes is scored. May be given several times. Left out: all.
    #[schemars(inner(length(min = 1)), extend("form" = "NAME", "signed" = "attributes"))]
    pub attribute: Vec<String>,
    /// Tables of scores that the head was learnt with, for these samples, in the same order.
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub scores: Vec<PathBuf>,
    /// Do not compare the result with the gold scores or preferences in the data.
    #[schemars(extend("scores" = false))]
    pub no_gold: bool,
}
