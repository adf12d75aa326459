//! Names clusters and writes questions that ask for their units.

use std::collections::BTreeSet;

use probity_data::from_value;
use probity_lm::{Constraint, GenerateRequest, GenerateResult, LanguageModel};
use serde::Deserialize;
use serde_json::{Value, json};

use super::units::Unit;
use super::words::{asks, count_words, same_words, telling_words};
use crate::answer_text::answer_of;
use crate::figures::TokenCounts;
use crate::prompt_set::ReadyPrompt;
use crate::query::{Query, QueryStage, Readout, WrittenReadout};
use crate::written::{WrittenOutcome, dry_text};
use crate::{RowError, row};

/// The maximum number of units shown when a cluster is named.
const SHOWN: usize = 8;
/// The token limit of a name.
const NAME_TOKENS: usize = 16;
/// Characters and tokens of a question per word.
const CHARACTERS: u32 = 8;
const TOKENS: u32 = 3;
/// Tokens of the JSON around a question, and per number in it.
const AROUND: u32 = 24;
/// A unit with fewer distinctive words than this cannot be leaked by a question.
const LEAKING_WORDS: usize = 2;

/// The stages of a set of questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuestionSet {
    pub(super) questions: &'static str,
    pub(super) answers: &'static str,
    pub(super) judgements: &'static str,
    /// The prefix of question ids, which makes them unique.
    prefix: &'static str,
}

/// The position of a question in the examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) set: QuestionSet,
    /// From 1.
    pub(super) round: usize,
    /// 0 for the first question about a cluster in the round, higher for follow-ups.
    pub(super) number: usize,
}

/// The questions of the method.
pub(super) const EXAMINATION: QuestionSet =
    QuestionSet { questions: "questions", answers: "answers", judgements: "judgements", prefix: "" };

/// The questions of the baseline that asks for one unit at a time.
pub(super) const ONE_BY_ONE: QuestionSet = QuestionSet {
    questions: "single_questions",
    answers: "single_answers",
    judgements: "single_judgements",
    prefix: "single.",
};

/// The stage that names clusters, and its table.
pub(super) const CLUSTERS: &str = "clusters";

/// The stage that names clusters.
pub(super) fn clusters_stage<'a>(
    round: usize,
    units: &'a [Unit],
    clusters: &[Vec<usize>],
    prompt: &'a ReadyPrompt,
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> QueryStage<'a, WrittenReadout> {
    let query = |(place, cluster): (usize, &Vec<usize>)| {
        let number = place + 1;
        let id = format!("{CLUSTERS}/{round}.{number}");
        let ids: Vec<&str> = cluster.iter().map(|unit| units[*unit].id.as_str()).collect();
        let identity = json!({ "round": round, "cluster": number, "units": ids });
        let shown = cluster.iter().take(SHOWN).map(|unit| units[*unit].text.as_str().into()).collect();
        Query::new(id.clone(), id, identity, prompt, Vec::new()).with_list("units", shown)
    };
    // A title is one line.
    let readout = WrittenReadout { tokens: NAME_TOKENS, stop: vec!["\n".to_owned()] };
    let queries = clusters.iter().enumerate().map(query).collect();
    QueryStage::new(CLUSTERS, model, queries, readout, inputs).in_rounds().with_earlier_fields(&["units"])
}

/// A question to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedUnits {
    /// The cluster's number in its round, from 1.
    pub(super) cluster: usize,
    /// The positions of its units.
    pub(super) units: Vec<usize>,
    /// The previous question and answer, for a follow-up.
    pub(super) earlier: Option<(String, String)>,
}

/// A question with the units it asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExamQuestion {
    pub(super) text: String,
    /// Positions among the given units, sorted and distinct.
    pub(super) targets: Vec<usize>,
    /// The units named by the model that the question leaks.
    pub(super) leaked: Vec<usize>,
    pub(super) ended: QuestionOutcome,
    pub(super) counts: TokenCounts,
}

/// The outcome of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum QuestionOutcome {
    /// It is asked.
    Asked,
    /// It has too many words.
    Wordy,
    /// It is a statement.
    NoQuestion,
    /// It leaks all units that it asks for.
    Leaks,
    /// It asks for no unit.
    NoTarget,
    /// It repeats the previous question.
    Repeats,
    /// The text is not JSON of the required form.
    Unparsed,
    /// There is no text; the model's outcome.
    Text(WrittenOutcome),
}

impl QuestionOutcome {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Wordy => "wordy",
            Self::NoQuestion => "no_question",
            Self::Leaks => "leaks",
            Self::NoTarget => "no_target",
            Self::Repeats => "repeats",
            Self::Unparsed => "unparsed",
            Self::Text(ended) => ended.name(),
        }
    }
}

#[derive(Deserialize)]
struct QuestionJson {
    question: String,
    targets: Vec<usize>,
}

impl ExamQuestion {
    fn none(ended: QuestionOutcome, result: &GenerateResult) -> Self {
        Self { text: String::new(), targets: Vec::new(), leaked: Vec::new(), ended, counts: result.into() }
    }

    fn parse(result: &GenerateResult, units: &[&str], words: usize) -> Self {
        let written = WrittenOutcome::from_result(result);
        if written.has_text() != Some(true) {
            return Self::none(QuestionOutcome::Text(written), result);
        }
        let json: Option<QuestionJson> = answer_of(result).ok().and_then(|text| serde_json::from_str(text.trim()).ok());
        // Refuses numbers of unknown units, which the schema excludes.
        let json = json.filter(|json| json.targets.iter().all(|target| (1..=units.len()).contains(target)));
        let Some(QuestionJson { question, targets }) = json else {
            return Self::none(QuestionOutcome::Unparsed, result);
        };
        let targets = targets.into_iter().map(|target| target - 1).collect();
        Self { counts: result.into(), ..Self::checked(&question, targets, units, words) }
    }

    /// Validates a question for these units.
    fn checked(question: &str, targets: Vec<usize>, units: &[&str], words: usize) -> Self {
        let named: BTreeSet<usize> = targets.into_iter().collect();
        let (leaked, targets): (Vec<usize>, Vec<usize>) =
            named.into_iter().partition(|target| gives_away(question, units[*target]));
        let text = question.trim().to_owned();
        let ended = match () {
            () if text.is_empty() => QuestionOutcome::Text(WrittenOutcome::Empty),
            () if count_words(&text) > words => QuestionOutcome::Wordy,
            () if !asks(&text) => QuestionOutcome::NoQuestion,
            () if targets.is_empty() && !leaked.is_empty() => QuestionOutcome::Leaks,
            () if targets.is_empty() => QuestionOutcome::NoTarget,
            () => QuestionOutcome::Asked,
        };
        Self { text, targets, leaked, ended, counts: TokenCounts::default() }
    }
}

/// Whether a question contains all distinctive words of a unit, so that repeating it states the unit.
fn gives_away(question: &str, unit: &str) -> bool {
    let (said, own) = (telling_words(question), telling_words(unit));
    own.len() >= LEAKING_WORDS && own.is_subset(&said)
}

/// The id of a question: round, turn and cluster.
pub(super) fn question_id(turn: Turn, wanted: &WantedUnits) -> String {
    format!("{}{}.{}.{}", turn.set.prefix, turn.round, turn.number, wanted.cluster)
}

/// The stage that writes questions.
pub(super) fn questions_stage<'a>(
    turn: Turn,
    readout: QuestionReadout<'a>,
    prompt: &'a ReadyPrompt,
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> QueryStage<'a, QuestionReadout<'a>> {
    let QuestionReadout { units, wanted, .. } = readout;
    let query = |wanted: &'a WantedUnits| {
        let question_id = question_id(turn, wanted);
        let id = format!("{question_id}/{}", turn.set.questions);
        let ids: Vec<&str> = wanted.units.iter().map(|unit| units[*unit].id.as_str()).collect();
        let identity = json!({
            "id": question_id, "round": turn.round, "turn": turn.number, "cluster": wanted.cluster, "units": ids,
        });
        let slots = wanted.earlier.as_ref().map_or_else(Vec::new, |(question, answer)| {
            vec![("earlier_question", question.as_str()), ("earlier_answer", answer.as_str())]
        });
        let texts = wanted.units.iter().map(|unit| units[*unit].text.as_str().into()).collect();
        Query::new(id.clone(), id, identity, prompt, slots).with_list("units", texts)
    };
    let queries = wanted.iter().map(query).collect();
    QueryStage::new(turn.set.questions, model, queries, readout, inputs).in_rounds().with_earlier_fields(&["units"])
}

/// Reads a question and its targets from JSON.
#[derive(Clone, Copy)]
pub(super) struct QuestionReadout<'a> {
    pub(super) units: &'a [Unit],
    pub(super) wanted: &'a [WantedUnits],
    /// The maximum length of a question in words.
    pub(super) words: u32,
}

impl QuestionReadout<'_> {
    fn texts(&self, number: usize) -> Vec<&str> {
        self.wanted[number].units.iter().map(|unit| self.units[*unit].text.as_str()).collect()
    }

    /// Marks a question that repeats the previous one, so that it is not asked.
    fn unless_repeated(&self, number: usize, question: ExamQuestion) -> ExamQuestion {
        let repeats = |(earlier, _): &(String, String)| same_words(earlier, &question.text);
        let is_asked = question.ended == QuestionOutcome::Asked;
        if is_asked && self.wanted[number].earlier.as_ref().is_some_and(repeats) {
            return ExamQuestion { ended: QuestionOutcome::Repeats, ..question };
        }
        question
    }
}

impl Readout for QuestionReadout<'_> {
    type Answer = ExamQuestion;

    fn request(&self, number: usize, request: GenerateRequest) -> GenerateRequest {
        let (words, units) = (self.words, self.wanted[number].units.len());
        let constraint = Constraint::JsonSchema(json!({
            "type": "object",
            "properties": {
                "question": { "type": "string", "minLength": 1, "maxLength": CHARACTERS * words },
                "targets": {
                    "type": "array", "minItems": 1, "maxItems": units,
                    "items": { "type": "integer", "minimum": 1, "maximum": units }
                }
            },
            "required": ["question", "targets"],
            "additionalProperties": false
        }));
        let tokens = TOKENS * words + AROUND + TOKENS * units as u32;
        GenerateRequest { max_tokens: tokens as usize, constraint: Some(constraint), ..request }
    }

    fn read_text(&self, number: usize, result: &GenerateResult) -> ExamQuestion {
        self.unless_repeated(number, ExamQuestion::parse(result, &self.texts(number), self.words as usize))
    }

    fn rows(&self, number: usize, question: &ExamQuestion) -> Vec<Value> {
        let wanted = &self.wanted[number];
        let ids = |targets: &[usize]| -> Vec<&str> {
            targets.iter().map(|target| self.units[wanted.units[*target]].id.as_str()).collect()
        };
        let ended = match &question.ended {
            QuestionOutcome::Text(ended) => json!(ended),
            other => json!({ "outcome": other.name() }),
        };
        vec![row! {
            "question": question.text, "targets": ids(&question.targets), "leaked": ids(&question.leaked), ..ended,
            ..question.counts,
        }]
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<ExamQuestion, RowError> {
        let given: GivenQuestion = from_value(&rows[0])?;
        let units = &self.wanted[number].units;
        let mut named = Vec::new();
        for id in given.targets.iter().chain(&given.leaked) {
            let Some(target) = units.iter().position(|unit| self.units[*unit].id == *id) else {
                let known: Vec<&str> = units.iter().map(|unit| self.units[*unit].id.as_str()).collect();
                let why = format!("`targets` names the unit {id:?}, but the cluster has {}", known.join(", "));
                return Err(why.into());
            };
            named.push(target);
        }
        let checked = ExamQuestion::checked(&given.question, named, &self.texts(number), self.words as usize);
        let ended = match given.outcome.as_deref() {
            Some("unparsed") => QuestionOutcome::Unparsed,
            Some("empty" | "truncated" | "too_long" | "altered" | "not_finite") => {
                QuestionOutcome::Text(from_value(&rows[0])?)
            }
            _ => checked.ended.clone(),
        };
        Ok(self.unless_repeated(number, ExamQuestion { ended, counts: from_value(&rows[0])?, ..checked }))
    }

    /// A question for all of its units.
    fn stand_in(&self, number: usize) -> ExamQuestion {
        ExamQuestion {
            text: dry_text(number, self.words as usize - 1),
            targets: (0..self.wanted[number].units.len()).collect(),
            leaked: Vec::new(),
            ended: QuestionOutcome::Asked,
            counts: TokenCounts::default(),
        }
    }
}

/// A row written before or provided by the user; question and targets are enough.
#[derive(Deserialize)]
struct GivenQuestion {
    question: String,
    targets: Vec<String>,
    #[serde(default)]
    leaked: Vec<String>,
    outcome: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::generated;

    fn ended(text: &str, units: &[&str], words: usize) -> (&'static str, Vec<usize>, Vec<usize>) {
        let question = ExamQuestion::parse(&generated(text), units, words);
        (question.ended.name(), question.targets, question.leaked)
    }

    #[test]
    fn a_question_is_checked_before_it_is_asked() {
        let units = ["The mill burned down in 1874.", "Two brothers from Bonn built the mill.", "It is."];
        let json = |question: &str, targets: &[usize]| json!({"question": question, "targets": targets}).to_string();
        assert_eq!(ended(&json("What became of the mill?", &[2, 1, 1]), &units, 50), ("asked", vec![0, 1], vec![]));
        // The question contains all distinctive words of the first unit; the third unit has none.
        let leaking = json("Was it in 1874 that the mill burned down, and who built it?", &[1, 2, 3]);
        assert_eq!(ended(&leaking, &units, 50), ("asked", vec![1, 2], vec![0]));
        assert_eq!(ended(&json("Did the mill burn down: burned, 1874?", &[1]), &units, 50).0, "leaks");
        assert_eq!(ended(&json("What became of the mill?", &[1]), &units, 3).0, "wordy");
        assert_eq!(ended(&json("The mill was built by brothers.", &[1]), &units, 50).0, "no_question");
        assert_eq!(ended(&json("Name the brothers.", &[1]), &units, 50).0, "asked");
        assert_eq!(ended(&json("磨坊是谁建的", &[1]), &units, 50).0, "asked");
        assert_eq!(ended(&json("What?", &[4]), &units, 50).0, "unparsed");
        assert_eq!(ended(&json(" ", &[1]), &units, 50).0, "empty");
        assert_eq!(ended("{\"question\": \"What", &units, 50).0, "unparsed");
        assert_eq!(ended("", &units, 50).0, "empty");
    }
}
