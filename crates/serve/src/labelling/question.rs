//! What a person is shown of a task, and what an answer to it means.

use std::ops::RangeInclusive;

use probity_data::{Label, LabelSubject, LabelTask, Preference, Sample, SharedText};

use super::wire::{Answer, Choice};

/// A task with the texts that it is about.
#[derive(Debug, Clone)]
pub struct LabelQuestion {
    pub(super) task: LabelTask,
    pub(super) instruction: Option<SharedText>,
    pub(super) context: SharedText,
    /// One text, or two as they are shown from left to right.
    pub(super) texts: Vec<SharedText>,
    is_mirrored: bool,
}

impl LabelQuestion {
    /// A task about a sample; of a pair the second candidate stands on the left where it is mirrored. `None` where the
    /// sample has not the task's candidates.
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

    /// Whether a score is asked for.
    pub(super) fn asks_for_score(&self) -> bool {
        matches!(self.task.subject, LabelSubject::Candidate(_))
    }

    /// What an answer says of the task; why it can be none of it.
    pub(super) fn label(&self, answer: Answer, scale: &RangeInclusive<u32>) -> Result<Label, &'static str> {
        match (&self.task.subject, answer) {
            (_, Answer::Choice(Choice::Skip)) => Ok(Label::Skipped),
            (LabelSubject::Candidate(_), Answer::Score(score)) if scale.contains(&score) => {
                Ok(Label::Score(f64::from(score)))
            }
            (LabelSubject::Candidate(_), Answer::Score(_)) => Err("it is not on the scale"),
            (LabelSubject::Candidate(_), Answer::Choice(_)) => Err("a score is asked for"),
            (LabelSubject::Pair { .. }, Answer::Score(_)) => Err("one of two texts is asked for"),
            (LabelSubject::Pair { .. }, Answer::Choice(Choice::Tie)) => Ok(Label::Preferred(Preference::Tie)),
            (LabelSubject::Pair { i, j }, Answer::Choice(side)) => {
                let is_first = (side == Choice::Left) != self.is_mirrored;
                Ok(Label::Preferred(Preference::Candidate(if is_first { i } else { j }.clone())))
            }
        }
    }
}
