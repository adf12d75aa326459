//! `RoBERTa` (Liu et al. 2019): BERT with positions that start after the padding id, and other tensor names in the
//! head.

use probity_kernels::Activation;
use serde_json::{Map, Value};

use crate::architecture::{Architecture, ReadConfig};
use crate::bert::base_config;
use crate::classes::{ClassActivation, ClassHeadConfig};
use crate::config::{ConfigError, ConfigFields, token};
use crate::encoder::{EncoderShape, MaskedHeadConfig};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "roberta", config: ReadConfig::Encoder(config), gguf: None };

fn config(config: &Map<String, Value>) -> Result<EncoderShape, ConfigError> {
    let mut fields = ConfigFields::new("roberta", config);
    // Positions are counted from the padding id, so a text's first row is the next one. 1 is the reference's default.
    let padding = config.get("pad_token_id").map_or(Ok(1), |id| token("pad_token_id", Some(id)))?;
    let mut encoder = base_config(&mut fields, padding as usize + 1)?;
    encoder.prefix = "roberta.";
    encoder.head = MaskedHeadConfig {
        sign: "lm_head.dense.weight",
        dense: "lm_head.dense",
        dense_bias: true,
        norm: "lm_head.layer_norm",
        // The reference's head always uses this function, independent of `hidden_act`.
        activation: Activation::GeluErf,
        output: "lm_head.decoder",
        bias: &["lm_head.bias", "lm_head.decoder.bias"],
    };
    encoder.class_head = ClassHeadConfig {
        dense: &["classifier.dense"],
        dense_bias: true,
        activation: ClassActivation::Tanh,
        norm: None,
        output: "classifier.out_proj",
    };
    encoder.spare = &["embeddings.position_ids", "pooler.", "lm_head.decoder.", "classifier."];
    fields.finish()?;
    Ok(encoder)
}
