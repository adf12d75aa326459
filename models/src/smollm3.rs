//! `SmolLM3` (Bakouch et al. 2025): llama without rotation in some layers, usually every fourth.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, invalid};
use crate::decoder::DecoderConfig;
use crate::family::{base_config, gguf, llama_biases, read_interleaved, switched_off_window};
use crate::gguf::{GgufDialect, GgufError, GgufReader};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "smollm3", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = gguf(read);

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    if read_interleaved(reader, config)?.is_some() {
        return Err(reader.error("attention.sliding_window", "a window is not supported here"));
    }
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("smollm3", config);
    fields.put_usual_base(2e6);
    let mut decoder = base_config(&mut fields)?;
    decoder.tie_word_embeddings = config.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(true);
    llama_biases(&mut fields, &mut decoder)?;
    switched_off_window(&mut fields)?;
    let interval = fields.size("no_rope_layer_interval")?.unwrap_or(4);
    match fields.take("no_rope_layers") {
        // Despite its name, 1 means that the layer rotates.
        Some(value) => {
            let said = value.as_array().filter(|said| said.len() == decoder.layers.len());
            let said = said.ok_or_else(|| invalid("no_rope_layers", &value, "a 0 or 1 for each layer"))?;
            for (layer, said) in decoder.layers.iter_mut().zip(said) {
                match said.as_u64() {
                    Some(0) => layer.rotation = None,
                    Some(1) => {}
                    _ => return Err(invalid("no_rope_layers", said, "0 or 1")),
                }
            }
        }
        None => decoder.layers.iter_mut().skip(interval - 1).step_by(interval).for_each(|layer| layer.rotation = None),
    }
    fields.only("pretraining_tp", &[json!(1), json!(2)])?;
    fields.finish()?;
    Ok(decoder)
}
