//! State that CPU models keep between layers and calls: activation buffers, and the keys, values and recurrent
//! states of cached spans.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use probity_kernels::{
    Activation, AttentionShape, Buffer, DeltaRoom, Inputs, Isa, Norm, PackedSpan, ProductForm, activate, add_scaled,
    join_spans, matmul, normalise, pack_span, prefer_large_pages,
};

use crate::SourceError;
use crate::linear::{Linear, TensorLoader};

// Fresh memory for each result is expensive: candle's prefill was 1.24 (f32) and 1.48 times (Q8_0) as fast when malloc
// was configured to keep its own.
/// Activations of a call, `(tokens, …)` each. The memory is reused between calls.
#[derive(Default)]
pub(crate) struct Workspace {
    /// The residual stream.
    pub(crate) x: Buffer<f32>,
    /// The output of a norm, before it replaces its input.
    pub(crate) normed: Buffer<f32>,
    pub(crate) q: Buffer<f32>,
    pub(crate) k: Buffer<f32>,
    pub(crate) v: Buffer<f32>,
    pub(crate) attended: Buffer<f32>,
    /// The inputs of all layers beside the residual stream, `(tokens, layers · width)`.
    pub(crate) layer_inputs: Buffer<f32>,
    /// Gates of the attention's output or of a gated delta net's results.
    pub(crate) gate: Buffer<f32>,
    pub(crate) delta: DeltaRoom,
    /// The output of a sublayer, if it is not added directly to the residual stream.
    pub(crate) branch: Buffer<f32>,
    pub(crate) inputs: Inputs,
    /// Inputs of the feed-forward layer's second product.
    pub(crate) gated: Inputs,
    /// For each head, where scores depend on relative positions.
    pub(crate) distances: Vec<DistanceRoom>,
}

/// Buffers of one head for disentangled attention.
#[derive(Default)]
pub(crate) struct DistanceRoom {
    pub(crate) queries: Buffer<f32>,
    pub(crate) keys: Buffer<f32>,
    pub(crate) inputs: Inputs,
    pub(crate) attended: Buffer<f32>,
    /// Products of the queries and of the keys with relative positions.
    pub(crate) products: [Buffer<f32>; 2],
}

/// Moves the wanted rows, in ascending order, to the front of `(rows, width)` and drops the others.
pub(crate) fn keep_rows(x: &mut Buffer<f32>, width: usize, wanted: &[usize]) {
    // In ascending order no row is overwritten before it has moved.
    for (to, from) in wanted.iter().enumerate() {
        x.copy_within(from * width..(from + 1) * width, to * width);
    }
    x.truncate(wanted.len() * width);
}

impl Workspace {
    /// Packs the residual stream `(rows, width)`, normalised if there is a norm, as inputs of products.
    pub(crate) fn set_inputs(
        &mut self,
        isa: Isa,
        norm: Option<Norm<'_>>,
        width: usize,
        forms: impl IntoIterator<Item = ProductForm>,
    ) {
        match norm {
            Some(norm) => self.inputs.set_normed(isa, &self.x, norm, forms),
            None => self.inputs.set(isa, &self.x, width, forms),
        }
    }

    /// Applies a norm, if there is one, to the residual stream in place.
    pub(crate) fn settle(&mut self, isa: Isa, norm: Option<Norm<'_>>) {
        replace_by_normed(isa, &mut self.x, norm, &mut self.normed);
    }

    /// Adds the output of a sublayer, normalised if there is a `norm` and multiplied by `scale`, to the residual
    /// stream.
    pub(crate) fn add_branch(&mut self, isa: Isa, norm: Option<Norm<'_>>, scale: f32) {
        replace_by_normed(isa, &mut self.branch, norm, &mut self.normed);
        add_scaled(&self.branch, scale, &mut self.x);
    }

    /// Applies norms, if there are any, to each head of the queries, keys and values in place.
    pub(crate) fn settle_heads(&mut self, isa: Isa, [queries, keys, values]: [Option<Norm<'_>>; 3]) {
        replace_by_normed(isa, &mut self.q, queries, &mut self.normed);
        replace_by_normed(isa, &mut self.k, keys, &mut self.normed);
        replace_by_normed(isa, &mut self.v, values, &mut self.normed);
    }

    /// Applies a norm to each layer's input in place.
    pub(crate) fn normalise_layer_inputs(&mut self, isa: Isa, norm: Norm<'_>) {
        replace_by_normed(isa, &mut self.layer_inputs, Some(norm), &mut self.normed);
    }
}

impl Workspace {
    /// Moves the gate after each head of the queries, `(tokens, heads, 2, head_dim)`, to `gate`.
    pub(crate) fn split_gates(&mut self, head_dim: usize) {
        self.gate.set_len(self.q.len() / 2);
        self.normed.set_len(self.q.len() / 2);
        let gates = self.gate.chunks_exact_mut(head_dim).zip(self.normed.chunks_exact_mut(head_dim));
        for (both, (gate, query)) in self.q.chunks_exact(2 * head_dim).zip(gates) {
            query.copy_from_slice(&both[..head_dim]);
            gate.copy_from_slice(&both[head_dim..]);
        }
        std::mem::swap(&mut self.q, &mut self.normed);
    }

    /// Multiplies the attention's output by the logistic function of its gates.
    pub(crate) fn apply_gates(&mut self, isa: Isa) {
        self.normed.set_len(self.attended.len());
        activate(isa, Activation::Sigmoid, &self.gate, Some(&self.attended), &mut self.normed);
        std::mem::swap(&mut self.attended, &mut self.normed);
    }

    /// Multiplies each row of `branch` by the logistic function of its gate, computed from the rows of `normed`.
    pub(crate) fn gate_branch(&mut self, isa: Isa, gate: &Linear, width: usize) {
        self.inputs.set(isa, &self.normed, width, [gate.form()]);
        let mut logits = vec![0.0; self.normed.len() / width];
        matmul(isa, &self.inputs, &mut [gate.product(&mut logits)]);
        for (row, logit) in self.branch.chunks_exact_mut(width).zip(logits) {
            let factor = 1.0 / (1.0 + libm::expf(-logit));
            for x in row {
                *x *= factor;
            }
        }
    }
}

/// Applies a norm, if there is one, to the rows of `x` in place. `room` is scratch memory.
fn replace_by_normed(isa: Isa, x: &mut Buffer<f32>, norm: Option<Norm<'_>>, room: &mut Buffer<f32>) {
    let Some(norm) = norm else { return };
    room.set_len(x.len());
    normalise(isa, x, norm, room);
    std::mem::swap(x, room);
}

/// The kind of norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// RMS norm (Zhang & Sennrich 2019), with a weight.
    RootMeanSquare,
    /// RMS norm whose stored weight is one less than its factor.
    RootMeanSquareLessOne,
    /// Layer norm (Ba et al. 2016), with a weight and a bias.
    Layer,
    /// Layer norm without bias.
    LayerWithoutBias,
}

impl NormKind {
    /// Converts a stored weight to the factor.
    pub(crate) fn settle(self, weight: &mut [f32]) {
        if self == Self::RootMeanSquareLessOne {
            for weight in weight {
                *weight += 1.0;
            }
        }
    }
}

/// The names of a norm's weight and, for a layer norm, its bias. Older checkpoints call them gamma and beta.
pub(crate) fn norm_names(name: &str, kind: NormKind, has: impl Fn(&str) -> bool) -> (String, Option<String>) {
    let old = kind == NormKind::Layer && has(&format!("{name}.gamma"));
    let bias = (kind == NormKind::Layer).then(|| format!("{name}.{}", if old { "beta" } else { "bias" }));
    (format!("{name}.{}", if old { "gamma" } else { "weight" }), bias)
}

/// A norm's weights.
pub(crate) struct NormWeights {
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    eps: f32,
}

impl NormWeights {
    /// Loads the tensors with [these names](norm_names).
    pub(crate) fn load(
        loader: &TensorLoader<'_>,
        name: &str,
        width: usize,
        (kind, eps): (NormKind, f64),
    ) -> Result<Self, SourceError> {
        let (weight, bias) = norm_names(name, kind, |name| loader.contains(name));
        let load = |name: String| loader.floats(&name, &[width]);
        let mut weight = load(weight)?;
        kind.settle(&mut weight);
        let bias = match kind {
            // To the kernel, a norm without a bias is an RMS norm.
            NormKind::LayerWithoutBias => Some(vec![0.0; width]),
            _ => bias.map(load).transpose()?,
        };
        Ok(Self { weight, bias, eps: eps as f32 })
    }

    /// An RMS norm without weights.
    pub(crate) fn plain(width: usize, eps: f64) -> Self {
        Self { weight: vec![1.0; width], bias: None, eps: eps as f32 }
    }

    pub(crate) fn norm(&self) -> Norm<'_> {
        Norm { weight: &self.weight, bias: self.bias.as_deref(), eps: self.eps }
    }
}

/// A cache line of keys or values.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct CacheLine([u32; 16]);

/// States of recurrent layers after the last token of a span, one for each such layer.
#[derive(Debug)]
pub(crate) struct LayerStates {
    values: Vec<f32>,
    /// Elements of a layer's state.
    len: usize,
}

impl LayerStates {
    /// Allocates states of `len` elements for each of some layers.
    pub(crate) fn new((layers, len): (usize, usize)) -> Self {
        // Zeroed memory is not touched until a layer writes its state.
        let mut values = vec![0.0; layers * len];
        prefer_large_pages(&mut values);
        Self { values, len }
    }

    /// Bytes of states of `len` elements for each of some layers.
    pub(crate) fn bytes((layers, len): (usize, usize)) -> usize {
        layers * len * size_of::<f32>()
    }

    pub(crate) fn layer(&self, index: usize) -> &[f32] {
        &self.values[index * self.len..][..self.len]
    }

    pub(crate) fn layer_mut(&mut self, index: usize) -> &mut [f32] {
        &mut self.values[index * self.len..][..self.len]
    }
}

/// Keys and values of consecutive positions in all layers, packed for the attention kernel.
#[derive(Debug)]
pub(crate) struct CpuSpan {
    lines: Vec<CacheLine>,
    /// The first word of the keys and of the values of each layer, and the end of the last.
    bounds: Vec<usize>,
    /// The first position.
    start: usize,
    len: usize,
    /// States after the last token, in a model with recurrent layers. A span that others follow in all its uses needs
    /// none.
    states: Option<Arc<LayerStates>>,
}

impl CpuSpan {
    /// Allocates a span of `len` tokens from position `start`, for layers of these shapes.
    pub(crate) fn new(shapes: &[AttentionShape], start: usize, len: usize) -> Self {
        let mut bounds = vec![0];
        let mut end = 0;
        for words in shapes.iter().flat_map(|shape| [shape.keys_len(len), shape.values_len(len)]) {
            end += words;
            bounds.push(end);
        }
        // Zeroed: packing does not write the padding, and spans that share a word are joined by bitwise "or".
        let mut lines = vec![CacheLine([0; 16]); end.div_ceil(16)];
        prefer_large_pages(&mut lines);
        Self { lines, bounds, start, len, states: None }
    }

    /// The same span with these states.
    pub(crate) fn with_states(self, states: Option<LayerStates>) -> Self {
        Self { states: states.map(Arc::new), ..self }
    }

    /// The states after the last token.
    pub(crate) fn states(&self) -> &LayerStates {
        self.states.as_deref().expect("a span that is continued has states")
    }

    /// The states of a new span.
    pub(crate) fn states_mut(&mut self) -> &mut LayerStates {
        self.states.as_mut().and_then(Arc::get_mut).expect("a new span has states of its own")
    }

    /// Bytes of a span of `len` tokens.
    pub(crate) fn bytes(shapes: &[AttentionShape], len: usize) -> usize {
        shapes.iter().map(|shape| shape.keys_len(len) + shape.values_len(len)).sum::<usize>() * size_of::<u32>()
    }

    /// A layer's keys and values.
    pub(crate) fn layer(&self, index: usize) -> PackedSpan<'_> {
        let words: &[u32] = bytemuck::cast_slice(&self.lines);
        let [keys, values, end] = self.layer_bounds(index);
        PackedSpan { keys: &words[keys..values], values: &words[values..end], len: self.len }
    }

    fn layer_mut(&mut self, index: usize) -> (&mut [u32], &mut [u32]) {
        let [keys, values, end] = self.layer_bounds(index);
        let words: &mut [u32] = bytemuck::cast_slice_mut(&mut self.lines);
        words[keys..end].split_at_mut(values - keys)
    }

    /// Where the keys and the values of a layer begin, and where the values end.
    fn layer_bounds(&self, index: usize) -> [usize; 3] {
        [self.bounds[2 * index], self.bounds[2 * index + 1], self.bounds[2 * index + 2]]
    }

    /// Clears the contents, so that the span can be refilled.
    pub(crate) fn clear(&mut self) {
        // Packing expects zeros; see `new`.
        self.lines.fill(CacheLine([0; 16]));
    }

    /// Packs a layer's keys and values from rows of `(tokens, kv_heads · head_dim)`, from `row` for the length of the
    /// span.
    pub(crate) fn fill(&mut self, isa: Isa, shape: &AttentionShape, layer: usize, rows: (&[f32], &[f32]), row: usize) {
        let (start, len) = (self.start, self.len);
        let (keys, values) = self.layer_mut(layer);
        pack_span(isa, shape, rows, row..row + len, start, keys, values);
    }

    /// Joins the first `len` tokens of consecutive spans. The result has the states of the last span.
    pub(crate) fn join(shapes: &[AttentionShape], spans: &[&Self], len: usize) -> Self {
        // In tiles, an even position and the next one share a word: the joined span must begin at the same parity as
        // its first span.
        let start = spans.first().map_or(0, |span| span.start);
        let mut joined = Self::new(shapes, start, len);
        for (layer, shape) in shapes.iter().enumerate() {
            let (keys, values) = joined.layer_mut(layer);
            join_spans(
                shape,
                &spans.iter().map(|span| span.layer(layer)).collect::<Vec<_>>(),
                len,
                start,
                keys,
                values,
            );
        }
        joined.states = spans.last().and_then(|span| span.states.clone());
        joined
    }
}
