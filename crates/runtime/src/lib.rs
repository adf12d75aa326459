//! Loading, tokenizing and scoring: the language-model contract on candle

mod checkpoint;
mod engine;
pub mod chat;
pub mod encoder;
mod gguf_config;
pub mod hub;
mod model;
pub mod tokenizer;
mod verdict;
pub mod weights;

pub use gguf_config::gguf_config;

pub use checkpoint::{Checkpoint, LoadError};
pub use model::{LoadOptions, Model};
