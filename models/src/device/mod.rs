//! Devices besides our kernels' CPU: which there are, and a model loaded on one over candle's own operations.

mod attention;
mod decoder;
#[cfg(feature = "flash-attn")]
mod flash;
mod layer;

use std::fmt;
use std::str::FromStr;

use candle_core::Device;

use crate::packed::PackedDecoder;
use crate::{Compute, DecoderConfig, SourceError, WeightSource, load_decoder};
use decoder::DeviceDecoder;
use layer::DeviceLoadError;

/// Where a model computes.
///
/// Results have bits that never change on [`Cpu`](Self::Cpu) alone. Elsewhere they are what candle's operations give,
/// which may depend on what else is in a batch and on how a past is cut into spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceChoice {
    /// The CPU, by our own kernels.
    #[default]
    Cpu,
    /// The CPU, by the operations that the other devices use: a second opinion on what those would say.
    CandleCpu,
    /// The CUDA device of that number.
    Cuda(usize),
    /// The system's Metal device.
    Metal,
}

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum DeviceError {
    /// No device is called that.
    #[error("device `{0}` is not known")]
    #[diagnostic(help("{}", DeviceChoice::FORMS))]
    Unknown(String),
    /// The build has no support for it.
    #[error("this build cannot compute on {device}")]
    #[diagnostic(help("cargo install --path . --features {feature}"))]
    NotBuilt {
        /// The device.
        device: DeviceChoice,
        /// The feature that brings support.
        feature: &'static str,
    },
    /// The machine has no such device, or it does not work.
    #[error("{device} cannot be used: {source}")]
    #[diagnostic(help("--device cpu computes on the processor"))]
    Unavailable {
        /// The device.
        device: DeviceChoice,
        /// What candle says.
        source: candle_core::Error,
    },
    /// The weights could not be put there.
    #[error("the weights cannot be put on {device}: {source}")]
    #[diagnostic(help("there they are 4 bytes each, 2 with --precision fast; --device cpu keeps them as they are"))]
    Weights {
        /// The device.
        device: DeviceChoice,
        /// What candle says.
        source: candle_core::Error,
    },
    /// A tensor of the checkpoint is missing or has another shape.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tensor(#[from] SourceError),
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

    /// What [`Display`](fmt::Display) writes; `cuda` is `cuda:0`.
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
    /// How devices are written, for hints.
    pub const FORMS: &'static str = "devices are cpu, cuda:N (N from 0), metal and candle-cpu";

    /// Whether this build and this machine have it; the error says what is missing.
    pub fn check(self) -> Result<(), DeviceError> {
        self.open().map(drop)
    }

    /// Candle's handle of the device.
    fn open(self) -> Result<Device, DeviceError> {
        let opened = match self {
            Self::Cpu | Self::CandleCpu => Ok(Device::Cpu),
            // Asked before candle is: it would say that a device is missing where it is the build that lacks support.
            Self::Cuda(_) if !cfg!(feature = "cuda") => {
                return Err(DeviceError::NotBuilt { device: self, feature: "cuda" });
            }
            Self::Metal if !cfg!(feature = "metal") => {
                return Err(DeviceError::NotBuilt { device: self, feature: "metal" });
            }
            Self::Cuda(index) => Device::new_cuda(index),
            Self::Metal => Device::new_metal(0),
        };
        opened.map_err(|source| DeviceError::Unavailable { device: self, source })
    }
}

/// Loads a decoder on any device.
///
/// On [`DeviceChoice::Cpu`] this is [`load_decoder`]. Elsewhere weights are dequantised once: to f32, in which
/// [exact](crate::Arithmetic::Exact) arithmetic computes throughout; else to bf16, in which activations and the cache
/// are kept too, while rotation, softmax and logits are f32.
pub fn load_decoder_on(
    device: DeviceChoice,
    source: &dyn WeightSource,
    config: DecoderConfig,
    compute: impl Into<Compute>,
) -> Result<Box<dyn PackedDecoder>, DeviceError> {
    let compute = compute.into();
    if device == DeviceChoice::Cpu {
        return Ok(load_decoder(source, config, compute)?);
    }
    let opened = device.open()?;
    match DeviceDecoder::load(source, config, compute.arithmetic, opened) {
        Ok(decoder) => Ok(Box::new(decoder)),
        Err(DeviceLoadError::Source(error)) => Err(DeviceError::Tensor(error)),
        Err(DeviceLoadError::Device(source)) => Err(DeviceError::Weights { device, source }),
    }
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
            assert_eq!(error.to_string(), format!("device `{name}` is not known"));
            assert_eq!(error.help().expect("a hint").to_string(), DeviceChoice::FORMS);
        }
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_device_that_the_build_lacks_says_how_to_build() {
        let error = DeviceChoice::Cuda(0).open().expect_err("not in this build");
        assert_eq!(error.to_string(), "this build cannot compute on cuda:0");
        assert_eq!(error.help().expect("a hint").to_string(), "cargo install --path . --features cuda");
    }
}
