//! Description of a device's platform for records: the card, and the versions of driver and libraries.

use super::DeviceChoice;
use super::limits::ComputeCapability;

/// The library that runs the operations, as in signatures.
const CANDLE: &str = "candle 0.11.1";

impl DeviceChoice {
    /// The platform: `NVIDIA H100 80GB HBM3 (compute capability 9.0), driver 580.65.06, CUDA 13.0, cuBLAS 13.1.0,
    /// candle 0.11.1`. `None` on [`Cpu`](Self::Cpu), which uses only this program. Properties that the driver does not
    /// report are omitted.
    pub fn platform(self) -> Option<String> {
        let library = match self {
            Self::Cpu => return None,
            Self::CandleCpu => Vec::new(),
            Self::Cuda(index) => cuda::platform(index),
            Self::Metal => metal_name().into_iter().collect(),
        };
        Some(library.into_iter().chain([CANDLE.to_owned()]).collect::<Vec<_>>().join(", "))
    }

    /// The compute capability of a CUDA device; `None` for other devices or if it is unknown.
    pub fn compute_capability(self) -> Option<ComputeCapability> {
        match self {
            Self::Cuda(index) => cuda::capability(index),
            Self::Cpu | Self::CandleCpu | Self::Metal => None,
        }
    }
}

/// The version in the first line of the NVIDIA kernel module's version file.
#[cfg(any(feature = "cuda", test))]
fn driver_version(said: &str) -> Option<&str> {
    let words = said.lines().next()?.split_whitespace();
    words.skip_while(|word| *word != "Module").find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::ffi::c_int;

    use candle_core::cuda_backend::cudarc::cublas::sys::{cublasGetProperty, libraryPropertyType_t};
    use candle_core::cuda_backend::cudarc::driver::CudaContext;
    use candle_core::cuda_backend::cudarc::driver::sys::cuDriverGetVersion;

    use super::{ComputeCapability, driver_version};

    pub(super) fn capability(index: usize) -> Option<ComputeCapability> {
        let (major, minor) = CudaContext::new(index).ok()?.compute_capability().ok()?;
        Some(ComputeCapability { major: major.try_into().ok()?, minor: minor.try_into().ok()? })
    }

    pub(super) fn platform(index: usize) -> Vec<String> {
        let name = CudaContext::new(index).ok().and_then(|context| context.name().ok());
        let capability = capability(index).map(|capability| format!(" (compute capability {capability})"));
        let said = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        [
            name.map(|name| name + &capability.unwrap_or_default()),
            driver_version(&said).map(|version| format!("driver {version}")),
            cuda_version().map(|(major, minor)| format!("CUDA {major}.{minor}")),
            cublas_version().map(|[major, minor, patch]| format!("cuBLAS {major}.{minor}.{patch}")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The newest CUDA version that the driver supports.
    fn cuda_version() -> Option<(c_int, c_int)> {
        let mut version = 0;
        // SAFETY: it writes one number to the given pointer, and needs no context.
        unsafe { cuDriverGetVersion(&raw mut version) }.result().ok()?;
        Some((version / 1000, version % 1000 / 10))
    }

    fn cublas_version() -> Option<[c_int; 3]> {
        use libraryPropertyType_t::{MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
        let mut version = [0; 3];
        for (of, number) in [MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL].into_iter().zip(&mut version) {
            // SAFETY: it writes one number to the given pointer, and needs no handle.
            unsafe { cublasGetProperty(of, std::ptr::from_mut(number)) }.result().ok()?;
        }
        Some(version)
    }
}

#[cfg(not(feature = "cuda"))]
mod cuda {
    use super::ComputeCapability;

    pub(super) fn capability(_: usize) -> Option<ComputeCapability> {
        None
    }

    pub(super) fn platform(_: usize) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(feature = "metal")]
fn metal_name() -> Option<String> {
    let device = candle_core::Device::new_metal(0).ok()?;
    Some(device.as_metal_device().ok()?.metal_device().architecture_name())
}

#[cfg(not(feature = "metal"))]
fn metal_name() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_in_signatures_is_the_one_that_is_built() {
        let version = CANDLE.strip_prefix("candle ").expect("a name and a version");
        let lock = include_str!("../../../Cargo.lock").replace("\r\n", "\n");
        assert!(lock.contains(&format!("name = \"candle-core\"\nversion = \"{version}\"\n")));
        assert_eq!(DeviceChoice::CandleCpu.platform().as_deref(), Some(CANDLE));
        assert_eq!(DeviceChoice::Cpu.platform(), None);
    }

    #[test]
    fn a_driver_says_its_version() {
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root@host)\nGCC 12\n";
        assert_eq!(driver_version(open), Some("580.65.06"));
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n";
        assert_eq!(driver_version(closed), Some("535.104.05"));
        assert_eq!(driver_version(""), None);
    }
}
