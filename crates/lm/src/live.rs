//! Generation with texts that arrive while others are being generated.

use crate::{GenerateRequest, GenerateResult, SinkError};

/// A list of texts that can grow during generation, and an observer of their progress. For
/// [`LanguageModel::generate_live`](crate::LanguageModel::generate_live).
pub trait LiveTexts: Send {
    /// The next text, or `None` if none is waiting. Called again when there is room for another. The list ends if no
    /// text is being generated either.
    fn next(&mut self) -> Option<GenerateRequest>;

    /// Reports a text's tokens so far, by its position in the list. Returns whether to continue: if not, the text ends
    /// with [`Unparsed`](crate::Outcome::Unparsed). Models may skip this call.
    fn grown(&mut self, _place: usize, _ids: &[u32]) -> bool {
        true
    }

    /// Called between two passes of the model, which may be queried here. An error ends the list.
    fn pause(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Receives a text's result by its position; called exactly once per text.
    fn done(&mut self, place: usize, result: GenerateResult) -> Result<(), SinkError>;
}
