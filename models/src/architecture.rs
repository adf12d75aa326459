//! What an architecture's file says of it, and what a configuration describes.

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

/// An architecture, as the registry lists it.
pub(crate) struct Architecture {
    /// `model_type`.
    pub(crate) name: &'static str,
    pub(crate) config: ReadConfig,
    /// How GGUF files tell of it, where some do.
    pub(crate) gguf: Option<&'static GgufDialect>,
}

/// How a configuration is read.
pub(crate) enum ReadConfig {
    Decoder(ConfigReader<DecoderConfig>),
    EncoderDecoder(ConfigReader<EncoderDecoderConfig>),
    Encoder(ConfigReader<EncoderShape>),
    Bridged(&'static Bridged),
}

impl ReadConfig {
    pub(crate) fn read(&self, config: &Map<String, Value>) -> Result<ModelConfig, ConfigError> {
        match self {
            Self::Decoder(read) => read(config).map(Box::new).map(ModelConfig::Decoder),
            Self::EncoderDecoder(read) => read(config).map(Box::new).map(ModelConfig::EncoderDecoder),
            Self::Encoder(read) => read(config).map(Box::new).map(ModelConfig::Encoder),
            Self::Bridged(of) => BridgedConfig::read(of, config).map(Box::new).map(ModelConfig::Bridged),
        }
    }
}

/// What a configuration describes.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelConfig {
    /// A language model that reads from left to right.
    Decoder(Box<DecoderConfig>),
    /// An encoder reads a source, and a decoder writes from left to right.
    EncoderDecoder(Box<EncoderDecoderConfig>),
    /// A model that reads a text as a whole.
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

    /// Tokens that a text may have; absent where no number is wrong.
    pub fn context_length(&self) -> Option<usize> {
        match self {
            Self::Decoder(config) => Some(config.context_length),
            Self::EncoderDecoder(config) => config.context_length,
            Self::Encoder(config) => Some(config.context_length),
            Self::Bridged(config) => Some(config.context_length),
        }
    }

    /// Layers of the part that a text's tokens run through last: an encoder-decoder's decoder. Absent where nothing is shown
    /// of them.
    pub fn layers(&self) -> Option<usize> {
        match self {
            Self::Decoder(config) => Some(config.layers.len()),
            Self::EncoderDecoder(config) => Some(config.decoder.1.layers.len()),
            Self::Encoder(config) => Some(config.num_layers),
            Self::Bridged(_) => None,
        }
    }

    /// All layers in the order in which they run, those of an encoder before those of its decoder; of what candle-transformers
    /// runs none.
    pub(crate) fn stacks(&self) -> Vec<StackConfig> {
        match self {
            Self::Decoder(config) => vec![config.stack()],
            Self::EncoderDecoder(config) => vec![config.encoder.1.clone(), config.decoder.1.clone()],
            Self::Encoder(config) => vec![config.stack.clone()],
            Self::Bridged(_) => Vec::new(),
        }
    }

    /// How many of them there are.
    pub(crate) fn device_layers(&self) -> usize {
        self.stacks().iter().map(|stack| stack.layers.len()).sum()
    }

    /// What its head tells apart, by number; none where it is a model of another kind.
    pub fn classes(&self) -> &[String] {
        match self {
            Self::Decoder(config) => &config.classes,
            Self::EncoderDecoder(config) => config.classes.as_ref().map_or(&[], |classes| &classes.names),
            Self::Bridged(_) => &[],
            Self::Encoder(config) => &config.classes,
        }
    }

    /// The tensor that tells classes apart, where the configuration says that there is one.
    pub fn class_head(&self) -> Option<String> {
        match self {
            _ if self.classes().is_empty() => None,
            Self::EncoderDecoder(_) => Some(format!("{}.weight", DecoderClasses::HEAD.output)),
            Self::Encoder(config) => Some(format!("{}.weight", config.class_head.output)),
            _ => Some(SCORE.to_owned()),
        }
    }

    /// The configuration of a decoder-only model, where it is one.
    pub fn decoder(self) -> Option<DecoderConfig> {
        if let Self::Decoder(config) = self { Some(*config) } else { None }
    }

    /// The output head's tensor, where the configuration says that it is the embedding, and the names that this may
    /// have: the first that a checkpoint holds is the one that is read.
    pub fn tied_head(&self) -> Option<(String, Vec<String>)> {
        // A prefix counts before its absence, as where tensors are loaded.
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

    /// Whether checkpoints may carry a tensor of that name that the architecture does not use: tables that follow from
    /// the configuration, the head that is the embedding, heads of other tasks.
    pub fn is_spare(&self, name: &str) -> bool {
        let any = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        let spare = match self {
            Self::Decoder(config) => {
                // Texts that are so long are refused.
                let is_of_long = config.rope_freq_factors == Some(SHORT_FACTORS) && name == LONG_FACTORS;
                // Where classes are told apart, nobody says tokens.
                let is_of_tokens = !config.classes.is_empty() && name == OUTPUT;
                name.ends_with("rotary_emb.inv_freq") || is_of_long || is_of_tokens
            }
            Self::EncoderDecoder(config) => {
                let is_of_tokens = config.classes.is_some() && (name == OUTPUT || Some(name) == config.head_bias);
                any(config.spare) || is_of_tokens
            }
            Self::Encoder(config) => any(config.spare),
            Self::Bridged(_) => name.ends_with("rotary_emb.inv_freq"),
        };
        // Whether a head beside a tied embedding is that embedding is looked at when weights are loaded: the name alone
        // does not say it.
        spare || self.tied_head().is_some_and(|(head, _)| head == name)
    }
}
