//! What goes between the page and the server.

use std::ops::RangeInclusive;

use probity_report::text::{visible, visible_line};
use serde::{Deserialize, Serialize};

use super::question::LabelQuestion;

/// Where the person is, and what is asked next.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StatusBody {
    /// Tasks.
    pub(super) total: usize,
    /// Those that are labelled or skipped.
    pub(super) done: usize,
    /// The one that can be taken back: what was labelled last.
    pub(super) last: Option<usize>,
    /// The next open one.
    pub(super) task: Option<TaskBody>,
}

/// A task as it is shown: nothing tells whose texts they are, and nothing in them can hide or reorder them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TaskBody {
    number: usize,
    attribute: Option<String>,
    instruction: Option<String>,
    context: String,
    /// From left to right.
    texts: Vec<String>,
    /// What a score can be, from the worst on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scale: Vec<ScaleValue>,
}

/// A score and the key that gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ScaleValue {
    pub(super) value: u32,
    pub(super) key: u32,
}

impl TaskBody {
    /// The task of that number.
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

/// The key of each score: its own digit, 0 for 10. Where scores have no digits of their own, the first has 1, the tenth
/// 0.
pub(super) fn keys(scale: &RangeInclusive<u32>) -> Vec<ScaleValue> {
    let first = if *scale.end() <= 10 { *scale.start() } else { 1 };
    scale.clone().enumerate().map(|(place, value)| ScaleValue { value, key: (first + place as u32) % 10 }).collect()
}

/// What was answered to a task.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerBody {
    pub(super) task: usize,
    pub(super) answer: Answer,
    /// How long it took.
    #[serde(default)]
    pub(super) seconds: Option<f64>,
}

/// A text, or a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected `left`, `right`, `tie`, `skip`, or a whole number")]
pub(super) enum Answer {
    Choice(Choice),
    Score(u32),
}

/// What can be said of two texts; one can be skipped too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Choice {
    Left,
    Right,
    Tie,
    Skip,
}

/// The task whose label is taken back.
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
