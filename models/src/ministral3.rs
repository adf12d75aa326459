//! Ministral 3 and other models of Mistral AI from December 2025: mistral with `YaRN`, and scores that grow with the
//! position.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, invalid, number_in, require};
use crate::decoder::DecoderConfig;
use crate::family::{base_config, gguf, read_llama};
use crate::gguf::{GgufDialect, GgufError, GgufReader};
use crate::rope::{FACTORS, RopeScaling};
use crate::stack_config::Temperature;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "ministral3", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

/// Converters also give this name to older models of Mistral AI with an image part.
static GGUF: GgufDialect = GgufDialect {
    name: Some("mistral3"),
    more_known: &["attention.temperature_scale", "rope.scaling.yarn_log_multiplier"],
    ..gguf(read)
};

/// The growth of scores with the position.
const BETA: &str = "llama_4_scaling_beta";

fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    read_llama(reader, config)?;
    let scaling = config.get_mut("rope_scaling").and_then(Value::as_object_mut);
    let scaling = scaling.filter(|scaling| scaling["rope_type"] == "yarn");
    let (growth, log) = ("attention.temperature_scale", "rope.scaling.yarn_log_multiplier");
    let factor = if reader.is_zero(log) { Some(0.0) } else { reader.float(log)? };
    match (scaling, reader.float(growth)?, factor) {
        (None, None, None) => {}
        (Some(scaling), Some(beta), Some(factor)) => {
            // llama.cpp computes the factor of sines and cosines from this key. Zero means `YaRN`'s own factor.
            if factor > 0.0 {
                scaling.shift_remove("attention_factor");
                scaling.insert("mscale".into(), json!(1.0));
                scaling.insert("mscale_all_dim".into(), json!(factor));
            }
            scaling.insert(BETA.into(), json!(beta));
            config.insert("model_type".into(), json!("ministral3"));
        }
        (None, ..) => return Err(reader.error("rope.scaling.type", "it is not yarn, though the file scales scores")),
        (_, None, _) => return Err(reader.error(growth, "it is missing")),
        (.., None) => return Err(reader.error(log, "it is missing")),
    }
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    // The reference's defaults follow from no other field.
    require(config, &["num_key_value_heads", "head_dim"])?;
    let mut fields = ConfigFields::new("ministral3", config);
    let field = "rope_parameters.llama_4_scaling_beta";
    let beta = fields.take_of_rope(BETA).ok_or(ConfigError::Missing(field))?;
    let beta = number_in(field, &beta, &(0.0..=*FACTORS.end()))?;
    let window = fields.size("sliding_window")?;
    // A copy of the outer field, which the reference does not read.
    fields.take_of_rope("max_position_embeddings");
    let mut decoder = base_config(&mut fields)?;
    decoder.layers.iter_mut().for_each(|layer| layer.window = window);
    let RopeScaling::Yarn { original_max_position: length, .. } = decoder.ropes[0].scaling else {
        let kind = config.get("rope_parameters").and_then(|rope| rope.get("rope_type")).unwrap_or(&Value::Null);
        return Err(invalid("rope_parameters.rope_type", kind, "yarn"));
    };
    decoder.temperature = Some(Temperature { beta, length });
    fields.finish()?;
    Ok(decoder)
}
