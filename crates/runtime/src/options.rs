//! How models are loaded and run.

use probity_kernels::Isa;
use probity_lm::Precision;
use probity_models::{Arithmetic, DeviceChoice, DeviceList, DeviceListError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoint::LoadError;

/// Memory for keys and values that outlive their work list, so that one whose prompts begin alike goes on from there. No
/// result depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeptPrefixBytes {
    /// None.
    #[default]
    None,
    /// A third of [`LoadOptions::cache_budget`], which leaves two for work lists.
    Third,
    /// So much beside it.
    Bytes(u64),
}

/// How a model is loaded and run. Only `precision`, the kind of `devices`, and `min_mass` change results.
///
/// Off [`DeviceChoice::Cpu`], what runs together may change their last bits too.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// The arithmetic of quantised weights.
    pub precision: Precision,
    /// Where the model computes: copies of it, among which work is divided, each on one device or its layers on several.
    pub devices: DeviceList,
    /// The instruction set; the widest that the machine has where absent. Weights are packed for it when they are
    /// loaded.
    pub isa: Option<Isa>,
    /// Threads, which the devices divide among them; all cores where absent.
    pub threads: Option<usize>,
    /// Label mass below which an answer is flagged.
    pub min_mass: f64,
    /// Whether prompts' shared beginnings are computed once.
    pub share_prefixes: bool,
    /// Tokens that run through the model at once. Where absent 1,024 on the processor; on CUDA and Metal as many, by
    /// doubling up to 8,192, as have activations in a tenth of what weights leave free.
    pub token_budget: Option<usize>,
    /// Bytes of keys and values that are held at once on each device. Where absent half of the memory that is free after
    /// loading and is not needed for activations; 4 GiB where nobody says what is free. Where there is little, more of the work runs one prompt
    /// after another; a prompt for which there is not enough by itself is [too long](probity_lm::Outcome::TooLong).
    pub cache_budget: Option<u64>,
    /// Bytes of keys and values, besides, that are kept when a work list is done: a list that begins like one before
    /// goes on from there. A model with an encoder keeps none.
    pub kept_prefixes: KeptPrefixBytes,
    /// Whether tokens of texts are guessed ahead.
    pub drafting: Drafting,
    /// Texts that are written side by side, at most. With more than the default, products gain nothing and first
    /// results only come later.
    pub side_by_side: usize,
    /// Tokens of requests that are held at once: a longer work list runs in windows of one to two times as many, cut
    /// where neighbouring prompts have least in common.
    pub window_tokens: usize,
}

/// Where tokens of a text are guessed from before the model says them. A guess is put to the model with the token
/// before it and kept where the model says the same, so a text does not depend on it.
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
            // An article with its 240 comparisons has some 150,000 tokens: a window holds a dozen of such groups and
            // more.
            window_tokens: 2 << 20,
        }
    }
}

impl LoadOptions {
    /// The instruction set to compute with, or why this machine or build cannot run a model so: all that can be told
    /// without one.
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

    /// What computes on the devices, each kind of card once.
    pub(crate) fn platform(&self) -> Option<String> {
        let mut platforms: Vec<String> = self.devices.devices().filter_map(DeviceChoice::platform).collect();
        platforms.dedup();
        (!platforms.is_empty()).then(|| platforms.join("; "))
    }

    /// The arithmetic of our kernels.
    pub(crate) fn arithmetic(&self) -> Arithmetic {
        match self.precision {
            Precision::Exact => Arithmetic::Exact,
            Precision::Fast => Arithmetic::fastest(),
            Precision::Dots => Arithmetic::Dots,
            Precision::Tiles => Arithmetic::Tiles,
        }
    }

    /// The arithmetic that they mean on this machine: never [`Precision::Fast`] on the CPU.
    pub fn precision_in_force(&self) -> Precision {
        let on_cpu = self.devices.first() == DeviceChoice::Cpu;
        match (self.precision, Arithmetic::fastest()) {
            (Precision::Fast, Arithmetic::Tiles) if on_cpu => Precision::Tiles,
            (Precision::Fast, _) if on_cpu => Precision::Dots,
            (precision, _) => precision,
        }
    }
}

/// The instruction set to use.
fn available(wanted: Option<Isa>) -> Result<Isa, LoadError> {
    let isa = wanted.unwrap_or_else(Isa::best);
    if isa.is_available() {
        return Ok(isa);
    }
    let has: Vec<&str> = Isa::ALL.into_iter().filter(|isa| isa.is_available()).map(Isa::name).collect();
    Err(LoadError::Isa { wanted: isa.name(), has: has.join(", ") })
}
