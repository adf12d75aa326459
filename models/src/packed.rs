//! The packed contract: one flat batch of tokens, the segments it is made of, and the cached spans that each of them
//! sees.

use std::any::Any;
use std::sync::Arc;

use candle_core::Tensor;
pub use probity_kernels::HeadRow;

/// Keys and values of consecutive positions in every layer: of tokens before, or of a source that a decoder looks at.
/// Shared by all segments that continue it; freed with the last of them.
#[derive(Debug)]
pub struct KvSpan {
    len: usize,
    /// Of the type that its decoder keeps.
    cache: Box<dyn Any + Send + Sync>,
}

impl KvSpan {
    /// A span of `len` tokens, at least one.
    pub(crate) fn new(len: usize, cache: impl Any + Send + Sync) -> Self {
        // Of any type, so that a decoder over another device's tensors has the same contract.
        Self { len, cache: Box::new(cache) }
    }

    /// Tokens.
    #[expect(clippy::len_without_is_empty, reason = "a span is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// What its decoder put in. A span means nothing to another decoder.
    pub(crate) fn cache<T: Any>(&self) -> &T {
        self.cache.downcast_ref().expect("a span is read by the decoder that made it")
    }
}

/// New tokens that continue a path of cached spans.
///
/// For an encoder-decoder a path begins with a *source*: a segment without a past is one, its tokens are the encoder's,
/// and its span is what all layers of the decoder see of them. Whatever continues it is the decoder's, from position 0
/// behind the source.
#[derive(Debug, Clone)]
pub struct PackedSegment {
    /// What comes before: the source where there is one, then the spans from position 0 without gaps.
    pub past: Vec<Arc<KvSpan>>,
    /// The new tokens, at least one.
    pub tokens: Vec<u32>,
    /// Offsets into `tokens` whose final hidden state is wanted, ascending; none of a source.
    pub wanted: Vec<usize>,
}

impl PackedSegment {
    /// Tokens before the first new one, those of a source included; without a source, its position.
    pub fn start(&self) -> usize {
        self.past.iter().map(|span| span.len()).sum()
    }
}

/// The result of a packed forward pass.
#[derive(Debug)]
pub struct PackedOutput {
    /// `(wanted rows, hidden_size)` after the final norm: the segments' wanted rows one after another.
    pub hidden: Tensor,
    /// The new span of each segment, in order.
    pub spans: Vec<Arc<KvSpan>>,
}

/// Shows the residual stream on its way through the layers.
pub struct LayerTaps<'a> {
    /// Behind how many layers somebody looks, ascending and each once: from 0, what the first layer is given, to one
    /// less than there are. Behind the last layer only wanted rows are left, and they are in
    /// [`PackedOutput::hidden`].
    pub layers: &'a [usize],
    /// Gets a place in `layers` and the rows `(new tokens, hidden_size)` of all segments, one after another; those of
    /// sources are left out.
    pub see: &'a mut (dyn FnMut(usize, &[f32]) + Send),
}

impl LayerTaps<'_> {
    /// Shows the rows behind that many layers, where somebody looks.
    pub(crate) fn show(&mut self, layer: usize, rows: &[f32]) {
        if let Ok(place) = self.layers.binary_search(&layer) {
            (self.see)(place, rows);
        }
    }
}

/// A language model on the packed contract: decoder-only, or a decoder with the encoder of what it looks at. A row's
/// result does not depend on what else is in the batch, nor on how its past is cut into spans: not in any bit with our
/// kernels, but for rounding on [other devices](crate::DeviceChoice).
pub trait PackedDecoder: Send + Sync {
    /// Runs the segments' new tokens through all layers.
    fn forward(&self, segments: &[PackedSegment]) -> candle_core::Result<PackedOutput> {
        self.forward_tapped(segments, &mut LayerTaps { layers: &[], see: &mut |_, _| () })
    }

    /// The same, and shows the residual stream to whoever looks. No result changes.
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>)
    -> candle_core::Result<PackedOutput>;

    /// `(rows, vocab_size)` logits of hidden states `(rows, hidden_size)`.
    fn logits(&self, hidden: &Tensor) -> candle_core::Result<Tensor>;

    /// What is asked of the output head: for each row of hidden states `(rows, hidden_size)` its [`HeadRow`], with the
    /// logits of the token ids in `asked`, one list per row, in their order.
    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> candle_core::Result<Vec<HeadRow>>;

    /// The token with the largest logit among those allowed, a bit for each in words of 32, of a hidden state `(1,
    /// hidden_size)` whose row of [`head`](Self::head) is given and has a finite normaliser: the lowest id among
    /// equals, absent where all of them are −∞.
    fn greedy_among(&self, hidden: &Tensor, row: &HeadRow, allowed: &[u32]) -> candle_core::Result<Option<u32>>;

    /// Bytes that a new span of that many tokens, at least one, takes over all layers, a source's or a decoder's.
    fn cache_bytes(&self, tokens: usize) -> usize;

    /// The first `len` tokens, at least one, of consecutive spans, none of them a source, as one: a path of many short
    /// ones stays cheap to read, and what was computed in vain is left out. No result changes.
    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> candle_core::Result<Arc<KvSpan>>;

    /// The rows whose arithmetic takes about as long as reading the weights once: with fewer in a pass, one more costs
    /// little. An estimate, from which it is decided how far to guess ahead.
    fn idle_rows(&self) -> usize;
}

/// A model that reads texts as a whole: hidden states of their tokens, and what stands at masked positions. A text's
/// result does not depend on what else is in the batch, not in any bit.
pub trait PackedEncoder: Send + Sync {
    /// Hidden states of the texts, `(tokens, hidden_size)` with one text after another, behind each of the asked
    /// layers: 0 is what the first layer is given, as in transformers' `hidden_states`. Tokens that a model frames a
    /// text with are the caller's. A text is never empty.
    fn encode(&self, texts: &[Vec<u32>], layers: &[usize]) -> candle_core::Result<Vec<Tensor>>;

    /// Final hidden states of the texts, `(tokens, hidden_size)`: transformers' `last_hidden_state`. In a model with a norm
    /// behind its last layer it is theirs; [`encode`](Self::encode) gives what that norm is given.
    fn last_states(&self, texts: &[Vec<u32>]) -> candle_core::Result<Tensor>;

    /// Whether the checkpoint has a masked-language head: what follows needs it.
    fn has_masked_head(&self) -> bool;

    /// What the masked-language head makes of the final hidden states at the wanted offsets of each text, ascending:
    /// `(wanted, hidden_size)` for [`head`](Self::head) and [`logits`](Self::logits).
    fn masked(&self, texts: &[Vec<u32>], wanted: &[Vec<usize>]) -> candle_core::Result<Tensor>;

    /// As [`PackedDecoder::head`]; the likeliest token at a masked position is its row's `greedy`.
    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> candle_core::Result<Vec<HeadRow>>;

    /// As [`PackedDecoder::logits`].
    fn logits(&self, hidden: &Tensor) -> candle_core::Result<Tensor>;
}
