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
    /// From the probabilities of true and false; nothing is written.
    #[default]
    Label,
    /// A rationale is written, and its last "the claim is true" or "the claim is false" counts.
    Generate,
    /// A rationale is written, and the probabilities of true and false behind its last "the claim is" count.
    RationaleLabel,
}

impl ClaimMode {
    /// The same for a judge of whole texts.
    pub(super) fn of_judge(self) -> VerdictMode {
        match self {
            Self::Label => VerdictMode::Label,
            Self::Generate => VerdictMode::Generate,
            Self::RationaleLabel => VerdictMode::RationaleLabel,
        }
    }
}

/// What a claim without a readable label counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unread {
    /// As one that is false: a judge that cannot be read does not raise a score.
    #[default]
    False,
    /// As none: the score is over the claims that were read.
    LeftOut,
}

/// A judge of whole critiques that claims are held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Baseline {
    /// Each critique is rated from 1 to 7.
    Single,
    /// Two critiques of the same answer are compared, in both orders, with ties.
    Pairwise,
}

/// Options of `MetaCritique`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct MetaCritiqueParams {
    /// Critiques with claims and labels by people, as the public files of `MetaCritique` have them; the samples come of
    /// it. Without --model the labels themselves are aggregated; with --model it judges the same claims and is held
    /// against the labels.
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub labels: Option<PathBuf>,
    /// How a claim is decided, and whole critiques where they are judged.
    pub verdict: ClaimMode,
    /// Do not show the reference answer where claims are checked for precision, and make none.
    pub without_reference_answer: bool,
    /// What a claim counts as whose label cannot be read. Scores under the other convention stand beside.
    pub unread: Unread,
    /// Judge whole critiques besides, as the paper's baselines do. May be given several times.
    pub baseline: Vec<Baseline>,
    /// Let the model rewrite each answer as its critique asks for, and judge whether that is better: than the answer,
    /// and than what the other critiques made of it.
    pub refine: bool,
    /// The table `references` of another run, or your own: reference answers and critiques that the data lack.
    #[schemars(extend("form" = "FILE", "table" = "references", "signed" = "method"))]
    pub references: Option<PathBuf>,
    /// The table `aius` of another run, or your own: the claims of each critique.
    #[schemars(extend("form" = "FILE", "table" = "aius", "signed" = "method"))]
    pub aius: Option<PathBuf>,
    /// A prompt of your own in the place of a built-in one: answer, critique, aius, precision, recall, refined, or of
    /// judges single, pairwise and refined-pairs. May be given several times.
    #[schemars(extend("form" = "NAME=FILE", "signed" = "method"))]
    pub prompt: Vec<String>,
    /// How prompts and answers are laid out.
    #[serde(flatten)]
    pub layout: LayoutOptions,
    /// Longest reference, list of claims and refined answer, in tokens.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(512)]
    pub max_tokens: u32,
    /// Longest rationale, in tokens.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(256)]
    pub rationale_tokens: u32,
    /// The most claims of one critique; what a list has beyond them is left out, and the critique is `truncated`.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(40)]
    pub most_aius: u32,
    /// Draws of the bootstrap over samples, for the leaderboard.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(1000)]
    pub rounds: u32,
    /// Do not compare the result with the gold scores or preferences in the data.
    #[schemars(extend("scores" = false))]
    pub no_gold: bool,
    /// Seed of the bootstrap.
    #[default(0)]
    pub seed: u64,
}

impl MetaCritiqueParams {
    pub(super) fn has(&self, baseline: Baseline) -> bool {
        self.baseline.contains(&baseline)
    }
}
