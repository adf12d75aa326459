//! A GGUF file's metadata as the `config.json` that the same model has on Hugging Face.

mod encoders;

use probity_models::WeightSource as _;
use serde_json::{Map, Value as Json, json};

use crate::weights::{GgufFile, Value, WeightsError};

/// No model comes near any of these; beyond them a field is broken.
const MAX_SIZE: u64 = 1 << 24;
const MAX_CONTEXT: u64 = 1 << 30;

/// The keys after `<architecture>.` that [`gguf_config`] reads or that change nothing here.
const HONOURED: &[&str] = &[
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "tensor_data_layout",
    "vocab_size",
];

/// The configuration of a llama, mistral, qwen2, t5 or bert model in the fields of Hugging Face's `config.json`.
///
/// Beyond those: `"probity.rope_interleaved": true` where the rows of `q_proj` and `k_proj` are ordered for rotation of
/// neighbouring pairs (llama and mistral; qwen2 keeps halves), and `"probity.rope_freq_factors": true` where the file
/// holds a tensor `rope_freqs.weight` by which rope frequencies are to be divided. A llama with a sliding window is a
/// `mistral`. Metadata of the architecture that is neither read here nor neutral (zero, false) is refused; an unknown
/// kind of rope scaling is kept, so that the architecture refuses it by name.
pub fn gguf_config(file: &GgufFile) -> Result<Json, WeightsError> {
    let key = "general.architecture";
    let architecture = file.string(key)?.ok_or_else(|| file.metadata_error(key, "it is missing"))?;
    let reader = Reader { file, architecture };
    let honoured = match architecture {
        "llama" | "mistral" | "qwen2" => HONOURED,
        "t5" => encoders::T5,
        "bert" => encoders::BERT,
        other => {
            return Err(
                file.metadata_error(key, format!("`{other}` is not supported; llama, mistral, qwen2, t5 and bert are"))
            );
        }
    };
    reader.refuse_unknown(honoured)?;
    let mut config = match architecture {
        "t5" => reader.t5()?,
        "bert" => reader.bert()?,
        family => reader.llama(family != "qwen2")?,
    };
    for (name, key) in
        [("bos_token_id", "tokenizer.ggml.bos_token_id"), ("eos_token_id", "tokenizer.ggml.eos_token_id")]
    {
        if let Some(id) = file.token_id(key)? {
            config.insert(name.into(), json!(id));
        }
    }
    Ok(Json::Object(config))
}

struct Reader<'a> {
    file: &'a GgufFile,
    architecture: &'a str,
}

impl Reader<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn refuse_unknown(&self, honoured: &[&str]) -> Result<(), WeightsError> {
        // What all of these models are unless they say otherwise; of all else nothing is.
        let neutral = |name: &str, value: &Value| match name {
            "attention.causal" => matches!(value, Value::Bool(true)),
            _ => value.as_f64() == Some(0.0) || matches!(value, Value::Bool(false)),
        };
        let prefix = format!("{}.", self.architecture);
        let unknown = self.file.metadata().iter().find(|(key, value)| {
            key.strip_prefix(&prefix).is_some_and(|name| !honoured.contains(&name) && !neutral(name, value))
        });
        match unknown {
            Some((key, _)) => Err(self
                .file
                .metadata_error(key, "this setting of the model is not honoured, so results would be wrong")),
            None => Ok(()),
        }
    }

    /// Llama, mistral and qwen2; `interleaved` where neighbouring pairs rotate.
    fn llama(&self, interleaved: bool) -> Result<Map<String, Json>, WeightsError> {
        let mut config = self.sizes()?;
        self.rope(&mut config, interleaved)?;
        let window = self.integer("attention.sliding_window", MAX_CONTEXT)?;
        let model_type = if interleaved && window.is_some() {
            "mistral"
        } else if interleaved {
            "llama"
        } else {
            "qwen2"
        };
        config.insert("model_type".into(), json!(model_type));
        if let Some(window) = window {
            config.insert("sliding_window".into(), json!(window));
            if model_type == "qwen2" {
                config.insert("use_sliding_window".into(), json!(true));
            }
        }
        if interleaved && self.file.contains("blk.0.attn_q.bias") {
            config.insert("attention_bias".into(), json!(true));
        }
        config.insert("hidden_act".into(), json!("silu"));
        config.insert("tie_word_embeddings".into(), json!(!self.file.contains("output.weight")));
        Ok(config)
    }

    /// A positive integer up to `max`, where it is given. Zero is an error.
    fn integer(&self, name: &str, max: u64) -> Result<Option<u64>, WeightsError> {
        let key = self.key(name);
        match self.file.u64(&key)? {
            Some(value) if value == 0 || value > max => {
                Err(self.file.metadata_error(&key, format!("expected 1 to {max}, found {value}")))
            }
            value => Ok(value),
        }
    }

    fn required(&self, name: &str, max: u64) -> Result<u64, WeightsError> {
        self.integer(name, max)?.ok_or_else(|| self.file.metadata_error(&self.key(name), "it is missing"))
    }

    /// A finite float above zero, where it is given.
    fn float(&self, name: &str) -> Result<Option<f64>, WeightsError> {
        let key = self.key(name);
        match self.file.f64(&key)? {
            Some(value) if !value.is_finite() || value <= 0.0 => {
                Err(self.file.metadata_error(&key, format!("expected a number above 0, found {value}")))
            }
            value => Ok(value),
        }
    }

    fn sizes(&self) -> Result<Map<String, Json>, WeightsError> {
        let hidden = self.required("embedding_length", MAX_SIZE)?;
        let heads = self.required("attention.head_count", MAX_SIZE)?;
        let kv_heads = self.integer("attention.head_count_kv", MAX_SIZE)?.unwrap_or(heads);
        if heads % kv_heads != 0 {
            let why = format!("{heads} heads are no multiple of {kv_heads} key-value heads");
            return Err(self.file.metadata_error(&self.key("attention.head_count_kv"), why));
        }
        let head_dim = match self.integer("attention.key_length", MAX_SIZE)? {
            Some(length) => length,
            None if hidden % heads == 0 => hidden / heads,
            None => {
                let why = format!("{heads} heads do not divide the hidden size {hidden}");
                return Err(self.file.metadata_error(&self.key("attention.head_count"), why));
            }
        };
        if let Some(value_length) =
            self.integer("attention.value_length", MAX_SIZE)?.filter(|&length| length != head_dim)
        {
            let why = format!("values of {value_length} beside keys of {head_dim} are not supported");
            return Err(self.file.metadata_error(&self.key("attention.value_length"), why));
        }
        let epsilon = "attention.layer_norm_rms_epsilon";
        let rms_norm_eps =
            self.float(epsilon)?.ok_or_else(|| self.file.metadata_error(&self.key(epsilon), "it is missing"))?;
        let fields = json!({
            "hidden_size": hidden,
            "num_hidden_layers": self.required("block_count", 100_000)?,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "intermediate_size": self.required("feed_forward_length", MAX_SIZE)?,
            "max_position_embeddings": self.required("context_length", MAX_CONTEXT)?,
            "rms_norm_eps": shortest(rms_norm_eps),
            "vocab_size": self.vocab_size()?,
        });
        match fields {
            Json::Object(map) => Ok(map),
            _ => unreachable!("json! of braces is an object"),
        }
    }

    /// The rows of the embedding, which the vocabulary's metadata must not exceed.
    fn vocab_size(&self) -> Result<u64, WeightsError> {
        let embedding = self.file.tensors().into_iter().find(|tensor| tensor.name == "token_embd.weight");
        let rows = embedding.and_then(|tensor| tensor.shape.first().copied()).map(|rows| rows as u64);
        let tokens = self.file.strings("tokenizer.ggml.tokens")?.map(|tokens| tokens.len() as u64);
        match (rows, tokens, self.integer("vocab_size", MAX_SIZE)?) {
            (Some(rows), Some(tokens), _) if tokens > rows => {
                let why = format!("{tokens} tokens, but the embedding has only {rows} rows");
                Err(self.file.metadata_error("tokenizer.ggml.tokens", why))
            }
            (Some(rows), _, _) => Ok(rows),
            (None, _, Some(size)) | (None, Some(size), None) => Ok(size),
            (None, None, None) => Err(self
                .file
                .metadata_error(&self.key("vocab_size"), "it is missing, and so are the embedding and the tokens")),
        }
    }

    fn rope(&self, config: &mut Map<String, Json>, interleaved: bool) -> Result<(), WeightsError> {
        config.insert("rope_theta".into(), json!(shortest(self.float("rope.freq_base")?.unwrap_or(10_000.0))));
        if let Some(dims) =
            self.integer("rope.dimension_count", MAX_SIZE)?.filter(|dims| Some(*dims) != config["head_dim"].as_u64())
        {
            let why = format!("rotating {dims} of {} dimensions of a head is not supported", config["head_dim"]);
            return Err(self.file.metadata_error(&self.key("rope.dimension_count"), why));
        }
        let factor = match self.float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.float("rope.scale_linear")?,
        };
        let kind = match self.file.string(&self.key("rope.scaling.type"))? {
            Some("none") => None,
            Some(kind) => Some(kind),
            None => factor.filter(|&factor| factor != 1.0).map(|_| "linear"),
        };
        if let Some(kind) = kind {
            let mut scaling = Map::from_iter([("rope_type".to_owned(), json!(kind))]);
            if let Some(factor) = factor {
                scaling.insert("factor".into(), json!(shortest(factor)));
            }
            if let Some(length) = self.integer("rope.scaling.original_context_length", MAX_CONTEXT)? {
                scaling.insert("original_max_position_embeddings".into(), json!(length));
            }
            if let Some(attn) = self.float("rope.scaling.attn_factor")? {
                scaling.insert("attention_factor".into(), json!(shortest(attn)));
            }
            config.insert("rope_scaling".into(), Json::Object(scaling));
        }
        if interleaved {
            config.insert("probity.rope_interleaved".into(), json!(true));
        }
        if self.file.contains("rope_freqs.weight") {
            config.insert("probity.rope_freq_factors".into(), json!(true));
        }
        Ok(())
    }
}

/// The decimal that an f32 of the metadata stands for: 1e-5, not 9.999999747378752e-6, as `config.json` has it.
fn shortest(value: f64) -> f64 {
    let single = value as f32;
    if f64::from(single) == value { single.to_string().parse().unwrap_or(value) } else { value }
}
