//! Limits of a device, checked before work starts: kernels with 32-bit element counts, old cards, insufficient memory.

use candle_core::{Error, Result};

use super::{DeviceChoice, DeviceError};
use crate::stack_config::StackConfig;

/// Maximum number of elements of a device tensor: candle's kernels count them in 32 bits.
pub(super) const MOST_ELEMENTS: usize = i32::MAX as usize;

/// The lowest compute capability with bf16.
pub(super) const BF16_CAPABILITY: ComputeCapability = ComputeCapability { major: 8, minor: 0 };

/// Why a device cannot run a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum DeviceLimitError {
    /// Too many rows at once.
    #[error(
        "{rows} tokens at once need a tensor of {elements} elements, but the kernels of the device support \
         {MOST_ELEMENTS}"
    )]
    #[diagnostic(help("use --compute token-budget={most}"))]
    Rows {
        /// Rows of the batch.
        rows: usize,
        /// Elements of the largest tensor.
        elements: usize,
        /// Maximum number of rows.
        most: usize,
    },
    /// A text has too many positions.
    #[error("a text of {positions} positions is too long: the kernels of the device support {most}")]
    #[diagnostic(help("use --device cpu, or shorter prompts"))]
    Positions {
        /// Number of positions that a row sees.
        positions: usize,
        /// Maximum number of positions.
        most: usize,
    },
    /// The key cache is too large.
    #[error("keys and values of {positions} positions are too many: the kernels of the device support {most}")]
    #[diagnostic(help("use a smaller cache, such as --compute cache-budget=4GiB"))]
    Cache {
        /// Number of positions of all texts.
        positions: usize,
        /// Maximum number of positions.
        most: usize,
    },
    /// The device is out of memory.
    #[error("out of memory: {0}")]
    #[diagnostic(help(
        "use a smaller cache, such as --compute cache-budget=2GiB, or a smaller --compute token-budget; continue a run \
         with --resume"
    ))]
    Memory(String),
}

impl From<DeviceLimitError> for Error {
    fn from(error: DeviceLimitError) -> Self {
        // candle's only wrapper that preserves an error.
        Self::Cuda(Box::new(error))
    }
}

impl DeviceLimitError {
    /// Converts a candle error about a limit; returns any other error unchanged.
    pub fn from_candle(error: Error) -> std::result::Result<Self, Error> {
        // The following lines are candle's backtrace.
        let line = error.to_string().lines().next().unwrap_or_default().to_owned();
        match error {
            Error::Cuda(inner) if inner.is::<Self>() => inner.downcast().map(|limit| *limit).map_err(Error::Cuda),
            _ if is_memory(&line) => Ok(Self::Memory(line)),
            other => Err(other),
        }
    }
}

/// Whether this is an out-of-memory message of a driver or one of its libraries.
fn is_memory(line: &str) -> bool {
    ["CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED", "Failed to create metal resource"]
        .iter()
        .any(|words| line.contains(words))
}

/// Elements per row of the largest tensor.
fn widest(c: &StackConfig) -> usize {
    let distances = c.disentangled.as_ref().map_or(0, |of| c.num_heads * 2 * of.span);
    let inputs = c.layer_inputs.map_or(0, |width| width * c.layers.len());
    let chosen = c.experts.map_or(1, |experts| experts.chosen);
    (chosen * c.hidden_size.max(c.intermediate_size))
        .max(c.widest_feed_forward())
        .max(c.widest_queries())
        .max(distances)
        .max(inputs)
}

/// Checks that this many rows can run at once.
pub(super) fn check_rows(rows: usize, config: &StackConfig) -> Result<()> {
    let width = widest(config);
    let (elements, most) = (rows.saturating_mul(width), MOST_ELEMENTS / width.max(1));
    if rows > most { Err(DeviceLimitError::Rows { rows, elements, most }.into()) } else { Ok(()) }
}

/// Checks that a row can see this many positions.
pub(super) fn check_positions(positions: usize, config: &StackConfig) -> Result<()> {
    let most = MOST_ELEMENTS / config.num_heads.max(config.widest_keys()).max(1);
    if positions > most { Err(DeviceLimitError::Positions { positions, most }.into()) } else { Ok(()) }
}

/// Maximum number of positions in a key tensor with this many elements per position.
pub(super) fn most_positions(width: usize) -> usize {
    MOST_ELEMENTS / width.max(1)
}

/// Checks that the host has this much memory. Otherwise the system may kill the process without a message.
pub(super) fn check_host_memory(bytes: usize) -> Result<()> {
    let reserved = Vec::<u8>::new().try_reserve_exact(bytes);
    reserved.map_err(|_| DeviceLimitError::Memory(format!("cannot allocate {bytes} bytes for keys and values")).into())
}

/// Checks that one layer can hold keys with this many elements per position for this many positions.
pub(super) fn check_cache(positions: usize, width: usize) -> Result<()> {
    let most = most_positions(width);
    if positions > most { Err(DeviceLimitError::Cache { positions, most }.into()) } else { Ok(()) }
}

/// A CUDA compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

impl std::fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl ComputeCapability {
    /// Parses the value of the build's environment variable: `80`, `90a`, `120`.
    fn read(variable: &str) -> Option<Self> {
        let digits = variable.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u32 = digits.parse().ok()?;
        Some(Self { major: number / 10, minor: number % 10 })
    }

    /// The capability that this build's kernels need; `None` if the build targeted the build machine's card.
    pub(super) fn of_this_build() -> Option<Self> {
        option_env!("CUDA_COMPUTE_CAP").and_then(Self::read)
    }
}

/// Checks that a card can run kernels for this capability, and bf16 unless `exact`.
pub(super) fn check_capability(
    device: DeviceChoice,
    card: ComputeCapability,
    kernels: Option<ComputeCapability>,
    exact: bool,
) -> std::result::Result<(), DeviceError> {
    if let Some(needed) = kernels.filter(|needed| card < *needed) {
        return Err(DeviceError::OldCard { device, card, needed });
    }
    if !exact && card < BF16_CAPABILITY {
        return Err(DeviceError::NoBf16 { device, card, needed: BF16_CAPABILITY });
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::stack_config::StackSizes;

    const DEVICE: DeviceChoice = DeviceChoice::Cuda(0);

    fn capability(major: u32, minor: u32) -> ComputeCapability {
        ComputeCapability { major, minor }
    }

    fn message_and_help(error: &impl miette::Diagnostic) -> (String, String) {
        (error.to_string(), error.help().map(|help| help.to_string()).unwrap_or_default())
    }

    #[test]
    fn old_cards_are_refused_with_what_to_do() {
        let kernels = Some(capability(8, 0));
        for (card, exact) in [(capability(8, 0), true), (capability(8, 6), false), (capability(12, 0), false)] {
            check_capability(DEVICE, card, kernels, exact).expect("runs");
        }
        // A build for the build machine's own card: the kernels' capability is unknown.
        check_capability(DEVICE, capability(7, 5), None, true).expect("runs");
        let error = check_capability(DEVICE, capability(7, 5), kernels, true).expect_err("old");
        let (message, help) = message_and_help(&error);
        assert_eq!(message, "cuda:0 has compute capability 7.5, but this program's kernels need 8.0");
        assert!(help.starts_with("build kernels for it with CUDA_COMPUTE_CAP=75 scripts/gpu/build"), "{help}");
        let error = check_capability(DEVICE, capability(7, 0), Some(capability(7, 0)), false).expect_err("no bf16");
        let (message, help) = message_and_help(&error);
        assert_eq!(
            message,
            "cuda:0 has compute capability 7.0, but --precision fast computes in bf16, which needs 8.0"
        );
        assert!(help.starts_with("use --precision exact"), "{help}");
    }

    #[test]
    fn what_32_bits_do_not_count_is_refused_by_name() {
        let limit = |checked: Result<()>| {
            message_and_help(&DeviceLimitError::from_candle(checked.expect_err("too many")).expect("a limit"))
        };
        // A llama of 8B: 14,336 between two products, 32 heads, 8 key heads of 128.
        let sizes = StackSizes { hidden_size: 4096, intermediate_size: 14_336, num_layers: 32, num_heads: 32 };
        let names = &crate::gemma2::HUGGINGFACE;
        let llama = StackConfig {
            num_kv_heads: 8,
            ..StackConfig::post_norm(sizes, probity_kernels::Activation::Silu, 1e-5, names)
        };
        check_rows(149_796, &llama).expect("fit");
        let (message, help) = limit(check_rows(149_797, &llama));
        assert_eq!(help, "use --compute token-budget=149796");
        assert!(message.starts_with("149797 tokens at once need a tensor of 2147489792 elements"), "{message}");
        check_positions(2_097_151, &llama).expect("fit");
        let (message, _) = limit(check_positions(2_097_152, &llama));
        assert_eq!(message, "a text of 2097152 positions is too long: the kernels of the device support 2097151");
        let (message, help) = limit(check_cache(2_097_152, 8 * 128));
        assert!(message.starts_with("keys and values of 2097152 positions") && help.contains("--compute cache-budget"));
        // Each row goes through as many experts as it chooses.
        let experts = Some(crate::ExpertChoice::softmax(8, 2, true));
        let mixtral = StackConfig { experts, ..llama };
        check_rows(74_898, &mixtral).expect("fit");
        assert!(check_rows(74_899, &mixtral).is_err());
    }

    #[test]
    fn memory_that_the_host_does_not_have_is_an_error() {
        check_host_memory(1 << 20).expect("a megabyte");
        let (message, help) = message_and_help(
            &DeviceLimitError::from_candle(check_host_memory(usize::MAX / 4).expect_err("none")).expect("memory"),
        );
        assert!(message.starts_with("out of memory: ") && help.contains("--resume"), "{message} {help}");
    }

    #[test]
    fn a_capability_is_read_as_builds_write_it() {
        for (variable, expected) in [("80", (8, 0)), ("75", (7, 5)), ("90a", (9, 0)), ("120", (12, 0))] {
            assert_eq!(ComputeCapability::read(variable), Some(capability(expected.0, expected.1)));
        }
        assert_eq!(ComputeCapability::read("native"), None);
    }

    #[test]
    fn errors_of_memory_say_what_to_type() {
        let driver = Error::Msg("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")\n   0: somewhere".to_owned());
        let limit = DeviceLimitError::from_candle(driver).expect("memory");
        let (message, help) = message_and_help(&limit);
        assert_eq!(message, "out of memory: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")");
        assert!(help.contains("--compute cache-budget") && help.contains("--resume"), "{help}");
        // A limit error is converted back unchanged.
        let cache = DeviceLimitError::Cache { positions: 2, most: 1 };
        assert_eq!(DeviceLimitError::from_candle(cache.clone().into()).expect("a limit"), cache);
        assert!(
            DeviceLimitError::from_candle(Error::Msg("DriverError(CUDA_ERROR_ILLEGAL_ADDRESS)".to_owned())).is_err()
        );
    }
}
