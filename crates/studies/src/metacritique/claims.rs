//! Decides single claims: precision of a critique's claims, recall of the reference's.

use probity_lm::{GenerateResult, LanguageModel, Outcome};
use serde_json::json;

use super::conclusion::{MARKER, conclusion, is_last_marker};
use super::options::ClaimMode;
use super::prompts::LABELS;
use crate::MethodError;
use crate::answer::{Answer, ChoiceFields, ProbabilityFields};
use crate::prompt_set::{ReadyPrompt, Slots};
use crate::query::{ChoiceReadout, ChoiceText, Query, QueryStage};
use crate::question::labels_in_any_case;

/// Whether a critique's claim is true of the answer (equations 1 and 2).
pub(super) const PRECISION: &str = "precision";
/// Whether a critique makes a claim of the reference (equations 3 and 4).
pub(super) const RECALL: &str = "recall";

/// A claim to decide.
pub(super) struct Claim<'a> {
    /// The sample's id.
    pub(super) item: &'a str,
    /// The critique scored by it.
    pub(super) candidate: &'a str,
    /// The number of the claim in its critique, or in the reference for recall.
    pub(super) number: usize,
    pub(super) aiu: &'a str,
    /// The texts shown with the claim; the model is not queried if one is empty.
    pub(super) slots: Slots<'a>,
}

/// How claims are decided.
pub(super) struct ClaimJudge<'a> {
    pub(super) prompt: &'a ReadyPrompt,
    pub(super) model: &'a dyn LanguageModel,
    pub(super) verdict: ClaimMode,
    pub(super) tokens: u32,
}

/// Whether the model judges the claim true.
pub(super) fn is_true(answer: &Answer<usize>) -> Option<bool> {
    answer.value.map(|option| option == 0)
}

/// The stage that decides claims.
pub(super) fn stage<'a>(
    name: &'static str,
    claims: Vec<Claim<'a>>,
    judge: &ClaimJudge<'a>,
    inputs: Vec<String>,
) -> Result<QueryStage<'a, ChoiceReadout>, MethodError> {
    let fields = ChoiceFields {
        value: Some("label"),
        options: vec![json!(true), json!(false)],
        probabilities: ProbabilityFields::First,
        text: Some("rationale"),
        tokens: true,
    };
    let text = |marker: Option<&str>, read| ChoiceText {
        tokens: judge.tokens as usize,
        constraint: None,
        marker: marker.map(str::to_owned),
        read,
    };
    let text = match judge.verdict {
        ClaimMode::Label => None,
        ClaimMode::Generate => Some(text(None, parse_conclusion as fn(&GenerateResult) -> Answer<usize>)),
        ClaimMode::RationaleLabel => Some(text(Some(MARKER), parse_after_marker)),
    };
    let readout = ChoiceReadout { text, ..ChoiceReadout::new(labels_in_any_case(&LABELS)?, fields) };
    let query = |claim: Claim<'a>| {
        let Claim { item, candidate, number, aiu, slots } = claim;
        let identity = json!({ "item": item, "candidate": candidate, "number": number, "aiu": aiu });
        let slots = slots.into_iter().chain([("claim", aiu)]).collect();
        Query::new(format!("{item}/{name}/{candidate}/{number}"), item, identity, judge.prompt, slots).unless_empty()
    };
    let queries = claims.into_iter().map(query).collect();
    Ok(QueryStage::new(name, judge.model, queries, readout, inputs).with_earlier_fields(&["aiu"]))
}

fn unparsed(why: String) -> Outcome {
    Outcome::Unparsed { why }
}

/// The conclusion of the rationale.
fn parse_conclusion(result: &GenerateResult) -> Answer<usize> {
    let no_end = || unparsed(format!("the rationale does not end in `{MARKER} true` or `{MARKER} false`"));
    let answer = Answer::from_text(result, |text| conclusion(text).ok_or_else(no_end));
    let value = answer.value.map(|is_true| usize::from(!is_true));
    with_rationale(Answer { value, ..Answer::none(answer.outcome) }, result)
}

/// The labels after the rationale's last marker.
fn parse_after_marker(result: &GenerateResult) -> Answer<usize> {
    let no_marker = || unparsed(format!("the rationale has no `{MARKER}` before a label"));
    let is_at_marker = |text: &str| is_last_marker(&result.text, text).then_some(()).ok_or_else(no_marker);
    let found = Answer::from_text(result, is_at_marker);
    let answer = match (found.value, &result.verdict) {
        (Some(()), Some(verdict)) => Answer::likeliest(verdict),
        (Some(()), None) => Answer::none(no_marker()),
        (None, _) => Answer::none(found.outcome),
    };
    with_rationale(answer, result)
}

fn with_rationale(answer: Answer<usize>, result: &GenerateResult) -> Answer<usize> {
    let text = result.outcome.has_text().then(|| result.text.trim().to_owned());
    Answer { text, counts: result.into(), ..answer }
}
