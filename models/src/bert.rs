//! BERT (Devlin et al. 2019) and models with its checkpoint layout, such as `MiniLM`. Only the first segment type is
//! used.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::classes::{ClassActivation, ClassHeadConfig, Pooling};
use crate::config::{ConfigError, ConfigFields, EPSILONS, MAX_LAYERS, invalid};
use crate::cpu::NormKind;
use crate::embeddings::{EmbeddingsConfig, PositionTable};
use crate::encoder::{EncoderShape, MaskedHeadConfig};
use crate::gguf::{GgufDialect, LAYER, MAX_CONTEXT, MAX_SIZE, StackNames};
use crate::stack_config::{AttentionNames, LayerNames, NormNames, StackConfig, StackSizes};

/// Shared with later models.
pub(crate) static NAMES: LayerNames = LayerNames {
    layers: "encoder.layer",
    attention: AttentionNames {
        projections: ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"],
        norms: NormNames::stream("attention.output.LayerNorm"),
    },
    head_norms: None,
    cross: None,
    router: None,
    router_correction: None,
    gate: "intermediate.dense",
    up: None,
    down: "output.dense",
    shared: None,
    dense: None,
    shared_gate: None,
    feed_forward_norms: NormNames::stream("output.LayerNorm"),
    layer_input: None,
    layer_scale: None,
    last_norm: None,
    relative: None,
};

/// The kind of pooling of models with a class head.
const RANK: u64 = 4;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "bert", config: ReadConfig::Encoder(config), gguf: Some(&GGUF) };

static GGUF: GgufDialect = GgufDialect {
    name: None,
    names: &[
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("embeddings.position_embeddings", "position_embd"),
        ("embeddings.LayerNorm", "token_embd_norm"),
    ],
    stacks: |_| &GGUF_STACKS,
    sizes: &[
        ("embedding_length", "hidden_size", MAX_SIZE),
        ("feed_forward_length", "intermediate_size", MAX_SIZE),
        ("attention.head_count", "num_attention_heads", MAX_SIZE),
        ("block_count", "num_hidden_layers", MAX_LAYERS),
        ("context_length", "max_position_embeddings", MAX_CONTEXT),
    ],
    // `pooling_type` concerns sentence embeddings, not the encoder.
    known: &[
        "attention.causal", "attention.head_count_kv", "attention.layer_norm_epsilon", "classifier.output_labels",
        "pooling_type",
    ],
    more_known: &[],
    more: |reader, config| {
        // llama.cpp's converter writes `false`. Causal BERT exists (a decoder), but is a different model.
        if reader.bool("attention.causal")? == Some(true) {
            return Err(reader.error("attention.causal", "a bert sees the whole text, and this one does not"));
        }
        if reader.integer("pooling_type", MAX_SIZE).is_ok_and(|kind| kind == Some(RANK))
            || reader.has("cls.output.weight")
        {
            let why = "class heads are not read from GGUF files, in which the pooler of a bert's head is missing; use \
                       the model's safetensors";
            return Err(reader.error("pooling_type", why));
        }
        config.insert("layer_norm_eps".into(), json!(reader.float("attention.layer_norm_epsilon")?.unwrap_or(1e-12)));
        // GGUF has no key for the activation: llama.cpp supports BERT only with GELU.
        config.insert("hidden_act".into(), json!("gelu"));
        config.insert("type_vocab_size".into(), json!(reader.rows("token_types.weight").unwrap_or(2)));
        Ok(())
    },
};

static GGUF_STACKS: [StackNames; 1] = [StackNames {
    prefix: "",
    huggingface: NAMES,
    gguf: LayerNames {
        attention: AttentionNames { norms: NormNames::stream("attn_output_norm"), ..LAYER.attention },
        // Our `gate` is the activated product. GGUF calls it `ffn_up` in layers without gating.
        router: None,
        router_correction: None,
        gate: "ffn_up",
        up: None,
        feed_forward_norms: NormNames::stream("layer_output_norm"),
        last_norm: None,
        ..LAYER
    },
    more: &[],
}];

fn config(config: &Map<String, Value>) -> Result<EncoderShape, ConfigError> {
    let mut fields = ConfigFields::new("bert", config);
    let encoder = base_config(&mut fields, 0)?;
    // The pooler of the first token, which is not used.
    for field in [
        "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
        "pooler_size_per_head",
    ] {
        fields.take(field);
    }
    fields.take("pooler_type");
    fields.finish()?;
    Ok(encoder)
}

/// The fields shared with `RoBERTa`, which has another `first_position`.
pub(crate) fn base_config(fields: &mut ConfigFields, first_position: usize) -> Result<EncoderShape, ConfigError> {
    let norm_eps = fields.number("layer_norm_eps", &EPSILONS)?.unwrap_or(1e-12);
    let activation = fields.required_activation("hidden_act")?;
    let hidden_size = fields.required_size("hidden_size")?;
    let sizes =
        StackSizes::read(fields, hidden_size, ["num_hidden_layers", "num_attention_heads", "intermediate_size"])?;
    let stack = StackConfig::post_norm(sizes, activation, norm_eps, &NAMES);
    let vocab_size = fields.required_size("vocab_size")?;
    let positions = fields.required_size("max_position_embeddings")?;
    // Found by a fuzzer: the position table would end before the first row that a text uses.
    if positions <= first_position {
        let why = format!("more than the {first_position} rows before the first position, which follows pad_token_id");
        return Err(invalid("max_position_embeddings", &json!(positions), &why));
    }
    let types = fields.size("type_vocab_size")?.unwrap_or(2);
    fields.only("position_embedding_type", &[json!("absolute")])?;
    fields.only("is_decoder", &[json!(false)])?;
    fields.only("is_encoder_decoder", &[json!(false)])?;
    fields.only("add_cross_attention", &[json!(false)])?;
    fields.only("pruned_heads", &[json!({})])?;
    Ok(EncoderShape {
        vocab_size,
        hidden_size,
        num_layers: stack.layers.len(),
        context_length: positions - first_position,
        tie_word_embeddings: fields.flag("tie_word_embeddings")?.unwrap_or(true),
        prefix: "bert.",
        embeddings: EmbeddingsConfig {
            tokens: &["embeddings.word_embeddings.weight"],
            vocab_size,
            width: hidden_size,
            scale: None,
            positions: Some(PositionTable {
                name: "embeddings.position_embeddings.weight",
                rows: positions,
                first: first_position,
            }),
            types: Some(("embeddings.token_type_embeddings.weight", types)),
            norm: Some(("embeddings.LayerNorm", NormKind::Layer, norm_eps)),
        },
        stack,
        ropes: Vec::new(),
        head: MaskedHeadConfig {
            sign: "cls.predictions.transform.dense.weight",
            dense: "cls.predictions.transform.dense",
            dense_bias: true,
            norm: "cls.predictions.transform.LayerNorm",
            activation,
            output: "cls.predictions.decoder",
            bias: &["cls.predictions.bias", "cls.predictions.decoder.bias"],
        },
        classes: Vec::new(),
        pooling: Pooling::First,
        class_head: ClassHeadConfig {
            dense: &["bert.pooler.dense", "pooler.dense"],
            dense_bias: true,
            activation: ClassActivation::Tanh,
            norm: None,
            output: "classifier",
        },
        spare: &[
            "embeddings.position_ids", "pooler.", "cls.seq_relationship.", "cls.predictions.decoder.", "classifier.",
        ],
    })
}
