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

/// Converters also give this name to Granite 4.0 without layers of mamba, and then write some of their sizes.
static GGUF: GgufDialect = GgufDialect {
    more_known: &[
        "attention.scale", "embedding_scale", "expert_shared_feed_forward_length", "logit_scale", "residual_scale",
        "ssm.conv_kernel", "ssm.group_count", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank",
    ],
    ..gguf(read)
};

pub(crate) fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
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
    // Here, this key says whether there are positions.
    if reader.bool("rope.scaling.finetuned")? == Some(false) {
        config.insert("position_embedding_type".into(), json!("nope"));
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
    set_factors(&mut fields, &mut decoder)?;
    fields.finish()?;
    Ok(decoder)
}

/// Reads the fields that all of granite's decoders add to llama's.
pub(crate) fn set_factors(fields: &mut ConfigFields, decoder: &mut DecoderConfig) -> Result<(), ConfigError> {
    llama_biases(fields, decoder)?;
    match fields.take("position_embedding_type") {
        Some(kind) if kind == "nope" => decoder.layers.iter_mut().for_each(|layer| layer.rotation = None),
        Some(kind) if kind != "rope" => return Err(fields.not_honoured("position_embedding_type", &kind)),
        _ => {}
    }
    let mut factor = |field| Ok::<_, ConfigError>(fields.number(field, &FACTORS)?.unwrap_or(1.0));
    decoder.embedding_scale = factor("embedding_multiplier")? as f32;
    decoder.score_scale = factor("attention_multiplier")? as f32;
    decoder.branch_scale = factor("residual_multiplier")? as f32;
    decoder.logit_scale = (1.0 / factor("logits_scaling")?) as f32;
    Ok(())
}
