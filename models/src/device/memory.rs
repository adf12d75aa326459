//! What a model holds on a device, from its files alone.

use super::attention::MOST_SCORES;
use super::head::HEAD_ROWS;
use super::weights::WIDENED_WEIGHTS;
use crate::decoder::EMBEDDING;
use crate::stack_config::StackConfig;
use crate::{Arithmetic, ModelConfig, WeightSource};

/// Bytes that a model takes on a device of candle's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Weights, as they are held there. Embeddings stay in their file but where they are the output head too.
    pub weights: u64,
    /// Keys and values of a token, over all layers; of an encoder none.
    pub cache_per_token: u64,
    /// What one batch makes and lets go again, at most. An estimate.
    pub activations: u64,
}

/// The layers that hold keys and values, and those of a batch.
fn stacks(config: &ModelConfig) -> Vec<StackConfig> {
    match config {
        ModelConfig::Decoder(config) => vec![config.stack()],
        ModelConfig::EncoderDecoder(config) => vec![config.decoder.1.clone(), config.encoder.1.clone()],
        ModelConfig::Encoder(config) => vec![config.stack.clone()],
        ModelConfig::Bridged(_) => Vec::new(),
    }
}

/// Whether a tensor is a table of tokens, which is read on the host.
fn is_embedding(config: &ModelConfig, name: &str) -> bool {
    let ends = |names: &[&str]| names.iter().any(|end| name.ends_with(end));
    match config {
        ModelConfig::Decoder(_) => name == EMBEDDING,
        ModelConfig::EncoderDecoder(config) => ends(config.encoder.0.tokens) || ends(config.decoder.0.tokens),
        ModelConfig::Encoder(config) => ends(config.embeddings.tokens),
        ModelConfig::Bridged(_) => false,
    }
}

impl DeviceMemory {
    /// Of a model that is loaded so and runs so many tokens at once.
    pub fn of(source: &dyn WeightSource, config: &ModelConfig, arithmetic: Arithmetic, token_budget: usize) -> Self {
        let exact = arithmetic == Arithmetic::Exact;
        let (mut weights, mut largest) = (0, 0);
        let tied = config.tied_head();
        for name in source.names() {
            let Ok((weight_type, bytes)) = source.stored(&name) else { continue };
            let is_tied = tied.as_ref().is_some_and(|(_, embeddings)| embeddings.contains(&name));
            if config.is_spare(&name) || (is_embedding(config, &name) && !is_tied) {
                continue;
            }
            let elements = bytes / weight_type.block_bytes() * weight_type.block_len();
            let is_head = is_tied || name.ends_with("lm_head.weight");
            let held = match config {
                ModelConfig::Bridged(_) => 4 * elements,
                _ if exact || weight_type.is_quantised() => bytes,
                _ => elements * if is_head { 4 } else { 2 },
            };
            weights += held as u64;
            // What is not multiplied with as it lies is widened before.
            if exact && bytes < 4 * elements {
                largest = largest.max(elements.min(WIDENED_WEIGHTS));
            }
        }
        let (stacks, size) = (stacks(config), if exact { 4 } else { 2 });
        let cached = stacks.first().filter(|stack| !stack.bidirectional);
        let widest = stacks.iter().map(|c| 4 * c.hidden_size + 3 * c.intermediate_size + 2 * c.num_heads * c.head_dim);
        // Scores as they are, scaled, and as weights; logits, and what is made of them.
        let scores = stacks.iter().map(|c| c.num_heads * token_budget * token_budget).max().unwrap_or(0);
        let scores = 3 * 4 * scores.min(MOST_SCORES);
        let logits = 4 * 4 * HEAD_ROWS * config.vocab_size();
        let rows = size * token_budget * widest.max().unwrap_or(0);
        Self {
            weights,
            cache_per_token: cached.map_or(0, |c| (2 * c.layers.len() * c.num_kv_heads * c.head_dim * size) as u64),
            activations: (rows + 4 * largest + scores.max(logits)) as u64,
        }
    }
}
