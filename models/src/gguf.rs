//! Tensor names in GGUF files, and conversion of GGUF metadata to the fields of a `config.json`.

use serde_json::{Map, Value, json};

use crate::stack_config::{AttentionNames, HeadNorms, LayerNames, NormNames};

/// Upper bounds above any real model; a larger value means a corrupt file.
pub(crate) const MAX_SIZE: u64 = 1 << 24;
pub(crate) const MAX_CONTEXT: u64 = 1 << 30;

/// Invalid or unsupported metadata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("metadata `{key}`: {why}")]
pub struct GgufError {
    /// The metadata key.
    pub key: String,
    /// The reason.
    pub why: String,
}

impl GgufError {
    /// An error about `key`.
    pub fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { key: key.into(), why: why.into() }
    }
}

/// Metadata of a GGUF file. A value of another type than requested is an error.
pub trait GgufMetadata {
    /// All keys.
    fn keys(&self) -> Vec<&str>;
    /// A non-negative integer.
    fn u64(&self, key: &str) -> Result<Option<u64>, GgufError>;
    /// A number.
    fn f64(&self, key: &str) -> Result<Option<f64>, GgufError>;
    /// A boolean.
    fn bool(&self, key: &str) -> Result<Option<bool>, GgufError>;
    /// The non-negative integers or booleans of a list; a single one as a list of one.
    fn integers(&self, key: &str) -> Result<Option<Vec<u64>>, GgufError>;
    /// A string.
    fn string(&self, key: &str) -> Result<Option<&str>, GgufError>;
    /// A token's id.
    fn token_id(&self, key: &str) -> Result<Option<u32>, GgufError>;
    /// The number of strings in a list.
    fn texts(&self, key: &str) -> Result<Option<usize>, GgufError>;
    /// The shape of the tensor with this name in the file, if it exists.
    fn shape(&self, tensor: &str) -> Option<&[usize]>;
}

/// A Hugging Face name and a GGUF name, up to the last dot, or whole if they differ after it.
pub(crate) type Pair = (&'static str, &'static str);

/// Tensors of layers that predict further tokens, which are not used.
pub(crate) const NEXT_TOKEN_PAIRS: [Pair; 6] = [
    ("eh_proj", "nextn.eh_proj"),
    ("embed_tokens", "nextn.embed_tokens"),
    ("enorm", "nextn.enorm"),
    ("hnorm", "nextn.hnorm"),
    ("shared_head.head", "nextn.shared_head_head"),
    ("shared_head.norm", "nextn.shared_head_norm"),
];

/// Several lists of pairs as one.
pub(crate) const fn joined<const N: usize>(lists: &[&[Pair]]) -> [Pair; N] {
    let (mut all, mut next, mut list) = ([("", ""); N], 0, 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            all[next] = lists[list][at];
            (next, at) = (next + 1, at + 1);
        }
        list += 1;
    }
    all
}

/// Whether the file has a tensor with this GGUF name.
pub(crate) type TensorLookup<'a> = &'a dyn Fn(&str) -> bool;

/// How GGUF files describe an architecture.
pub(crate) struct GgufDialect {
    /// The GGUF name of the architecture, if it differs from `model_type`.
    pub(crate) name: Option<&'static str>,
    /// Tensor names outside the layers.
    pub(crate) names: &'static [Pair],
    /// Selects the tensor names of each stack by which tensors a file contains.
    pub(crate) stacks: fn(TensorLookup<'_>) -> &'static [StackNames],
    /// Required integers: the key after `<architecture>.`, the field of `config.json`, and the upper bound.
    pub(crate) sizes: &'static [(&'static str, &'static str, u64)],
    /// Keys that `more` reads or that have no effect here.
    pub(crate) known: &'static [&'static str],
    /// Further known keys of this architecture.
    pub(crate) more_known: &'static [&'static str],
    /// Fills in the other fields.
    pub(crate) more: fn(&GgufReader<'_>, &mut Map<String, Value>) -> Result<(), GgufError>,
}

/// The names of a stack's tensors in Hugging Face checkpoints and in GGUF files.
pub(crate) struct StackNames {
    /// Prefix of the Hugging Face names.
    pub(crate) prefix: &'static str,
    pub(crate) huggingface: LayerNames,
    pub(crate) gguf: LayerNames,
    /// Names of other tensors in a layer, up to the last dot or in full.
    pub(crate) more: &'static [Pair],
}

/// The usual names of a gated layer's tensors, with pre-norm sublayers.
pub(crate) const LAYER: LayerNames = LayerNames {
    layers: "blk",
    attention: AttentionNames {
        projections: ["attn_q", "attn_k", "attn_v", "attn_output"],
        norms: NormNames::stream("attn_norm"),
    },
    head_norms: None,
    cross: None,
    router: None,
    router_correction: None,
    gate: "ffn_gate",
    up: Some("ffn_up"),
    down: "ffn_down",
    shared: None,
    dense: None,
    shared_gate: None,
    feed_forward_norms: NormNames::stream("ffn_norm"),
    layer_input: None,
    layer_scale: None,
    last_norm: Some("output_norm"),
    relative: None,
};

/// The same for a mixture of experts, with all experts' matrices in one tensor.
pub(crate) const GGUF_EXPERTS: LayerNames = LayerNames {
    router: Some("ffn_gate_inp"),
    gate: "ffn_gate_exps",
    up: Some("ffn_up_exps"),
    down: "ffn_down_exps",
    ..LAYER
};

/// The usual names of the norms of queries and keys.
pub(crate) const GGUF_HEAD_NORMS: HeadNorms = HeadNorms { names: ["attn_q_norm", "attn_k_norm"], of_all_heads: false };

/// An owned [`Pair`].
type OwnedPair = (String, String);

/// The tensor names of an architecture in both formats.
#[derive(Debug)]
pub struct GgufNames {
    /// Names outside the layers, up to the last dot.
    global: Vec<OwnedPair>,
    /// Prefixes before the layer number, and names inside a layer, for each stack.
    stacks: Vec<(OwnedPair, Vec<OwnedPair>)>,
}

impl GgufNames {
    pub(crate) fn new(gguf: &GgufDialect, has: impl Fn(&str) -> bool) -> Self {
        let owned = |(huggingface, gguf): Pair| (huggingface.to_owned(), gguf.to_owned());
        let mut names = Self { global: gguf.names.iter().copied().map(owned).collect(), stacks: Vec::new() };
        for StackNames { prefix, huggingface, gguf, more } in (gguf.stacks)(&has) {
            let last_norm = huggingface.last_norm.zip(gguf.last_norm);
            names.global.extend(last_norm.map(|(from, to)| (format!("{prefix}{from}"), to.to_owned())));
            // Both lists have the same field order, so names with the same index belong to the same tensor.
            let pairs = huggingface.in_layer().zip(gguf.in_layer()).chain(more.iter().copied());
            let layers = (format!("{prefix}{}.", huggingface.layers), format!("{}.", gguf.layers));
            names.stacks.push((layers, pairs.map(owned).collect()));
        }
        names
    }

    /// The GGUF name for the Hugging Face name `name`. Names without a counterpart are returned unchanged.
    pub fn to_gguf(&self, name: &str) -> String {
        self.translate(name, |(huggingface, gguf)| (huggingface, gguf)).unwrap_or_else(|| name.to_owned())
    }

    /// The reverse of [`to_gguf`](Self::to_gguf).
    pub fn to_huggingface(&self, name: &str) -> String {
        self.translate(name, |(huggingface, gguf)| (gguf, huggingface)).unwrap_or_else(|| name.to_owned())
    }

    fn translate(&self, name: &str, direction: fn(&OwnedPair) -> (&String, &String)) -> Option<String> {
        let find = |pairs: &[OwnedPair], wanted: &str| {
            pairs.iter().map(direction).find(|(from, _)| *from == wanted).map(|(_, to)| to.clone())
        };
        for (layers, pairs) in &self.stacks {
            let (from, to) = direction(layers);
            if let Some((layer, part)) = name.strip_prefix(from.as_str()).and_then(|rest| rest.split_once('.')) {
                if let Some(whole) = find(pairs, part) {
                    return Some(format!("{to}{layer}.{whole}"));
                }
                let (stem, suffix) = part.rsplit_once('.')?;
                return Some(format!("{to}{layer}.{}.{suffix}", find(pairs, stem)?));
            }
        }
        let (stem, suffix) = name.rsplit_once('.')?;
        Some(format!("{}.{suffix}", find(&self.global, stem)?))
    }
}

/// The metadata reader of an architecture.
pub(crate) struct GgufReader<'a> {
    pub(crate) file: &'a dyn GgufMetadata,
    pub(crate) architecture: &'a str,
}

impl GgufReader<'_> {
    /// Converts the metadata to the fields of a `config.json`.
    pub(crate) fn config(&self, model_type: &str, gguf: &GgufDialect) -> Result<Map<String, Value>, GgufError> {
        self.refuse_unknown(gguf)?;
        let mut config = Map::from_iter([("model_type".to_owned(), json!(model_type))]);
        for (name, field, max) in gguf.sizes {
            config.insert((*field).to_owned(), json!(self.required(name, *max)?));
        }
        (gguf.more)(self, &mut config)?;
        // Only some scaling types use this factor, but llama.cpp always multiplies by it.
        let key = "rope.scaling.attn_factor";
        let is_read = config.get("rope_scaling").is_some_and(|scaling| scaling.get("attention_factor").is_some());
        if let Some(factor) = self.float(key)?.filter(|factor| *factor != 1.0 && !is_read) {
            return Err(
                self.error(key, format!("it is {factor}, which is not supported without rope.scaling.type yarn"))
            );
        }
        config.insert("vocab_size".to_owned(), json!(self.vocab_size()?));
        for (name, key) in
            [("bos_token_id", "tokenizer.ggml.bos_token_id"), ("eos_token_id", "tokenizer.ggml.eos_token_id")]
        {
            if let Some(id) = self.file.token_id(key)? {
                config.insert(name.to_owned(), json!(id));
            }
        }
        Ok(config)
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// An error about one of the architecture's keys.
    pub(crate) fn error(&self, name: &str, why: impl Into<String>) -> GgufError {
        GgufError::new(self.key(name), why)
    }

    /// Refuses unknown settings, unless their value is neutral: `attention.causal` true, others zero or false.
    fn refuse_unknown(&self, gguf: &GgufDialect) -> Result<(), GgufError> {
        let neutral = |name: &str, key: &str| match name {
            "attention.causal" => self.file.bool(key) == Ok(Some(true)),
            _ => self.file.f64(key) == Ok(Some(0.0)) || self.file.bool(key) == Ok(Some(false)),
        };
        let is_known = |name: &str| {
            name == "vocab_size"
                || [gguf.known, gguf.more_known].concat().contains(&name)
                || gguf.sizes.iter().any(|(size, ..)| *size == name)
        };
        let prefix = self.key("");
        let unknown = self
            .file
            .keys()
            .into_iter()
            .find(|key| key.strip_prefix(&prefix).is_some_and(|name| !is_known(name) && !neutral(name, key)));
        match unknown {
            Some(key) => Err(GgufError::new(key, "this model setting is not supported, so results would be wrong")),
            None => Ok(()),
        }
    }

    /// A positive integer up to `max`, or `None` if missing. Zero is an error.
    pub(crate) fn integer(&self, name: &str, max: u64) -> Result<Option<u64>, GgufError> {
        match self.file.u64(&self.key(name))? {
            // Checked here, because later allocations depend on this number.
            Some(value) if value == 0 || value > max => {
                Err(self.error(name, format!("expected 1 to {max}, found {value}")))
            }
            value => Ok(value),
        }
    }

    /// As [`integer`](Self::integer), but may be zero.
    pub(crate) fn count(&self, name: &str, max: u64) -> Result<Option<u64>, GgufError> {
        if self.is_zero(name) { Ok(Some(0)) } else { self.integer(name, max) }
    }

    /// An integer up to [`MAX_SIZE`] for each layer, or the same for all.
    pub(crate) fn each_layer(&self, name: &str, layers: usize) -> Result<Option<Vec<u64>>, GgufError> {
        let Some(values) = self.file.integers(&self.key(name))? else { return Ok(None) };
        if let Some(value) = values.iter().find(|value| **value > MAX_SIZE) {
            return Err(self.error(name, format!("expected at most {MAX_SIZE}, found {value}")));
        }
        match values[..] {
            [value] => Ok(Some(vec![value; layers])),
            _ if values.len() == layers => Ok(Some(values)),
            _ => Err(self.error(name, format!("{} entries for {layers} layers", values.len()))),
        }
    }

    pub(crate) fn has_key(&self, name: &str) -> bool {
        self.file.u64(&self.key(name)).is_ok_and(|value| value.is_some())
    }

    /// Whether a number is present and zero.
    pub(crate) fn is_zero(&self, name: &str) -> bool {
        self.file.f64(&self.key(name)) == Ok(Some(0.0))
    }

    pub(crate) fn required(&self, name: &str, max: u64) -> Result<u64, GgufError> {
        self.integer(name, max)?.ok_or_else(|| self.error(name, "it is missing"))
    }

    /// A finite positive float, or `None` if missing. It is the shortest decimal for the stored f32, as `config.json`
    /// has it: 1e-5, not 9.999999747378752e-6.
    pub(crate) fn float(&self, name: &str) -> Result<Option<f64>, GgufError> {
        let shortest = |value: f64| {
            let single = value as f32;
            if f64::from(single) == value { single.to_string().parse().unwrap_or(value) } else { value }
        };
        match self.file.f64(&self.key(name))? {
            Some(value) if !value.is_finite() || value <= 0.0 => {
                Err(self.error(name, format!("expected a number above 0, found {value}")))
            }
            value => Ok(value.map(shortest)),
        }
    }

    pub(crate) fn string(&self, name: &str) -> Result<Option<&str>, GgufError> {
        self.file.string(&self.key(name))
    }

    pub(crate) fn bool(&self, name: &str) -> Result<Option<bool>, GgufError> {
        self.file.bool(&self.key(name))
    }

    pub(crate) fn integers(&self, name: &str) -> Result<Option<Vec<u64>>, GgufError> {
        self.file.integers(&self.key(name))
    }

    pub(crate) fn token_id(&self, name: &str) -> Result<Option<u32>, GgufError> {
        self.file.token_id(&self.key(name))
    }

    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.file.shape(tensor).is_some()
    }

    /// Number of rows of a table.
    pub(crate) fn rows(&self, tensor: &str) -> Option<u64> {
        self.file.shape(tensor)?.first().map(|rows| *rows as u64)
    }

    /// Number of rows of the embedding. The vocabulary must not be larger.
    fn vocab_size(&self) -> Result<u64, GgufError> {
        let (rows, list) = (self.rows("token_embd.weight"), "tokenizer.ggml.tokens");
        let tokens = self.file.texts(list)?.map(|tokens| tokens as u64);
        match (rows, tokens, self.integer("vocab_size", MAX_SIZE)?) {
            (Some(rows), Some(tokens), _) if tokens > rows => {
                Err(GgufError::new(list, format!("{tokens} tokens, but the embedding has only {rows} rows")))
            }
            (Some(rows), tokens, Some(size)) if size != rows && Some(size) != tokens => {
                Err(self.error("vocab_size", format!("{size}, but the embedding has {rows} rows")))
            }
            // More rows than tokens are valid: embeddings are padded to round numbers.
            (Some(rows), _, _) => Ok(rows),
            (None, _, Some(size)) | (None, Some(size), None) => Ok(size),
            (None, None, None) => {
                Err(self.error("vocab_size", "it is missing, and so are the embedding and the tokens"))
            }
        }
    }
}
