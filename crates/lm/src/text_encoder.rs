//! The contract between metrics and models that read whole texts: hidden states of each token, and what stands behind a
//! mask.
//!
//! Text becomes ids by [`TextTokenizer::tokenize`], ids become what the model reads by [`Framing::frame`], and that is
//! the only place where anything is cut. Everything else takes whole sequences as they are.

use std::ops::Range;

use crate::{ModelDescription, Sink, SinkError, Usage};

/// Why an encoder could not answer.
#[derive(Debug, thiserror::Error)]
pub enum EncoderError {
    /// A text could not be written in the model's vocabulary.
    #[error("text {index} cannot be encoded: {why}")]
    Tokenize {
        /// Its position in the list.
        index: usize,
        /// The tokenizer's reason.
        why: String,
    },
    /// A sequence is empty, longer than the model can see, or holds an id that the vocabulary does not have.
    #[error("sequence {index}: {why}")]
    Sequence {
        /// Its position in the list.
        index: usize,
        /// What is wrong.
        why: String,
    },
    /// A layer that the model does not have.
    #[error("there is no layer {asked} in `{model}`\n\nhint: choose one from 0 (the embeddings) to {layers}")]
    Layer {
        /// What was asked for.
        asked: usize,
        /// The model's last layer.
        layers: usize,
        /// The model's name.
        model: String,
    },
    /// The model cannot tell what stands behind a mask.
    #[error(
        "`{model}` has no head that predicts masked tokens\n\nhint: choose a model of which config.json says \
         \"…ForMaskedLM\""
    )]
    NoMaskedHead {
        /// The model's name.
        model: String,
    },
    /// The sink refused a result.
    #[error("a result could not be taken: {0}")]
    Sink(#[source] SinkError),
    /// The model failed.
    #[error("the model failed: {0}")]
    Model(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What a model reads around a text, and its mask.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Framing {
    /// Ids before each text, such as `[CLS]`.
    pub before: Vec<u32>,
    /// Ids after each text, such as `[SEP]`.
    pub after: Vec<u32>,
    /// The id that stands for a token to be predicted.
    pub mask: Option<u32>,
}

/// A text as a model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Framed {
    /// All ids.
    pub ids: Vec<u32>,
    /// Where the text's own ids stand among them.
    pub from_text: Range<usize>,
    /// How many ids of the text's end did not fit.
    pub left_out: usize,
}

impl Framing {
    /// Ids that stand around a text.
    #[expect(clippy::len_without_is_empty, reason = "a number of ids that something else takes up")]
    pub fn len(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// `text` between what belongs around it, its end left out where the whole is longer than `limit`. The frame itself
    /// always stands.
    pub fn frame(&self, text: &[u32], limit: Option<usize>) -> Framed {
        // The end is cut, as the packages do that metrics are held against.
        let kept = &text[..limit.map_or(text.len(), |limit| text.len().min(limit.saturating_sub(self.len())))];
        let ids = [&self.before, kept, &self.after].concat();
        let start = self.before.len();
        Framed { ids, from_text: start..start + kept.len(), left_out: text.len() - kept.len() }
    }
}

/// What one id of ordinary text is written as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its text without the vocabulary's marks: no `##`, no leading space.
    pub text: String,
    /// Whether it goes on with a word that a piece before it began (where there is one before it).
    pub continues_word: bool,
}

/// Hidden states of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct HiddenStates {
    /// `(layers, tokens, hidden_size)`: the layers in the order in which they were asked for.
    pub values: Vec<f32>,
    /// Tokens of the sequence.
    pub tokens: usize,
    /// Numbers of a token.
    pub hidden_size: usize,
}

impl HiddenStates {
    /// `(tokens, hidden_size)` of the layer that was asked for at position `index`.
    pub fn layer(&self, index: usize) -> &[f32] {
        let size = self.tokens * self.hidden_size;
        &self.values[index * size..(index + 1) * size]
    }
}

/// A sequence with masks in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MaskedSequence {
    /// All ids, the mask's among them.
    pub ids: Vec<u32>,
    /// Positions that are asked about, ascending.
    pub positions: Vec<usize>,
}

/// What is known of an encoder without its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderConfig {
    /// What a record must say about this model.
    pub description: ModelDescription,
    /// Layers after the embeddings: hidden states are numbered from 0, the embeddings, to this.
    pub layers: usize,
    /// Numbers of a hidden state.
    pub hidden_size: usize,
}

/// How an encoder cuts texts into tokens.
pub trait TextTokenizer: Send + Sync {
    /// What stands around a text.
    fn framing(&self) -> &Framing;

    /// The ids of each text as ordinary text: whole, without what stands around it, and without special tokens whatever
    /// it says (but the unknown token for what has no piece).
    fn tokenize(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>, EncoderError>;

    /// How an id is written; empty where the vocabulary has no such id.
    fn piece(&self, id: u32) -> Piece;

    /// What a text must begin with for its first word to be written as it would be after others: a space where spaces
    /// are parts of words.
    fn word_start(&self) -> &'static str {
        ""
    }
}

/// A model that reads whole texts in both directions.
///
/// It answers whole lists and orders the work itself; each entry is answered exactly once, in any order, and what comes
/// back for it does not depend on the other entries.
pub trait TextEncoder: Send + Sync {
    /// What is known of it without its weights.
    fn config(&self) -> &EncoderConfig;

    /// How it cuts texts into tokens.
    fn tokenizer(&self) -> &dyn TextTokenizer;

    /// The hidden states of each sequence after each of `layers`, through `sink` by the sequence's position.
    fn hidden_states(
        &self,
        sequences: &[&[u32]],
        layers: &[usize],
        sink: &mut Sink<'_, HiddenStates>,
    ) -> Result<Usage, EncoderError>;

    /// The most probable id at each position that a sequence asks about, the lowest among equals, through `sink` by the
    /// sequence's position.
    fn predict_masked(
        &self,
        sequences: &[MaskedSequence],
        sink: &mut Sink<'_, Vec<u32>>,
    ) -> Result<Usage, EncoderError>;
}

/// Refuses what no encoder can answer: for implementations of [`TextEncoder`].
// All sequences are looked at before any is computed: an encoder that found the wrong one half-way would have sent
// answers already.
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
            return refuse(format!("it has {} tokens, and the model sees {limit}", ids.len()));
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
        assert_eq!(refused(&[1, 2, 3, 4]).as_deref(), Some("sequence 1: it has 4 tokens, and the model sees 3"));
        assert_eq!(refused(&[10]).as_deref(), Some("sequence 1: token 10 is not in the vocabulary of 10 tokens"));
    }
}
