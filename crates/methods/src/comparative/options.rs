//! The options of `compare`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use probity_data::Sample;
use probity_options::written_as_text;
use probity_stats::RankMethod;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smart_default::SmartDefault;

use super::budget::{Budget, PairOrder, StopAt};
use crate::pairs::PairSelection;
use crate::question::{LayoutOptions, SubjectOptions};

/// Options of comparative assessment.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ComparativeParams {
    /// What is judged.
    #[serde(flatten)]
    pub subject: SubjectOptions,
    /// The prompt: a built-in template (1 or 2) or a file of your own. May be given several times; results are averaged
    /// over templates.
    #[schemars(extend("form" = "NAME|FILE", "signed" = "method"))]
    #[default(vec!["1".to_owned()])]
    pub template: Vec<String>,
    /// How prompts and answers are laid out.
    #[serde(flatten)]
    pub layout: LayoutOptions,
    /// The two answers, for the first and for the second candidate shown. Each counts with and without a space before
    /// it.
    #[schemars(extend("form" = "FIRST,SECOND", "signed" = "labels"))]
    #[default(LabelWords::new("A", "B"))]
    pub label_words: LabelWords,
    /// Which comparisons are made in each context: `full`, or R of them: `random:R`, `no-repeat:R` (a pair in one order
    /// only), `symmetric:R` (a pair in both orders).
    #[schemars(extend("form" = "SCHEME"))]
    #[default(PairSelection::Full)]
    pub pairs: PairSelection,
    /// Ask fewer comparisons in each context: so many (80), a share of all (0.4), or `auto`, until the ranking is settled.
    /// Each pair is asked about in both orders, and which one comes next follows from what was answered and what it costs
    /// in tokens. docs/budget.md has what that brings.
    #[schemars(extend("form" = "N|SHARE|auto", "conflicts" = ["pairs", "analyses"]))]
    pub budget: Option<Budget>,
    /// Of --budget: which pair is asked about next.
    #[schemars(extend("needs" = ["budget"]))]
    pub choose: PairOrder,
    /// Of --budget: what is to be found. Pairs are chosen for it, and `auto` asks until it is settled.
    #[schemars(extend("needs" = ["budget"]))]
    pub stop: StopAt,
    /// Of --budget auto: how sure that has to be.
    #[schemars(extend("form" = "SHARE", "needs" = ["budget"], "signed_if" = ["budget=auto"]))]
    #[default(0.95)]
    pub sure: f64,
    /// How comparisons become scores: share of wins, mean probability of being better, Bradley–Terry strengths, a product
    /// of experts (the log-odds that explain all comparisons best), or the
    /// order under which the probabilities are most likely (the most likely of all orders up to 20 texts, else the best
    /// that searches find, with how far from it that may be); with `hard-` the decisions, as likely as the judge's own
    /// statistics make them (eq. 13), or, with `-symmetric`, as those of a judge without a preference for a place.
    /// `auto`: the share of wins; where all samples are pairs the mean probability, since a pair whose verdict
    /// turns with the order has won once each; with --budget the product of experts, since then a share of wins follows
    /// which others a text met.
    #[schemars(extend("form" = "METHOD"))]
    pub rank: Ranking,
    /// Over which comparisons the preference for a position is estimated and taken out; of these, pairs judged in both
    /// orders count.
    pub debias: DebiasMode,
    /// How a comparison is decided: `prob` from the labels' probabilities, or `samples:K` from K generated answers.
    #[schemars(extend("form" = "HOW"))]
    #[default(Decide::Prob)]
    pub decide: Decide,
    /// Sampling temperature of `--decide samples:K`.
    #[schemars(extend("form" = "T", "signed_if" = ["decide!=prob"]))]
    #[default(1.0)]
    pub temperature: f64,
    /// Longest answer of `--decide samples:K`, in tokens.
    #[schemars(extend("form" = "N", "signed_if" = ["decide!=prob"]))]
    #[default(5)]
    pub max_tokens: usize,
    /// Also report Spearman against the number of comparisons, and how consistent the ranks are when there are fewer
    /// candidates. Uses the comparisons that were made; needs `--pairs full`.
    #[schemars(extend("scores" = false))]
    pub analyses: bool,
    /// Draws that each point of the analyses is averaged over.
    #[schemars(extend("form" = "N", "scores" = false))]
    #[default(50)]
    pub analysis_runs: usize,
    /// Seed of everything random: chosen pairs, sampled answers, analyses.
    #[default(0)]
    pub seed: u64,
}

const AUTO: &str = "auto";

/// How comparisons become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ranking {
    /// By what the samples are.
    #[default]
    Auto,
    /// As told.
    By(RankMethod),
}

impl Ranking {
    /// What is in force for these samples.
    pub(super) fn of(self, params: &ComparativeParams, samples: &[Sample]) -> RankMethod {
        match self {
            Self::By(method) => method,
            Self::Auto if params.budget.is_some() => RankMethod::Experts,
            Self::Auto if samples.iter().all(|sample| sample.candidates.len() <= 2) => RankMethod::MeanProb,
            Self::Auto => RankMethod::WinRatio,
        }
    }
}

impl fmt::Display for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str(AUTO),
            Self::By(method) => method.fmt(f),
        }
    }
}

impl Serialize for Ranking {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ranking {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name == AUTO { Ok(Self::Auto) } else { name.parse().map(Self::By).map_err(D::Error::custom) }
    }
}

impl JsonSchema for Ranking {
    fn schema_name() -> Cow<'static, str> {
        "Ranking".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = std::iter::once(AUTO).chain(RankMethod::ALL.map(RankMethod::name)).collect();
        json_schema!({"type": "string", "enum": names})
    }
}

/// Over which comparisons one debiasing weight is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DebiasMode {
    /// Probabilities are used as they are.
    None,
    /// One weight for all comparisons of the run.
    Global,
    /// One weight per attribute, over all templates.
    PerAttribute,
    /// One weight per attribute and template: the bias of one prompt is not another's.
    #[default]
    PerPrompt,
}

/// How one comparison is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decide {
    /// From the probabilities of the two labels (paper eq. 3).
    Prob,
    /// From so many generated answers (paper eqs. 4–5).
    Samples(usize),
}

impl fmt::Display for Decide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prob => f.write_str("prob"),
            Self::Samples(k) => write!(f, "samples:{k}"),
        }
    }
}

written_as_text!(Decide);

/// The most answers that decide a comparison.
const MOST_SAMPLES: usize = 1000;

/// Why a text is no [`Decide`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum DecideError {
    /// It is neither of the two ways.
    #[error("expected prob or samples:K")]
    Form,
    /// The number of samples is no number, or more than anybody can wait for.
    #[error("`{0}` is no number of samples from 1 to {MOST_SAMPLES}")]
    Number(String),
}

impl FromStr for Decide {
    type Err = DecideError;

    fn from_str(text: &str) -> Result<Self, DecideError> {
        if text == "prob" {
            return Ok(Self::Prob);
        }
        let k = text.strip_prefix("samples:").ok_or(DecideError::Form)?;
        match k.parse() {
            Ok(k @ 1..=MOST_SAMPLES) => Ok(Self::Samples(k)),
            _ => Err(DecideError::Number(k.to_owned())),
        }
    }
}

/// The answers that stand for the first and for the second candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelWords(pub [String; 2]);

written_as_text!(LabelWords);

impl LabelWords {
    pub(crate) fn new(first: &str, second: &str) -> Self {
        Self([first.to_owned(), second.to_owned()])
    }
}

/// Why a text is no [`LabelWords`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum LabelWordsError {
    /// It is not two words.
    #[error("expected two words with a comma between them, such as A,B")]
    Form,
    /// One of them is no text.
    #[error("a label word is empty")]
    Empty,
    /// Both are the same.
    #[error("the two label words are the same")]
    Same,
}

impl FromStr for LabelWords {
    type Err = LabelWordsError;

    fn from_str(text: &str) -> Result<Self, LabelWordsError> {
        let words: Vec<&str> = text.split(',').map(str::trim).collect();
        match words[..] {
            [first, second] if first.is_empty() || second.is_empty() => Err(LabelWordsError::Empty),
            [first, second] if first == second => Err(LabelWordsError::Same),
            [first, second] => Ok(Self([first.to_owned(), second.to_owned()])),
            _ => Err(LabelWordsError::Form),
        }
    }
}

impl fmt::Display for LabelWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.0[0], self.0[1])
    }
}
