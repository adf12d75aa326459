//! BART (Lewis et al. 2020): learned positions, post-norm sublayers, and a bias on the logits.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, token};
use crate::cpu::NormKind;
use crate::embeddings::{EmbeddingsConfig, PositionTable};
use crate::encoder_decoder::EncoderDecoderConfig;
use crate::stack_config::{AttentionNames, LayerNames, NormNames, StackConfig, StackSizes};

const SELF_ATTENTION: AttentionNames = AttentionNames {
    projections: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"],
    norms: NormNames::stream("self_attn_layer_norm"),
};
static ENCODER: LayerNames = LayerNames {
    layers: "encoder.layers",
    attention: SELF_ATTENTION,
    head_norms: None,
    cross: None,
    router: None,
    router_correction: None,
    gate: "fc1",
    up: None,
    down: "fc2",
    shared: None,
    dense: None,
    shared_gate: None,
    feed_forward_norms: NormNames::stream("final_layer_norm"),
    layer_input: None,
    layer_scale: None,
    last_norm: None,
    relative: None,
};
static DECODER: LayerNames = LayerNames {
    layers: "decoder.layers",
    cross: Some(AttentionNames {
        projections: ["encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj", "encoder_attn.out_proj"],
        norms: NormNames::stream("encoder_attn_layer_norm"),
    }),
    ..ENCODER
};
/// Not part of the configuration: the reference uses torch's default.
const NORM_EPS: f64 = 1e-5;
/// Rows of the position table before the first position, originally reserved for padding.
const POSITIONS_BEFORE: usize = 2;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "bart", config: ReadConfig::EncoderDecoder(config), gguf: None };

fn config(config: &Map<String, Value>) -> Result<EncoderDecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("bart", config);
    let decoder_start = token("decoder_start_token_id", fields.take("decoder_start_token_id").as_ref())?;
    let activation = fields.required_activation("activation_function")?;
    let hidden_size = fields.required_size("d_model")?;
    let sizes =
        StackSizes::read(&mut fields, hidden_size, ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"])?;
    let encoder = StackConfig::post_norm(sizes, activation, NORM_EPS, &ENCODER);
    let sizes =
        StackSizes::read(&mut fields, hidden_size, ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"])?;
    let decoder = StackConfig { bidirectional: false, ..StackConfig::post_norm(sizes, activation, NORM_EPS, &DECODER) };
    let (vocab_size, positions) =
        (fields.required_size("vocab_size")?, fields.required_size("max_position_embeddings")?);
    // The square root is computed in f64 and rounded once, as in the reference.
    let scale = fields.flag("scale_embedding")?.unwrap_or(false).then(|| (hidden_size as f64).sqrt() as f32);
    only_as_published(&mut fields)?;
    fields.finish()?;
    let embeddings = |tokens, name, norm| EmbeddingsConfig {
        tokens,
        vocab_size,
        width: hidden_size,
        scale,
        positions: Some(PositionTable { name, rows: positions + POSITIONS_BEFORE, first: POSITIONS_BEFORE }),
        types: None,
        norm: Some((norm, NormKind::Layer, NORM_EPS)),
    };
    let tokens = &["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"];
    Ok(EncoderDecoderConfig {
        vocab_size,
        hidden_size,
        context_length: Some(positions),
        decoder_start,
        tie_word_embeddings: true,
        prefix: "model.",
        encoder: (embeddings(tokens, "encoder.embed_positions.weight", "encoder.layernorm_embedding"), encoder),
        decoder: (embeddings(tokens, "decoder.embed_positions.weight", "decoder.layernorm_embedding"), decoder),
        hidden_scale: 1.0,
        head_bias: Some("final_logits_bias"),
        classes: None,
        // Older checkpoints store a `version` tensor.
        spare: &["embed_tokens.weight", "encoder.version", "decoder.version"],
    })
}

/// Refuses options that only variants of BART use.
fn only_as_published(fields: &mut ConfigFields) -> Result<(), ConfigError> {
    fields.only("tie_word_embeddings", &[json!(true)])?;
    fields.only("is_encoder_decoder", &[json!(true)])?;
    fields.only("is_decoder", &[json!(false)])?;
    fields.only("normalize_before", &[json!(false)])?;
    fields.only("add_final_layer_norm", &[json!(false)])?;
    fields.only("normalize_embedding", &[json!(true)])?;
    fields.only("static_position_embeddings", &[json!(false)])?;
    fields.only("add_bias_logits", &[json!(false)])?;
    fields.only("extra_pos_embeddings", &[json!(2)])?;
    // A duplicate of the encoder's layer count.
    fields.take("num_hidden_layers");
    Ok(())
}
