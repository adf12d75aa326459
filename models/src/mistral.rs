//! Mistral (Jiang et al. 2023): llama with a sliding window, which also applies to cached positions.

use serde_json::{Map, Value};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::DecoderConfig;
use crate::family::{base_config, gguf, read_llama};
use crate::gguf::GgufDialect;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "mistral", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = gguf(read_llama);

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    // The reference's defaults differ from llama's here (a window of 4096, 8 key heads), so none is assumed. Null means
    // no window.
    for field in ["sliding_window", "num_key_value_heads"] {
        if !config.contains_key(field) {
            return Err(ConfigError::Missing(field));
        }
    }
    let mut fields = ConfigFields::new("mistral", config);
    let mut decoder = base_config(&mut fields)?;
    let window = fields.size("sliding_window")?;
    decoder.layers.iter_mut().for_each(|layer| layer.window = window);
    fields.finish()?;
    Ok(decoder)
}
