//! Tasks as shown to annotators, and conversion of their answers to labels.

use std::ops::RangeInclusive;

use probity_data::{Label, LabelSubject, LabelTask, Preference, Sample, SharedText};

use super::wire::{Choice, LabellingAnswer};

/// A task with its texts.
#[derive(Debug, Clone)]
pub struct LabelQuestion {
    pub(super) task: LabelTask,
    pub(super) instruction: Option<SharedText>,
    pub(super) context: SharedText,
    /// One text, or two from left to right.
    pub(super) texts: Vec<SharedText>,
    is_mirrored: bool,
}

impl LabelQuestion {
    /// Creates the question for a task. If `is_mirrored`, the second candidate of a pair is on the left. `None` if the
    /// sample lacks a candidate of the task.
    pub fn new(task: LabelTask, sample: &Sample, is_mirrored: bool) -> Option<Self> {
        let text = |id: &str| sample.candidate(id).map(|candidate| candidate.text.clone());
        let mut texts = match &task.subject {
            LabelSubject::Pair { i, j } => vec![text(i)?, text(j)?],
            LabelSubject::Candidate(id) => vec![text(id)?],
        };
        if is_mirrored {
            texts.reverse();
        }
        let (instruction, context) = (sample.instruction.clone(), sample.context.clone());
        Some(Self { task, instruction, context, texts, is_mirrored })
    }

    /// Whether the task is a score.
    pub(super) fn asks_for_score(&self) -> bool {
        matches!(self.task.subject, LabelSubject::Candidate(_))
    }

    /// Converts an answer to a label, or returns why it is invalid.
    pub(super) fn label(&self, answer: LabellingAnswer, scale: &RangeInclusive<u32>) -> Result<Label, &'static str> {
        match (&self.task.subject, answer) {
            (_, LabellingAnswer::Choice(Choice::Skip)) => Ok(Label::Skipped),
            (LabelSubject::Candidate(_), LabellingAnswer::Score(score)) if scale.contains(&score) => {
                Ok(Label::Score(f64::from(score)))
            }
            (LabelSubject::Candidate(_), LabellingAnswer::Score(_)) => Err("outside the scale"),
            (LabelSubject::Candidate(_), LabellingAnswer::Choice(_)) => Err("expected a score"),
            (LabelSubject::Pair { .. }, LabellingAnswer::Score(_)) => Err("expected `left`, `right` or `tie`"),
            (LabelSubject::Pair { .. }, LabellingAnswer::Choice(Choice::Tie)) => Ok(Label::Preferred(Preference::Tie)),
            (LabelSubject::Pair { i, j }, LabellingAnswer::Choice(side)) => {
                let is_first = (side == Choice::Left) != self.is_mirrored;
                Ok(Label::Preferred(Preference::Candidate(if is_first { i } else { j }.clone())))
            }
        }
    }
}
