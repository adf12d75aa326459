//! `GET /v1/models` and `/health`.

use schemars::JsonSchema;
use serde::Serialize;

/// The models that are served: one.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ModelList {
    /// `list`.
    pub(crate) object: &'static str,
    /// The one.
    pub(crate) data: Vec<ModelBody>,
}

/// A model.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ModelBody {
    /// What requests call it.
    pub(crate) id: String,
    /// `model`.
    pub(crate) object: &'static str,
    /// When the server was started, in seconds.
    pub(crate) created: u64,
    /// `probity`.
    pub(crate) owned_by: &'static str,
    /// `llama`, `qwen2` …
    pub(crate) architecture: String,
    /// SHA-256 over weights, configuration, tokenizer and chat template.
    pub(crate) fingerprint: String,
    /// The arithmetic in force.
    pub(crate) precision: &'static str,
    /// Where it computes.
    pub(crate) device: String,
    /// Tokens that a prompt with its answer may have.
    pub(crate) max_model_len: usize,
    /// Whether it can be asked chats.
    pub(crate) has_chat_template: bool,
}

/// That the server is there.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct HealthBody {
    /// `ok`.
    pub(crate) status: &'static str,
}
