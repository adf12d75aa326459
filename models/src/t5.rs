//! T5 (Raffel et al. 2020), version 1.1 (Shazeer 2020) and Flan-T5 (Chung et al. 2022): relative positions, RMS norms,
//! unscaled scores.

use probity_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::config::{ConfigError, ConfigFields, EPSILONS, MAX_LAYERS, activation, invalid, token};
use crate::cpu::NormKind;
use crate::embeddings::EmbeddingsConfig;
use crate::encoder_decoder::EncoderDecoderConfig;
use crate::gguf::{GgufDialect, LAYER, MAX_SIZE, StackNames};
use crate::relative::RelativeBuckets;
use crate::stack_config::{AttentionNames, LayerBiases, LayerNames, LayerSight, NormNames, StackConfig};

/// Bounds the table of one bias per distance and head. Published models have 128 distances; a fuzzer requested 168
/// million (2 GB).
const MAX_DISTANCE: usize = 1 << 16;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "t5", config: ReadConfig::EncoderDecoder(config), gguf: Some(&GGUF) };

/// T5 and Flan-T5, which differ in their feed-forward layers. Positions are relative, so the training length is not a
/// limit.
static GGUF: GgufDialect = GgufDialect {
    name: None,
    names: &[("shared", "token_embd"), ("lm_head", "output")],
    stacks: |has| &GGUF_STACKS[usize::from(has(GGUF_GATE))],
    sizes: &[
        ("block_count", "num_layers", MAX_LAYERS),
        ("embedding_length", "d_model", MAX_SIZE),
        ("feed_forward_length", "d_ff", MAX_SIZE),
        ("attention.key_length", "d_kv", MAX_SIZE),
        ("attention.head_count", "num_heads", MAX_SIZE),
        ("attention.relative_buckets_count", "relative_attention_num_buckets", MAX_SIZE),
    ],
    // Key head counts and value lengths are not read: other values imply other tensor shapes, which loading refuses.
    known: &[
        "attention.head_count_kv", "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon",
        "attention.value_length", "context_length", "decoder_block_count", "decoder_start_token_id",
    ],
    more_known: &[],
    more: |reader, config| {
        let layers =
            reader.integer("decoder_block_count", MAX_LAYERS)?.map_or(config["num_layers"].clone(), Value::from);
        // llama.cpp's converter writes the same number to both keys.
        let [plain, rms] = ["attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"];
        let (of_plain, of_rms) = (reader.float(plain)?, reader.float(rms)?);
        if let (Some(one), Some(other)) = (of_plain, of_rms)
            && one != other
        {
            return Err(reader.error(plain, format!("it is {one}, but {rms} is {other}")));
        }
        let norm_eps = of_rms.or(of_plain).unwrap_or(1e-6);
        config.insert("num_decoder_layers".into(), layers);
        config.insert("layer_norm_epsilon".into(), json!(norm_eps));
        // GGUF has no key for the activation. Gated models are version 1.1 and Flan-T5, the others the original T5.
        config.insert("feed_forward_proj".into(), json!(if reader.has(GGUF_GATE) { "gated-gelu" } else { "relu" }));
        // No key for this: converters omit the head if it is tied.
        config.insert("tie_word_embeddings".into(), json!(!reader.has("output.weight")));
        let padding = reader.file.token_id("tokenizer.ggml.padding_token_id")?;
        let ids = [("decoder_start_token_id", reader.token_id("decoder_start_token_id")?), ("pad_token_id", padding)];
        config.extend(ids.into_iter().filter_map(|(name, id)| Some((name.to_owned(), json!(id?)))));
        Ok(())
    },
};

fn config(config: &Map<String, Value>) -> Result<EncoderDecoderConfig, ConfigError> {
    let mut fields = ConfigFields::new("t5", config);
    // By default, T5's decoder begins with padding. The id is read from `config`, because `fields` drops it as
    // irrelevant.
    let start = fields.take("decoder_start_token_id").or_else(|| config.get("pad_token_id").cloned());
    let decoder_start = token("decoder_start_token_id", start.as_ref())?;
    let (activation, gated) = feed_forward(&mut fields)?;
    let hidden_size = fields.required_size("d_model")?;
    let num_layers = fields.required_layers("num_layers")?;
    let num_heads = fields.required_size("num_heads")?;
    let encoder = StackConfig {
        hidden_size,
        intermediate_size: fields.required_size("d_ff")?,
        experts: None,
        layers: vec![LayerSight::default(); num_layers],
        layer_inputs: None,
        num_heads,
        num_kv_heads: num_heads,
        head_dim: fields.required_size("d_kv")?,
        // T5 initialises queries such that scores need no factor.
        score_scale: 1.0,
        score_cap: None,
        temperature: None,
        sinks: None,
        output_gate: false,
        recurrence: None,
        bidirectional: true,
        relative: Some(relative(&mut fields)?),
        disentangled: None,
        norm: NormKind::RootMeanSquare,
        value_norm: false,
        norm_eps: fields.number("layer_norm_epsilon", &EPSILONS)?.unwrap_or(1e-6),
        norm_first: true,
        first_input_norm: true,
        branch_scale: 1.0,
        activation,
        biases: LayerBiases::NONE,
        names: &NAMES[0][usize::from(gated)],
    };
    let decoder = StackConfig {
        layers: vec![LayerSight::default(); fields.layers("num_decoder_layers")?.unwrap_or(num_layers)],
        bidirectional: false,
        // The decoder uses all buckets for earlier positions. With the encoder's formula, as in candle, logits were 0.4
        // to 1.7 off from position 9 on.
        relative: encoder.relative.map(|buckets| RelativeBuckets { bidirectional: false, ..buckets }),
        names: &NAMES[1][usize::from(gated)],
        ..encoder.clone()
    };
    let vocab_size = fields.required_size("vocab_size")?;
    let tie_word_embeddings = fields.flag("tie_word_embeddings")?.unwrap_or(true);
    fields.only("is_encoder_decoder", &[json!(true)])?;
    fields.only("tie_encoder_decoder", &[json!(false)])?;
    fields.only("is_decoder", &[json!(false)])?;
    // The training length; positions are relative.
    fields.take("n_positions");
    fields.finish()?;
    let embeddings = EmbeddingsConfig {
        tokens: &["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"],
        vocab_size,
        width: hidden_size,
        scale: None,
        positions: None,
        types: None,
        norm: None,
    };
    Ok(EncoderDecoderConfig {
        vocab_size,
        hidden_size,
        context_length: None,
        decoder_start,
        tie_word_embeddings,
        // Used by models with a class head.
        prefix: "transformer.",
        encoder: (embeddings.clone(), encoder),
        decoder: (embeddings, decoder),
        // Tied embeddings have a large scale; the untied head of later versions does not.
        hidden_scale: if tie_word_embeddings { (hidden_size as f64).powf(-0.5) as f32 } else { 1.0 },
        head_bias: None,
        classes: None,
        // Older checkpoints contain a table that no layer uses.
        spare: &["embed_tokens.weight", "layer.1.EncDecAttention.relative_attention_bias.weight"],
    })
}

fn relative(fields: &mut ConfigFields) -> Result<RelativeBuckets, ConfigError> {
    let buckets = fields.size("relative_attention_num_buckets")?.unwrap_or(32);
    let max_distance = fields.size("relative_attention_max_distance")?.unwrap_or(128);
    // Half for each direction, and half of those for exact distances.
    if buckets < 4 || !buckets.is_multiple_of(4) {
        return Err(invalid("relative_attention_num_buckets", &json!(buckets), "a multiple of 4"));
    }
    // The bucket formula divides by the logarithm of `max_distance` over the number of exact buckets, which must be
    // positive. In the decoder, half of all buckets are exact.
    if max_distance <= buckets / 2 || max_distance > MAX_DISTANCE {
        let expected = format!("more than half of the buckets, and at most {MAX_DISTANCE}");
        return Err(invalid("relative_attention_max_distance", &json!(max_distance), &expected));
    }
    Ok(RelativeBuckets { buckets, max_distance, bidirectional: true })
}

/// The activation, and whether it gates a second product: `relu`, `gated-gelu`. Newer files repeat both in two more
/// fields.
fn feed_forward(fields: &mut ConfigFields) -> Result<(Activation, bool), ConfigError> {
    let name = fields.take("feed_forward_proj").unwrap_or_else(|| json!("relu"));
    let said = name.as_str().unwrap_or_default();
    let (gated, function) = said.strip_prefix("gated-").map_or((false, said), |function| (true, function));
    // The published gated models were trained with the tanh approximation.
    let function = if said == "gated-gelu" { "gelu_new" } else { function };
    // If both are present, the newer field takes precedence, as in the reference.
    let gated = fields.flag("is_gated_act")?.unwrap_or(gated);
    let (field, function) = match fields.take("dense_act_fn") {
        Some(function) => ("dense_act_fn", function),
        None => ("feed_forward_proj", json!(function)),
    };
    activation(&function).map(|activation| (activation, gated)).ok_or_else(|| fields.not_honoured(field, &function))
}

/// Names in the encoder and in the decoder, for plain and gated models.
static NAMES: [[LayerNames; 2]; 2] =
    [[names(false, false), names(false, true)], [names(true, false), names(true, true)]];

/// The tensor names of the encoder's or the decoder's layers.
const fn names(decoder: bool, gated: bool) -> LayerNames {
    let attention = AttentionNames {
        projections: [
            "layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v", "layer.0.SelfAttention.o",
        ],
        norms: NormNames::stream("layer.0.layer_norm"),
    };
    let cross = AttentionNames {
        projections: [
            "layer.1.EncDecAttention.q", "layer.1.EncDecAttention.k", "layer.1.EncDecAttention.v",
            "layer.1.EncDecAttention.o",
        ],
        norms: NormNames::stream("layer.1.layer_norm"),
    };
    let encoder = LayerNames {
        layers: "encoder.block",
        attention,
        head_norms: None,
        cross: None,
        router: None,
        router_correction: None,
        gate: if gated { "layer.1.DenseReluDense.wi_0" } else { "layer.1.DenseReluDense.wi" },
        up: if gated { Some("layer.1.DenseReluDense.wi_1") } else { None },
        down: "layer.1.DenseReluDense.wo",
        shared: None,
        dense: None,
        shared_gate: None,
        feed_forward_norms: NormNames::stream("layer.1.layer_norm"),
        layer_input: None,
        layer_scale: None,
        last_norm: Some("encoder.final_layer_norm"),
        // The first layer's table is shared by all layers.
        relative: Some("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
    };
    if !decoder {
        return encoder;
    }
    LayerNames {
        layers: "decoder.block",
        cross: Some(cross),
        gate: if gated { "layer.2.DenseReluDense.wi_0" } else { "layer.2.DenseReluDense.wi" },
        up: if gated { Some("layer.2.DenseReluDense.wi_1") } else { None },
        down: "layer.2.DenseReluDense.wo",
        shared: None,
        dense: None,
        shared_gate: None,
        feed_forward_norms: NormNames::stream("layer.2.layer_norm"),
        last_norm: Some("decoder.final_layer_norm"),
        relative: Some("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
        ..encoder
    }
}

/// A tensor that only gated models have.
const GGUF_GATE: &str = "enc.blk.0.ffn_gate.weight";
/// Both stacks, for plain and gated models.
static GGUF_STACKS: [[StackNames; 2]; 2] =
    [[gguf_stack(false, false), gguf_stack(true, false)], [gguf_stack(false, true), gguf_stack(true, true)]];

const fn gguf_stack(decoder: bool, gated: bool) -> StackNames {
    let attention = AttentionNames { projections: ["attn_q", "attn_k", "attn_v", "attn_o"], ..LAYER.attention };
    let cross = AttentionNames {
        projections: ["cross_attn_q", "cross_attn_k", "cross_attn_v", "cross_attn_o"],
        norms: NormNames::stream("cross_attn_norm"),
    };
    StackNames {
        prefix: "",
        huggingface: names(decoder, gated),
        gguf: LayerNames {
            layers: if decoder { "dec.blk" } else { "enc.blk" },
            attention,
            cross: if decoder { Some(cross) } else { None },
            // Our `gate` is the activated product. GGUF calls it `ffn_up` in layers without gating.
            gate: if gated { "ffn_gate" } else { "ffn_up" },
            up: if gated { Some("ffn_up") } else { None },
            last_norm: Some(if decoder { "dec.output_norm" } else { "enc.output_norm" }),
            ..LAYER
        },
        more: &[("layer.0.SelfAttention.relative_attention_bias", "attn_rel_b")],
    }
}
