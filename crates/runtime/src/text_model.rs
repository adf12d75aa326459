//! The text encoder interface for an encoder and its tokenizer.

use std::ops::Range;
use std::sync::Arc;

use candle_core::Tensor;
use probity_lm::{
    EncoderConfig, EncoderError, Framing, HiddenStates, MaskedSequence, Piece, Sink, TextEncoder, TextTokenizer, Usage,
    check_sequences,
};
use probity_models::{Compute, HeadRow, ModelConfig, PackedEncoder};
use rayon::prelude::*;

use crate::checkpoint::{Checkpoint, LoadError};
use crate::encoder::PromptEncoder;
use crate::hub::LocatedModel;
use crate::memory::{MemoryLimit, ModelMemory};
use crate::options::LoadOptions;
use crate::threads::{ComputeThreads, computing_error};
use crate::tokenizer::Tokenizer;

/// Tokenizer and special tokens of an encoder, without its weights.
pub struct TextFiles {
    encoder: Arc<PromptEncoder>,
    framing: Framing,
    config: EncoderConfig,
    vocab_size: usize,
}

/// A loaded encoder.
pub struct TextModel {
    files: TextFiles,
    encoder: Box<dyn PackedEncoder>,
    threads: ComputeThreads,
    token_budget: usize,
    memory: ModelMemory,
}

/// Spellings of the mask token in vocabularies.
const MASKS: [&str; 2] = ["[MASK]", "<mask>"];

impl TextFiles {
    /// Reads the files from an encoder's checkpoint, which is hashed for its description.
    pub fn new(checkpoint: &Checkpoint, options: LoadOptions) -> Result<Self, LoadError> {
        options.check()?;
        // A single copy computes.
        let options = LoadOptions { devices: options.devices.one_copy(), ..options };
        let description = checkpoint.describe(options, checkpoint.fingerprint()?);
        let ModelConfig::Encoder(config) = &checkpoint.config else {
            return Err(LoadError::NoEncoder { architecture: description.architecture });
        };
        let tokenizer = checkpoint.encoder.tokenizer();
        let [before, after] = tokenizer.frame().clone();
        // A piece with that name that is not special is an ordinary word.
        let mask = MASKS.iter().find_map(|mask| tokenizer.token_id(mask).filter(|&id| tokenizer.is_special(id)));
        Ok(Self {
            encoder: checkpoint.encoder.clone(),
            framing: Framing { before, after, mask },
            config: EncoderConfig { description, layers: config.num_layers, hidden_size: config.hidden_size },
            vocab_size: config.vocab_size,
        })
    }

    fn tokenizer(&self) -> &Tokenizer {
        self.encoder.tokenizer()
    }

    /// Properties of the encoder.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    fn check<'a>(&self, sequences: impl IntoIterator<Item = &'a [u32]>) -> Result<(), EncoderError> {
        check_sequences(sequences, self.config.description.context_length, self.vocab_size)
    }
}

impl TextTokenizer for TextFiles {
    fn framing(&self) -> &Framing {
        &self.framing
    }

    fn tokenize(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>, EncoderError> {
        let encode = |(index, text): (usize, &&str)| {
            self.tokenizer()
                .encode_text(text)
                .map_err(|error| EncoderError::Tokenize { index, source: Box::new(error) })
        };
        texts.par_iter().enumerate().map(encode).collect()
    }

    fn piece(&self, id: u32) -> Piece {
        let text = self.tokenizer().token_text(id);
        if self.tokenizer().words_begin_with_space() {
            let word = text.strip_prefix(' ');
            return Piece { text: word.unwrap_or(&text).to_owned(), continues_word: word.is_none() };
        }
        let rest = text.strip_prefix("##").filter(|_| !self.tokenizer().is_special(id));
        Piece { text: rest.unwrap_or(&text).to_owned(), continues_word: rest.is_some() }
    }

    fn word_start(&self) -> &'static str {
        if self.tokenizer().words_begin_with_space() && !self.tokenizer().adds_space() { " " } else { "" }
    }
}

impl TextModel {
    /// Loads an encoder from this machine. Of the options, only precision, the first copy's devices, instruction set,
    /// threads and tokens per batch apply.
    pub fn load(located: &LocatedModel, options: LoadOptions) -> Result<Self, LoadError> {
        Self::from_checkpoint(&Checkpoint::open(located)?, options)
    }

    /// Loads an encoder from an opened checkpoint.
    pub fn from_checkpoint(checkpoint: &Checkpoint, options: LoadOptions) -> Result<Self, LoadError> {
        let isa = options.check()?;
        let threads = ComputeThreads::new(options.threads)?;
        let compute = Compute { arithmetic: options.arithmetic(), isa };
        let options = LoadOptions { devices: options.devices.one_copy(), ..options };
        checkpoint.check_devices(options)?;
        let memory = ModelMemory::new(checkpoint, options);
        memory.check(checkpoint, options, MemoryLimit::Free)?;
        let place = memory.placement(options.devices.first_copy());
        let encoder = threads.load(|| checkpoint.load_encoder(compute, place))?;
        let files = TextFiles::new(checkpoint, options)?;
        Ok(Self {
            files,
            encoder,
            threads,
            token_budget: options.token_budget.unwrap_or_else(|| memory.token_budget()),
            memory,
        })
    }

    /// Memory on its device.
    pub fn memory(&self) -> &ModelMemory {
        &self.memory
    }

    /// One vector of length one per text: the mean of the last hidden states over its tokens and special tokens, as in
    /// sentence-transformers with mean pooling. Text beyond the context is truncated.
    pub fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EncoderError> {
        let limit = self.files.config.description.context_length;
        let framing = &self.files.framing;
        let framed: Vec<_> = self.files.tokenize(texts)?.iter().map(|ids| framing.frame(ids, limit)).collect();
        let sequences: Vec<&[u32]> = framed.iter().map(|text| text.ids.as_slice()).collect();
        self.files.check(sequences.iter().copied())?;
        let hidden_size = self.files.config.hidden_size;
        let mut vectors = Vec::with_capacity(texts.len());
        for pack in self.packs(&sequences.iter().map(|ids| ids.len()).collect::<Vec<_>>()) {
            let texts: Vec<Vec<u32>> = sequences[pack].iter().map(|ids| ids.to_vec()).collect();
            let states = self.threads.compute(|| self.encoder.last_states(&texts)).and_then(|states| floats(&states));
            let mut rest = &*states.map_err(model_error)?;
            for text in &texts {
                let (rows, others) = rest.split_at(text.len() * hidden_size);
                vectors.push(mean_of_length_one(rows, hidden_size));
                rest = others;
            }
        }
        Ok(vectors)
    }

    /// Ranges of sequences that run together, from their lengths: as many as the token budget allows, at least one.
    fn packs(&self, lengths: &[usize]) -> Vec<Range<usize>> {
        let (mut packs, mut start, mut tokens) = (Vec::new(), 0, 0);
        for (index, length) in lengths.iter().enumerate() {
            if index > start && tokens + length > self.token_budget {
                packs.push(start..index);
                (start, tokens) = (index, 0);
            }
            tokens += length;
        }
        if start < lengths.len() {
            packs.push(start..lengths.len());
        }
        packs
    }

    fn states_of(&self, texts: &[Vec<u32>], layers: &[usize]) -> candle_core::Result<Vec<HiddenStates>> {
        let hidden_size = self.files.config.hidden_size;
        let states = self.threads.compute(|| self.encoder.encode(texts, layers))?;
        let states = states.iter().map(floats).collect::<candle_core::Result<Vec<_>>>()?;
        let mut start = 0;
        Ok(texts
            .iter()
            .map(|text| {
                let rows = start * hidden_size..(start + text.len()) * hidden_size;
                start += text.len();
                let values = states.iter().flat_map(|layer| &layer[rows.clone()]).copied().collect();
                HiddenStates { values, tokens: text.len(), hidden_size }
            })
            .collect())
    }

    fn predictions_of(&self, sequences: &[MaskedSequence]) -> candle_core::Result<Vec<u32>> {
        let texts: Vec<Vec<u32>> = sequences.iter().map(|sequence| sequence.ids.clone()).collect();
        let positions: Vec<Vec<usize>> = sequences.iter().map(|sequence| sequence.positions.clone()).collect();
        let rows = self.threads.compute(|| {
            let hidden = self.encoder.masked(&texts, &positions)?;
            self.encoder.head(&hidden, &vec![Vec::new(); hidden.dim(0)?])
        })?;
        let id = |row: &HeadRow| {
            if !row.normaliser.is_finite() {
                candle_core::bail!("a logit at a mask is no number");
            }
            Ok(row.greedy)
        };
        rows.iter().map(id).collect()
    }
}

fn floats(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

fn model_error(error: candle_core::Error) -> EncoderError {
    EncoderError::Model(computing_error(error))
}

fn mean_of_length_one(states: &[f32], hidden_size: usize) -> Vec<f32> {
    let mut sums = vec![0.0_f64; hidden_size];
    for row in states.chunks_exact(hidden_size) {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
    }
    let length = sums.iter().map(|x| x * x).sum::<f64>().sqrt();
    sums.iter().map(|x| (x / length) as f32).collect()
}

impl TextEncoder for TextModel {
    fn config(&self) -> &EncoderConfig {
        &self.files.config
    }

    fn tokenizer(&self) -> &dyn TextTokenizer {
        &self.files
    }

    fn hidden_states(
        &self,
        sequences: &[&[u32]],
        layers: &[usize],
        sink: &mut Sink<'_, HiddenStates>,
    ) -> Result<Usage, EncoderError> {
        self.files.check(sequences.iter().copied())?;
        if let Some(&asked) = layers.iter().find(|&&layer| layer > self.files.config.layers) {
            let model = self.files.config.description.name.clone();
            return Err(EncoderError::Layer { asked, layers: self.files.config.layers, model });
        }
        let mut usage = Usage::default();
        for pack in self.packs(&sequences.iter().map(|ids| ids.len()).collect::<Vec<_>>()) {
            let texts: Vec<Vec<u32>> = sequences[pack.clone()].iter().map(|ids| ids.to_vec()).collect();
            for (index, states) in pack.zip(self.states_of(&texts, layers).map_err(model_error)?) {
                usage.tokens_computed += states.tokens as u64;
                sink(index, states).map_err(EncoderError::Sink)?;
            }
        }
        Ok(Usage { tokens_unshared: usage.tokens_computed, ..usage })
    }

    fn predict_masked(
        &self,
        sequences: &[MaskedSequence],
        sink: &mut Sink<'_, Vec<u32>>,
    ) -> Result<Usage, EncoderError> {
        if !self.encoder.has_masked_head() {
            return Err(EncoderError::NoMaskedHead { model: self.files.config.description.name.clone() });
        }
        self.files.check(sequences.iter().map(|sequence| sequence.ids.as_slice()))?;
        let mut usage = Usage::default();
        for pack in self.packs(&sequences.iter().map(|sequence| sequence.ids.len()).collect::<Vec<_>>()) {
            let mut predictions = self.predictions_of(&sequences[pack.clone()]).map_err(model_error)?.into_iter();
            for index in pack {
                let sequence = &sequences[index];
                usage.tokens_computed += sequence.ids.len() as u64;
                sink(index, predictions.by_ref().take(sequence.positions.len()).collect())
                    .map_err(EncoderError::Sink)?;
            }
        }
        Ok(Usage { tokens_unshared: usage.tokens_computed, ..usage })
    }
}
