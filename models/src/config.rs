//! Reading of `config.json`: every field is honoured, known to be irrelevant, or refused.

use std::ops::RangeInclusive;

use probity_kernels::Activation;
use serde_json::{Map, Value};

/// An upper bound above any real model.
pub(crate) const MAX_LAYERS: u64 = 100_000;

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum ConfigError {
    /// A required field is missing.
    #[error("config field `{0}` is missing")]
    #[diagnostic(help("compare the configuration with the publisher's"))]
    Missing(&'static str),
    /// A field has a value of the wrong type or out of range.
    #[error("config field `{field}` is {found}, expected {expected}")]
    #[diagnostic(help("compare the configuration with the publisher's"))]
    Invalid {
        /// The field.
        field: String,
        /// Its value.
        found: String,
        /// The valid values.
        expected: String,
    },
    /// A field or its value would change results in a way that is not implemented.
    #[error("config field `{field}` = {found} is not supported for `{architecture}`")]
    #[diagnostic(help("use another checkpoint; ignoring this field would change every score"))]
    NotHonoured {
        /// `model_type`.
        architecture: String,
        /// The field.
        field: String,
        /// Its value.
        found: String,
    },
    /// The architecture is unknown.
    #[error("architecture `{found}` is not supported")]
    #[diagnostic(help("supported are {}; see `probity model architectures`", supported.join(", ")))]
    Architecture {
        /// `model_type`.
        found: String,
        /// The supported architectures.
        supported: Vec<&'static str>,
    },
}

/// Fields that do not affect inference, such as those of training and sampling.
const IRRELEVANT: &[&str] = &[
    "_attn_implementation_autoset", "_name_or_path", "_num_labels", "activation_dropout", "architectures",
    "attention_dropout", "attention_probs_dropout_prob", "bos_token_id", "chunk_size_feed_forward", "classif_dropout",
    "classifier_dropout", "decoder_layerdrop", "do_sample", "dropout", "dropout_rate", "dtype", "early_stopping",
    "encoder_layerdrop", "eos_token_id", "finetuning_task", "force_bos_token_to_be_generated", "forced_bos_token_id",
    "forced_eos_token_id", "gradient_checkpointing", "hidden_dropout_prob", "id2label", "init_std",
    "initializer_factor", "initializer_range", "label2id", "length_penalty", "max_length", "min_length", "model_type",
    "no_repeat_ngram_size", "num_beams", "num_labels", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_past", "pad_token_id", "prefix", "pretraining_tp", "problem_type", "qa_dropout",
    "resid_pdrop", "return_dict", "seq_classif_dropout", "task_specific_params", "tf_legacy_loss", "tokenizer_class",
    "torch_dtype", "transformers.js_config", "transformers_version", "unsloth_fixed", "unsloth_version",
    "use_bfloat16", "use_cache",
];

/// A configuration whose fields are taken one at a time. [`ConfigFields::finish`] refuses any field left over.
pub(crate) struct ConfigFields {
    architecture: String,
    left: Map<String, Value>,
}

impl ConfigFields {
    pub(crate) fn new(architecture: &str, config: &Map<String, Value>) -> Self {
        // transformers writes null for unset fields.
        let left = config.iter().filter(|(key, value)| !IRRELEVANT.contains(&key.as_str()) && !value.is_null());
        Self { architecture: architecture.to_owned(), left: left.map(|(k, v)| (k.clone(), v.clone())).collect() }
    }

    /// Removes a field and returns its value; null counts as absent.
    pub(crate) fn take(&mut self, field: &str) -> Option<Value> {
        // `shift_remove` keeps the file's order, so that the first unknown field is the one reported.
        self.left.shift_remove(field)
    }

    /// Removes a parameter of the rotation and returns its value; null counts as absent.
    pub(crate) fn take_of_rope(&mut self, parameter: &str) -> Option<Value> {
        let mut take = |field: &str| self.left.get_mut(field)?.as_object_mut()?.shift_remove(parameter);
        ["rope_parameters", "rope_scaling"].into_iter().find_map(&mut take).filter(|value| !value.is_null())
    }

    /// Sets the rope base if the file has none: transformers has a different default per architecture.
    pub(crate) fn put_usual_base(&mut self, base: f64) {
        if ["rope_theta", "rope_parameters"].iter().all(|field| !self.left.contains_key(*field)) {
            self.put("rope_theta", base.into());
        }
    }

    /// Sets a field to transformers' default if `config`, the whole file, does not have it. An explicit null counts as
    /// present.
    pub(crate) fn put_usual(&mut self, config: &Map<String, Value>, field: &str, usual: Value) {
        if !config.contains_key(field) {
            self.put(field, usual);
        }
    }

    /// Sets a field as if the file contained it.
    pub(crate) fn put(&mut self, field: &str, value: Value) {
        self.left.insert(field.to_owned(), value);
    }

    /// A positive integer that fits a dimension.
    pub(crate) fn size(&mut self, field: &'static str) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.take(field) else { return Ok(None) };
        // 32 bits, so that a product of two sizes does not overflow.
        let size = value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0);
        size.map(|n| Some(n as usize)).ok_or_else(|| invalid(field, &value, "an integer from 1 to 4294967295"))
    }

    /// As [`size`](Self::size), or zero.
    pub(crate) fn count(&mut self, field: &'static str) -> Result<Option<usize>, ConfigError> {
        match self.left.get(field) {
            Some(value) if value.as_u64() == Some(0) => {
                self.take(field);
                Ok(Some(0))
            }
            _ => self.size(field),
        }
    }

    pub(crate) fn required_size(&mut self, field: &'static str) -> Result<usize, ConfigError> {
        self.size(field)?.ok_or(ConfigError::Missing(field))
    }

    /// A number of layers. It is bounded because layers are described before any weight is loaded.
    pub(crate) fn layers(&mut self, field: &'static str) -> Result<Option<usize>, ConfigError> {
        match self.size(field)? {
            Some(layers) if layers as u64 > MAX_LAYERS => {
                Err(invalid(field, &layers.into(), &format!("an integer from 1 to {MAX_LAYERS}")))
            }
            layers => Ok(layers),
        }
    }

    pub(crate) fn required_layers(&mut self, field: &'static str) -> Result<usize, ConfigError> {
        self.layers(field)?.ok_or(ConfigError::Missing(field))
    }

    /// A number in that range.
    pub(crate) fn number(
        &mut self,
        field: &'static str,
        range: &RangeInclusive<f64>,
    ) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.take(field) else { return Ok(None) };
        number_in(field, &value, range).map(Some)
    }

    pub(crate) fn flag(&mut self, field: &'static str) -> Result<Option<bool>, ConfigError> {
        let Some(value) = self.take(field) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| invalid(field, &value, "true or false"))
    }

    /// A supported activation function.
    pub(crate) fn required_activation(&mut self, field: &'static str) -> Result<Activation, ConfigError> {
        let name = self.take(field).ok_or(ConfigError::Missing(field))?;
        activation(&name).ok_or_else(|| self.not_honoured(field, &name))
    }

    /// Refuses any value of `field` other than `honoured`; the field may be absent.
    pub(crate) fn only(&mut self, field: &str, honoured: &[Value]) -> Result<(), ConfigError> {
        match self.take(field) {
            Some(value) if !honoured.contains(&value) => Err(self.not_honoured(field, &value)),
            _ => Ok(()),
        }
    }

    pub(crate) fn not_honoured(&self, field: &str, value: &Value) -> ConfigError {
        ConfigError::NotHonoured {
            architecture: self.architecture.clone(),
            field: field.to_owned(),
            found: value.to_string(),
        }
    }

    pub(crate) fn finish(self) -> Result<(), ConfigError> {
        match self.left.iter().next() {
            Some((field, value)) => Err(self.not_honoured(field, value)),
            None => Ok(()),
        }
    }
}

pub(crate) fn invalid(field: &str, value: &Value, expected: &str) -> ConfigError {
    ConfigError::Invalid { field: field.to_owned(), found: value.to_string(), expected: expected.to_owned() }
}

/// Valid epsilons of norms. Models use 1e-12 to 1e-5; larger values than the bound would defeat the normalisation.
pub(crate) const EPSILONS: RangeInclusive<f64> = 1e-30..=0.1;

pub(crate) fn number_in(field: &str, value: &Value, range: &RangeInclusive<f64>) -> Result<f64, ConfigError> {
    let expected = || format!("a number from {:e} to {:e}", range.start(), range.end());
    value.as_f64().filter(|n| range.contains(n)).ok_or_else(|| invalid(field, value, &expected()))
}

/// Requires fields for which no default is assumed.
pub(crate) fn require(config: &Map<String, Value>, fields: &[&'static str]) -> Result<(), ConfigError> {
    match fields.iter().find(|field| config.get(**field).is_none_or(Value::is_null)) {
        Some(field) => Err(ConfigError::Missing(field)),
        None => Ok(()),
    }
}

/// A token id.
pub(crate) fn token(field: &'static str, value: Option<&Value>) -> Result<u32, ConfigError> {
    let value = value.filter(|value| !value.is_null()).ok_or(ConfigError::Missing(field))?;
    value.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| invalid(field, value, "a token id"))
}

/// An activation function by its name in configurations.
pub(crate) fn activation(name: &Value) -> Option<Activation> {
    match name.as_str()? {
        "silu" | "swish" => Some(Activation::Silu),
        "gelu" => Some(Activation::GeluErf),
        // Three implementations of the same formula.
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Some(Activation::GeluTanh),
        "relu" => Some(Activation::Relu),
        _ => None,
    }
}
