//! The JSON schema of recipes, generated from the definitions of the options.

use probity_methods::DynMethod;
use probity_options::{OptionKind, OptionSpec, specs};
use probity_session::{DataOptions, ModelOptions, stage_kinds};
use serde_json::{Map, Value, json};

use super::keys::{self, choices, default, form};
use crate::report::ReportOptions;

/// Draft 7, which TOML editors support.
pub(super) fn schema() -> Value {
    let named = |description: &str, options: &[OptionSpec], needed: &str| {
        json!({
            "description": description,
            "type": "object",
            "additionalProperties": {
                "type": "object", "properties": properties(options), "required": [needed], "additionalProperties": false,
            },
        })
    };
    let mut all = Map::new();
    let every: Vec<OptionSpec> = stage_kinds().flat_map(keys::run_options).collect();
    for (key, mut value) in every.iter().flat_map(|option| all_properties(option, true)) {
        // Defaults may differ between methods.
        value.as_object_mut().map(|value| value.remove("default"));
        all.entry(key).or_insert(value);
    }
    let definitions: Map<String, Value> = stage_kinds().map(|method| (method.name().to_owned(), run(method))).collect();
    let runs: Vec<Value> = keys::methods().map(|name| json!({"$ref": format!("#/definitions/{name}")})).collect();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "probity recipe",
        "type": "object",
        "required": ["run"],
        "additionalProperties": false,
        "properties": {
            "defaults": {
                "description": "Default options of all runs.",
                "type": "object", "properties": all, "additionalProperties": false,
            },
            "model": named("Models by name; a run that names one gets its options.", &specs::<ModelOptions>(), "model"),
            "data": named("Data by name; a run that names them gets their options.", &specs::<DataOptions>(), "data"),
            "report": {
                "description": "Report of all finished runs, with the options of `probity report`.",
                "type": "object", "properties": properties(&specs::<ReportOptions>()), "additionalProperties": false,
            },
            "run": {
                "description": "The runs, by name; each is a command line.",
                "type": "object", "minProperties": 1, "additionalProperties": {"oneOf": runs},
            },
        },
        "definitions": definitions,
    })
}

/// A `[run.NAME]` of the method.
fn run(method: &dyn DynMethod) -> Value {
    let mut properties =
        Map::from_iter([("method".to_owned(), json!({"description": method.about(), "const": method.name()}))]);
    properties.extend(keys::run_options(method).iter().flat_map(|option| all_properties(option, true)));
    json!({
        "title": method.name(), "description": method.about(), "type": "object",
        "properties": properties, "required": ["method"], "additionalProperties": false,
    })
}

fn properties(options: &[OptionSpec]) -> Map<String, Value> {
    options.iter().flat_map(|option| all_properties(option, false)).collect()
}

/// An option, and its keys as separate options.
fn all_properties(option: &OptionSpec, in_run: bool) -> Vec<(String, Value)> {
    let old = |key: &OptionSpec| {
        let (name, mut value) = property(key, in_run);
        value["deprecated"] = json!(true);
        value["description"] = json!(format!("Deprecated: use the key of `{}`.", option.name()));
        (name, value)
    };
    std::iter::once(property(option, in_run)).chain(option.keys.iter().map(old)).collect()
}

/// An option. In a run, `model` and `data` may be lists.
fn property(option: &OptionSpec, in_run: bool) -> (String, Value) {
    let (key, one, form) = (option.name(), scalar(option), form(option));
    let mut value = match () {
        () if option.is_list && form.contains('=') => {
            let values = json!({"type": ["string", "number"]});
            let mut pairs = json!({"type": "object", "additionalProperties": values, "minProperties": 1});
            if !option.keys.is_empty() {
                pairs["properties"] = properties(&option.keys).into();
                pairs["additionalProperties"] = json!(false);
            }
            json!({"anyOf": [pairs, one, {"type": "array", "items": one, "minItems": 1}]})
        }
        () if option.is_list || form.contains(',') || (in_run && matches!(key.as_str(), "model" | "data")) => {
            json!({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})
        }
        () => one,
    };
    value["description"] = json!(option.description());
    if option.long() != key {
        // The command-line name of the option.
        value["x-long"] = json!(option.long());
    }
    if let Some(default) = default(option) {
        value["default"] = default;
    }
    (key, value)
}

fn scalar(option: &OptionSpec) -> Value {
    match &option.kind {
        OptionKind::Flag => json!({"type": "boolean"}),
        OptionKind::Integer { min, .. } => json!({"type": "integer", "minimum": (*min).max(0)}),
        OptionKind::Number => json!({"type": "number"}),
        OptionKind::Choice(_) => json!({"enum": choices(option)}),
        // A number of bytes, or a text with a unit.
        OptionKind::Text if option.form == "SIZE" => json!({"type": ["integer", "string"]}),
        OptionKind::Text => json!({"type": "string"}),
    }
}
