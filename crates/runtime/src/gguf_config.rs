//! A GGUF file's metadata as the `config.json` that the same model has on Hugging Face.

use serde_json::Value as Json;

use crate::weights::{GgufFile, WeightsError};

/// See [`probity_models::gguf_config`]; errors name the file.
pub fn gguf_config(file: &GgufFile) -> Result<Json, WeightsError> {
    probity_models::gguf_config(file).map_err(|error| file.metadata_error(&error.key, error.why))
}
