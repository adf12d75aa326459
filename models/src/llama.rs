//! Llama 1 to 3 (Touvron et al. 2023; Dubey et al. 2024) and models with its checkpoint layout, such as `SmolLM2`.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::DecoderConfig;
use crate::family::{GGUF_STACKS, base_config, gguf, llama_biases, read_llama};
use crate::gguf::GgufDialect;
use crate::mixtral;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "llama", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

/// How GGUF files describe it.
pub(crate) static GGUF: GgufDialect = GgufDialect {
    name: Some("llama"),
    stacks: |has| if has("blk.0.ffn_gate_inp.weight") { &mixtral::GGUF_STACKS } else { &GGUF_STACKS },
    more_known: &["expert_count", "expert_used_count"],
    ..gguf(read_llama)
};

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("llama", config);
    let mut decoder = base_config(&mut fields)?;
    llama_biases(&mut fields, &mut decoder)?;
    fields.only("is_llama_config", &[json!(true)])?;
    fields.finish()?;
    Ok(decoder)
}
