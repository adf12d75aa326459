//! Claims, decided one by one: precision of a critique's own, recall of the reference's.

use std::marker::PhantomData;

use probity_data::from_value;
use probity_lm::{Ask, GenerateRequest, GenerateResult, LabelAnswer, LabelSet, Outcome, ScoreRequest, ScoreResult};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::conclusion::{MARKER, conclusion, is_last_marker};
use super::options::ClaimMode;
use super::prompts::LABELS;
use crate::answer_text::answer_of;
use crate::prompt_set::{ReadyPrompt, Slots};
use crate::question::labels_in_any_case;
use crate::stage::given_outcome;
use crate::{KeepPart, MethodError, MethodStage, RowError, Run};

/// Which of the two tasks it is.
pub(super) trait Task: Sync {
    /// The stage and its table.
    const NAME: &'static str;
}

/// Is a claim of a critique true of the answer (equations 1 and 2)?
pub(super) struct Precision;

impl Task for Precision {
    const NAME: &'static str = "precision";
}

/// Does a critique make a claim of the reference (equations 3 and 4)?
pub(super) struct Recall;

impl Task for Recall {
    const NAME: &'static str = "recall";
}

/// A claim to be decided.
pub(super) struct Claim<'a> {
    /// The sample's id.
    pub(super) item: &'a str,
    /// The critique that is scored by it.
    pub(super) candidate: &'a str,
    /// Which of its critique's claims; for recall, of the reference's.
    pub(super) number: usize,
    pub(super) aiu: &'a str,
    /// What is shown besides the claim; nothing is asked where one of these is empty.
    pub(super) slots: Slots<'a>,
}

impl Claim<'_> {
    fn can_be_asked(&self) -> bool {
        self.slots.iter().all(|(_, text)| !text.trim().is_empty())
    }

    fn all_slots(&self) -> Slots<'_> {
        self.slots.iter().copied().chain([("claim", self.aiu)]).collect()
    }
}

/// What was decided of a claim.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClaimVerdict {
    /// Absent where nothing can be read.
    pub(super) label: Option<bool>,
    /// P(true) / (P(true) + P(false)), where probabilities were asked for.
    pub(super) p: Option<f64>,
    /// P(true) + P(false) under the full vocabulary.
    pub(super) mass: Option<f64>,
    /// What the model wrote, where it was to.
    pub(super) rationale: Option<String>,
    pub(super) outcome: Outcome,
    pub(super) prompt_tokens: Option<usize>,
    pub(super) tokens: Option<usize>,
}

impl ClaimVerdict {
    /// Of somebody who just said so.
    pub(super) fn said(label: bool) -> Self {
        Self { label: Some(label), ..Self::none(Outcome::Scored) }
    }

    fn none(outcome: Outcome) -> Self {
        Self { label: None, p: None, mass: None, rationale: None, outcome, prompt_tokens: None, tokens: None }
    }

    fn of_labels(result: &ScoreResult) -> Self {
        let read = |answer: &LabelAnswer| {
            let p = answer.labels[0].prob;
            // Neither label at even odds: it is read as nobody's.
            let label = (p != 0.5).then_some(p > 0.5);
            Self { label, p: Some(p), mass: Some(answer.mass), ..Self::none(result.outcome.clone()) }
        };
        let verdict = result.labels().map_or_else(|| Self::none(result.outcome.clone()), read);
        Self { prompt_tokens: Some(result.prompt_tokens), ..verdict }
    }

    fn of_text(result: &GenerateResult, with_labels: bool) -> Self {
        let (prompt_tokens, tokens) = (Some(result.prompt_tokens), Some(result.token_ids.len()));
        if !result.outcome.has_text() {
            return Self { prompt_tokens, ..Self::none(result.outcome.clone()) };
        }
        let unread = |why: String| Outcome::Unparsed { why };
        let no_marker = || unread(format!("the rationale has no `{MARKER}`, behind which the label would stand"));
        let no_end = || unread(format!("the rationale does not end in `{MARKER} true` or `{MARKER} false`"));
        let verdict = answer_of(result).and_then(|answer| match (&result.verdict, with_labels) {
            (Some(verdict), true) if is_last_marker(&result.text, &answer) => Ok(Self::of_labels(verdict)),
            (_, true) => Err(no_marker()),
            (_, false) => conclusion(&answer).map(Self::said).ok_or_else(no_end),
        });
        let verdict = verdict.unwrap_or_else(Self::none);
        Self { rationale: Some(result.text.trim().to_owned()), prompt_tokens, tokens, ..verdict }
    }
}

/// How claims are decided.
pub(super) struct ClaimJudge<'a> {
    pub(super) prompt: &'a ReadyPrompt,
    pub(super) verdict: ClaimMode,
    pub(super) tokens: u32,
}

/// The stage in which claims are decided: a part, and a row, for each.
pub(super) struct ClaimStage<'a, T> {
    pub(super) claims: Vec<Claim<'a>>,
    pub(super) judge: ClaimJudge<'a>,
    pub(super) inputs: Vec<String>,
    pub(super) task: PhantomData<T>,
}

impl<T: Task> ClaimStage<'_, T> {
    fn id(claim: &Claim<'_>) -> String {
        format!("{}/{}/{}/{}", claim.item, T::NAME, claim.candidate, claim.number)
    }

    fn score_request(&self, number: usize, labels: &LabelSet) -> ScoreRequest {
        let claim = &self.claims[number];
        let prompt = self.judge.prompt.prompt(claim.item, &claim.all_slots());
        ScoreRequest { id: Self::id(claim), prompt, ask: Ask::Labels(labels.clone()) }
    }

    fn text_request(&self, number: usize, labels: &LabelSet) -> GenerateRequest {
        let claim = &self.claims[number];
        let request = self.judge.prompt.request(Self::id(claim), claim.item, &claim.all_slots(), self.judge.tokens);
        let verdict = (self.judge.verdict != ClaimMode::Generate).then(|| (MARKER.to_owned(), labels.clone()));
        GenerateRequest { verdict, ..request }
    }
}

impl<T: Task> MethodStage for ClaimStage<'_, T> {
    type Part = ClaimVerdict;
    const NAME: &'static str = T::NAME;
    const FROM_EARLIER: &'static [&'static str] = &["aiu"];

    fn parts(&self) -> usize {
        self.claims.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, ClaimVerdict>) -> Result<(), MethodError> {
        let labels = labels_in_any_case(&LABELS)?;
        let (asked, empty): (Vec<usize>, Vec<usize>) =
            (0..self.claims.len()).partition(|number| self.claims[*number].can_be_asked());
        for number in &asked {
            let claim = &self.claims[*number];
            run.quotes(self.judge.prompt.render(claim.item, &claim.all_slots())?.quoted);
        }
        if self.judge.verdict == ClaimMode::Label {
            let requests = asked.iter().map(|number| self.score_request(*number, &labels));
            run.score(requests, |position, result, output| {
                keep(asked[position], ClaimVerdict::of_labels(&result), output)
            })?;
        } else {
            let with_labels = self.judge.verdict != ClaimMode::Generate;
            let requests = asked.iter().map(|number| self.text_request(*number, &labels));
            run.generate(requests, |position, result, output| {
                keep(asked[position], ClaimVerdict::of_text(&result, with_labels), output)
            })?;
        }
        for number in empty {
            keep(number, ClaimVerdict::none(Outcome::Empty), run.output()).map_err(MethodError::Output)?;
        }
        Ok(())
    }

    fn identity(&self, number: usize) -> Value {
        let Claim { item, candidate, number, aiu, .. } = &self.claims[number];
        json!({ "item": item, "candidate": candidate, "number": number, "aiu": aiu })
    }

    fn rows(&self, number: usize, verdict: &ClaimVerdict) -> serde_json::Result<Vec<Value>> {
        let Claim { item, candidate, number, aiu, .. } = &self.claims[number];
        let ClaimVerdict { label, p, mass, rationale, outcome, prompt_tokens, tokens } = verdict;
        Ok(vec![serde_json::to_value(ClaimRow {
            item,
            candidate,
            number: *number,
            aiu,
            label: *label,
            p: *p,
            mass: *mass,
            rationale: rationale.as_deref(),
            outcome,
            prompt_tokens: *prompt_tokens,
            tokens: *tokens,
        })?])
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<ClaimVerdict, RowError> {
        let given: GivenClaim = from_value(&rows[0])?;
        let outcome = given_outcome(&rows[0])?;
        let GivenClaim { label, p, mass, rationale, prompt_tokens, tokens } = given;
        if let Some(p) = p.filter(|p| !(0.0..=1.0).contains(p)) {
            return Err(format!("`p` is {p}, and a probability is from 0 to 1").into());
        }
        if p.zip(label).is_some_and(|(p, label)| (p > 0.5) != label) {
            return Err(format!("`label` is {}, and `p` is {}", json!(label), json!(p)).into());
        }
        // At even odds there is an answer, and no label.
        let is_even = outcome == Outcome::Tie || p == Some(0.5);
        if (outcome.has_answer() && !is_even) != label.is_some() {
            return Err(format!("`label` is {}, and `outcome` is `{}`", json!(label), outcome.name()).into());
        }
        Ok(ClaimVerdict { label, p, mass, rationale, outcome, prompt_tokens, tokens })
    }

    fn stand_in(&self, _: usize) -> ClaimVerdict {
        ClaimVerdict::said(true)
    }
}

/// A claim and what was decided.
#[derive(Serialize)]
struct ClaimRow<'a> {
    item: &'a str,
    candidate: &'a str,
    number: usize,
    aiu: &'a str,
    label: Option<bool>,
    p: Option<f64>,
    mass: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rationale: Option<&'a str>,
    #[serde(flatten)]
    outcome: &'a Outcome,
    prompt_tokens: Option<usize>,
    tokens: Option<usize>,
}

/// A row that was written before, or by somebody else: a label is enough.
#[derive(Deserialize)]
struct GivenClaim {
    label: Option<bool>,
    p: Option<f64>,
    mass: Option<f64>,
    rationale: Option<String>,
    prompt_tokens: Option<usize>,
    tokens: Option<usize>,
}
