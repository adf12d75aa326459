//! Model architectures on the packed contract.
//!
//! A model takes one flat batch of segments, each a stretch of new tokens and the cached spans before it
//! ([`PackedSegment`]). Linear layers run over all tokens at once, attention per segment; there is no padding. Prefill,
//! label suffixes and decoding are the same call. An encoder-decoder takes sources and its decoder's texts in the same
//! call; an encoder takes whole texts ([`PackedEncoder`]). An architecture is one file that reads its configuration and names
//! its tensors, and one line in the registry.

mod architecture;
mod bart;
mod bert;
mod bridge;
mod classes;
mod classifier;
mod config;
mod cpu;
mod deberta_v2;
mod decoder;
mod device;
mod disentangled;
mod distances;
mod distilbert;
mod embeddings;
mod encoder;
mod encoder_decoder;
mod family;
mod gemma2;
mod gemma3;
mod gguf;
mod granite;
mod head;
mod layer;
mod linear;
mod llama;
mod ministral;
mod mistral;
mod mixtral;
mod modernbert;
mod olmo2;
mod packed;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod registry;
mod relative;
mod roberta;
mod rope;
mod row_range;
mod smollm3;
mod source;
mod stack_config;
mod t5;
mod text_part;
mod transformer;

pub use architecture::ModelConfig;
pub use bridge::{BRIDGE, BridgedConfig};
pub use config::ConfigError;
pub use decoder::DecoderConfig;
pub use device::{
    BatchSize, ComputeCapability, DeviceChoice, DeviceError, DeviceLimitError, DeviceList, DeviceListError,
    DeviceMemory, DeviceRoom, HeldBytes, LayerMemory, Placement, StageNames, check_model, load_bridged,
    load_classifier_on, load_decoder_on, load_encoder_decoder_on, load_encoder_on,
};
pub use encoder::EncoderShape;
pub use encoder_decoder::{DecoderClasses, EncoderDecoderConfig};
pub use gguf::{GgufError, GgufMetadata, GgufNames};
pub use linear::weight_types;
pub use packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedEncoder, PackedOutput, PackedSegment};
pub use probity_kernels::{Arithmetic, Isa, RopeLayout, WeightType};
pub use registry::{
    ArchitectureKind, KnownArchitecture, architectures, gguf_config, gguf_names, known_architectures, load_classifier,
    load_decoder, load_encoder, load_encoder_decoder, read_config,
};
pub use rope::{Rope, RopeScaling};
pub use source::{RawTensor, SourceError, TensorBytes, TensorMemory, WeightSource};
pub use stack_config::{ExpertChoice, LayerSight};
pub use text_part::{TextTensors, text_part, text_tensor};

/// How our kernels compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compute {
    /// How much products may round.
    pub arithmetic: Arithmetic,
    /// The instruction set; the machine must have it. It changes no bit of any result.
    pub isa: Isa,
}

impl Compute {
    /// The rows whose arithmetic takes about as long as reading the weights once, as measured with quantised models of
    /// 0.1 to 1.5 billion weights.
    fn idle_rows(self) -> usize {
        match (self.arithmetic, self.isa.has_byte_dot()) {
            (Arithmetic::Exact, _) => 14,
            // Without an instruction for dot products of bytes, a further row takes a quarter of a pass or more.
            (Arithmetic::Dots, false) => 4,
            (Arithmetic::Dots, true) => 12,
            (Arithmetic::Tiles, _) => 100,
        }
    }
}

impl From<Arithmetic> for Compute {
    /// On the best instruction set that the machine has.
    fn from(arithmetic: Arithmetic) -> Self {
        Self { arithmetic, isa: Isa::best() }
    }
}
