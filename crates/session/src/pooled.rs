//! Models that take their place in the pool when they are asked something.

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
    /// Takes what questions would cost, in the place of answers.
    planned: Option<Box<dyn Fn(PlannedCost) + Send + Sync>>,
}

impl PooledModel {
    /// A model that is known to answer prompts.
    pub(crate) fn new(pool: &Arc<ModelPool>, opened: OpenedModel, description: ModelDescription) -> Self {
        Self { pool: pool.clone(), opened, description, planned: None }
    }

    /// The same that plans in the place of answering. It is loaded all the same, since its own schedule says what its
    /// questions cost.
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
            // Nothing is loaded for nothing: all answers may be there already.
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

/// An encoder of a pool. Texts are cut into tokens without it.
pub(crate) struct SharedEncoder {
    pool: Arc<ModelPool>,
    opened: OpenedModel,
    files: Arc<TextFiles>,
}

impl SharedEncoder {
    /// The encoder with its files.
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
