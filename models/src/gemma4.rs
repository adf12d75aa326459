//! Gemma 4's text models (Gemma Team 2026): Gemma 3 with larger heads in global layers, norms of values instead of a
//! factor of scores, inputs beside the residual stream, and last layers that use the keys and values of earlier ones.
//! Mixtures of experts are refused.

mod layers;
mod metadata;

use serde_json::{Map, Value, json};

use crate::Rope;
use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, MAX_LAYERS, invalid};
use crate::decoder::{DecoderConfig, HEAD_NORMS, MODEL};
use crate::family::gguf;
use crate::gemma2::{self, gemma};
use crate::gguf::{GGUF_HEAD_NORMS, GgufDialect, MAX_CONTEXT, MAX_SIZE, StackNames};
use crate::layer_inputs::LayerInputConfig;
use crate::stack_config::LayerNames;
use layers::LayerFields;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "gemma4_text", config: ReadConfig::Decoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = GgufDialect {
    name: Some("gemma4"),
    names: &[
        ("model.embed_tokens", "token_embd"),
        ("lm_head", "output"),
        ("model.embed_tokens_per_layer", "per_layer_token_embd"),
        ("model.per_layer_model_projection", "per_layer_model_proj"),
        ("model.per_layer_projection_norm", "per_layer_proj_norm"),
    ],
    stacks: |_| &GGUF_STACKS,
    sizes: &[
        ("embedding_length", "hidden_size", MAX_SIZE),
        ("attention.head_count", "num_attention_heads", MAX_SIZE),
        ("block_count", "num_hidden_layers", MAX_LAYERS),
        ("context_length", "max_position_embeddings", MAX_CONTEXT),
    ],
    more_known: &[
        "attention.key_length_swa", "attention.shared_kv_layers", "attention.sliding_window_pattern",
        "attention.value_length_swa", "embedding_length_per_layer_input", "feed_forward_length",
        "final_logit_softcapping", "rope.dimension_count_swa", "rope.freq_base_swa",
    ],
    ..gguf(metadata::read)
};

static HUGGINGFACE: LayerNames = LayerNames {
    head_norms: Some(HEAD_NORMS),
    layer_input: Some(["per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm"]),
    layer_scale: Some("layer_scalar"),
    ..gemma2::HUGGINGFACE
};

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: MODEL,
    huggingface: HUGGINGFACE,
    gguf: LayerNames {
        head_norms: Some(GGUF_HEAD_NORMS),
        layer_input: Some(["inp_gate", "proj", "post_norm"]),
        layer_scale: Some("layer_output_scale.weight"),
        ..gemma2::GGUF_LAYER
    },
    more: &[],
}];

fn config(config: &Map<String, Value>) -> Result<DecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("gemma4_text", config);
    fields.only("enable_moe_block", &[json!(false)])?;
    for field in ["moe_intermediate_size", "num_experts", "top_k_experts"] {
        fields.take(field);
    }
    // Fields of Gemma 2 and 3 that transformers ignores here.
    for field in ["attn_logit_softcapping", "query_pre_attn_scalar", "rope_scaling", "rope_theta"] {
        fields.only(field, &[])?;
    }
    // This value applies to images only.
    fields.only("use_bidirectional_attention", &[json!("vision")])?;
    fields.put("query_pre_attn_scalar", json!(1.0));
    fields.put("probity.norm_weights_whole", json!(true));
    fields.put_usual(config, "sliding_window", json!(512));
    if config.get("sliding_window") == Some(&Value::Null) {
        // The window distinguishes the types of layers.
        return Err(ConfigError::Missing("sliding_window"));
    }
    fields.put_usual(config, "hidden_size_per_layer_input", json!(256));
    fields.put_usual(config, "vocab_size_per_layer_input", json!(262_144));
    let inputs =
        (fields.count("hidden_size_per_layer_input")?.unwrap_or(0), fields.size("vocab_size_per_layer_input")?);
    let ropes = fields.take("rope_parameters");
    let layers = LayerFields::take(&mut fields)?;
    let mut decoder = gemma(&mut fields, |layer| (layer + 1) % 6 != 0)?;
    if decoder.layers.last().is_some_and(|layer| layer.window.is_some()) {
        // transformers gives the last layer another type.
        return Err(invalid("layer_types", &json!("sliding_attention"), "full_attention for the last layer"));
    }
    let [sliding, full] = layers.key_heads(&decoder)?;
    decoder.ropes = read_ropes(&mut fields, ropes, decoder.context_length)?;
    decoder.ropes[0].rotary_dim = Some(full.dim);
    decoder.ropes[1].rotary_dim = Some(sliding.dim);
    layers.assign(&mut decoder, [sliding, full])?;
    decoder.layer_inputs = match inputs {
        (0, _) => None,
        (width, Some(vocab_size)) => Some(LayerInputConfig { width, vocab_size }),
        (_, None) => return Err(ConfigError::Missing("vocab_size_per_layer_input")),
    };
    (decoder.value_norm, decoder.names) = (true, &HUGGINGFACE);
    fields.finish()?;
    Ok(decoder)
}

/// The rotations of global layers and of layers with a window.
fn read_ropes(fields: &mut ConfigFields, given: Option<Value>, context: usize) -> Result<Vec<Rope>, ConfigError> {
    let given = given.unwrap_or_else(|| {
        json!({
            "full_attention": { "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6 },
            "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 },
        })
    });
    let mut both = match given.as_object() {
        Some(map) => ConfigFields::new("gemma4_text", map),
        None => return Err(invalid("rope_parameters", &given, "an object")),
    };
    let mut rope = |kind: &'static str| {
        let one = both.take(kind).filter(|one| one["rope_theta"].is_number()).ok_or(ConfigError::Missing(kind))?;
        fields.put("rope_parameters", one);
        Rope::from_fields(fields, context)
    };
    let ropes = vec![rope("full_attention")?, rope("sliding_attention")?];
    both.finish()?;
    Ok(ropes)
}
