//! The configurations of models with an encoder.

use probity_models::WeightSource as _;
use serde_json::{Map, Value as Json, json};

use super::{MAX_CONTEXT, MAX_SIZE, Reader, shortest};
use crate::weights::WeightsError;

/// As [`HONOURED`](super::HONOURED). T5's positions are relative: the length that it was trained with limits nothing.
pub(super) const T5: &[&str] = &[
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.relative_buckets_count",
    "attention.value_length",
    "block_count",
    "context_length",
    "decoder_block_count",
    "decoder_start_token_id",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
];

/// How sentences are pooled is not a question to the encoder.
pub(super) const BERT: &[&str] = &[
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_epsilon",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "pooling_type",
    "vocab_size",
];

impl Reader<'_> {
    /// T5 and Flan-T5, told apart by their feed-forward layers.
    pub(super) fn t5(&self) -> Result<Map<String, Json>, WeightsError> {
        let epsilon = "attention.layer_norm_rms_epsilon";
        let layers = self.required("block_count", 100_000)?;
        let mut config = object(json!({
            "model_type": "t5",
            "d_model": self.required("embedding_length", MAX_SIZE)?,
            "d_ff": self.required("feed_forward_length", MAX_SIZE)?,
            "d_kv": self.required("attention.key_length", MAX_SIZE)?,
            "num_heads": self.required("attention.head_count", MAX_SIZE)?,
            "num_layers": layers,
            "num_decoder_layers": self.integer("decoder_block_count", 100_000)?.unwrap_or(layers),
            "relative_attention_num_buckets": self.required("attention.relative_buckets_count", MAX_SIZE)?,
            "layer_norm_epsilon": self.float(epsilon)?.map_or(1e-6, shortest),
            "feed_forward_proj": if self.file.contains("encoder.block.0.layer.1.DenseReluDense.wi_0.weight") { "gated-gelu" } else { "relu" },
            "tie_word_embeddings": !self.file.contains("lm_head.weight"),
            "vocab_size": self.vocab_size()?,
        }));
        for (name, key) in [
            ("decoder_start_token_id", self.key("decoder_start_token_id")),
            ("pad_token_id", "tokenizer.ggml.padding_token_id".into()),
        ] {
            if let Some(id) = self.file.token_id(&key)? {
                config.insert(name.into(), json!(id));
            }
        }
        Ok(config)
    }

    /// BERT and what shares its layers, such as `MiniLM`.
    pub(super) fn bert(&self) -> Result<Map<String, Json>, WeightsError> {
        let types = self.file.tensors().into_iter().find(|tensor| tensor.name == "token_types.weight");
        let epsilon = "attention.layer_norm_epsilon";
        Ok(object(json!({
            "model_type": "bert",
            "hidden_size": self.required("embedding_length", MAX_SIZE)?,
            "intermediate_size": self.required("feed_forward_length", MAX_SIZE)?,
            "num_attention_heads": self.required("attention.head_count", MAX_SIZE)?,
            "num_hidden_layers": self.required("block_count", 100_000)?,
            "max_position_embeddings": self.required("context_length", MAX_CONTEXT)?,
            "layer_norm_eps": self.float(epsilon)?.map_or(1e-12, shortest),
            "hidden_act": "gelu",
            "type_vocab_size": types.and_then(|tensor| tensor.shape.first().copied()).unwrap_or(2),
            "vocab_size": self.vocab_size()?,
        })))
    }
}

fn object(fields: Json) -> Map<String, Json> {
    match fields {
        Json::Object(map) => map,
        _ => unreachable!("json! of braces is an object"),
    }
}
