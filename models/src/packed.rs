//! The packed contract: one flat batch of tokens, divided into segments, each with the cached spans that it attends to.

use std::any::Any;
use std::sync::Arc;

use candle_core::Tensor;
pub use probity_kernels::HeadRow;

/// Keys and values of consecutive positions in every layer: of earlier tokens, or of a source for cross-attention.
/// Segments share spans by reference counting.
#[derive(Debug)]
pub struct KvSpan {
    len: usize,
    /// Whether tokens can follow it directly.
    can_continue: bool,
    /// The decoder's own cache type.
    cache: Box<dyn Any + Send + Sync>,
}

impl KvSpan {
    /// Creates a span of `len` tokens, at least one.
    pub(crate) fn new(len: usize, cache: impl Any + Send + Sync) -> Self {
        // Type-erased, so that decoders on other devices share this contract.
        Self { len, can_continue: true, cache: Box::new(cache) }
    }

    /// Creates a span without recurrent states, which only another span can follow.
    pub(crate) fn without_states(len: usize, cache: impl Any + Send + Sync) -> Self {
        Self { can_continue: false, ..Self::new(len, cache) }
    }

    /// Whether tokens can follow it directly. Otherwise it lacks the recurrent states of its end.
    pub fn can_continue(&self) -> bool {
        self.can_continue
    }

    /// Number of tokens.
    #[expect(clippy::len_without_is_empty, reason = "a span is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The decoder's cache. A span is only valid for the decoder that created it.
    pub(crate) fn cache<T: Any>(&self) -> &T {
        self.cache.downcast_ref().expect("a span is read by the decoder that made it")
    }
}

/// New tokens that continue a path of cached spans.
///
/// In an encoder-decoder, a path begins with a *source*: a segment without a past, whose tokens go to the encoder and
/// whose span holds the cross-attention keys and values of all decoder layers. Segments that continue it are decoder
/// tokens, with positions from 0.
#[derive(Debug, Clone)]
pub struct PackedSegment {
    /// The preceding spans: the source, if there is one, then spans from position 0 without gaps.
    pub past: Vec<Arc<KvSpan>>,
    /// The new tokens, at least one.
    pub tokens: Vec<u32>,
    /// Ascending offsets into `tokens` whose final hidden states are returned; empty for a source.
    pub wanted: Vec<usize>,
}

impl PackedSegment {
    /// Number of tokens before the first new one, including those of a source. Without a source it is the first new
    /// token's position.
    pub fn start(&self) -> usize {
        self.past.iter().map(|span| span.len()).sum()
    }
}

/// The result of a packed forward pass.
#[derive(Debug)]
pub struct PackedOutput {
    /// `(wanted rows, hidden_size)` after the final norm, concatenated over the segments.
    pub hidden: Tensor,
    /// The new span of each segment, in order.
    pub spans: Vec<Arc<KvSpan>>,
}

/// Access to the residual stream between layers.
pub struct LayerTaps<'a> {
    /// The layers to observe, as strictly ascending numbers of preceding layers: 0 is the input of the first layer, and
    /// the maximum is one less than the number of layers. After the last layer only wanted rows exist, in
    /// [`PackedOutput::hidden`].
    pub layers: &'a [usize],
    /// Receives an index into `layers` and the rows `(new tokens, hidden_size)` of all segments, concatenated without
    /// those of sources.
    pub see: &'a mut (dyn FnMut(usize, &[f32]) + Send),
}

impl LayerTaps<'_> {
    /// Passes on the rows after `layer` layers, if that layer is observed.
    pub(crate) fn show(&mut self, layer: usize, rows: &[f32]) {
        if let Ok(place) = self.layers.binary_search(&layer) {
            (self.see)(place, rows);
        }
    }
}

/// A language model on the packed contract: decoder-only or encoder-decoder. A row's result does not depend on the rest
/// of the batch or on how its past is divided into spans. With our kernels it is bit-identical; on [other
/// devices](crate::DeviceChoice) rounding may differ.
pub trait PackedDecoder: Send + Sync {
    /// Runs the segments' new tokens through all layers.
    fn forward(&self, segments: &[PackedSegment]) -> candle_core::Result<PackedOutput> {
        self.forward_tapped(segments, &mut LayerTaps { layers: &[], see: &mut |_, _| () })
    }

    /// As [`forward`](Self::forward), with access to the residual stream. Results are the same.
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>)
    -> candle_core::Result<PackedOutput>;

    /// Logits `(rows, vocab_size)` of hidden states `(rows, hidden_size)`.
    fn logits(&self, hidden: &Tensor) -> candle_core::Result<Tensor>;

    /// Runs the output head: a [`HeadRow`] for each row of hidden states `(rows, hidden_size)`. It includes the logits
    /// of the row's token ids in `asked`, in their order.
    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> candle_core::Result<Vec<HeadRow>>;

    /// The allowed token with the largest logit, or `None` if all of them are −∞. Ties go to the lowest id. `allowed`
    /// is a bit set in 32-bit words, `hidden` is `(1, hidden_size)`, and `row` is its result of [`head`](Self::head),
    /// whose normaliser must be finite.
    fn greedy_among(&self, hidden: &Tensor, row: &HeadRow, allowed: &[u32]) -> candle_core::Result<Option<u32>>;

    /// Bytes of a new span of `tokens` tokens (at least one) over all layers, for a source or the decoder. This
    /// includes [`state_bytes`](Self::state_bytes).
    fn cache_bytes(&self, tokens: usize) -> usize;

    /// Bytes of the recurrent states after a span, whatever its length; 0 if the model has none. With states, only
    /// whole spans can be [joined](Self::join).
    fn state_bytes(&self) -> usize {
        0
    }

    /// The same span without recurrent states, which it needs only if another span or segment follows it directly.
    fn without_states(&self, span: &Arc<KvSpan>) -> Arc<KvSpan> {
        span.clone()
    }

    /// Joins the first `len` tokens (at least one) of consecutive spans, none of them a source. This keeps a path of
    /// many short spans cheap to read and drops unused tokens. Results are the same.
    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> candle_core::Result<Arc<KvSpan>>;

    /// Estimated number of rows whose arithmetic takes about as long as reading the weights once. Below it, an
    /// additional row costs little; it limits how many tokens are speculated.
    fn idle_rows(&self) -> usize;
}

/// An encoder: hidden states of whole texts, and predictions at masked positions. The results of a text are
/// bit-identical whatever else is in the batch.
pub trait PackedEncoder: Send + Sync {
    /// Hidden states `(tokens, hidden_size)` of the concatenated texts after each of `layers`. Layer 0 is the input of
    /// the first layer, as in transformers' `hidden_states`. The caller adds special tokens. No text may be empty.
    fn encode(&self, texts: &[Vec<u32>], layers: &[usize]) -> candle_core::Result<Vec<Tensor>>;

    /// Final hidden states `(tokens, hidden_size)` of the texts, transformers' `last_hidden_state`. They include the
    /// final norm, if the model has one; [`encode`](Self::encode) returns the states before it.
    fn last_states(&self, texts: &[Vec<u32>]) -> candle_core::Result<Tensor>;

    /// Whether the checkpoint has a masked language model head, which the following methods require.
    fn has_masked_head(&self) -> bool;

    /// The head's transformed states `(wanted, hidden_size)` at the ascending `wanted` offsets of each text, as input
    /// of [`head`](Self::head) and [`logits`](Self::logits).
    fn masked(&self, texts: &[Vec<u32>], wanted: &[Vec<usize>]) -> candle_core::Result<Tensor>;

    /// As [`PackedDecoder::head`]; `greedy` is the most likely token at a masked position.
    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> candle_core::Result<Vec<HeadRow>>;

    /// As [`PackedDecoder::logits`].
    fn logits(&self, hidden: &Tensor) -> candle_core::Result<Tensor>;
}
