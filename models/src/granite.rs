//! Granite's dense decoders (IBM Research 2024): llama with multipliers of embeddings, scores, residual branches and
//! logits.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::DecoderConfig;
use crate::family::{base_config, gguf, llama_biases, read_interleaved};
use crate::gguf::{GgufDialect, GgufError, GgufReader};
use crate::rope::FACTORS;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "granite", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect =
    GgufDialect { more_known: &["embedding_scale", "attention.scale", "residual_scale", "logit_scale"], ..gguf(read) };

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    if read_interleaved(reader, config)?.is_some() {
        return Err(reader.error("attention.sliding_window", "granite has no window"));
    }
    for (key, field) in [
        ("embedding_scale", "embedding_multiplier"),
        ("attention.scale", "attention_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ] {
        if let Some(factor) = reader.float(key)? {
            config.insert(field.into(), json!(factor));
        }
    }
    // If it is missing, llama.cpp uses the usual factor, but a configuration defaults to 1.
    if !config.contains_key("attention_multiplier") {
        let head_dim = config["head_dim"].as_f64().expect("a size was read");
        config.insert("attention_multiplier".into(), json!(head_dim.powf(-0.5)));
    }
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("granite", config);
    let mut decoder = base_config(&mut fields)?;
    llama_biases(&mut fields, &mut decoder)?;
    let mut factor = |field| Ok::<_, ConfigError>(fields.number(field, &FACTORS)?.unwrap_or(1.0));
    decoder.embedding_scale = factor("embedding_multiplier")? as f32;
    decoder.score_scale = factor("attention_multiplier")? as f32;
    decoder.branch_scale = factor("residual_multiplier")? as f32;
    decoder.logit_scale = (1.0 / factor("logits_scaling")?) as f32;
    fields.finish()?;
    Ok(decoder)
}
