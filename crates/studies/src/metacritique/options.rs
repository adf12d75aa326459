//! The options of `metacritique`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::judge::VerdictMode;
use crate::question::LayoutOptions;

/// How a claim is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClaimMode {
    /// Probabilities of true and false; nothing is written
    #[default]
    Label,
    /// Written rationale; its last "the claim is …" counts
    Generate,
    /// Written rationale, then the probabilities of true and false
    RationaleLabel,
}

impl ClaimMode {
    /// The verdict mode for a judge of whole texts.
    pub(super) fn verdict_mode(self) -> VerdictMode {
        match self {
            Self::Label => VerdictMode::Label,
            Self::Generate => VerdictMode::Generate,
            Self::RationaleLabel => VerdictMode::RationaleLabel,
        }
    }
}

/// The label assumed for a claim without a readable one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unread {
    /// As false, which does not raise a score
    #[default]
    False,
    /// Not at all: scores are over the other claims
    LeftOut,
}

/// A judge of whole critiques, as a baseline for claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Baseline {
    /// Rate each critique from 1 to 7
    Single,
    /// Compare two critiques, in both orders, with ties
    Pairwise,
}

/// Options of `MetaCritique`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct MetaCritiqueParams {
    /// Critiques with claims and human labels
    ///
    /// A file in the form of the public `MetaCritique` files; the samples come from it. Without --model the labels are
    /// aggregated. With --model it judges the same claims and is compared with the labels.
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub labels: Option<PathBuf>,
    /// How to decide a claim
    ///
    /// Also applies to whole critiques (--baseline, --refine).
    pub verdict: ClaimMode,
    /// Check precision without the reference answer
    ///
    /// None is generated either.
    pub without_reference_answer: bool,
    /// How to count a claim without a readable label
    ///
    /// The summary also has the scores under the other rule.
    pub unread: Unread,
    /// Also judge whole critiques; repeatable
    pub baseline: Vec<Baseline>,
    /// Rewrite answers as critiques ask, and judge them
    ///
    /// The model rewrites each answer. The result is compared with the answer, and with the results of other critiques.
    pub refine: bool,
    /// Table `references` of another run, or your own
    ///
    /// Reference answers and critiques that the data lack.
    #[schemars(extend("form" = "FILE", "table" = "references", "signed" = "method"))]
    pub references: Option<PathBuf>,
    /// Table `aius` of another run, or your own
    ///
    /// The claims of each critique.
    #[schemars(extend("form" = "FILE", "table" = "aius", "signed" = "method"))]
    pub aius: Option<PathBuf>,
    /// Prompt to replace a built-in one; repeatable
    ///
    /// Names: answer, critique, aius, precision, recall, refined; for judges single, pairwise and refined-pairs.
    #[schemars(extend("form" = "NAME=FILE", "signed" = "method"))]
    pub prompt: Vec<String>,
    /// How prompts and answers are laid out.
    #[serde(flatten)]
    pub layout: LayoutOptions,
    /// Longest generated text, in tokens
    ///
    /// Applies to references, lists of claims and refined answers.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(512)]
    pub max_tokens: u32,
    /// Longest rationale, in tokens
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(256)]
    pub rationale_tokens: u32,
    /// Maximum number of claims in one critique
    ///
    /// Further claims are dropped, and the critique is `truncated`.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(40)]
    pub most_aius: u32,
    /// Bootstrap draws for the leaderboard
    ///
    /// Draws are over samples.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(1000)]
    pub rounds: u32,
    /// Skip comparison with gold scores and preferences
    #[schemars(extend("scores" = false))]
    pub no_gold: bool,
    /// Seed of the bootstrap
    #[default(0)]
    pub seed: u64,
}

impl MetaCritiqueParams {
    pub(super) fn has(&self, baseline: Baseline) -> bool {
        self.baseline.contains(&baseline)
    }
}
