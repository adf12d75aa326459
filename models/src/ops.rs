//! Operations of a decoder layer on candle tensors, each a call of its kernel.

use std::ops::Deref;

use candle_core::{CpuStorage, CustomOp1, CustomOp2, Device, Layout, Result, Shape, Storage, Tensor, bail};
use probity_kernels::{
    AttentionShape, Isa, RopeLayout, RopeTable, Segment, Span, add_assign, attention, join_spans, log_sum_exp, pack_keys, pack_values,
    rms_norm, silu_mul,
};

use crate::linear::{contiguous, load_vector};
use crate::{SourceError, WeightSource};

/// Root-mean-square layer norm.
pub(crate) struct RmsNorm {
    weight: Vec<f32>,
    eps: f32,
}

impl RmsNorm {
    pub(crate) fn load(source: &dyn WeightSource, name: &str, width: usize, eps: f64) -> std::result::Result<Self, SourceError> {
        Ok(Self { weight: load_vector(source, &format!("{name}.weight"), width)?, eps: eps as f32 })
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op1_no_bwd(self)
    }
}

impl CustomOp1 for RmsNorm {
    fn name(&self) -> &'static str {
        "probity-rms-norm"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = contiguous(storage, layout)?;
        let mut y = vec![0.0; x.len()];
        rms_norm(Isa::best(), x, &self.weight, self.eps, &mut y);
        Ok((CpuStorage::F32(y), layout.shape().clone()))
    }
}

/// Rotary embedding of `(tokens, heads · head_dim)` by the rows' positions.
pub(crate) fn rotate(x: &Tensor, table: &RopeTable, layout: RopeLayout) -> Result<Tensor> {
    x.apply_op1_no_bwd(&Rotate { table, layout })
}

struct Rotate<'a> {
    table: &'a RopeTable,
    layout: RopeLayout,
}

impl CustomOp1 for Rotate<'_> {
    fn name(&self) -> &'static str {
        "probity-rope"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let mut x = contiguous(storage, layout)?.to_vec();
        self.table.apply(self.layout, &mut x);
        Ok((CpuStorage::F32(x), layout.shape().clone()))
    }
}

/// `silu(gate) · up`.
pub(crate) fn gated_silu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.apply_op2_no_bwd(up, &GatedSilu)
}

struct GatedSilu;

impl CustomOp2 for GatedSilu {
    fn name(&self) -> &'static str {
        "probity-silu-mul"
    }

    fn cpu_fwd(&self, gate: &CpuStorage, l1: &Layout, up: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let (gate, up) = (contiguous(gate, l1)?, contiguous(up, l2)?);
        let mut y = vec![0.0; gate.len()];
        silu_mul(Isa::best(), gate, up, &mut y);
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }
}

/// `x + y`, on the pool that everything else runs on.
pub(crate) fn add(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    x.apply_op2_no_bwd(y, &Add)
}

struct Add;

impl CustomOp2 for Add {
    fn name(&self) -> &'static str {
        "probity-add"
    }

    fn cpu_fwd(&self, x: &CpuStorage, l1: &Layout, y: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let mut sum = contiguous(x, l1)?.to_vec();
        add_assign(&mut sum, contiguous(y, l2)?);
        Ok((CpuStorage::F32(sum), l1.shape().clone()))
    }
}

/// One layer's part of a [`KvSpan`](crate::KvSpan), packed for the attention kernel.
#[derive(Debug, Clone)]
pub(crate) struct LayerSpan {
    keys: Tensor,
    values: Tensor,
}

/// Packs rows `start..start + len` of keys and values, `(tokens, kv_heads · head_dim)`, as a span.
pub(crate) fn pack_span(shape: &AttentionShape, keys: &Tensor, values: &Tensor, start: usize, len: usize) -> Result<LayerSpan> {
    let pack = |x: &Tensor, pack: Pack| x.narrow(0, start, len)?.apply_op1_no_bwd(&PackOp { shape, pack });
    Ok(LayerSpan { keys: pack(keys, pack_keys)?, values: pack(values, pack_values)? })
}

type Pack = fn(&AttentionShape, &[f32], std::ops::Range<usize>) -> Vec<f32>;

struct PackOp<'a> {
    shape: &'a AttentionShape,
    pack: Pack,
}

impl CustomOp1 for PackOp<'_> {
    fn name(&self) -> &'static str {
        "probity-pack"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let packed = (self.pack)(self.shape, contiguous(storage, layout)?, 0..layout.dims()[0]);
        let shape = Shape::from(packed.len());
        Ok((CpuStorage::F32(packed), shape))
    }
}

/// log Σ exp of each row of `(rows, vocab_size)`.
pub(crate) fn normalisers(logits: &Tensor) -> Result<Vec<f64>> {
    let vocab_size = logits.dim(1)?;
    let (storage, layout) = logits.storage_and_layout();
    Ok(log_sum_exp(Isa::best(), cpu(&storage, layout)?, vocab_size))
}

/// What one segment sees in one layer, its own new span last.
pub(crate) struct SegmentSpans<'a> {
    pub(crate) spans: Vec<(&'a LayerSpan, usize)>,
    pub(crate) rows: usize,
}

/// Attention of `(tokens, heads · head_dim)` queries, the segments' rows one after another.
pub(crate) fn attend(shape: &AttentionShape, queries: &Tensor, segments: &[SegmentSpans<'_>]) -> Result<Tensor> {
    queries.apply_op1_no_bwd(&Attend { shape, segments })
}

struct Attend<'a> {
    shape: &'a AttentionShape,
    segments: &'a [SegmentSpans<'a>],
}

impl CustomOp1 for Attend<'_> {
    fn name(&self) -> &'static str {
        "probity-attention"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let queries = contiguous(storage, layout)?;
        let held: Vec<Vec<_>> = self.segments.iter().map(|s| s.spans.iter().map(|(span, len)| hold(span, *len)).collect()).collect();
        let mut segments = Vec::with_capacity(self.segments.len());
        for (segment, held) in self.segments.iter().zip(&held) {
            let spans = held.iter().map(HeldSpan::span).collect::<Result<_>>()?;
            segments.push(Segment { spans, rows: segment.rows });
        }
        let mut out = vec![0.0; queries.len()];
        attention(Isa::best(), self.shape, queries, &segments, &mut out);
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

/// Joins consecutive spans of a layer into one.
pub(crate) fn join(shape: &AttentionShape, spans: &[(&LayerSpan, usize)]) -> Result<LayerSpan> {
    let held: Vec<_> = spans.iter().map(|(span, len)| hold(span, *len)).collect();
    let (keys, values) = join_spans(shape, &held.iter().map(HeldSpan::span).collect::<Result<Vec<_>>>()?);
    let tensor = |values: Vec<f32>| Tensor::new(values, &Device::Cpu);
    Ok(LayerSpan { keys: tensor(keys)?, values: tensor(values)? })
}

/// A cached span, held open for reading.
struct HeldSpan<'a, G> {
    keys: (G, &'a Layout),
    values: (G, &'a Layout),
    len: usize,
}

fn hold(span: &LayerSpan, len: usize) -> HeldSpan<'_, impl Deref<Target = Storage>> {
    HeldSpan { keys: span.keys.storage_and_layout(), values: span.values.storage_and_layout(), len }
}

impl<G: Deref<Target = Storage>> HeldSpan<'_, G> {
    fn span(&self) -> Result<Span<'_>> {
        Ok(Span { keys: cpu(&self.keys.0, self.keys.1)?, values: cpu(&self.values.0, self.values.1)?, len: self.len })
    }
}

fn cpu<'a>(storage: &'a Storage, layout: &Layout) -> Result<&'a [f32]> {
    match storage {
        Storage::Cpu(storage) => contiguous(storage, layout),
        _ => bail!("the cache of a CPU model lies on the CPU"),
    }
}
