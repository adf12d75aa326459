//! A decoder over candle's operations: what [`crate::decoder`] computes with our kernels, of the same description.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};
use probity_kernels::likeliest_among;

use super::attention::LayerSpan;
use super::layer::{BatchPlan, DeviceLinear, DeviceLoadError, DeviceLoader, DeviceNorm, of_layer};
use crate::decoder::{EMBEDDING, MODEL, frequencies};
use crate::layer::{StackWeights, WeightLoader};
use crate::packed::{HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};
use crate::stack_config::StackConfig;
use crate::{Arithmetic, DecoderConfig, WeightSource, linear};

/// Rows of logits that are held at a time.
const HEAD_ROWS: usize = 64;
/// A guess for devices, which have arithmetic in plenty.
const IDLE_ROWS: usize = 64;

/// A decoder on a candle device.
pub(super) struct DeviceDecoder {
    embed_tokens: Tensor,
    layers: StackWeights<DeviceLinear, DeviceNorm>,
    /// The embedding where that serves.
    lm_head: Tensor,
    frequencies: Vec<Vec<f32>>,
    config: DecoderConfig,
    stack: StackConfig,
    device: Device,
}

impl DeviceDecoder {
    pub(super) fn load(
        source: &dyn WeightSource,
        config: DecoderConfig,
        arithmetic: Arithmetic,
        device: Device,
    ) -> std::result::Result<Self, DeviceLoadError> {
        let dtype = match arithmetic {
            Arithmetic::Exact => DType::F32,
            // Neither exists here: both stand for `fast`, which is one of them on the machine's own processor.
            Arithmetic::Dots | Arithmetic::Tiles => DType::BF16,
        };
        let loader =
            DeviceLoader { weights: linear::TensorLoader::new(source, "", arithmetic.into()), device: &device, dtype };
        let vocabulary = [config.vocab_size, config.hidden_size];
        let embed_tokens = loader.tensor(EMBEDDING, &vocabulary)?;
        let lm_head = match config.head() {
            (EMBEDDING, _) => embed_tokens.clone(),
            (name, outputs) => loader.tensor(name, &[outputs, config.hidden_size])?,
        };
        let stack = config.stack();
        // What a description of an encoder or its decoder says besides is not computed here.
        assert!(!stack.bidirectional && stack.relative.is_none() && stack.names.cross.is_none(), "a decoder by itself");
        Ok(Self {
            embed_tokens,
            layers: StackWeights::load(&loader.under(MODEL), &stack)?,
            lm_head,
            frequencies: frequencies(source, &config)?,
            config,
            stack,
            device,
        })
    }

    /// Rows of the embedding.
    fn embed(&self, segments: &[PackedSegment]) -> Result<Tensor> {
        let tokens: Vec<u32> = segments.iter().flat_map(|s| s.tokens.iter().copied()).collect();
        if let Some(token) = tokens.iter().find(|token| **token as usize >= self.config.vocab_size) {
            bail!("token {token} is outside the vocabulary of {}", self.config.vocab_size);
        }
        let rows = self.embed_tokens.index_select(&self.indices(tokens)?, 0)?;
        let scale = self.config.embedding_scale;
        if scale == 1.0 { Ok(rows) } else { rows * f64::from(scale) }
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
    // By comparison and minimum: which of several largest elements an arg-max gives is not promised. A row without a
    // largest one still names a token of the vocabulary.
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
        // At most `HEAD_ROWS` rows: places among the logits fit 32 bits.
        places.extend(ids.iter().map(|id| (row * width) as u32 + id));
    }
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let count = places.len();
    logits.flatten_all()?.index_select(&Tensor::from_vec(places, count, logits.device())?, 0)?.to_vec1()
}

impl PackedDecoder for DeviceDecoder {
    fn forward_tapped(&self, segments: &[PackedSegment], taps: &mut LayerTaps<'_>) -> Result<PackedOutput> {
        let ropes: Vec<(&[f32], f32)> =
            self.frequencies.iter().zip(&self.config.ropes).map(|(all, rope)| (&**all, rope.scale)).collect();
        let plan = BatchPlan::new(segments, &self.stack, (&ropes, self.config.rope_layout), &self.device)?;
        let (x, spans) = self.layers.forward(self.embed(segments)?, &plan, taps)?; // (tokens, hidden_size)
        let wanted = segments
            .iter()
            .zip(&plan.rows)
            .flat_map(|(s, rows)| s.wanted.iter().map(|offset| (rows.start + offset) as u32));
        let wanted: Vec<u32> = wanted.collect();
        let hidden = if wanted.is_empty() {
            x.narrow(0, 0, 0)?
        } else {
            self.layers.finish(&x.index_select(&self.indices(wanted)?, 0)?)?
        };
        let spans =
            segments.iter().zip(spans).map(|(s, layers)| Arc::new(KvSpan::new(s.tokens.len(), layers))).collect();
        Ok(PackedOutput { hidden, spans })
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let scale = self.config.logit_scale;
        let hidden = if scale == 1.0 { hidden.clone() } else { (hidden * f64::from(scale))? };
        let logits = hidden.matmul(&self.lm_head.t()?)?.to_dtype(DType::F32)?;
        match self.config.logit_cap.map(f64::from) {
            Some(cap) => (logits / cap)?.tanh()? * cap,
            None => Ok(logits),
        }
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
        let width = self.stack.num_kv_heads * self.stack.head_dim;
        2 * self.stack.layers.len() * tokens * width * self.embed_tokens.dtype().size_in_bytes()
    }

    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> Result<Arc<KvSpan>> {
        let join = |layer| LayerSpan::join(&of_layer(spans, layer))?.begin(len);
        let layers: Vec<LayerSpan> = (0..self.stack.layers.len()).map(join).collect::<Result<_>>()?;
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
