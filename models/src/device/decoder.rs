//! The llama family over candle's operations: what [`crate::decoder`] computes with our kernels.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};
use candle_nn::ops::rms_norm;
use candle_nn::rotary_emb::{rope, rope_i};
use probity_kernels::{RopeLayout, likeliest_among};

use super::attention::{AttentionPlan, LayerSpan};
use crate::decoder::frequencies;
use crate::linear::load_floats;
use crate::packed::{Decoder, HeadRow, KvSpan, PackedOutput, PackedSegment};
use crate::{Arithmetic, DecoderConfig, SourceError, WeightSource};

/// Why weights did not arrive on the device.
pub(super) enum LoadError {
    Source(SourceError),
    Device(candle_core::Error),
}

impl From<SourceError> for LoadError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<candle_core::Error> for LoadError {
    fn from(error: candle_core::Error) -> Self {
        Self::Device(error)
    }
}

type Loaded<T> = std::result::Result<T, LoadError>;

/// Tensors of a checkpoint on their way to a device.
struct Loader<'a> {
    source: &'a dyn WeightSource,
    device: &'a Device,
    dtype: DType,
}

impl Loader<'_> {
    /// The tensor of that name, dequantised.
    fn tensor(&self, name: &str, shape: &[usize]) -> Loaded<Tensor> {
        let values = load_floats(self.source, name, shape)?;
        Ok(Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(self.dtype)?.to_device(self.device)?)
    }
}

struct Linear {
    /// `(out_features, in_features)`
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// Loads `{name}.weight` and, where asked, `{name}.bias`.
    fn load(loader: &Loader<'_>, name: &str, shape: [usize; 2], bias: bool) -> Loaded<Self> {
        let weight = loader.tensor(&format!("{name}.weight"), &shape)?;
        let bias = if bias { Some(loader.tensor(&format!("{name}.bias"), &shape[..1])?) } else { None };
        Ok(Self { weight, bias })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.matmul(&self.weight.t()?)?;
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
    }
}

struct RmsNorm {
    weight: Tensor,
    eps: f32,
}

impl RmsNorm {
    fn load(loader: &Loader<'_>, name: &str, c: &DecoderConfig) -> Loaded<Self> {
        Ok(Self { weight: loader.tensor(&format!("{name}.weight"), &[c.hidden_size])?, eps: c.rms_norm_eps as f32 })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        rms_norm(x, &self.weight, self.eps)
    }
}

/// What a batch shares in all layers.
struct Plan<'a> {
    segments: &'a [PackedSegment],
    /// Where each segment's rows lie in the batch.
    rows: Vec<Range<usize>>,
    attention: AttentionPlan,
    rotation: Rotation,
}

/// Angles of the batch's rows, `(tokens, head_dim / 2)` each.
struct Rotation {
    cos: Tensor,
    sin: Tensor,
    layout: RopeLayout,
}

impl Rotation {
    fn new(segments: &[PackedSegment], frequencies: &[f32], layout: RopeLayout, device: &Device) -> Result<Self> {
        let positions = segments.iter().flat_map(|s| s.start()..s.start() + s.tokens.len());
        let angles = positions
            .flat_map(|position| frequencies.iter().map(move |frequency| f64::from(position as f32 * frequency)));
        let (sin, cos): (Vec<f32>, Vec<f32>) =
            angles.map(libm::sincos).map(|(sin, cos)| (sin as f32, cos as f32)).unzip();
        let table = |values: Vec<f32>| Tensor::from_vec(values, ((), frequencies.len()), device);
        Ok(Self { cos: table(cos)?, sin: table(sin)?, layout })
    }

    /// Rotates `(heads, tokens, head_dim)`, in f32 whatever its type.
    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let wide = x.to_dtype(DType::F32)?.unsqueeze(0)?;
        let rotated = match self.layout {
            RopeLayout::Halves => rope(&wide, &self.cos, &self.sin)?,
            RopeLayout::Interleaved => rope_i(&wide, &self.cos, &self.sin)?,
        };
        rotated.squeeze(0)?.to_dtype(x.dtype())
    }
}

struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    head_dim: usize,
}

impl Attention {
    fn load(loader: &Loader<'_>, prefix: &str, c: &DecoderConfig) -> Loaded<Self> {
        let (queries, keys) = (c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim);
        let linear = |name: &str, shape, bias| Linear::load(loader, &format!("{prefix}.{name}"), shape, bias);
        Ok(Self {
            q_proj: linear("q_proj", [queries, c.hidden_size], c.qkv_bias)?,
            k_proj: linear("k_proj", [keys, c.hidden_size], c.qkv_bias)?,
            v_proj: linear("v_proj", [keys, c.hidden_size], c.qkv_bias)?,
            o_proj: linear("o_proj", [c.hidden_size, queries], c.attention_output_bias)?,
            head_dim: c.head_dim,
        })
    }

    /// `(tokens, hidden_size)` to the same, and each segment's new span in this layer.
    fn forward(&self, x: &Tensor, plan: &Plan<'_>, layer: usize) -> Result<(Tensor, Vec<LayerSpan>)> {
        let q = plan.rotation.apply(&self.heads(&self.q_proj.forward(x)?)?)?;
        let keys = plan.rotation.apply(&self.heads(&self.k_proj.forward(x)?)?)?;
        let batch = LayerSpan { keys, values: self.heads(&self.v_proj.forward(x)?)? };
        let new = plan.rows.iter().map(|rows| batch.part(rows)).collect::<Result<Vec<_>>>()?;
        let seen = plan.segments.iter().zip(&new).map(|(segment, new)| {
            let mut spans = of_layer(&segment.past, layer);
            spans.push(new);
            spans
        });
        let y = plan.attention.attend(&q, &seen.collect::<Vec<_>>())?;
        Ok((self.o_proj.forward(&y)?, new))
    }

    /// `(tokens, heads · head_dim)` to `(heads, tokens, head_dim)`.
    fn heads(&self, x: &Tensor) -> Result<Tensor> {
        let (tokens, width) = x.dims2()?;
        x.reshape((tokens, width / self.head_dim, self.head_dim))?.transpose(0, 1)?.contiguous()
    }
}

#[expect(clippy::struct_field_names, reason = "the checkpoint's names")]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Mlp {
    fn load(loader: &Loader<'_>, prefix: &str, c: &DecoderConfig) -> Loaded<Self> {
        let linear = |name: &str, shape| Linear::load(loader, &format!("{prefix}.{name}"), shape, c.mlp_bias);
        Ok(Self {
            gate_proj: linear("gate_proj", [c.intermediate_size, c.hidden_size])?,
            up_proj: linear("up_proj", [c.intermediate_size, c.hidden_size])?,
            down_proj: linear("down_proj", [c.hidden_size, c.intermediate_size])?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down_proj.forward(&(self.gate_proj.forward(x)?.silu()? * self.up_proj.forward(x)?)?)
    }
}

struct DecoderLayer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

impl DecoderLayer {
    fn load(loader: &Loader<'_>, prefix: &str, c: &DecoderConfig) -> Loaded<Self> {
        Ok(Self {
            input_layernorm: RmsNorm::load(loader, &format!("{prefix}.input_layernorm"), c)?,
            self_attn: Attention::load(loader, &format!("{prefix}.self_attn"), c)?,
            post_attention_layernorm: RmsNorm::load(loader, &format!("{prefix}.post_attention_layernorm"), c)?,
            mlp: Mlp::load(loader, &format!("{prefix}.mlp"), c)?,
        })
    }

    fn forward(&self, x: &Tensor, plan: &Plan<'_>, layer: usize) -> Result<(Tensor, Vec<LayerSpan>)> {
        let (y, new) = self.self_attn.forward(&self.input_layernorm.forward(x)?, plan, layer)?;
        let x = (x + y)?;
        let y = self.mlp.forward(&self.post_attention_layernorm.forward(&x)?)?;
        Ok(((x + y)?, new))
    }
}

/// Rows of logits that are held at a time.
const HEAD_ROWS: usize = 64;
/// A guess for devices, which have arithmetic in plenty.
const IDLE_ROWS: usize = 64;

/// A model of the family on a candle device.
pub(super) struct DeviceDecoder {
    embed_tokens: Tensor,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
    /// The embedding where that serves.
    lm_head: Tensor,
    frequencies: Vec<f32>,
    config: DecoderConfig,
    device: Device,
}

impl DeviceDecoder {
    pub(super) fn load(
        source: &dyn WeightSource,
        config: DecoderConfig,
        arithmetic: Arithmetic,
        device: Device,
    ) -> Loaded<Self> {
        let dtype = match arithmetic {
            Arithmetic::Exact => DType::F32,
            Arithmetic::Dots | Arithmetic::Tiles => DType::BF16,
        };
        let loader = Loader { source, device: &device, dtype };
        let vocabulary = [config.vocab_size, config.hidden_size];
        let embed_tokens = loader.tensor("model.embed_tokens.weight", &vocabulary)?;
        let lm_head = if config.tie_word_embeddings {
            embed_tokens.clone()
        } else {
            loader.tensor("lm_head.weight", &vocabulary)?
        };
        let layer = |index| DecoderLayer::load(&loader, &format!("model.layers.{index}"), &config);
        Ok(Self {
            embed_tokens,
            layers: (0..config.num_layers).map(layer).collect::<Loaded<_>>()?,
            norm: RmsNorm::load(&loader, "model.norm", &config)?,
            lm_head,
            frequencies: frequencies(source, &config)?,
            config,
            device,
        })
    }

    /// Rows of the embedding.
    fn embed(&self, segments: &[PackedSegment]) -> Result<Tensor> {
        let tokens: Vec<u32> = segments.iter().flat_map(|s| s.tokens.iter().copied()).collect();
        if let Some(token) = tokens.iter().find(|token| **token as usize >= self.config.vocab_size) {
            bail!("token {token} is outside the vocabulary of {}", self.config.vocab_size);
        }
        self.embed_tokens.index_select(&self.indices(tokens)?, 0)
    }

    fn indices(&self, indices: Vec<u32>) -> Result<Tensor> {
        let count = indices.len();
        Tensor::from_vec(indices, count, &self.device)
    }
}

/// log Σ exp over the vocabulary of each row of logits; not finite where a logit is NaN or +∞.
fn normalisers(logits: &Tensor) -> Result<Vec<f64>> {
    let max = logits.max_keepdim(1)?;
    let sums = logits.broadcast_sub(&max)?.exp()?.sum_keepdim(1)?;
    // Metal has no f64: the sum is widened when it is read.
    let sums: Vec<f32> = (sums.log()? + max)?.squeeze(1)?.to_vec1()?;
    Ok(sums.into_iter().map(f64::from).collect())
}

/// The largest element's index in each row of `(rows, width)`, the lowest among equals; any index where there is none.
fn greedy(logits: &Tensor) -> Result<Vec<u32>> {
    let width = logits.dim(1)? as u32;
    let is_largest = logits.broadcast_eq(&logits.max_keepdim(1)?)?;
    let ids = Tensor::arange(0, width, logits.device())?.broadcast_as(logits.shape())?.contiguous()?;
    is_largest.where_cond(&ids, &Tensor::full(width - 1, logits.shape(), logits.device())?)?.min(1)?.to_vec1()
}

/// The elements of each row of `(rows, width)` that are asked for, rows one after another.
fn pick(logits: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<f32>> {
    let width = logits.dim(1)?;
    let mut places = Vec::new();
    for (row, ids) in asked.iter().enumerate() {
        if let Some(id) = ids.iter().find(|id| **id as usize >= width) {
            bail!("token {id} is outside the vocabulary of {width}");
        }
        places.extend(ids.iter().map(|id| (row * width) as u32 + id));
    }
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let count = places.len();
    logits.flatten_all()?.index_select(&Tensor::from_vec(places, count, logits.device())?, 0)?.to_vec1()
}

/// One layer's part of each span.
fn of_layer(spans: &[Arc<KvSpan>], layer: usize) -> Vec<&LayerSpan> {
    spans.iter().map(|span| &span.cache::<Vec<LayerSpan>>()[layer]).collect()
}

/// Where each segment's rows lie in the batch.
fn rows(segments: &[PackedSegment]) -> Vec<Range<usize>> {
    let starts = segments.iter().scan(0, |next, segment| {
        let start = *next;
        *next += segment.tokens.len();
        Some(start..*next)
    });
    starts.collect()
}

impl Decoder for DeviceDecoder {
    fn forward(&self, segments: &[PackedSegment]) -> Result<PackedOutput> {
        let plan = Plan {
            segments,
            rows: rows(segments),
            attention: AttentionPlan::new(segments, &self.config, &self.device)?,
            rotation: Rotation::new(segments, &self.frequencies, self.config.rope_layout, &self.device)?,
        };
        let mut x = self.embed(segments)?; // (tokens, hidden_size)
        let mut spans: Vec<Vec<LayerSpan>> = segments.iter().map(|_| Vec::with_capacity(self.layers.len())).collect();
        for (index, layer) in self.layers.iter().enumerate() {
            let (y, new) = layer.forward(&x, &plan, index)?;
            x = y;
            spans.iter_mut().zip(new).for_each(|(spans, new)| spans.push(new));
        }
        let wanted = segments
            .iter()
            .zip(&plan.rows)
            .flat_map(|(s, rows)| s.wanted.iter().map(|offset| (rows.start + offset) as u32));
        let wanted: Vec<u32> = wanted.collect();
        let hidden = if wanted.is_empty() {
            x.narrow(0, 0, 0)?
        } else {
            self.norm.forward(&x.index_select(&self.indices(wanted)?, 0)?)?
        };
        let spans =
            segments.iter().zip(spans).map(|(s, layers)| Arc::new(KvSpan::new(s.tokens.len(), layers))).collect();
        Ok(PackedOutput { hidden, spans })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        hidden.matmul(&self.lm_head.t()?)?.to_dtype(DType::F32)
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        let mut rows = Vec::with_capacity(asked.len());
        for (part, asked) in asked.chunks(HEAD_ROWS).enumerate() {
            let logits = self.logits(&hidden.narrow(0, part * HEAD_ROWS, asked.len())?)?;
            let mut picked = pick(&logits, asked)?.into_iter();
            for ((normaliser, greedy), asked) in normalisers(&logits)?.into_iter().zip(greedy(&logits)?).zip(asked) {
                rows.push(HeadRow {
                    normaliser,
                    greedy,
                    logits: picked.by_ref().take(asked.len()).collect(),
                    block_max: Vec::new(),
                });
            }
        }
        Ok(rows)
    }

    fn greedy_among(&self, hidden: &Tensor, _: &HeadRow, allowed: &[u32]) -> Result<Option<u32>> {
        let logits = self.logits(hidden)?.flatten_all()?.to_vec1::<f32>()?;
        Ok(likeliest_among(&logits, allowed).map(|(_, id)| id as u32))
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        let width = self.config.num_kv_heads * self.config.head_dim;
        2 * self.layers.len() * tokens * width * self.embed_tokens.dtype().size_in_bytes()
    }

    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> Result<Arc<KvSpan>> {
        let join = |layer| LayerSpan::join(&of_layer(spans, layer))?.begin(len);
        let layers: Vec<LayerSpan> = (0..self.layers.len()).map(join).collect::<Result<_>>()?;
        Ok(Arc::new(KvSpan::new(len, layers)))
    }

    fn idle_rows(&self) -> usize {
        IDLE_ROWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greedy_token_is_the_lowest_of_the_largest() {
        let rows = [[1f32, 3.0, 3.0], [5.0, -1.0, 5.0], [f32::NEG_INFINITY, f32::NEG_INFINITY, -9.0], [2.0, 2.0, 2.0]];
        let logits = Tensor::new(&rows, &Device::Cpu).expect("a matrix");
        assert_eq!(greedy(&logits).expect("runs"), [1, 0, 2, 0]);
        let nothing = Tensor::new(&[[f32::NAN; 3]], &Device::Cpu).expect("a matrix");
        assert!(greedy(&nothing).expect("runs")[0] < 3);
    }

    #[test]
    fn a_normaliser_of_logits_that_are_no_numbers_is_not_finite() {
        let of = |row: [f32; 3]| normalisers(&Tensor::new(&[row], &Device::Cpu).expect("a row")).expect("runs")[0];
        assert!((of([0.0, 0.0, 0.0]) - 3f64.ln()).abs() < 1e-6);
        assert!((of([100.0, f32::NEG_INFINITY, 100.0]) - (100.0 + 2f64.ln())).abs() < 1e-4);
        for bad in [[0.0, f32::NAN, 1.0], [f32::NAN, 0.0, 1.0], [0.0, f32::INFINITY, 1.0], [f32::NEG_INFINITY; 3]] {
            assert!(!of(bad).is_finite(), "{bad:?}");
        }
    }

    #[test]
    fn asked_logits_come_row_by_row_and_only_from_the_vocabulary() {
        let logits =
            Tensor::new(&[[0f32, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]], &Device::Cpu).expect("a matrix");
        assert_eq!(pick(&logits, &[vec![2, 0], vec![], vec![1, 1, 2]]).expect("runs"), [2.0, 0.0, 7.0, 7.0, 8.0]);
        assert!(pick(&logits, &[vec![], vec![], vec![]]).expect("runs").is_empty());
        assert!(pick(&logits, &[vec![3], vec![], vec![]]).is_err(), "not the next row's first");
    }
}
