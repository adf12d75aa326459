//! Encodes requests as tokens, using only a model's configuration and tokenizer.

use std::sync::{Arc, OnceLock};

use probity_lm::{Constraint, ModelDescription, Outcome, Prompt};

use crate::constraint::{ConstrainedText, ConstraintError, ConstraintGrammars};
use crate::encoder::PromptEncoder;

/// Token limit of a prompt if neither model nor memory limit it.
const MOST_TOKENS: usize = 1 << 24;

/// Encodes requests, or explains why the model cannot answer them. Needs no weights.
pub(crate) struct RequestEncoder {
    pub(crate) encoder: Arc<PromptEncoder>,
    pub(crate) description: ModelDescription,
    /// Maximum tokens of a prompt with its answer. The cache budget may be less than the context.
    pub(crate) token_limit: usize,
    /// Created for the first constrained text.
    grammars: OnceLock<Result<ConstraintGrammars, ConstraintError>>,
}

impl RequestEncoder {
    pub(crate) fn new(encoder: Arc<PromptEncoder>, description: ModelDescription) -> Self {
        let mut encoder = Self { encoder, description, token_limit: 0, grammars: OnceLock::new() };
        encoder.token_limit = encoder.most_tokens();
        encoder
    }

    /// Maximum tokens that the model can process. A model with an encoder has its context twice: for the source and for
    /// the answer.
    pub(crate) fn most_tokens(&self) -> usize {
        let sides = if self.encoder.has_source() { 2 } else { 1 };
        self.description.context_length.map_or(MOST_TOKENS, |context| sides * context)
    }

    /// The outcome for a prompt that is too long, from the number of tokens that an encoder reads and of the other
    /// tokens including the answer.
    pub(crate) fn too_long(&self, source: usize, others: usize) -> Option<Outcome> {
        // The context is checked first: if it is too short, more memory does not help.
        let refused =
            |tokens_needed, limit| (tokens_needed > limit).then_some(Outcome::TooLong { tokens_needed, limit });
        let seen = self.description.context_length.and_then(|context| refused(source.max(others), context));
        seen.or_else(|| refused(source + others, self.token_limit))
    }

    /// The same for a prompt and the text after it that are so long that this is known without tokenising.
    pub(crate) fn surely_too_long(&self, prompt: &Prompt, text: &str) -> Option<Outcome> {
        self.too_long(0, self.encoder.least_tokens(prompt, text))
    }

    /// Starts a text under a constraint. An error if it is invalid for this model.
    pub(crate) fn constrain(&self, constraint: &Constraint) -> Result<ConstrainedText, ConstraintError> {
        let grammars = self.grammars.get_or_init(|| ConstraintGrammars::new(self.encoder.tokenizer()));
        grammars.as_ref().map_err(Clone::clone)?.start(constraint)
    }
}
