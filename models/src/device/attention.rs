//! Attention of a packed batch over candle's operations: each segment over its cached spans and itself.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::ops::softmax_last_dim;

use crate::packed::PackedSegment;
use crate::stack_config::StackConfig;

#[cfg(feature = "flash-attn")]
use super::flash::FlashPlan;

/// Rows of a segment that attend at once, so that the scores of long segments stay small.
const BLOCK_ROWS: usize = 512;

/// Keys and values of one layer and span, `(kv_heads, tokens, head_dim)` each.
#[derive(Debug)]
pub(super) struct LayerSpan {
    pub(super) keys: Tensor,
    pub(super) values: Tensor,
}

impl LayerSpan {
    /// Some of the tokens, contiguous and without keeping the rest alive.
    pub(super) fn part(&self, range: &Range<usize>) -> Result<Self> {
        let part = |x: &Tensor| {
            let whole = range.len() == x.dim(1)?;
            if whole { x.contiguous() } else { x.narrow(1, range.start, range.len())?.force_contiguous() }
        };
        Ok(Self { keys: part(&self.keys)?, values: part(&self.values)? })
    }

    /// The first `len` tokens.
    pub(super) fn begin(self, len: usize) -> Result<Self> {
        if self.keys.dim(1)? == len {
            return Ok(self);
        }
        let begin = |tensor: &Tensor| tensor.narrow(1, 0, len)?.force_contiguous();
        Ok(Self { keys: begin(&self.keys)?, values: begin(&self.values)? })
    }

    /// Consecutive spans as one, contiguous where they are: products on CUDA take no other operands.
    pub(super) fn join(spans: &[&Self]) -> Result<Self> {
        let cat = |of: fn(&Self) -> &Tensor| Tensor::cat(&spans.iter().map(|span| of(span)).collect::<Vec<_>>(), 1);
        Ok(Self { keys: cat(|span| &span.keys)?, values: cat(|span| &span.values)? })
    }
}

/// Some rows of a segment and what they see.
struct QueryBlock {
    /// Rows of the batch.
    rows: Range<usize>,
    /// Positions that at least one of the rows sees.
    seen: Range<usize>,
}

/// What is the same in all layers: who sees what.
pub(super) struct AttentionPlan {
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
    /// Factor of the scores.
    scale: f64,
    cap: Option<f64>,
    /// The rows of each segment, in blocks.
    segments: Vec<Vec<QueryBlock>>,
    /// By rows and positions seen, `(rows, seen)`: 0 where a row sees a position, −∞ elsewhere. A row by itself sees
    /// all of them.
    masks: BTreeMap<(usize, usize), Tensor>,
    #[cfg(feature = "flash-attn")]
    flash: Option<FlashPlan>,
}

impl AttentionPlan {
    /// Of layers with that window.
    pub(super) fn new(
        segments: &[PackedSegment],
        config: &StackConfig,
        window: Option<usize>,
        device: &Device,
    ) -> Result<Self> {
        let mut plan = Self {
            num_heads: config.num_heads,
            num_kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            scale: f64::from(config.score_scale),
            cap: config.score_cap.map(f64::from),
            segments: Vec::with_capacity(segments.len()),
            masks: BTreeMap::new(),
            #[cfg(feature = "flash-attn")]
            flash: FlashPlan::new(segments, config, window, device)?,
        };
        let window = window.unwrap_or(usize::MAX);
        let mut row = 0;
        for segment in segments {
            let (start, len) = (segment.start(), segment.tokens.len());
            let block = |first: usize| {
                let last = (first + BLOCK_ROWS).min(len);
                // A window narrows what is read, not only what is masked.
                QueryBlock {
                    rows: row + first..row + last,
                    seen: (start + first + 1).saturating_sub(window)..start + last,
                }
            };
            let blocks: Vec<QueryBlock> = (0..len).step_by(BLOCK_ROWS).map(block).collect();
            for key in blocks.iter().map(|block| (block.rows.len(), block.seen.len())).filter(|(rows, _)| *rows > 1) {
                if let Entry::Vacant(entry) = plan.masks.entry(key) {
                    entry.insert(mask(key.0, key.1, window, device)?);
                }
            }
            plan.segments.push(blocks);
            row += len;
        }
        Ok(plan)
    }

    /// `(tokens, heads · head_dim)` to `(heads, tokens, head_dim)`.
    pub(super) fn heads(&self, x: &Tensor) -> Result<Tensor> {
        let (tokens, width) = x.dims2()?;
        x.reshape((tokens, width / self.head_dim, self.head_dim))?.transpose(0, 1)?.contiguous()
    }

    /// Attention of queries `(heads, tokens, head_dim)` to `(tokens, heads · head_dim)`.
    ///
    /// `spans` gives what each segment sees in this layer, its own tokens last.
    pub(super) fn attend(&self, queries: &Tensor, spans: &[Vec<&LayerSpan>]) -> Result<Tensor> {
        #[cfg(feature = "flash-attn")]
        if let Some(flash) = self.flash.as_ref().filter(|_| FlashPlan::takes(queries.dtype())) {
            return flash.attend(queries, &LayerSpan::join(&spans.concat())?);
        }
        let mut parts = Vec::with_capacity(spans.len());
        for (blocks, spans) in self.segments.iter().zip(spans) {
            let seen = LayerSpan::join(spans)?;
            for block in blocks {
                parts.push(self.block(block, queries, &seen)?);
            }
        }
        Tensor::cat(&parts, 1)?.transpose(0, 1)?.flatten_from(1)
    }

    /// `(heads, rows, head_dim)` of one block.
    fn block(&self, block: &QueryBlock, queries: &Tensor, all: &LayerSpan) -> Result<Tensor> {
        let (rows, seen) = (block.rows.len(), block.seen.len());
        let groups = self.num_heads / self.num_kv_heads;
        let see = |x: &Tensor| x.narrow(1, block.seen.start, seen);
        // The query heads of a key head lie next to each other: (kv_heads, groups · rows, head_dim)
        let queries =
            queries.narrow(1, block.rows.start, rows)?.reshape((self.num_kv_heads, groups * rows, self.head_dim))?;
        let scores = queries.matmul(&see(&all.keys)?.t()?)?.to_dtype(DType::F32)?; // (kv_heads, groups · rows, seen)
        // After they were widened: in bf16 the factor would round once more.
        let scores = (scores * self.scale)?;
        let scores = self.cap.map_or(Ok(scores.clone()), |cap| (scores / cap)?.tanh()? * cap)?;
        let scores = match self.masks.get(&(rows, seen)) {
            Some(mask) => scores.reshape((self.num_heads, rows, seen))?.broadcast_add(mask)?,
            None => scores,
        };
        let weights =
            softmax_last_dim(&scores)?.to_dtype(queries.dtype())?.reshape((self.num_kv_heads, groups * rows, seen))?;
        weights.matmul(&see(&all.values)?)?.reshape((self.num_heads, rows, self.head_dim))
    }
}

/// The rows are the last ones of the positions that are seen.
fn mask(rows: usize, seen: usize, window: usize, device: &Device) -> Result<Tensor> {
    let mut mask = vec![0f32; rows * seen];
    for (row, mask) in mask.chunks_exact_mut(seen).enumerate() {
        let position = seen - rows + row;
        mask[position + 1..].fill(f32::NEG_INFINITY);
        mask[..(position + 1).saturating_sub(window)].fill(f32::NEG_INFINITY);
    }
    Tensor::from_vec(mask, (rows, seen), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_joined_spans_are_contiguous() {
        let tensor = Tensor::arange(0u32, 2 * 5 * 3, &Device::Cpu)
            .and_then(|x| x.reshape((2, 5, 3)))
            .expect("2 heads of 5 tokens");
        let batch = LayerSpan { keys: tensor.clone(), values: tensor.clone() };
        let parts = [0..2, 2..3, 3..5].map(|range| batch.part(&range).expect("in range"));
        assert!(parts.iter().all(|part| part.keys.is_contiguous() && part.values.is_contiguous()));
        let joined = LayerSpan::join(&parts.each_ref()).expect("joins");
        assert!(joined.keys.is_contiguous() && joined.values.is_contiguous());
        assert_eq!(joined.keys.to_vec3::<u32>().expect("3 dimensions"), tensor.to_vec3::<u32>().expect("3 dimensions"));
    }

    #[test]
    fn a_row_sees_its_window_up_to_itself() {
        let seen = |rows, seen, window| -> Vec<String> {
            let mask = mask(rows, seen, window, &Device::Cpu).and_then(|mask| mask.to_vec2::<f32>()).expect("a matrix");
            mask.iter().map(|row| row.iter().map(|x| if *x == 0.0 { 'x' } else { '.' }).collect()).collect()
        };
        assert_eq!(seen(2, 4, usize::MAX), ["xxx.", "xxxx"]);
        assert_eq!(seen(3, 4, 2), ["xx..", ".xx.", "..xx"]);
        assert_eq!(seen(2, 2, 1), ["x.", ".x"]);
    }
}
