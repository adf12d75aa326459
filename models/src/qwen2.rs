//! Qwen2 and Qwen2.5 (Yang et al. 2024): llama with biases on queries, keys and values.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::DecoderConfig;
use crate::family::{base_config, gguf, read_gguf};
use crate::gguf::GgufDialect;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "qwen2", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = gguf(|reader, config| {
    // A window in the file is one in force: it has no switch. The configuration then refuses it by name.
    if read_gguf(reader, config)?.is_some() {
        config.insert("use_sliding_window".into(), json!(true));
    }
    Ok(())
});

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("qwen2", config);
    let mut decoder = base_config(&mut fields)?;
    decoder.qkv_bias = true;
    // The window of the published models is switched off, and the switch is what counts.
    fields.only("use_sliding_window", &[json!(false)])?;
    fields.take("sliding_window");
    fields.take("max_window_layers");
    fields.only("use_mrope", &[json!(false)])?;
    fields.finish()?;
    Ok(decoder)
}
