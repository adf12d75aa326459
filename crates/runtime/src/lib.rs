//! Loading, tokenizing and scoring: the language-model contract on candle

mod gguf_config;
pub mod hub;
pub mod weights;

pub use gguf_config::gguf_config;
