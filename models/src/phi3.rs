//! Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024): llama with fused projections and optional partial rotation.
//! Frequencies have separate factors for texts up to the original context length.

use serde_json::{Map, Value, json};

use crate::Rope;
use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, invalid, number_in};
use crate::decoder::{DecoderConfig, MODEL, NAMES, SHORT_FACTORS};
use crate::family::{
    base_config, gguf, read_rotated_share, read_with_any_rotation, set_rotated_share, take_rotated_share,
};
use crate::gguf::{GgufDialect, GgufError, GgufReader, LAYER, MAX_CONTEXT, StackNames};
use crate::rope::{FACTORS, RopeScaling};
use crate::stack_config::{AttentionNames, LayerNames};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "phi3", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

const QKV: &str = "self_attn.qkv_proj";
pub(crate) const GATE_UP: &str = "mlp.gate_up_proj";

static HUGGINGFACE: LayerNames = LayerNames {
    attention: AttentionNames { projections: [QKV, QKV, QKV, "self_attn.o_proj"], ..NAMES.attention },
    gate: GATE_UP,
    up: Some(GATE_UP),
    ..NAMES
};

static GGUF: GgufDialect = GgufDialect { stacks: |_| &GGUF_STACKS, ..gguf(read) };

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HUGGINGFACE,
    gguf: LayerNames {
        attention: AttentionNames {
            projections: ["attn_qkv", "attn_qkv", "attn_qkv", "attn_output"],
            ..LAYER.attention
        },
        gate: "ffn_up",
        up: Some("ffn_up"),
        ..LAYER
    },
    more: &[],
}];

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    read_with_any_rotation(reader, config)?;
    read_rotated_share(reader, config)?;
    let original = reader.integer("rope.scaling.original_context_length", MAX_CONTEXT)?;
    if reader.has(SHORT_FACTORS) {
        let factor = reader.float("rope.scaling.attn_factor")?.unwrap_or(1.0);
        let scaling = json!({"rope_type": "longrope", "attention_factor": factor});
        config.insert("rope_scaling".into(), scaling);
        config.insert("probity.rope_short_factors".into(), json!(true));
        let original = original.ok_or_else(|| reader.error("rope.scaling.original_context_length", "it is missing"))?;
        config.insert("original_max_position_embeddings".into(), json!(original));
    } else {
        config.remove("rope_scaling");
    }
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("phi3", config);
    let share = take_rotated_share(&mut fields, 1.0)?;
    let scaling = fields.take("rope_scaling");
    let original = fields.size("original_max_position_embeddings")?;
    let in_tensor = fields.flag("probity.rope_short_factors")?.unwrap_or(false);
    let mut decoder = base_config(&mut fields)?;
    decoder.names = &HUGGINGFACE;
    set_rotated_share(&mut decoder, share)?;
    let window = fields.size("sliding_window")?;
    decoder.layers.iter_mut().for_each(|layer| layer.window = window);
    fields.only("attention_bias", &[json!(false)])?;
    fields.only("embd_pdrop", &[json!(0.0), json!(0)])?;
    fields.take("auto_map");
    if let Some(scaling) = scaling {
        let original = original.ok_or(ConfigError::Missing("original_max_position_embeddings"))?;
        let pairs = (!in_tensor).then_some(decoder.rotary_dim / 2);
        decoder.ropes =
            vec![long_rope(&fields, &scaling, decoder.ropes[0].theta, (original, decoder.context_length), pairs)?];
        decoder.rope_freq_factors = in_tensor.then_some(SHORT_FACTORS);
        // Longer texts use other factors from their first token on, so cached results would depend on the final length.
        decoder.context_length = original;
    }
    fields.finish()?;
    Ok(decoder)
}

/// The rotation for texts up to the original length; `pairs` is the number of factors in the configuration.
fn long_rope(
    fields: &ConfigFields,
    value: &Value,
    theta: f64,
    (original, extended): (usize, usize),
    pairs: Option<usize>,
) -> Result<Rope, ConfigError> {
    let map = value.as_object().ok_or_else(|| invalid("rope_scaling", value, "an object"))?;
    let kind = map.get("rope_type").or_else(|| map.get("type")).and_then(Value::as_str);
    // Early configurations of Phi-3 call it `su`.
    if !matches!(kind, Some("longrope" | "su")) {
        return Err(fields.not_honoured("rope_scaling", value));
    }
    let number = |key: &str| {
        let field = format!("rope_scaling.{key}");
        map.get(key).filter(|value| !value.is_null()).map(|value| number_in(&field, value, &FACTORS)).transpose()
    };
    let factor = number("factor")?.unwrap_or(extended as f64 / original as f64);
    let usual = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() };
    let scale = number("attention_factor")?.unwrap_or(usual) as f32;
    let scaling = match pairs {
        None => RopeScaling::None,
        Some(pairs) => {
            let field = "rope_scaling.short_factor";
            let listed = map.get("short_factor").and_then(Value::as_array).filter(|all| all.len() == pairs);
            let listed = listed.ok_or_else(|| invalid(field, value, &format!("a list of {pairs} numbers")))?;
            RopeScaling::Each(listed.iter().map(|value| number_in(field, value, &FACTORS)).collect::<Result<_, _>>()?)
        }
    };
    Ok(Rope { theta, scaling, scale, rotary_dim: None })
}
