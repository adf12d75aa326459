//! GLM-4 of 2025 (GLM Team 2024): norms before and after each sublayer, a fused gate, and rotation of neighbouring
//! pairs in a part of each head.

use probity_kernels::RopeLayout;
use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, require};
use crate::decoder::{DecoderConfig, MODEL, NAMES};
use crate::family::{
    base_config, gguf, read_rotated_share, read_with_any_rotation, set_rotated_share, take_rotated_share,
};
use crate::gguf::{GgufDialect, GgufError, GgufReader, StackNames};
use crate::stack_config::{AttentionNames, LayerNames, NormNames};
use crate::{gemma2, phi3};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "glm4", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static HUGGINGFACE: LayerNames = LayerNames {
    attention: AttentionNames {
        norms: NormNames { stream: Some("input_layernorm"), branch: Some("post_self_attn_layernorm") },
        ..NAMES.attention
    },
    gate: phi3::GATE_UP,
    up: Some(phi3::GATE_UP),
    feed_forward_norms: NormNames { stream: Some("post_attention_layernorm"), branch: Some("post_mlp_layernorm") },
    ..NAMES
};

static GGUF: GgufDialect = GgufDialect { stacks: |_| &GGUF_STACKS, ..gguf(read) };

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HUGGINGFACE,
    gguf: LayerNames { gate: "ffn_up", up: Some("ffn_up"), ..gemma2::GGUF_LAYER },
    more: &[],
}];

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    if read_with_any_rotation(reader, config)?.is_some() {
        return Err(reader.error("attention.sliding_window", "glm4 has no window"));
    }
    read_rotated_share(reader, config)?;
    config.insert("attention_bias".into(), json!(reader.has("blk.0.attn_q.bias")));
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    // The reference's defaults follow from no other field.
    require(config, &["head_dim", "num_key_value_heads", "attention_bias"])?;
    let mut fields = ConfigFields::new("glm4", config);
    let share = take_rotated_share(&mut fields, 0.5)?;
    let mut decoder = base_config(&mut fields)?;
    set_rotated_share(&mut decoder, share)?;
    decoder.names = &HUGGINGFACE;
    decoder.rope_layout = RopeLayout::Interleaved;
    decoder.qkv_bias = fields.flag("attention_bias")?.unwrap_or(true);
    fields.finish()?;
    Ok(decoder)
}
