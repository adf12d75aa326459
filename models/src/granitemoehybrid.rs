//! Granite 4.0 (IBM Research 2025) without layers of mamba: granite, or its mixture of experts with a shared layer,
//! with or without positions. GGUF files call it granite or granitemoe.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::{DecoderConfig, NAMES};
use crate::family::base_config;
use crate::stack_config::LayerNames;
use crate::{granite, granitemoe};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "granitemoehybrid", config: ReadConfig::Decoder(config), gguf: None };

const GATE_UP: &str = "shared_mlp.input_linear";

/// Names without experts.
static DENSE: LayerNames = LayerNames { gate: GATE_UP, up: Some(GATE_UP), down: "shared_mlp.output_linear", ..NAMES };

/// Fields of layers of mamba.
const OF_MAMBA: [&str; 11] = [
    "mamba_chunk_size", "mamba_conv_bias", "mamba_d_conv", "mamba_d_head", "mamba_d_state", "mamba_expand",
    "mamba_n_groups", "mamba_n_heads", "mamba_proj_bias", "time_step_limit", "init_method",
];

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("granitemoehybrid", config);
    let (new, old) = (fields.take("layer_types"), fields.take("layers_block_type"));
    // Without a list, all layers of the reference are of mamba.
    let kinds = new.or(old).ok_or(ConfigError::Missing("layer_types"))?;
    let is_attention = |kind: &Value| kind == "attention" || kind == "full_attention";
    if !kinds.as_array().is_some_and(|kinds| kinds.iter().all(is_attention)) {
        return Err(fields.not_honoured("layer_types", &kinds));
    }
    for field in OF_MAMBA {
        fields.take(field);
    }
    fields.only("normalization_function", &[json!("rmsnorm")])?;
    // The reference's default; null means the same.
    if config.get("position_embedding_type").is_none_or(Value::is_null) {
        fields.put("position_embedding_type", json!("nope"));
    }
    let mut decoder = base_config(&mut fields)?;
    if kinds.as_array().is_none_or(|kinds| kinds.len() != decoder.layers.len()) {
        return Err(fields.not_honoured("layer_types", &kinds));
    }
    granite::set_factors(&mut fields, &mut decoder)?;
    let shared = fields.required_size("shared_intermediate_size")?;
    if fields.count("num_local_experts")?.ok_or(ConfigError::Missing("num_local_experts"))? == 0 {
        for field in ["num_experts_per_tok", "output_router_logits", "router_aux_loss_coef"] {
            fields.take(field);
        }
        (decoder.names, decoder.intermediate_size) = (&DENSE, shared);
    } else {
        fields.put("num_local_experts", config["num_local_experts"].clone());
        decoder.names = &granitemoe::HUGGINGFACE;
        decoder.experts = Some(granitemoe::experts(&mut fields, Some(shared))?);
    }
    fields.finish()?;
    Ok(decoder)
}
