//! Stages in which the model writes texts: references that are missing, and refined answers.

use probity_lm::LanguageModel;
use serde_json::json;

use crate::prompt_set::{ReadyPrompt, Slots};
use crate::query::{Query, QueryStage, WrittenReadout};

/// Reference answers and critiques.
pub(super) const REFERENCES: &str = "references";
/// Answers, rewritten as critiques ask for.
pub(super) const REFINED: &str = "refined";

/// A text to be written; nothing is asked where a slot is empty. `of` tells it from the sample's others: a field of its
/// row, and the value.
pub(super) fn query<'a>(
    item: &'a str,
    of: (&'static str, &'a str),
    prompt: &'a ReadyPrompt,
    slots: Slots<'a>,
) -> Query<'a> {
    let (field, value) = of;
    let identity = json!({ "item": item, field: value });
    Query::new(format!("{item}/{field}/{value}"), item, identity, prompt, slots).unless_empty()
}

/// The stage that writes texts of at most so many tokens.
pub(super) fn stage<'a>(
    name: &'static str,
    queries: Vec<Query<'a>>,
    tokens: u32,
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> QueryStage<'a, WrittenReadout> {
    let readout = WrittenReadout { tokens: tokens as usize, stop: Vec::new() };
    QueryStage { name, model, queries, readout, inputs, in_rounds: false, earlier_fields: &[] }
}
