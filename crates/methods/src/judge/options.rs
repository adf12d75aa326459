//! The options shared by all methods with a judge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::verdict::OfferedVerdicts;
use crate::article::article;
use crate::attributes::AttributeWords;
use crate::question::{LayoutOptions, SubjectOptions};
use crate::{MethodError, RatingScale};

/// The number of candidates shown to a judge at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Two candidates: which is better
    #[default]
    Pairwise,
    /// One candidate: how good it is
    Pointwise,
}

/// How a verdict is obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictMode {
    /// Written reasons, then a verdict; the last `[[A]]` counts
    #[default]
    Generate,
    /// Written reasons, then label probabilities after the last `[[`
    RationaleLabel,
    /// Label probabilities only; nothing is written
    Label,
}

impl VerdictMode {
    /// Whether verdicts have probabilities.
    pub fn has_labels(self) -> bool {
        self != Self::Generate
    }
}

/// Options of a judge: attributes, prompts and decoding.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JudgingOptions {
    /// Compare candidates in pairs, or rate each one
    pub mode: Mode,
    /// Attribute to judge, such as quality; repeatable
    ///
    /// Any word is accepted, with --criteria if it is not built in. Each attribute is judged separately.
    #[schemars(inner(length(min = 1)), extend("form" = "NAME", "signed" = "attributes"))]
    #[default(vec!["quality".to_owned()])]
    pub attribute: Vec<String>,
    /// Word for a candidate in prompts
    #[schemars(length(min = 1), extend("form" = "WORD"))]
    #[default("response".to_owned())]
    pub noun: String,
    /// Adjective form of the attribute
    ///
    /// Used by prompts that describe a text as ADJECTIVE. Needed only where the built-in form does not fit, and allowed
    /// with one attribute only.
    #[schemars(length(min = 1), extend("form" = "WORD"))]
    pub adjective: Option<String>,
    /// Meaning of the attribute, or @FILE
    ///
    /// Required for an attribute that is not built in.
    #[schemars(extend("form" = "TEXT|@FILE", "signed" = "method"))]
    pub criteria: Option<String>,
    /// Rules for verdicts or ratings, or @FILE
    #[schemars(extend("form" = "TEXT|@FILE", "signed" = "method"))]
    pub rubric: Option<String>,
    /// Ratings: integers from MIN (worst) to MAX (best)
    ///
    /// For --mode pointwise.
    #[schemars(extend("form" = "MIN..MAX", "signed_if" = ["mode=pointwise"]))]
    #[default(RatingScale { min: 1, max: 5 })]
    pub scale: RatingScale,
    /// Allow a tie as verdict on a pair: `[[C]]`
    pub ties: bool,
    /// How to obtain a verdict
    #[schemars(extend("signed_if" = ["no_judge!=true"]))]
    pub verdict: VerdictMode,
    /// Answers to sample for each question
    ///
    /// Several answers are sampled at --temperature; the majority of the verdicts counts, or the mean of the ratings.
    /// One answer is decoded greedily.
    #[schemars(range(min = 1), extend("form" = "K", "signed_if" = ["verdict!=label", "no_judge!=true"]))]
    #[default(1)]
    pub cycles: u16,
    /// Sampling temperature of --cycles
    #[schemars(extend("form" = "T", "exclusiveMinimum" = 0, "signed_if" = ["cycles!=1"]))]
    #[default(1.0)]
    pub temperature: f64,
    /// Longest answer, in tokens
    #[schemars(range(min = 1), extend("form" = "N", "signed_if" = ["verdict!=label", "no_judge!=true"]))]
    #[default(1024)]
    pub max_tokens: u32,
    /// Prompt template: NAME or FILE
    ///
    /// Built in: pairwise and pointwise, one for each mode.
    #[schemars(extend("form" = "NAME|FILE", "signed" = "method"))]
    pub template: Option<String>,
    /// How prompts and answers are laid out.
    #[serde(flatten)]
    pub layout: LayoutOptions,
    /// Random seed
    #[default(0)]
    pub seed: u64,
}

impl JudgingOptions {
    /// The verdicts that the judge may choose from.
    pub(crate) fn offered(&self) -> OfferedVerdicts {
        match self.mode {
            Mode::Pairwise => OfferedVerdicts::Pair { ties: self.ties },
            Mode::Pointwise => OfferedVerdicts::Ratings(self.scale),
        }
    }

    /// The name of the prompt.
    pub(crate) fn template(&self) -> &str {
        let builtin = if self.mode == Mode::Pairwise { "pairwise" } else { "pointwise" };
        self.template.as_deref().unwrap_or(builtin)
    }

    /// The word forms of each attribute.
    pub fn attribute_words(&self) -> Result<Vec<AttributeWords>, MethodError> {
        let Self { attribute, noun, adjective, .. } = self.clone();
        SubjectOptions { attribute, noun, adjective, no_gold: false }.attribute_words()
    }

    /// Refuses options that contradict each other.
    pub(super) fn check(&self) -> Result<(), MethodError> {
        if self.cycles > 1 && self.verdict == VerdictMode::Label {
            let why = "label probabilities are the same in every cycle";
            let hint = "omit --cycles, or use --verdict rationale-label";
            return MethodError::refuse(format!("--cycles {}", self.cycles), why, hint);
        }
        if self.ties && self.mode == Mode::Pointwise {
            let hint = "omit --ties, or use --mode pairwise";
            return MethodError::refuse("--ties", "a single candidate cannot tie", hint);
        }
        Ok(())
    }

    /// Refuses options that do not apply to a reward model.
    pub(super) fn check_rewarded(&self) -> Result<(), MethodError> {
        if self.mode == Mode::Pointwise {
            let why = "a reward model has no rating scale";
            return MethodError::refuse("--mode pointwise", why, "use --mode pairwise, or the method reward");
        }
        if self.cycles > 1 {
            return MethodError::refuse(
                format!("--cycles {}", self.cycles),
                "a reward is the same in every cycle",
                "omit it",
            );
        }
        Ok(())
    }

    /// Refuses options of language-model judges if all judges are reward models: they would have no effect.
    pub(super) fn check_rewards_alone(&self) -> Result<(), MethodError> {
        let usual = Self::default();
        let LayoutOptions { format, answer_prefix, defence } = &self.layout;
        let said = [
            ("--defence", !defence.is_empty()),
            ("--format", *format != usual.layout.format),
            ("--answer-prefix", answer_prefix.is_some()),
            ("--noun", self.noun != usual.noun),
            ("--adjective", self.adjective.is_some()),
            ("--criteria", self.criteria.is_some()),
            ("--rubric", self.rubric.is_some()),
            ("--ties", self.ties),
            ("--verdict", self.verdict != usual.verdict),
            ("--temperature", self.temperature != usual.temperature),
            ("--max-tokens", self.max_tokens != usual.max_tokens),
            ("--template", self.template.is_some()),
        ];
        match said.into_iter().find(|(_, is_said)| *is_said) {
            Some((option, _)) => {
                let why = "the judge is a reward model, which reads no instructions";
                MethodError::refuse(option, why, "omit it, or use a language model as the judge")
            }
            None => Ok(()),
        }
    }

    /// The default rubric: criteria and form of the verdict.
    pub(super) fn default_rubric(&self) -> String {
        let noun = &self.noun;
        match self.mode {
            Mode::Pairwise => {
                let even = if self.ties {
                    "Call it a tie only where you could not say which one a reader would rather have."
                } else {
                    "Choose one of them even where they are close."
                };
                format!(
                    "Judge what each {noun} says and does. Which one is shown first, how long they are and how sure of \
                     themselves they sound must not weigh. {even}"
                )
            }
            Mode::Pointwise => format!(
                "{} is for {} {noun} that fails in this respect, {} for one that leaves nothing to wish for, and the \
                 numbers between them lie evenly apart. How long the {noun} is and how sure of itself it sounds must \
                 not weigh.",
                self.scale.min,
                article(noun),
                self.scale.max
            ),
        }
    }
}
