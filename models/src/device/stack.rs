//! Layers of a description, one after another, over candle's operations: what [`crate::transformer`]'s stack computes
//! with our kernels.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};

use super::attention::{DistanceBias, heads};
use super::distances::LayerDistances;
use super::layer::{BatchPlan, DeviceRows, Pools, Rotations};
use super::pool::{KvPool, SlotSpan};
use super::weights::{DeviceLinear, DeviceLoadError, DeviceLoader, DeviceNorm};
use crate::disentangled::Disentangled;
use crate::layer::{StackWeights, WeightLoader as _};
use crate::packed::{KvSpan, LayerTaps, PackedSegment};
use crate::row_range::RowRange;
use crate::stack_config::StackConfig;

/// Layers on a device.
pub(super) struct DeviceStack {
    weights: StackWeights<DeviceLinear, DeviceNorm>,
    bias: Option<DistanceBias>,
    /// Of each layer, where scores depend on products with distances.
    distances: Vec<LayerDistances>,
    /// Keys and values of texts; absent of an encoder, whose serve the layer that they are of and nobody later.
    pool: Option<KvPool>,
    /// Those of sources that are looked at.
    sources: Option<KvPool>,
    config: StackConfig,
    dtype: DType,
    device: Device,
}

/// What stands for distances in each layer.
fn load_distances(
    loader: &DeviceLoader<'_>,
    of: &Disentangled,
    config: &StackConfig,
) -> std::result::Result<Vec<LayerDistances>, DeviceLoadError> {
    // Made once of the weights alone, so rounded only when it is done.
    let (all, width) = (loader.unrounded(), config.hidden_size);
    let mut table = all.tensor(of.table, &[2 * of.span, width])?;
    if let Some(name) = of.norm {
        table = all.norm(name, width, (config.norm, config.norm_eps))?.forward(&table)?;
    }
    let layer = |index: usize| {
        let parts = all.under(&format!("{}.{index}.", config.names.layers));
        let of_heads = |name: &str| -> std::result::Result<Tensor, DeviceLoadError> {
            let rows = RowRange::all(config.num_heads * config.head_dim);
            let made = parts.linear(name, rows, width, config.biases.qkv)?.forward(&table)?;
            // (heads, head_dim, 2 span)
            Ok(heads(&made, config.head_dim)?.t()?.contiguous()?.to_dtype(loader.dtype)?)
        };
        Ok(LayerDistances { keys: of.keys.map(of_heads).transpose()?, queries: of.queries.map(of_heads).transpose()? })
    };
    (0..config.layers.len()).map(layer).collect()
}

impl DeviceStack {
    pub(super) fn load(loader: &DeviceLoader<'_>, config: StackConfig) -> std::result::Result<Self, DeviceLoadError> {
        let bias = config.names.relative.zip(config.relative).map(|(name, buckets)| {
            let table = loader.weights.floats(name, &[buckets.buckets, config.num_heads])?;
            Ok::<_, DeviceLoadError>(DistanceBias::new(buckets, &table, config.num_heads, loader.device)?)
        });
        let pool = || {
            let shape = (config.num_kv_heads, config.head_dim);
            KvPool::new(config.layers.len(), shape, loader.dtype, loader.device)
        };
        Ok(Self {
            pool: (!config.bidirectional).then(pool).transpose()?,
            sources: config.names.cross.map(|_| pool()).transpose()?,
            weights: StackWeights::load(loader, &config)?,
            bias: bias.transpose()?,
            distances: config.disentangled.map_or(Ok(Vec::new()), |of| load_distances(loader, &of, &config))?,
            config,
            dtype: loader.dtype,
            device: loader.device.clone(),
        })
    }

    pub(super) fn config(&self) -> &StackConfig {
        &self.config
    }

    /// What a batch of these texts shares in all layers.
    pub(super) fn plan(&self, texts: &[DeviceRows<'_>], rotations: Rotations<'_>) -> Result<BatchPlan<'_>> {
        let pools = Pools { own: self.pool.as_ref(), sources: self.sources.as_ref() };
        let shared = (&self.config, self.bias.as_ref(), &*self.distances);
        BatchPlan::new(texts, shared, rotations, pools, (&self.device, self.dtype))
    }

    /// Takes `(tokens, hidden_size)` through all layers and shows it to `after` behind each, and before the first.
    pub(super) fn run(
        &self,
        mut x: Tensor,
        plan: &BatchPlan<'_>,
        after: &mut dyn FnMut(usize, &Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        after(0, &x)?;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            x = layer.forward(&x, plan, index)?;
            after(index + 1, &x)?;
        }
        Ok(x)
    }

    /// The same of a decoder's segments: what the last norm makes of the wanted rows, and the new spans.
    pub(super) fn decode(
        &self,
        x: Tensor,
        plan: BatchPlan<'_>,
        segments: &[&PackedSegment],
        taps: &mut LayerTaps<'_>,
    ) -> Result<(Tensor, Vec<KvSpan>)> {
        let x = self.run(x, &plan, &mut |layer, x| {
            // Fetched from the device only where somebody looks.
            if taps.layers.contains(&layer) {
                taps.show(layer, &x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?);
            }
            Ok(())
        })?;
        let wanted = segments.iter().map(|s| &*s.wanted);
        let hidden = self.finish(&self.rows(&x, &plan, wanted)?)?;
        let spans = segments.iter().zip(plan.spans);
        Ok((hidden, spans.map(|(s, slots)| KvSpan::new(s.tokens.len(), slots)).collect()))
    }

    /// The wanted rows of each text, one after another.
    pub(super) fn rows<'b>(
        &self,
        x: &Tensor,
        plan: &BatchPlan<'_>,
        wanted: impl Iterator<Item = &'b [usize]>,
    ) -> Result<Tensor> {
        let rows = plan.rows.iter().zip(wanted);
        let rows: Vec<u32> =
            rows.flat_map(|(rows, wanted)| wanted.iter().map(|offset| (rows.start + offset) as u32)).collect();
        if rows.is_empty() {
            return x.narrow(0, 0, 0);
        }
        x.index_select(&Tensor::new(rows, &self.device)?, 0)
    }

    /// What the last norm, where there is one, makes of some rows.
    pub(super) fn finish(&self, x: &Tensor) -> Result<Tensor> {
        match self.weights.last_norm.as_ref().filter(|_| x.dims()[0] > 0) {
            Some(norm) => norm.forward(x),
            None => Ok(x.clone()),
        }
    }

    /// Keys and values that all layers have of texts to be looked at, of which the encoder made `(tokens, hidden_size)`.
    pub(super) fn read_sources(&self, x: &Tensor, rows: &[Range<usize>]) -> Result<Vec<SlotSpan>> {
        let Some(pool) = &self.sources else { return Ok(Vec::new()) };
        let (spans, batch) = pool.batch(rows)?;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            if let Some(cross) = &layer.cross {
                batch.write(index, &cross.read_sources(x, self.config.head_dim)?)?;
            }
        }
        Ok(spans)
    }

    /// Bytes that a new span of that many tokens takes.
    pub(super) fn cache_bytes(&self, tokens: usize) -> usize {
        let width = self.config.num_kv_heads * self.config.head_dim;
        2 * self.config.layers.len() * tokens * width * self.dtype.size_in_bytes()
    }
}

/// The first `len` tokens of consecutive spans as one.
pub(super) fn join(spans: &[Arc<KvSpan>], len: usize) -> Arc<KvSpan> {
    let slots: Vec<&SlotSpan> = spans.iter().map(|span| span.cache()).collect();
    Arc::new(KvSpan::new(len, SlotSpan::join(&slots, len)))
}
