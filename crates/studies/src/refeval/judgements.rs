//! Judges answers against each unit that was asked for.

use probity_lm::{Constraint, GenerateResult, LanguageModel, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::options::JudgementMode;
use super::prompts::VERDICTS;
use crate::MethodError;
use crate::answer::{Answer, ChoiceFields, ProbabilityFields};
use crate::prompt_set::ReadyPrompt;
use crate::query::{ChoiceReadout, ChoiceText, Query, QueryStage};
use crate::question::labels_in_any_case;

/// The maximum length of a reason in characters, and of a judgement in tokens.
const REASON: usize = 300;
const TOKENS: usize = 128;

/// The verdict on an answer for one unit.
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

    /// The verdict for a covered unit.
    pub(super) fn from_correctness(is_right: bool) -> Self {
        if is_right { Self::Correct } else { Self::Incorrect }
    }

    /// Whether it is correct; `None` if the unit is not covered.
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

/// The verdict of a judgement.
pub(super) fn verdict(judgement: &Answer<usize>) -> Option<Verdict> {
    judgement.value.map(|place| Verdict::ALL[place])
}

/// Whether the answer covers the unit.
pub(super) fn covers(judgement: &Answer<usize>) -> bool {
    matches!(verdict(judgement), Some(Verdict::Correct | Verdict::Incorrect))
}

#[derive(Deserialize)]
struct JudgementJson {
    reason: String,
    verdict: Verdict,
}

fn parse_json(result: &GenerateResult) -> Answer<usize> {
    let no_json = |_| Outcome::Unparsed { why: "not JSON with a reason and a verdict".to_owned() };
    let answer = Answer::from_text(result, |text| serde_json::from_str::<JudgementJson>(text.trim()).map_err(no_json));
    let (value, text) = match answer.value {
        Some(JudgementJson { reason, verdict }) => (Some(verdict as usize), Some(reason)),
        None => (None, None),
    };
    Answer { value, text, counts: answer.counts, ..Answer::none(answer.outcome) }
}

/// An answer with a unit that its question asks for.
pub(super) struct JudgedAnswer<'a> {
    /// The question's id.
    pub(super) question_id: &'a str,
    pub(super) question: &'a str,
    pub(super) answer: &'a str,
    /// The unit's id.
    pub(super) unit_id: &'a str,
    pub(super) unit: &'a str,
}

/// The stage that judges answers: one question for each answer and unit.
pub(super) fn stage<'a>(
    name: &'static str,
    judged: &[JudgedAnswer<'a>],
    mode: JudgementMode,
    prompt: &'a ReadyPrompt,
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> Result<QueryStage<'a, ChoiceReadout>, MethodError> {
    let query = |judged: &JudgedAnswer<'a>| {
        let JudgedAnswer { question_id, question, answer, unit_id, unit } = *judged;
        let identity = json!({ "id": question_id, "unit": unit_id, "text": unit });
        let slots = vec![("question", question), ("answer", answer), ("unit", unit)];
        let query = Query::new(format!("{question_id}/{name}/{unit_id}"), question_id, identity, prompt, slots);
        Query { is_asked: !answer.trim().is_empty(), ..query }
    };
    let fields = ChoiceFields {
        value: Some("verdict"),
        options: VERDICTS.iter().map(|name| json!(name)).collect(),
        probabilities: ProbabilityFields::ByOptionIfAny,
        text: Some("reason"),
        tokens: true,
    };
    let unrelated = Verdict::Unrelated as usize;
    let text = ChoiceText { tokens: TOKENS, constraint: Some(schema()), marker: None, read: parse_json };
    let readout = ChoiceReadout {
        text: (mode != JudgementMode::Label).then_some(text),
        // An empty answer does not cover the unit.
        unasked: Answer { value: Some(unrelated), ..Answer::none(Outcome::Empty) },
        // With nothing covered, a round asks the maximum number of questions.
        stand_in: unrelated,
        ..ChoiceReadout::new(labels_in_any_case(&VERDICTS)?, fields)
    };
    let queries = judged.iter().map(query).collect();
    Ok(QueryStage::new(name, model, queries, readout, inputs).in_rounds())
}

fn schema() -> Constraint {
    Constraint::JsonSchema(json!({
        "type": "object",
        "properties": {
            "reason": { "type": "string", "maxLength": REASON },
            "verdict": { "enum": VERDICTS }
        },
        "required": ["reason", "verdict"],
        "additionalProperties": false
    }))
}
