//! What a model holds on a device, from its files alone, and what memory the device has.

use super::DeviceChoice;
use super::attention::MOST_SCORES;
use super::head::HEAD_ROWS;
use super::weights::WIDENED_WEIGHTS;
use crate::decoder::EMBEDDING;
use crate::stack_config::StackConfig;
use crate::{Arithmetic, ModelConfig, WeightSource, WeightType};

/// Bytes that a model takes on a device of candle's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Weights, as they are held there. Embeddings stay in their file but where they are the output head too.
    pub weights: u64,
    /// The second copy of quantised weights that candle keeps on the processor in another order.
    pub reordered_on_cpu: u64,
    /// Keys and values of a token, over all layers; of an encoder none.
    pub cache_per_token: u64,
    batch: BatchBytes,
}

/// Bytes that a batch makes and lets go again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BatchBytes {
    /// A row, in all that is held of it at once around attention.
    narrow_row: u64,
    /// The same of a feed-forward part.
    wide_row: u64,
    /// A pair of a row and a position, over all heads: scores as they are, scaled, masked, and as weights.
    pair: u64,
    /// Pairs for which there is room at once.
    most_pairs: u64,
    /// A row of logits, and what is made of them.
    logits: u64,
    /// The largest weights that are widened for a product.
    widened: u64,
}

/// What decides how much a batch takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    /// Tokens that run at once.
    pub rows: usize,
    /// Positions that a row sees.
    pub positions: usize,
    /// Rows whose logits are computed.
    pub head_rows: usize,
}

impl BatchSize {
    /// The largest batch of so many tokens.
    pub fn of_tokens(tokens: usize) -> Self {
        Self { rows: tokens, positions: tokens, head_rows: tokens }
    }
}

/// Memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRoom {
    /// Bytes that are free now.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

impl DeviceChoice {
    /// Memory of a device that has its own; `None` for the processor, and where the device cannot be used.
    pub fn room(self) -> Option<DeviceRoom> {
        match self {
            Self::Cpu | Self::CandleCpu => None,
            Self::Cuda(index) => cuda_room(index),
            Self::Metal => metal_room(),
        }
    }
}

#[cfg(feature = "cuda")]
fn cuda_room(index: usize) -> Option<DeviceRoom> {
    let context = candle_core::cuda_backend::cudarc::driver::CudaContext::new(index).ok()?;
    let (free, total) = context.mem_get_info().ok()?;
    Some(DeviceRoom { free: free as u64, total: total as u64 })
}

#[cfg(not(feature = "cuda"))]
fn cuda_room(_: usize) -> Option<DeviceRoom> {
    None
}

/// The memory that Metal recommends to stay within, less what this process has there: what others have is not told.
#[cfg(feature = "metal")]
fn metal_room() -> Option<DeviceRoom> {
    let device = candle_core::Device::new_metal(0).ok()?;
    let metal = device.as_metal_device().ok()?.metal_device();
    let total = metal.recommended_max_working_set_size();
    let free = total.saturating_sub(metal.current_allocated_size());
    Some(DeviceRoom { free: free as u64, total: total as u64 })
}

#[cfg(not(feature = "metal"))]
fn metal_room() -> Option<DeviceRoom> {
    None
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

/// Bytes of the blocks in which candle 0.11 multiplies with a matrix on the processor: 16 rows by 256 columns.
fn reordered(source: &dyn WeightSource, name: &str, weight_type: WeightType, bytes: usize) -> u64 {
    // Scales are 32-bit floats there, and 6 bits take 8.
    let (before, after) = match weight_type {
        WeightType::Q4_K => (2304, 3072),
        WeightType::Q6_K => (3360, 5120),
        WeightType::Q8_0 => (544, 544),
        _ => return 0,
    };
    let is_cut = |shape: &[usize]| matches!(shape, [rows, width] if rows % 16 == 0 && width % 256 == 0);
    let of_blocks = source.tensor(name).is_ok_and(|tensor| is_cut(&tensor.shape));
    if cfg!(target_arch = "x86_64") && of_blocks { (bytes / before * after) as u64 } else { 0 }
}

impl DeviceMemory {
    /// Of a model that is loaded so.
    pub fn of(source: &dyn WeightSource, config: &ModelConfig, arithmetic: Arithmetic) -> Self {
        let exact = arithmetic == Arithmetic::Exact;
        let (mut weights, mut largest, mut reordered_on_cpu) = (0, 0, 0);
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
            if !exact {
                reordered_on_cpu += reordered(source, &name, weight_type, bytes);
            }
            // What is not multiplied with as it lies is widened before.
            if exact && bytes < 4 * elements {
                largest = largest.max(elements.min(WIDENED_WEIGHTS));
            }
        }
        let (stacks, size) = (stacks(config), if exact { 4 } else { 2 });
        let cached = stacks.first().filter(|stack| !stack.bidirectional);
        let most = |of: fn(&StackConfig) -> usize| (size * stacks.iter().map(of).max().unwrap_or(0)) as u64;
        let heads = stacks.iter().map(|c| c.num_heads).max().unwrap_or(0);
        Self {
            weights,
            reordered_on_cpu,
            cache_per_token: cached.map_or(0, |c| (2 * c.layers.len() * c.num_kv_heads * c.head_dim * size) as u64),
            batch: BatchBytes {
                narrow_row: most(|c| 4 * c.hidden_size + 2 * c.num_heads * c.head_dim),
                wide_row: most(|c| 4 * c.hidden_size + 3 * c.intermediate_size),
                pair: (4 * 4 * heads) as u64,
                most_pairs: (MOST_SCORES / heads.max(1)) as u64,
                logits: (4 * 4 * config.vocab_size()) as u64,
                widened: 4 * largest as u64,
            },
        }
    }

    /// What one such batch makes and lets go again, at most. An estimate.
    pub fn activations(&self, size: BatchSize) -> u64 {
        let BatchBytes { narrow_row, wide_row, pair, most_pairs, logits, widened } = self.batch;
        let rows = size.rows as u64;
        let pairs = rows.saturating_mul(size.positions as u64).min(most_pairs);
        let logits = logits * size.head_rows.min(HEAD_ROWS) as u64;
        let attention = narrow_row.saturating_mul(rows).saturating_add(pair * pairs);
        // Allocators keep what layers let go while the head's weights are widened.
        attention.max(wide_row.saturating_mul(rows)).saturating_add(widened + logits)
    }
}
