//! `ModernBERT` (Warner et al. 2024): pre-norm sublayers, gated feed-forward layers, rotary positions, and
//! bidirectional windows in most layers.

use probity_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::Rope;
use crate::architecture::{Architecture, ReadConfig};
use crate::classes::{ClassActivation, ClassHeadConfig, Pooling};
use crate::config::{ConfigError, ConfigFields, EPSILONS, activation, invalid};
use crate::cpu::NormKind;
use crate::embeddings::EmbeddingsConfig;
use crate::encoder::{EncoderShape, MaskedHeadConfig};
use crate::rope::BASES;
use crate::stack_config::{AttentionNames, LayerBiases, LayerNames, LayerSight, NormNames, StackConfig, StackSizes};

static NAMES: LayerNames = LayerNames {
    layers: "layers",
    attention: AttentionNames {
        projections: ["attn.Wqkv", "attn.Wqkv", "attn.Wqkv", "attn.Wo"],
        norms: NormNames::stream("attn_norm"),
    },
    head_norms: None,
    cross: None,
    router: None,
    router_correction: None,
    gate: "mlp.Wi",
    up: Some("mlp.Wi"),
    down: "mlp.Wo",
    shared: None,
    dense: None,
    shared_gate: None,
    feed_forward_norms: NormNames::stream("mlp_norm"),
    layer_input: None,
    layer_scale: None,
    last_norm: Some("final_norm"),
    relative: None,
};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "modernbert", config: ReadConfig::Encoder(config), gguf: None };

fn config(config: &Map<String, Value>) -> Result<EncoderShape, ConfigError> {
    let mut fields = ConfigFields::new("modernbert", config);
    let (stack, ropes) = stack(&mut fields, config.get("local_rope_theta").is_some_and(Value::is_null))?;
    let vocab_size = fields.required_size("vocab_size")?;
    let context_length = fields.required_size("max_position_embeddings")?;
    let tie_word_embeddings = fields.flag("tie_word_embeddings")?.unwrap_or(true);
    let dense_bias = fields.flag("classifier_bias")?.unwrap_or(false);
    let decoder_bias = fields.flag("decoder_bias")?.unwrap_or(true);
    let head_activation = usual_gelu(&mut fields, "classifier_activation")?;
    let pooling = match fields.take("classifier_pooling") {
        None => Pooling::First,
        Some(name) if name == "cls" => Pooling::First,
        Some(name) if name == "mean" => Pooling::Mean,
        Some(other) => return Err(fields.not_honoured("classifier_pooling", &other)),
    };
    fields.only("position_embedding_type", &[json!("absolute")])?;
    // Settings of training and of the reference implementation, and duplicates of `norm_eps`, which is the field that
    // the reference reads.
    for field in [
        "cls_token_id", "deterministic_flash_attn", "embedding_dropout", "initializer_cutoff_factor", "layer_norm_eps",
        "mlp_dropout", "reference_compile", "repad_logits_with_grad", "sep_token_id", "sparse_pred_ignore_index",
        "sparse_prediction",
    ] {
        fields.take(field);
    }
    fields.finish()?;
    Ok(EncoderShape {
        vocab_size,
        hidden_size: stack.hidden_size,
        num_layers: stack.layers.len(),
        context_length,
        tie_word_embeddings,
        prefix: "model.",
        embeddings: EmbeddingsConfig {
            tokens: &["embeddings.tok_embeddings.weight"],
            vocab_size,
            width: stack.hidden_size,
            scale: None,
            positions: None,
            types: None,
            norm: Some(("embeddings.norm", stack.norm, stack.norm_eps)),
        },
        stack,
        ropes,
        head: MaskedHeadConfig {
            // Sequence and token classification heads have the same dense product.
            sign: match (decoder_bias, tie_word_embeddings) {
                (true, _) => "decoder.bias",
                (false, false) => "decoder.weight",
                (false, true) => "head.dense.weight",
            },
            dense: "head.dense",
            dense_bias,
            norm: "head.norm",
            activation: head_activation,
            output: "decoder",
            bias: if decoder_bias { &["decoder.bias"] } else { &[] },
        },
        classes: Vec::new(),
        pooling,
        class_head: ClassHeadConfig {
            dense: &["head.dense"],
            dense_bias,
            activation: ClassActivation::Other(head_activation),
            norm: Some("head.norm"),
            output: "classifier",
        },
        spare: &["head.", "decoder.", "classifier."],
    })
}

/// Reads an activation; the default is GELU.
fn usual_gelu(fields: &mut ConfigFields, field: &'static str) -> Result<Activation, ConfigError> {
    fields
        .take(field)
        .map_or(Ok(Activation::GeluErf), |name| activation(&name).ok_or_else(|| fields.not_honoured(field, &name)))
}

/// The layers, and the rotations of global and local layers.
fn stack(fields: &mut ConfigFields, local_is_global: bool) -> Result<(StackConfig, Vec<Rope>), ConfigError> {
    let activation = usual_gelu(fields, "hidden_activation")?;
    let norm_eps = fields.number("norm_eps", &EPSILONS)?.unwrap_or(1e-5);
    let hidden_size = fields.required_size("hidden_size")?;
    let sizes =
        StackSizes::read(fields, hidden_size, ["num_hidden_layers", "num_attention_heads", "intermediate_size"])?;
    // Rotation works on pairs of elements.
    if !(hidden_size / sizes.num_heads).is_multiple_of(2) {
        return Err(invalid("num_attention_heads", &json!(sizes.num_heads), "heads of an even width"));
    }
    let every = fields.size("global_attn_every_n_layers")?.unwrap_or(3);
    // Half of it to either side, plus the token itself.
    let window = fields.size("local_attention")?.unwrap_or(128) / 2 + 1;
    let global = fields.number("global_rope_theta", &BASES)?.unwrap_or(160_000.0);
    // Null means the global base; a missing field means the reference's default.
    let usual = if local_is_global { global } else { 10_000.0 };
    let local = fields.number("local_rope_theta", &BASES)?.unwrap_or(usual);
    let attention_bias = fields.flag("attention_bias")?.unwrap_or(false);
    let biases = LayerBiases {
        qkv: attention_bias,
        attention_output: attention_bias,
        feed_forward: fields.flag("mlp_bias")?.unwrap_or(false),
        router: false,
    };
    let has_norm_bias = fields.flag("norm_bias")?.unwrap_or(false);
    let sight = |layer: usize| match layer % every {
        0 => LayerSight { rotation: Some(0), ..LayerSight::default() },
        _ => LayerSight { window: Some(window), rotation: Some(1), ..LayerSight::default() },
    };
    let stack = StackConfig {
        layers: (0..sizes.num_layers).map(sight).collect(),
        norm: if has_norm_bias { NormKind::Layer } else { NormKind::LayerWithoutBias },
        norm_first: true,
        first_input_norm: false,
        biases,
        ..StackConfig::post_norm(sizes, activation, norm_eps, &NAMES)
    };
    Ok((stack, vec![Rope::plain(global), Rope::plain(local)]))
}
