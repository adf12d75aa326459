//! Configurations of architectures that candle-transformers implements and our stack does not. candle-transformers
//! ignores unknown fields; here they are refused, so that every setting takes effect.

use serde_json::{Map, Value, json};

use crate::config::{ConfigError, ConfigFields, EPSILONS, activation, invalid};
use crate::decoder::{EMBEDDING, OUTPUT};
use crate::rope::BASES;

/// The implementation, as recorded in manifests.
pub const BRIDGE: &str = "candle-transformers 0.11.1";

/// An architecture of candle-transformers.
#[derive(Debug)]
pub(crate) struct Bridged {
    /// `model_type`.
    pub(crate) name: &'static str,
    /// Reads the supported fields.
    read: fn(&mut Fields) -> Result<(), ConfigError>,
    /// Whether several new tokens can extend a cached prefix in one pass. Some implementations build masks for the new
    /// tokens only, so they take one token at a time.
    #[cfg_attr(not(feature = "candle-transformers"), expect(dead_code, reason = "for callers that run it"))]
    pub(crate) continues: bool,
}

impl PartialEq for Bridged {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Configuration of a model that candle-transformers runs.
#[derive(Debug, Clone, PartialEq)]
pub struct BridgedConfig {
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Maximum number of tokens per text.
    pub context_length: usize,
    /// Whether the output head shares the embedding's weights.
    pub tie_word_embeddings: bool,
    /// Cached values per token over all layers.
    pub(crate) cache_width: usize,
    pub(crate) architecture: &'static Bridged,
    /// The fields passed to candle-transformers.
    pub(crate) fields: Map<String, Value>,
}

impl BridgedConfig {
    pub(crate) fn read(of: &'static Bridged, config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let mut fields = Fields { given: ConfigFields::new(of.name, config), read: Map::new() };
        (of.read)(&mut fields)?;
        let Fields { given, read: fields } = fields;
        given.finish()?;
        let size = |name: &str| fields.get(name).and_then(Value::as_u64).map(|size| size as usize);
        let of_all = |name: &str| size(name).expect("every architecture reads its sizes");
        let (width, heads) = (of_all("hidden_size"), of_all("num_attention_heads"));
        if !width.is_multiple_of(heads) {
            return Err(invalid(
                "num_attention_heads",
                &json!(heads),
                &format!("a divisor of the hidden size, {width}"),
            ));
        }
        let kv_heads = size("num_key_value_heads").unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(invalid("num_key_value_heads", &json!(kv_heads), &format!("a divisor of the {heads} heads")));
        }
        let num_layers = of_all("num_hidden_layers");
        let (context, window) = (of_all("max_position_embeddings"), size(WINDOW));
        if context > MAX_CONTEXT {
            let expected = format!(
                "at most {MAX_CONTEXT}, because candle-transformers keeps the angles of all positions in \
                         memory"
            );
            return Err(invalid("max_position_embeddings", &json!(context), &expected));
        }
        Ok(Self {
            vocab_size: of_all("vocab_size"),
            context_length: window.map_or(context, |window| window.min(context)),
            tie_word_embeddings: fields["tie_word_embeddings"] == json!(true),
            // Saturating: configurations are untrusted, and absurd sizes match no tensors anyway.
            cache_width: [num_layers, kv_heads, size("head_dim").unwrap_or(width / heads)]
                .into_iter()
                .fold(2, usize::saturating_mul),
            architecture: of,
            fields,
        })
    }

    /// The names of the output head and of the embedding, if they are tied.
    pub(crate) fn tied(&self) -> Option<(&'static str, &'static str)> {
        self.tie_word_embeddings.then_some((OUTPUT, EMBEDDING))
    }
}

/// Published models have 2,048 to 131,072.
const MAX_CONTEXT: usize = 1 << 18;

/// A window on all layers. It limits the context instead, because candle-transformers attends one position too far with
/// it.
const WINDOW: &str = "probity.window";

/// The fields that remain to be read, and those to pass to candle-transformers.
struct Fields {
    given: ConfigFields,
    read: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.read.insert(name.to_owned(), value.into());
    }

    fn size(&mut self, name: &'static str) -> Result<usize, ConfigError> {
        let size = self.given.required_size(name)?;
        self.put(name, size);
        Ok(size)
    }

    fn size_or(&mut self, name: &'static str, default: usize) -> Result<(), ConfigError> {
        let size = self.given.size(name)?.unwrap_or(default);
        self.put(name, size);
        Ok(())
    }

    fn flag_or(&mut self, name: &'static str, default: bool) -> Result<(), ConfigError> {
        let flag = self.given.flag(name)?.unwrap_or(default);
        self.put(name, flag);
        Ok(())
    }

    fn epsilon_or(&mut self, name: &'static str, default: f64) -> Result<(), ConfigError> {
        let epsilon = self.given.number(name, &EPSILONS)?.unwrap_or(default);
        self.put(name, epsilon);
        Ok(())
    }

    /// The fraction of a head that is rotated.
    fn rotated_or(&mut self, default: f64) -> Result<(), ConfigError> {
        let name = "partial_rotary_factor";
        let share = self.given.number(name, &(0.01..=1.0))?.unwrap_or(default);
        self.put(name, share);
        Ok(())
    }

    /// An activation function, translated to candle's name for it.
    fn activation(&mut self, name: &'static str) -> Result<(), ConfigError> {
        let given = self.given.take(name).ok_or(ConfigError::Missing(name))?;
        match activation(&given) {
            Some(probity_kernels::Activation::GeluTanh) => self.put(name, "gelu_pytorch_tanh"),
            Some(_) => self.put(name, if given == "swish" { json!("silu") } else { given }),
            None => return Err(self.given.not_honoured(name, &given)),
        }
        Ok(())
    }

    /// Accepts only the value that is implemented, or absence.
    fn only(&mut self, name: &str, value: impl Into<Value>) -> Result<(), ConfigError> {
        let value = value.into();
        self.given.only(name, std::slice::from_ref(&value))?;
        self.put(name, value);
        Ok(())
    }

    /// Fields that most architectures share.
    fn usual(&mut self) -> Result<(), ConfigError> {
        for name in ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "max_position_embeddings"] {
            self.size(name)?;
        }
        let heads = self.size("num_attention_heads")?;
        self.size_or("num_key_value_heads", heads)?;
        let base = self.given.number("rope_theta", &BASES)?.unwrap_or(1e4);
        self.put("rope_theta", base);
        Ok(())
    }

    /// Ignores fields without effect on inference.
    fn irrelevant(&mut self, names: &[&str]) {
        for name in names {
            self.given.take(name);
        }
    }
}

/// Gemma (Gemma Team 2024).
pub(crate) static GEMMA: Bridged = Bridged { name: "gemma", read: gemma, continues: true };

fn gemma(fields: &mut Fields) -> Result<(), ConfigError> {
    fields.usual()?;
    fields.size("head_dim")?;
    fields.epsilon_or("rms_norm_eps", 1e-6)?;
    fields.flag_or("attention_bias", false)?;
    fields.only("tie_word_embeddings", true)?;
    // The newer field takes precedence. The meaning of `gelu` in the older one depends on the version of transformers.
    let (newer, older) = (fields.given.take("hidden_activation"), fields.given.take("hidden_act"));
    if let Some(older) = older.as_ref().filter(|older| newer.is_none() && **older == "gelu") {
        return Err(fields.given.not_honoured("hidden_act", older));
    }
    let counts = newer.or(older).ok_or(ConfigError::Missing("hidden_activation"))?;
    fields.given.put("hidden_act", counts);
    fields.activation("hidden_act")
}

/// Helium (Kyutai 2025).
pub(crate) static HELIUM: Bridged = Bridged { name: "helium", read: helium, continues: true };

fn helium(fields: &mut Fields) -> Result<(), ConfigError> {
    fields.usual()?;
    fields.size_or("head_dim", 128)?;
    fields.epsilon_or("rms_norm_eps", 1e-8)?;
    for name in ["attention_bias", "mlp_bias", "tie_word_embeddings"] {
        fields.flag_or(name, false)?;
    }
    fields.read.extend(["bos_token_id", "eos_token_id"].map(|name| (name.to_owned(), json!(0))));
    fields.activation("hidden_act")
}

/// `OLMo` (Groeneveld et al. 2024): norms without weights, clipped projections.
pub(crate) static OLMO: Bridged = Bridged { name: "olmo", read: olmo, continues: true };

fn olmo(fields: &mut Fields) -> Result<(), ConfigError> {
    fields.usual()?;
    if let Some(most) = fields.given.number("clip_qkv", &(1e-3..=1e6))? {
        fields.put("clip_qkv", most);
    }
    for name in ["attention_bias", "tie_word_embeddings"] {
        fields.flag_or(name, false)?;
    }
    fields.activation("hidden_act")
}

/// Phi 1, 1.5 and 2 (Li et al. 2023): parallel attention and feed-forward sublayers, biases everywhere.
pub(crate) static PHI: Bridged = Bridged { name: "phi", read: phi, continues: false };

fn phi(fields: &mut Fields) -> Result<(), ConfigError> {
    fields.usual()?;
    fields.epsilon_or("layer_norm_eps", 1e-5)?;
    fields.rotated_or(0.5)?;
    for name in ["qk_layernorm", "tie_word_embeddings"] {
        fields.only(name, false)?;
    }
    fields.irrelevant(&["embd_pdrop"]);
    fields.activation("hidden_act")
}

/// `StableLM` (Bellagamba et al. 2024).
pub(crate) static STABLELM: Bridged = Bridged { name: "stablelm", read: stablelm, continues: true };

fn stablelm(fields: &mut Fields) -> Result<(), ConfigError> {
    fields.usual()?;
    fields.epsilon_or("layer_norm_eps", 1e-5)?;
    fields.rotated_or(0.25)?;
    fields.flag_or("use_qkv_bias", false)?;
    for name in ["qk_layernorm", "tie_word_embeddings", "use_parallel_residual"] {
        fields.only(name, false)?;
    }
    fields.put("use_cache", true);
    fields.irrelevant(&["hidden_dropout"]);
    fields.activation("hidden_act")
}

/// `StarCoder` 2 (Lozhkov et al. 2024).
pub(crate) static STARCODER2: Bridged = Bridged { name: "starcoder2", read: starcoder2, continues: true };

fn starcoder2(fields: &mut Fields) -> Result<(), ConfigError> {
    fields.usual()?;
    fields.epsilon_or("norm_epsilon", 1e-5)?;
    fields.flag_or("use_bias", true)?;
    fields.only("tie_word_embeddings", true)?;
    if let Some(window) = fields.given.size("sliding_window")? {
        fields.put(WINDOW, window);
    }
    fields.irrelevant(&["embedding_dropout", "residual_dropout"]);
    fields.activation("hidden_act")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_manifests_name_is_the_one_that_is_built() {
        let (name, version) = BRIDGE.split_once(' ').expect("a name and a version");
        let lock = include_str!("../../Cargo.lock").replace("\r\n", "\n");
        assert!(lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")));
    }
}
