//! Options for loading and running models.

use probity_kernels::Isa;
use probity_lm::Precision;
use probity_models::{Arithmetic, DeviceChoice, DeviceList, DeviceListError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoint::LoadError;

/// Memory for the prefix cache across work lists. Does not affect results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeptPrefixBytes {
    /// No cache.
    #[default]
    None,
    /// A third of [`LoadOptions::cache_budget`], which leaves two thirds for work lists.
    Third,
    /// This many bytes in addition to the cache budget.
    Bytes(u64),
}

/// Options for loading and running a model. Only `precision`, the kind of `devices`, and `min_mass` change results.
///
/// On devices other than [`DeviceChoice::Cpu`], batching can also change the last bits.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// Arithmetic for quantised weights.
    pub precision: Precision,
    /// Devices: copies of the model that divide the work, each on one device or with its layers on several.
    pub devices: DeviceList,
    /// Instruction set; by default the widest that the machine supports. Weights are packed for it when loaded.
    pub isa: Option<Isa>,
    /// Number of threads, divided among the devices; by default one per core.
    pub threads: Option<usize>,
    /// Label mass below which an answer is flagged.
    pub min_mass: f64,
    /// Whether shared prefixes are computed once.
    pub share_prefixes: bool,
    /// Tokens per batch. Default: 1,024 on the CPU. On CUDA and Metal, the most (by doubling, up to 8,192) whose
    /// activations take a tenth of the memory that weights leave free.
    pub token_budget: Option<usize>,
    /// Maximum bytes of keys and values per device. Default: half of the memory that is free after loading and not
    /// needed for activations, or 4 GiB if unknown. With a small budget, more prompts run one after another. A prompt
    /// that does not fit alone is [too long](probity_lm::Outcome::TooLong).
    pub cache_budget: Option<u64>,
    /// Prefix cache across work lists, in addition: a list with the same prefix as an earlier one reuses its keys and
    /// values. Not used for a model with an encoder.
    pub kept_prefixes: KeptPrefixBytes,
    /// Whether texts use draft tokens.
    pub drafting: Drafting,
    /// Maximum number of texts generated together. Above the default, throughput no longer improves and first results
    /// come later.
    pub side_by_side: usize,
    /// Window size in tokens. A longer work list runs in windows of one to two times as many tokens, split where
    /// neighbouring prompts share the least.
    pub window_tokens: usize,
}

/// Source of draft tokens. The model verifies drafts and keeps those that it would generate, so the text does not
/// change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Drafting {
    /// Draft what followed the last tokens earlier in the prompt or the text; fast for texts that copy.
    #[default]
    Lookup,
    /// No drafting.
    Off,
}

impl Drafting {
    /// `off` or `lookup`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Lookup => "lookup",
        }
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            precision: Precision::Exact,
            devices: DeviceList::default(),
            isa: None,
            threads: None,
            min_mass: probity_lm::DEFAULT_MIN_MASS,
            share_prefixes: true,
            token_budget: None,
            cache_budget: None,
            kept_prefixes: KeptPrefixBytes::None,
            drafting: Drafting::default(),
            side_by_side: 128,
            // An article with its 240 comparisons has about 150,000 tokens, so a window holds a dozen or more of them.
            window_tokens: 2 << 20,
        }
    }
}

impl LoadOptions {
    /// The instruction set to use, or an error if this machine or build does not support the options, as far as known
    /// without a model.
    pub(crate) fn check(&self) -> Result<Isa, LoadError> {
        let device = self.devices.first();
        if device != DeviceChoice::Cpu && matches!(self.precision, Precision::Dots | Precision::Tiles) {
            return Err(LoadError::Precision { device, precision: self.precision });
        }
        self.devices.check()?;
        let cards = self.devices.devices().try_for_each(|device| device.check_arithmetic(self.arithmetic()));
        cards.map_err(DeviceListError::from)?;
        available(self.isa)
    }

    /// Hardware and driver of the devices, each kind once.
    pub(crate) fn platform(&self) -> Option<String> {
        let mut platforms: Vec<String> = self.devices.devices().filter_map(DeviceChoice::platform).collect();
        platforms.dedup();
        (!platforms.is_empty()).then(|| platforms.join("; "))
    }

    /// The arithmetic for our kernels.
    pub(crate) fn arithmetic(&self) -> Arithmetic {
        match self.precision {
            Precision::Exact => Arithmetic::Exact,
            Precision::Fast => Arithmetic::fastest(),
            Precision::Dots => Arithmetic::Dots,
            Precision::Tiles => Arithmetic::Tiles,
        }
    }

    /// The effective precision on this machine: never [`Precision::Fast`] on the CPU.
    pub fn precision_in_force(&self) -> Precision {
        let on_cpu = self.devices.first() == DeviceChoice::Cpu;
        match (self.precision, Arithmetic::fastest()) {
            (Precision::Fast, Arithmetic::Tiles) if on_cpu => Precision::Tiles,
            (Precision::Fast, _) if on_cpu => Precision::Dots,
            (precision, _) => precision,
        }
    }
}

/// The instruction set to use, checked to be available.
fn available(wanted: Option<Isa>) -> Result<Isa, LoadError> {
    let isa = wanted.unwrap_or_else(Isa::best);
    if isa.is_available() {
        return Ok(isa);
    }
    let has: Vec<&str> = Isa::ALL.into_iter().filter(|isa| isa.is_available()).map(Isa::name).collect();
    Err(LoadError::Isa { wanted: isa.name(), has: has.join(", ") })
}
