//! A checkpoint opened: configuration, weights, tokenizer and chat template, from GGUF or from a folder alike.

use std::path::{Path, PathBuf};

use probity_models::{ConfigError, DecoderConfig, SourceError, WeightSource, read_config};
use rayon::prelude::*;
use serde_json::Value;

use crate::chat::ChatError;
use crate::encoder::Encoder;
use crate::gguf_config::gguf_config;
use crate::hub::{Format, Located};
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::weights::{GgufFile, SafetensorsFiles, WeightsError, check_finite};

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its files cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A tensor is missing or has another shape.
    #[error(transparent)]
    Tensor(#[from] SourceError),
    /// Its configuration cannot be read.
    #[error("{}: {why}", path.display())]
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
        source: ConfigError,
    },
    /// Its tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Its chat template cannot be used.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// Tokenizer and embedding do not belong together.
    #[error(
        "{}: the tokenizer has {tokens} tokens but the embedding {rows} rows\n\nhint: the tokenizer's files belong to another model", path.display()
    )]
    Vocabulary {
        /// The model.
        path: PathBuf,
        /// Tokens of the tokenizer.
        tokens: usize,
        /// Rows of the embedding.
        rows: usize,
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

/// A checkpoint whose files were opened and checked, but not yet loaded as a model.
pub struct Checkpoint {
    /// The configuration in the fields of `config.json`.
    pub config_json: Value,
    /// The same, read for the runtime.
    pub config: DecoderConfig,
    /// The weights.
    pub source: Box<dyn WeightSource + Sync>,
    /// Tokenizer and chat template.
    pub encoder: Encoder,
    /// Every file that the model is made of.
    pub files: Vec<PathBuf>,
}

/// Files of a folder that decide a model's numbers besides its weights, where they are there.
const SIDE_FILES: [&str; 5] = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

impl Checkpoint {
    /// Opens the model's files.
    pub fn open(located: &Located) -> Result<Self, LoadError> {
        let path = located.path.as_path();
        let (config_json, source, tokenizer, files): (_, Box<dyn WeightSource + Sync>, _, _) = match located.format {
            Format::Gguf => {
                let file = GgufFile::open(path)?;
                let tokenizer = Tokenizer::from_gguf(&file)?;
                (gguf_config(&file)?, Box::new(file), tokenizer, vec![path.to_owned()])
            }
            Format::Safetensors => {
                let source = SafetensorsFiles::open(path)?;
                let mut files = source.paths();
                files.extend(SIDE_FILES.iter().map(|name| path.join(name)).filter(|file| file.exists()));
                (config_of_folder(path)?, Box::new(source), Tokenizer::from_json(&path.join("tokenizer.json"))?, files)
            }
        };
        let config = read_config(&config_json).map_err(|source| LoadError::Config { path: path.to_owned(), source })?;
        if tokenizer.vocab_size() > config.vocab_size {
            return Err(LoadError::Vocabulary { path: path.to_owned(), tokens: tokenizer.vocab_size(), rows: config.vocab_size });
        }
        Ok(Self { config_json, config, source, encoder: Encoder::new(tokenizer)?, files })
    }

    /// Refuses weights that are no numbers; one pass over all of them.
    pub fn check_finite(&self) -> Result<(), LoadError> {
        let check = |name: &String| -> Result<(), LoadError> { Ok(check_finite(name, &self.source.tensor(name)?)?) };
        // The first bad tensor by name, whichever thread finds one first.
        let failures: Vec<Option<LoadError>> = self.source.names().par_iter().map(|name| check(name).err()).collect();
        failures.into_iter().flatten().next().map_or(Ok(()), Err)
    }
}

fn config_of_folder(folder: &Path) -> Result<Value, LoadError> {
    let path = folder.join("config.json");
    let fail = |why: String| LoadError::ConfigFile { path: path.clone(), why };
    let text = std::fs::read(&path).map_err(|error| fail(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| fail(error.to_string()))
}
