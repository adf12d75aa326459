//! Flash attention (Dao 2023) over a packed batch, for CUDA devices in bf16.

use candle_core::{DType, Device, Result, Tensor};
use candle_flash_attn::flash_attn_varlen_windowed;

use super::attention::{AttendingRows, LayerSpan, Sight};
use super::limits::{BF16_CAPABILITY, ComputeCapability};
use crate::stack_config::{KeyHeads, StackConfig};

/// Whether flash attention supports this head dimension. candle has kernels for 32, 64, 96, 128, 160, 192, 224, 256 and
/// 512, and uses the next larger one. `scripts/gpu/nvcc` compiles only those that known models need: 32, 64, 96, 128
/// and 256.
fn has_kernel(head_dim: usize) -> bool {
    head_dim.is_multiple_of(8) && matches!(head_dim, 8..=128 | 232..=256)
}

/// The slots of the texts' positions, and the bounds of texts among queries and positions.
pub(super) struct FlashPlan {
    /// Slots of each text's positions, concatenated.
    slots: Tensor,
    query_ends: Tensor,
    key_ends: Tensor,
    most_queries: usize,
    most_keys: usize,
    scale: f32,
    sight: Sight,
}

impl FlashPlan {
    /// `None` if there is no kernel for the device or the model's heads. Scores must not depend on distances. Kernels
    /// compiled for cards older than bf16 requires would compute nothing.
    pub(super) fn new(
        texts: &[AttendingRows],
        (config, heads): (&StackConfig, KeyHeads),
        sight: Sight,
        (device, dtype): (&Device, DType),
    ) -> Result<Option<Self>> {
        if !device.is_cuda()
            || dtype != DType::BF16
            || ComputeCapability::of_this_build().is_some_and(|kernels| kernels < BF16_CAPABILITY)
            || config.score_cap.is_some()
            || !has_kernel(heads.dim)
        {
            return Ok(None);
        }
        let queries: Vec<usize> = texts.iter().map(|text| text.rows).collect();
        let keys: Vec<usize> = texts.iter().map(AttendingRows::positions).collect();
        let most = |lens: &[usize]| lens.iter().copied().max().unwrap_or(0);
        let slots: Vec<u32> =
            texts.iter().flat_map(|text| text.seen.iter().cloned().flatten()).map(|at| at as u32).collect();
        Ok(Some(Self {
            slots: Tensor::new(slots, device)?,
            query_ends: ends(&queries, device)?,
            key_ends: ends(&keys, device)?,
            most_queries: most(&queries),
            most_keys: most(&keys),
            scale: config.score_scale,
            sight,
        }))
    }

    /// Attention of queries `(heads, tokens, head_dim)` as `(tokens, heads · head_dim)`; `all` holds all positions of
    /// the layer.
    pub(super) fn attend(&self, queries: &Tensor, all: &LayerSpan) -> Result<Tensor> {
        let rows = |x: &Tensor| x.transpose(0, 1); // (tokens, heads, head_dim)
        // The kernel's window excludes the row's own position; ours includes it.
        let beside = |window: Option<usize>| window.map(|window| window - 1);
        let (before, behind) = match self.sight {
            Sight::Around { window } => (beside(window), beside(window)),
            Sight::UpToOwn { window } => (beside(window), Some(0)),
        };
        let y = flash_attn_varlen_windowed(
            &rows(queries)?,
            &rows(&all.keys.index_select(&self.slots, 1)?)?,
            &rows(&all.values.index_select(&self.slots, 1)?)?,
            &self.query_ends,
            &self.key_ends,
            self.most_queries,
            self.most_keys,
            self.scale,
            before,
            behind,
        )?;
        y.flatten_from(1)
    }
}

/// Cumulative ends of the segments, starting with 0.
fn ends(lens: &[usize], device: &Device) -> Result<Tensor> {
    let sums = lens.iter().scan(0, |sum, len| {
        *sum += *len as u32;
        Some(*sum)
    });
    let ends: Vec<u32> = std::iter::once(0).chain(sums).collect();
    let count = ends.len();
    Tensor::from_vec(ends, count, device)
}
