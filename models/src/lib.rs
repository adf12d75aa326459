//! Model architectures on the packed contract.
//!
//! A model takes one flat batch of segments, each with new tokens and the cached spans before them ([`PackedSegment`]).
//! Linear layers run over all tokens at once and attention runs per segment, without padding. Prefill, label suffixes
//! and decoding use the same call. An encoder-decoder takes sources and decoder texts in one call; an encoder takes
//! whole texts ([`PackedEncoder`]). Each architecture is one file that reads its configuration and names its tensors,
//! plus one line in the registry.

mod architecture;
mod bart;
mod bert;
mod bridge;
mod classes;
mod classifier;
mod config;
mod convolution;
mod convolution_layer;
mod cpu;
mod deberta_v2;
mod decoder;
mod delta;
mod delta_layer;
mod device;
mod disentangled;
mod distances;
mod distilbert;
mod embeddings;
mod encoder;
mod encoder_decoder;
mod expert_tensors;
mod family;
mod gemma2;
mod gemma3;
mod gemma4;
mod gguf;
mod glm4;
mod glm4_moe;
mod gpt_oss;
mod granite;
mod granitemoe;
mod granitemoehybrid;
mod head;
mod hybrid;
mod layer;
mod layer_inputs;
mod lfm2;
mod linear;
mod llama;
mod ministral;
mod ministral3;
mod mistral;
mod mixtral;
mod modernbert;
mod olmo2;
mod packed;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;
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
mod weight_loader;

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
pub use expert_tensors::experts_apart;
pub use gguf::{GgufError, GgufMetadata, GgufNames};
pub use linear::weight_types;
pub use packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedEncoder, PackedOutput, PackedSegment};
pub use probity_kernels::{Arithmetic, DeltaShape, Isa, RopeLayout, WeightType};
pub use registry::{
    ArchitectureKind, KnownArchitecture, architectures, gguf_config, gguf_names, known_architectures, load_classifier,
    load_decoder, load_encoder, load_encoder_decoder, read_config,
};
pub use rope::{Rope, RopeScaling};
pub use source::{ByteTensor, RawTensor, SourceError, TensorBytes, TensorMemory, WeightSource};
pub use stack_config::{DeltaNet, DenseLayers, ExpertChoice, LayerSight, Recurrence, RouterScores, Temperature};
pub use text_part::{TextTensors, text_part, text_tensor};

/// How the kernels compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compute {
    /// How much products may be rounded.
    pub arithmetic: Arithmetic,
    /// The instruction set, which the machine must support. It does not change results.
    pub isa: Isa,
}

impl Compute {
    /// Number of rows whose arithmetic takes about as long as reading the weights once. Measured with quantised models
    /// of 0.1 to 1.5 billion parameters.
    fn idle_rows(self) -> usize {
        match (self.arithmetic, self.isa.has_byte_dot()) {
            (Arithmetic::Exact, _) => 14,
            // Without byte dot product instructions, each further row costs a quarter of a pass or more.
            (Arithmetic::Dots, false) => 4,
            (Arithmetic::Dots, true) => 12,
            (Arithmetic::Tiles, _) => 100,
        }
    }
}

impl From<Arithmetic> for Compute {
    /// Uses the best instruction set of the machine.
    fn from(arithmetic: Arithmetic) -> Self {
        Self { arithmetic, isa: Isa::best() }
    }
}
