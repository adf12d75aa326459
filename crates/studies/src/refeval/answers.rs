//! Answers of the evaluated model, or from a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use probity_data::{DataError, JsonLines, LineError, LineProblems, open_regular};
use probity_lm::{GenerateRequest, GenerateResult, LanguageModel};
use serde::Deserialize;
use serde_json::{Value, json};

use super::questions::Turn;
use crate::figures::TokenCounts;
use crate::prompt_set::ReadyPrompt;
use crate::query::{Query, QueryStage, Readout, WrittenReadout};
use crate::question::short_hash;
use crate::written::{WrittenOutcome, WrittenText};
use crate::{MethodError, RowError};

/// The maximum length of an answer in characters: several pages.
const LONGEST: usize = 20_000;

/// Answers from a file, by question id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GivenAnswers {
    path: PathBuf,
    /// Each with the question it claims to answer, if stated.
    answers: BTreeMap<String, (Option<String>, String)>,
    last_line: u64,
}

#[derive(Deserialize)]
struct AnswerRow {
    id: String,
    question: Option<String>,
    #[serde(alias = "text")]
    answer: String,
}

impl GivenAnswers {
    /// Reads JSON lines with `id` and `answer`, and optionally `question`.
    pub(super) fn read(path: &Path) -> Result<Self, DataError> {
        let mut problems = LineProblems {
            example: Some(r#"{"id": "1.0.3", "answer": "…"}"#),
            ..LineProblems::new(path.display().to_string())
        };
        let mut answers: BTreeMap<String, (usize, Option<String>, String)> = BTreeMap::new();
        let mut last_line = 1;
        for (line, row) in JsonLines::<AnswerRow, _>::new(open_regular(path)?) {
            last_line = line as u64;
            match row {
                Ok(AnswerRow { answer, .. }) if answer.chars().count() > LONGEST => {
                    let why = format!("it has {} characters; the maximum is {LONGEST}", answer.chars().count());
                    problems.push(line, LineError::content("answer", why).with_hint("shorten the answer"));
                }
                Ok(AnswerRow { id, question, answer }) => {
                    if let Some((first, ..)) = answers.get(&id) {
                        let why = format!("duplicate answer to `{}`, first on line {first}", id.escape_debug());
                        problems.push(line, LineError::content("id", why).with_hint("keep one of them"));
                    } else {
                        answers.insert(id, (line, question, answer));
                    }
                }
                Err(error) => problems.push(line, error),
            }
        }
        if answers.is_empty() && problems.is_empty() {
            problems.push(1, LineError::content("", "the file contains no answers"));
        }
        if !problems.is_empty() {
            return Err(DataError::Problems(problems));
        }
        let answers = answers.into_iter().map(|(id, (_, question, answer))| (id, (question, answer))).collect();
        Ok(Self { path: path.to_owned(), answers, last_line })
    }

    /// Whether there is an answer to any question of this turn.
    pub(super) fn reach(&self, Turn { round, number, .. }: Turn) -> bool {
        let prefix = format!("{round}.{number}.");
        self.answers.keys().any(|id| id.starts_with(&prefix))
    }

    /// The number of answers.
    pub(super) fn count(&self) -> usize {
        self.answers.len()
    }

    fn answer(&self, asked: &AskedQuestion, stage: &'static str) -> Result<WrittenText, MethodError> {
        let refuse = |why: String| MethodError::Table { stage, path: self.path.clone(), line: self.last_line, why };
        let Some((question, answer)) = self.answers.get(&asked.id) else {
            let why = format!("the file has no answer to the question `{}`: {}", asked.id, asked.text);
            return MethodError::refuse(
                format!("--answers {}", self.path.display()),
                why,
                "answer every question of the first round; use an empty text for a missing answer",
            );
        };
        if let Some(other) = question.as_ref().filter(|question| question.trim() != asked.text) {
            let why = format!("the answer `{}` belongs to {other:?}, but the question is {:?}", asked.id, asked.text);
            return Err(refuse(why));
        }
        let text = answer.trim().to_owned();
        let ended = if text.is_empty() { WrittenOutcome::Empty } else { WrittenOutcome::Written };
        Ok(WrittenText { text, ended, finish: None, counts: TokenCounts::default() })
    }
}

/// A question as the answerer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AskedQuestion {
    pub(super) id: String,
    pub(super) text: String,
}

/// The source of answers.
pub(super) enum Answerer<'a> {
    Model(&'a dyn LanguageModel),
    File(&'a GivenAnswers),
    /// The run ends before any answer is needed.
    Nobody,
}

impl Answerer<'_> {
    /// A hash of the answers, if from a file.
    pub(super) fn hash(&self) -> Option<String> {
        let Self::File(answers) = self else { return None };
        Some(short_hash([format!("{:?}", answers.answers).as_str()]))
    }
}

/// The stage that answers questions.
pub(super) fn stage<'a>(
    name: &'static str,
    questions: &'a [AskedQuestion],
    by: &'a Answerer<'a>,
    (prompt, evaluator): (&'a ReadyPrompt, &'a dyn LanguageModel),
    tokens: u32,
    inputs: Vec<String>,
) -> QueryStage<'a, AnswersReadout<'a>> {
    let (model, is_asked) = match by {
        Answerer::Model(model) => (*model, true),
        Answerer::File(_) | Answerer::Nobody => (evaluator, false),
    };
    let query = |AskedQuestion { id, text }: &'a AskedQuestion| {
        let identity = json!({ "id": id, "question": text });
        let query = Query::new(format!("{id}/{name}"), id.as_str(), identity, prompt, vec![("question", text)]);
        Query { is_asked, ..query }
    };
    let written = WrittenReadout { tokens: tokens as usize, stop: Vec::new() };
    QueryStage::new(
        name,
        model,
        questions.iter().map(query).collect(),
        AnswersReadout { name, questions, by, written },
        inputs,
    )
    .in_rounds()
    .with_earlier_fields(&["question"])
}

/// Reads answers from the model or a file.
pub(super) struct AnswersReadout<'a> {
    name: &'static str,
    questions: &'a [AskedQuestion],
    by: &'a Answerer<'a>,
    written: WrittenReadout,
}

impl Readout for AnswersReadout<'_> {
    type Answer = WrittenText;

    fn request(&self, number: usize, request: GenerateRequest) -> GenerateRequest {
        self.written.request(number, request)
    }

    fn read_text(&self, number: usize, result: &GenerateResult) -> WrittenText {
        self.written.read_text(number, result)
    }

    fn unasked(&self, number: usize, is_rehearsal: bool) -> Result<Option<WrittenText>, MethodError> {
        match self.by {
            _ if is_rehearsal => Ok(None),
            Answerer::File(answers) => answers.answer(&self.questions[number], self.name).map(Some),
            Answerer::Model(_) | Answerer::Nobody => unreachable!("the run ends with the questions"),
        }
    }

    fn rows(&self, number: usize, answer: &WrittenText) -> Vec<Value> {
        self.written.rows(number, answer)
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<WrittenText, RowError> {
        self.written.read(number, rows)
    }
}
