//! Answers, held against each unit that was asked for.

use std::marker::PhantomData;

use probity_data::from_value;
use probity_lm::{Ask, Constraint, GenerateRequest, GenerateResult, Outcome, ScoreRequest, ScoreResult};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::options::JudgementMode;
use super::prompts::VERDICTS;
use super::questions::Asked;
use crate::answer_text::answer_of;
use crate::prompt_set::ReadyPrompt;
use crate::question::labels_in_any_case;
use crate::stage::{flatten_into, given_outcome};
use crate::{KeepPart, MethodError, MethodStage, RowError, Run};

/// The longest reason, in characters, and what a judgement may have in tokens.
const REASON: usize = 300;
const TOKENS: usize = 128;

/// What an answer is, of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Correct,
    Incorrect,
    /// The answer does not cover the unit.
    Unrelated,
}

impl Verdict {
    pub(super) const ALL: [Self; 3] = [Self::Correct, Self::Incorrect, Self::Unrelated];

    /// Of what is covered.
    pub(super) fn of_right(is_right: bool) -> Self {
        if is_right { Self::Correct } else { Self::Incorrect }
    }

    /// Whether it is right; nothing of what is not covered.
    pub(super) fn is_right(self) -> Option<bool> {
        (self != Self::Unrelated).then_some(self == Self::Correct)
    }

    pub(super) fn name(self) -> &'static str {
        VERDICTS[self as usize]
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        VERDICTS.iter().position(|known| *known == name).map(|place| Self::ALL[place])
    }
}

/// A judgement, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Judgement {
    pub(super) verdict: Option<Verdict>,
    /// In the order of [`VERDICTS`], where they were asked for.
    probabilities: Option<[f64; 3]>,
    pub(super) mass: Option<f64>,
    reason: Option<String>,
    pub(super) outcome: Outcome,
    pub(super) prompt_tokens: Option<usize>,
    pub(super) tokens: Option<usize>,
}

#[derive(Deserialize)]
struct JudgementJson {
    reason: String,
    verdict: Verdict,
}

impl Judgement {
    pub(super) fn none(outcome: Outcome) -> Self {
        Self {
            verdict: None,
            probabilities: None,
            mass: None,
            reason: None,
            outcome,
            prompt_tokens: None,
            tokens: None,
        }
    }

    /// Whether the answer speaks of the unit.
    pub(super) fn covers(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Correct | Verdict::Incorrect))
    }

    fn of_labels(result: &ScoreResult) -> Self {
        let read = |answer: &probity_lm::LabelAnswer| {
            let probabilities = [0, 1, 2].map(|place| answer.labels[place].prob);
            let most = probabilities.into_iter().fold(f64::NEG_INFINITY, f64::max);
            // Of equals the last: what is not known to be covered is asked for again.
            let place = probabilities.iter().rposition(|p| *p == most);
            Self {
                verdict: place.map(|place| Verdict::ALL[place]),
                probabilities: Some(probabilities),
                mass: Some(answer.mass),
                ..Self::none(result.outcome.clone())
            }
        };
        let judgement = result.labels().map_or_else(|| Self::none(result.outcome.clone()), read);
        Self { prompt_tokens: Some(result.prompt_tokens), ..judgement }
    }

    fn of_text(result: &GenerateResult) -> Self {
        let (prompt_tokens, tokens) = (Some(result.prompt_tokens), Some(result.token_ids.len()));
        let no_json = |_| Outcome::Unparsed { why: "it is not JSON with a reason and a verdict".to_owned() };
        let json = |text: &str| serde_json::from_str::<JudgementJson>(text.trim()).map_err(no_json);
        let judgement = match &result.outcome {
            outcome if !outcome.has_text() => Self::none(outcome.clone()),
            _ => match answer_of(result).and_then(|text| json(&text)) {
                Ok(JudgementJson { reason, verdict }) => {
                    Self { verdict: Some(verdict), reason: Some(reason), ..Self::none(Outcome::Scored) }
                }
                Err(why) => Self::none(why),
            },
        };
        Self { prompt_tokens, tokens, ..judgement }
    }
}

/// An answer and a unit that its question asks for.
pub(super) struct JudgedAnswer<'a> {
    /// The question's id.
    pub(super) question_id: &'a str,
    pub(super) question: &'a str,
    pub(super) answer: &'a str,
    /// The unit's id.
    pub(super) unit_id: &'a str,
    pub(super) unit: &'a str,
}

impl JudgedAnswer<'_> {
    fn slots(&self) -> [(&'static str, &str); 3] {
        [("question", self.question), ("answer", self.answer), ("unit", self.unit)]
    }
}

/// The stage in which answers are judged: a part, and a row, for each answer and unit.
pub(super) struct JudgementsStage<'a, A> {
    pub(super) judged: Vec<JudgedAnswer<'a>>,
    pub(super) verdict: JudgementMode,
    pub(super) prompt: &'a ReadyPrompt,
    pub(super) inputs: Vec<String>,
    pub(super) asked: PhantomData<A>,
}

impl<A: Asked> JudgementsStage<'_, A> {
    fn id(judged: &JudgedAnswer<'_>) -> String {
        format!("{}/{}/{}", judged.question_id, A::JUDGEMENTS, judged.unit_id)
    }

    fn text_request(&self, judged: &JudgedAnswer<'_>) -> GenerateRequest {
        let constraint = Constraint::JsonSchema(json!({
            "type": "object",
            "properties": {
                "reason": { "type": "string", "maxLength": REASON },
                "verdict": { "enum": VERDICTS }
            },
            "required": ["reason", "verdict"],
            "additionalProperties": false
        }));
        let prompt = self.prompt.prompt(judged.question_id, &judged.slots());
        GenerateRequest { constraint: Some(constraint), ..GenerateRequest::greedy(Self::id(judged), prompt, TOKENS) }
    }
}

impl<A: Asked> MethodStage for JudgementsStage<'_, A> {
    type Part = Judgement;
    const NAME: &'static str = A::JUDGEMENTS;
    const IN_ROUNDS: bool = true;

    fn parts(&self) -> usize {
        self.judged.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, Judgement>) -> Result<(), MethodError> {
        let (asked, empty): (Vec<usize>, Vec<usize>) =
            (0..self.judged.len()).partition(|number| !self.judged[*number].answer.trim().is_empty());
        for number in &asked {
            let judged = &self.judged[*number];
            run.quotes(self.prompt.render(judged.question_id, &judged.slots())?.quoted);
        }
        if self.verdict == JudgementMode::Label {
            let labels = labels_in_any_case(&VERDICTS)?;
            let request = |number: &usize| {
                let judged = &self.judged[*number];
                let prompt = self.prompt.prompt(judged.question_id, &judged.slots());
                ScoreRequest { id: Self::id(judged), prompt, ask: Ask::Labels(labels.clone()) }
            };
            run.score(asked.iter().map(request), |position, result, output| {
                keep(asked[position], Judgement::of_labels(&result), output)
            })?;
        } else {
            let requests = asked.iter().map(|number| self.text_request(&self.judged[*number]));
            run.generate(requests, |position, result, output| {
                keep(asked[position], Judgement::of_text(&result), output)
            })?;
        }
        for number in empty {
            // Nothing was said, so nothing of the unit.
            let nothing = Judgement { verdict: Some(Verdict::Unrelated), ..Judgement::none(Outcome::Empty) };
            keep(number, nothing, run.output()).map_err(MethodError::Output)?;
        }
        Ok(())
    }

    fn identity(&self, number: usize) -> Value {
        let JudgedAnswer { question_id, unit_id, .. } = &self.judged[number];
        json!({ "id": question_id, "unit": unit_id })
    }

    fn rows(&self, number: usize, judgement: &Judgement) -> serde_json::Result<Vec<Value>> {
        let mut row = self.identity(number);
        row["text"] = json!(self.judged[number].unit);
        row["verdict"] = json!(judgement.verdict);
        if let Some(probabilities) = judgement.probabilities {
            let named = VERDICTS.iter().zip(probabilities).map(|(name, p)| ((*name).to_owned(), json!(p)));
            row["probabilities"] = Value::Object(named.collect::<Map<_, _>>());
            row["mass"] = json!(judgement.mass);
        }
        if let Some(reason) = &judgement.reason {
            row["reason"] = json!(reason);
        }
        flatten_into(&mut row, &judgement.outcome)?;
        row["prompt_tokens"] = json!(judgement.prompt_tokens);
        row["tokens"] = json!(judgement.tokens);
        Ok(vec![row])
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<Judgement, RowError> {
        let given: GivenJudgement = from_value(&rows[0])?;
        let outcome = given_outcome(&rows[0])?;
        let verdict = match given.verdict.as_deref() {
            None => None,
            Some(name) => Some(
                Verdict::named(name)
                    .ok_or_else(|| format!("`verdict` is {name:?}, and may be {}", VERDICTS.join(", ")))?,
            ),
        };
        if (outcome.has_answer() || outcome == Outcome::Empty) != verdict.is_some() {
            let why = format!("`verdict` is {}, and `outcome` is `{}`", json!(given.verdict), outcome.name());
            return Err(why.into());
        }
        let probabilities = given.probabilities.map(|all| {
            let found = VERDICTS.map(|name| all.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN));
            let is_whole = (found.iter().sum::<f64>() - 1.0).abs() < 0.01;
            let are_shares = found.iter().all(|p| (0.0..=1.0).contains(p));
            (is_whole && are_shares)
                .then_some(found)
                .ok_or("`probabilities` are not one for each verdict that sum to 1")
        });
        let probabilities = probabilities.transpose()?;
        if let (Some(all), Some(verdict)) = (probabilities, verdict) {
            let most = all.iter().copied().fold(0.0, f64::max);
            if all[verdict as usize] < most {
                return Err(format!("`verdict` is {}, and another is more probable", verdict.name()).into());
            }
        }
        let GivenJudgement { mass, reason, prompt_tokens, tokens, .. } = given;
        if let Some(mass) = mass.filter(|mass| !(0.0..=1.0 + 1e-9).contains(mass)) {
            return Err(format!("`mass` is {mass}, and a probability is from 0 to 1").into());
        }
        Ok(Judgement { verdict, probabilities, mass, reason, outcome, prompt_tokens, tokens })
    }

    /// Nothing is covered: then all is asked for that may be asked for in a round.
    fn stand_in(&self, _: usize) -> Judgement {
        Judgement { verdict: Some(Verdict::Unrelated), ..Judgement::none(Outcome::Scored) }
    }
}

/// A row that was written before, or by somebody else: a verdict is enough.
#[derive(Deserialize)]
struct GivenJudgement {
    verdict: Option<String>,
    probabilities: Option<Map<String, Value>>,
    mass: Option<f64>,
    reason: Option<String>,
    prompt_tokens: Option<usize>,
    tokens: Option<usize>,
}
