//! Qwen2 and Qwen2.5 (Yang et al. 2024): llama with biases on queries, keys and values.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::DecoderConfig;
use crate::family::{base_config, gguf, read_halves, switched_off_window};
use crate::gguf::GgufDialect;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "qwen2", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = gguf(read_halves);

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("qwen2", config);
    let mut decoder = base_config(&mut fields)?;
    decoder.qkv_bias = true;
    switched_off_window(&mut fields)?;
    fields.only("use_mrope", &[json!(false)])?;
    fields.finish()?;
    Ok(decoder)
}
