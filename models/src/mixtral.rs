//! Mixtral (Jiang et al. 2024): mistral with a mixture of experts in each layer.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, invalid};
use crate::decoder::{DecoderConfig, MODEL, NAMES};
use crate::family::{base_config, gguf, read_llama};
use crate::gguf::{GGUF_EXPERTS, GgufDialect, StackNames};
use crate::stack_config::{ExpertChoice, LayerNames};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "mixtral", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

/// GGUF files describe it as a llama with experts. They are read with llama's entry, which comes first in the registry.
static GGUF: GgufDialect = GgufDialect { name: Some("llama"), stacks: |_| &GGUF_STACKS, ..gguf(read_llama) };

static HUGGINGFACE: LayerNames = LayerNames {
    router: Some("block_sparse_moe.gate"),
    gate: "block_sparse_moe.experts.w1",
    up: Some("block_sparse_moe.experts.w3"),
    down: "block_sparse_moe.experts.w2",
    ..NAMES
};

/// Tensor names of such a llama.
pub(crate) static GGUF_STACKS: [StackNames; 1] =
    [StackNames { prefix: MODEL, huggingface: HUGGINGFACE, gguf: GGUF_EXPERTS, more: &[] }];

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("mixtral", config);
    fields.put_usual_base(1e6);
    let mut decoder = base_config(&mut fields)?;
    decoder.names = &HUGGINGFACE;
    let count = fields.required_size("num_local_experts")?;
    decoder.experts = Some(choice(&mut fields, count, true)?);
    let window = fields.size("sliding_window")?;
    decoder.layers.iter_mut().for_each(|layer| layer.window = window);
    fields.only("attention_bias", &[json!(false)])?;
    fields.take("router_jitter_noise");
    fields.finish()?;
    Ok(decoder)
}

/// The number of experts per row.
pub(crate) fn choice(fields: &mut ConfigFields, count: usize, normalised: bool) -> Result<ExpertChoice, ConfigError> {
    let chosen = fields.required_size("num_experts_per_tok")?;
    if chosen > count {
        return Err(invalid("num_experts_per_tok", &json!(chosen), &format!("at most the number of experts, {count}")));
    }
    for field in ["output_router_logits", "router_aux_loss_coef"] {
        // Training only.
        fields.take(field);
    }
    Ok(ExpertChoice::softmax(count, chosen, normalised))
}
