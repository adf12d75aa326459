//! The verdicts of a judge: offered labels, parsing, and how several are combined.

use probity_data::from_value;
use probity_lm::{Finish, GenerateResult, Label, LabelAnswer, LabelSet, Outcome, ScoreResult};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::brackets::{MARKER, follows_marker, last_verdict, whole_part};
use crate::answer::{check_mass, probabilities_by_name};
use crate::answer_text::{answer_of, answer_text};
use crate::figures::mean;
use crate::reward::preferred;
use crate::scale::one_begins_another;
use crate::stage::RowError;
use crate::{MethodError, RatingScale, row};

/// The verdicts that a judge may choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedVerdicts {
    /// `[[A]]`: the text shown first is better; `[[B]]`: the second is; `[[C]]`: a tie, if ties are offered.
    Pair {
        ties: bool,
    },
    Ratings(RatingScale),
}

impl OfferedVerdicts {
    /// The possible contents of the brackets.
    pub fn names(self) -> Vec<String> {
        match self {
            Self::Pair { ties } => {
                ["A", "B", "C"][..if ties { 3 } else { 2 }].iter().map(|name| (*name).to_owned()).collect()
            }
            Self::Ratings(scale) => (scale.min..=scale.max).map(|k| k.to_string()).collect(),
        }
    }

    /// The labels that follow [`MARKER`]. If one is a prefix of another (1 and 10), each includes its closing bracket.
    pub fn labels(self) -> Result<LabelSet, MethodError> {
        let names = self.names();
        let ambiguous = one_begins_another(&names);
        let variants =
            |name: &String| if ambiguous { vec![format!("{name}]]"), format!("{name}]")] } else { vec![name.clone()] };
        Ok(LabelSet::new(names.iter().map(|name| Label { name: name.clone(), variants: variants(name) }).collect())?)
    }

    /// The value with these weights of the offered verdicts, which sum to one.
    fn says(self, weights: &[f64]) -> DecisionValue {
        match self {
            Self::Pair { .. } => DecisionValue::Pair([weights[0], weights[1], weights.get(2).copied().unwrap_or(0.0)]),
            Self::Ratings(scale) => {
                DecisionValue::Rating(weights.iter().zip(0_u32..).map(|(w, k)| w * f64::from(scale.min + k)).sum())
            }
        }
    }
}

/// The better of two texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PairChoice {
    /// The first text.
    First,
    /// The second text.
    Second,
    /// Neither is better.
    Tie,
}

impl PairChoice {
    fn weights(self) -> [f64; 3] {
        match self {
            Self::First => [1.0, 0.0, 0.0],
            Self::Second => [0.0, 1.0, 0.0],
            Self::Tie => [0.0, 0.0, 1.0],
        }
    }
}

/// The value of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DecisionValue {
    /// The weights of first, second and tie. They sum to one.
    Pair([f64; 3]),
    Rating(f64),
}

impl DecisionValue {
    fn weights(self) -> Option<[f64; 3]> {
        if let Self::Pair(weights) = self { Some(weights) } else { None }
    }

    fn rating(self) -> Option<f64> {
        if let Self::Rating(rating) = self { Some(rating) } else { None }
    }
}

/// A value, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Present if [`Outcome::has_answer`].
    pub says: Option<DecisionValue>,
    /// How the request ended.
    pub outcome: Outcome,
}

impl Decision {
    /// A decision without a verdict.
    pub fn none(outcome: Outcome) -> Self {
        Self { says: None, outcome }
    }

    /// A decision with the full weight on one choice.
    pub fn chosen(choice: PairChoice) -> Self {
        Self::new(DecisionValue::Pair(choice.weights()), None)
    }

    /// A rating.
    pub fn rated(rating: f64) -> Self {
        Self::new(DecisionValue::Rating(rating), None)
    }

    /// Takes the outcome of a low-mass answer, if any.
    fn new(says: DecisionValue, low_mass: Option<&Outcome>) -> Self {
        let outcome = match (low_mass, says.weights().map(heaviest)) {
            (Some(low_mass), _) => low_mass.clone(),
            (None, Some(None)) => Outcome::Tie,
            (None, _) => Outcome::Scored,
        };
        Self { says: Some(says), outcome }
    }

    /// The verdict with the highest weight; a tie if two are equal. `None` for a rating.
    pub fn choice(&self) -> Option<PairChoice> {
        Some(heaviest(self.says?.weights()?).unwrap_or(PairChoice::Tie))
    }

    /// The preference for the text shown first, from 0 to 1: its weight plus half of a tie's. `None` for a rating.
    pub fn p(&self) -> Option<f64> {
        self.says?.weights().map(|[first, _, tie]| first + tie / 2.0)
    }

    /// The rating, if any.
    pub fn rating(&self) -> Option<f64> {
        self.says?.rating()
    }

    /// The decision with the texts in the other order.
    #[must_use]
    pub fn turned(&self) -> Self {
        let says = self.says.map(|says| match says {
            DecisionValue::Pair([first, second, tie]) => DecisionValue::Pair([second, first, tie]),
            rating @ DecisionValue::Rating(_) => rating,
        });
        Self { says, outcome: self.outcome.clone() }
    }

    /// The majority of choices, with a tie for equal counts, or the mean of ratings. Decisions without a value are
    /// ignored; if all lack one, the outcome is that of the first.
    pub fn vote(all: &[Self]) -> Self {
        let voice = |one: &Self| Some(one.choice().map_or(one.says?, |choice| DecisionValue::Pair(choice.weights())));
        Self::merged(all, voice)
    }

    /// The mean of weights or ratings; missing values as in [`vote`](Self::vote).
    pub fn mean(all: &[Self]) -> Self {
        Self::merged(all, |one| one.says)
    }

    fn merged(all: &[Self], voice: impl Fn(&Self) -> Option<DecisionValue>) -> Self {
        let voices: Vec<DecisionValue> = all.iter().filter_map(voice).collect();
        let low_mass = all.iter().map(|one| &one.outcome).find(|outcome| outcome.is_low_mass());
        let rating = mean(voices.iter().filter_map(|voice| voice.rating()));
        let weight = |k: usize| mean(voices.iter().filter_map(|voice| Some(voice.weights()?[k])));
        let pair = || Some(DecisionValue::Pair([weight(0)?, weight(1)?, weight(2)?]));
        match rating.map(DecisionValue::Rating).or_else(pair) {
            Some(says) => Self::new(says, low_mass),
            None => Self::none(all.first().map_or(Outcome::Empty, |one| one.outcome.clone())),
        }
    }
}

/// The choice whose weight exceeds both others.
fn heaviest(weights: [f64; 3]) -> Option<PairChoice> {
    let most = weights.into_iter().fold(f64::NEG_INFINITY, f64::max);
    let choices = [PairChoice::First, PairChoice::Second, PairChoice::Tie].into_iter().zip(weights);
    let mut at_most = choices.filter(|(_, weight)| *weight == most);
    at_most.next().filter(|_| at_most.next().is_none()).map(|(choice, _)| choice)
}

/// One answer of a judge, as stored in rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgeAnswer {
    /// The generated text; absent if only labels were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The number of generated tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
    /// How the text ended. A text truncated by the token limit has no verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finish: Option<Finish>,
    /// The final verdict of the text; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "letter_or_number")]
    pub written: Option<String>,
    /// Normalised probabilities of the verdicts; absent if not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    probabilities: Option<Map<String, Value>>,
    /// Label mass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mass: Option<f64>,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A judge's verdict on one question, from one or more answers.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgeVerdict {
    /// The decision over all answers.
    pub decided: Decision,
    /// One per cycle; empty for a question with nothing to judge.
    pub answers: Vec<JudgeAnswer>,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<usize>,
}

impl JudgeVerdict {
    /// The verdict on a question that was skipped.
    pub fn none(outcome: Outcome) -> Self {
        Self { decided: Decision::none(outcome), answers: Vec::new(), prompt_tokens: None }
    }

    /// A verdict from probabilities without a text.
    pub fn from_labels(result: &ScoreResult, offered: OfferedVerdicts) -> Self {
        Self::from_answers(vec![JudgeAnswer::from_labels(result)], Some(result.prompt_tokens), offered, true)
    }

    /// A verdict from the rewards of two texts under the Bradley–Terry model; a tie if they are equal.
    pub fn from_rewards(results: [&ScoreResult; 2], offered: OfferedVerdicts) -> Self {
        let reward = |result: &ScoreResult| Some(result.classes()?.classes.first()?.logit);
        let prompt_tokens = Some(results.iter().map(|result| result.prompt_tokens).sum());
        let answer = if let [Some(first), Some(second)] = results.map(reward) {
            let p = [preferred(first, second), preferred(second, first), 0.0];
            let all = offered.names().into_iter().zip(p).map(|(name, p)| (name, json!(p))).collect();
            JudgeAnswer { probabilities: Some(all), ..JudgeAnswer::none(Outcome::Scored) }
        } else {
            let failed = results.into_iter().find(|result| !result.outcome.has_answer());
            JudgeAnswer::none(failed.map_or(Outcome::Empty, |result| result.outcome.clone()))
        };
        Self::from_answers(vec![answer], prompt_tokens, offered, true)
    }

    /// A verdict from generated texts, one per cycle.
    pub fn from_texts(results: &[GenerateResult], offered: OfferedVerdicts, labels: bool) -> Self {
        let read = |result: &GenerateResult| {
            if labels { JudgeAnswer::at_marker(result, offered) } else { JudgeAnswer::written(result, offered) }
        };
        let prompt_tokens = results.first().map(|result| result.prompt_tokens);
        Self::from_answers(results.iter().map(read).collect(), prompt_tokens, offered, labels)
    }

    /// Reads a verdict from its row.
    pub fn read(row: &Value, offered: OfferedVerdicts, labels: bool) -> Result<Self, RowError> {
        let given: GivenVerdict = from_value(row)?;
        for (number, answer) in given.answers.iter().enumerate() {
            answer.check(&format!("answers[{number}]"), offered, labels)?;
        }
        if given.answers.is_empty() {
            let outcome: Outcome = from_value(row)?;
            if outcome.has_answer() {
                return Err(format!("`answers` is empty, but `outcome` is `{}`", outcome.name()).into());
            }
            return Ok(Self::none(outcome));
        }
        Ok(Self::from_answers(given.answers, given.prompt_tokens, offered, labels))
    }

    /// Combines answers by vote, or by mean probabilities if labels were requested. The weights of a vote are the
    /// shares of the cycles.
    fn from_answers(
        mut answers: Vec<JudgeAnswer>,
        prompt_tokens: Option<usize>,
        offered: OfferedVerdicts,
        labels: bool,
    ) -> Self {
        let each: Vec<Decision> = answers.iter().map(|answer| answer.decided(offered)).collect();
        // The value also determines the answer's outcome: two labels with the same probability make a tie of a pair and
        // a mean of ratings.
        answers.iter_mut().zip(&each).for_each(|(answer, decided)| answer.outcome.clone_from(&decided.outcome));
        let decided = match each.as_slice() {
            [one] => one.clone(),
            _ if labels => Decision::mean(&each),
            _ => Decision::vote(&each),
        };
        Self { decided, answers, prompt_tokens }
    }

    /// The fields of the row.
    pub fn row(&self, offered: OfferedVerdicts) -> Value {
        let decided = match offered {
            OfferedVerdicts::Pair { .. } => row! { "choice": self.decided.choice(), "p": self.decided.p() },
            OfferedVerdicts::Ratings(_) => row! { "rating": self.decided.rating() },
        };
        row! {
            ..decided, "mass": self.mass(), ..&self.decided.outcome, "answers": self.answers,
            "prompt_tokens": self.prompt_tokens,
        }
    }

    /// The mean label mass over cycles, if labels were requested.
    pub fn mass(&self) -> Option<f64> {
        mean(self.answers.iter().filter_map(|answer| answer.mass))
    }

    /// Tokens of its prompts and answers, without prefix sharing.
    pub fn tokens(&self) -> usize {
        self.answers.iter().map(|answer| self.prompt_tokens.unwrap_or(0) + answer.tokens.unwrap_or(0)).sum()
    }

    /// The number of answers without a verdict.
    pub fn unparsed(&self) -> usize {
        self.answers.iter().filter(|answer| matches!(answer.outcome, Outcome::Unparsed { .. })).count()
    }
}

/// A verdict read from an existing row.
#[derive(Deserialize)]
struct GivenVerdict {
    answers: Vec<JudgeAnswer>,
    prompt_tokens: Option<usize>,
}

impl JudgeAnswer {
    fn none(outcome: Outcome) -> Self {
        Self { text: None, tokens: None, finish: None, written: None, probabilities: None, mass: None, outcome }
    }

    /// The decision of the row.
    fn decided(&self, offered: OfferedVerdicts) -> Decision {
        let names = offered.names();
        let weights: Vec<f64> = match (&self.probabilities, &self.written) {
            _ if !self.outcome.has_answer() => return Decision::none(self.outcome.clone()),
            (Some(probabilities), _) => names.iter().filter_map(|name| probabilities.get(name)?.as_f64()).collect(),
            (None, Some(written)) => names.iter().map(|name| f64::from(u8::from(name == written))).collect(),
            (None, None) => return Decision::none(self.outcome.clone()),
        };
        Decision::new(offered.says(&weights), Some(&self.outcome).filter(|outcome| outcome.is_low_mass()))
    }

    /// An error if an answer with a successful outcome, at `place` of its row, has no offered verdict, or if its fields
    /// contradict one another.
    fn check(&self, place: &str, offered: OfferedVerdicts, labels: bool) -> Result<(), RowError> {
        let (names, outcome) = (offered.names(), self.outcome.name());
        let offers = names.join(", ");
        let refuse =
            |field: &str, why: String| -> Result<(), RowError> { Err(format!("`{place}.{field}` {why}").into()) };
        if let Some(said) = self.written.as_ref().filter(|said| !names.contains(said)) {
            return refuse("written", format!("is {said:?}; expected one of {offers}"));
        }
        if let Some(all) = &self.probabilities {
            if let Some(other) = all.keys().find(|name| !names.contains(name)) {
                return refuse("probabilities", format!("has {other:?}; expected {offers}"));
            }
            if probabilities_by_name(all, names.iter().cloned()).is_none() {
                return refuse("probabilities", format!("must have one value for each of {offers} and sum to 1"));
            }
            if !self.outcome.has_answer() {
                return refuse("probabilities", format!("exist, but `outcome` is `{outcome}`"));
            }
        }
        if self.mass.is_some() && self.probabilities.is_none() {
            return refuse("mass", "exists, but `probabilities` is missing".to_owned());
        }
        check_mass(&format!("{place}.mass"), self.mass)?;
        if self.outcome.is_low_mass() && self.probabilities.is_none() {
            return refuse("outcome", format!("is `{outcome}`, but `probabilities` is missing"));
        }
        let answer = self.text.as_ref().and_then(|text| answer_text(text, self.finish).ok());
        let ends_in = answer.and_then(|text| last_verdict(&text, &names).ok());
        let has_text = self.text.as_ref().is_some_and(|text| !text.trim().is_empty());
        if self.outcome == Outcome::Empty && has_text {
            return refuse("outcome", format!("is `{outcome}`, but `text` exists"));
        }
        let Some(said) = &self.written else {
            if let (Outcome::Unparsed { .. }, Some(position)) = (&self.outcome, ends_in) {
                let why = format!("is `{outcome}`, but `text` ends in [[{}]]", names[position]);
                return refuse("outcome", why);
            }
            if self.probabilities.is_none() && self.outcome.has_answer() {
                let why = format!("is `{outcome}`, but `written` and `probabilities` are missing");
                return refuse("outcome", why);
            }
            return Ok(());
        };
        // Without the requested probabilities the text may still end in a verdict.
        let may_lack = labels && ends_in.is_some() && self.outcome != Outcome::Empty;
        if !self.outcome.has_answer() && !may_lack {
            return refuse("written", format!("exists, but `outcome` is `{outcome}`"));
        }
        // A judge may write a verdict other than its likeliest, but then its text contains it.
        if let Some(other) = ends_in.map(|position| &names[position]) {
            if other != said {
                return refuse("written", format!("is {said:?}, but `text` ends in [[{other}]]"));
            }
        } else if let Some(all) = &self.probabilities {
            let probability = |name: &String| all.get(name).and_then(Value::as_f64);
            if let Some(other) = names.iter().find(|other| probability(other) > probability(said)) {
                return refuse("written", format!("is {said:?}, but {other:?} has a higher probability"));
            }
        } else if has_text {
            return refuse("written", format!("is {said:?}, but `text` does not end in a verdict"));
        }
        Ok(())
    }

    fn from_labels(result: &ScoreResult) -> Self {
        let Some(labels) = result.labels() else { return Self::none(result.outcome.clone()) };
        let outcome = result.outcome.clone();
        Self { probabilities: Some(probabilities(labels)), mass: Some(labels.mass), ..Self::none(outcome) }
    }

    /// The label probabilities after the last marker of a text.
    fn at_marker(result: &GenerateResult, offered: OfferedVerdicts) -> Self {
        let written = Self::written(result, offered);
        if !result.outcome.has_text() {
            return written;
        }
        let no_marker = || unparsed(format!("the text has no `{MARKER}` before a verdict"));
        let is_last = answer_of(result).and_then(|text| match text.rfind(MARKER) {
            Some(at) if result.text.rfind(MARKER) == Some(at) => {
                follows_marker(&text, at, &offered.names()).map_err(|why| unparsed(why.to_string()))
            }
            _ => Err(no_marker()),
        });
        let answer = match (is_last, &result.verdict) {
            (Err(why), _) => Self::none(why),
            (Ok(()), Some(verdict)) => Self::from_labels(verdict),
            (Ok(()), None) => Self::none(no_marker()),
        };
        let Self { text, tokens, finish, written, .. } = written;
        Self { text, tokens, finish, written, ..answer }
    }

    /// The final verdict of a text.
    fn written(result: &GenerateResult, offered: OfferedVerdicts) -> Self {
        if !result.outcome.has_text() {
            return Self::none(result.outcome.clone());
        }
        let names = offered.names();
        let said =
            answer_of(result).and_then(|text| last_verdict(&text, &names).map_err(|why| unparsed(why.to_string())));
        let (written, outcome) = match said {
            Ok(said) => (Some(names[said].clone()), Outcome::Scored),
            Err(why) => (None, why),
        };
        let (text, tokens) = (Some(result.text.clone()), Some(result.token_ids.len()));
        Self { text, tokens, finish: result.finish, written, ..Self::none(outcome) }
    }
}

/// A verdict in a table: a letter, or a rating that may be stored as a number. Spreadsheets turn 3 into 3.0.
fn letter_or_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Number(serde_json::Number),
    }
    let written = Option::<Written>::deserialize(from)?;
    Ok(written.map(|written| {
        let text = match written {
            Written::Text(text) => text,
            Written::Number(number) => number.to_string(),
        };
        match whole_part(&text) {
            Some(whole) => whole.to_owned(),
            None => text,
        }
    }))
}

fn unparsed(why: impl Into<String>) -> Outcome {
    Outcome::Unparsed { why: why.into() }
}

fn probabilities(labels: &LabelAnswer) -> Map<String, Value> {
    labels.labels.iter().map(|label| (label.name.clone(), json!(label.prob))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::generated;

    const PAIR: OfferedVerdicts = OfferedVerdicts::Pair { ties: false };

    #[test]
    fn an_answer_that_was_given_says_what_its_outcome_says() {
        let read = |answer: Value| JudgeVerdict::read(&json!({ "answers": [answer] }), PAIR, false);
        for good in [
            json!({ "outcome": "scored", "written": "B" }),
            json!({ "outcome": "scored", "probabilities": { "A": 0.3, "B": 0.7 } }),
            json!({ "outcome": "low_mass", "probabilities": { "A": 0.3333, "B": 0.6666 } }),
        ] {
            assert_eq!(read(good).expect("a verdict").decided.choice(), Some(PairChoice::Second));
        }
        assert_eq!(read(json!({ "outcome": "empty" })).expect("none").decided.choice(), None);
        for (bad, part) in [
            (
                json!({ "outcome": "scored", "text": "[[A]]" }),
                "outcome` is `scored`, but `written` and `probabilities` \
                                                               are missing",
            ),
            (json!({ "outcome": "scored", "written": "C" }), "written` is \"C\"; expected one of A, B"),
            (
                json!({ "outcome": "scored", "written": "C", "probabilities": { "A": 0.3, "B": 0.7 } }),
                "written` is \"C\"; expected one of A, B",
            ),
            (
                json!({ "outcome": "scored", "probabilities": { "A": 0.3, "B": 0.7, "C": 0.0 } }),
                "probabilities` has \"C\"; expected A, B",
            ),
            (
                json!({ "outcome": "scored", "probabilities": { "A": 1.0 } }),
                "probabilities` must have one value for \
                                                                             each",
            ),
            (
                json!({ "outcome": "scored", "probabilities": { "A": 3.0, "B": 7.0 } }),
                "probabilities` must have one \
                                                                                       value",
            ),
            (
                json!({ "outcome": "scored", "probabilities": { "A": -0.5, "B": 1.5 } }),
                "probabilities` must have one \
                                                                                        value",
            ),
            (json!({ "outcome": "empty", "probabilities": { "A": 0.3, "B": 0.7 } }), "probabilities` exist, but"),
            (
                json!({ "outcome": "scored", "written": "A", "mass": 0.9 }),
                "mass` exists, but `probabilities` is \
                                                                           missing",
            ),
            (
                json!({ "outcome": "scored", "probabilities": { "A": 0.3, "B": 0.7 }, "mass": 8.7 }),
                "mass` is 8.7; expected a probability from 0 to 1",
            ),
            (json!({ "outcome": "empty", "written": "A" }), "written` exists, but `outcome` is `empty`"),
            (
                json!({ "outcome": "scored", "written": "A", "probabilities": { "A": 0.3, "B": 0.7 } }),
                "written` is \"A\", but \"B\" has a higher probability",
            ),
            (
                json!({ "outcome": "scored", "written": "A", "text": "So: [[B]]" }),
                "written` is \"A\", but `text` ends in [[B]]",
            ),
            (
                json!({ "outcome": "scored", "written": "A", "text": "so" }),
                "written` is \"A\", but `text` does not end in a verdict",
            ),
            (
                json!({ "outcome": "unparsed", "why": "lost", "text": "so [[B]]" }),
                "outcome` is `unparsed`, but `text` ends in [[B]]",
            ),
            (json!({ "outcome": "empty", "text": "so [[A]]" }), "outcome` is `empty`, but `text` exists"),
            (
                json!({ "outcome": "low_mass", "written": "A" }),
                "outcome` is `low_mass`, but `probabilities` is \
                                                                missing",
            ),
        ] {
            let why = read(bad.clone()).expect_err("refused").to_string();
            assert!(why.starts_with(&format!("`answers[0].{part}")), "{bad}: {why}");
        }
        let nothing = JudgeVerdict::read(&json!({ "answers": [], "outcome": "scored" }), PAIR, false);
        assert_eq!(nothing.expect_err("refused").to_string(), "`answers` is empty, but `outcome` is `scored`");
    }

    #[test]
    fn what_a_judge_wrote_need_not_be_likeliest_nor_have_probabilities_where_its_text_says_it() {
        let read = |answer: Value| JudgeVerdict::read(&json!({ "answers": [answer] }), PAIR, true).expect("sound");
        let torn =
            json!({ "outcome": "scored", "text": "[[B]]", "written": "B", "probabilities": { "A": 0.7, "B": 0.3 } });
        assert_eq!(read(torn).decided.choice(), Some(PairChoice::First));
        let lacking = json!({ "outcome": "not_finite", "why": "a logit", "text": "[[B]]", "written": "B" });
        assert_eq!(read(lacking).decided.choice(), None);
    }

    #[test]
    fn labels_that_begin_one_another_include_the_bracket() {
        let variants = |offered: OfferedVerdicts| offered.labels().expect("valid").labels()[0].variants.clone();
        assert_eq!(variants(PAIR), ["A"]);
        assert_eq!(variants(OfferedVerdicts::Ratings("1..5".parse().expect("valid"))), ["1"]);
        assert_eq!(variants(OfferedVerdicts::Ratings("1..10".parse().expect("valid"))), ["1]]", "1]"]);
    }

    fn voiced(texts: &[&str]) -> JudgeVerdict {
        let results: Vec<GenerateResult> = texts.iter().map(|text| generated(text)).collect();
        JudgeVerdict::from_texts(&results, PAIR, false)
    }

    #[test]
    fn cycles_are_a_vote_in_which_a_tie_is_a_tie_and_the_unreadable_have_no_part() {
        let verdict = voiced(&["[[A]]", "[[B]]", "[[A]]"]);
        assert_eq!((verdict.decided.choice(), &verdict.decided.outcome), (Some(PairChoice::First), &Outcome::Scored));
        assert!((verdict.decided.p().expect("a pair") - 2.0 / 3.0).abs() < 1e-12);
        let tied = voiced(&["[[A]]", "[[B]]"]);
        assert_eq!((tied.decided.choice(), tied.decided.outcome), (Some(PairChoice::Tie), Outcome::Tie));
        let one = voiced(&["who knows", "[[B]]", ""]);
        assert_eq!((one.decided.choice(), one.unparsed()), (Some(PairChoice::Second), 2));
        assert!(matches!(voiced(&["?", "!"]).decided, Decision { says: None, outcome: Outcome::Unparsed { .. } }));
    }

    #[test]
    fn a_verdict_counts_outside_thoughts_and_in_a_text_that_ended_by_itself() {
        let read = |text: &str, finish: Finish, labels: bool| {
            let verdict = LabelAnswer::from_logprobs([("A", -0.1), ("B", -3.0)]).expect("probabilities");
            let verdict = ScoreResult {
                outcome: Outcome::Scored,
                prompt_tokens: 7,
                answer: Some(probity_lm::ScoreAnswer::Labels(verdict)),
            };
            let result = GenerateResult { finish: Some(finish), verdict: Some(verdict), ..generated(text) };
            let said = JudgeVerdict::from_texts(std::slice::from_ref(&result), PAIR, labels);
            // The row contains the same values.
            let row = said.row(PAIR);
            assert_eq!(JudgeVerdict::read(&row, PAIR, labels).expect("sound"), said, "{text}");
            (said.decided.choice(), said.decided.outcome)
        };
        for (text, finish) in [
            ("<think>[[A]] looks fine</think> Neither convinces me.", Finish::EndOfTurn),
            ("<think>I lean to [[A]] but", Finish::Length),
            ("<think>I lean to [[A]] but", Finish::EndOfTurn),
            ("I lean to [[A]] but", Finish::Length),
            ("[[A]] looks fine</think> Neither convinces me.", Finish::EndOfTurn),
            ("[THINK][[A]][/THINK] Neither.", Finish::EndOfTurn),
            ("<seed:think>[[A]]</seed:think> Neither.", Finish::EndOfTurn),
            ("<|channel|>analysis<|message|>[[A]]<|end|><|start|>assistant<|channel|>final<|message|>?", Finish::Stop),
            ("At first [[A]]. Final: [ [B]]", Finish::EndOfTurn),
        ] {
            for labels in [false, true] {
                let (choice, outcome) = read(text, finish, labels);
                assert!(
                    choice.is_none() && matches!(outcome, Outcome::Unparsed { .. }),
                    "{labels} {text}: {outcome:?}"
                );
            }
        }
        let text = "At first [[A]]. Final: [\u{200b}[B]]";
        assert_eq!(read(text, Finish::EndOfTurn, false).0, Some(PairChoice::Second));
        assert_eq!(read(text, Finish::EndOfTurn, true).0, None, "the marker is that of the first");
        let text = "<think>[[B]]?</think> Verdict: [[A]]";
        assert_eq!(read(text, Finish::EndOfTurn, false).0, Some(PairChoice::First));
        assert_eq!(read(text, Finish::EndOfTurn, true).0, Some(PairChoice::First));
    }

    #[test]
    fn a_rating_from_a_table_may_be_a_number() {
        let offered = OfferedVerdicts::Ratings("1..5".parse().expect("valid"));
        let read = |written: Value| {
            let answer = json!({ "outcome": "scored", "written": written });
            JudgeVerdict::read(&json!({ "answers": [answer] }), offered, false).map(|verdict| verdict.decided.rating())
        };
        for written in [json!("3"), json!(3), json!(3.0), json!("3.0")] {
            assert_eq!(read(written.clone()).expect("a rating"), Some(3.0), "{written}");
        }
        let error = read(json!(3.5)).expect_err("refused").to_string();
        assert!(error.contains("`answers[0].written` is \"3.5\"; expected one of 1, 2, 3, 4, 5"), "{error}");
        assert!(read(json!(["3"])).is_err() && read(json!(true)).is_err());
        assert!(read(Value::Null).expect_err("refused").to_string().contains(
            "`written` and `probabilities` are \
                                                                              missing"
        ));
    }

    #[test]
    fn tokens_without_a_text_keep_the_reason_of_the_model() {
        let outcome = unparsed("the tokens cannot be decoded");
        let result = GenerateResult::without_text(outcome.clone(), 7);
        for labels in [false, true] {
            let verdict = JudgeVerdict::from_texts(std::slice::from_ref(&result), PAIR, labels);
            assert_eq!((verdict.decided, verdict.answers[0].text.as_ref()), (Decision::none(outcome.clone()), None));
        }
    }

    #[test]
    fn two_orders_agree_or_are_a_tie() {
        let decided = |choice: PairChoice| Decision::new(DecisionValue::Pair(choice.weights()), None);
        let orders = |first: PairChoice, second: PairChoice| {
            Decision::vote(&[decided(first), decided(second).turned()]).choice()
        };
        assert_eq!(orders(PairChoice::First, PairChoice::Second), Some(PairChoice::First));
        assert_eq!(orders(PairChoice::First, PairChoice::First), Some(PairChoice::Tie));
        assert_eq!(orders(PairChoice::First, PairChoice::Tie), Some(PairChoice::Tie));
        assert_eq!(orders(PairChoice::Tie, PairChoice::Tie), Some(PairChoice::Tie));
    }

    #[test]
    fn ratings_are_averaged() {
        let offered = OfferedVerdicts::Ratings("1..5".parse().expect("valid"));
        let results: Vec<GenerateResult> = ["[[4]]", "so [[5]]", "none"].map(generated).into();
        let verdict = JudgeVerdict::from_texts(&results, offered, false);
        assert_eq!((verdict.decided.rating(), verdict.decided.choice(), verdict.unparsed()), (Some(4.5), None, 1));
    }
}
