//! Property names to which a schema applies two subschemas, in one object or through `allOf` and `$ref`.

use serde_json::{Map, Value};

use super::{ConstraintError, path_of};

/// The properties and patterns that apply to one object, with the locations of the patterns.
#[derive(Clone, Default)]
struct ObjectNames {
    properties: Vec<String>,
    patterns: Vec<(String, String)>,
}

/// Rejects a pattern of `patternProperties` that matches a name in `properties` of the same object. `root` is the whole
/// schema, for resolving references.
pub(super) fn check_names(fields: &Map<String, Value>, place: &str, root: &Value) -> Result<(), ConstraintError> {
    let mut names = ObjectNames::default();
    names.collect(fields, place, root, &mut Vec::new())?;
    names.check()?;
    for (keyword, at, branch) in branches(fields) {
        let mut both = names.clone();
        both.collect(branch, &format!("{place}/{keyword}/{at}"), root, &mut Vec::new())?;
        both.check()?;
    }
    check_count(fields, place)
}

/// The alternatives of a schema (`anyOf`, `oneOf`), which apply in addition to it.
fn branches(fields: &Map<String, Value>) -> impl Iterator<Item = (&'static str, usize, &Map<String, Value>)> {
    ["anyOf", "oneOf"].into_iter().flat_map(move |keyword| {
        let schemas = fields.get(keyword).and_then(Value::as_array).into_iter().flatten().enumerate();
        schemas.filter_map(move |(at, schema)| Some((keyword, at, schema.as_object()?)))
    })
}

impl ObjectNames {
    /// Adds the names of a schema, of its `allOf`, and of the schemas that it references. `followed` are the references
    /// followed so far; a reference cycle is an error.
    fn collect(
        &mut self,
        fields: &Map<String, Value>,
        place: &str,
        root: &Value,
        followed: &mut Vec<(String, bool)>,
    ) -> Result<(), ConstraintError> {
        let keys =
            |keyword: &str| fields.get(keyword).and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned();
        let within = format!("{place}/patternProperties");
        self.properties.extend(keys("properties"));
        self.patterns.extend(keys("patternProperties").map(|pattern| (path_of(&within, &pattern), pattern)));
        for (at, schema) in fields.get("allOf").and_then(Value::as_array).into_iter().flatten().enumerate() {
            if let Some(schema) = schema.as_object() {
                self.collect(schema, &format!("{place}/allOf/{at}"), root, followed)?;
            }
        }
        let Some(reference) = fields.get("$ref").and_then(Value::as_str) else { return Ok(()) };
        let Some(pointer) = reference.strip_prefix('#') else { return Ok(()) };
        if let Some((_, leads_here)) = followed.iter().find(|(known, _)| known == reference) {
            let endless = || ConstraintError::Endless { place: format!("{place}/$ref") };
            return if *leads_here { Err(endless()) } else { Ok(()) };
        }
        let at = followed.len();
        followed.push((reference.to_owned(), true));
        if let Some(schema) = root.pointer(pointer).and_then(Value::as_object) {
            self.collect(schema, reference, root, followed)?;
        }
        followed[at].1 = false;
        Ok(())
    }

    fn check(&self) -> Result<(), ConstraintError> {
        for (place, pattern) in &self.patterns {
            let refused = |why: String| ConstraintError::Part { place: place.clone(), why };
            let regex = regex::Regex::new(pattern).map_err(|error| refused(error.to_string()))?;
            if let Some(name) = self.properties.iter().find(|name| regex.is_match(name)) {
                return Err(refused(format!("it also matches the property `{name}`, which would have two schemas")));
            }
        }
        Ok(())
    }
}

/// Rejects a minimum number of properties that repeated names could satisfy.
fn check_count(fields: &Map<String, Value>, place: &str) -> Result<(), ConstraintError> {
    let has_patterns = fields.get("patternProperties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    let is_closed = fields.get("additionalProperties") == Some(&Value::Bool(false)) && !has_patterns;
    let required = fields.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    let least = fields.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
    if is_closed || least <= required + 1 {
        return Ok(());
    }
    let why = "additional properties may be repeated, but count once".to_owned();
    Err(ConstraintError::Part { place: format!("{place}/minProperties"), why })
}
