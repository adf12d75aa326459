//! Qwen3-Next (Qwen Team 2025): three gated delta nets for each layer of attention, whose output has a gate, mixtures
//! of experts with a shared expert, and rotation of a part of each head. Weights that predict further tokens are not
//! used.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::{DecoderConfig, HEAD_NORMED_NAMES, MODEL};
use crate::family::gguf;
use crate::gguf::{GGUF_EXPERTS, GGUF_HEAD_NORMS, GgufDialect, GgufError, GgufReader, MAX_SIZE, StackNames};
use crate::hybrid::{self, GGUF_MORE, KNOWN};
use crate::mixtral::choice;
use crate::stack_config::{ExpertChoice, LayerNames, NormNames};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "qwen3_next", config: ReadConfig::OnCpu(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect =
    GgufDialect { name: Some("qwen3next"), stacks: |_| &GGUF_STACKS, more_known: &KNOWN, ..gguf(read_experts) };

pub(crate) static HUGGINGFACE: LayerNames = LayerNames {
    router: Some("mlp.gate"),
    gate: "mlp.experts.gate_proj",
    up: Some("mlp.experts.up_proj"),
    down: "mlp.experts.down_proj",
    shared: Some(["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj", "mlp.shared_expert.down_proj"]),
    shared_gate: Some("mlp.shared_expert_gate"),
    ..HEAD_NORMED_NAMES
};

pub(crate) static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HUGGINGFACE,
    gguf: LayerNames {
        head_norms: Some(GGUF_HEAD_NORMS),
        shared: Some(["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"]),
        shared_gate: Some("ffn_gate_inp_shexp"),
        feed_forward_norms: NormNames::stream("post_attention_norm"),
        ..GGUF_EXPERTS
    },
    more: &GGUF_MORE,
}];

/// Reads mixtures of experts with gated delta nets.
pub(crate) fn read_experts(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    hybrid::read(reader, config)?;
    for (key, field) in [
        ("expert_count", "num_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ] {
        config.insert(field.into(), json!(reader.required(key, MAX_SIZE)?));
    }
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("qwen3_next", config);
    fields.put_usual(config, "num_key_value_heads", json!(2));
    let mut decoder = hybrid::decoder(config, &mut fields)?;
    let normalised = fields.flag("norm_topk_prob")?.unwrap_or(true);
    experts(&mut fields, &mut decoder, normalised)?;
    // In the published models every layer is a mixture.
    fields.only("decoder_sparse_step", &[json!(1)])?;
    fields.only("mlp_only_layers", &[json!([])])?;
    fields.only("use_sliding_window", &[json!(false)])?;
    fields.finish()?;
    Ok(decoder)
}

/// Reads the mixture of experts and its shared expert.
pub(crate) fn experts(
    fields: &mut ConfigFields,
    decoder: &mut DecoderConfig,
    normalised: bool,
) -> Result<(), ConfigError> {
    decoder.names = &HUGGINGFACE;
    let count = fields.required_size("num_experts")?;
    let shared = Some(fields.required_size("shared_expert_intermediate_size")?);
    decoder.experts = Some(ExpertChoice { shared, ..choice(fields, count, normalised)? });
    decoder.intermediate_size = fields.required_size("moe_intermediate_size")?;
    Ok(())
}
