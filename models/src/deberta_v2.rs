//! `DeBERTa` versions 2 and 3 (He et al. 2021, 2023): BERT with disentangled attention, whose scores depend on content
//! and on relative position. The convolution of the large version 2 models is not supported.

use probity_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, ReadConfig};
use crate::bert;
use crate::classes::{ClassActivation, ClassHeadConfig, Pooling};
use crate::config::{ConfigError, ConfigFields, EPSILONS, invalid};
use crate::cpu::NormKind;
use crate::disentangled::Disentangled;
use crate::embeddings::{EmbeddingsConfig, PositionTable};
use crate::encoder::{EncoderShape, MaskedHeadConfig};
use crate::stack_config::{AttentionNames, LayerNames, StackConfig, StackSizes};

static NAMES: LayerNames = LayerNames {
    attention: AttentionNames {
        projections: [
            "attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj",
            "attention.output.dense",
        ],
        ..bert::NAMES.attention
    },
    ..bert::NAMES
};

/// Upper bound on relative positions and table rows; models have 512.
const MAX_DISTANCE: usize = 1 << 16;

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { name: "deberta-v2", config: ReadConfig::Encoder(config), gguf: None };

fn config(config: &Map<String, Value>) -> Result<EncoderShape, ConfigError> {
    let mut fields = ConfigFields::new("deberta-v2", config);
    let norm_eps = fields.number("layer_norm_eps", &EPSILONS)?.unwrap_or(1e-7);
    let activation = fields.required_activation("hidden_act")?;
    let hidden_size = fields.required_size("hidden_size")?;
    let sizes =
        StackSizes::read(&mut fields, hidden_size, ["num_hidden_layers", "num_attention_heads", "intermediate_size"])?;
    let vocab_size = fields.required_size("vocab_size")?;
    let positions = fields.required_size("max_position_embeddings")?;
    let mut stack = StackConfig::post_norm(sizes, activation, norm_eps, &NAMES);
    (stack.disentangled, stack.score_scale) = distances(&mut fields, stack.head_dim, positions)?;
    let has_positions = fields.flag("position_biased_input")?.unwrap_or(true);
    let types = match fields.take("type_vocab_size") {
        Some(value) if value == 0 => None,
        None => None,
        Some(value) => {
            fields.put("type_vocab_size", value);
            fields.size("type_vocab_size")?
        }
    };
    let is_legacy = fields.flag("legacy")?.unwrap_or(true);
    let is_tied = fields.flag("tie_word_embeddings")?.unwrap_or(true);
    let pooler_activation = ClassActivation::read(&mut fields, "pooler_hidden_act", Activation::GeluErf)?;
    for field in ["embedding_size", "pooler_hidden_size"] {
        fields.only(field, &[json!(hidden_size)])?;
    }
    fields.only("attention_head_size", &[json!(stack.head_dim)])?;
    fields.only("conv_kernel_size", &[json!(0)])?;
    fields.only("is_decoder", &[json!(false)])?;
    // Settings of training, of a missing convolution, and of classes other than the reference's.
    for field in [
        "cls_dropout", "conv_act", "conv_groups", "pooler_dropout", "summary_activation", "summary_last_dropout",
        "summary_type", "summary_use_proj",
    ] {
        fields.take(field);
    }
    fields.finish()?;
    Ok(EncoderShape {
        vocab_size,
        hidden_size,
        num_layers: stack.layers.len(),
        context_length: positions,
        // The newer head has no vocabulary projection of its own.
        tie_word_embeddings: is_tied || !is_legacy,
        prefix: "deberta.",
        embeddings: EmbeddingsConfig {
            tokens: &["embeddings.word_embeddings.weight"],
            vocab_size,
            width: hidden_size,
            scale: None,
            positions: has_positions.then_some(PositionTable {
                name: "embeddings.position_embeddings.weight",
                rows: positions,
                first: 0,
            }),
            types: types.map(|types| ("embeddings.token_type_embeddings.weight", types)),
            norm: Some(("embeddings.LayerNorm", NormKind::Layer, norm_eps)),
        },
        stack,
        ropes: Vec::new(),
        head: masked_head(is_legacy, activation),
        classes: Vec::new(),
        pooling: Pooling::First,
        class_head: ClassHeadConfig {
            dense: &["pooler.dense"],
            dense_bias: true,
            activation: pooler_activation,
            norm: None,
            output: "classifier",
        },
        // Files may contain a head under names that the configuration does not select, and a training head. The
        // reference ignores both.
        spare: &[
            "embeddings.position_ids", "embeddings.position_embeddings.", "pooler.", "classifier.", "cls.predictions.",
            "lm_predictions.", "mask_predictions.",
        ],
    })
}

/// The head under the names that `legacy` selects; no other names are read.
fn masked_head(is_legacy: bool, activation: Activation) -> MaskedHeadConfig {
    let output = "cls.predictions.decoder";
    if is_legacy {
        MaskedHeadConfig {
            sign: "cls.predictions.transform.dense.weight",
            dense: "cls.predictions.transform.dense",
            dense_bias: true,
            norm: "cls.predictions.transform.LayerNorm",
            activation,
            output,
            bias: &["cls.predictions.bias", "cls.predictions.decoder.bias"],
        }
    } else {
        MaskedHeadConfig {
            sign: "lm_predictions.lm_head.dense.weight",
            dense: "lm_predictions.lm_head.dense",
            dense_bias: true,
            norm: "lm_predictions.lm_head.LayerNorm",
            activation,
            output,
            bias: &["lm_predictions.lm_head.bias"],
        }
    }
}

/// The relative position terms of the scores, and the factor of scores. The factor counts the term types even without
/// relative positions.
fn distances(
    fields: &mut ConfigFields,
    head_dim: usize,
    positions: usize,
) -> Result<(Option<Disentangled>, f32), ConfigError> {
    let (with_keys, with_queries) = products(fields)?;
    let kinds = 1 + usize::from(with_keys) + usize::from(with_queries);
    let scale = 1.0 / ((head_dim * kinds) as f32).sqrt();
    let most = distance(fields, "max_relative_positions")?.unwrap_or(positions);
    let buckets = distance(fields, "position_buckets")?;
    let is_shared = fields.flag("share_att_key")?.unwrap_or(false);
    let norm = match fields.take("norm_rel_ebd") {
        None => None,
        Some(name) if name == "none" => None,
        Some(name) if name == "layer_norm" => Some("encoder.LayerNorm"),
        Some(other) => return Err(fields.not_honoured("norm_rel_ebd", &other)),
    };
    if !fields.flag("relative_attention")?.unwrap_or(false) {
        return match norm {
            None => Ok((None, scale)),
            Some(_) => Err(fields.not_honoured("norm_rel_ebd", &json!("layer_norm"))),
        };
    }
    if kinds == 1 {
        return Err(fields.not_honoured("pos_att_type", &json!([])));
    }
    if let Some(buckets) = buckets {
        // Half of the buckets hold one distance each; larger distances are bucketed by the logarithm of their ratio to
        // that half.
        if !buckets.is_multiple_of(2) || most <= buckets / 2 + 1 {
            let expected = format!("even, and at most twice max_relative_positions ({most}) minus 4");
            return Err(invalid("position_buckets", &json!(buckets), &expected));
        }
    }
    if most > MAX_DISTANCE {
        return Err(invalid("max_relative_positions", &json!(most), &format!("at most {MAX_DISTANCE}")));
    }
    let [keys, queries] = if is_shared {
        ["attention.self.key_proj", "attention.self.query_proj"]
    } else {
        ["attention.self.pos_key_proj", "attention.self.pos_query_proj"]
    };
    let distances = Disentangled {
        table: "encoder.rel_embeddings.weight",
        span: buckets.unwrap_or(most),
        log_to: buckets.map(|_| most),
        norm,
        keys: with_keys.then_some(keys),
        queries: with_queries.then_some(queries),
    };
    Ok((Some(distances), scale))
}

/// Whether scores include content-to-position (`c2p`) and position-to-content (`p2c`) terms. The field is a list, or
/// names separated by bars.
fn products(fields: &mut ConfigFields) -> Result<(bool, bool), ConfigError> {
    let Some(value) = fields.take("pos_att_type") else { return Ok((false, false)) };
    let words: Option<Vec<String>> = match &value {
        Value::String(words) => Some(words.to_lowercase().split('|').map(|word| word.trim().to_owned()).collect()),
        Value::Array(words) => words.iter().map(|word| word.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let known = |words: &Vec<String>| words.iter().all(|word| word == "c2p" || word == "p2c");
    let words = words.filter(known).ok_or_else(|| fields.not_honoured("pos_att_type", &value))?;
    let has = |word: &str| words.iter().any(|other| other == word);
    Ok((has("c2p"), has("p2c")))
}

/// A number of distances; values below 1 mean none.
fn distance(fields: &mut ConfigFields, field: &'static str) -> Result<Option<usize>, ConfigError> {
    let Some(value) = fields.take(field) else { return Ok(None) };
    let number = value.as_i64().filter(|number| *number <= MAX_DISTANCE as i64);
    let number = number.ok_or_else(|| invalid(field, &value, &format!("an integer up to {MAX_DISTANCE}")))?;
    Ok(usize::try_from(number).ok().filter(|number| *number > 0))
}
