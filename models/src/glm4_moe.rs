//! GLM-4.5 to GLM-4.7 (GLM Team 2025): mixtures of experts with logistic scores and a shared expert after some layers
//! without experts, and rotation of a part of each head. The layers that predict further tokens are not used.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, MAX_LAYERS, invalid, require};
use crate::decoder::{DecoderConfig, HEAD_NORMS, MODEL, NAMES};
use crate::family::{
    base_config, gguf, read_rotated_share, read_with_any_rotation, set_rotated_share, take_rotated_share,
};
use crate::gguf::{
    GGUF_EXPERTS, GGUF_HEAD_NORMS, GgufDialect, GgufError, GgufReader, MAX_SIZE, NEXT_TOKEN_PAIRS, StackNames,
};
use crate::mixtral::choice;
use crate::rope::FACTORS;
use crate::stack_config::{DenseLayers, ExpertChoice, LayerNames, NormNames, RouterScores};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "glm4_moe", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static HUGGINGFACE: LayerNames = LayerNames {
    router: Some("mlp.gate"),
    router_correction: Some("mlp.gate.e_score_correction_bias"),
    gate: "mlp.experts.gate_proj",
    up: Some("mlp.experts.up_proj"),
    down: "mlp.experts.down_proj",
    shared: Some(["mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj"]),
    dense: Some(["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]),
    ..NAMES
};
static HEAD_NORMED: LayerNames = LayerNames { head_norms: Some(HEAD_NORMS), ..HUGGINGFACE };

static GGUF: GgufDialect = GgufDialect {
    name: Some("glm4moe"),
    stacks: |_| &GGUF_STACKS,
    more_known: &[
        "expert_count", "expert_feed_forward_length", "expert_gating_func", "expert_group_count",
        "expert_group_used_count", "expert_shared_count", "expert_used_count", "expert_weights_norm",
        "expert_weights_scale", "leading_dense_block_count", "nextn_predict_layers",
    ],
    ..gguf(read)
};

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HEAD_NORMED,
    gguf: LayerNames {
        head_norms: Some(GGUF_HEAD_NORMS),
        router_correction: Some("exp_probs_b.bias"),
        shared: Some(["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"]),
        dense: Some(["ffn_gate", "ffn_up", "ffn_down"]),
        feed_forward_norms: NormNames::stream("post_attention_norm"),
        ..GGUF_EXPERTS
    },
    more: &NEXT_TOKEN_PAIRS,
}];

/// The number of the logistic function among llama.cpp's gating functions.
const SIGMOID: u64 = 2;

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    if read_with_any_rotation(reader, config)?.is_some() {
        return Err(reader.error("attention.sliding_window", "glm4moe has no window"));
    }
    read_rotated_share(reader, config)?;
    let count = |key: &str| if reader.is_zero(key) { Ok(Some(0)) } else { reader.integer(key, MAX_LAYERS) };
    let (layers, more) =
        (config["num_hidden_layers"].as_u64().unwrap_or(0), count("nextn_predict_layers")?.unwrap_or(0));
    if more >= layers {
        return Err(reader.error("nextn_predict_layers", format!("{more} of {layers} layers")));
    }
    if let Some(other) = reader.integer("expert_gating_func", MAX_SIZE)?.filter(|function| *function != SIGMOID) {
        return Err(reader.error("expert_gating_func", format!("function {other} is not supported")));
    }
    for (key, field) in [
        ("expert_count", "n_routed_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_shared_count", "n_shared_experts"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
    ] {
        config.insert(field.into(), json!(reader.required(key, MAX_SIZE)?));
    }
    for (key, field) in [("expert_group_count", "n_group"), ("expert_group_used_count", "topk_group")] {
        config.insert(field.into(), json!(count(key)?.unwrap_or(1)));
    }
    // llama.cpp's defaults.
    config.insert("norm_topk_prob".into(), json!(reader.bool("expert_weights_norm")?.unwrap_or(false)));
    config.insert("routed_scaling_factor".into(), json!(reader.float("expert_weights_scale")?.unwrap_or(1.0)));
    config.insert("first_k_dense_replace".into(), json!(count("leading_dense_block_count")?.unwrap_or(0)));
    config.insert("num_hidden_layers".into(), json!(layers - more));
    config.insert("num_nextn_predict_layers".into(), json!(more));
    config.insert("attention_bias".into(), json!(reader.has("blk.0.attn_q.bias")));
    config.insert("use_qk_norm".into(), json!(reader.has("blk.0.attn_q_norm.weight")));
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    // The reference's defaults follow from no other field.
    require(config, &["num_key_value_heads", "first_k_dense_replace"])?;
    let mut fields = ConfigFields::new("glm4_moe", config);
    let share = take_rotated_share(&mut fields, 0.5)?;
    let mut decoder = base_config(&mut fields)?;
    set_rotated_share(&mut decoder, share)?;
    decoder.qkv_bias = fields.flag("attention_bias")?.unwrap_or(false);
    decoder.names = if fields.flag("use_qk_norm")?.unwrap_or(false) { &HEAD_NORMED } else { &HUGGINGFACE };
    for field in ["num_nextn_predict_layers", "num_mtp_layers"] {
        decoder.unused_layers = decoder.unused_layers.max(fields.count(field)?.unwrap_or(0));
    }
    decoder.experts = Some(experts(&mut fields, &decoder)?);
    decoder.intermediate_size = fields.required_size("moe_intermediate_size")?;
    fields.finish()?;
    Ok(decoder)
}

fn experts(fields: &mut ConfigFields, decoder: &DecoderConfig) -> Result<ExpertChoice, ConfigError> {
    let count = fields.required_size("n_routed_experts")?;
    let normalised = fields.flag("norm_topk_prob")?.unwrap_or(true);
    // Published models have one group of experts.
    for field in ["n_group", "topk_group"] {
        fields.only(field, &[json!(1)])?;
    }
    let inner = fields.required_size("moe_intermediate_size")?;
    fields.put("moe_intermediate_size", json!(inner));
    let shared = fields.required_size("n_shared_experts")?;
    let width = shared.checked_mul(inner).filter(|width| u32::try_from(*width).is_ok());
    let width = width.ok_or_else(|| invalid("n_shared_experts", &json!(shared), "a smaller number"))?;
    let dense = fields.count("first_k_dense_replace")?.unwrap_or(1);
    let intermediate_size = decoder.intermediate_size;
    Ok(ExpertChoice {
        scores: RouterScores::CorrectedSigmoid,
        scale: fields.number("routed_scaling_factor", &FACTORS)?.unwrap_or(1.0) as f32,
        shared: Some(width),
        dense: (dense > 0).then_some(DenseLayers { count: dense, intermediate_size }),
        ..choice(fields, count, normalised)?
    })
}
