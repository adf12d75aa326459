//! Qwen3's mixtures of experts (Yang et al. 2025).

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::{DecoderConfig, HEAD_NORMED_NAMES, MODEL};
use crate::family::{gguf, read_halves};
use crate::gguf::{GGUF_EXPERTS, GGUF_HEAD_NORMS, GgufDialect, GgufError, GgufReader, MAX_SIZE, StackNames};
use crate::mixtral::choice;
use crate::qwen3;
use crate::stack_config::LayerNames;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "qwen3_moe", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = GgufDialect {
    name: Some("qwen3moe"),
    stacks: |_| &GGUF_STACKS,
    more_known: &["expert_count", "expert_used_count", "expert_feed_forward_length"],
    ..gguf(read)
};

static HUGGINGFACE: LayerNames = LayerNames {
    router: Some("mlp.gate"),
    gate: "mlp.experts.gate_proj",
    up: Some("mlp.experts.up_proj"),
    down: "mlp.experts.down_proj",
    ..HEAD_NORMED_NAMES
};

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HUGGINGFACE,
    gguf: LayerNames { head_norms: Some(GGUF_HEAD_NORMS), ..GGUF_EXPERTS },
    more: &[],
}];

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    read_halves(reader, config)?;
    for (key, field) in [
        ("expert_count", "num_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
    ] {
        config.insert(field.into(), json!(reader.required(key, MAX_SIZE)?));
    }
    // GGUF has no key for this.
    config.insert("norm_topk_prob".into(), json!(true));
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("qwen3_moe", config);
    let mut decoder = qwen3::decoder(config, &mut fields)?;
    decoder.names = &HUGGINGFACE;
    let count = fields.required_size("num_experts")?;
    let normalised = fields.flag("norm_topk_prob")?.unwrap_or(false);
    decoder.experts = Some(choice(&mut fields, count, normalised)?);
    decoder.intermediate_size = fields.required_size("moe_intermediate_size")?;
    // In the published models every layer is a mixture.
    fields.only("decoder_sparse_step", &[json!(1)])?;
    fields.only("mlp_only_layers", &[json!([])])?;
    fields.finish()?;
    Ok(decoder)
}
