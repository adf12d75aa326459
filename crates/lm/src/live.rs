//! Texts that come while others are being written.

use crate::{GenerateRequest, GenerateResult, SinkError};

/// A list of texts that may grow while it is worked on, and whoever looks on. For
/// [`LanguageModel::generate_live`](crate::LanguageModel::generate_live).
pub trait LiveTexts: Send {
    /// The next text; absent where none waits at the moment. Asked again when there is room for one more, and the list
    /// has ended where nothing is being written either.
    fn next(&mut self) -> Option<GenerateRequest>;

    /// A text's tokens so far, by its place among those that were given; whether it is wanted any longer. One that is
    /// not ends with the outcome [`Unparsed`](crate::Outcome::Unparsed). A model need not tell.
    fn grown(&mut self, _place: usize, _ids: &[u32]) -> bool {
        true
    }

    /// Between two passes of the model, which may be asked something else here. An error ends the list.
    fn pause(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    /// What a text came to, by its place; each exactly once.
    fn done(&mut self, place: usize, result: GenerateResult) -> Result<(), SinkError>;
}
