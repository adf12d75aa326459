//! Messages between the page and the server.

use std::ops::RangeInclusive;

use probity_report::text::{visible, visible_line};
use serde::{Deserialize, Serialize};

use super::question::LabelQuestion;

/// Progress, and the next task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StatusBody {
    /// Number of tasks.
    pub(super) total: usize,
    /// Number of labelled or skipped tasks.
    pub(super) done: usize,
    /// The task that can be undone: the last one labelled.
    pub(super) last: Option<usize>,
    /// The next open task.
    pub(super) task: Option<TaskBody>,
}

/// A task as shown. It does not reveal the systems, and hidden or reordering characters in its texts are made visible.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TaskBody {
    number: usize,
    attribute: Option<String>,
    instruction: Option<String>,
    context: String,
    /// Texts from left to right.
    texts: Vec<String>,
    /// Possible scores in ascending order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scale: Vec<ScaleValue>,
}

/// A score and its keyboard key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ScaleValue {
    pub(super) value: u32,
    pub(super) key: u32,
}

impl TaskBody {
    /// The message for a task with this number.
    pub(super) fn new(number: usize, question: &LabelQuestion, scale: &RangeInclusive<u32>) -> Self {
        Self {
            number,
            attribute: question.task.attribute.as_deref().map(visible_line),
            instruction: question.instruction.as_deref().map(visible),
            context: visible(&question.context),
            texts: question.texts.iter().map(|text| visible(text)).collect(),
            scale: if question.asks_for_score() { keys(scale) } else { Vec::new() },
        }
    }
}

/// Keyboard keys of the scores: the digit of each score, with 0 for 10. For other scales, the first score has key 1 and
/// the tenth key 0.
pub(super) fn keys(scale: &RangeInclusive<u32>) -> Vec<ScaleValue> {
    let first = if *scale.end() <= 10 { *scale.start() } else { 1 };
    scale.clone().enumerate().map(|(place, value)| ScaleValue { value, key: (first + place as u32) % 10 }).collect()
}

/// An answer to a task.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerBody {
    pub(super) task: usize,
    pub(super) answer: LabellingAnswer,
    /// Time taken.
    #[serde(default)]
    pub(super) seconds: Option<f64>,
}

/// A choice of a text, or a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected `left`, `right`, `tie`, `skip`, or a whole number")]
pub(super) enum LabellingAnswer {
    Choice(Choice),
    Score(u32),
}

/// Verdict on two texts, or skipping of any task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Choice {
    Left,
    Right,
    Tie,
    Skip,
}

/// Request to undo the label of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UndoBody {
    pub(super) task: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_score_has_a_key_of_its_own_and_where_it_can_that_of_its_digit() {
        let shown = |scale: RangeInclusive<u32>| {
            keys(&scale).iter().map(|one| format!("{}:{}", one.value, one.key)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(1..=5), "1:1 2:2 3:3 4:4 5:5");
        assert_eq!(shown(0..=3), "0:0 1:1 2:2 3:3");
        assert_eq!(shown(1..=10), "1:1 2:2 3:3 4:4 5:5 6:6 7:7 8:8 9:9 10:0");
        assert_eq!(shown(8..=12), "8:1 9:2 10:3 11:4 12:5");
        assert_eq!(shown(11..=20).split(' ').next_back(), Some("20:0"));
    }
}
