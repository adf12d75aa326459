//! A model that takes its place in the pool when it is asked something.

use std::sync::Arc;

use probity_lm::{
    GenerateRequest, GenerateResult, LanguageModel, LmError, ModelDescription, Requests, ScoreRequest, ScoreResult,
    Sink, Usage,
};
use probity_runtime::Model;

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
