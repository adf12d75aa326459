//! Requests to tokens, as far as a model's files say.

use std::sync::{Arc, OnceLock};

use probity_lm::{Constraint, ModelDescription, Outcome, Prompt};

use crate::constraint::{ConstrainedText, ConstraintError, ConstraintGrammars};
use crate::encoder::PromptEncoder;

/// Tokens of a prompt where neither model nor memory limit them.
const MOST_TOKENS: usize = 1 << 24;

/// Turns requests into tokens, or says why the model cannot answer them. It needs no weights.
pub(crate) struct RequestEncoder {
    pub(crate) encoder: Arc<PromptEncoder>,
    pub(crate) description: ModelDescription,
    /// The most tokens of a prompt with its answer. The memory for keys and values may be less than the context.
    pub(crate) token_limit: usize,
    /// Made when the first text is constrained.
    grammars: OnceLock<Result<ConstraintGrammars, ConstraintError>>,
}

impl RequestEncoder {
    pub(crate) fn new(encoder: Arc<PromptEncoder>, description: ModelDescription) -> Self {
        let mut encoder = Self { encoder, description, token_limit: 0, grammars: OnceLock::new() };
        encoder.token_limit = encoder.most_tokens();
        encoder
    }

    /// The most tokens that the model can see. A model with an encoder has its context twice: for the source, and for
    /// the answer.
    pub(crate) fn most_tokens(&self) -> usize {
        let sides = if self.encoder.has_source() { 2 } else { 1 };
        self.description.context_length.map_or(MOST_TOKENS, |context| sides * context)
    }

    /// Why a prompt of which an encoder reads so many tokens, and of so many others with its answer, cannot be asked.
    pub(crate) fn too_long(&self, source: usize, others: usize) -> Option<Outcome> {
        // The context is looked at first: where it is too short, no memory helps.
        let refused =
            |tokens_needed, limit| (tokens_needed > limit).then_some(Outcome::TooLong { tokens_needed, limit });
        let seen = self.description.context_length.and_then(|context| refused(source.max(others), context));
        seen.or_else(|| refused(source + others, self.token_limit))
    }

    /// The same of a prompt and a text behind it that are so long that they need not be cut to know it.
    pub(crate) fn surely_too_long(&self, prompt: &Prompt, text: &str) -> Option<Outcome> {
        self.too_long(0, self.encoder.least_tokens(prompt, text))
    }

    /// Begins a text under a constraint, or says why it is none for this model.
    pub(crate) fn constrain(&self, constraint: &Constraint) -> Result<ConstrainedText, ConstraintError> {
        let grammars = self.grammars.get_or_init(|| ConstraintGrammars::new(self.encoder.tokenizer()));
        grammars.as_ref().map_err(Clone::clone)?.start(constraint)
    }
}
