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
    /// The attributes to judge.
    #[serde(flatten)]
    pub subject: SubjectOptions,
    /// Prompt template: NAME or FILE; repeatable
    ///
    /// Built in: 1 and 2. Results are averaged over templates.
    #[schemars(extend("form" = "NAME|FILE", "signed" = "method"))]
    #[default(vec!["1".to_owned()])]
    pub template: Vec<String>,
    /// How prompts and answers are laid out.
    #[serde(flatten)]
    pub layout: LayoutOptions,
    /// The two answers: for the first and second text
    ///
    /// Each is counted with and without a leading space.
    #[schemars(extend("form" = "FIRST,SECOND", "signed" = "labels"))]
    #[default(LabelWords::new("A", "B"))]
    pub label_words: LabelWords,
    /// Comparisons to make in each context
    ///
    /// `full` makes all of them. The others make R comparisons: `random:R`, `no-repeat:R` (each pair in one order
    /// only), `symmetric:R` (each pair in both orders).
    #[schemars(extend("form" = "SCHEME"))]
    #[default(PairSelection::Full)]
    pub pairs: PairSelection,
    /// Limit the comparisons in each context
    ///
    /// A number (80), a share of all comparisons (0.4), or `auto`, which stops as soon as the ranking is certain. Each
    /// pair is compared in both orders. The choice of the next pair depends on earlier answers and on its cost: the
    /// length of its prompts without the parts that earlier prompts share. docs/budget.md reports the savings.
    #[schemars(extend("form" = "N|SHARE|auto", "conflicts" = ["pairs", "analyses"]))]
    pub budget: Option<Budget>,
    /// With --budget: how to choose the next pair
    #[schemars(extend("needs" = ["budget"]))]
    pub choose: PairOrder,
    /// With --budget: goal of the comparisons
    ///
    /// Pairs are chosen for this goal, and `auto` stops when it is reached.
    #[schemars(extend("needs" = ["budget"]))]
    pub stop: StopAt,
    /// With --budget auto: certainty required to stop
    #[schemars(extend("form" = "SHARE", "needs" = ["budget"], "signed_if" = ["budget=auto"]))]
    #[default(0.95)]
    pub sure: f64,
    /// How comparisons become scores
    ///
    /// `win-ratio` is the share of wins, `mean-prob` the mean probability of being better, `bradley-terry` the
    /// Bradley–Terry strength, and `experts` the strength in a product of experts, fitted to the log-odds of all
    /// comparisons.
    ///
    /// `likelihood` finds the ranking with the highest likelihood under the probabilities of all comparisons. A text's
    /// score is the number of texts ranked below it. The ranking is exact for up to 20 texts. For more, a search
    /// approximates it and reports a bound.
    ///
    /// `hard-likelihood` uses decisions instead of probabilities. From them, it estimates how often the judge picks the
    /// better text in each position (Liusie et al. 2024, equation 13). `hard-likelihood-symmetric` assumes that the
    /// judge has no position bias.
    ///
    /// `auto` is `experts` with --budget, `mean-prob` if all samples are pairs, and otherwise `win-ratio`. With
    /// --budget, a share of wins would depend on the opponents of a text. For pairs, it would be a tie whenever the
    /// verdict changes with presentation order.
    #[schemars(extend("form" = "METHOD"))]
    pub rank: Ranking,
    /// Scope of the correction for position bias
    ///
    /// Each scope has its own estimate of the bias, from pairs judged in both orders.
    pub debias: DebiasMode,
    /// How to decide a comparison: prob or samples:K
    ///
    /// `prob` uses the probabilities of the labels, `samples:K` uses K generated answers.
    #[schemars(extend("form" = "HOW"))]
    #[default(Decide::Prob)]
    pub decide: Decide,
    /// Sampling temperature of --decide samples:K
    #[schemars(extend("form" = "T", "signed_if" = ["decide!=prob"]))]
    #[default(1.0)]
    pub temperature: f64,
    /// Longest answer of --decide samples:K, in tokens
    #[schemars(extend("form" = "N", "signed_if" = ["decide!=prob"]))]
    #[default(5)]
    pub max_tokens: usize,
    /// Show how results change with fewer comparisons
    ///
    /// Reports Spearman against the number of comparisons, and the consistency of ranks with fewer candidates. No
    /// further comparisons are made. Needs --pairs full.
    #[schemars(extend("scores" = false))]
    pub analyses: bool,
    /// Random draws for each point of --analyses
    #[schemars(extend("form" = "N", "scores" = false))]
    #[default(50)]
    pub analysis_runs: usize,
    /// Random seed
    ///
    /// For the choice of pairs, sampled answers and analyses.
    #[default(0)]
    pub seed: u64,
}

const AUTO: &str = "auto";

/// How comparisons become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ranking {
    /// Chosen by the samples.
    #[default]
    Auto,
    /// As set by the user.
    By(RankMethod),
}

impl Ranking {
    /// The ranking in force for these samples.
    pub(super) fn resolve(self, params: &ComparativeParams, samples: &[Sample]) -> RankMethod {
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

/// The comparisons over which a debiasing weight is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DebiasMode {
    /// No correction
    None,
    /// One bias for all comparisons of the run
    Global,
    /// One bias per attribute, over all templates
    PerAttribute,
    /// One bias per attribute and template
    #[default]
    PerPrompt,
}

/// How a comparison is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decide {
    /// From the probabilities of the two labels (paper eq. 3).
    Prob,
    /// From this many generated answers (paper eqs. 4–5).
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

/// The maximum number of answers for a comparison.
const MOST_SAMPLES: usize = 1000;

/// A text that is not a [`Decide`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum DecideError {
    /// Neither of the two forms.
    #[error("expected prob or samples:K")]
    Form,
    /// The number of samples is not a number or exceeds the maximum.
    #[error("`{0}` is not a number of samples from 1 to {MOST_SAMPLES}")]
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

/// The answers for the first and the second candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelWords(pub [String; 2]);

written_as_text!(LabelWords);

impl LabelWords {
    pub(crate) fn new(first: &str, second: &str) -> Self {
        Self([first.to_owned(), second.to_owned()])
    }
}

/// A text that is not a [`LabelWords`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum LabelWordsError {
    /// Not two words.
    #[error("expected two words separated by a comma, such as A,B")]
    Form,
    /// One of them is empty.
    #[error("a label word is empty")]
    Empty,
    /// Both are equal.
    #[error("the two label words are equal")]
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
