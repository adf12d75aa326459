//! What comes back.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{normalise, opens_thought};

/// How a request ended. Summaries count each; a reason never hides behind a number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The answer stands.
    Scored,
    /// The answer stands, but the labels together are less probable than the threshold: the model wanted to say
    /// something else.
    LowMass {
        /// What the model would rather say, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Two or more answers are exactly as good.
    Tie,
    /// Generated text held no valid answer.
    Unparsed {
        /// What was missing.
        why: String,
    },
    /// The prompt with its longest answer does not fit the model's context, or the memory that the model was given for
    /// keys and values. Nothing was truncated or computed.
    TooLong {
        /// Tokens needed: of the prompt and its longest answer. Of texts of over 256 KiB, which are not cut into tokens
        /// where that is not needed to know it, at least so many.
        tokens_needed: usize,
        /// Tokens that would fit.
        limit: usize,
    },
    /// The model's chat template would show another text than the one given. Nothing was computed.
    Altered {
        /// Whose message it leaves out or changes.
        why: String,
    },
    /// There was nothing to judge.
    Empty,
    /// The model's arithmetic gave no usable number (an infinite or undefined logit).
    NotFinite {
        /// Where.
        why: String,
    },
}

impl Outcome {
    /// Whether an answer stands behind it.
    pub fn has_answer(&self) -> bool {
        matches!(self, Self::Scored | Self::LowMass { .. } | Self::Tie)
    }

    /// Whether the answer stands although its labels are improbable.
    pub fn is_low_mass(&self) -> bool {
        matches!(self, Self::LowMass { .. })
    }

    /// Whether the model had its say, though it may have said nothing. Where it had not, the outcome tells of the prompt or of
    /// the arithmetic, and nothing of what the model would answer.
    pub fn has_say(&self) -> bool {
        !matches!(self, Self::TooLong { .. } | Self::Altered { .. } | Self::NotFinite { .. })
    }

    /// Whether what was generated can be read, though it may be empty. Where its tokens have no text, the model has said why.
    pub fn has_text(&self) -> bool {
        self.has_say() && !matches!(self, Self::Unparsed { .. })
    }

    /// The outcome's name, as in records and summaries.
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

/// One label's probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelScore {
    /// The label's name.
    pub name: String,
    /// log P(label | prompt) under the full vocabulary, summed over variants. Minus infinity is null in JSON.
    #[serde(deserialize_with = "logprob")]
    pub logprob: f64,
    /// P(label) / Σ P(labels).
    pub prob: f64,
    /// The variants that differ in tokens, with the log-probability of each token; empty where a model does not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<ContinuationAnswer>,
}

fn logprob<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    // JSON has no infinity: serde_json writes null for it, and null is not read as a number.
    Ok(Option::deserialize(from)?.unwrap_or(f64::NEG_INFINITY))
}

fn logprobs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let logprobs: Vec<Option<f64>> = Deserialize::deserialize(from)?;
    Ok(logprobs.into_iter().map(|logprob| logprob.unwrap_or(f64::NEG_INFINITY)).collect())
}

/// How far a probability may be from what its logarithms say.
const SOUND: f64 = 1e-6;

/// The probabilities of a label set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelAnswer {
    /// In the order of the request's set.
    pub labels: Vec<LabelScore>,
    /// Σ P(labels) under the full vocabulary.
    pub mass: f64,
    /// The text of the likeliest next token where the labels were asked for; absent where a model does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likeliest: Option<String>,
}

impl LabelAnswer {
    /// From log P of each label; `None` where no label has any probability.
    pub fn from_logprobs<S: Into<String>>(logprobs: impl IntoIterator<Item = (S, f64)>) -> Option<Self> {
        let (names, logprobs): (Vec<String>, Vec<f64>) = logprobs.into_iter().map(|(n, l)| (n.into(), l)).unzip();
        let probs = normalise(&logprobs)?;
        // Not scaled by the largest, as the probabilities are: a mass that underflows is 0, and low in any case.
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

    /// [`Outcome::LowMass`] below `min_mass`, else [`Outcome::Tie`] where the two best labels are equal, else
    /// [`Outcome::Scored`].
    pub fn outcome(&self, min_mass: f64) -> Outcome {
        // Before ties: equal labels that the model hardly considers say nothing about the texts.
        if self.mass < min_mass {
            let why = self.likeliest.as_ref().map(|token| {
                let thinks = if opens_thought(token) { ", which opens a thought" } else { "" };
                format!("the likeliest next token is {token:?}{thinks}")
            });
            return Outcome::LowMass { why };
        }
        let best = self.labels.iter().map(|l| l.logprob).fold(f64::NEG_INFINITY, f64::max);
        if self.labels.iter().filter(|l| l.logprob == best).count() > 1 { Outcome::Tie } else { Outcome::Scored }
    }

    /// Whether the probabilities are such, and follow from their logarithms; summed in another order they may differ in
    /// their last digits.
    pub fn is_sound(&self) -> bool {
        let logprobs: Vec<f64> = self.labels.iter().map(|label| label.logprob).collect();
        // Relative, but absolute below 1e-6: of a probability of 0 no relative tolerance would leave anything.
        let near = |a: f64, b: f64| (a - b).abs() <= SOUND * b.abs().max(SOUND);
        let Some(probs) = normalise(&logprobs) else { return false };
        let mass: f64 = logprobs.iter().map(|logprob| libm::exp(*logprob)).sum();
        // A sum over variants may round to a little above 1, so a logarithm may be a little above 0.
        let each = self.labels.iter().zip(probs).all(|(label, prob)| label.logprob <= SOUND && near(label.prob, prob));
        each && near(self.mass, mass) && self.mass <= 1.0 + SOUND
    }

    /// The label of that name.
    pub fn get(&self, name: &str) -> Option<&LabelScore> {
        self.labels.iter().find(|l| l.name == name)
    }
}

/// The probability of a given continuation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContinuationAnswer {
    /// Σ log P(token | before). Minus infinity is null in JSON.
    #[serde(deserialize_with = "logprob")]
    pub logprob: f64,
    /// log P of each token.
    #[serde(deserialize_with = "logprobs")]
    pub token_logprobs: Vec<f64>,
    /// Each token's text, lossy where a token is a part of a character.
    pub tokens: Vec<String>,
    /// Each token's id.
    pub token_ids: Vec<u32>,
    /// Whether greedy decoding would have produced it: each token is the most probable, the lowest id among equals.
    pub is_greedy: bool,
}

/// A model's state behind a layer while it reads a text: the mean of the residual stream over the text's tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PooledState {
    /// Behind how many layers.
    pub layer: usize,
    /// `(hidden_size)`. Kept as its bits, in base64.
    #[serde(with = "state_bits")]
    pub values: Vec<f32>,
}

/// Little-endian bytes in base64: a fifth of what decimal digits take, and nothing to round.
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

/// The probability of a given text, and the states that it was read in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadingAnswer {
    /// Of each token.
    pub continuation: ContinuationAnswer,
    /// Of the layers that were asked for, in their order; finite.
    pub states: Vec<PooledState>,
}

/// A token that could have come at a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenAlternative {
    /// Its id.
    pub id: u32,
    /// Its text, lossy where it is a part of a character.
    pub token: String,
    /// log P(token | before) under the full vocabulary. Minus infinity is null in JSON.
    #[serde(deserialize_with = "logprob")]
    pub logprob: f64,
}

/// The probabilities of given tokens, and the likeliest ones at their places.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokensAnswer {
    /// Of each token.
    pub continuation: ContinuationAnswer,
    /// At each token's place, and behind the last where that was asked, the likeliest tokens: the likeliest first, the
    /// lowest id among equals. Each list is empty where none were asked for.
    pub alternatives: Vec<Vec<TokenAlternative>>,
}

/// What a class head says of one class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassScore {
    /// The class, as the model's configuration names it.
    pub name: String,
    /// Its logit, finite: the reward where it is the only one.
    pub logit: f64,
}

impl std::fmt::Display for ClassScore {
    /// Name and logit, with as many digits as are asked for.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} {:.*}", self.name, to.precision().unwrap_or(4), self.logit)
    }
}

/// What a class head's logits mean: `problem_type` of a model's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ClassKind {
    /// One of the classes holds. A class that is alone has a reward for a logit.
    #[default]
    #[serde(rename = "single_label_classification")]
    SingleLabel,
    /// Each of them holds or does not.
    #[serde(rename = "multi_label_classification")]
    MultiLabel,
    /// They are values.
    #[serde(rename = "regression")]
    Regression,
}

impl ClassKind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// The probability of each class by finite logits: their softmax, or of each its logistic function. Absent where they
    /// are values or a reward.
    pub fn probabilities(self, logits: &[f64]) -> Option<Vec<f64>> {
        match self {
            Self::SingleLabel if logits.len() > 1 => normalise(logits),
            Self::MultiLabel => Some(logits.iter().map(|logit| libm::exp(log_logistic(*logit))).collect()),
            Self::SingleLabel | Self::Regression => None,
        }
    }

    /// The logarithms of [`probabilities`](Self::probabilities), which do not underflow.
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

/// log 1 / (1 + exp −x), of the smaller exponential.
fn log_logistic(x: f64) -> f64 {
    x.min(0.0) - libm::log1p(libm::exp(-x.abs()))
}

/// What a class head says of a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassAnswer {
    /// What the logits mean.
    #[serde(default, skip_serializing_if = "ClassKind::is_usual")]
    pub kind: ClassKind,
    /// All of [`ModelDescription::classes`](crate::ModelDescription::classes), in their order.
    pub classes: Vec<ClassScore>,
}

impl ClassAnswer {
    /// All logits.
    pub fn logits(&self) -> Vec<f64> {
        self.classes.iter().map(|class| class.logit).collect()
    }

    /// The log-probability and the probability of each class, where [there are such](ClassKind::probabilities).
    pub fn probabilities(&self) -> Option<Vec<(f64, f64)>> {
        let logits = self.logits();
        Some(self.kind.logprobs(&logits)?.into_iter().zip(self.kind.probabilities(&logits)?).collect())
    }
}

/// The answer to a [`ScoreRequest`](crate::ScoreRequest).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreAnswer {
    /// To [`Ask::Labels`](crate::Ask::Labels).
    Labels(LabelAnswer),
    /// To [`Ask::Continuation`](crate::Ask::Continuation).
    Continuation(ContinuationAnswer),
    /// To [`Ask::Reading`](crate::Ask::Reading).
    Reading(ReadingAnswer),
    /// To [`Ask::Tokens`](crate::Ask::Tokens).
    Tokens(TokensAnswer),
    /// To [`Ask::Classes`](crate::Ask::Classes).
    Classes(ClassAnswer),
}

/// What a [`ScoreRequest`](crate::ScoreRequest) came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreResult {
    /// How it ended.
    pub outcome: Outcome,
    /// Tokens of the prompt as the model saw it, without the answer.
    pub prompt_tokens: usize,
    /// Present where [`Outcome::has_answer`].
    pub answer: Option<ScoreAnswer>,
}

impl ScoreResult {
    /// The label probabilities, where they were asked for and had.
    pub fn labels(&self) -> Option<&LabelAnswer> {
        match &self.answer {
            Some(ScoreAnswer::Labels(labels)) => Some(labels),
            _ => None,
        }
    }

    /// The continuation's probabilities, where they were asked for and had.
    pub fn continuation(&self) -> Option<&ContinuationAnswer> {
        match &self.answer {
            Some(ScoreAnswer::Continuation(continuation)) => Some(continuation),
            Some(ScoreAnswer::Reading(reading)) => Some(&reading.continuation),
            Some(ScoreAnswer::Tokens(tokens)) => Some(&tokens.continuation),
            _ => None,
        }
    }

    /// The tokens' probabilities with the likeliest ones beside them, where they were asked for and had.
    pub fn tokens(&self) -> Option<&TokensAnswer> {
        match &self.answer {
            Some(ScoreAnswer::Tokens(tokens)) => Some(tokens),
            _ => None,
        }
    }

    /// What the class head says, where it was asked and had a number.
    pub fn classes(&self) -> Option<&ClassAnswer> {
        match &self.answer {
            Some(ScoreAnswer::Classes(classes)) => Some(classes),
            _ => None,
        }
    }

    /// The continuation's probabilities with the states, where they were asked for and had.
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
    /// A stop sequence came.
    Stop,
    /// The limit of tokens, or the end of the context, was reached.
    Length,
}

/// What a [`GenerateRequest`](crate::GenerateRequest) came to. Equal where all is equal but how it was come by,
/// `accepted_drafts`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GenerateResult {
    /// How it ended; [`Outcome::Scored`] where text was generated.
    pub outcome: Outcome,
    /// Tokens of the prompt as the model saw it.
    pub prompt_tokens: usize,
    /// The generated text, without stop sequence and special tokens.
    pub text: String,
    /// The generated ids.
    pub token_ids: Vec<u32>,
    /// Why it ended; absent where nothing was generated.
    pub finish: Option<Finish>,
    /// Label probabilities at the verdict point, or why there are none; absent where none was asked for or the text has
    /// no such point.
    pub verdict: Option<ScoreResult>,
    /// The probabilities of the generated tokens, and behind them of the one that ended the turn where one did; absent
    /// where none were asked for or nothing was generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Box<TokensAnswer>>,
    /// Tokens of the text that had been drafted and were found right. It depends on how the work was done, as time
    /// does, and is kept nowhere.
    #[serde(skip)]
    pub accepted_drafts: usize,
}

impl PartialEq for GenerateResult {
    fn eq(&self, other: &Self) -> bool {
        fn all(result: &GenerateResult) -> impl PartialEq {
            // All fields by name and no `..`: a new field does not compile until somebody says whether it counts.
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

/// What a work list cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of all prompts and answers, as if each were computed from scratch.
    pub tokens_unshared: u64,
    /// Tokens that went through the model.
    pub tokens_computed: u64,
    /// The most bytes of keys and values that were held, or set aside for texts being generated, at once.
    pub peak_cache_bytes: u64,
    /// Tokens that were generated.
    #[serde(default)]
    pub tokens_generated: u64,
    /// Tokens that were guessed ahead of the model, and put to it.
    #[serde(default)]
    pub tokens_drafted: u64,
    /// Of these, those that the model would have said.
    #[serde(default)]
    pub drafts_accepted: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.tokens_unshared += other.tokens_unshared;
        self.tokens_computed += other.tokens_computed;
        // Lists run one after another, so their peaks do not add up.
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
        assert_eq!(why("<think>"), "the likeliest next token is \"<think>\", which opens a thought");
        assert_eq!(why("\n"), r#"the likeliest next token is "\n""#);
        let kept = serde_json::to_value(outcome("x")).expect("JSON");
        assert_eq!(serde_json::from_value::<Outcome>(kept).expect("read"), outcome("x"));
        let plain = serde_json::json!({ "outcome": "low_mass" });
        assert_eq!(serde_json::from_value::<Outcome>(plain).expect("read"), Outcome::LowMass { why: None });
    }
}
