//! Devices other than the CPU with our kernels, and models on candle operations.

mod attention;
#[cfg(feature = "candle-transformers")]
mod bridged;
mod classifier;
mod decoder;
mod distances;
mod embeddings;
mod encoder;
mod encoder_decoder;
mod experts;
#[cfg(feature = "flash-attn")]
mod flash;
mod head;
mod layer;
mod layer_inputs;
mod limits;
mod list;
mod memory;
mod placement;
mod platform;
mod pool;
mod stack;
mod weights;

use std::fmt;
use std::str::FromStr;

use candle_core::{DType, Device};

use crate::bridge::BridgedConfig;
use crate::classifier::{self as classifier_on_cpu, Classifier, PooledEncoder};
use crate::decoder::LlamaFamily;
use crate::encoder::MaskedModel;
use crate::linear::TensorLoader;
use crate::packed::{PackedDecoder, PackedEncoder};
use crate::{Arithmetic, Compute, DecoderConfig, EncoderDecoderConfig, EncoderShape, SourceError, WeightSource};
use classifier::{DeviceClassifier, DevicePooledEncoder};
use decoder::DeviceDecoder;
use encoder::DeviceEncoder;
use weights::{DeviceLoadError, DeviceLoader};

pub use limits::{ComputeCapability, DeviceLimitError};
pub use list::{DeviceList, DeviceListError, StageNames};
pub use memory::{BatchSize, DeviceMemory, DeviceRoom, HeldBytes, LayerMemory};
pub use placement::{Placement, check_model};

/// An estimate: devices have spare arithmetic.
const IDLE_ROWS: usize = 64;

/// Where a model runs.
///
/// Only [`Cpu`](Self::Cpu) has reproducible bits. On other devices, results are those of candle operations, which may
/// depend on the rest of the batch and on how the past is divided into spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceChoice {
    /// The CPU with our kernels.
    #[default]
    Cpu,
    /// The CPU with candle operations, to check what other devices would compute.
    CandleCpu,
    /// The CUDA device with this index.
    Cuda(usize),
    /// The system's Metal device.
    Metal,
}

/// Build hint for candle-transformers.
const BRIDGED_BUILD: &str = if cfg!(feature = "candle-transformers") {
    ""
} else {
    "cargo install --locked --path . --features candle-transformers; then "
};

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum DeviceError {
    /// Unknown device name.
    #[error("unknown device `{0}`")]
    #[diagnostic(help("{}", DeviceChoice::FORMS))]
    Unknown(String),
    /// The build does not support the device.
    #[error("this build cannot compute on {device}")]
    #[diagnostic(help("{}", how_to_build(feature)))]
    NotBuilt {
        /// The device, or `cuda:all`.
        device: String,
        /// The Cargo feature that adds support.
        feature: &'static str,
    },
    /// The device is missing or does not work.
    #[error("{device} cannot be used: {reason}")]
    #[diagnostic(help("use --device cpu to compute on the processor"))]
    Unavailable {
        /// The device, or `cuda:all`.
        device: String,
        /// candle's message.
        reason: String,
    },
    /// The card is too old for the kernels of this build.
    #[error("{device} has compute capability {card}, but this program's kernels need {needed}")]
    #[diagnostic(help("build kernels for it with CUDA_COMPUTE_CAP={}{} scripts/gpu/build, or use --device \
                       cpu", card.major, card.minor))]
    OldCard {
        /// The device.
        device: DeviceChoice,
        /// The card's capability.
        card: ComputeCapability,
        /// The required capability.
        needed: ComputeCapability,
    },
    /// The card has no bf16.
    #[error("{device} has compute capability {card}, but --precision fast computes in bf16, which needs {needed}")]
    #[diagnostic(help("use --precision exact, or --device cpu"))]
    NoBf16 {
        /// The device.
        device: DeviceChoice,
        /// The card's capability.
        card: ComputeCapability,
        /// The capability that bf16 requires.
        needed: ComputeCapability,
    },
    /// The weights could not be loaded to the device.
    #[error("the weights cannot be loaded to {devices}: {reason}")]
    #[diagnostic(help("use a smaller quantisation, --precision fast for 32-bit weights, or --device cpu"))]
    Weights {
        /// The device, or those that share the model.
        devices: String,
        /// candle's message.
        reason: String,
    },
    /// An architecture that only candle-transformers implements was requested on our kernels.
    #[error("{architecture} models run only through candle-transformers, not on cpu")]
    #[diagnostic(help("{}use --device candle-cpu, or cuda:N or metal if the build has them", BRIDGED_BUILD))]
    BridgedOnCpu {
        /// `model_type`.
        architecture: &'static str,
    },
    /// A precision in which candle-transformers computes wrong positions.
    #[error("{architecture} models run in exact precision only")]
    #[diagnostic(help(
        "use --precision exact; candle-transformers distinguishes positions beyond 256 in 32 bits only"
    ))]
    BridgedPrecision {
        /// `model_type`.
        architecture: &'static str,
    },
    /// candle-transformers models cannot be divided over devices.
    #[error("{architecture} models run through candle-transformers, which does not divide layers among devices")]
    #[diagnostic(help("use --device {device}"))]
    BridgedDivided {
        /// `model_type`.
        architecture: &'static str,
        /// The first device.
        device: DeviceChoice,
    },
    /// The number of layers.
    #[error("the model has too few layers ({layers}) for {devices} devices")]
    #[diagnostic(help("join at most {layers} devices with +; each needs at least one layer"))]
    FewLayers {
        /// The number of devices.
        layers: usize,
        /// How many devices were to hold them.
        devices: usize,
    },
    /// The model has recurrent layers.
    #[error("{layers} are not computed on {device}")]
    #[diagnostic(help("use --device cpu"))]
    Recurrent {
        /// What the layers are.
        layers: &'static str,
        /// The device.
        device: DeviceChoice,
    },
    /// The build does not include candle-transformers.
    #[error("{architecture} models run through candle-transformers, which this build does not have")]
    #[diagnostic(help("cargo install --locked --path . --features candle-transformers"))]
    NoBridge {
        /// `model_type`.
        architecture: &'static str,
    },
    /// A tensor of the checkpoint is missing or has another shape.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tensor(#[from] SourceError),
}

/// How to build with this feature, and what this build includes.
fn how_to_build(feature: &str) -> String {
    let needs = match feature {
        "cuda" => {
            "on a machine with NVIDIA's CUDA toolkit; or scripts/gpu/build, which needs neither the toolkit nor a GPU"
        }
        _ => "on a Mac with Apple Silicon",
    };
    let kinds = DeviceChoice::built().join(", ");
    format!(
        "cargo install --locked --path . --features {feature}, {needs} (see docs/devices.md)\nthis build has: {kinds}"
    )
}

/// candle's message without its backtrace.
fn reason(error: &candle_core::Error) -> String {
    let message = error.to_string();
    if message.contains("CUDA_ERROR_NO_DEVICE") {
        return "this machine has no NVIDIA GPU, or no driver for it".to_owned();
    }
    message.lines().next().unwrap_or_default().to_owned()
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::CandleCpu => f.write_str("candle-cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Metal => f.write_str("metal"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = DeviceError;

    /// Parses the format of [`Display`](fmt::Display); `cuda` means `cuda:0`.
    fn from_str(name: &str) -> Result<Self, DeviceError> {
        match name {
            "cpu" => Ok(Self::Cpu),
            "candle-cpu" => Ok(Self::CandleCpu),
            "cuda" => Ok(Self::Cuda(0)),
            "metal" => Ok(Self::Metal),
            _ => {
                let index = name.strip_prefix("cuda:").and_then(|index| index.parse().ok());
                index.map(Self::Cuda).ok_or_else(|| DeviceError::Unknown(name.to_owned()))
            }
        }
    }
}

impl DeviceChoice {
    /// The syntax of device names, for hints.
    pub const FORMS: &'static str = "devices are cpu, cuda:N (N from 0), metal and candle-cpu; cuda:0,cuda:1 copies \
                                     the model to each, cuda:all to every CUDA device; cuda:0+cuda:1 divides its \
                                     layers";

    /// All kinds of device, CUDA without indices.
    pub const KINDS: [&'static str; 4] = ["cpu", "candle-cpu", "cuda", "metal"];

    /// The kinds that this build supports, whether or not the machine has them.
    pub fn built() -> Vec<&'static str> {
        let lacks = [("cuda", !cfg!(feature = "cuda")), ("metal", !cfg!(feature = "metal"))];
        let has = |kind: &&str| !lacks.contains(&(*kind, true));
        Self::KINDS.into_iter().filter(has).collect()
    }

    /// Checks that the card supports the arithmetic. Unknown capabilities are not an error.
    pub fn check_arithmetic(self, arithmetic: Arithmetic) -> Result<(), DeviceError> {
        let Some(card) = self.compute_capability() else { return Ok(()) };
        limits::check_capability(self, card, ComputeCapability::of_this_build(), arithmetic == Arithmetic::Exact)
    }

    /// Checks that the build and the machine support the device.
    pub fn check(self) -> Result<(), DeviceError> {
        self.open().map(drop)
    }

    /// Opens the device in candle.
    fn open(self) -> Result<Device, DeviceError> {
        // Otherwise missing kernels would fail one by one, on first use.
        self.check_arithmetic(Arithmetic::Exact)?;
        let opened = match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::CandleCpu => {
                return_freed_tensors();
                Ok(Device::Cpu)
            }
            // Checked first: candle would report a missing device, although the build lacks support.
            Self::Cuda(_) if !cfg!(feature = "cuda") => {
                return Err(DeviceError::NotBuilt { device: self.to_string(), feature: "cuda" });
            }
            Self::Metal if !cfg!(feature = "metal") => {
                return Err(DeviceError::NotBuilt { device: self.to_string(), feature: "metal" });
            }
            // Not `new_cuda`, which uses the stream of the calling thread: steps of a model run on any pool thread and
            // must be ordered.
            Self::Cuda(index) => Device::new_cuda_with_stream(index),
            Self::Metal => Device::new_metal(0),
        };
        opened.map_err(|error| DeviceError::Unavailable { device: self.to_string(), reason: reason(&error) })
    }
}

/// Configures the system's allocator to give each large tensor its own pages and to return them on free, so that the
/// process's memory matches what a device would hold. By default it keeps freed blocks of up to 32 MiB.
fn return_freed_tensors() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call only sets a number, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
    }
}

/// Loads a decoder on any device, or its layers on several.
///
/// On [`DeviceChoice::Cpu`] this is [`load_decoder`](crate::load_decoder). Elsewhere quantised weights stay quantised.
///
/// - [Exact](Arithmetic::Exact): activations and the cache are f32. Weights are stored as in the file, and each product
///   converts its weights to f32.
/// - Otherwise activations and the cache are bf16. Products with quantised weights use candle's kernels, which round
///   activations to blocks of 8-bit integers; float weights are stored as bf16. Rotation, score biases, softmax and
///   layer norms are computed in f32. So are inputs and results of output heads, class heads and expert routers, whose
///   weights are f32 if they are floats in the file.
///
/// Embedding rows are looked up on the host.
pub fn load_decoder_on(
    place: impl Into<Placement>,
    source: &dyn WeightSource,
    config: DecoderConfig,
    compute: impl Into<Compute>,
) -> Result<Box<dyn PackedDecoder>, DeviceError> {
    let (place, compute) = (place.into(), compute.into());
    if place.is_cpu() {
        return Ok(Box::new(LlamaFamily::load(source, config, compute)?));
    }
    if let (Some(recurrence), [device, ..]) = (config.recurrence, place.devices()) {
        return Err(DeviceError::Recurrent { layers: recurrence.name(), device: *device });
    }
    let model = load(&place, source, compute, |loader| DeviceDecoder::load(loader, config))?;
    Ok(Box::new(model))
}

/// As [`load_decoder_on`], for an encoder-decoder.
pub fn load_encoder_decoder_on(
    place: impl Into<Placement>,
    source: &dyn WeightSource,
    config: &EncoderDecoderConfig,
    compute: impl Into<Compute>,
) -> Result<Box<dyn PackedDecoder>, DeviceError> {
    let (place, compute) = (place.into(), compute.into());
    if place.is_cpu() {
        return Ok(classifier_on_cpu::load_encoder_decoder(source, config, compute)?);
    }
    load(&place, source, compute, |loader| classifier::load_encoder_decoder(loader, config))
}

/// As [`load_decoder_on`], for an encoder.
pub fn load_encoder_on(
    place: impl Into<Placement>,
    source: &dyn WeightSource,
    config: &EncoderShape,
    compute: impl Into<Compute>,
) -> Result<Box<dyn PackedEncoder>, DeviceError> {
    let (place, compute) = (place.into(), compute.into());
    if place.is_cpu() {
        return Ok(Box::new(MaskedModel::load(source, config, compute)?));
    }
    let model = load(&place, source, compute, |loader| DeviceEncoder::load(loader, config))?;
    Ok(Box::new(model))
}

/// As [`load_classifier`](crate::load_classifier), on any device.
pub fn load_classifier_on(
    place: impl Into<Placement>,
    source: &dyn WeightSource,
    config: &EncoderShape,
    separator: Option<u32>,
    compute: impl Into<Compute>,
) -> Result<Box<dyn PackedDecoder>, DeviceError> {
    let (place, compute) = (place.into(), compute.into());
    if place.is_cpu() {
        return Ok(Box::new(Classifier::<PooledEncoder>::load(source, config, separator, compute)?));
    }
    let model = load(&place, source, compute, |loader| {
        DeviceClassifier::<DevicePooledEncoder>::load(loader, config, separator)
    })?;
    Ok(Box::new(model))
}

/// Loads a model to candle devices.
fn load<T>(
    place: &Placement,
    source: &dyn WeightSource,
    compute: Compute,
    load: impl FnOnce(&DeviceLoader<'_>) -> Result<T, DeviceLoadError>,
) -> Result<T, DeviceError> {
    // Devices have neither dots nor tiles: both mean `fast`, which selects one of them on the machine's CPU.
    let exact = compute.arithmetic == Arithmetic::Exact;
    let dtype = if exact { DType::F32 } else { DType::BF16 };
    let stages = place.stages().map(|(device, first_layer)| Ok((device.open()?, first_layer)));
    let stages = stages.collect::<Result<Vec<_>, DeviceError>>()?;
    let loader = DeviceLoader::new(TensorLoader::new(source, "", compute), &stages, (dtype, exact));
    load(&loader).map_err(|error| match error {
        DeviceLoadError::Source(error) => DeviceError::Tensor(error),
        DeviceLoadError::Device(error) => DeviceError::Weights { devices: place.to_string(), reason: reason(&error) },
    })
}

/// Loads a model through candle-transformers, with its own code and cache, one text at a time. Weights are dequantised
/// once, to f32, and all arithmetic is in f32: in bf16 its rotations lose precision beyond position 256. The last
/// digits may depend on what ran before.
pub fn load_bridged(
    device: DeviceChoice,
    source: &(dyn WeightSource + Sync),
    config: &BridgedConfig,
    arithmetic: Arithmetic,
) -> Result<Box<dyn PackedDecoder>, DeviceError> {
    placement::check_bridged(&[device], config, arithmetic)?;
    bridge(device, source, config)
}

#[cfg(feature = "candle-transformers")]
fn bridge(
    device: DeviceChoice,
    source: &(dyn WeightSource + Sync),
    config: &BridgedConfig,
) -> Result<Box<dyn PackedDecoder>, DeviceError> {
    Ok(Box::new(bridged::BridgedDecoder::load(device, source, config)?))
}

#[cfg(not(feature = "candle-transformers"))]
fn bridge(
    _: DeviceChoice,
    _: &(dyn WeightSource + Sync),
    config: &BridgedConfig,
) -> Result<Box<dyn PackedDecoder>, DeviceError> {
    Err(DeviceError::NoBridge { architecture: config.architecture.name })
}

#[cfg(test)]
mod tests {
    use miette::Diagnostic as _;

    use super::*;

    #[test]
    fn a_device_is_read_back_from_its_name() {
        for device in [
            DeviceChoice::Cpu,
            DeviceChoice::CandleCpu,
            DeviceChoice::Cuda(0),
            DeviceChoice::Cuda(3),
            DeviceChoice::Metal,
        ] {
            assert_eq!(device.to_string().parse::<DeviceChoice>().expect("known"), device);
        }
        assert_eq!("cuda".parse::<DeviceChoice>().expect("known"), DeviceChoice::Cuda(0));
        for name in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU", "metal:0"] {
            let error = name.parse::<DeviceChoice>().expect_err("unknown");
            assert_eq!(error.to_string(), format!("unknown device `{name}`"));
            assert_eq!(error.help().expect("a hint").to_string(), DeviceChoice::FORMS);
        }
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_device_that_the_build_lacks_says_how_to_build() {
        let error = DeviceChoice::Cuda(0).open().expect_err("not in this build");
        assert_eq!(error.to_string(), "this build cannot compute on cuda:0");
        let hint = error.help().expect("a hint").to_string();
        for part in [
            "cargo install --locked --path . --features cuda, ", "NVIDIA's CUDA toolkit; or scripts/gpu/build",
            "docs/devices.md", "\nthis build has: cpu, candle-cpu",
        ] {
            assert!(hint.contains(part), "{hint}");
        }
        assert!(!DeviceChoice::built().contains(&"cuda"));
    }
}
