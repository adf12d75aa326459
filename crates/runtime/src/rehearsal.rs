//! What is wrong with a question, found out without loading weights.

use probity_lm::{
    GenerateRequest, GenerateResult, LanguageModel, LmError, ModelDescription, Prompt, Requests, ScoreRequest,
    ScoreResult, Sink, Usage,
};

use crate::constraint::ConstraintGrammars;
use crate::hub::LocatedModel;
use crate::memory::{MemoryLimit, ModelMemory};
use crate::score::{check, request_error, text_behind, unasked};
use crate::{Checkpoint, LoadError, LoadOptions};

/// A language model that looks at the first request of a work list as the model itself would, and ends there with
/// [`Rehearsed`].
///
/// It is made from a model's files alone: configuration, tokenizer, chat template and the names of the tensors. Whoever
/// asks it learns whether all that comes before the first answer is right.
pub struct Rehearsal {
    checkpoint: Checkpoint,
    description: ModelDescription,
}

/// The first request is right; nothing was asked. It comes as [`LmError::Sink`].
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("nothing is answered in a rehearsal")]
pub struct Rehearsed;

impl Rehearsal {
    /// Opens the model's files. The fingerprint of its description says that the files were not hashed.
    pub fn open(located: &LocatedModel, options: LoadOptions) -> Result<Self, LoadError> {
        options.check()?;
        let checkpoint = Checkpoint::open(located)?;
        checkpoint.check_answers(options)?;
        // Other models may still go from there before this one comes.
        ModelMemory::new(&checkpoint, options).check((&checkpoint, located), options, MemoryLimit::Total)?;
        let description = checkpoint.describe(located, options, "not hashed".to_owned());
        Ok(Self { checkpoint, description })
    }

    /// Whether a prompt with what is asked behind it is so long that it will be an outcome, and is not cut into tokens.
    fn is_beyond(&self, prompt: &Prompt, text: &str) -> bool {
        let context = self.description.context_length.unwrap_or(usize::MAX);
        self.checkpoint.encoder.least_tokens(prompt, text) > context
    }

    /// The model's files.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }
}

impl LanguageModel for Rehearsal {
    fn description(&self) -> &ModelDescription {
        &self.description
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        _: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        if let Some(request) = requests.next()
            && !self.is_beyond(&request.prompt, text_behind(&request.ask))
        {
            check(&self.checkpoint.encoder, &request)?;
        }
        Err(LmError::Sink(Box::new(Rehearsed)))
    }

    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        _: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        if let Some(request) = requests.next() {
            if !self.is_beyond(&request.prompt, "") {
                let encoded = self.checkpoint.encoder.encode_prompt(&request.prompt);
                encoded.map(drop).or_else(|error| unasked(&request.id, error).map(drop))?;
            }
            if let Some(constraint) = &request.constraint {
                let grammars = ConstraintGrammars::new(self.checkpoint.encoder.tokenizer());
                let started = grammars.and_then(|grammars| grammars.start(constraint));
                started.map_err(|why| request_error(&request.id, why))?;
            }
        }
        Err(LmError::Sink(Box::new(Rehearsed)))
    }
}
