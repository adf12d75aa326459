//! Answers of the evaluated model, or of whoever has written them to a file.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use probity_data::{DataError, JsonLines, LineError, LineProblems, open_regular};
use probity_lm::{LanguageModel, SinkError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::RefEvalParams;
use super::questions::{Asked, Turn};
use crate::prompt_set::ReadyPrompt;
use crate::written::{WrittenOutcome, WrittenText};
use crate::{KeepPart, MethodError, MethodStage, RowError, Run};

/// The longest answer that is judged, in characters: whole pages.
const LONGEST: usize = 20_000;

/// Answers from a file, by the question's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GivenAnswers {
    path: PathBuf,
    /// With the question that they say they answer.
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
    /// Reads a file: JSON lines with an `id` and an `answer`, and maybe the `question`.
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
                    let why = format!("it has {} characters, and at most {LONGEST} are judged", answer.chars().count());
                    problems.push(line, LineError::content("answer", why).with_hint("shorten the answer"));
                }
                Ok(AnswerRow { id, question, answer }) => {
                    if let Some((first, ..)) = answers.get(&id) {
                        let why = format!("the question `{}` has an answer on line {first}", id.escape_debug());
                        problems.push(line, LineError::content("id", why).with_hint("leave one of both"));
                    } else {
                        answers.insert(id, (line, question, answer));
                    }
                }
                Err(error) => problems.push(line, error),
            }
        }
        if answers.is_empty() && problems.is_empty() {
            problems.push(1, LineError::content("", "the file holds no answer"));
        }
        if !problems.is_empty() {
            return Err(DataError::Problems(problems));
        }
        let answers = answers.into_iter().map(|(id, (_, question, answer))| (id, (question, answer))).collect();
        Ok(Self { path: path.to_owned(), answers, last_line })
    }

    /// Whether there is an answer to a question of that turn.
    pub(super) fn reach(&self, Turn { round, turn }: Turn) -> bool {
        let prefix = format!("{round}.{turn}.");
        self.answers.keys().any(|id| id.starts_with(&prefix))
    }

    /// How many answers there are.
    pub(super) fn count(&self) -> usize {
        self.answers.len()
    }

    fn answer(&self, asked: &AskedQuestion, stage: &'static str) -> Result<WrittenText, MethodError> {
        let refuse = |why: String| MethodError::Table { stage, path: self.path.clone(), line: self.last_line, why };
        let Some((question, answer)) = self.answers.get(&asked.id) else {
            let why = format!("it has no answer to the question `{}`: {}", asked.id, asked.text);
            return MethodError::refuse(
                format!("--answers {}", self.path.display()),
                why,
                "every question of the first round has to be answered; an empty answer says that there is none",
            );
        };
        if let Some(other) = question.as_ref().filter(|question| question.trim() != asked.text) {
            let why = format!(
                "the answer `{}` is to {other:?}, and the question that is asked here is {:?}",
                asked.id, asked.text
            );
            return Err(refuse(why));
        }
        let text = answer.trim().to_owned();
        let ended = if text.is_empty() { WrittenOutcome::Empty } else { WrittenOutcome::Written };
        Ok(WrittenText { text, ended, finish: None, prompt_tokens: None, tokens: None })
    }
}

/// A question as whoever answers it knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AskedQuestion {
    pub(super) id: String,
    pub(super) text: String,
}

/// Who answers.
pub(super) enum Answerer<'a> {
    Model(&'a dyn LanguageModel),
    File(&'a GivenAnswers),
    /// The run ends before anybody is to answer.
    Nobody,
}

/// The stage in which questions are answered: a part, and a row, for each.
pub(super) struct AnswersStage<'a, A> {
    pub(super) questions: &'a [AskedQuestion],
    pub(super) by: &'a Answerer<'a>,
    pub(super) prompt: &'a ReadyPrompt,
    pub(super) params: &'a RefEvalParams,
    pub(super) inputs: Vec<String>,
    pub(super) asked: PhantomData<A>,
}

impl<A: Asked> MethodStage for AnswersStage<'_, A> {
    type Part = WrittenText;
    const NAME: &'static str = A::ANSWERS;
    const IN_ROUNDS: bool = true;
    const FROM_EARLIER: &'static [&'static str] = &["question"];

    fn parts(&self) -> usize {
        self.questions.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, WrittenText>) -> Result<(), MethodError> {
        match self.by {
            Answerer::Model(model) => {
                for AskedQuestion { id, text } in self.questions {
                    run.quotes(self.prompt.render(id, &[("question", text)])?.quoted);
                }
                let request = |AskedQuestion { id, text }: &AskedQuestion| {
                    let tokens = self.params.answer_tokens;
                    self.prompt.request(format!("{id}/{}", A::ANSWERS), id, &[("question", text)], tokens)
                };
                run.generate_by(*model, self.questions.iter().map(request), |number, result, output| {
                    keep(number, WrittenText::of(&result), output)
                })
            }
            Answerer::File(_) | Answerer::Nobody if run.is_rehearsal() => Ok(()),
            Answerer::Nobody => unreachable!("the run ends with the questions"),
            Answerer::File(answers) => {
                for (number, question) in self.questions.iter().enumerate() {
                    let answer = answers.answer(question, A::ANSWERS)?;
                    let kept: Result<(), SinkError> = keep(number, answer, run.output());
                    kept.map_err(MethodError::Output)?;
                }
                Ok(())
            }
        }
    }

    fn identity(&self, number: usize) -> Value {
        let AskedQuestion { id, text } = &self.questions[number];
        json!({ "id": id, "question": text })
    }

    fn rows(&self, number: usize, answer: &WrittenText) -> serde_json::Result<Vec<Value>> {
        Ok(vec![answer.row(self.identity(number))?])
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<WrittenText, RowError> {
        WrittenText::read(&rows[0])
    }

    fn stand_in(&self, number: usize) -> WrittenText {
        WrittenText::stand_in(number, self.params.answer_tokens as usize)
    }
}
