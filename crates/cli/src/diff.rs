//! `probity diff`: compares two runs, request by request.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use probity_lm::text::fixed;
use probity_lm::{LabelScore, ReadingAnswer, ScoreAnswer, ScoreResult, TokensAnswer};
use probity_store::{ANSWERS, AnyAnswer, Difference, Manifest};
use serde_json::Value;

use crate::exit::Completed;
use crate::show::open_answers;
use crate::terminal::{counted, print, table, thousands, visible};

pub(crate) const LONG_ABOUT: &str = "\
Compare two runs: settings that differ, then requests whose answers differ, the largest differences first.

Requests are matched by id. For labels, the difference is the largest difference in probability over the labels; for \
texts, the difference in log-probability per token; generated texts differ or do not. Exits with 1 if any answer \
differs in a bit.";

/// Options of `diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Folder of a run
    first: PathBuf,
    /// Folder of another run
    second: PathBuf,
    /// Number of differing requests to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
}

/// The difference between two answers.
#[derive(Debug, Clone, PartialEq)]
struct AnswerGap {
    request: String,
    size: f64,
    first: String,
    second: String,
    /// Whether the most probable label differs.
    turned: bool,
}

/// Statistics over all differences.
#[derive(Default)]
struct DiffTally {
    /// The largest differences, in descending order.
    top: Vec<AnswerGap>,
    sum: f64,
    turned: usize,
    /// Counts of differing outcomes, by outcome in the first and in the second run.
    outcomes: BTreeMap<(&'static str, &'static str), usize>,
}

impl DiffArgs {
    pub(crate) fn run(self) -> miette::Result<Completed> {
        let (first, answers) = open_answers(&self.first)?;
        let (second, _) = open_answers(&self.second)?;
        let mut tally = DiffTally::default();
        let overlap =
            answers.differences(&self.second.join(ANSWERS), |difference| tally.add(gap(difference), self.top))?;
        let [here, there] = [overlap.only_here, overlap.only_there].map(thousands);
        let counts = format!(
            "{} in both runs, {here} only in the first, {there} only in the second",
            counted(overlap.both, "request")
        );
        let says = match (overlap.both, overlap.differ) {
            (0, _) => "The runs have no request in common".to_owned(),
            (_, 0) => "All answers are bit-identical".to_owned(),
            (both, differ) => format!(
                "{}: {} with different bits, {} with a different verdict",
                counted(both, "answer"),
                thousands(differ),
                thousands(tally.turned)
            ),
        };
        print(&format!("{says}\n{counts}\n\n{}", settings(&first, &second)))?;
        if overlap.differ == 0 {
            // Runs without common queries are not equal.
            return Ok(if overlap.both == 0 { Completed::Differs } else { Completed::Success });
        }
        print(&tally.text(overlap.both, overlap.differ))?;
        Ok(Completed::Differs)
    }
}

/// Settings that differ between the manifests.
fn settings(first: &Manifest, second: &Manifest) -> String {
    let settings = first.info.differences(&second.info);
    let devices = first.info.device_differences(&second.info);
    let same = match (settings.is_empty(), devices.is_empty()) {
        (true, true) => return "both runs have the same settings".to_owned(),
        (true, false) => "both runs have the same settings but ran on different devices\n",
        (false, _) => "",
    };
    let rows: Vec<Vec<String>> = settings
        .into_iter()
        .chain(devices)
        .map(|d| vec![d.setting, value_text(&d.here), value_text(&d.there)])
        .collect();
    format!("{same}{}", table(&["setting", "first", "second"].map(str::to_owned), &rows))
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// The most probable label, the first among equals.
fn verdict(result: &ScoreResult) -> Option<usize> {
    let labels = &result.labels()?.labels;
    // Reversed, because `max_by` returns the last among equals.
    labels.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.logprob.total_cmp(&b.logprob)).map(|(index, _)| index)
}

fn gap(difference: Difference) -> (AnswerGap, [&'static str; 2]) {
    let Difference { request, here, there } = difference;
    let outcomes = [here.outcome().name(), there.outcome().name()];
    let (size, turned) = match (&here, &there) {
        (AnyAnswer::Score(a), AnyAnswer::Score(b)) => (distance(a, b), verdict(a) != verdict(b)),
        _ => (f64::INFINITY, false),
    };
    (AnswerGap { request, size, first: answer_text(&here), second: answer_text(&there), turned }, outcomes)
}

/// Infinite if only one has an answer or the kinds differ.
fn distance(first: &ScoreResult, second: &ScoreResult) -> f64 {
    match (&first.answer, &second.answer) {
        (None, None) => 0.0,
        (Some(ScoreAnswer::Labels(a)), Some(ScoreAnswer::Labels(b))) if a.labels.len() == b.labels.len() => {
            a.labels.iter().zip(&b.labels).map(|(a, b)| (a.prob - b.prob).abs()).fold(0.0, f64::max)
        }
        (Some(ScoreAnswer::Classes(a)), Some(ScoreAnswer::Classes(b))) if a.classes.len() == b.classes.len() => {
            a.classes.iter().zip(&b.classes).map(|(a, b)| (a.logit - b.logit).abs()).fold(0.0, f64::max)
        }
        _ => match (first.continuation(), second.continuation()) {
            (Some(a), Some(b)) if a.token_ids.len() == b.token_ids.len() => {
                (a.logprob - b.logprob).abs() / a.token_ids.len().max(1) as f64
            }
            _ => f64::INFINITY,
        },
    }
}

fn answer_text(answer: &AnyAnswer) -> String {
    match answer {
        AnyAnswer::Score(result) => match &result.answer {
            Some(ScoreAnswer::Labels(labels)) => {
                let label = |label: &LabelScore| format!("{} {:.6}", label.name, label.prob);
                labels.labels.iter().map(label).collect::<Vec<_>>().join("  ")
            }
            Some(
                ScoreAnswer::Continuation(answer)
                | ScoreAnswer::Reading(ReadingAnswer { continuation: answer, .. })
                | ScoreAnswer::Tokens(TokensAnswer { continuation: answer, .. }),
            ) => {
                format!("log P {}", fixed(answer.logprob, 6))
            }
            Some(ScoreAnswer::Classes(answer)) => {
                answer.classes.iter().map(|class| format!("{class:.6}")).collect::<Vec<_>>().join("  ")
            }
            None => result.outcome.name().to_owned(),
        },
        AnyAnswer::Generate(result) => result.text.chars().take(40).collect(),
    }
}

impl DiffTally {
    fn add(&mut self, (gap, [first, second]): (AnswerGap, [&'static str; 2]), keep: usize) {
        // Without an answer the difference is infinite, which would make the mean useless.
        if gap.size.is_finite() {
            self.sum += gap.size;
        }
        self.turned += usize::from(gap.turned);
        if first != second {
            *self.outcomes.entry((first, second)).or_default() += 1;
        }
        // Runs may be large: only the shown differences are kept in memory.
        let place = self.top.partition_point(|other| other.size >= gap.size);
        if place < keep {
            self.top.insert(place, gap);
            self.top.truncate(keep);
        }
    }

    fn text(&self, both: usize, differ: usize) -> String {
        let (count, mean) = (counted(differ, "answer"), self.sum / both as f64);
        let mut lines = vec![format!("differences in {count}; mean difference over all {mean:.6}")];
        if self.turned > 0 {
            let turned = counted(self.turned, "verdict");
            lines.push(format!("most probable label changed: {turned}"));
        }
        for ((first, second), count) in &self.outcomes {
            lines.push(format!("{} were {first} and are {second}", thousands(count)));
        }
        let size = |gap: &AnswerGap| if gap.size.is_finite() { format!("{:.6}", gap.size) } else { "–".to_owned() };
        let row = |gap: &AnswerGap| vec![gap.request.clone(), size(gap), gap.first.clone(), gap.second.clone()];
        let rows: Vec<Vec<String>> = self.top.iter().map(row).collect();
        if !rows.is_empty() {
            lines.push(format!("\n{}", table(&["request", "difference", "first", "second"].map(str::to_owned), &rows)));
        }
        visible(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap_of(size: f64) -> (AnswerGap, [&'static str; 2]) {
        (
            AnswerGap {
                request: size.to_string(),
                size,
                first: String::new(),
                second: String::new(),
                turned: size > 0.5,
            },
            ["scored", "low_mass"],
        )
    }

    #[test]
    fn the_largest_differences_are_kept_in_order() {
        let mut tally = DiffTally::default();
        for size in [0.2, 0.9, f64::INFINITY, 0.1, 0.9, 0.3] {
            tally.add(gap_of(size), 3);
        }
        assert_eq!(tally.top.iter().map(|gap| gap.size).collect::<Vec<_>>(), [f64::INFINITY, 0.9, 0.9]);
        assert_eq!((tally.turned, tally.outcomes[&("scored", "low_mass")]), (3, 6));
        assert!((tally.sum - 2.4).abs() < 1e-12);
    }
}
