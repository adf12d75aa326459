//! Stages that generate texts: missing references and refined answers.

use probity_lm::LanguageModel;
use serde_json::json;

use crate::prompt_set::{ReadyPrompt, Slots};
use crate::query::{Query, QueryStage, WrittenReadout};

/// The table of reference answers and critiques.
pub(super) const REFERENCES: &str = "references";
/// The table of answers refined with critiques.
pub(super) const REFINED: &str = "refined";

/// A text to generate; skipped if a slot is empty. `of` identifies it within the sample: a field of its row with its
/// value.
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

/// The stage that generates texts of at most `tokens` tokens.
pub(super) fn stage<'a>(
    name: &'static str,
    queries: Vec<Query<'a>>,
    tokens: u32,
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> QueryStage<'a, WrittenReadout> {
    let readout = WrittenReadout { tokens: tokens as usize, stop: Vec::new() };
    QueryStage::new(name, model, queries, readout, inputs)
}
