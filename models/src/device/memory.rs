//! Device memory that a model needs, computed from its files, and the memory of devices.

use std::ops::{AddAssign, Range};

use super::DeviceChoice;
use super::attention::{BLOCK_ROWS, largest_stack};
use super::head::HEAD_ROWS;
use super::limits::MOST_ELEMENTS;
use super::placement::first_layers;
use super::weights::{WIDENED_WEIGHTS, block_type};
use crate::decoder::EMBEDDING;
use crate::layer_inputs;
use crate::stack_config::StackConfig;
use crate::{Arithmetic, ModelConfig, WeightSource, WeightType};

/// Bytes of each layer on candle devices, and of what belongs to the last one: norms and the output head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerMemory {
    layers: Vec<HeldBytes>,
    behind: HeldBytes,
    batch: BatchShape,
}

/// Bytes that a model, or some of its layers, need on a candle device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes held while the model is loaded.
    pub held: HeldBytes,
    batch: BatchShape,
}

/// Device memory held for the lifetime of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldBytes {
    /// Weights as stored on the device. Embeddings stay in their file, unless they are also the output head.
    pub weights: u64,
    /// The reordered second copy of quantised weights that candle keeps on the CPU.
    pub reordered_on_cpu: u64,
    /// Keys and values per token; 0 for encoders.
    pub cache_per_token: u64,
    /// The largest weights that are converted to f32 for a product.
    widened: u64,
}

impl AddAssign for HeldBytes {
    fn add_assign(&mut self, other: Self) {
        self.weights += other.weights;
        self.reordered_on_cpu += other.reordered_on_cpu;
        self.cache_per_token += other.cache_per_token;
        // One at a time, so the maximum counts.
        self.widened = self.widened.max(other.widened);
    }
}

/// Parameters of the temporary memory of a batch; with several stacks, the maximum of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BatchShape {
    /// Bytes of an activation element.
    size: usize,
    /// Elements per row around attention.
    around_attention: usize,
    /// Elements per row around a feed-forward sublayer.
    around_feed_forward: usize,
    /// Query heads, and key elements per position.
    heads: (usize, usize),
    /// The largest window, if all layers have one.
    window: Option<usize>,
    /// Number of different windows, each with its own masks.
    sights: usize,
    /// Bytes for each row-key pair in a head.
    pair: usize,
    /// Bytes per row of logits, and of the head's converted weights; 0 if the head is on another device.
    logits: usize,
    widened_head: u64,
}

/// Size parameters of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    /// Tokens that run at once.
    pub rows: usize,
    /// How many of them belong to the same text.
    pub own: usize,
    /// Positions that a row sees.
    pub positions: usize,
    /// Rows with logits.
    pub head_rows: usize,
}

impl BatchSize {
    /// The largest batch with this many tokens.
    pub fn with_tokens(tokens: usize) -> Self {
        Self { rows: tokens, own: tokens, positions: tokens, head_rows: tokens }
    }
}

/// Memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRoom {
    /// Free bytes.
    pub free: u64,
    /// Total bytes.
    pub total: u64,
}

impl DeviceChoice {
    /// Memory of the device; `None` for CPUs and devices that cannot be used.
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

/// Metal's recommended working set less this process's allocations. Metal does not report the memory of other
/// processes.
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

/// The layer of a tensor, counted over all stacks.
fn layer_of(stacks: &[StackConfig], name: &str) -> Option<usize> {
    let mut before = 0;
    for stack in stacks {
        let (_, rest) = name.split_once(stack.names.layers).unwrap_or_default();
        let number = rest.strip_prefix('.').and_then(|rest| rest.split_once('.')?.0.parse::<usize>().ok());
        if let Some(number) = number.filter(|number| *number < stack.layers.len()) {
            return Some(before + number);
        }
        before += stack.layers.len();
    }
    None
}

/// Whether a tensor is a token table, which is read on the host.
fn is_embedding(config: &ModelConfig, name: &str) -> bool {
    let ends = |names: &[&str]| names.iter().any(|end| name.ends_with(end));
    match config {
        ModelConfig::Decoder(_) => name == EMBEDDING || name.ends_with(layer_inputs::TABLE),
        ModelConfig::EncoderDecoder(config) => ends(config.encoder.0.tokens) || ends(config.decoder.0.tokens),
        ModelConfig::Encoder(config) => ends(config.embeddings.tokens),
        ModelConfig::Bridged(_) => false,
    }
}

/// Bytes of candle 0.11's reordered blocks for CPU products: 16 rows by 256 columns.
fn reordered(source: &dyn WeightSource, name: &str, weight_type: WeightType, bytes: usize) -> u64 {
    // Scales are stored as f32 there, and 6-bit values as 8 bits.
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

impl LayerMemory {
    /// For a model loaded with this arithmetic.
    pub fn new(source: &dyn WeightSource, config: &ModelConfig, arithmetic: Arithmetic) -> Self {
        let exact = arithmetic == Arithmetic::Exact;
        let (stacks, size) = (config.stacks(), if exact { 4 } else { 2 });
        let cached = |stack: &StackConfig, layer: usize| {
            let is_kept = !stack.bidirectional && stack.keys_layer(layer) == layer;
            let bytes = 2 * stack.key_heads(layer).width() * size;
            HeldBytes { cache_per_token: if is_kept { bytes as u64 } else { 0 }, ..HeldBytes::default() }
        };
        let of_stack = |stack: &StackConfig| (0..stack.layers.len()).map(|at| cached(stack, at)).collect::<Vec<_>>();
        let mut layers: Vec<HeldBytes> = stacks.iter().flat_map(of_stack).collect();
        let mut behind = HeldBytes::default();
        for name in source.names() {
            let Some(held) = held_tensor(source, config, &name, exact) else { continue };
            match layer_of(&stacks, &name) {
                Some(layer) => layers[layer] += held,
                None => behind += held,
            }
        }
        let batch = BatchShape::new(&stacks, size, (config.vocab_size(), behind.widened));
        behind.widened = 0;
        Self { layers, behind, batch }
    }

    /// The whole model on one device.
    pub fn whole(&self) -> DeviceMemory {
        self.on(0..self.layers.len())
    }

    /// Divides the layers over devices with these free bytes, such that the highest utilisation is minimal. Returns
    /// each device's layers and memory.
    pub fn divided(&self, rooms: &[u64]) -> Vec<(Range<usize>, DeviceMemory)> {
        let bytes: Vec<u64> = self.layers.iter().map(|layer| layer.weights).collect();
        let firsts = first_layers(&bytes, self.behind.weights, rooms);
        let ends = firsts.iter().skip(1).copied().chain([self.layers.len()]);
        firsts.iter().zip(ends).map(|(first, end)| (*first..end, self.on(*first..end))).collect()
    }

    fn on(&self, layers: Range<usize>) -> DeviceMemory {
        let is_last = layers.end == self.layers.len();
        let batch = if is_last { self.batch } else { BatchShape { logits: 0, widened_head: 0, ..self.batch } };
        let mut held = if is_last { self.behind } else { HeldBytes::default() };
        self.layers[layers].iter().for_each(|layer| held += *layer);
        DeviceMemory { held, batch }
    }
}

/// Bytes of a tensor; `None` if no device holds it.
fn held_tensor(source: &dyn WeightSource, config: &ModelConfig, name: &str, exact: bool) -> Option<HeldBytes> {
    let (weight_type, bytes) = source.stored(name).ok()?;
    // Without its masked language model head, an encoder reads the table only on the host.
    let has_head = match config {
        ModelConfig::Encoder(config) => config.classes.is_empty() && source.tensor(config.head.sign).is_ok(),
        _ => true,
    };
    let tied = config.tied_head().filter(|_| has_head);
    let is_tied = tied.is_some_and(|(_, embeddings)| embeddings.iter().any(|tied| tied == name));
    if config.is_spare(name) || (is_embedding(config, name) && !is_tied) {
        return None;
    }
    let elements = bytes / weight_type.block_bytes() * weight_type.block_len();
    let is_head = is_tied || name.ends_with("lm_head.weight");
    // Blocks that candle does not know are converted when they are loaded.
    let bytes = if weight_type.is_quantised() && block_type(weight_type).is_none() { 2 * elements } else { bytes };
    let held = match config {
        ModelConfig::Bridged(_) => 4 * elements,
        _ if exact || block_type(weight_type).is_some() => bytes,
        _ => elements * if is_head { 4 } else { 2 },
    };
    // Weights that are not multiplied in their stored type are converted first.
    let widened = if exact && bytes < 4 * elements { 4 * elements.min(WIDENED_WEIGHTS) } else { 0 };
    Some(HeldBytes {
        weights: held as u64,
        reordered_on_cpu: if exact { 0 } else { reordered(source, name, weight_type, bytes) },
        cache_per_token: 0,
        widened: widened as u64,
    })
}

impl BatchShape {
    fn new(stacks: &[StackConfig], size: usize, (vocabulary, widened_head): (usize, u64)) -> Self {
        let most = |of: &dyn Fn(&StackConfig) -> usize| stacks.iter().map(of).max().unwrap_or(0);
        let keys = StackConfig::widest_keys;
        let inputs = |c: &StackConfig| c.layer_inputs.map_or(0, |width| width * c.layers.len());
        let windows: Vec<_> = stacks.iter().flat_map(|c| c.layers.iter().map(|layer| layer.window)).collect();
        let mut kinds = windows.clone();
        kinds.sort_unstable();
        kinds.dedup();
        Self {
            size,
            // The residual stream and its norm; queries, stacked queries and the result; new keys and values.
            around_attention: most(&|c| inputs(c) + 2 * c.hidden_size + 3 * c.widest_queries() + 2 * keys(c)),
            around_feed_forward: most(&|c| {
                // One result per chosen expert, in f32: as read and weighted.
                let of_experts = c.experts.map_or(0, |experts| 3 * experts.chosen * c.hidden_size);
                // While they are computed, three copies of the inputs of layers exist, and before that none.
                (inputs(c) + 3 * c.hidden_size + 3 * c.widest_feed_forward() + of_experts).max(3 * inputs(c))
            }),
            heads: (most(&|c| c.num_heads), most(&keys)),
            window: windows.into_iter().collect::<Option<Vec<_>>>().and_then(|windows| windows.into_iter().max()),
            sights: kinds.len(),
            // Two score tensors in f32, their bf16 copy for products, and relative biases.
            pair: most(&|c| {
                let rounded = if size == 4 { 0 } else { size };
                let by_distance = 4 * usize::from(c.relative.is_some()) + 8 * usize::from(c.disentangled.is_some());
                8 + rounded + by_distance
            }),
            // The logits, a copy without the largest, and temporaries of the arg-max.
            logits: 4 * 4 * vocabulary,
            widened_head,
        }
    }

    /// Bytes around attention: activations, gathered keys and values, scores, masks.
    fn attention(&self, size: BatchSize) -> usize {
        let seen = self.window.map_or(usize::MAX, |window| window.saturating_add(BLOCK_ROWS));
        // More positions are refused.
        let positions = size.positions.min(seen).clamp(1, MOST_ELEMENTS);
        let (heads, key_width) = self.heads;
        let stack = largest_stack(size, positions, (heads, key_width));
        let scores = heads * stack.pieces * stack.rows * stack.keys * self.pair;
        let copied = 2 * key_width * stack.pieces * stack.keys * self.size;
        // Later blocks of a text also see its earlier ones, and all masks live as long as the batch.
        let masked = if size.own < positions { positions } else { positions.midpoint(positions.min(BLOCK_ROWS)) };
        let rows = self.size.saturating_mul(self.around_attention).saturating_add(4 * self.sights * masked);
        rows.saturating_mul(size.rows).saturating_add(copied + scores)
    }
}

impl DeviceMemory {
    /// Estimated peak of temporary memory of such a batch: around attention, around a feed-forward sublayer, or at the
    /// output head.
    pub fn activations(&self, size: BatchSize) -> u64 {
        let batch = self.batch;
        let inside = batch.size.saturating_mul(batch.around_feed_forward).saturating_mul(size.rows);
        let inside = (inside as u64).saturating_add(self.held.widened);
        let head = (batch.logits * size.head_rows.min(HEAD_ROWS)) as u64 + batch.widened_head;
        inside.max(batch.attention(size) as u64).max(head)
    }
}
