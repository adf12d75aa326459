//! Collects all errors in the shape of a sample: serde stops at the first.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use probity_lm::nearest;

use crate::Preference;
use crate::line_error::{LineError, excerpt, in_words};

const SAMPLE: [&str; 7] = ["id", "context", "instruction", "texts", "candidates", "references", "preference"];
const CANDIDATE: [&str; 3] = ["id", "text", "scores"];

const OTHER_FORM: &str = "if the fields have other names, map them: --map context=NAME --map candidate=NAME";

/// Every field of a sample that is missing, unknown or of the wrong type.
pub(crate) fn wrong_with_sample(sample: &Value) -> Vec<LineError> {
    let mut wrong = Vec::new();
    if !keys(sample, "", &SAMPLE, &["id", "context", "candidates"], &mut wrong) {
        return wrong;
    }
    typed::<String>(sample, "", "id", &mut wrong);
    typed::<String>(sample, "", "context", &mut wrong);
    typed::<Option<String>>(sample, "", "instruction", &mut wrong);
    typed::<BTreeMap<String, String>>(sample, "", "texts", &mut wrong);
    typed::<Vec<String>>(sample, "", "references", &mut wrong);
    typed::<Option<Preference>>(sample, "", "preference", &mut wrong);
    match sample.get("candidates") {
        Some(Value::Array(candidates)) => {
            for (index, candidate) in candidates.iter().enumerate() {
                wrong_with_candidate(candidate, &format!("candidates[{index}]"), &mut wrong);
            }
        }
        _ => typed::<Vec<Value>>(sample, "", "candidates", &mut wrong),
    }
    wrong
}

fn wrong_with_candidate(candidate: &Value, path: &str, wrong: &mut Vec<LineError>) {
    if !keys(candidate, path, &CANDIDATE, &["id", "text"], wrong) {
        return;
    }
    typed::<String>(candidate, path, "id", wrong);
    typed::<String>(candidate, path, "text", wrong);
    match candidate.get("scores") {
        Some(scores @ Value::Object(attributes)) => {
            for attribute in attributes.keys() {
                typed::<f64>(scores, &format!("{path}.scores"), attribute, wrong);
            }
        }
        _ => typed::<serde_json::Map<String, Value>>(candidate, path, "scores", wrong),
    }
}

/// Checks that the value is an object and compares its keys with the known and required ones.
fn keys(value: &Value, path: &str, known: &[&str], needed: &[&str], wrong: &mut Vec<LineError>) -> bool {
    let Some(fields) = value.as_object() else {
        wrong.push(LineError::content(path, "not an object"));
        return false;
    };
    for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
        let error = LineError::content(below(path, key), format!("unknown field `{}`", excerpt(key)));
        wrong.push(match nearest(key, known.iter().copied()) {
            Some(near) => error.with_hint(format!("did you mean `{near}`?")),
            None => error,
        });
    }
    for missing in needed.iter().filter(|name| !fields.contains_key(**name)) {
        // A line without candidates probably has another form altogether.
        let error = LineError::content(path, format!("missing field `{missing}`"));
        wrong.push(if *missing == "candidates" { error.with_hint(OTHER_FORM) } else { error });
    }
    true
}

fn typed<T: DeserializeOwned>(parent: &Value, path: &str, key: &str, wrong: &mut Vec<LineError>) {
    let Some(value) = parent.get(key) else { return };
    // Each field is parsed separately with serde, so that messages equal the parser's.
    if let Err(e) = serde_path_to_error::deserialize::<_, T>(value.clone()) {
        let inner = e.path().to_string();
        let own = below(path, key);
        let field = match inner.as_str() {
            "." => own,
            place if place.starts_with('[') => own + place,
            name => below(&own, name),
        };
        wrong.push(LineError::content(field, excerpt(&in_words(&e.into_inner().to_string()))));
    }
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_wrong_field_is_named() {
        let sample = json!({
            "id": 7, "contxt": "c", "references": ["a", 3], "preference": null, "texts": {"categories": ["a"]},
            "candidates": [{"id": "a", "text": null, "scores": {"f": "x", "g": 1}}, "b", {"text": "t", "score": 1}]
        });
        let told: Vec<String> = wrong_with_sample(&sample).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "field `contxt`: unknown field `contxt`",
                "missing field `context`",
                "field `id`: invalid type: integer `7`, expected a string",
                "field `texts.categories`: invalid type: sequence, expected a string",
                "field `references[1]`: invalid type: integer `3`, expected a string",
                "field `candidates[0].text`: invalid type: null, expected a string",
                "field `candidates[0].scores.f`: invalid type: string \"x\", expected a number",
                "field `candidates[1]`: not an object",
                "field `candidates[2].score`: unknown field `score`",
                "field `candidates[2]`: missing field `id`",
            ]
        );
        assert_eq!(
            wrong_with_sample(&json!({"id": "a", "context": "", "candidates": [{"id": "a", "text": ""}]})).len(),
            0
        );
    }
}
