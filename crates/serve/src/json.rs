//! Requests read: what is wrong is told with its field, line and column.

use probity_lm::refuse_repeated_keys;
use serde::de::DeserializeOwned;

use crate::api_error::ApiError;

/// What a body says.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let status = axum::http::StatusCode::BAD_REQUEST;
    // Before: of two values of one key nobody knows which counts. It finds all that is no JSON too.
    refuse_repeated_keys(body)
        .map_err(|error| ApiError::new(status, format!("the body is not JSON: {error}")).with_code("invalid_json"))?;
    let mut json = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let message = error.inner().to_string();
        // The root has no name, and of a field that is not known the message has it.
        if path == "." { ApiError::new(status, message) } else { ApiError::field(path, message) }
    })
}
