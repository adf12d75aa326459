//! The manifest's data when a run begins.

use std::collections::BTreeMap;

use probity_lm::ModelDescription;
use probity_runtime::LoadOptions;
use probity_store::RunInfo;
use serde_json::{Value, json};

use crate::options::computing_in_force;

/// Identifies a run, for its manifest.
pub(crate) fn run_info(
    command: &str,
    arguments: &[String],
    params: &Value,
    data: &Value,
    (model, options): (Option<&ModelDescription>, Option<LoadOptions>),
    others: &[ModelDescription],
) -> RunInfo {
    let seeds = params["seed"].as_u64().map(|seed| ("seed".to_owned(), seed));
    RunInfo {
        command: command.to_owned(),
        arguments_given: arguments.to_vec(),
        arguments_in_force: json!({"method": params, "model": options.map(computing_in_force), "data": data}),
        versions: probity_version(),
        model: json!(model),
        other_models: others.iter().map(|other| json!(other)).collect(),
        seeds: seeds.into_iter().collect(),
        recipe: None,
    }
}

/// The versions that a manifest records.
pub fn probity_version() -> BTreeMap<String, String> {
    BTreeMap::from([("probity".to_owned(), env!("CARGO_PKG_VERSION").to_owned())])
}
