//! Granite's mixtures of experts (IBM Research 2024): granite with experts, of which each has its first two products in
//! one tensor.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::{DecoderConfig, MODEL, NAMES};
use crate::family::{base_config, gguf};
use crate::gguf::{GGUF_EXPERTS, GgufDialect, GgufError, GgufReader, MAX_SIZE, StackNames};
use crate::granite;
use crate::mixtral::choice;
use crate::stack_config::{ExpertChoice, LayerNames};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "granitemoe", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

const SHARED: &str = "shared_mlp.input_linear";
const EXPERTS: &str = "block_sparse_moe.input_linear";

pub(crate) static HUGGINGFACE: LayerNames = LayerNames {
    router: Some("block_sparse_moe.router.layer"),
    gate: EXPERTS,
    up: Some(EXPERTS),
    down: "block_sparse_moe.output_linear",
    shared: Some([SHARED, SHARED, "shared_mlp.output_linear"]),
    ..NAMES
};
/// Names for GGUF files, where the first two products are separate tensors.
static SEPARATE: LayerNames = LayerNames {
    gate: "block_sparse_moe.gate",
    up: Some("block_sparse_moe.up"),
    shared: Some(["shared_mlp.gate", "shared_mlp.up", "shared_mlp.output_linear"]),
    ..HUGGINGFACE
};

static GGUF: GgufDialect = GgufDialect {
    stacks: |_| &GGUF_STACKS,
    more_known: &[
        "attention.scale", "embedding_scale", "expert_count", "expert_shared_feed_forward_length", "expert_used_count",
        "logit_scale", "residual_scale", "ssm.conv_kernel", "ssm.group_count", "ssm.inner_size", "ssm.state_size",
        "ssm.time_step_rank",
    ],
    ..gguf(read)
};

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: SEPARATE,
    gguf: LayerNames { shared: Some(["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"]), ..GGUF_EXPERTS },
    more: &[],
}];

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    granite::read(reader, config)?;
    for (key, field) in [("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")] {
        config.insert(field.into(), json!(reader.required(key, MAX_SIZE)?));
    }
    let key = "expert_shared_feed_forward_length";
    if !reader.is_zero(key) {
        config.insert("shared_intermediate_size".into(), json!(reader.integer(key, MAX_SIZE)?));
    }
    config.insert("probity.separate_products".into(), json!(true));
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("granitemoe", config);
    let mut decoder = base_config(&mut fields)?;
    granite::set_factors(&mut fields, &mut decoder)?;
    let is_separate = fields.flag("probity.separate_products")?.unwrap_or(false);
    decoder.names = if is_separate { &SEPARATE } else { &HUGGINGFACE };
    let shared = fields.size("shared_intermediate_size")?;
    decoder.experts = Some(experts(&mut fields, shared)?);
    fields.finish()?;
    Ok(decoder)
}

/// The choice of experts, and the inner size of the layer that all rows use besides.
pub(crate) fn experts(fields: &mut ConfigFields, shared: Option<usize>) -> Result<ExpertChoice, ConfigError> {
    let count = fields.required_size("num_local_experts")?;
    Ok(ExpertChoice { shared, ..choice(fields, count, true)? })
}
