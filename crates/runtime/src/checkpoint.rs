//! Opens a checkpoint from GGUF or a folder: configuration, weights, tokenizer and chat template.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use probity_kernels::{RopeLayout, dequantise};
use probity_lm::{Precision, parse_unique};
use probity_models::{
    Arithmetic, BRIDGE, Compute, ConfigError, DecoderClasses, DeviceChoice, DeviceError, DeviceListError, ModelConfig,
    PackedDecoder, Placement, RawTensor, SourceError, TextTensors, WeightSource, check_model, experts_apart,
    load_bridged, load_classifier_on, load_decoder_on, load_encoder_decoder_on, load_encoder_on, read_config,
    text_part,
};
use serde_json::Value;

use crate::chat::ChatError;
use crate::encoder::PromptEncoder;
use crate::gguf_config::gguf_config;
use crate::hub::{LocatedModel, WeightFormat};
use crate::options::LoadOptions;
use crate::side_file::{self, FileState, file_state};
use crate::tokenizer::{TEMPLATE_FILE, Tokenizer, TokenizerError};
use crate::weights::{AdapterError, GgufFile, LoraAdapter, SafetensorsFiles, WeightsError, check_finite, fingerprint};

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum LoadError {
    /// The weight files cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Weights(#[from] WeightsError),
    /// A tensor is missing or has the wrong shape.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tensor(#[from] SourceError),
    /// The adapter cannot be applied.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Adapter(#[from] AdapterError),
    /// The configuration file cannot be read.
    #[error("{}: {why}", path.display())]
    #[diagnostic(help("download the file again"))]
    ConfigFile {
        /// `config.json`.
        path: PathBuf,
        /// Description of the problem.
        why: String,
    },
    /// The configuration is not supported.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file with the configuration.
        path: PathBuf,
        /// Description of the problem.
        #[diagnostic_source]
        source: ConfigError,
    },
    /// The tokenizer cannot be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template cannot be read, for lack of memory or threads.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Chat(ChatError),
    /// Tokenizer and embedding do not match.
    #[error("{}: the tokenizer has {tokens} tokens but the embedding {rows} rows", path.display())]
    #[diagnostic(help("use the tokenizer's files of this model"))]
    Vocabulary {
        /// The model.
        path: PathBuf,
        /// Number of tokens in the tokenizer.
        tokens: usize,
        /// Number of rows in the embedding.
        rows: usize,
    },
    /// A tensor that the architecture does not use.
    #[error("tensor `{name}` in {} is not used by this architecture", path.display())]
    #[diagnostic(help(
        "check the architecture in the configuration, or use another checkpoint; ignoring the tensor would change \
         every score"
    ))]
    UnusedTensor {
        /// Name of the first such tensor.
        name: String,
        /// The file or folder.
        path: PathBuf,
    },
    /// A tied head that differs from the embedding.
    #[error(
        "tensor `{head}` in {} differs from the embedding `{embedding}`, but the configuration sets \
         tie_word_embeddings",
        path.display()
    )]
    #[diagnostic(help(
        "set \"tie_word_embeddings\": false in config.json if the head was trained separately; otherwise download the \
         model again"
    ))]
    Untied {
        /// Name of the head.
        head: String,
        /// Name of the embedding.
        embedding: String,
        /// The file or folder.
        path: PathBuf,
    },
    /// The machine does not support the instruction set.
    #[error("this machine cannot run {wanted}")]
    #[diagnostic(help("omit --compute isa to use the best of {has}"))]
    Isa {
        /// The requested instruction set.
        wanted: &'static str,
        /// The available instruction sets.
        has: String,
    },
    /// The device cannot be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Device(DeviceError),
    /// The devices cannot be used together.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Devices(#[from] DeviceListError),
    /// Weights and activations exceed the memory.
    #[error("the model needs {needed} on {devices}, {there}")]
    #[diagnostic(help("{hint}"))]
    Memory {
        /// The devices.
        devices: String,
        /// Memory for weights and activations.
        needed: String,
        /// Available memory.
        there: String,
        /// How to make it fit.
        hint: String,
    },
    /// The device does not support this precision.
    #[error("precision `{}` is available on cpu only", precision.as_str())]
    #[diagnostic(help("use exact or fast on {device}"))]
    Precision {
        /// The device.
        device: DeviceChoice,
        /// The requested precision.
        precision: Precision,
    },
    /// The configuration has a class head, but the checkpoint does not.
    #[error("{} has no tensor `{tensor}`, the class head of its configuration", path.display())]
    #[diagnostic(help(
        "download the reward model or classifier again; for a language model, remove …ForSequenceClassification from \
         `architectures` in config.json"
    ))]
    NoClassHead {
        /// Name of the tensor.
        tensor: String,
        /// The file or folder.
        path: PathBuf,
    },
    /// The model is an encoder; a generating model is required.
    #[error("a {architecture} model is an encoder and cannot generate")]
    #[diagnostic(help(
        "use a model that generates, such as llama, qwen2 or t5; metrics take an encoder with --encoder, and reward \
         takes one whose config.json names an architecture …ForSequenceClassification"
    ))]
    NoGenerator {
        /// `model_type`.
        architecture: String,
    },
    /// The model is not an encoder; an encoder is required.
    #[error("a {architecture} model is not an encoder")]
    #[diagnostic(help("use a bert, roberta, distilbert, modernbert or deberta-v2"))]
    NoEncoder {
        /// `model_type`.
        architecture: String,
    },
    /// The threads could not be created.
    #[error("cannot start {threads} threads: {why}")]
    Threads {
        /// Number of threads requested.
        threads: usize,
        /// The system's error.
        why: String,
    },
}

impl From<DeviceError> for LoadError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Tensor(error) => Self::Tensor(error),
            error => Self::Device(error),
        }
    }
}

/// A checkpoint with opened and checked files, not yet loaded as a model.
pub struct Checkpoint {
    /// Location of the files.
    pub located: LocatedModel,
    /// The configuration with the fields of `config.json`.
    pub config_json: Value,
    /// The parsed configuration.
    pub config: ModelConfig,
    /// The weights.
    pub source: Box<dyn WeightSource + Send + Sync>,
    /// Tokenizer and chat template.
    pub encoder: Arc<PromptEncoder>,
    /// All files of the model, with their state before reading.
    pub(crate) files: Vec<FileState>,
    fingerprint: OnceLock<String>,
}

/// Optional files of a folder that affect results besides the weights.
const SIDE_FILES: [&str; 5] =
    ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

impl Checkpoint {
    /// Opens the model's files.
    pub fn open(located: &LocatedModel) -> Result<Self, LoadError> {
        let path = located.path.as_path();
        let config_path = if located.format == WeightFormat::Gguf { path.to_owned() } else { path.join("config.json") };
        let not_run = |source| LoadError::Config { path: config_path.clone(), source };
        let (config_json, mut source, tokenizer, mut files): (_, Box<dyn WeightSource + Send + Sync>, _, Vec<_>) =
            match located.format {
                WeightFormat::Gguf => {
                    let file = GgufFile::open(path)?;
                    // Part of the fingerprint, because it affects the prompt.
                    let template = path.parent().map(|folder| folder.join(TEMPLATE_FILE));
                    let template = template.filter(|file| side_file::is_there(file));
                    let files = file.paths().into_iter().chain(template).map(file_state).collect();
                    let tokenizer = Tokenizer::from_gguf(&file)?;
                    (gguf_config(&file)?, Box::new(file), tokenizer, files)
                }
                WeightFormat::Safetensors => {
                    let source = SafetensorsFiles::open(path)?;
                    let beside = SIDE_FILES.iter().map(|name| path.join(name)).filter(|file| side_file::is_there(file));
                    let files = source.paths().into_iter().chain(beside).map(file_state).collect();
                    let config = config_of_folder(path)?;
                    let (config, source): (_, Box<dyn WeightSource + Send + Sync>) =
                        if let Some(text) = text_part(&config).map_err(not_run)? {
                            (text, Box::new(TextTensors(source)))
                        } else {
                            let source = experts_apart(&config, source);
                            (config, source)
                        };
                    (config, source, Tokenizer::from_json(&path.join("tokenizer.json"))?, files)
                }
            };
        let config = read_config(&config_json).map_err(not_run)?;
        // The embedding may have extra rows, as it is often padded.
        if tokenizer.vocab_size() > config.vocab_size() {
            return Err(LoadError::Vocabulary {
                path: path.to_owned(),
                tokens: tokenizer.vocab_size(),
                rows: config.vocab_size(),
            });
        }
        if let Some(folder) = &located.adapter {
            let adapter = LoraAdapter::open(folder)?;
            // Part of the fingerprint, because an adapter changes the model.
            files.extend(adapter.files().map(file_state));
            // In llama.cpp's order, elements that are rotated together are adjacent.
            let pairs = match &config {
                ModelConfig::Decoder(config) if config.rope_layout == RopeLayout::Interleaved => Some(config.head_dim),
                _ => None,
            };
            source = Box::new(adapter.onto(source, pairs)?);
        }
        let encoder = match &config {
            ModelConfig::EncoderDecoder(config) => {
                if let Some(DecoderClasses { names, end }) = &config.classes {
                    PromptEncoder::new(tokenizer).with_classes(names.clone(), true, None).with_class_end(*end)
                } else {
                    // As in training: the start token, then the tokenizer's prefix.
                    let start = [&[config.decoder_start], tokenizer.frame()[0].as_slice()].concat();
                    PromptEncoder::new(tokenizer).with_answer_start(start)
                }
            }
            config => {
                let reads_whole = matches!(config, ModelConfig::Encoder(_));
                let padding = if let ModelConfig::Decoder(config) = config { config.padding } else { None };
                PromptEncoder::new(tokenizer).with_classes(config.classes().to_vec(), reads_whole, padding)
            }
        };
        // Without its template a model would be queried with other prompts.
        if let Some(error @ ChatError::NoThread(_)) = encoder.chat_error() {
            return Err(LoadError::Chat(error.clone()));
        }
        let (located, encoder, fingerprint) = (located.clone(), Arc::new(encoder), OnceLock::new());
        Ok(Self { located, config_json, config, source, encoder, files, fingerprint })
    }

    /// The fingerprint of the files; hashed on first use.
    pub fn fingerprint(&self) -> Result<&str, WeightsError> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(known);
        }
        let paths: Vec<&PathBuf> = self.files.iter().map(|(path, _)| path).collect();
        let hashed = fingerprint(&paths)?;
        Ok(self.fingerprint.get_or_init(|| hashed))
    }

    /// Whether the files are unchanged since they were opened. Otherwise the fingerprint does not match what was read.
    pub fn is_current(&self) -> bool {
        self.files.iter().all(|file| file.1.is_some() && file_state(file.0.clone()) == *file)
    }

    /// `model_type`.
    pub fn architecture(&self) -> &str {
        self.config_json["model_type"].as_str().unwrap_or_default()
    }

    /// The library that runs it, with its version. Absent for our own implementation.
    pub fn through(&self) -> Option<&'static str> {
        matches!(self.config, ModelConfig::Bridged(_)).then_some(BRIDGE)
    }

    /// Loads a model that answers prompts, on one or several devices. Rejects weights that are not finite, and tensors
    /// that the architecture does not use, because other programs would use them and get different results.
    pub fn load(
        &self,
        compute: impl Into<Compute>,
        place: impl Into<Placement>,
    ) -> Result<Box<dyn PackedDecoder>, LoadError> {
        let (compute, place) = (compute.into(), place.into());
        self.check_runs(place.devices(), compute.arithmetic)?;
        self.load_checked(|source| match &self.config {
            ModelConfig::Decoder(config) => Ok(load_decoder_on(place, source, (**config).clone(), compute)?),
            ModelConfig::EncoderDecoder(config) => Ok(load_encoder_decoder_on(place, source, config, compute)?),
            ModelConfig::Encoder(config) => {
                let separator = self.encoder.tokenizer().between().first().copied();
                Ok(load_classifier_on(place, source, config, separator, compute)?)
            }
            ModelConfig::Bridged(config) => Ok(load_bridged(place.devices()[0], source, config, compute.arithmetic)?),
        })
    }

    /// Checks whether the layers can be placed on the devices of a copy with the requested arithmetic.
    pub fn check_devices(&self, options: LoadOptions) -> Result<(), LoadError> {
        Ok(check_model(options.devices.first_copy(), &self.config, options.arithmetic())?)
    }

    /// Checks whether it is a model that answers prompts, by tokens or classes, and supports these devices and
    /// arithmetic.
    pub(crate) fn check_runs(&self, devices: &[DeviceChoice], arithmetic: Arithmetic) -> Result<(), LoadError> {
        if let Some(tensor) = self.config.class_head().filter(|tensor| !self.source.contains(tensor)) {
            return Err(LoadError::NoClassHead { tensor, path: self.source.path() });
        }
        match &self.config {
            ModelConfig::Encoder(config) if config.classes.is_empty() => {
                Err(LoadError::NoGenerator { architecture: self.architecture().to_owned() })
            }
            config => Ok(check_model(devices, config, arithmetic)?),
        }
    }

    /// Loads an encoder, with the same checks as [`load`](Self::load).
    pub fn load_encoder(
        &self,
        compute: impl Into<Compute>,
        place: impl Into<Placement>,
    ) -> Result<Box<dyn probity_models::PackedEncoder>, LoadError> {
        let ModelConfig::Encoder(config) = &self.config else {
            return Err(LoadError::NoEncoder { architecture: self.architecture().to_owned() });
        };
        self.load_checked(|source| Ok(load_encoder_on(place, source, config, compute)?))
    }

    fn load_checked<T>(
        &self,
        load: impl FnOnce(&(dyn WeightSource + Sync)) -> Result<T, LoadError>,
    ) -> Result<T, LoadError> {
        // Records the tensors read during loading, which avoids a separate list of names per architecture.
        let checked = CheckedSource { source: &*self.source, taken: Mutex::default() };
        let model = load(&checked)?;
        let taken = checked.taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        let unused =
            self.source.names().into_iter().find(|name| !taken.contains_key(name) && !self.config.is_spare(name));
        if let Some(name) = unused {
            return Err(LoadError::UnusedTensor { name, path: self.source.path() });
        }
        self.check_tied()?;
        // The first bad tensor in name order.
        taken.into_values().find_map(Result::err).map_or(Ok(model), |error| Err(error.into()))
    }

    /// Checks that a separately stored head equals the embedding if the configuration ties them.
    fn check_tied(&self) -> Result<(), LoadError> {
        let there = |name: &String| self.source.contains(name);
        // Only if the configuration ties them; otherwise the architecture has read it.
        let Some((head, embeddings)) = self.config.tied_head().filter(|(head, _)| there(head)) else { return Ok(()) };
        let Some(embedding) = embeddings.into_iter().find(there) else { return Ok(()) };
        if says_the_same(&self.source.tensor(&embedding)?, &self.source.tensor(&head)?) {
            return Ok(());
        }
        Err(LoadError::Untied { head, embedding, path: self.source.path() })
    }
}

/// Whether two tensors hold the same numbers, regardless of type.
fn says_the_same(first: &RawTensor, second: &RawTensor) -> bool {
    if first.weight_type == second.weight_type {
        return *first.bytes == *second.bytes;
    }
    let (rows, columns) = first.shape.split_at(1.min(first.shape.len()));
    let (rows, width) = (rows.iter().product::<usize>(), columns.iter().product::<usize>());
    let row = |tensor: &RawTensor, row: usize, values: &mut [f32]| {
        let bytes = tensor.bytes.len() / rows;
        dequantise(tensor.weight_type, &tensor.bytes[row * bytes..][..bytes], 0, values);
    };
    // One row at a time, because embeddings take gigabytes as f32.
    let (mut one, mut other) = (vec![0.0; width], vec![0.0; width]);
    first.shape == second.shape
        && (0..rows).all(|at| {
            row(first, at, &mut one);
            row(second, at, &mut other);
            one == other
        })
}

/// A source that checks each tensor when it is first read, and records which ones were.
struct CheckedSource<'a> {
    source: &'a (dyn WeightSource + Send + Sync),
    taken: Mutex<BTreeMap<String, Result<(), WeightsError>>>,
}

impl WeightSource for CheckedSource<'_> {
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
        let tensor = self.source.tensor(name)?;
        self.taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name.to_owned())
            .or_insert_with(|| check_finite(&self.source.path(), name, &tensor));
        Ok(tensor)
    }

    fn contains(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    fn names(&self) -> Vec<String> {
        self.source.names()
    }

    fn path(&self) -> PathBuf {
        self.source.path()
    }
}

fn config_of_folder(folder: &Path) -> Result<Value, LoadError> {
    let path = folder.join("config.json");
    let fail = |why: String| LoadError::ConfigFile { path: path.clone(), why };
    let text = side_file::read(&path).map_err(|error| fail(error.to_string()))?;
    let config: Value = parse_unique(&text).map_err(|error| fail(error.to_string()))?;
    // These fields come from GGUF metadata; in a folder, other programs would ignore them.
    match config.as_object().and_then(|map| map.keys().find(|key| key.starts_with("probity."))) {
        Some(key) => Err(fail(format!("unknown field `{key}` in a config.json"))),
        None => Ok(config),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use probity_models::{TensorBytes, WeightType};

    use super::*;

    /// Tensors of two rows and two columns.
    struct Tensors(Vec<(&'static str, WeightType, Vec<u8>)>);

    impl WeightSource for Tensors {
        fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
            let (_, weight_type, bytes) = self.0.iter().find(|(other, ..)| *other == name).expect("asked for by name");
            let bytes = TensorBytes::slice(Arc::new(bytes.clone()), 0..bytes.len()).expect("all of them");
            Ok(RawTensor { shape: vec![2, 2], weight_type: *weight_type, bytes })
        }

        fn contains(&self, name: &str) -> bool {
            self.0.iter().any(|(other, ..)| *other == name)
        }

        fn names(&self) -> Vec<String> {
            self.0.iter().map(|(name, ..)| (*name).to_owned()).collect()
        }

        fn path(&self) -> PathBuf {
            PathBuf::from("demo")
        }
    }

    fn floats(values: [f32; 4]) -> (WeightType, Vec<u8>) {
        (WeightType::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// Upper halves of floats, as bf16.
    fn halves(values: [f32; 4]) -> (WeightType, Vec<u8>) {
        (WeightType::BF16, values.iter().flat_map(|value| value.to_le_bytes()[2..].to_vec()).collect())
    }

    #[test]
    fn a_tied_head_is_the_embedding_whatever_that_is_called_and_however_it_is_stored() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models");
        let right = [1.0, -2.0, 0.5, 0.0];
        for (model, head_name, embedding) in [
            ("llama", "lm_head.weight", "model.embed_tokens.weight"),
            ("t5", "lm_head.weight", "shared.weight"),
            ("t5", "lm_head.weight", "encoder.embed_tokens.weight"),
            ("t5", "lm_head.weight", "decoder.embed_tokens.weight"),
            ("bart", "lm_head.weight", "shared.weight"),
            ("bart", "lm_head.weight", "model.shared.weight"),
            ("bart", "lm_head.weight", "model.encoder.embed_tokens.weight"),
            ("bart", "lm_head.weight", "model.decoder.embed_tokens.weight"),
            ("bert", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
            ("bert", "cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
            ("roberta", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
            ("distilbert", "vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),
            ("modernbert", "decoder.weight", "model.embeddings.tok_embeddings.weight"),
            ("deberta-v2", "cls.predictions.decoder.weight", "deberta.embeddings.word_embeddings.weight"),
        ] {
            let mut config_json = config_of_folder(&models.join(model)).expect("golden");
            config_json["tie_word_embeddings"] = true.into();
            let checked = |head: (WeightType, Vec<u8>)| {
                let ((kind, bytes), (head_kind, head)) = (floats(right), head);
                let checkpoint = Checkpoint {
                    config: read_config(&config_json).expect("supported"),
                    config_json: config_json.clone(),
                    source: Box::new(Tensors(vec![(embedding, kind, bytes), (head_name, head_kind, head)])),
                    encoder: Arc::new(PromptEncoder::new(
                        Tokenizer::from_json(&models.join("qwen2/tokenizer.json")).expect("golden"),
                    )),
                    located: crate::hub::locate(models.join(model).to_str().expect("UTF-8")).expect("golden"),
                    files: Vec::new(),
                    fingerprint: OnceLock::new(),
                };
                checkpoint.check_tied()
            };
            checked(floats(right)).expect(embedding);
            checked(halves(right)).expect(embedding);
            for wrong in [floats([1.0, -2.0, 0.5, 0.25]), halves([1.0, -2.0, 0.5, 0.25])] {
                let Err(LoadError::Untied { head, embedding: other, .. }) = checked(wrong) else {
                    panic!("{model}: {head_name} beside {embedding}")
                };
                assert_eq!([&*head, &other], [head_name, embedding]);
            }
        }
    }
}
