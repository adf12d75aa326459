//! Wire types of requests and responses. The `OpenAPI` description is generated from them.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod forms;
mod logprobs;
pub(crate) mod models;
pub(crate) mod score;
pub(crate) mod text;
mod unhonoured;
