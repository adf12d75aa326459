//! Text models of vision-language models, whose configuration and tensors are nested in the outer model's.

use std::path::PathBuf;

use probity_kernels::WeightType;
use serde_json::{Map, Value, json};

use crate::classes::class_names;
use crate::config::{ConfigError, ConfigFields, invalid};
use crate::source::{RawTensor, SourceError, WeightSource};

/// A vision-language model whose text model is supported.
struct Outer {
    /// `model_type`.
    name: &'static str,
    /// `model_type` of its text model: the default, and others.
    text: &'static [&'static str],
    /// Defaults of transformers that its nested text configurations omit.
    left_out: fn() -> Value,
}

const OUTER: [Outer; 5] = [
    Outer {
        name: "gemma3",
        text: &["gemma3_text"],
        left_out: || {
            json!({
                "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
                "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "query_pre_attn_scalar": 256,
                "sliding_window": 4096,
            })
        },
    },
    Outer { name: "gemma4", text: &["gemma4_text"], left_out: || json!({}) },
    Outer { name: "qwen3_5", text: &["qwen3_5_text"], left_out: || json!({}) },
    Outer { name: "qwen3_5_moe", text: &["qwen3_5_moe_text"], left_out: || json!({}) },
    Outer { name: "mistral3", text: &["mistral", "ministral3"], left_out: || json!({}) },
];

/// Fields of the parts for images, videos and sound.
const OF_OTHER_MEDIA: [&str; 21] = [
    "audio_config", "audio_token_id", "boa_token_id", "boi_token_id", "boi_token_index", "eoa_token_id",
    "eoa_token_index", "eoi_token_id", "eoi_token_index", "image_token_id", "image_token_index", "mm_tokens_per_image",
    "multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size", "video_token_id", "vision_config",
    "vision_end_token_id", "vision_feature_layer", "vision_soft_tokens_per_image", "vision_start_token_id",
];

/// Extracts the text model's configuration from that of a vision-language model; `None` for other models.
pub fn text_part(config: &Value) -> Result<Option<Value>, ConfigError> {
    let Some(map) = config.as_object() else { return Ok(None) };
    let Some(outer) = OUTER.iter().find(|outer| config["model_type"] == outer.name) else { return Ok(None) };
    let mut fields = ConfigFields::new(outer.name, map);
    for field in OF_OTHER_MEDIA {
        fields.take(field);
    }
    let text = fields.take("text_config").ok_or(ConfigError::Missing("text_config"))?;
    let Some(text) = text.as_object() else { return Err(invalid("text_config", &text, "an object")) };
    let tied = fields.take("tie_word_embeddings");
    fields.finish()?;
    // The text model's reader would not see such a class head.
    if !class_names(map)?.is_empty() {
        return Err(ConfigFields::new(outer.name, map).not_honoured("architectures", &config["architectures"]));
    }
    let mut part: Map<String, Value> = (outer.left_out)().as_object().cloned().unwrap_or_default();
    part.extend(text.iter().map(|(field, value)| (field.clone(), value.clone())));
    match part.get("model_type") {
        Some(found) if outer.text.iter().all(|text| found != text) => {
            return Err(invalid("text_config.model_type", found, &outer.text.join(" or ")));
        }
        Some(_) => {}
        None => {
            part.insert("model_type".into(), json!(outer.text[0]));
        }
    }
    if let Some(tied) = tied {
        // The outer and the nested field must agree.
        if let Some(other) = part.insert("tie_word_embeddings".into(), tied.clone()).filter(|other| *other != tied) {
            return Err(invalid("text_config.tie_word_embeddings", &other, &format!("{tied}, the outer value")));
        }
    }
    Ok(Some(Value::Object(part)))
}

/// A text model's tensors under their standalone names. Other tensors are hidden.
pub struct TextTensors<S>(pub S);

/// Prefixes of text model tensors in older and newer checkpoints, and their standalone prefixes.
const PREFIXES: [(&str, &str); 3] =
    [("language_model.model.", "model."), ("model.language_model.", "model."), ("language_model.lm_head.", "lm_head.")];

/// The standalone name of a tensor in the files; `None` for the image part.
pub fn text_tensor(name: &str) -> Option<String> {
    let inside = PREFIXES.iter().find_map(|(outer, own)| Some(format!("{own}{}", name.strip_prefix(outer)?)));
    inside.or_else(|| name.starts_with("lm_head.").then(|| name.to_owned()))
}

/// The vision-language models and their text models.
pub(crate) fn text_models() -> impl Iterator<Item = (&'static str, &'static str)> {
    OUTER.iter().map(|outer| (outer.name, outer.text[0]))
}

impl<S: WeightSource> TextTensors<S> {
    /// The name in the files for a standalone name.
    fn outer(&self, name: &str) -> String {
        let renamed = |(outer, own): &(&str, &str)| Some(format!("{outer}{}", name.strip_prefix(own)?));
        PREFIXES.iter().filter_map(renamed).find(|name| self.0.contains(name)).unwrap_or_else(|| name.to_owned())
    }
}

impl<S: WeightSource> WeightSource for TextTensors<S> {
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
        self.0.tensor(&self.outer(name))
    }

    fn stored(&self, name: &str) -> Result<(WeightType, usize), SourceError> {
        self.0.stored(&self.outer(name))
    }

    fn contains(&self, name: &str) -> bool {
        self.0.contains(&self.outer(name))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.names().iter().filter_map(|name| text_tensor(name)).collect();
        names.sort();
        names
    }

    fn path(&self) -> PathBuf {
        self.0.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_transformers_fills_in_is_there_and_what_it_does_not_is_refused() {
        let gemma = |more: Value| {
            let mut config = json!({
                "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {},
                "text_config": { "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34 },
            });
            config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            text_part(&config)
        };
        let text = gemma(json!({})).expect("supported").expect("with images");
        assert_eq!((&text["model_type"], &text["num_attention_heads"]), (&json!("gemma3_text"), &json!(8)));
        crate::read_config(&text).expect("all that is needed");
        assert_eq!(gemma(json!({ "model_type": "llama" })), Ok(None));
        for more in [
            json!({ "text_config": null }),
            json!({ "text_config": 3 }),
            json!({ "text_config": { "model_type": "llama" } }),
            json!({ "text_config": { "tie_word_embeddings": true }, "tie_word_embeddings": false }),
            json!({ "quantization_config": {} }),
            json!({ "architectures": ["Gemma3ForSequenceClassification"] }),
        ] {
            gemma(more.clone()).expect_err(&more.to_string());
        }
    }
}
