//! Results of requests.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{normalise, opens_thought};

/// How a request ended. Summaries count each outcome separately.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The answer is valid.
    Scored,
    /// The answer is valid, but the label mass is below the threshold: the model prefers other tokens.
    LowMass {
        /// What the model prefers instead, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Two or more labels are equally probable.
    Tie,
    /// The generated text has no valid answer.
    Unparsed {
        /// What is missing.
        why: String,
    },
    /// The prompt with its longest answer exceeds the model's context or its cache budget. Nothing was truncated or
    /// computed.
    TooLong {
        /// Tokens needed for the prompt and its longest answer. A lower bound for texts over 256 KiB, which are only
        /// tokenised when necessary.
        tokens_needed: usize,
        /// Maximum number of tokens.
        limit: usize,
    },
    /// The model's chat template changes the text of a message. Nothing was computed.
    Altered {
        /// Which message it drops or changes.
        why: String,
    },
    /// Nothing to judge, such as an empty prompt.
    Empty,
    /// The model produced an infinite or undefined logit.
    NotFinite {
        /// Where it occurred.
        why: String,
    },
}

impl Outcome {
    /// Whether the result has an answer.
    pub fn has_answer(&self) -> bool {
        matches!(self, Self::Scored | Self::LowMass { .. } | Self::Tie)
    }

    /// Whether the answer has low label mass.
    pub fn is_low_mass(&self) -> bool {
        matches!(self, Self::LowMass { .. })
    }

    /// Whether the outcome concerns the model's output, even if that is empty. Otherwise it concerns the prompt or the
    /// arithmetic.
    pub fn has_say(&self) -> bool {
        !matches!(self, Self::TooLong { .. } | Self::Altered { .. } | Self::NotFinite { .. })
    }

    /// Whether the generated text is readable, even if empty. It is not if its tokens could not be decoded.
    pub fn has_text(&self) -> bool {
        self.has_say() && !matches!(self, Self::Unparsed { .. })
    }

    /// The outcome's name in records and summaries.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Scored => "scored",
            Self::LowMass { .. } => "low_mass",
            Self::Tie => "tie",
            Self::Unparsed { .. } => "unparsed",
            Self::TooLong { .. } => "too_long",
            Self::Altered { .. } => "altered",
            Self::Empty => "empty",
            Self::NotFinite { .. } => "not_finite",
        }
    }
}

/// Probability of one label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelScore {
    /// The label's name.
    pub name: String,
    /// log P(label | prompt) under the full vocabulary, summed over variants. Minus infinity is null in JSON.
    #[serde(deserialize_with = "logprob")]
    pub logprob: f64,
    /// P(label) / Σ P(labels).
    pub prob: f64,
    /// Variants with distinct tokens and the log-probability of each token. Empty if the model does not report them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<ContinuationAnswer>,
}

fn logprob<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    // JSON has no infinity: serde_json writes null, which does not parse as a number.
    Ok(Option::deserialize(from)?.unwrap_or(f64::NEG_INFINITY))
}

fn logprobs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let logprobs: Vec<Option<f64>> = Deserialize::deserialize(from)?;
    Ok(logprobs.into_iter().map(|logprob| logprob.unwrap_or(f64::NEG_INFINITY)).collect())
}

/// Tolerance between a probability and the exponential of its logarithm.
const SOUND: f64 = 1e-6;

/// Probabilities of a label set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelAnswer {
    /// In the order of the request's label set.
    pub labels: Vec<LabelScore>,
    /// Σ P(labels) under the full vocabulary.
    pub mass: f64,
    /// Text of the most probable next token at the label position. Absent if the model does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likeliest: Option<String>,
}

impl LabelAnswer {
    /// Builds the answer from log P of each label. `None` if every label has probability 0.
    pub fn from_logprobs<S: Into<String>>(logprobs: impl IntoIterator<Item = (S, f64)>) -> Option<Self> {
        let (names, logprobs): (Vec<String>, Vec<f64>) = logprobs.into_iter().map(|(n, l)| (n.into(), l)).unzip();
        let probs = normalise(&logprobs)?;
        // Not scaled by the largest, unlike the probabilities. A mass that underflows is 0, which is low anyway.
        let mass = logprobs.iter().map(|l| libm::exp(*l)).sum();
        let labels = names.into_iter().zip(logprobs).zip(probs);
        Some(Self {
            labels: labels
                .map(|((name, logprob), prob)| LabelScore { name, logprob, prob, variants: Vec::new() })
                .collect(),
            mass,
            likeliest: None,
        })
    }

    /// The mean of the distributions of at least one answer about the same labels, under the full vocabulary. `None` if
    /// every label has probability 0.
    pub fn mean(answers: &[&Self]) -> Option<Self> {
        let share = libm::log(answers.len() as f64);
        let of_label = |index: usize| {
            let logprobs: Vec<f64> = answers.iter().map(|answer| answer.labels[index].logprob).collect();
            let most = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logprobs.iter().map(|logprob| libm::exp(logprob - most)).sum();
            if most.is_finite() { most + libm::log(sum) - share } else { most }
        };
        let names = answers[0].labels.iter().map(|label| label.name.clone());
        Self::from_logprobs(names.enumerate().map(|(index, name)| (name, of_label(index))))
    }

    /// [`Outcome::LowMass`] below `min_mass`, [`Outcome::Tie`] if the two best labels are equal, otherwise
    /// [`Outcome::Scored`].
    pub fn outcome(&self, min_mass: f64) -> Outcome {
        // Checked before ties: equal labels with low mass say nothing about the texts.
        if self.mass < min_mass {
            let why = self.likeliest.as_ref().map(|token| {
                let thinks = if opens_thought(token) { ", which opens a thought; try --think off" } else { "" };
                format!("the likeliest next token is {token:?}{thinks}")
            });
            return Outcome::LowMass { why };
        }
        let best = self.labels.iter().map(|l| l.logprob).fold(f64::NEG_INFINITY, f64::max);
        if self.labels.iter().filter(|l| l.logprob == best).count() > 1 { Outcome::Tie } else { Outcome::Scored }
    }

    /// Whether the probabilities are valid and consistent with their logarithms, up to rounding from the order of
    /// summation.
    pub fn is_sound(&self) -> bool {
        let logprobs: Vec<f64> = self.labels.iter().map(|label| label.logprob).collect();
        // Relative tolerance, absolute below 1e-6: a relative tolerance around 0 would allow nothing.
        let near = |a: f64, b: f64| (a - b).abs() <= SOUND * b.abs().max(SOUND);
        let Some(probs) = normalise(&logprobs) else { return false };
        let mass: f64 = logprobs.iter().map(|logprob| libm::exp(*logprob)).sum();
        // A sum over variants can round to slightly above 1, so a logarithm can be slightly above 0.
        let each = self.labels.iter().zip(probs).all(|(label, prob)| label.logprob <= SOUND && near(label.prob, prob));
        each && near(self.mass, mass) && self.mass <= 1.0 + SOUND
    }

    /// The label with this name.
    pub fn get(&self, name: &str) -> Option<&LabelScore> {
        self.labels.iter().find(|l| l.name == name)
    }
}

/// Probability of a continuation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContinuationAnswer {
    /// Σ log P(token | before). Minus infinity is null in JSON.
    #[serde(deserialize_with = "logprob")]
    pub logprob: f64,
    /// log P of each token.
    #[serde(deserialize_with = "logprobs")]
    pub token_logprobs: Vec<f64>,
    /// Text of each token, lossy if a token is part of a character.
    pub tokens: Vec<String>,
    /// Id of each token.
    pub token_ids: Vec<u32>,
    /// Whether greedy decoding would produce it: each token is the most probable, with ties going to the lowest id.
    pub is_greedy: bool,
}

/// A model's state after a layer for a text: the mean of the residual stream over the text's tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PooledState {
    /// Number of layers applied.
    pub layer: usize,
    /// `(hidden_size)`. Serialised as base64 of the bits.
    #[serde(with = "state_bits")]
    pub values: Vec<f32>,
}

/// Little-endian bytes in base64: about a fifth of the size of decimal digits, without rounding.
mod state_bits {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(values: &[f32], to: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
        let bytes = STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)?;
        let (values, rest) = bytes.as_chunks::<4>();
        if rest.is_empty() {
            Ok(values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        } else {
            Err(D::Error::custom("a state has four bytes for each number"))
        }
    }
}

/// Probability of a text and its hidden states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadingAnswer {
    /// Probability of each token.
    pub continuation: ContinuationAnswer,
    /// Pooled states of the requested layers, in request order; finite.
    pub states: Vec<PooledState>,
}

/// A possible token at a position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenAlternative {
    /// Token id.
    pub id: u32,
    /// Token text, lossy if it is part of a character.
    pub token: String,
    /// log P(token | before) under the full vocabulary. Minus infinity is null in JSON.
    #[serde(deserialize_with = "logprob")]
    pub logprob: f64,
}

/// Probabilities of the requested tokens and the most probable alternatives at their positions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokensAnswer {
    /// Probability of each token.
    pub continuation: ContinuationAnswer,
    /// The most probable tokens at each position, and after the last if requested. Sorted by probability, ties by
    /// lowest id. The lists are empty if no alternatives were requested.
    pub alternatives: Vec<Vec<TokenAlternative>>,
}

/// Score of one class from a class head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassScore {
    /// Class name from the model's configuration.
    pub name: String,
    /// Finite logit. With a single class it is the reward.
    pub logit: f64,
}

impl std::fmt::Display for ClassScore {
    /// Name and logit, with the formatter's precision.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} {:.*}", self.name, to.precision().unwrap_or(4), self.logit)
    }
}

/// Meaning of a class head's logits: `problem_type` in the model's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ClassKind {
    /// Exactly one class applies. With a single class, the logit is a reward.
    #[default]
    #[serde(rename = "single_label_classification")]
    SingleLabel,
    /// Each class applies independently.
    #[serde(rename = "multi_label_classification")]
    MultiLabel,
    /// The logits are values.
    #[serde(rename = "regression")]
    Regression,
}

impl ClassKind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Class probabilities from finite logits: softmax, or the logistic function per class. Absent for values and
    /// rewards.
    pub fn probabilities(self, logits: &[f64]) -> Option<Vec<f64>> {
        match self {
            Self::SingleLabel if logits.len() > 1 => normalise(logits),
            Self::MultiLabel => Some(logits.iter().map(|logit| libm::exp(log_logistic(*logit))).collect()),
            Self::SingleLabel | Self::Regression => None,
        }
    }

    /// Logarithms of [`probabilities`](Self::probabilities), without underflow.
    pub fn logprobs(self, logits: &[f64]) -> Option<Vec<f64>> {
        match self {
            Self::SingleLabel if logits.len() > 1 => {
                let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = logits.iter().map(|logit| libm::exp(logit - max)).sum();
                Some(logits.iter().map(|logit| logit - max - libm::log(sum)).collect())
            }
            Self::MultiLabel => Some(logits.iter().map(|logit| log_logistic(*logit)).collect()),
            Self::SingleLabel | Self::Regression => None,
        }
    }
}

/// log 1 / (1 + exp −x), computed without overflow.
fn log_logistic(x: f64) -> f64 {
    x.min(0.0) - libm::log1p(libm::exp(-x.abs()))
}

/// Output of a class head for a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassAnswer {
    /// Meaning of the logits.
    #[serde(default, skip_serializing_if = "ClassKind::is_usual")]
    pub kind: ClassKind,
    /// All of [`ModelDescription::classes`](crate::ModelDescription::classes), in order.
    pub classes: Vec<ClassScore>,
}

impl ClassAnswer {
    /// All logits.
    pub fn logits(&self) -> Vec<f64> {
        self.classes.iter().map(|class| class.logit).collect()
    }

    /// Log-probability and probability of each class, [if defined](ClassKind::probabilities).
    pub fn probabilities(&self) -> Option<Vec<(f64, f64)>> {
        let logits = self.logits();
        Some(self.kind.logprobs(&logits)?.into_iter().zip(self.kind.probabilities(&logits)?).collect())
    }
}

/// The answer to a [`ScoreRequest`](crate::ScoreRequest).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreAnswer {
    /// Answer to [`Ask::Labels`](crate::Ask::Labels).
    Labels(LabelAnswer),
    /// Answer to [`Ask::Continuation`](crate::Ask::Continuation).
    Continuation(ContinuationAnswer),
    /// Answer to [`Ask::Reading`](crate::Ask::Reading).
    Reading(ReadingAnswer),
    /// Answer to [`Ask::Tokens`](crate::Ask::Tokens).
    Tokens(TokensAnswer),
    /// Answer to [`Ask::Classes`](crate::Ask::Classes).
    Classes(ClassAnswer),
}

/// Result of a [`ScoreRequest`](crate::ScoreRequest).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreResult {
    /// How it ended.
    pub outcome: Outcome,
    /// Number of prompt tokens, including the chat template and excluding the answer.
    pub prompt_tokens: usize,
    /// Present if [`Outcome::has_answer`].
    pub answer: Option<ScoreAnswer>,
}

impl ScoreResult {
    /// The label probabilities, if this is an answer to a label query.
    pub fn labels(&self) -> Option<&LabelAnswer> {
        match &self.answer {
            Some(ScoreAnswer::Labels(labels)) => Some(labels),
            _ => None,
        }
    }

    /// The continuation's probabilities, if this is an answer to a continuation query.
    pub fn continuation(&self) -> Option<&ContinuationAnswer> {
        match &self.answer {
            Some(ScoreAnswer::Continuation(continuation)) => Some(continuation),
            Some(ScoreAnswer::Reading(reading)) => Some(&reading.continuation),
            Some(ScoreAnswer::Tokens(tokens)) => Some(&tokens.continuation),
            _ => None,
        }
    }

    /// Token probabilities and alternatives, if this is an answer to a token query.
    pub fn tokens(&self) -> Option<&TokensAnswer> {
        match &self.answer {
            Some(ScoreAnswer::Tokens(tokens)) => Some(tokens),
            _ => None,
        }
    }

    /// The class head's output, if this is an answer to a class query.
    pub fn classes(&self) -> Option<&ClassAnswer> {
        match &self.answer {
            Some(ScoreAnswer::Classes(classes)) => Some(classes),
            _ => None,
        }
    }

    /// The continuation's probabilities and states, if this is an answer to a reading query.
    pub fn reading(&self) -> Option<&ReadingAnswer> {
        match &self.answer {
            Some(ScoreAnswer::Reading(reading)) => Some(reading),
            _ => None,
        }
    }
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended its turn.
    EndOfTurn,
    /// A stop sequence was generated.
    Stop,
    /// The token limit or the end of the context was reached.
    Length,
}

/// Result of a [`GenerateRequest`](crate::GenerateRequest). Equality ignores `accepted_drafts`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GenerateResult {
    /// How it ended; [`Outcome::Scored`] if text was generated.
    pub outcome: Outcome,
    /// Number of prompt tokens, including the chat template.
    pub prompt_tokens: usize,
    /// The generated text, without the stop sequence and special tokens.
    pub text: String,
    /// Ids of the generated tokens.
    pub token_ids: Vec<u32>,
    /// Why generation ended. Absent if nothing was generated.
    pub finish: Option<Finish>,
    /// Label probabilities at the verdict point, or why there are none. Absent if not requested or if the text has no
    /// such point.
    pub verdict: Option<ScoreResult>,
    /// Probabilities of the generated tokens, followed by the end-of-turn token if there is one. Absent if not
    /// requested or if nothing was generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Box<TokensAnswer>>,
    /// Number of accepted draft tokens. Depends on scheduling, like timing, and is not stored.
    #[serde(skip)]
    pub accepted_drafts: usize,
}

impl PartialEq for GenerateResult {
    fn eq(&self, other: &Self) -> bool {
        fn all(result: &GenerateResult) -> impl PartialEq {
            // Destructured without `..`, so that a new field fails to compile until it is compared or ignored
            // explicitly.
            let GenerateResult { outcome, prompt_tokens, text, token_ids, finish, verdict, tokens, accepted_drafts: _ } =
                result;
            (outcome, prompt_tokens, text, token_ids, finish, verdict, tokens)
        }
        all(self) == all(other)
    }
}

impl GenerateResult {
    /// A result without text.
    pub fn without_text(outcome: Outcome, prompt_tokens: usize) -> Self {
        Self {
            outcome,
            prompt_tokens,
            text: String::new(),
            token_ids: Vec::new(),
            finish: None,
            verdict: None,
            tokens: None,
            accepted_drafts: 0,
        }
    }
}

/// Cost of a work list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of all prompts and answers without prefix sharing.
    pub tokens_unshared: u64,
    /// Tokens that the model computed.
    pub tokens_computed: u64,
    /// Peak bytes of keys and values held or reserved for texts being generated.
    pub peak_cache_bytes: u64,
    /// Tokens generated.
    #[serde(default)]
    pub tokens_generated: u64,
    /// Draft tokens proposed to the model.
    #[serde(default)]
    pub tokens_drafted: u64,
    /// Draft tokens accepted.
    #[serde(default)]
    pub drafts_accepted: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.tokens_unshared += other.tokens_unshared;
        self.tokens_computed += other.tokens_computed;
        // Work lists run sequentially, so their peaks do not add up.
        self.peak_cache_bytes = self.peak_cache_bytes.max(other.peak_cache_bytes);
        self.tokens_generated += other.tokens_generated;
        self.tokens_drafted += other.tokens_drafted;
        self.drafts_accepted += other.drafts_accepted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_whose_numbers_do_not_follow_from_one_another_is_not_sound() {
        let answer = || LabelAnswer::from_logprobs([("A", -0.5), ("B", -2.0)]).expect("some probability");
        assert!(answer().is_sound());
        let unsure = LabelAnswer::from_logprobs([("A", f64::NEG_INFINITY), ("B", -700.0)]).expect("some probability");
        assert!(unsure.is_sound());
        let changed = |change: fn(&mut LabelAnswer)| {
            let mut other = answer();
            change(&mut other);
            other.is_sound()
        };
        assert!(
            !changed(|a| a.mass = 8.707)
                && !changed(|a| a.labels[0].prob += 1e-5)
                && !changed(|a| a.labels[0].logprob = -4.31)
        );
        assert!(!changed(|a| a.labels[1].logprob = 0.5));
    }

    #[test]
    fn low_mass_names_the_likeliest_token_and_says_where_it_opens_a_thought() {
        let outcome = |token: &str| {
            let answer = LabelAnswer::from_logprobs([("A", -9.0), ("B", -8.0)]).expect("some probability");
            LabelAnswer { likeliest: Some(token.to_owned()), ..answer }.outcome(0.01)
        };
        let why = |token| match outcome(token) {
            Outcome::LowMass { why } => why.expect("known"),
            other => panic!("{other:?}"),
        };
        assert_eq!(why("<think>"), "the likeliest next token is \"<think>\", which opens a thought; try --think off");
        assert_eq!(why("\n"), r#"the likeliest next token is "\n""#);
        let kept = serde_json::to_value(outcome("x")).expect("JSON");
        assert_eq!(serde_json::from_value::<Outcome>(kept).expect("read"), outcome("x"));
        let plain = serde_json::json!({ "outcome": "low_mass" });
        assert_eq!(serde_json::from_value::<Outcome>(plain).expect("read"), Outcome::LowMass { why: None });
    }
}
