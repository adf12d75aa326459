//! Model architectures on the packed contract.
//!
//! A model takes one flat batch of segments, each a stretch of new tokens and the cached spans before it ([`PackedSegment`]). Linear layers
//! run over all tokens at once, attention per segment; there is no padding. Prefill, label suffixes and decoding are the same call.
//! An architecture is one file that reads its configuration and one line in the registry.

mod config;
mod decoder;
mod device;
mod family;
mod linear;
mod llama;
mod mistral;
mod ops;
mod packed;
mod qwen2;
mod rope;
mod source;

pub use config::ConfigError;
pub use decoder::DecoderConfig;
pub use device::{DeviceChoice, DeviceError, load_decoder_on};
pub use family::{architectures, load_decoder, read_config};
pub use linear::weight_types;
pub use packed::{Decoder, HeadRow, KvSpan, PackedOutput, PackedSegment};
pub use probity_kernels::{RopeLayout, WeightType};
pub use rope::{Rope, RopeScaling};
pub use source::{Bytes, RawTensor, SourceError, WeightSource};

/// The arithmetic of products with quantised weights; other weights are always exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Dequantised weights, f32 throughout.
    Exact,
    /// Activations of 8 bits, integer dot products; on a device besides our kernels' CPU, bf16.
    Fast,
}
