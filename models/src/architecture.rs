//! Descriptions of architectures, and [`ModelConfig`], the parsed configuration of a model.

use serde_json::{Map, Value};

use crate::bridge::{Bridged, BridgedConfig};
use crate::classes::SCORE;
use crate::config::ConfigError;
use crate::decoder::{DecoderConfig, EMBEDDING, LONG_FACTORS, OUTPUT, SHORT_FACTORS};
use crate::encoder::EncoderShape;
use crate::encoder_decoder::{DecoderClasses, EncoderDecoderConfig};
use crate::gguf::GgufDialect;
use crate::stack_config::StackConfig;

type ConfigReader<C> = fn(&Map<String, Value>) -> Result<C, ConfigError>;

/// An entry of the registry.
pub(crate) struct Architecture {
    /// `model_type`.
    pub(crate) name: &'static str,
    pub(crate) config: ReadConfig,
    /// How GGUF files describe it, if any do.
    pub(crate) gguf: Option<&'static GgufDialect>,
}

/// The function that reads a configuration.
pub(crate) enum ReadConfig {
    Decoder(ConfigReader<DecoderConfig>),
    /// A decoder that only our CPU kernels compute.
    OnCpu(ConfigReader<DecoderConfig>),
    EncoderDecoder(ConfigReader<EncoderDecoderConfig>),
    Encoder(ConfigReader<EncoderShape>),
    Bridged(&'static Bridged),
}

impl ReadConfig {
    pub(crate) fn read(&self, config: &Map<String, Value>) -> Result<ModelConfig, ConfigError> {
        match self {
            Self::Decoder(read) | Self::OnCpu(read) => read(config).map(Box::new).map(ModelConfig::Decoder),
            Self::EncoderDecoder(read) => read(config).map(Box::new).map(ModelConfig::EncoderDecoder),
            Self::Encoder(read) => read(config).map(Box::new).map(ModelConfig::Encoder),
            Self::Bridged(of) => BridgedConfig::read(of, config).map(Box::new).map(ModelConfig::Bridged),
        }
    }
}

/// Whether a tensor belongs to one of the layers after the last that predict further tokens.
fn is_after_last(name: &str, config: &DecoderConfig) -> bool {
    let number = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    let last = config.layers.len();
    number
        .and_then(|(number, _)| number.parse().ok())
        .is_some_and(|number: usize| (last..last + config.unused_layers).contains(&number))
}

/// A model's parsed configuration.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelConfig {
    /// A decoder-only language model.
    Decoder(Box<DecoderConfig>),
    /// An encoder-decoder.
    EncoderDecoder(Box<EncoderDecoderConfig>),
    /// An encoder.
    Encoder(Box<EncoderShape>),
    /// A language model that candle-transformers runs.
    Bridged(Box<BridgedConfig>),
}

impl ModelConfig {
    /// Rows of the embedding.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Decoder(config) => config.vocab_size,
            Self::EncoderDecoder(config) => config.vocab_size,
            Self::Encoder(config) => config.vocab_size,
            Self::Bridged(config) => config.vocab_size,
        }
    }

    /// Maximum number of tokens per text; `None` if the architecture has no fixed limit.
    pub fn context_length(&self) -> Option<usize> {
        match self {
            Self::Decoder(config) => Some(config.context_length),
            Self::EncoderDecoder(config) => config.context_length,
            Self::Encoder(config) => Some(config.context_length),
            Self::Bridged(config) => Some(config.context_length),
        }
    }

    /// Number of layers in the last stack, which is the decoder of an encoder-decoder. `None` if hidden states are not
    /// available.
    pub fn layers(&self) -> Option<usize> {
        match self {
            Self::Decoder(config) => Some(config.layers.len()),
            Self::EncoderDecoder(config) => Some(config.decoder.1.layers.len()),
            Self::Encoder(config) => Some(config.num_layers),
            Self::Bridged(_) => None,
        }
    }

    /// All stacks in execution order, the encoder before the decoder; empty for candle-transformers models.
    pub(crate) fn stacks(&self) -> Vec<StackConfig> {
        match self {
            Self::Decoder(config) => vec![config.stack()],
            Self::EncoderDecoder(config) => vec![config.encoder.1.clone(), config.decoder.1.clone()],
            Self::Encoder(config) => vec![config.stack.clone()],
            Self::Bridged(_) => Vec::new(),
        }
    }

    /// Total number of layers in [`stacks`](Self::stacks).
    pub(crate) fn device_layers(&self) -> usize {
        self.stacks().iter().map(|stack| stack.layers.len()).sum()
    }

    /// Class names by index; empty if the model has no class head.
    pub fn classes(&self) -> &[String] {
        match self {
            Self::Decoder(config) => &config.classes,
            Self::EncoderDecoder(config) => config.classes.as_ref().map_or(&[], |classes| &classes.names),
            Self::Bridged(_) => &[],
            Self::Encoder(config) => &config.classes,
        }
    }

    /// The output tensor of the class head, if the configuration declares one.
    pub fn class_head(&self) -> Option<String> {
        match self {
            _ if self.classes().is_empty() => None,
            Self::EncoderDecoder(_) => Some(format!("{}.weight", DecoderClasses::HEAD.output)),
            Self::Encoder(config) => Some(format!("{}.weight", config.class_head.output)),
            _ => Some(SCORE.to_owned()),
        }
    }

    /// The configuration of a decoder-only model, if it is one.
    pub fn decoder(self) -> Option<DecoderConfig> {
        if let Self::Decoder(config) = self { Some(*config) } else { None }
    }

    /// If the output head is tied: the head's tensor name and the candidate names of the embedding. The first name that
    /// a checkpoint contains is used.
    pub fn tied_head(&self) -> Option<(String, Vec<String>)> {
        // The prefixed name takes precedence over the bare name, as in loading.
        let embeddings = |prefix, tokens: &[&str]| {
            [prefix, ""]
                .into_iter()
                .flat_map(|prefix| tokens.iter().map(move |name| format!("{prefix}{name}")))
                .collect()
        };
        match self {
            Self::Decoder(config) if config.tie_word_embeddings && config.classes.is_empty() => {
                Some((OUTPUT.to_owned(), vec![EMBEDDING.to_owned()]))
            }
            Self::EncoderDecoder(config) if config.tie_word_embeddings && config.classes.is_none() => {
                Some((OUTPUT.to_owned(), embeddings(config.prefix, config.decoder.0.tokens)))
            }
            Self::Encoder(config) if config.tie_word_embeddings => {
                Some((format!("{}.weight", config.head.output), embeddings(config.prefix, config.embeddings.tokens)))
            }
            Self::Bridged(config) => {
                config.tied().map(|(head, embedding)| (head.to_owned(), vec![embedding.to_owned()]))
            }
            _ => None,
        }
    }

    /// Whether the architecture ignores a tensor of this name: tables derived from the configuration, a tied head,
    /// heads of other tasks.
    pub fn is_spare(&self, name: &str) -> bool {
        let any = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        let spare = match self {
            Self::Decoder(config) => {
                // Texts of that length are refused.
                let is_of_long = config.rope_freq_factors == Some(SHORT_FACTORS) && name == LONG_FACTORS;
                // Models with a class head predict no tokens.
                let is_of_tokens = !config.classes.is_empty() && name == OUTPUT;
                // Weights that predict further tokens.
                let is_of_more = config.recurrence.is_some() && name.starts_with("mtp.");
                let is_derived = name.ends_with("rotary_emb.inv_freq");
                is_derived
                    || is_of_long
                    || is_of_tokens
                    || is_of_more
                    || is_after_last(name, config)
                    || config.has_keys_of_another(name)
            }
            Self::EncoderDecoder(config) => {
                let is_of_tokens = config.classes.is_some() && (name == OUTPUT || Some(name) == config.head_bias);
                any(config.spare) || is_of_tokens
            }
            Self::Encoder(config) => any(config.spare),
            Self::Bridged(_) => name.ends_with("rotary_emb.inv_freq"),
        };
        // Loading compares the head with the tied embedding: the name alone does not tell whether they are equal.
        spare || self.tied_head().is_some_and(|(head, _)| head == name)
    }
}
