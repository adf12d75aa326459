//! The registry of architectures, and the fields that the llama family shares.

use probity_kernels::RopeLayout;
use serde_json::{Map, Value, json};

use crate::config::{ConfigError, EPSILONS, Fields, invalid};
use crate::decoder::{DecoderConfig, LlamaFamily};
use crate::encoder::{EncoderConfig, MaskedModel};
use crate::encoder_decoder::{EncoderDecoder, EncoderDecoderConfig};
use crate::packed::{Decoder, Encoder};
use crate::{Compute, Rope, SourceError, WeightSource, bart, bert, distilbert, llama, mistral, qwen2, roberta, t5};

type ConfigReader = fn(&Map<String, Value>) -> Result<ModelConfig, ConfigError>;

/// Every architecture: `model_type` and how its configuration is read.
const ARCHITECTURES: &[(&str, ConfigReader)] = &[
    ("bart", |config| bart::config(config).map(Box::new).map(ModelConfig::EncoderDecoder)),
    ("bert", |config| bert::config(config).map(Box::new).map(ModelConfig::Encoder)),
    ("distilbert", |config| distilbert::config(config).map(Box::new).map(ModelConfig::Encoder)),
    ("llama", |config| llama::config(config).map(ModelConfig::Decoder)),
    ("mistral", |config| mistral::config(config).map(ModelConfig::Decoder)),
    ("qwen2", |config| qwen2::config(config).map(ModelConfig::Decoder)),
    ("roberta", |config| roberta::config(config).map(Box::new).map(ModelConfig::Encoder)),
    ("t5", |config| t5::config(config).map(Box::new).map(ModelConfig::EncoderDecoder)),
];

/// What a configuration describes.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelConfig {
    /// A language model that reads from left to right.
    Decoder(DecoderConfig),
    /// An encoder reads a source, and a decoder writes from left to right.
    EncoderDecoder(Box<EncoderDecoderConfig>),
    /// A model that reads a text as a whole.
    Encoder(Box<EncoderConfig>),
}

impl ModelConfig {
    /// Rows of the embedding.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Decoder(config) => config.vocab_size,
            Self::EncoderDecoder(config) => config.vocab_size,
            Self::Encoder(config) => config.vocab_size,
        }
    }

    /// Tokens that a text may have; absent where no number is wrong.
    pub fn context_length(&self) -> Option<usize> {
        match self {
            Self::Decoder(config) => Some(config.context_length),
            Self::EncoderDecoder(config) => config.context_length,
            Self::Encoder(config) => Some(config.context_length),
        }
    }

    /// The configuration of a decoder-only model, where it is one.
    pub fn decoder(self) -> Option<DecoderConfig> {
        if let Self::Decoder(config) = self { Some(config) } else { None }
    }

    /// Whether checkpoints may carry a tensor of that name that the architecture does not use: tables that follow from
    /// the configuration, the head that is the embedding, heads of other tasks.
    pub fn is_spare(&self, name: &str) -> bool {
        let any = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        match self {
            Self::Decoder(config) => {
                name.ends_with("rotary_emb.inv_freq") || (config.tie_word_embeddings && name == "lm_head.weight")
            }
            Self::EncoderDecoder(config) => {
                any(config.spare) || (config.tie_word_embeddings && name == "lm_head.weight")
            }
            Self::Encoder(config) => any(config.spare),
        }
    }
}

/// The names in the registry.
pub fn architectures() -> Vec<&'static str> {
    ARCHITECTURES.iter().map(|(name, _)| *name).collect()
}

/// Reads a `config.json`, or what a GGUF file says in its place, by its `model_type`. What only a GGUF file can say
/// stands in fields `probity.*`.
pub fn read_config(config: &Value) -> Result<ModelConfig, ConfigError> {
    let Some(map) = config.as_object() else { return Err(invalid("config.json", config, "an object")) };
    let found = map.get("model_type").and_then(Value::as_str).ok_or(ConfigError::Missing("model_type"))?;
    match ARCHITECTURES.iter().find(|(name, _)| *name == found) {
        Some((_, read)) => read(map),
        None => Err(ConfigError::Architecture { found: found.to_owned(), supported: architectures() }),
    }
}

/// Loads a decoder's weights and packs them for our kernels. The file's pages are let go as soon as their tensor is
/// packed.
pub fn load_decoder(
    source: &dyn WeightSource,
    config: DecoderConfig,
    compute: impl Into<Compute>,
) -> Result<Box<dyn Decoder>, SourceError> {
    Ok(Box::new(LlamaFamily::load(source, config, compute.into())?))
}

/// As [`load_decoder`], for an encoder-decoder.
pub fn load_encoder_decoder(
    source: &dyn WeightSource,
    config: &EncoderDecoderConfig,
    compute: impl Into<Compute>,
) -> Result<Box<dyn Decoder>, SourceError> {
    Ok(Box::new(EncoderDecoder::load(source, config, compute.into())?))
}

/// As [`load_decoder`], for an encoder.
pub fn load_encoder(
    source: &dyn WeightSource,
    config: &EncoderConfig,
    compute: impl Into<Compute>,
) -> Result<Box<dyn Encoder>, SourceError> {
    Ok(Box::new(MaskedModel::load(source, config, compute.into())?))
}

/// The fields of every member of the family, with llama's defaults.
pub(crate) fn base_config(fields: &mut Fields) -> Result<DecoderConfig, ConfigError> {
    let hidden_size = fields.required_size("hidden_size")?;
    let num_heads = fields.required_size("num_attention_heads")?;
    let num_kv_heads = fields.size("num_key_value_heads")?.unwrap_or(num_heads);
    let head_dim = match fields.size("head_dim")? {
        Some(head_dim) => head_dim,
        None if hidden_size.is_multiple_of(num_heads) => hidden_size / num_heads,
        None => {
            return Err(invalid(
                "hidden_size",
                &json!(hidden_size),
                "a multiple of num_attention_heads where head_dim is absent",
            ));
        }
    };
    if !num_heads.is_multiple_of(num_kv_heads) {
        return Err(invalid("num_key_value_heads", &json!(num_kv_heads), "a divisor of num_attention_heads"));
    }
    if !head_dim.is_multiple_of(2) {
        return Err(invalid("head_dim", &json!(head_dim), "an even number"));
    }
    fields.only("hidden_act", &[json!("silu"), json!("swish")])?;
    let num_layers = fields.required_size("num_hidden_layers")?;
    layer_types(fields)?;
    let rope_layout = if fields.flag("probity.rope_interleaved")?.unwrap_or(false) {
        RopeLayout::Interleaved
    } else {
        RopeLayout::Halves
    };
    // Said by some exports of checkpoints whose rows lie in halves; true means another order than the reference reads.
    fields.only("rope_interleaved", &[json!(false)])?;
    fields.only("partial_rotary_factor", &[json!(1.0), json!(1)])?;
    Ok(DecoderConfig {
        hidden_size,
        intermediate_size: fields.required_size("intermediate_size")?,
        num_layers,
        num_heads,
        num_kv_heads,
        head_dim,
        vocab_size: fields.required_size("vocab_size")?,
        context_length: fields.required_size("max_position_embeddings")?,
        rms_norm_eps: fields.number("rms_norm_eps", &EPSILONS)?.ok_or(ConfigError::Missing("rms_norm_eps"))?,
        rope: Rope::from_fields(fields)?,
        rope_freq_factors: fields.flag("probity.rope_freq_factors")?.unwrap_or(false),
        rope_layout,
        sliding_window: None,
        tie_word_embeddings: fields.flag("tie_word_embeddings")?.unwrap_or(false),
        qkv_bias: false,
        attention_output_bias: false,
        mlp_bias: false,
    })
}

/// A list of layer types must say the same of every layer; the window itself stands in its own field.
fn layer_types(fields: &mut Fields) -> Result<(), ConfigError> {
    let Some(value) = fields.take("layer_types") else { return Ok(()) };
    let kinds = value.as_array().ok_or_else(|| invalid("layer_types", &value, "a list"))?;
    let uniform = kinds.windows(2).all(|pair| pair[0] == pair[1]);
    let known = kinds.first().is_none_or(|kind| kind == "full_attention" || kind == "sliding_attention");
    if uniform && known { Ok(()) } else { Err(fields.not_honoured("layer_types", &value)) }
}
