//! Interface between metrics and bidirectional encoders: hidden states of each token, and masked prediction.
//!
//! [`TextTokenizer::tokenize`] turns text into ids, and [`Framing::frame`] adds special tokens. Only `frame` truncates.

use std::ops::Range;

use crate::{BoxedError, ModelDescription, Sink, SinkError, Usage};

/// Why an encoder failed.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum EncoderError {
    /// A text could not be tokenised.
    #[error("text {index} cannot be encoded: {source}")]
    Tokenize {
        /// Position in the list.
        index: usize,
        /// Error of the tokenizer.
        #[diagnostic_source]
        source: BoxedError,
    },
    /// A sequence is empty, too long for the model, or has an id outside the vocabulary.
    #[error("sequence {index}: {why}")]
    Sequence {
        /// Position in the list.
        index: usize,
        /// Description of the problem.
        why: String,
    },
    /// The model does not have the requested layer.
    #[error("`{model}` has no layer {asked}")]
    #[diagnostic(help("choose a layer from 0 (the embeddings) to {layers}"))]
    Layer {
        /// The requested layer.
        asked: usize,
        /// The model's last layer.
        layers: usize,
        /// The model's name.
        model: String,
    },
    /// The model has no masked language modelling head.
    #[error("`{model}` has no head that predicts masked tokens")]
    #[diagnostic(help("choose a model whose config.json names \"…ForMaskedLM\""))]
    NoMaskedHead {
        /// The model's name.
        model: String,
    },
    /// The sink rejected a result.
    #[error("a result could not be delivered: {0}")]
    Sink(
        #[source]
        #[diagnostic_source]
        SinkError,
    ),
    /// The model failed.
    #[error("the model failed: {0}")]
    Model(
        #[source]
        #[diagnostic_source]
        BoxedError,
    ),
}

/// Special tokens around a text, and the mask token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Framing {
    /// Ids before each text, such as `[CLS]`.
    pub before: Vec<u32>,
    /// Ids after each text, such as `[SEP]`.
    pub after: Vec<u32>,
    /// Id of the mask token.
    pub mask: Option<u32>,
}

/// A text with special tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Framed {
    /// All ids.
    pub ids: Vec<u32>,
    /// Range of the text's own ids.
    pub from_text: Range<usize>,
    /// Number of ids truncated at the end of the text.
    pub left_out: usize,
}

impl Framing {
    /// Number of special tokens around a text.
    #[expect(clippy::len_without_is_empty, reason = "a number of ids that something else takes up")]
    pub fn len(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// Adds special tokens to `text`. Truncates the end of the text if the result exceeds `limit`; special tokens are
    /// always kept.
    pub fn frame(&self, text: &[u32], limit: Option<usize>) -> Framed {
        // Truncated at the end, like the packages that metrics are compared with.
        let kept = &text[..limit.map_or(text.len(), |limit| text.len().min(limit.saturating_sub(self.len())))];
        let ids = [&self.before, kept, &self.after].concat();
        let start = self.before.len();
        Framed { ids, from_text: start..start + kept.len(), left_out: text.len() - kept.len() }
    }
}

/// Text of one id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Text without the vocabulary's markers: no `##`, no leading space.
    pub text: String,
    /// Whether it continues the word of the preceding piece, if there is one.
    pub continues_word: bool,
}

/// Hidden states of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct HiddenStates {
    /// `(layers, tokens, hidden_size)`, with layers in request order.
    pub values: Vec<f32>,
    /// Number of tokens in the sequence.
    pub tokens: usize,
    /// Size of a token's hidden state.
    pub hidden_size: usize,
}

impl HiddenStates {
    /// `(tokens, hidden_size)` of the requested layer at position `index`.
    pub fn layer(&self, index: usize) -> &[f32] {
        let size = self.tokens * self.hidden_size;
        &self.values[index * size..(index + 1) * size]
    }
}

/// A sequence with mask tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MaskedSequence {
    /// All ids, including masks.
    pub ids: Vec<u32>,
    /// Positions to predict, ascending.
    pub positions: Vec<usize>,
}

/// Properties of an encoder that are known without its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderConfig {
    /// Model metadata for records.
    pub description: ModelDescription,
    /// Number of layers after the embeddings. Hidden states are numbered from 0 (embeddings) to this.
    pub layers: usize,
    /// Size of a hidden state.
    pub hidden_size: usize,
}

/// Tokenizer of an encoder.
pub trait TextTokenizer: Send + Sync {
    /// Special tokens around a text.
    fn framing(&self) -> &Framing;

    /// Ids of each text as ordinary text, without truncation or special tokens. Only the unknown token can occur.
    fn tokenize(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>, EncoderError>;

    /// Text of an id; empty if the vocabulary does not have it.
    fn piece(&self, id: u32) -> Piece;

    /// Prefix that makes the first word of a text tokenise like later words: a space if spaces belong to words.
    fn word_start(&self) -> &'static str {
        ""
    }
}

/// A model that reads whole texts in both directions.
///
/// It answers whole lists and schedules the work. Each entry is answered exactly once, in any order, and its result
/// does not depend on the other entries.
pub trait TextEncoder: Send + Sync {
    /// Properties known without the weights.
    fn config(&self) -> &EncoderConfig;

    /// The tokenizer.
    fn tokenizer(&self) -> &dyn TextTokenizer;

    /// Computes the hidden states of each sequence after each of `layers`; results go to `sink` by sequence position.
    fn hidden_states(
        &self,
        sequences: &[&[u32]],
        layers: &[usize],
        sink: &mut Sink<'_, HiddenStates>,
    ) -> Result<Usage, EncoderError>;

    /// Predicts the most probable id at each requested position, with ties going to the lowest id; results go to `sink`
    /// by sequence position.
    fn predict_masked(
        &self,
        sequences: &[MaskedSequence],
        sink: &mut Sink<'_, Vec<u32>>,
    ) -> Result<Usage, EncoderError>;
}

/// Rejects invalid sequences; for implementations of [`TextEncoder`].
// Checks all sequences before computing any, so that an invalid one does not fail after answers were sent.
pub fn check_sequences<'a>(
    sequences: impl IntoIterator<Item = &'a [u32]>,
    context_length: Option<usize>,
    vocab_size: usize,
) -> Result<(), EncoderError> {
    for (index, ids) in sequences.into_iter().enumerate() {
        let refuse = |why| Err(EncoderError::Sequence { index, why });
        if ids.is_empty() {
            return refuse("it has no tokens".to_owned());
        }
        if let Some(limit) = context_length.filter(|&limit| ids.len() > limit) {
            return refuse(format!("it has {} tokens, but the limit of the model is {limit}", ids.len()));
        }
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
            return refuse(format!("token {id} is not in the vocabulary of {vocab_size} tokens"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing() -> Framing {
        Framing { before: vec![101], after: vec![102], mask: None }
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_counted() {
        let framed = framing().frame(&[1, 2, 3], Some(4));
        assert_eq!(framed, Framed { ids: vec![101, 1, 2, 102], from_text: 1..3, left_out: 1 });
        assert_eq!(framing().frame(&[1, 2], None).left_out, 0);
        assert_eq!(framing().frame(&[], Some(4)).ids, [101, 102]);
    }

    #[test]
    fn the_frame_stands_where_nothing_fits() {
        assert_eq!(framing().frame(&[1, 2], Some(1)), Framed { ids: vec![101, 102], from_text: 1..1, left_out: 2 });
    }

    #[test]
    fn sequences_that_no_model_can_read_are_refused_by_position() {
        let refused = |ids: &[u32]| check_sequences([&[1][..], ids], Some(3), 10).err().map(|error| error.to_string());
        assert_eq!(refused(&[1, 2, 9]), None);
        assert_eq!(refused(&[]).as_deref(), Some("sequence 1: it has no tokens"));
        assert_eq!(
            refused(&[1, 2, 3, 4]).as_deref(),
            Some(
                "sequence 1: it has 4 tokens, but the limit of the model is \
                                                            3"
            )
        );
        assert_eq!(refused(&[10]).as_deref(), Some("sequence 1: token 10 is not in the vocabulary of 10 tokens"));
    }
}
