//! Decoders in which gated delta nets and gated attention take turns, as in Qwen3-Next and Qwen3.5: the fields that
//! these architectures share, in configurations and in GGUF files.

use probity_kernels::{Activation, DeltaShape};
use serde_json::{Map, Value, json};

use crate::config::{ConfigError, ConfigFields, MAX_LAYERS, invalid};
use crate::cpu::NormKind;
use crate::decoder::{DecoderConfig, HEAD_NORMED_NAMES};
use crate::delta::DELTA_PAIRS;
use crate::family::{base_config, read_rotated_share, read_with_any_rotation, set_rotated_share, take_rotated_share};
use crate::gguf::{GgufError, GgufReader, MAX_CONTEXT, MAX_SIZE, NEXT_TOKEN_PAIRS, Pair, joined};
use crate::stack_config::{DeltaNet, Recurrence};

/// The types of layers in configurations.
const RECURRENT: &str = "linear_attention";
const ATTENTION: &str = "full_attention";
/// An upper bound above any real model, such that no size of a state overflows.
const MAX_SHAPE: usize = 1 << 13;

/// Tensors in GGUF files besides those of a stack's usual names.
pub(crate) static GGUF_MORE: [Pair; 18] = joined(&[&DELTA_PAIRS, &NEXT_TOKEN_PAIRS, &FUSED_EXPERTS]);
const FUSED_EXPERTS: [Pair; 1] = [("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight")];

/// Keys of GGUF files.
pub(crate) static KNOWN: [&str; 14] = [
    "attention.recurrent_layers", "expert_count", "expert_feed_forward_length", "expert_shared_feed_forward_length",
    "expert_used_count", "feed_forward_length", "full_attention_interval", "nextn_predict_layers",
    "rope.dimension_sections", "ssm.conv_kernel", "ssm.group_count", "ssm.inner_size", "ssm.state_size",
    "ssm.time_step_rank",
];

/// Reads the fields of all these architectures, with their common defaults.
pub(crate) fn decoder(config: &Map<String, Value>, fields: &mut ConfigFields) -> Result<DecoderConfig, ConfigError> {
    for (field, usual) in [
        ("head_dim", json!(256)),
        ("linear_conv_kernel_dim", json!(4)),
        ("linear_key_head_dim", json!(128)),
        ("linear_num_key_heads", json!(16)),
        ("linear_num_value_heads", json!(32)),
        ("linear_value_head_dim", json!(128)),
        ("max_position_embeddings", json!(32_768)),
        ("rms_norm_eps", json!(1e-6)),
    ] {
        fields.put_usual(config, field, usual);
    }
    let kinds = fields.take("layer_types");
    // Ignored where there is a list.
    let interval = fields.size("full_attention_interval")?.unwrap_or(4);
    let share = take_rotated_share(fields, 0.25)?;
    let mut decoder = base_config(fields)?;
    set_rotated_share(&mut decoder, share)?;
    // The convolution has the same activation.
    if decoder.activation != Activation::Silu {
        return Err(fields.not_honoured("hidden_act", &config["hidden_act"]));
    }
    decoder.names = &HEAD_NORMED_NAMES;
    let attention_bias = fields.flag("attention_bias")?.unwrap_or(false);
    (decoder.qkv_bias, decoder.attention_output_bias) = (attention_bias, attention_bias);
    fields.only("attn_output_gate", &[json!(true)])?;
    decoder.output_gate = true;
    let whole = fields.flag("probity.norm_weights_whole")?.unwrap_or(false);
    decoder.norm = if whole { NormKind::RootMeanSquare } else { NormKind::RootMeanSquareLessOne };
    decoder.unused_layers = fields.count("probity.unused_layers")?.unwrap_or(0);
    let usual = |layer: usize| !(layer + 1).is_multiple_of(interval);
    set_recurrent(fields, &mut decoder, kinds.as_ref(), RECURRENT, usual)?;
    decoder.recurrence = Some(Recurrence::Delta(delta(fields)?));
    Ok(decoder)
}

/// Selects the layers of the type `recurrent`, or without a list of types those that `usual` selects.
pub(crate) fn set_recurrent(
    fields: &ConfigFields,
    decoder: &mut DecoderConfig,
    kinds: Option<&Value>,
    recurrent: &str,
    usual: impl Fn(usize) -> bool,
) -> Result<(), ConfigError> {
    let count = decoder.layers.len();
    let chosen: Vec<bool> = match kinds {
        None => (0..count).map(usual).collect(),
        Some(value) => {
            let kinds = value.as_array().filter(|kinds| kinds.len() == count);
            let kinds = kinds.ok_or_else(|| invalid("layer_types", value, &format!("a list of {count} types")))?;
            let is_recurrent = |kind: &Value| match kind.as_str() {
                Some(kind) if kind == recurrent => Ok(true),
                Some(ATTENTION) => Ok(false),
                _ => Err(fields.not_honoured("layer_types", value)),
            };
            kinds.iter().map(is_recurrent).collect::<Result<_, _>>()?
        }
    };
    decoder.layers.iter_mut().zip(chosen).for_each(|(layer, recurrent)| layer.recurrent = recurrent);
    Ok(())
}

fn delta(fields: &mut ConfigFields) -> Result<DeltaNet, ConfigError> {
    let mut size = |field: &'static str| match fields.required_size(field)? {
        size if size > MAX_SHAPE => Err(invalid(field, &json!(size), &format!("an integer from 1 to {MAX_SHAPE}"))),
        size => Ok(size),
    };
    let shape = DeltaShape {
        key_heads: size("linear_num_key_heads")?,
        value_heads: size("linear_num_value_heads")?,
        key_dim: size("linear_key_head_dim")?,
        value_dim: size("linear_value_head_dim")?,
        width: size("linear_conv_kernel_dim")?,
        tiled: fields.flag("probity.value_heads_tiled")?.unwrap_or(false),
    };
    if !shape.value_heads.is_multiple_of(shape.key_heads) {
        let expected = format!("a multiple of linear_num_key_heads, {}", shape.key_heads);
        return Err(invalid("linear_num_value_heads", &json!(shape.value_heads), &expected));
    }
    Ok(DeltaNet { shape, stores_decay: fields.flag("probity.decay_whole")?.unwrap_or(false) })
}

/// The sizes of files without a width of layers that are no mixture.
pub(crate) const EXPERT_SIZES: &[(&str, &str, u64)] = &[
    ("embedding_length", "hidden_size", MAX_SIZE),
    ("attention.head_count", "num_attention_heads", MAX_SIZE),
    ("block_count", "num_hidden_layers", MAX_LAYERS),
    ("context_length", "max_position_embeddings", MAX_CONTEXT),
];

/// Reads what GGUF files of all these architectures have.
pub(crate) fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    if read_with_any_rotation(reader, config)?.is_some() {
        return Err(reader.error("attention.sliding_window", "such a model has no window"));
    }
    read_rotated_share(reader, config)?;
    let key = "nextn_predict_layers";
    let more = if reader.is_zero(key) { 0 } else { reader.integer(key, MAX_LAYERS)?.unwrap_or(0) };
    let layers = config["num_hidden_layers"].as_u64().unwrap_or(0);
    if more >= layers {
        return Err(reader.error(key, format!("{more} of {layers} layers")));
    }
    config.insert("num_hidden_layers".into(), json!(layers - more));
    config.insert("probity.unused_layers".into(), json!(more));
    if let Some(recurrent) = reader.integers("attention.recurrent_layers")? {
        let kind = |recurrent: &u64| if *recurrent == 0 { ATTENTION } else { RECURRENT };
        let kinds: Vec<&str> = recurrent.iter().take((layers - more) as usize).map(kind).collect();
        config.insert("layer_types".into(), json!(kinds));
    } else if let Some(interval) = reader.integer("full_attention_interval", MAX_LAYERS)? {
        config.insert("full_attention_interval".into(), json!(interval));
    }
    let [heads, values] = ["ssm.time_step_rank", "ssm.inner_size"].map(|key| reader.required(key, MAX_SIZE));
    let (heads, values) = (heads?, values?);
    if values % heads != 0 {
        return Err(reader.error("ssm.inner_size", format!("{values} elements of {heads} heads")));
    }
    config.insert("linear_num_value_heads".into(), json!(heads));
    config.insert("linear_value_head_dim".into(), json!(values / heads));
    for (key, field) in [
        ("ssm.conv_kernel", "linear_conv_kernel_dim"),
        ("ssm.state_size", "linear_key_head_dim"),
        ("ssm.group_count", "linear_num_key_heads"),
    ] {
        config.insert(field.into(), json!(reader.required(key, MAX_SIZE)?));
    }
    // Converters add one to the norm weights, and store the decay instead of its logarithm.
    for field in ["probity.norm_weights_whole", "probity.decay_whole"] {
        config.insert(field.into(), json!(true));
    }
    Ok(())
}
