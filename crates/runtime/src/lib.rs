//! Loading, tokenizing and scoring: the language-model contract on candle

pub mod chat;
mod checkpoint;
pub mod encoder;
mod engine;
mod gguf_config;
pub mod hub;
mod model;
pub mod tokenizer;
mod verdict;
pub mod weights;

pub use gguf_config::gguf_config;

pub use checkpoint::{Checkpoint, LoadError};
pub use model::{LoadOptions, Model};
pub use probity_models::{DeviceChoice, DeviceError};
