//! Qwen3's dense decoders (Yang et al. 2025): qwen2 without biases, with norms of each head of queries and keys.

use serde_json::{Map, Value};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::{DecoderConfig, HEAD_NORMED_NAMES, MODEL};
use crate::family::{base_config, gguf, read_halves, switched_off_window};
use crate::gguf::{GGUF_HEAD_NORMS, GgufDialect, LAYER, StackNames};
use crate::stack_config::LayerNames;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "qwen3", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = GgufDialect { stacks: |_| &GGUF_STACKS, ..gguf(read_halves) };

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HEAD_NORMED_NAMES,
    gguf: LayerNames { head_norms: Some(GGUF_HEAD_NORMS), ..LAYER },
    more: &[],
}];

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("qwen3", config);
    let decoder = decoder(config, &mut fields)?;
    fields.finish()?;
    Ok(decoder)
}

/// Reads the fields shared with the mixtures of experts.
pub(crate) fn decoder(config: &Map<String, Value>, fields: &mut ConfigFields) -> Result<DecoderConfig, ConfigError> {
    // The reference has its own defaults (head dimension 128, 32 key heads), which follow from no other field, so none
    // is assumed.
    for field in ["head_dim", "num_key_value_heads"] {
        if config.get(field).is_none_or(Value::is_null) {
            return Err(ConfigError::Missing(field));
        }
    }
    let mut decoder = base_config(fields)?;
    decoder.names = &HEAD_NORMED_NAMES;
    // One field for all four projections, as in llama. The published models have no biases.
    let attention_bias = fields.flag("attention_bias")?.unwrap_or(false);
    decoder.qkv_bias = attention_bias;
    decoder.attention_output_bias = attention_bias;
    switched_off_window(fields)?;
    Ok(decoder)
}
