//! A checkpoint opened: configuration, weights, tokenizer and chat template, from GGUF or from a folder alike.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use probity_kernels::{RopeLayout, dequantise};
use probity_lm::{Precision, parse_unique};
use probity_models::{
    Arithmetic, BRIDGE, Compute, ConfigError, DecoderClasses, DeviceChoice, DeviceError, DeviceListError, ModelConfig,
    PackedDecoder, Placement, RawTensor, SourceError, TextTensors, WeightSource, check_model, load_bridged,
    load_classifier_on, load_decoder_on, load_encoder_decoder_on, load_encoder_on, read_config, text_part,
};
use serde_json::Value;

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
    /// Its files cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Weights(#[from] WeightsError),
    /// A tensor is missing or has another shape.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tensor(#[from] SourceError),
    /// An adapter cannot be put into it.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Adapter(#[from] AdapterError),
    /// Its configuration cannot be read.
    #[error("{}: {why}", path.display())]
    #[diagnostic(help("download the file again"))]
    ConfigFile {
        /// `config.json`.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Its configuration cannot be run.
    #[error("{}: {source}", path.display())]
    Config {
        /// Where the configuration stands.
        path: PathBuf,
        /// What is wrong.
        #[diagnostic_source]
        source: ConfigError,
    },
    /// Its tokenizer cannot be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Tokenizer and embedding do not belong together.
    #[error("{}: the tokenizer has {tokens} tokens but the embedding {rows} rows", path.display())]
    #[diagnostic(help("the tokenizer's files belong to another model"))]
    Vocabulary {
        /// The model.
        path: PathBuf,
        /// Tokens of the tokenizer.
        tokens: usize,
        /// Rows of the embedding.
        rows: usize,
    },
    /// A tensor that nothing in the architecture uses.
    #[error("tensor `{name}` in {} is not used by this architecture", path.display())]
    #[diagnostic(help(
        "the checkpoint is a variant that is not supported, or its configuration names the wrong architecture; \
         probity refuses it because ignoring the tensor would change every score"
    ))]
    UnusedTensor {
        /// The first such tensor.
        name: String,
        /// The file or folder.
        path: PathBuf,
    },
    /// A head that should be the embedding, and is another tensor.
    #[error(
        "tensor `{head}` in {} is not the embedding `{embedding}`, though the configuration says \
         tie_word_embeddings",
        path.display()
    )]
    #[diagnostic(help(
        "say \"tie_word_embeddings\": false in config.json where the head was trained by itself; download the model \
         again where it was not changed"
    ))]
    Untied {
        /// The head.
        head: String,
        /// The embedding.
        embedding: String,
        /// The file or folder.
        path: PathBuf,
    },
    /// An instruction set that this machine does not have.
    #[error("this machine cannot run {wanted}")]
    #[diagnostic(help("it has {has}; leave --compute isa out for the best of them"))]
    Isa {
        /// What was asked for.
        wanted: &'static str,
        /// What there is.
        has: String,
    },
    /// One file of several.
    #[error("{} is one of {count} parts of a model", path.display())]
    #[diagnostic(help("join the parts into one file first (llama.cpp's gguf-split --merge)"))]
    Split {
        /// The file.
        path: PathBuf,
        /// How many files there are.
        count: u64,
    },
    /// The device cannot be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Device(DeviceError),
    /// The devices cannot be used together.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Devices(#[from] DeviceListError),
    /// Weights and activations are more than there is.
    #[error("the model needs {needed} on {devices}, {there}")]
    #[diagnostic(help("{hint}"))]
    Memory {
        /// The devices.
        devices: String,
        /// Weights and activations.
        needed: String,
        /// What there is.
        there: String,
        /// What would fit.
        hint: String,
    },
    /// The precision is one of our kernels'.
    #[error("precision `{}` exists on cpu alone", precision.as_str())]
    #[diagnostic(help("{device} has exact and fast"))]
    Precision {
        /// The device.
        device: DeviceChoice,
        /// What was asked for.
        precision: Precision,
    },
    /// A class head that the configuration tells of and the checkpoint does not have.
    #[error("{} has no tensor `{tensor}`, the class head that its configuration tells of", path.display())]
    #[diagnostic(help(
        "download the checkpoint of the reward model or classifier again; where it is a language model, `architectures` \
         in config.json should not name …ForSequenceClassification"
    ))]
    NoClassHead {
        /// The tensor.
        tensor: String,
        /// The file or folder.
        path: PathBuf,
    },
    /// A model that reads texts, where one is needed that generates.
    #[error("a {architecture} model reads texts and says nothing about what follows them")]
    #[diagnostic(help(
        "methods need a model that generates, such as a llama, qwen2 or t5; metrics take this one as --encoder; reward takes one whose \
         config.json names an architecture …ForSequenceClassification"
    ))]
    NoGenerator {
        /// `model_type`.
        architecture: String,
    },
    /// A model that generates, where one is needed that reads a text as a whole.
    #[error("a {architecture} model does not read a text as a whole")]
    #[diagnostic(help("an encoder is a bert, roberta, distilbert, modernbert or deberta-v2"))]
    NoEncoder {
        /// `model_type`.
        architecture: String,
    },
    /// The machine gave no threads.
    #[error("cannot start {threads} threads: {why}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// The system's reason.
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

/// A checkpoint whose files were opened and checked, but not yet loaded as a model.
pub struct Checkpoint {
    /// Where its files are.
    pub located: LocatedModel,
    /// The configuration in the fields of `config.json`.
    pub config_json: Value,
    /// The same, read for the runtime.
    pub config: ModelConfig,
    /// The weights.
    pub source: Box<dyn WeightSource + Send + Sync>,
    /// Tokenizer and chat template.
    pub encoder: Arc<PromptEncoder>,
    /// Every file that the model is made of, and its state before it was read.
    pub(crate) files: Vec<FileState>,
    fingerprint: OnceLock<String>,
}

/// Files of a folder that decide a model's numbers besides its weights, where they are there.
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
                    if let Some(count) = file.u64("split.count")?.filter(|&count| count > 1) {
                        return Err(LoadError::Split { path: path.to_owned(), count });
                    }
                    // Part of the fingerprint: it decides what the model reads.
                    let template = path.parent().map(|folder| folder.join(TEMPLATE_FILE));
                    let files = [Some(path.to_owned()), template.filter(|file| side_file::is_there(file))];
                    let files = files.into_iter().flatten().map(file_state).collect();
                    let tokenizer = Tokenizer::from_gguf(&file)?;
                    (gguf_config(&file)?, Box::new(file), tokenizer, files)
                }
                WeightFormat::Safetensors => {
                    let source = SafetensorsFiles::open(path)?;
                    let beside = SIDE_FILES.iter().map(|name| path.join(name)).filter(|file| side_file::is_there(file));
                    let files = source.paths().into_iter().chain(beside).map(file_state).collect();
                    let config = config_of_folder(path)?;
                    let (config, source): (_, Box<dyn WeightSource + Send + Sync>) =
                        match text_part(&config).map_err(not_run)? {
                            Some(text) => (text, Box::new(TextTensors(source))),
                            None => (config, Box::new(source)),
                        };
                    (config, source, Tokenizer::from_json(&path.join("tokenizer.json"))?, files)
                }
            };
        let config = read_config(&config_json).map_err(not_run)?;
        // Fewer tokens than rows are fine: embeddings are padded to round numbers.
        if tokenizer.vocab_size() > config.vocab_size() {
            return Err(LoadError::Vocabulary {
                path: path.to_owned(),
                tokens: tokenizer.vocab_size(),
                rows: config.vocab_size(),
            });
        }
        if let Some(folder) = &located.adapter {
            let adapter = LoraAdapter::open(folder)?;
            // Part of the fingerprint: with an adapter a model is another one.
            files.extend(adapter.files().map(file_state));
            // In llama.cpp's order the elements that are rotated together lie side by side.
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
                    // As in training: the start token, then what the tokenizer puts before a text.
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
        let (located, encoder, fingerprint) = (located.clone(), Arc::new(encoder), OnceLock::new());
        Ok(Self { located, config_json, config, source, encoder, files, fingerprint })
    }

    /// The fingerprint of its files, which are hashed once.
    pub fn fingerprint(&self) -> Result<&str, WeightsError> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(known);
        }
        let paths: Vec<&PathBuf> = self.files.iter().map(|(path, _)| path).collect();
        let hashed = fingerprint(&paths)?;
        Ok(self.fingerprint.get_or_init(|| hashed))
    }

    /// Whether its files are still those that were opened. After a change, the fingerprint of the files is not that of
    /// what was read.
    pub fn is_current(&self) -> bool {
        self.files.iter().all(|file| file.1.is_some() && file_state(file.0.clone()) == *file)
    }

    /// `model_type`.
    pub fn architecture(&self) -> &str {
        self.config_json["model_type"].as_str().unwrap_or_default()
    }

    /// The library whose own code runs it, with its version; absent where it is ours.
    pub fn through(&self) -> Option<&'static str> {
        matches!(self.config, ModelConfig::Bridged(_)).then_some(BRIDGE)
    }

    /// Loads a model that answers prompts on a device, or on several together. Refuses weights that are no numbers, and tensors that the architecture
    /// does not use: they would change the numbers of whoever does.
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

    /// Whether its layers can be on the devices of a copy, in the arithmetic that is asked for.
    pub fn check_devices(&self, options: LoadOptions) -> Result<(), LoadError> {
        Ok(check_model(options.devices.first_copy(), &self.config, options.arithmetic())?)
    }

    /// Whether it is a model that answers prompts, by tokens or by classes, and does on these devices together in that arithmetic.
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

    /// Loads a model that reads texts as a whole, as carefully as [`load`](Self::load).
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
        // What an architecture takes is told by watching it load: a list of its tensors' names would have to be kept
        // beside it.
        let checked = CheckedSource { source: &*self.source, taken: Mutex::default() };
        let model = load(&checked)?;
        let taken = checked.taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        let unused =
            self.source.names().into_iter().find(|name| !taken.contains_key(name) && !self.config.is_spare(name));
        if let Some(name) = unused {
            return Err(LoadError::UnusedTensor { name, path: self.source.path() });
        }
        self.check_tied()?;
        // The first bad tensor by name.
        taken.into_values().find_map(Result::err).map_or(Ok(model), |error| Err(error.into()))
    }

    /// A head that the configuration says is the embedding is that, where a checkpoint has it besides.
    fn check_tied(&self) -> Result<(), LoadError> {
        let there = |name: &String| self.source.contains(name);
        // Only where the configuration has it tied: else the architecture has taken it.
        let Some((head, embeddings)) = self.config.tied_head().filter(|(head, _)| there(head)) else { return Ok(()) };
        let Some(embedding) = embeddings.into_iter().find(there) else { return Ok(()) };
        if says_the_same(&self.source.tensor(&embedding)?, &self.source.tensor(&head)?) {
            return Ok(());
        }
        Err(LoadError::Untied { head, embedding, path: self.source.path() })
    }
}

/// Whether two tensors hold the same numbers, in whatever types.
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
    // A row at a time: embeddings take gigabytes as f32.
    let (mut one, mut other) = (vec![0.0; width], vec![0.0; width]);
    first.shape == second.shape
        && (0..rows).all(|at| {
            row(first, at, &mut one);
            row(second, at, &mut other);
            one == other
        })
}

/// A source that looks at each tensor once, when it is first taken, and remembers which were.
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
    // Such fields say what a GGUF file's metadata says; in a folder they would mean nothing to anyone else.
    match config.as_object().and_then(|map| map.keys().find(|key| key.starts_with("probity."))) {
        Some(key) => Err(fail(format!("the field `{key}` is not one of a config.json"))),
        None => Ok(config),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use probity_models::{TensorBytes, WeightType};

    use super::*;

    /// Tensors of two rows of two numbers.
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

    /// The upper halves of floats.
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
