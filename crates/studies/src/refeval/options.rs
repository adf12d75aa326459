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
    /// From the probabilities of correct, incorrect and unrelated; nothing is written.
    #[default]
    Label,
    /// From JSON with a reason and the verdict.
    Generate,
}

/// What makes an answer correct, incorrect or unrelated to a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JudgementRule {
    /// As in the paper: partial agreement is correct, an answer that admits not to know is incorrect, and unrelated is
    /// only an answer with nothing of the unit in it.
    #[default]
    Paper,
    /// Correct states the unit, incorrect contradicts it, and unrelated leaves it open: also an answer that admits not
    /// to know.
    Strict,
}

/// What the judgements are held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RefEvalBaseline {
    /// A question, an answer and a judgement for each unit by itself.
    OneByOne,
    /// The evaluator says whether answers are right by what it knows, without the units.
    NoReference,
    /// BLEU of each answer against each unit that was asked for.
    Bleu,
    /// Cosine of the embeddings of each answer and each unit that was asked for.
    Embedding,
}

/// Options of `Ref-Eval`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RefEvalParams {
    /// Documents: files of text and Markdown, JSON lines with `id` and `text` (or samples, whose contexts they are), and
    /// folders of them. May be given several times.
    #[schemars(length(min = 1), extend("form" = "FILE|DIR", "signed" = "method"))]
    pub documents: Vec<PathBuf>,
    /// Read only the first N documents.
    #[schemars(range(min = 1), extend("form" = "N", "signed" = "method"))]
    pub limit: Option<usize>,
    /// The model that is examined. It and the evaluator (--model) take turns where memory does not hold both.
    #[schemars(extend("form" = "NAME|PATH", "signed" = "method"))]
    pub evaluated: Option<String>,
    /// Answers in the place of an evaluated model: JSON lines with the `id` of a question, as `questions.jsonl` of a run
    /// with --until questions has it, and the `answer`. Further rounds are asked as long as it has answers to them.
    #[schemars(extend("form" = "FILE", "signed" = "method"))]
    pub answers: Option<PathBuf>,
    /// The table `units` of another run, or your own: what each passage states.
    #[schemars(extend("form" = "FILE", "table" = "units", "signed" = "method"))]
    pub units: Option<PathBuf>,
    /// People's judgements, for agreement: JSON lines with a `unit` and a `label`: correct, incorrect, or unrelated,
    /// where an answer does not speak of it.
    #[schemars(extend("form" = "FILE", "scores" = false))]
    pub gold: Option<PathBuf>,
    /// The encoder whose embeddings units are clustered by.
    #[schemars(length(min = 1), extend("form" = "NAME|PATH"))]
    #[default("all-minilm-l6-v2".to_owned())]
    pub encoder: String,
    /// The longest passage, in tokens of the encoder.
    #[schemars(range(min = 8), extend("form" = "N"))]
    #[default(256)]
    pub passage_tokens: u32,
    /// How far a passage reaches back into the one before it, at most, in tokens.
    #[schemars(extend("form" = "N"))]
    #[default(32)]
    pub overlap: u32,
    /// The longest unit, in words; a longer one is left out and counted.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(20)]
    pub unit_words: u32,
    /// The most units of a cluster, for which one question is asked.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(8)]
    pub cluster_units: u32,
    /// The longest question, in words; a longer one is not asked.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(50)]
    pub question_words: u32,
    /// The longest answer that is asked for, in words.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(200)]
    pub answer_words: u32,
    /// The longest answer, in tokens.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(320)]
    pub answer_tokens: u32,
    /// The longest list of units, in tokens.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(512)]
    pub max_tokens: u32,
    /// The most rounds. A round that covers no unit is the last one, too.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(5)]
    pub rounds: u32,
    /// Questions that go on from an answer within a round, for units that it leaves open.
    #[schemars(range(max = 20), extend("form" = "N"))]
    #[default(1)]
    pub follow_ups: u32,
    /// How a unit is judged.
    pub verdict: JudgementMode,
    /// What counts as correct, incorrect and unrelated.
    pub rule: JudgementRule,
    /// The subject of the documents, for the prompts: law, medicine … Omitted: the prompts name none.
    #[schemars(length(min = 1), extend("form" = "TEXT"))]
    pub domain: Option<String>,
    /// Ask for an answer to the question alone. Omitted: an answer may go on to related content, as in the paper.
    pub no_related: bool,
    /// Do not ask how much each unit matters; all are vital then.
    pub no_weights: bool,
    /// What the judgements are held against. May be given several times.
    pub baseline: Vec<RefEvalBaseline>,
    /// A prompt of your own in the place of a built-in one: units, weight, name, question, answer, judgement or
    /// no-reference. May be given several times.
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
