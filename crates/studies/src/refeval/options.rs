//! The options of `refeval`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::question::LayoutOptions;

/// How a unit is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JudgementMode {
    /// Probabilities of the labels; nothing is written
    #[default]
    Label,
    /// Generated JSON with a reason and the verdict
    Generate,
}

/// The rule by which an answer is correct, incorrect or unrelated to a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JudgementRule {
    /// As in the paper: partly right is correct
    #[default]
    Paper,
    /// A correct answer must state the unit
    Strict,
}

/// A baseline for the judgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RefEvalBaseline {
    /// One question, answer and judgement per unit
    OneByOne,
    /// Judgement by the evaluator without the units
    NoReference,
    /// BLEU of each answer and each unit of its question
    Bleu,
    /// Cosine of each answer and each unit of its question
    Embedding,
}

/// Options of `Ref-Eval`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RefEvalParams {
    /// Documents: files or folders; repeatable
    ///
    /// Text, Markdown, or JSON lines with `id` and `text`. In a file of samples the contexts are the documents.
    #[schemars(length(min = 1), extend("form" = "FILE|DIR", "signed" = "method"))]
    pub documents: Vec<PathBuf>,
    /// Read only the first N documents
    #[schemars(range(min = 1), extend("form" = "N", "signed" = "method"))]
    pub limit: Option<usize>,
    /// Model to examine
    ///
    /// It and the evaluator (--model) are loaded in turn if memory does not hold both.
    #[schemars(extend("form" = "NAME|PATH", "signed" = "method"))]
    pub evaluated: Option<String>,
    /// File of answers instead of an evaluated model
    ///
    /// JSON lines with the `id` of a question, as in `questions.jsonl` of a run with --until questions, and the
    /// `answer`. Further rounds follow while the file has answers to their questions.
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub answers: Option<PathBuf>,
    /// Table `units` of another run, or your own
    ///
    /// The statements of each passage.
    #[schemars(extend("form" = "FILE", "table" = "units", "signed" = "method"))]
    pub units: Option<PathBuf>,
    /// Human judgements to compare with
    ///
    /// JSON lines with a `unit` and a `label`: correct, incorrect, or unrelated if an answer does not mention the unit.
    #[schemars(extend("form" = "FILE", "scores" = false))]
    pub gold: Option<PathBuf>,
    /// Encoder for the clusters of units
    #[schemars(length(min = 1), extend("form" = "NAME|PATH"))]
    #[default("all-minilm-l6-v2".to_owned())]
    pub encoder: String,
    /// Longest passage, in tokens of the encoder
    #[schemars(range(min = 8), extend("form" = "N"))]
    #[default(256)]
    pub passage_tokens: u32,
    /// Maximum overlap of passages, in tokens
    #[schemars(extend("form" = "N"))]
    #[default(32)]
    pub overlap: u32,
    /// Longest unit, in words
    ///
    /// Longer units are dropped and counted.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(20)]
    pub unit_words: u32,
    /// Most units in a cluster
    ///
    /// Each cluster has one question.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(8)]
    pub cluster_units: u32,
    /// Longest question, in words
    ///
    /// Longer questions are discarded.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(50)]
    pub question_words: u32,
    /// Longest answer requested in the prompt, in words
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(200)]
    pub answer_words: u32,
    /// Longest answer, in tokens
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(320)]
    pub answer_tokens: u32,
    /// Longest list of units, in tokens
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(512)]
    pub max_tokens: u32,
    /// Maximum number of rounds
    ///
    /// A round that covers no unit also ends the run.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(5)]
    pub rounds: u32,
    /// Follow-up questions after an answer in a round
    ///
    /// They address units that an answer leaves open.
    #[schemars(range(max = 20), extend("form" = "N"))]
    #[default(1)]
    pub follow_ups: u32,
    /// How to judge a unit
    pub verdict: JudgementMode,
    /// Rule for correct, incorrect and unrelated
    ///
    /// By `paper` an answer that agrees in part is correct, one that admits not to know is incorrect, and only one with
    /// nothing of the unit is unrelated. By `strict` a correct answer states the unit, an incorrect one contradicts it,
    /// and an unrelated one leaves it open, for example by admitting not to know.
    pub rule: JudgementRule,
    /// Subject of the documents, such as law
    ///
    /// The prompts mention it. Omitted, they name no subject.
    #[schemars(length(min = 1), extend("form" = "TEXT"))]
    pub domain: Option<String>,
    /// Request an answer to the question alone
    ///
    /// Omitted, an answer may include related content, as in the paper.
    pub no_related: bool,
    /// Do not query how much each unit matters
    ///
    /// All units are then vital.
    pub no_weights: bool,
    /// Baseline to compare judgements with; repeatable
    pub baseline: Vec<RefEvalBaseline>,
    /// Prompt to replace a built-in one; repeatable
    ///
    /// Names: units, weight, name, question, answer, judgement and no-reference.
    #[schemars(extend("form" = "NAME=FILE", "signed" = "method"))]
    pub prompt: Vec<String>,
    /// How prompts and answers are laid out.
    #[serde(flatten)]
    pub layout: LayoutOptions,
}

impl RefEvalParams {
    pub(super) fn has(&self, baseline: RefEvalBaseline) -> bool {
        self.baseline.contains(&baseline)
    }
}
