//! `DistilBERT` (Sanh et al. 2019): BERT with half of the layers, no segment types, and its own tensor names.

use probity_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::classes::{ClassActivation, ClassHeadConfig, Pooling};
use crate::config::{ConfigError, ConfigFields};
use crate::cpu::NormKind;
use crate::embeddings::{EmbeddingsConfig, PositionTable};
use crate::encoder::{EncoderShape, MaskedHeadConfig};
use crate::stack_config::{AttentionNames, LayerNames, NormNames, StackConfig, StackSizes};

static NAMES: LayerNames = LayerNames {
    layers: "transformer.layer",
    attention: AttentionNames {
        projections: ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"],
        norms: NormNames::stream("sa_layer_norm"),
    },
    head_norms: None,
    cross: None,
    router: None,
    router_correction: None,
    gate: "ffn.lin1",
    up: None,
    down: "ffn.lin2",
    shared: None,
    dense: None,
    shared_gate: None,
    feed_forward_norms: NormNames::stream("output_layer_norm"),
    layer_input: None,
    layer_scale: None,
    last_norm: None,
    relative: None,
};
/// Not part of the configuration: a constant in the reference.
const NORM_EPS: f64 = 1e-12;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "distilbert", config: ReadConfig::Encoder(config), gguf: None };

fn config(config: &Map<String, Value>) -> Result<EncoderShape, ConfigError> {
    let mut fields = ConfigFields::new("distilbert", config);
    let activation = fields.required_activation("activation")?;
    let hidden_size = fields.required_size("dim")?;
    let sizes = StackSizes::read(&mut fields, hidden_size, ["n_layers", "n_heads", "hidden_dim"])?;
    let stack = StackConfig::post_norm(sizes, activation, NORM_EPS, &NAMES);
    let vocab_size = fields.required_size("vocab_size")?;
    let positions = fields.required_size("max_position_embeddings")?;
    let tie_word_embeddings = fields.flag("tie_word_embeddings")?.unwrap_or(true);
    fields.only("tie_weights_", &[json!(true)])?;
    // Only sets the initial values of positions, which checkpoints store.
    fields.take("sinusoidal_pos_embds");
    fields.only("is_decoder", &[json!(false)])?;
    fields.only("pruned_heads", &[json!({})])?;
    fields.finish()?;
    Ok(EncoderShape {
        vocab_size,
        hidden_size,
        num_layers: stack.layers.len(),
        context_length: positions,
        tie_word_embeddings,
        prefix: "distilbert.",
        embeddings: EmbeddingsConfig {
            tokens: &["embeddings.word_embeddings.weight"],
            vocab_size,
            width: hidden_size,
            scale: None,
            positions: Some(PositionTable { name: "embeddings.position_embeddings.weight", rows: positions, first: 0 }),
            types: None,
            norm: Some(("embeddings.LayerNorm", NormKind::Layer, NORM_EPS)),
        },
        stack,
        ropes: Vec::new(),
        head: MaskedHeadConfig {
            sign: "vocab_transform.weight",
            dense: "vocab_transform",
            dense_bias: true,
            norm: "vocab_layer_norm",
            activation,
            output: "vocab_projector",
            bias: &["vocab_projector.bias"],
        },
        classes: Vec::new(),
        pooling: Pooling::First,
        class_head: ClassHeadConfig {
            dense: &["pre_classifier"],
            dense_bias: true,
            activation: ClassActivation::Other(Activation::Relu),
            norm: None,
            output: "classifier",
        },
        spare: &["embeddings.position_ids", "vocab_projector.weight", "classifier."],
    })
}
