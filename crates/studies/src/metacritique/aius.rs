//! Atomic information units (AIUs): the claims that a critique makes.

use probity_lm::LanguageModel;
use serde_json::json;

use crate::list_readout::{List, ListReadout};
use crate::prompt_set::ReadyPrompt;
use crate::query::{Query, QueryStage};

/// The name of the stage and of its table.
pub(super) const AIUS: &str = "aius";

/// The outcome of a critique without claims.
const NO_AIUS: &str = "no_aius";

/// Claims from another source.
pub(super) fn aius(claims: Vec<String>) -> List {
    List::from_entries(claims, NO_AIUS)
}

/// A critique to split into claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExtractionJob<'a> {
    /// The sample's id.
    pub(super) item: &'a str,
    /// The candidate's id; absent for the reference critique.
    pub(super) candidate: Option<&'a str>,
    pub(super) critique: &'a str,
}

/// The stage that splits critiques: one row per claim.
pub(super) fn stage<'a>(
    jobs: &[ExtractionJob<'a>],
    prompt: &'a ReadyPrompt,
    (tokens, most): (u32, usize),
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> QueryStage<'a, ListReadout> {
    let query = |job: &ExtractionJob<'a>| {
        let ExtractionJob { item, candidate, critique } = *job;
        let identity = match candidate {
            Some(candidate) => json!({ "item": item, "of": "critique", "candidate": candidate }),
            None => json!({ "item": item, "of": "reference" }),
        };
        let id = format!("{item}/{AIUS}/{}", candidate.unwrap_or("(reference)"));
        Query::new(id, item, identity, prompt, vec![("critique", critique)]).unless_empty()
    };
    let tokens = tokens as usize;
    let readout = ListReadout { field: "aiu", nothing: NO_AIUS, tokens, most, most_option: "--most-aius" };
    QueryStage::new(AIUS, model, jobs.iter().map(query).collect(), readout, inputs)
}
