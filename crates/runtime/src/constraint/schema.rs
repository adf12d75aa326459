//! Checks which JSON schemas can be enforced exactly.

use llguidance::JsonCompileOptions;
use serde_json::{Map, Value};

use super::exact::{check_numbers, list_few_multiples};
use super::names::check_names;
use super::{ConstraintError, path_of};

/// Allowed escapes in strings. Not by code point: a property name would have a second spelling that bypasses its
/// schema.
const ESCAPES: &str = "nrbtf\\\"";

/// Supported keywords.
const KEPT: [&str; 27] = [
    "$ref", "additionalItems", "additionalProperties", "allOf", "anyOf", "const", "enum", "exclusiveMaximum",
    "exclusiveMinimum", "format", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minProperties", "minimum", "multipleOf", "oneOf", "pattern", "patternProperties", "prefixItems",
    "properties", "required", "type",
];

/// Keywords whose value is a count.
const COUNTS: [&str; 6] = ["maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"];

/// The largest supported minimum count, beyond the characters or items that fit in any model's context.
const LONGEST: u64 = 1 << 24;

/// Keywords without effect on validity.
const SILENT: [&str; 13] = [
    "$comment", "$defs", "$schema", "contentEncoding", "contentMediaType", "default", "definitions", "description",
    "examples", "readOnly", "title", "writeOnly",
    // Only at the top level: elsewhere it would change the meaning of references.
    "$id",
];

/// The schema in the form for the library, or an error with the unsupported part.
pub(super) fn prepared(schema: &Value) -> Result<Value, ConstraintError> {
    let mut schema = schema.clone();
    let root = schema.clone();
    prepare(&mut schema, "#", &root)?;
    let mut schema = match schema {
        Value::Object(fields) => fields,
        Value::Bool(true) => Map::new(),
        _ => {
            return Err(ConstraintError::NoText);
        }
    };
    let options = JsonCompileOptions {
        item_separator: ", ?".into(),
        key_separator: ": ?".into(),
        // Free white space would let a model fill its token limit.
        whitespace_flexible: false,
        json_allowed_escapes: Some(ESCAPES.into()),
        ..JsonCompileOptions::default()
    };
    schema.insert("x-guidance".into(), serde_json::to_value(options).map_err(ConstraintError::library)?);
    Ok(Value::Object(schema))
}

/// Rejects unknown keywords and those that the library would not enforce exactly, in a schema and its subschemas.
fn prepare(schema: &mut Value, place: &str, root: &Value) -> Result<(), ConstraintError> {
    let fields = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(fields) => fields,
        other => {
            return Err(ConstraintError::NoSchema { place: place.to_owned(), found: other.to_string() });
        }
    };
    let known =
        |keyword: &str| KEPT.contains(&keyword) || SILENT.contains(&keyword) && (keyword != "$id" || place == "#");
    if let Some(keyword) = fields.keys().find(|keyword| !known(keyword)) {
        return Err(unknown(keyword, place));
    }
    check_numbers(fields, place)?;
    check_counts(fields, place)?;
    check_reference(fields, place)?;
    check_names(fields, place, root)?;
    list_few_multiples(fields, place)?;
    for (keyword, value) in fields {
        let within = format!("{place}/{keyword}");
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(schemas)) => {
                // These keys are names defined by the schema, not keywords.
                schemas.iter_mut().try_for_each(|(name, schema)| prepare(schema, &path_of(&within, name), root))?;
            }
            ("items" | "prefixItems" | "allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas
                    .iter_mut()
                    .enumerate()
                    .try_for_each(|(index, schema)| prepare(schema, &format!("{within}/{index}"), root))?;
            }
            ("items" | "additionalItems" | "additionalProperties", schema) => prepare(schema, &within, root)?,
            _ => {}
        }
    }
    Ok(())
}

/// Rejects invalid counts, and minimum counts that no text reaches.
fn check_counts(fields: &Map<String, Value>, place: &str) -> Result<(), ConstraintError> {
    for keyword in COUNTS {
        let refused = |why: String| ConstraintError::Part { place: format!("{place}/{keyword}"), why };
        match fields.get(keyword).map(|value| (value.as_u64(), value)) {
            Some((None, value)) => return Err(refused(format!("{value} is not an integer from 0 to {}", u64::MAX))),
            Some((Some(count), _)) if keyword.starts_with("min") && count > LONGEST => {
                return Err(refused(format!("no generated text reaches {count}")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Rejects a reference into a part that is not a schema, which would not be checked.
fn check_reference(fields: &Map<String, Value>, place: &str) -> Result<(), ConstraintError> {
    let reference = fields.get("$ref").and_then(Value::as_str).unwrap_or_default();
    let is_value = |step: &str| matches!(step, "const" | "default" | "enum" | "examples");
    let keyword = reference.split('/').nth(1).filter(|step| is_value(step));
    let Some(keyword) = keyword else { return Ok(()) };
    Err(ConstraintError::Part { place: format!("{place}/$ref"), why: format!("`{keyword}` holds values, not schemas") })
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
                "#/anyOf/1: the keyword `maxlength` is not supported; did you mean `maxLength`?",
            ),
            (json!({"$defs": {"x": {"items": {"contains": {}}}}}), "#/$defs/x/items: the keyword `contains`"),
            (json!({"items": [{"if": {}}]}), "#/items/0: the keyword `if`"),
            (json!({"properties": {"a/b~c": {"if": {}}}}), "schema #/properties/a~1b~0c: the keyword `if`"),
            (json!({"const": {"a/b": 1e16}}), "schema #/const/a~1b: "),
            (
                json!({"properties": {"a/b": {}}, "patternProperties": {"^a/": {}}}),
                "schema #/patternProperties/^a~1: it also matches the property `a/b`",
            ),
            (json!({"additionalProperties": {"$id": "x"}}), "#/additionalProperties: the keyword `$id`"),
            (json!({"x-guidance": {"lenient": true}}), "the keyword `x-guidance`"),
            (json!({"items": 3}), "schema #/items: `3` is not a schema"),
            (
                json!({"type": "integer", "minimum": 9_007_199_254_740_993_i64, "maximum": 9_007_199_254_740_995_i64}),
                "schema #/minimum: 9007199254740993 is beyond",
            ),
            (json!({"properties": {"n": {"exclusiveMaximum": -1e300}}}), "schema #/properties/n/exclusiveMaximum: "),
            (json!({"$defs": {"n": {"multipleOf": u64::MAX}}}), "schema #/$defs/n/multipleOf: "),
            (json!({"anyOf": [{"const": 9_007_199_254_740_993_i64}]}), "schema #/anyOf/0/const: "),
            (json!({"enum": ["x", {"a": [1e16]}]}), "schema #/enum/1/a/0: "),
            (
                json!({"items": {"properties": {"ab": {}}, "patternProperties": {"^a": {}}}}),
                "schema #/items/patternProperties/^a: it also matches the property `ab`",
            ),
            (
                json!({"properties": {"b": {}}, "patternProperties": {"(?=a)": {}}}),
                "schema #/patternProperties/(?=a): ",
            ),
            (json!({"required": ["a"], "minProperties": 3}), "schema #/minProperties: "),
            (json!({"items": {"minItems": 9_007_199_254_740_993_i64}}), "schema #/items/minItems: no generated text"),
            (json!({"minLength": -1}), "schema #/minLength: -1 is not an integer"),
            (json!({"anyOf": [{"maxLength": "3"}]}), "schema #/anyOf/0/maxLength: "),
            (json!({"enum": [9_007_199_254_740_994_i64, 9_007_199_254_740_996_i64]}), "schema #/enum/0: "),
            (json!({"const": 9_007_199_254_740_998_u64}), "schema #/const: "),
            (
                json!({"properties": {"ab": {}}, "allOf": [{"patternProperties": {"^a": {}}}]}),
                "schema #/allOf/0/patternProperties/^a: it also matches the property `ab`",
            ),
            (
                json!({"$ref": "#/$defs/p", "properties": {"ab": {}}, "$defs": {"p": {"patternProperties": {"^a": {}}}}}),
                "schema #/$defs/p/patternProperties/^a: it also matches the property `ab`",
            ),
            (
                json!({"patternProperties": {"^a": {}}, "anyOf": [{"$ref": "#/$defs/p"}], "$defs": {"p": {"properties": {"ab": {}}}}}),
                "schema #/patternProperties/^a: it also matches the property `ab`",
            ),
            (json!({"$ref": "#/default", "default": {"not": {}}}), "schema #/$ref: `default` holds values"),
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
