//! The methods in tests: one row each in `tests/methods.json`. Tests of all methods run on every row.

#![allow(dead_code, reason = "each crate of tests uses a part")]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// Error text for a missing row or field.
pub(crate) const WHAT_TO_ADD: &str = "tests/roster/methods.rs describes the rows and their fields";

/// A method that judges candidates independently, below `judging`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MethodRow {
    /// The options of a small run, on candidates with scores for coherence.
    pub(crate) arguments: String,
    /// A case computed by hand, for the model of `golden_cases` in `crates/studies/src/registry.rs`.
    pub(crate) golden: GoldenCase,
    /// Runs whose results must not depend on the order of the data.
    pub(crate) order: Vec<OrderCase>,
    /// Options of further small runs, for a method with several modes.
    #[serde(default)]
    pub(crate) more: Vec<String>,
    /// The model, if the tiny llama is unsuitable.
    pub(crate) model: Option<String>,
    /// The table with a result for each candidate.
    #[serde(default = "scores")]
    pub(crate) table: String,
    /// The number of rows per candidate there.
    #[serde(default = "one")]
    pub(crate) rows: usize,
    /// Whether the answers of a random model become scores.
    #[serde(default = "yes")]
    pub(crate) scored: bool,
}

impl MethodRow {
    /// Whether the method reads the logits of classes.
    pub(crate) fn reads_classes(&self) -> bool {
        self.model.as_ref().is_some_and(|model| model.contains("/classifiers/"))
    }
}

/// A method that cannot run on one small sample, with the reason, below `apart`. It has tests of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApartRow {
    pub(crate) why: String,
    pub(crate) order: Vec<OrderCase>,
}

/// Scores of two candidates, computed by hand.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GoldenCase {
    /// Those of the small run if absent.
    pub(crate) arguments: Option<String>,
    /// The first rows of the table.
    pub(crate) scores: [f64; 2],
    /// How they were computed.
    pub(crate) why: String,
}

/// A run on reordered data.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrderCase {
    pub(crate) arguments: String,
    /// The number of candidates of each sample.
    pub(crate) candidates: usize,
    /// Only `samples` if the order of candidates has a meaning.
    #[serde(default = "both")]
    pub(crate) shuffle: Vec<Shuffle>,
}

/// Which lists of the samples are shuffled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shuffle {
    Samples,
    Candidates,
}

fn scores() -> String {
    "scores".to_owned()
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

fn both() -> Vec<Shuffle> {
    vec![Shuffle::Samples, Shuffle::Candidates]
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Roster {
    judging: BTreeMap<String, MethodRow>,
    apart: BTreeMap<String, ApartRow>,
}

static ROSTER: LazyLock<Roster> = LazyLock::new(|| {
    let rows = include_str!("../methods.json");
    serde_json::from_str(rows).unwrap_or_else(|error| panic!("tests/methods.json: {error}\n{WHAT_TO_ADD}"))
});

/// Methods that judge candidates independently, by name.
pub(crate) fn judging() -> impl Iterator<Item = (&'static str, &'static MethodRow)> {
    ROSTER.judging.iter().map(|(name, row)| (name.as_str(), row))
}

/// The row of a judging method.
pub(crate) fn row(name: &str) -> &'static MethodRow {
    ROSTER.judging.get(name).unwrap_or_else(|| panic!("no row for `{name}`\n{WHAT_TO_ADD}"))
}

/// The cases of reordered data of every method.
pub(crate) fn order_cases() -> impl Iterator<Item = (&'static str, &'static OrderCase)> {
    let judging = ROSTER.judging.iter().map(|(name, row)| (name, &row.order));
    let apart = ROSTER.apart.iter().map(|(name, row)| (name, &row.order));
    judging.chain(apart).flat_map(|(name, cases)| cases.iter().map(move |case| (name.as_str(), case)))
}

/// The names of all rows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROSTER.judging.keys().chain(ROSTER.apart.keys()).map(String::as_str)
}
