//! Parsing of requests. Errors report field, line and column.

use probity_lm::{RoundedNumber, did_you_mean, nearest, refuse_repeated_keys, rounded_number};
use serde::de::DeserializeOwned;

use crate::api_error::ApiError;

/// Path of a JSON schema in a request.
const SCHEMA: [&str; 3] = ["response_format", "json_schema", "schema"];

/// Parses a body.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let status = axum::http::StatusCode::BAD_REQUEST;
    if let Some(RoundedNumber { path, literal }) = rounded_number(body, &SCHEMA) {
        let message = format!("schema {path}: {literal} cannot be read exactly");
        return Err(ApiError::field(SCHEMA.join("."), message));
    }
    // Checked first: which of two values of one key counts is undefined. This also finds all syntax errors.
    refuse_repeated_keys(body)
        .map_err(|error| ApiError::new(status, format!("the body is not JSON: {error}")).with_code("invalid_json"))?;
    let mut json = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let message = error.inner().to_string();
        // The root has no name, and messages about unknown fields contain it.
        let message = with_nearest(message);
        if path == "." { ApiError::new(status, message) } else { ApiError::field(path, message) }
    })
}

/// Replaces the list of all fields in a message by the nearest one.
fn with_nearest(message: String) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let unknown = names.next().filter(|_| message.starts_with("unknown field `"));
    match unknown.and_then(|unknown| Some((unknown, nearest(unknown, names)?))) {
        Some((unknown, near)) => format!("unknown field `{unknown}`{}", did_you_mean(Some(near))),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_a_schema_that_reading_changes_is_refused_by_its_path() {
        let body = r#"{"response_format": {"json_schema": {"schema": {"enum": [1, 1e400]}}}}"#;
        let told = read::<serde_json::Value>(body.as_bytes()).expect_err("refused").detail.message;
        assert!(told.contains("schema #/enum/1: 1e400 cannot be read exactly"), "{told}");
    }

    #[test]
    fn a_misspelt_field_is_told_with_the_nearest() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Body {
            #[allow(dead_code, reason = "only its name counts")]
            temperature: Option<f64>,
        }
        let told = |body: &str| read::<Body>(body.as_bytes()).expect_err("refused").detail.message;
        assert!(told(r#"{"temprature": 1}"#).ends_with("unknown field `temprature`; did you mean `temperature`?"));
        assert!(told(r#"{"zebra": 1}"#).contains("expected `temperature`"), "{}", told(r#"{"zebra": 1}"#));
    }
}
