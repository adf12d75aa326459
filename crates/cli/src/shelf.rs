//! One model in memory at a time: the stages of a plan take turns, and so do the models that one method asks.

use std::cell::RefCell;

use probity_lm::{
    GenerateRequest, GenerateResult, LanguageModel, LmError, ModelDescription, Requests, ScoreRequest, ScoreResult,
    Sink, Usage,
};
use probity_runtime::Model;

use crate::compute::ModelArgs;
use crate::exit::message;
use crate::progress::Reporter;

/// A place for one model.
pub(crate) struct Shelf<'r> {
    reporter: &'r RefCell<Reporter>,
    loaded: RefCell<Option<Loaded>>,
}

/// A model that is loaded, or why it cannot be.
struct Loaded {
    args: ModelArgs,
    model: Result<Model, String>,
}

impl<'r> Shelf<'r> {
    pub(crate) fn new(reporter: &'r RefCell<Reporter>) -> Self {
        Self { reporter, loaded: RefCell::default() }
    }

    /// Does something with the model of these arguments, which is loaded unless it is the one that is here; the other
    /// is let go first.
    pub(crate) fn with<T>(&self, args: &ModelArgs, work: impl FnOnce(&Model) -> T) -> anyhow::Result<T> {
        let mut loaded = self.loaded.borrow_mut();
        if loaded.as_ref().is_none_or(|loaded| !loaded.args.has_weights_of(args)) {
            *loaded = None;
            let model = args.load(&mut self.reporter.borrow_mut()).map_err(|error| message(error.as_ref()));
            *loaded = Some(Loaded { args: args.clone(), model });
        }
        let loaded = loaded.as_mut().expect("just filled");
        if loaded.args != *args {
            if let Ok(model) = &mut loaded.model {
                model.run_with(args.options.load_options())?;
            }
            loaded.args = args.clone();
        }
        let model = loaded.model.as_ref();
        Ok(work(model.map_err(|told| anyhow::anyhow!("{}", told.strip_prefix("error: ").unwrap_or(told)))?))
    }
}

/// A model that takes its turn on the shelf when it is asked something.
pub(crate) struct Shelved<'s> {
    shelf: &'s Shelf<'s>,
    args: ModelArgs,
    description: ModelDescription,
}

impl<'s> Shelved<'s> {
    /// The model of these arguments, which is known to be such a one.
    pub(crate) fn new(shelf: &'s Shelf<'s>, args: ModelArgs, description: ModelDescription) -> Self {
        Self { shelf, args, description }
    }

    fn ask<Q, A>(
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
        let asked = self.shelf.with(&self.args, |model| answer(model, &mut requests, sink));
        asked.unwrap_or_else(|error| Err(LmError::Model(error.into())))
    }
}

impl LanguageModel for Shelved<'_> {
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
