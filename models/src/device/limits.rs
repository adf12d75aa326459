//! What a device cannot do, found before anything is started there: kernels that count elements in 32 bits, cards that are
//! too old, memory that is not there.

use candle_core::{Error, Result};

use super::{DeviceChoice, DeviceError};
use crate::stack_config::StackConfig;

/// Elements that a tensor of a device may have: candle's kernels count them in 32 bits.
pub(super) const MOST_ELEMENTS: usize = i32::MAX as usize;

/// The compute capability from which on there is bf16.
pub(super) const BF16_CAPABILITY: ComputeCapability = ComputeCapability { major: 8, minor: 0 };

/// Why a device cannot compute a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum DeviceLimitError {
    /// Too many rows at once.
    #[error(
        "{rows} tokens at once make a tensor of {elements} elements, and kernels there count up to {MOST_ELEMENTS}"
    )]
    #[diagnostic(help("--compute token-budget={most}"))]
    Rows {
        /// Rows of the batch.
        rows: usize,
        /// Elements of its largest tensor.
        elements: usize,
        /// As many rows as it may have.
        most: usize,
    },
    /// A text of too many positions.
    #[error("a text of {positions} positions is too long there: kernels count up to {most}")]
    #[diagnostic(help("--device cpu, or shorter prompts"))]
    Positions {
        /// Positions that a row sees.
        positions: usize,
        /// As many as it may.
        most: usize,
    },
    /// Too many keys.
    #[error("keys and values of {positions} positions are too many there: kernels count up to {most}")]
    #[diagnostic(help("a smaller cache, such as --compute cache-budget=4GiB"))]
    Cache {
        /// Positions of all texts together.
        positions: usize,
        /// As many as there may be.
        most: usize,
    },
    /// The device gave no memory.
    #[error("out of memory: {0}")]
    #[diagnostic(help(
        "a smaller cache, such as --compute cache-budget=2GiB, or a smaller --compute token-budget needs less; with \
         --resume a run goes on from what it has"
    ))]
    Memory(String),
}

impl From<DeviceLimitError> for Error {
    fn from(error: DeviceLimitError) -> Self {
        // The one wrapper of candle's that keeps an error as it is.
        Self::Cuda(Box::new(error))
    }
}

impl DeviceLimitError {
    /// What an error of candle's says about a limit; the error where it says nothing.
    pub fn of(error: Error) -> std::result::Result<Self, Error> {
        // Where it happened in candle's code follows in lines of its own.
        let line = error.to_string().lines().next().unwrap_or_default().to_owned();
        match error {
            Error::Cuda(inner) if inner.is::<Self>() => inner.downcast().map(|limit| *limit).map_err(Error::Cuda),
            _ if is_memory(&line) => Ok(Self::Memory(line)),
            other => Err(other),
        }
    }
}

/// Whether these are words of a driver, or of a library of its, that has no memory left.
fn is_memory(line: &str) -> bool {
    ["CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED", "Failed to create metal resource"]
        .iter()
        .any(|words| line.contains(words))
}

/// Elements of the largest tensor that a row of a batch has a share in.
fn widest(c: &StackConfig) -> usize {
    let distances = c.disentangled.as_ref().map_or(0, |of| c.num_heads * 2 * of.span);
    let chosen = c.experts.map_or(1, |experts| experts.chosen);
    (chosen * c.hidden_size.max(c.intermediate_size)).max(c.num_heads * c.head_dim).max(distances)
}

/// Whether so many rows can run at once.
pub(super) fn check_rows(rows: usize, config: &StackConfig) -> Result<()> {
    let width = widest(config);
    let (elements, most) = (rows.saturating_mul(width), MOST_ELEMENTS / width.max(1));
    if rows > most { Err(DeviceLimitError::Rows { rows, elements, most }.into()) } else { Ok(()) }
}

/// Whether a row can see so many positions.
pub(super) fn check_positions(positions: usize, config: &StackConfig) -> Result<()> {
    let most = MOST_ELEMENTS / config.num_heads.max(config.num_kv_heads * config.head_dim).max(1);
    if positions > most { Err(DeviceLimitError::Positions { positions, most }.into()) } else { Ok(()) }
}

/// Positions that a tensor can have keys of, of so many heads and their length.
pub(super) fn most_positions((heads, head_dim): (usize, usize)) -> usize {
    MOST_ELEMENTS / (heads * head_dim).max(1)
}

/// Whether the host has so many bytes; it would end the program that takes them without a word.
pub(super) fn check_host_memory(bytes: usize) -> Result<()> {
    let reserved = Vec::<u8>::new().try_reserve_exact(bytes);
    reserved.map_err(|_| DeviceLimitError::Memory(format!("{bytes} bytes for keys and values cannot be had")).into())
}

/// Whether there can be keys, of so many heads and their length, of so many positions in one layer.
pub(super) fn check_cache(positions: usize, (heads, head_dim): (usize, usize)) -> Result<()> {
    let most = most_positions((heads, head_dim));
    if positions > most { Err(DeviceLimitError::Cache { positions, most }.into()) } else { Ok(()) }
}

/// What a CUDA device can do, as NVIDIA numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    /// The generation.
    pub major: u32,
    /// A step within it.
    pub minor: u32,
}

impl std::fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl ComputeCapability {
    /// That which kernels are built for, as its variable has it: `80`, `90a`, `120`.
    fn read(variable: &str) -> Option<Self> {
        let digits = variable.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u32 = digits.parse().ok()?;
        Some(Self { major: number / 10, minor: number % 10 })
    }

    /// That which this build's kernels need; unknown where the build took that of the machine's own card.
    pub(super) fn of_kernels() -> Option<Self> {
        option_env!("CUDA_COMPUTE_CAP").and_then(Self::read)
    }
}

/// Whether a card can run kernels that need so much, with bf16 where it is not `exact`.
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

    fn told(error: &impl miette::Diagnostic) -> (String, String) {
        (error.to_string(), error.help().map(|help| help.to_string()).unwrap_or_default())
    }

    #[test]
    fn old_cards_are_refused_with_what_to_do() {
        let kernels = Some(capability(8, 0));
        for (card, exact) in [(capability(8, 0), true), (capability(8, 6), false), (capability(12, 0), false)] {
            check_capability(DEVICE, card, kernels, exact).expect("runs");
        }
        // On the machine where it was built, nothing is known about the kernels.
        check_capability(DEVICE, capability(7, 5), None, true).expect("runs");
        let error = check_capability(DEVICE, capability(7, 5), kernels, true).expect_err("old");
        let (message, help) = told(&error);
        assert_eq!(message, "cuda:0 has compute capability 7.5, and this program's kernels need 8.0");
        assert!(help.starts_with("CUDA_COMPUTE_CAP=75 scripts/gpu/build"), "{help}");
        let error = check_capability(DEVICE, capability(7, 0), Some(capability(7, 0)), false).expect_err("no bf16");
        let (message, help) = told(&error);
        assert_eq!(
            message,
            "cuda:0 has compute capability 7.0, and --precision fast computes in bf16, which needs 8.0"
        );
        assert!(help.starts_with("--precision exact"), "{help}");
    }

    #[test]
    fn what_32_bits_do_not_count_is_refused_by_name() {
        let limit = |checked: Result<()>| told(&DeviceLimitError::of(checked.expect_err("too many")).expect("a limit"));
        // A llama of 8B: 14,336 between two products, 32 heads, 8 key heads of 128.
        let sizes = StackSizes { hidden_size: 4096, intermediate_size: 14_336, num_layers: 32, num_heads: 32 };
        let names = &crate::gemma2::HUGGINGFACE;
        let llama = StackConfig {
            num_kv_heads: 8,
            ..StackConfig::post_norm(sizes, probity_kernels::Activation::Silu, 1e-5, names)
        };
        check_rows(149_796, &llama).expect("fit");
        let (message, help) = limit(check_rows(149_797, &llama));
        assert_eq!(help, "--compute token-budget=149796");
        assert!(message.starts_with("149797 tokens at once make a tensor of 2147489792 elements"), "{message}");
        check_positions(2_097_151, &llama).expect("fit");
        let (message, _) = limit(check_positions(2_097_152, &llama));
        assert_eq!(message, "a text of 2097152 positions is too long there: kernels count up to 2097151");
        let (message, help) = limit(check_cache(2_097_152, (8, 128)));
        assert!(message.starts_with("keys and values of 2097152 positions") && help.contains("--compute cache-budget"));
        // Each row goes through as many experts as it chooses.
        let experts = Some(crate::ExpertChoice { count: 8, chosen: 2, normalised: true });
        let mixtral = StackConfig { experts, ..llama };
        check_rows(74_898, &mixtral).expect("fit");
        assert!(check_rows(74_899, &mixtral).is_err());
    }

    #[test]
    fn memory_that_the_host_does_not_have_is_an_error() {
        check_host_memory(1 << 20).expect("a megabyte");
        let (message, help) =
            told(&DeviceLimitError::of(check_host_memory(usize::MAX / 4).expect_err("none")).expect("memory"));
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
        let limit = DeviceLimitError::of(driver).expect("memory");
        let (message, help) = told(&limit);
        assert_eq!(message, "out of memory: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")");
        assert!(help.contains("--compute cache-budget") && help.contains("--resume"), "{help}");
        // What came as a limit comes back as it is.
        let cache = DeviceLimitError::Cache { positions: 2, most: 1 };
        assert_eq!(DeviceLimitError::of(cache.clone().into()).expect("a limit"), cache);
        assert!(DeviceLimitError::of(Error::Msg("DriverError(CUDA_ERROR_ILLEGAL_ADDRESS)".to_owned())).is_err());
    }
}
