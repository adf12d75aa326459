//! HTTP server for a model: `OpenAI`-compatible endpoints for completions and chats, and an endpoint for exact
//! probabilities of labels and continuations.
//!
//! Requests are parsed, tokenised and checked on arrival (`completions`, `chat`, `score`), and then queued. One thread
//! owns the model (`worker`): it runs all waiting requests together and sends each answer as soon as it is complete. An
//! answer is bitwise independent of concurrent requests.
//!
//! A separate server without a model serves the labelling page (`labelling`).
//!
//! This is the only crate with an asynchronous runtime. All input is untrusted: bodies, connections, waiting requests
//! and time are bounded, and requests of disconnected clients are dropped.

mod answers;
mod api_error;
mod app;
mod asks;
mod body;
mod connections;
mod error;
mod guard;
mod json;
mod labelling;
mod listening;
mod openapi;
mod options;
mod queue;
mod routes;
mod score;
mod served;
mod server;
mod stream;
#[cfg(test)]
mod testing;
mod text;
mod token;
mod wire;
mod worker;

pub use error::ServeError;
pub use labelling::{LabelCounts, LabelQuestion, LabelServer, LabelSession};
pub use options::ServeOptions;
pub use served::ServedModel;
pub use server::Server;
pub use token::{AccessToken, TokenError};
