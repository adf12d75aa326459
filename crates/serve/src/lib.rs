//! A model served over HTTP: the endpoints of `OpenAI`'s API for texts and conversations, and one for exact probabilities
//! of labels and continuations.
//!
//! Requests are read, cut into tokens and checked as they come (`completions`, `chat`, `score`), and wait in one queue. One
//! thread has the model (`worker`): what waits when the model is free runs together, and each answer goes to whoever
//! waits for it at once. An answer does not depend on what else is asked: it has the bits that it has alone.
//!
//! Beside it stands a server without a model: the page on which a person labels samples (`labelling`).
//!
//! This is the only crate with an asynchronous runtime. Whatever it reads was written by strangers: bodies, connections,
//! waiting requests and time are bounded, and a client that goes away costs nothing any more.

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
