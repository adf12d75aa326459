//! Which JSON schemas can be kept in full.

use llguidance::JsonCompileOptions;
use serde_json::{Map, Value};

use super::ConstraintError;

/// Keywords whose meaning is kept.
const KEPT: [&str; 27] = [
    "$ref", "additionalItems", "additionalProperties", "allOf", "anyOf", "const", "enum", "exclusiveMaximum",
    "exclusiveMinimum", "format", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minProperties", "minimum", "multipleOf", "oneOf", "pattern", "patternProperties", "prefixItems",
    "properties", "required", "type",
];

/// Keywords that admit and forbid nothing.
const SILENT: [&str; 13] = [
    "$comment", "$defs", "$schema", "contentEncoding", "contentMediaType", "default", "definitions", "description",
    "examples", "readOnly", "title", "writeOnly",
    // Of the whole schema alone: inside it would change what references mean.
    "$id",
];

/// The schema as the library takes it, or which keyword of it cannot be kept.
pub(super) fn prepared(schema: &Value) -> Result<Value, ConstraintError> {
    check(schema, "#")?;
    let mut schema = match schema {
        Value::Object(fields) => fields.clone(),
        Value::Bool(true) => Map::new(),
        _ => {
            return Err(ConstraintError::NoText);
        }
    };
    let options = JsonCompileOptions {
        item_separator: ", ?".into(),
        key_separator: ": ?".into(),
        // Free white space would let a model fill its limit of tokens with it.
        whitespace_flexible: false,
        ..JsonCompileOptions::default()
    };
    schema.insert("x-guidance".into(), serde_json::to_value(options).map_err(ConstraintError::library)?);
    Ok(Value::Object(schema))
}

/// Whether every keyword of a schema, and of those in it, is known.
fn check(schema: &Value, place: &str) -> Result<(), ConstraintError> {
    let fields = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(fields) => fields,
        other => {
            return Err(ConstraintError::NoSchema { place: place.to_owned(), found: other.to_string() });
        }
    };
    for (keyword, value) in fields {
        let within = format!("{place}/{keyword}");
        let known = KEPT.contains(&keyword.as_str())
            || SILENT.contains(&keyword.as_str()) && (keyword != "$id" || place == "#");
        if !known {
            return Err(unknown(keyword, place));
        }
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(schemas)) => {
                // The keys in here are names that the schema gives, and no keywords.
                schemas.iter().try_for_each(|(name, schema)| check(schema, &format!("{within}/{name}")))?;
            }
            ("items" | "prefixItems" | "allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas
                    .iter()
                    .enumerate()
                    .try_for_each(|(index, schema)| check(schema, &format!("{within}/{index}")))?;
            }
            ("items" | "additionalItems" | "additionalProperties", schema) => check(schema, &within)?,
            _ => {}
        }
    }
    Ok(())
}

fn unknown(keyword: &str, place: &str) -> ConstraintError {
    let all = || KEPT.iter().chain(&SILENT).copied();
    ConstraintError::Keyword {
        keyword: keyword.to_owned(),
        place: place.to_owned(),
        nearest: probity_lm::nearest(keyword, all()),
        kept: KEPT.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keywords_that_are_not_kept_are_refused_by_name_wherever_they_stand() {
        for (schema, told) in [
            (json!({"type": "array", "uniqueItems": true}), "schema #: the keyword `uniqueItems`"),
            (json!({"properties": {"a": {"not": {}}}}), "schema #/properties/a: the keyword `not`"),
            (
                json!({"anyOf": [{}, {"maxlength": 3}]}),
                "#/anyOf/1: the keyword `maxlength` cannot be kept; did you mean `maxLength`?",
            ),
            (json!({"$defs": {"x": {"items": {"contains": {}}}}}), "#/$defs/x/items: the keyword `contains`"),
            (json!({"items": [{"if": {}}]}), "#/items/0: the keyword `if`"),
            (json!({"additionalProperties": {"$id": "x"}}), "#/additionalProperties: the keyword `$id`"),
            (json!({"x-guidance": {"lenient": true}}), "the keyword `x-guidance`"),
            (json!({"items": 3}), "schema #/items: `3` is no schema"),
        ] {
            let why = prepared(&schema).expect_err("not kept");
            assert!(why.to_string().contains(told) && !crate::hint_of(&why).is_empty(), "{told}\n{why}");
        }
    }

    #[test]
    fn names_and_values_that_look_like_keywords_are_none() {
        let schema = json!({"$id": "x", "properties": {"not": {"enum": [{"if": 1}], "default": {"else": 2}}}, "examples": [{"not": 1}]});
        assert!(prepared(&schema).is_ok());
    }
}
