//! Models that are loaded into the pool when first queried.

use std::sync::Arc;

use probity_lm::{
    EncoderConfig, EncoderError, GenerateRequest, GenerateResult, HiddenStates, LanguageModel, LmError, MaskedSequence,
    ModelDescription, Requests, ScoreRequest, ScoreResult, Sink, TextEncoder, TextTokenizer, Usage,
};
use probity_runtime::{DryModel, PlannedCost, TextFiles, TextModel};

use crate::{ModelPool, OpenedModel};

/// A language model of a pool.
pub(crate) struct PooledModel {
    pool: Arc<ModelPool>,
    opened: OpenedModel,
    description: ModelDescription,
    /// Receives the cost of queries instead of answering them.
    planned: Option<Box<dyn Fn(PlannedCost) + Send + Sync>>,
}

impl PooledModel {
    /// A model whose description says that it answers prompts.
    pub(crate) fn new(pool: &Arc<ModelPool>, opened: OpenedModel, description: ModelDescription) -> Self {
        Self { pool: pool.clone(), opened, description, planned: None }
    }

    /// A model that plans instead of answering. It is still loaded, because its scheduler computes the cost.
    pub(crate) fn planning(self, planned: impl Fn(PlannedCost) + Send + Sync + 'static) -> Self {
        Self { planned: Some(Box::new(planned)), ..self }
    }

    fn ask<Q: Send, A>(
        &self,
        requests: &mut Requests<'_, Q>,
        sink: &mut Sink<'_, A>,
        answer: impl FnOnce(&dyn LanguageModel, &mut Requests<'_, Q>, &mut Sink<'_, A>) -> Result<Usage, LmError>,
    ) -> Result<Usage, LmError> {
        let mut requests = requests.peekable();
        if requests.peek().is_none() {
            // All answers may be stored, so an empty list must not load the model.
            return Ok(Usage::default());
        }
        let model = self.pool.language(&self.opened).map_err(|error| LmError::Model(Box::new(error)))?;
        let Some(planned) = &self.planned else { return answer(&*model, &mut requests, sink) };
        let dry = DryModel::count(&model);
        let usage = answer(&dry, &mut requests, sink)?;
        planned(dry.into_cost());
        Ok(usage)
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

/// An encoder of a pool. Tokenisation does not load it.
pub(crate) struct SharedEncoder {
    pool: Arc<ModelPool>,
    opened: OpenedModel,
    files: Arc<TextFiles>,
}

impl SharedEncoder {
    /// An encoder with its files.
    pub(crate) fn new(pool: &Arc<ModelPool>, opened: OpenedModel, files: Arc<TextFiles>) -> Self {
        Self { pool: pool.clone(), opened, files }
    }

    fn model(&self) -> Result<Arc<TextModel>, EncoderError> {
        self.pool.encoder(&self.opened).map_err(|error| EncoderError::Model(Box::new(error)))
    }
}

impl TextEncoder for SharedEncoder {
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
