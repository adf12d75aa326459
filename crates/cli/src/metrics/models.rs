//! The models that metrics are made with.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use probity_lm::TextEncoder;
use probity_metrics::{Choice, Models, Need};
use probity_runtime::TextModel;
use probity_runtime::hub::locate;
use serde_json::{Value, json};

use crate::compute::{ModelOptions, in_force, loaded_text};
use crate::progress::Reporter;

/// Which models, and how they compute.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(super) struct ModelsArgs {
    /// The encoder of bert-score, mover-score and blanc: a known name (`probity model list`), a folder with config.json
    /// and safetensors, or a hub name (org/name) that is in the local cache
    #[arg(long, value_name = "NAME|PATH")]
    encoder: Option<String>,
    /// The sequence-to-sequence model of bart-score and bart-score-source, named in the same ways
    #[arg(long, value_name = "NAME|PATH")]
    model: Option<String>,
    #[command(flatten)]
    options: ModelOptions,
}

impl ModelsArgs {
    /// Loads the models that are named and that a metric needs.
    pub(super) fn load(&self, choices: &[Choice], reporter: &mut Reporter) -> anyhow::Result<Models> {
        let is_needed = |need: Need| choices.iter().any(|choice| choice.definition().needs().contains(&need));
        let encoder = wanted(self.encoder.as_deref(), is_needed(Need::Encoder), "--encoder", reporter);
        let model = wanted(self.model.as_deref(), is_needed(Need::LanguageModel), "--model", reporter);
        load(encoder, model, &self.options, reporter)
    }

    /// What was loaded and how it computes, for the manifest; null where nothing was.
    pub(super) fn described(&self, models: &Models) -> Value {
        let encoder = models.encoder.as_ref().map(|encoder| encoder.description().clone());
        let model = models
            .language_model
            .as_ref()
            .map(|model| model.lock().unwrap_or_else(PoisonError::into_inner).description().clone());
        if encoder.is_none() && model.is_none() {
            return Value::Null;
        }
        json!({"encoder": encoder, "model": model, "computing": in_force(self.options.load_options())})
    }
}

/// Loads what is named.
pub(crate) fn load(
    encoder: Option<&str>,
    model: Option<&str>,
    options: &ModelOptions,
    reporter: &mut Reporter,
) -> anyhow::Result<Models> {
    let mut models = Models::default();
    if let Some(name) = encoder {
        models.encoder = Some(Arc::new(load_encoder(name, options, reporter)?));
    }
    if let Some(name) = model {
        models.language_model = Some(Arc::new(Mutex::new(options.load(name, reporter)?)));
    }
    Ok(models)
}

fn load_encoder(name: &str, options: &ModelOptions, reporter: &mut Reporter) -> anyhow::Result<TextModel> {
    let started = Instant::now();
    let encoder = TextModel::load(&locate(name)?, options.load_options())?;
    reporter.say(&loaded_text(encoder.description(), started));
    Ok(encoder)
}

/// The model to load, where one is named and a metric needs it.
fn wanted<'a>(name: Option<&'a str>, is_needed: bool, option: &str, reporter: &mut Reporter) -> Option<&'a str> {
    if name.is_some() && !is_needed {
        reporter.warn(&format!("{option} is not used: no metric that was asked for needs it"));
    }
    name.filter(|_| is_needed)
}
