//! `GET /v1/models` and `/health`.

use schemars::JsonSchema;
use serde::Serialize;

/// The served models (exactly one).
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ModelList {
    /// `list`.
    pub(crate) object: &'static str,
    /// The model.
    pub(crate) data: Vec<ModelBody>,
}

/// A model.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ModelBody {
    /// Id in requests.
    pub(crate) id: String,
    /// `model`.
    pub(crate) object: &'static str,
    /// Start time of the server, in seconds.
    pub(crate) created: u64,
    /// `probity`.
    pub(crate) owned_by: &'static str,
    /// `llama`, `qwen2` …
    pub(crate) architecture: String,
    /// SHA-256 over weights, configuration, tokenizer and chat template.
    pub(crate) fingerprint: String,
    /// Precision.
    pub(crate) precision: &'static str,
    /// Device.
    pub(crate) device: String,
    /// Maximum number of tokens of a prompt with its answer.
    pub(crate) max_model_len: usize,
    /// Whether it accepts chats.
    pub(crate) has_chat_template: bool,
}

/// Health of the server.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct HealthBody {
    /// `ok`.
    pub(crate) status: &'static str,
}
