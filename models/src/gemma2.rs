//! Gemma 2 (Gemma Team 2024): norms before and after each sublayer, windows in every other layer, and soft caps of
//! scores and logits.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields};
use crate::cpu::NormKind;
use crate::decoder::{DecoderConfig, MODEL, NAMES};
use crate::family::{base_config, gguf, read_gguf, set_windows};
use crate::gguf::{GgufDialect, GgufError, GgufReader, LAYER, StackNames};
use crate::rope::FACTORS;
use crate::stack_config::{AttentionNames, LayerNames, NormNames};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "gemma2", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = GgufDialect {
    stacks: |_| &GGUF_STACKS,
    more_known: &["attn_logit_softcapping", "final_logit_softcapping"],
    ..gguf(read)
};

/// Tensor names of a layer with norms before and after each sublayer.
pub(crate) static HUGGINGFACE: LayerNames = LayerNames {
    attention: AttentionNames {
        norms: NormNames { stream: Some("input_layernorm"), branch: Some("post_attention_layernorm") },
        ..NAMES.attention
    },
    feed_forward_norms: NormNames {
        stream: Some("pre_feedforward_layernorm"),
        branch: Some("post_feedforward_layernorm"),
    },
    ..NAMES
};

/// The same names in GGUF files.
pub(crate) const GGUF_LAYER: LayerNames = LayerNames {
    attention: AttentionNames {
        norms: NormNames { stream: Some("attn_norm"), branch: Some("post_attention_norm") },
        ..LAYER.attention
    },
    feed_forward_norms: NormNames { stream: Some("ffn_norm"), branch: Some("post_ffw_norm") },
    ..LAYER
};

static GGUF_STACKS: [StackNames; 1] =
    [StackNames { prefix: MODEL, huggingface: HUGGINGFACE, gguf: GGUF_LAYER, more: &[] }];

/// Number of layers of the largest Gemma 2 and Gemma 3, which have a different score factor. GGUF has no key for it.
const LARGEST: [(&str, u64); 2] = [("gemma2", 46), ("gemma3", 62)];

/// Reads the fields that files of both generations have.
pub(crate) fn read(reader: &GgufReader<'_>, config: &mut Map<String, Value>) -> Result<(), GgufError> {
    read_gguf(reader, config)?;
    config.remove("hidden_act");
    let size = |field: &str| config[field].as_u64().expect("a size was read");
    let is_largest = LARGEST.contains(&(reader.architecture, size("num_hidden_layers")));
    let scalar = if is_largest { size("hidden_size") / size("num_attention_heads") } else { size("head_dim") };
    config.insert("query_pre_attn_scalar".into(), json!(scalar));
    // Converters add one to the norm weights.
    config.insert("probity.norm_weights_whole".into(), json!(true));
    for field in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if let Some(cap) = reader.float(field)? {
            config.insert(field.into(), json!(cap));
        }
    }
    Ok(())
}

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("gemma2", config);
    fields.put_usual(config, "attn_logit_softcapping", json!(50.0));
    fields.put_usual(config, "final_logit_softcapping", json!(30.0));
    fields.put_usual(config, "sliding_window", json!(4096));
    let mut decoder = gemma(&mut fields, |layer| layer % 2 == 0)?;
    decoder.names = &HUGGINGFACE;
    fields.finish()?;
    Ok(decoder)
}

/// Reads the fields of both generations. `has_window` decides for each layer if there is no list of layer types.
pub(crate) fn gemma(
    fields: &mut ConfigFields,
    has_window: impl Fn(usize) -> bool,
) -> Result<DecoderConfig, ConfigError> {
    let kinds = fields.take("layer_types");
    // Tied by default.
    let tied = fields.flag("tie_word_embeddings")?.unwrap_or(true);
    let activation = fields.take("hidden_activation").or_else(|| fields.take("hidden_act"));
    let name = activation.unwrap_or_else(|| json!("gelu_pytorch_tanh"));
    fields.put("hidden_act", name);
    let scalar =
        fields.number("query_pre_attn_scalar", &FACTORS)?.ok_or(ConfigError::Missing("query_pre_attn_scalar"))?;
    let window = fields.size("sliding_window")?;
    let mut decoder = base_config(fields)?;
    set_windows(fields, &mut decoder, window, kinds.as_ref(), has_window)?;
    decoder.tie_word_embeddings = tied;
    decoder.embedding_scale = (decoder.hidden_size as f64).sqrt() as f32;
    decoder.score_scale = scalar.powf(-0.5) as f32;
    decoder.score_cap = fields.number("attn_logit_softcapping", &FACTORS)?.map(|cap| cap as f32);
    decoder.logit_cap = fields.number("final_logit_softcapping", &FACTORS)?.map(|cap| cap as f32);
    let bias = fields.flag("attention_bias")?.unwrap_or(false);
    (decoder.qkv_bias, decoder.attention_output_bias) = (bias, bias);
    let whole = fields.flag("probity.norm_weights_whole")?.unwrap_or(false);
    decoder.norm = if whole { NormKind::RootMeanSquare } else { NormKind::RootMeanSquareLessOne };
    fields.only("use_bidirectional_attention", &[json!(false)])?;
    fields.take("cache_implementation");
    Ok(decoder)
}
