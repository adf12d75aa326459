//! Loading the model that a command asks.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use probity_lm::{DEFAULT_MIN_MASS, LanguageModel, ModelDescription, Precision};
use probity_runtime::hub::{LocateError, Located, locate};
use probity_runtime::{DeviceChoice, Drafting, Isa, LoadOptions, Model};
use serde::Serialize;
use serde_json::{Value, json};

use crate::progress::{Reporter, seconds_text};
use crate::terminal::thousands;

/// Options of every command that asks a model.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// A known name (`probity model list`), a .gguf file, a folder with config.json and safetensors, or a hub name
    /// (org/name) that is in the local cache
    #[arg(long, value_name = "NAME|PATH")]
    pub(crate) model: String,
    /// A low-rank adapter (`LoRA`) to put into the model's weights: a folder with the files that PEFT writes; layers
    /// that it changes are held as 32-bit floats
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: ModelOptions,
}

/// How a model computes.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelOptions {
    /// The arithmetic in which quantised weights meet activations; recorded in every result
    #[arg(long, value_enum, default_value_t)]
    pub(crate) precision: PrecisionArg,
    /// Where to compute: cpu, cuda:N or metal where the build has them, or candle-cpu, which computes on the processor
    /// as those do; scores are the same bits from run to run on cpu alone, and every result's signature names the
    /// device
    #[arg(long, value_name = "DEVICE", default_value_t)]
    pub(crate) device: DeviceChoice,
    /// Threads to compute with; results do not depend on it [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Flag a verdict as `low_mass` where its labels are less probable than this under the full vocabulary
    #[arg(long, value_name = "P", default_value_t = DEFAULT_MIN_MASS, value_parser = probability)]
    pub(crate) min_mass: f64,
    /// Compute every prompt from scratch; slower, and the same results
    #[arg(long)]
    pub(crate) no_sharing: bool,
    /// Tokens that run through the model at once; results do not depend on it
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TOKEN_BUDGET)]
    pub(crate) token_budget: NonZeroUsize,
    /// Memory for keys and values, such as 2GiB; results do not depend on it, but a prompt that does not fit is
    /// `too_long` [default: half of the memory that is available when the model is loaded]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) cache_budget: Option<u64>,
    /// Where tokens of a text are guessed from before the model says them; results do not depend on it
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub(crate) draft: DraftArg,
    /// Texts that are written side by side, at most; results do not depend on it
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SIDE_BY_SIDE)]
    pub(crate) side_by_side: NonZeroUsize,
    /// The instruction set to compute with: plain, avx2, avx512, amx; results do not depend on it [default: the widest
    /// that the machine has]
    #[arg(long, value_name = "NAME", value_parser = isa)]
    pub(crate) isa: Option<Isa>,
}

/// The arithmetic of products with weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PrecisionArg {
    /// Weights are widened to 32-bit floats
    #[default]
    Exact,
    /// The fastest that this machine has: tiles or dots. Quicker, and probabilities differ visibly
    Fast,
    /// Activations are rounded to 8 bits (weights that are floats, and activations with them, to bf16), as llama.cpp
    /// does
    Dots,
    /// Weights and activations are rounded to bf16, for processors with AMX
    Tiles,
}

impl From<PrecisionArg> for Precision {
    fn from(precision: PrecisionArg) -> Self {
        match precision {
            PrecisionArg::Exact => Self::Exact,
            PrecisionArg::Fast => Self::Fast,
            PrecisionArg::Dots => Self::Dots,
            PrecisionArg::Tiles => Self::Tiles,
        }
    }
}

/// Guessing ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum DraftArg {
    /// What followed the last tokens where they stood before, in the prompt or the text: quick where texts copy
    #[default]
    Lookup,
    /// No guessing
    Off,
}

impl From<DraftArg> for Drafting {
    fn from(draft: DraftArg) -> Self {
        match draft {
            DraftArg::Lookup => Self::Lookup,
            DraftArg::Off => Self::Off,
        }
    }
}

const DEFAULT_TOKEN_BUDGET: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");
const MAX_THREADS: usize = 1024;
const DEFAULT_SIDE_BY_SIDE: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");

/// An instruction set by its name.
fn isa(text: &str) -> Result<Isa, String> {
    Isa::ALL
        .into_iter()
        .find(|isa| isa.name() == text)
        .ok_or_else(|| format!("expected one of {}", Isa::ALL.map(Isa::name).join(", ")))
}

/// A number of bytes: `512MiB`, `2GB`, `1.5GiB`, `1000000`.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "kib" => f64::from(1 << 10),
        "mib" => f64::from(1 << 20),
        "gib" => f64::from(1 << 30),
        _ => return Err("expected a unit such as MB, MiB, GB or GiB".to_owned()),
    };
    match digits.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok((number * unit) as u64),
        _ => Err("expected a size such as 2GiB".to_owned()),
    }
}

/// More threads than any machine has processors would wait for one another.
fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse::<NonZeroUsize>().ok().filter(|number| number.get() <= MAX_THREADS);
    number.ok_or_else(|| format!("expected a number from 1 to {MAX_THREADS}"))
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

impl ModelArgs {
    /// Finds and loads the model, and says what it is.
    pub(crate) fn load(&self, reporter: &mut Reporter) -> anyhow::Result<Model> {
        self.options.load_located(&self.located()?, reporter)
    }

    /// Finds the model.
    pub(crate) fn located(&self) -> Result<Located, LocateError> {
        Ok(locate(&self.model)?.with_adapter(self.adapter.clone()))
    }

    /// Whether a model that was loaded for `other` can be [run](Model::run_with) for this one.
    pub(crate) fn has_weights_of(&self, other: &Self) -> bool {
        let weights = |args: &Self| {
            (args.model.clone(), args.adapter.clone(), args.options.precision, args.options.device, args.options.isa)
        };
        weights(self) == weights(other)
    }
}

impl ModelOptions {
    /// The same for the runtime.
    pub(crate) fn load_options(&self) -> LoadOptions {
        LoadOptions {
            precision: self.precision.into(),
            device: self.device,
            threads: self.threads.map(NonZeroUsize::get),
            min_mass: self.min_mass,
            share_prefixes: !self.no_sharing,
            token_budget: self.token_budget.get(),
            cache_budget: self.cache_budget,
            drafting: self.draft.into(),
            side_by_side: self.side_by_side.get(),
            isa: self.isa,
            ..LoadOptions::default()
        }
    }

    /// Finds and loads a model, and says what it is.
    pub(crate) fn load(&self, name: &str, reporter: &mut Reporter) -> anyhow::Result<Model> {
        self.load_located(&locate(name)?, reporter)
    }

    fn load_located(&self, located: &Located, reporter: &mut Reporter) -> anyhow::Result<Model> {
        let started = Instant::now();
        let model = Model::load(located, self.load_options())?;
        reporter.watch(model.progress());
        let about = model.description();
        reporter.say(&loaded_text(about, started));
        if let Some(context) = about.context_length.filter(|context| model.token_limit() < *context) {
            reporter.warn(&format!(
                "there is room for the keys and values of {} tokens; longer prompts are too long, though the model \
                 could see {}",
                thousands(model.token_limit() as u64),
                thousands(context as u64)
            ));
        }
        if let Some(error) = model.encoder().chat_error() {
            let why = error.to_string();
            reporter
                .warn(&format!("{}; it can be asked plain prompts only", why.split("\n\n").next().unwrap_or_default()));
        }
        Ok(model)
    }
}

/// What was loaded, and how long it took.
pub(crate) fn loaded_text(about: &ModelDescription, started: Instant) -> String {
    let ModelDescription { name, adapter, architecture, weights, precision, device, .. } = about;
    let name = adapter.as_ref().map_or_else(|| name.clone(), |adapter| format!("{name} with {adapter}"));
    let (precision, seconds) = (precision.as_str(), seconds_text(started.elapsed().as_secs_f64()));
    format!("{name}: {architecture}, {weights}, {precision} precision on {device}, loaded in {seconds}")
}

/// How a model is run, for the manifest.
pub(crate) fn in_force(options: LoadOptions) -> Value {
    json!({
        "precision": options.precision_in_force(),
        "device": options.device.to_string(),
        "threads": options.threads,
        "min_mass": options.min_mass,
        "share_prefixes": options.share_prefixes,
        "token_budget": options.token_budget,
        "cache_budget": options.cache_budget,
        "drafting": options.drafting.as_str(),
        "side_by_side": options.side_by_side,
        "isa": options.isa.map(Isa::name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_nonsense_is_refused() {
        let known = [("1000", 1000), ("2GiB", 2 << 30), ("1.5 MiB", 3 << 19), ("3gb", 3_000_000_000), ("7B", 7)];
        assert!(known.iter().all(|(text, size)| bytes(text) == Ok(*size)));
        assert!(["", "GiB", "-1GiB", "2 GiBs", "1e400", "0"].iter().all(|text| bytes(text).is_err()));
    }

    #[test]
    fn the_default_is_that_of_the_runtime() {
        assert_eq!(DEFAULT_TOKEN_BUDGET.get(), LoadOptions::default().token_budget);
        assert_eq!(DEFAULT_SIDE_BY_SIDE.get(), LoadOptions::default().side_by_side);
    }
}
