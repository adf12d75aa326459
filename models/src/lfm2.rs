//! LFM2 (Liquid AI 2025): gated convolutions over a few tokens, and some layers of attention with norms of queries and
//! keys.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, EPSILONS, invalid};
use crate::convolution::CONVOLUTION_PAIRS;
use crate::decoder::{DecoderConfig, MODEL, NAMES};
use crate::family::{base_config, gguf, read_beside_heads};
use crate::gguf::{GGUF_HEAD_NORMS, GgufDialect, GgufError, GgufReader, LAYER, StackNames};
use crate::hybrid::set_recurrent;
use crate::stack_config::{AttentionNames, HeadNorms, LayerNames, NormNames, Recurrence};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "lfm2", config: ReadConfig::OnCpu(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = GgufDialect { stacks: |_| &GGUF_STACKS, more_known: &["shortconv.l_cache"], ..gguf(read) };

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: LFM2_NAMES,
    gguf: LayerNames { head_norms: Some(GGUF_HEAD_NORMS), last_norm: Some("token_embd_norm"), ..LAYER },
    more: &CONVOLUTION_PAIRS,
}];

static LFM2_NAMES: LayerNames = LayerNames {
    attention: AttentionNames {
        projections: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"],
        norms: NormNames::stream("operator_norm"),
    },
    head_norms: Some(HeadNorms { names: ["self_attn.q_layernorm", "self_attn.k_layernorm"], of_all_heads: false }),
    gate: "feed_forward.w1",
    up: Some("feed_forward.w3"),
    down: "feed_forward.w2",
    feed_forward_norms: NormNames::stream("ffn_norm"),
    last_norm: Some("embedding_norm"),
    ..NAMES
};

/// The type of recurrent layers in configurations.
const CONVOLUTION: &str = "conv";
/// An upper bound above any real model.
const MAX_WIDTH: usize = 1 << 8;

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("lfm2", config);
    fields.put_usual_base(1e6);
    // GGUF files have the usual name.
    let eps = fields.number("norm_eps", &EPSILONS)?.map(|eps| json!(eps)).or_else(|| fields.take("rms_norm_eps"));
    fields.put("rms_norm_eps", eps.unwrap_or(json!(1e-5)));
    for (field, usual) in [("conv_L_cache", json!(3)), ("block_ffn_dim_multiplier", json!(1.0))] {
        fields.put_usual(config, field, usual);
    }
    // The name in older configurations takes precedence.
    let tied = [fields.take("tie_embedding"), fields.take("tie_word_embeddings")].into_iter().flatten().next();
    fields.put("tie_word_embeddings", tied.unwrap_or(json!(true)));
    let kinds = fields.take("layer_types");
    let attention = fields.take("full_attn_idxs");
    let width = fields.required_size("conv_L_cache")?;
    if !(2..=MAX_WIDTH).contains(&width) {
        return Err(invalid("conv_L_cache", &json!(width), &format!("an integer from 2 to {MAX_WIDTH}")));
    }
    fields.only("conv_bias", &[json!(false)])?;
    set_inner_width(&mut fields)?;
    let mut decoder = base_config(&mut fields)?;
    decoder.names = &LFM2_NAMES;
    decoder.recurrence = Some(Recurrence::Convolution(width));
    let layers = decoder.layers.len();
    let attention = match attention {
        Some(listed) => serde_json::from_value(listed.clone())
            .ok()
            .filter(|indices: &BTreeSet<usize>| indices.iter().all(|layer| *layer < layers))
            .ok_or_else(|| invalid("full_attn_idxs", &listed, &format!("a list of integers below {layers}")))?,
        None => (0..layers).collect(),
    };
    set_recurrent(&fields, &mut decoder, kinds.as_ref(), CONVOLUTION, |layer| !attention.contains(&layer))?;
    // Of the reference's own kernels and initialisation.
    for field in ["block_dim", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "block_use_xavier_init"] {
        fields.take(field);
    }
    fields.only("block_mlp_init_scale", &[json!(1.0)])?;
    fields.only("block_out_init_scale", &[json!(1.0)])?;
    fields.only("block_norm_eps", &[json!(decoder.rms_norm_eps)])?;
    fields.only("block_use_swiglu", &[json!(true)])?;
    fields.only("num_heads", &[json!(decoder.num_heads)])?;
    fields.only("use_pos_enc", &[json!(true)])?;
    fields.finish()?;
    Ok(decoder)
}

/// Replaces the width of feed-forward layers by the adjusted one: two thirds of it, times a factor, rounded up to a
/// multiple.
fn set_inner_width(fields: &mut ConfigFields) -> Result<(), ConfigError> {
    let [own, usual] = [fields.size("block_ff_dim")?, fields.size("intermediate_size")?];
    let configured = own.or(usual).ok_or(ConfigError::Missing("intermediate_size"))?;
    let mut inner = configured;
    let is_adjusted = fields.flag("block_auto_adjust_ff_dim")?.unwrap_or(true);
    let factor = fields.number("block_ffn_dim_multiplier", &(1e-3..=1e3))?;
    let multiple = fields.size("block_multiple_of")?.unwrap_or(256);
    if is_adjusted {
        inner = 2 * inner / 3;
        if let Some(factor) = factor {
            inner = ((factor * inner as f64) as usize).div_ceil(multiple) * multiple;
        }
    }
    if inner == 0 {
        return Err(invalid("intermediate_size", &json!(configured), "an integer whose adjusted value is not 0"));
    }
    fields.put("intermediate_size", json!(inner));
    Ok(())
}

/// Layers with keys have attention; the others are convolutions.
fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    let layers = config["num_hidden_layers"].as_u64().unwrap_or(0) as usize;
    let key = "attention.head_count_kv";
    let heads = reader.each_layer(key, layers)?.ok_or_else(|| reader.error(key, "it is missing"))?;
    let most = heads.iter().copied().max().unwrap_or(0);
    if most == 0 || heads.iter().any(|heads| *heads != 0 && *heads != most) {
        return Err(reader.error(key, format!("{heads:?}: expected 0 or the same number for each layer")));
    }
    let kinds: Vec<&str> = heads.iter().map(|heads| if *heads == 0 { CONVOLUTION } else { "full_attention" }).collect();
    if read_beside_heads(reader, config)?.is_some() {
        return Err(reader.error("attention.sliding_window", "such a model has no window"));
    }
    config.insert("num_key_value_heads".into(), json!(most));
    config.insert("layer_types".into(), json!(kinds));
    config.insert("conv_L_cache".into(), json!(reader.required("shortconv.l_cache", MAX_WIDTH as u64)?));
    config.insert("block_auto_adjust_ff_dim".into(), json!(false));
    Ok(())
}
