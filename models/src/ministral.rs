//! Ministral: mistral with windows in some layers.

use serde_json::{Map, Value};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::decoder::DecoderConfig;
use crate::family::{base_config, set_windows};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "ministral", config: ReadConfig::Decoder(config), gguf: None };

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    // No defaults are assumed, as in mistral.
    for field in ["sliding_window", "num_key_value_heads"] {
        if !config.contains_key(field) {
            return Err(ConfigError::Missing(field));
        }
    }
    let mut fields = ConfigFields::new("ministral", config);
    let kinds = fields.take("layer_types");
    let window = fields.size("sliding_window")?;
    let mut decoder = base_config(&mut fields)?;
    set_windows(&fields, &mut decoder, window, kinds.as_ref(), |_| true)?;
    fields.finish()?;
    Ok(decoder)
}
