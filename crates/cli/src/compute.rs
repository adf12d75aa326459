//! Loading the model that a command asks.

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
use probity_lm::{DEFAULT_MIN_MASS, LanguageModel, Precision};
use probity_runtime::hub::locate;
use probity_runtime::{DeviceChoice, LoadOptions, Model};
use serde::Serialize;
use serde_json::{Value, json};

use crate::progress::{Reporter, seconds_text};

/// Options of every command that asks a model.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// A known name (`probity model list`), a .gguf file, a folder with config.json and safetensors, or a hub name (org/name) that is in the
    /// local cache
    #[arg(long, value_name = "NAME|PATH")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) options: ModelOptions,
}

/// How a model computes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelOptions {
    /// The arithmetic in which quantised weights meet activations; recorded in every result
    #[arg(long, value_enum, default_value_t)]
    pub(crate) precision: PrecisionArg,
    /// Where to compute: cpu, cuda:N or metal where the build has them, or candle-cpu, which computes on the processor as those do; scores
    /// are the same bits from run to run on cpu alone, and every result's signature names the device
    #[arg(long, value_name = "DEVICE", default_value_t)]
    pub(crate) device: DeviceChoice,
    /// Threads to compute with; results do not depend on it [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Flag a verdict as `low_mass` where its labels are less probable than this under the full vocabulary
    #[arg(long, value_name = "P", default_value_t = DEFAULT_MIN_MASS, value_parser = probability)]
    pub(crate) min_mass: f64,
    /// Compute every prompt from scratch; slower, and the same results in exact precision
    #[arg(long)]
    pub(crate) no_sharing: bool,
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
    /// Activations are rounded to 8 bits (with bf16 weights to bf16), as llama.cpp does
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

fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

impl ModelArgs {
    /// Finds and loads the model, and says what it is.
    pub(crate) fn load(&self, reporter: &mut Reporter) -> anyhow::Result<Model> {
        self.options.load(&self.model, reporter)
    }
}

impl ModelOptions {
    /// Finds and loads a model, and says what it is.
    pub(crate) fn load(&self, name: &str, reporter: &mut Reporter) -> anyhow::Result<Model> {
        let started = std::time::Instant::now();
        let located = locate(name)?;
        let options = LoadOptions {
            precision: self.precision.into(),
            device: self.device,
            threads: self.threads.map(NonZeroUsize::get),
            min_mass: self.min_mass,
            share_prefixes: !self.no_sharing,
            ..LoadOptions::default()
        };
        let model = Model::load(&located, options)?;
        let about = model.description();
        reporter.say(&format!(
            "{}: {}, {}, {} precision on {}, loaded in {}",
            about.name,
            about.architecture,
            about.weights,
            about.precision.as_str(),
            about.device,
            seconds_text(started.elapsed().as_secs_f64())
        ));
        if let Some(error) = model.encoder().chat_error() {
            let why = error.to_string();
            reporter.warn(&format!("{}; it can be asked plain prompts only", why.split("\n\n").next().unwrap_or_default()));
        }
        Ok(model)
    }

    /// For the manifest.
    pub(crate) fn in_force(&self) -> Value {
        json!({
            "precision": self.precision,
            "device": self.device.to_string(),
            "threads": self.threads.or(std::thread::available_parallelism().ok()),
            "min_mass": self.min_mass,
            "share_prefixes": !self.no_sharing,
        })
    }
}
