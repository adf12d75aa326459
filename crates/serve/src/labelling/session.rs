//! State of a labelling session, stored in its file of labels.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use axum::http::StatusCode;
use parking_lot::Mutex;
use probity_data::{Label, LabelAppender, LabelFile, LabelFileError, LabelRow, LabelTask};

use super::question::LabelQuestion;
use super::wire::{LabellingAnswer, StatusBody, TaskBody};
use crate::api_error::{ApiError, error_text};

/// Tasks of one annotator, and their labels.
#[derive(Debug)]
pub struct LabelSession {
    questions: Vec<LabelQuestion>,
    scale: RangeInclusive<u32>,
    annotator: Option<String>,
    progress: Mutex<LabelProgress>,
}

/// Numbers of tasks by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelCounts {
    /// All tasks.
    pub total: usize,
    /// Labelled tasks.
    pub labelled: usize,
    /// Skipped tasks.
    pub skipped: usize,
    /// Tasks labelled in this session, without skipped ones.
    pub given: usize,
}

impl LabelCounts {
    /// Number of open tasks.
    pub fn left(self) -> usize {
        self.total - self.labelled - self.skipped
    }
}

#[derive(Debug)]
struct LabelProgress {
    file: LabelAppender,
    /// State of each task.
    states: Vec<TaskState>,
    /// Tasks that are not open, the most recent last.
    done: Vec<usize>,
    /// How many of these were done before the session.
    earlier: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskState {
    Open,
    Labelled,
    Skipped,
}

impl TaskState {
    fn from_label(label: &Label) -> Self {
        match label {
            Label::Preferred(_) | Label::Score(_) => Self::Labelled,
            Label::Skipped => Self::Skipped,
            Label::Withdrawn => Self::Open,
        }
    }
}

impl LabelSession {
    /// Resumes from the labels in the file. `scale` is the range of scores.
    pub fn new(
        questions: Vec<LabelQuestion>,
        scale: RangeInclusive<u32>,
        annotator: Option<String>,
        file: LabelAppender,
        held: &LabelFile,
    ) -> Self {
        let places: BTreeMap<LabelTask, usize> =
            questions.iter().enumerate().map(|(number, question)| (question.task.key(), number)).collect();
        let mut states = vec![TaskState::Open; questions.len()];
        let mut done = Vec::new();
        for (_, row) in held.rows.iter().filter(|(_, row)| row.annotator == annotator) {
            if let Some(&number) = places.get(&row.task.key()) {
                states[number] = TaskState::from_label(&row.label);
                done.push(number);
            }
        }
        let earlier = done.len();
        let progress = Mutex::new(LabelProgress { file, states, done, earlier });
        Self { questions, scale, annotator, progress }
    }

    /// Current counts.
    pub fn counts(&self) -> LabelCounts {
        let LabelProgress { states, done, earlier, .. } = &*self.progress.lock();
        let of = |state| states.iter().filter(|found| **found == state).count();
        let given = done[*earlier..].iter().filter(|number| states[**number] == TaskState::Labelled).count();
        let (labelled, skipped) = (of(TaskState::Labelled), of(TaskState::Skipped));
        LabelCounts { total: self.questions.len(), labelled, skipped, given }
    }

    /// State for the page.
    pub(super) fn status(&self) -> StatusBody {
        let (next, done, last) = {
            let progress = self.progress.lock();
            let next = progress.states.iter().position(|state| *state == TaskState::Open);
            (next, progress.done.len(), progress.done.last().copied())
        };
        let task = next.map(|number| TaskBody::new(number, &self.questions[number], &self.scale));
        StatusBody { total: self.questions.len(), done, last, task }
    }

    /// Stores an answer. It is on disk when this returns.
    pub(super) fn answer(&self, number: usize, answer: LabellingAnswer, seconds: Option<f64>) -> Result<(), ApiError> {
        let question = self.question(number)?;
        let label = question.label(answer, &self.scale).map_err(|why| ApiError::field("answer", why))?;
        let mut progress = self.progress.lock();
        if progress.states[number] != TaskState::Open {
            let message = "the task already has a label, possibly from another page";
            return Err(ApiError::new(StatusCode::CONFLICT, message).with_code("already_labelled"));
        }
        let state = TaskState::from_label(&label);
        progress.file.append(&self.row(question, label, seconds)).map_err(|error| not_kept(&error))?;
        progress.states[number] = state;
        progress.done.push(number);
        Ok(())
    }

    /// Undoes the last label. The request names it, so that repeating the request undoes only one.
    pub(super) fn undo(&self, number: usize) -> Result<(), ApiError> {
        let question = self.question(number)?;
        let mut progress = self.progress.lock();
        if progress.done.last() != Some(&number) {
            let message = "the task is not the last labelled one";
            return Err(ApiError::new(StatusCode::CONFLICT, message).with_code("not_the_last"));
        }
        progress.file.append(&self.row(question, Label::Withdrawn, None)).map_err(|error| not_kept(&error))?;
        progress.states[number] = TaskState::Open;
        progress.done.pop();
        progress.earlier = progress.earlier.min(progress.done.len());
        Ok(())
    }

    fn question(&self, number: usize) -> Result<&LabelQuestion, ApiError> {
        self.questions.get(number).ok_or_else(|| ApiError::field("task", "no task with this number"))
    }

    fn row(&self, question: &LabelQuestion, label: Label, seconds: Option<f64>) -> LabelRow {
        LabelRow { task: question.task.clone(), label, annotator: self.annotator.clone(), seconds }
    }
}

/// The error for a label that could not be stored.
fn not_kept(error: &LabelFileError) -> ApiError {
    let why = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("not saved: {}{why}", error_text(error)))
        .with_code("not_kept")
}
