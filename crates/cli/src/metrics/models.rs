//! The models that metrics are made with.

use clap::Args;
use probity_metrics::{Choice, Models, Need};
use probity_session::{ComputingOptions, Context, ModelOptions, ModelPool, Notice, computing_in_force};
use serde_json::{Value, json};

use crate::options::Typed;

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
    options: Typed<ComputingOptions>,
}

impl ModelsArgs {
    /// Loads the models that are named and that a metric needs.
    pub(super) fn load(&self, choices: &[Choice], context: &Context) -> anyhow::Result<Models> {
        let is_needed = |need: Need| choices.iter().any(|choice| choice.definition().needs().contains(&need));
        let encoder = wanted(self.encoder.as_deref(), is_needed(Need::Encoder), "--encoder", context);
        let model = wanted(self.model.as_deref(), is_needed(Need::LanguageModel), "--model", context);
        load(encoder, model, &self.options, &context.models)
    }

    /// What was loaded and how it computes, for the manifest; null where nothing was.
    pub(super) fn described(&self, models: &Models) -> Value {
        let encoder = models.encoder.as_ref().map(|encoder| encoder.config().description.clone());
        let model = models.language_model.as_ref().map(|model| model.description().clone());
        if encoder.is_none() && model.is_none() {
            return Value::Null;
        }
        json!({"encoder": encoder, "model": model, "computing": computing_in_force(self.options.load_options())})
    }
}

/// Loads what is named.
fn load(
    encoder: Option<&str>,
    model: Option<&str>,
    computing: &ComputingOptions,
    pool: &ModelPool,
) -> anyhow::Result<Models> {
    let named = |name: &str| ModelOptions { model: name.to_owned(), adapter: None, computing: computing.clone() };
    let mut models = Models::default();
    if let Some(name) = encoder {
        models.encoder = Some(pool.encoder(&named(name))?);
    }
    if let Some(name) = model {
        models.language_model = Some(pool.language(&named(name))?);
    }
    Ok(models)
}

/// The model to load, where one is named and a metric needs it.
fn wanted<'a>(name: Option<&'a str>, is_needed: bool, option: &str, context: &Context) -> Option<&'a str> {
    if name.is_some() && !is_needed {
        let unused = format!("{option} is not used: no metric that was asked for needs it");
        context.events.notice(Notice::Warning(&unused));
    }
    name.filter(|_| is_needed)
}
