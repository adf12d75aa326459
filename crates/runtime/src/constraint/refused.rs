//! Finds the part of a schema that the library rejects; its error only concerns the whole.

use serde_json::{Map, Value};

use super::{ConstraintError, in_one_line, path_of};

/// Keywords for definitions that references point to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The error for a schema that the library rejects, with the path of the smallest part that it also rejects. `is_kept`
/// returns whether it accepts a schema.
pub(super) fn schema(schema: &Value, why: &str, is_kept: impl Fn(&Value) -> bool) -> ConstraintError {
    let definitions: Map<String, Value> =
        DEFINITIONS.iter().filter_map(|keyword| Some(((*keyword).to_owned(), schema.get(keyword)?.clone()))).collect();
    let with_definitions = |part: &Value| {
        let fields = part.as_object()?;
        let missing = definitions.iter().filter(|(keyword, _)| !fields.contains_key(*keyword));
        Some(Value::Object(fields.iter().chain(missing).map(|(name, value)| (name.clone(), value.clone())).collect()))
    };
    let is_refused = |part: &Value| with_definitions(part).is_some_and(|part| !is_kept(&part));
    let (mut place, mut part) = ("#".to_owned(), schema.clone());
    while let Some((name, inner)) = parts(&part).into_iter().find(|(_, inner)| is_refused(inner)) {
        (place, part) = (format!("{place}/{name}"), inner);
    }
    let without = |keyword: &str| {
        let mut fields = part.as_object()?.clone();
        fields.shift_remove(keyword);
        with_definitions(&Value::Object(fields))
    };
    let keywords = || part.as_object().into_iter().flat_map(Map::keys).filter(|keyword| *keyword != "type");
    if let Some(keyword) = keywords().find(|keyword| without(keyword).is_some_and(|rest| is_kept(&rest))) {
        place = format!("{place}/{keyword}");
    }
    if why.contains("oneOf constraints are not supported") {
        return ConstraintError::OneOf { place };
    }
    ConstraintError::Part { place, why: format!("not supported: {}", reason(why)) }
}

/// The library's message without the grammar that it prints.
fn reason(why: &str) -> String {
    let is_shown = |line: &&str| {
        line.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '^') && !line.contains("JSON schema: ")
    };
    let said: Vec<&str> = why.lines().filter(|line| !is_shown(line)).collect();
    let said = in_one_line(&said.join("\n"));
    said.split_once("JSON schema: ").map_or(said.as_str(), |(_, why)| why).to_owned()
}

/// The direct subschemas of a schema, with their paths. Definitions come first, because others refer to them.
fn parts(schema: &Value) -> Vec<(String, Value)> {
    let mut parts = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(schemas)) => {
                parts.extend(schemas.iter().map(|(name, schema)| (path_of(keyword, name), schema.clone())));
            }
            ("items" | "prefixItems" | "allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                parts
                    .extend(schemas.iter().enumerate().map(|(at, schema)| (format!("{keyword}/{at}"), schema.clone())));
            }
            ("items" | "additionalItems" | "additionalProperties", schema) => {
                parts.push((keyword.clone(), schema.clone()));
            }
            _ => {}
        }
    }
    parts.sort_by_key(|(place, _)| !DEFINITIONS.iter().any(|keyword| place.starts_with(keyword)));
    parts
}
