//! Converts a GGUF file's metadata to the `config.json` of the same model on Hugging Face.

use serde_json::Value as Json;

use crate::weights::{GgufFile, WeightsError};

/// See [`probity_models::gguf_config`]; errors name the file.
pub fn gguf_config(file: &GgufFile) -> Result<Json, WeightsError> {
    probity_models::gguf_config(file).map_err(|error| file.metadata_error(&error.key, error.why))
}
