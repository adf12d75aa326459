//! Models that take their place in the pool when they are asked something.

use std::sync::Arc;

use probity_lm::{
    EncoderConfig, EncoderError, GenerateRequest, GenerateResult, HiddenStates, LanguageModel, LmError, MaskedSequence,
    ModelDescription, Requests, ScoreRequest, ScoreResult, Sink, TextEncoder, TextTokenizer, Usage,
};
use probity_runtime::{Model, TextFiles, TextModel};

use crate::ModelPool;
use crate::options::ModelOptions;

/// A language model of a pool.
pub(crate) struct PooledModel {
    pool: Arc<ModelPool>,
    options: ModelOptions,
    description: ModelDescription,
}

impl PooledModel {
    /// The model of these options, which is known to be such a one.
    pub(crate) fn new(pool: &Arc<ModelPool>, options: ModelOptions, description: ModelDescription) -> Self {
        Self { pool: pool.clone(), options, description }
    }

    fn ask<Q: Send, A>(
        &self,
        requests: &mut Requests<'_, Q>,
        sink: &mut Sink<'_, A>,
        answer: impl FnOnce(&Model, &mut Requests<'_, Q>, &mut Sink<'_, A>) -> Result<Usage, LmError>,
    ) -> Result<Usage, LmError> {
        let mut requests = requests.peekable();
        if requests.peek().is_none() {
            // Nothing is loaded for nothing: all answers may be there already.
            return Ok(Usage::default());
        }
        let model = self.pool.language(&self.options).map_err(|error| LmError::Model(Box::new(error)))?;
        answer(&model, &mut requests, sink)
    }
}

impl LanguageModel for PooledModel {
    fn description(&self) -> &ModelDescription {
        &self.description
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        self.ask(requests, sink, |model, requests, sink| model.score(requests, sink))
    }

    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        self.ask(requests, sink, |model, requests, sink| model.generate(requests, sink))
    }
}

/// An encoder of a pool. Texts are cut into tokens without it.
pub(crate) struct PooledEncoder {
    pool: Arc<ModelPool>,
    options: ModelOptions,
    files: Arc<TextFiles>,
}

impl PooledEncoder {
    /// The encoder of these options, with its files.
    pub(crate) fn new(pool: &Arc<ModelPool>, options: ModelOptions, files: Arc<TextFiles>) -> Self {
        Self { pool: pool.clone(), options, files }
    }

    fn model(&self) -> Result<Arc<TextModel>, EncoderError> {
        self.pool.encoder(&self.options).map_err(|error| EncoderError::Model(Box::new(error)))
    }
}

impl TextEncoder for PooledEncoder {
    fn config(&self) -> &EncoderConfig {
        self.files.config()
    }

    fn tokenizer(&self) -> &dyn TextTokenizer {
        &*self.files
    }

    fn hidden_states(
        &self,
        sequences: &[&[u32]],
        layers: &[usize],
        sink: &mut Sink<'_, HiddenStates>,
    ) -> Result<Usage, EncoderError> {
        self.model()?.hidden_states(sequences, layers, sink)
    }

    fn predict_masked(
        &self,
        sequences: &[MaskedSequence],
        sink: &mut Sink<'_, Vec<u32>>,
    ) -> Result<Usage, EncoderError> {
        self.model()?.predict_masked(sequences, sink)
    }
}
