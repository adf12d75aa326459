//! Layers of a description, one after another, over candle's operations: what [`crate::transformer`]'s stack computes
//! with our kernels.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};

use super::attention::{DistanceBias, LayerSpan, heads};
use super::distances::LayerDistances;
use super::layer::{BatchPlan, DeviceRows, Rotations, of_layer};
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
        Ok(Self {
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
    pub(super) fn plan<'a>(&'a self, texts: Vec<DeviceRows<'a>>, rotations: Rotations<'_>) -> Result<BatchPlan<'a>> {
        BatchPlan::new(texts, (&self.config, self.bias.as_ref(), &self.distances), rotations, &self.device)
    }

    /// Takes `(tokens, hidden_size)` through all layers and shows it to `after` behind each, and before the first.
    /// Returns each text's new span in each layer too, where rows see no more than what came before them.
    pub(super) fn run(
        &self,
        mut x: Tensor,
        plan: &BatchPlan<'_>,
        after: &mut dyn FnMut(usize, &Tensor) -> Result<()>,
    ) -> Result<(Tensor, Vec<Vec<LayerSpan>>)> {
        let mut spans: Vec<Vec<LayerSpan>> = plan.rows.iter().map(|_| Vec::new()).collect();
        after(0, &x)?;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let (y, new) = layer.forward(&x, plan, index)?;
            x = y;
            after(index + 1, &x)?;
            // An encoder's keys and values serve the layer that they are of and nobody later.
            if !self.config.bidirectional {
                spans.iter_mut().zip(new).for_each(|(spans, new)| spans.push(new));
            }
        }
        Ok((x, spans))
    }

    /// The same of a decoder's segments: what the last norm makes of the wanted rows, and the new spans.
    pub(super) fn decode(
        &self,
        x: Tensor,
        plan: &BatchPlan<'_>,
        segments: &[&PackedSegment],
        taps: &mut LayerTaps<'_>,
    ) -> Result<(Tensor, Vec<KvSpan>)> {
        let (x, spans) = self.run(x, plan, &mut |layer, x| {
            // Fetched from the device only where somebody looks.
            if taps.layers.contains(&layer) {
                taps.show(layer, &x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?);
            }
            Ok(())
        })?;
        let wanted = segments.iter().map(|s| &*s.wanted);
        let hidden = self.finish(&self.rows(&x, plan, wanted)?)?;
        Ok((hidden, segments.iter().zip(spans).map(|(s, layers)| KvSpan::new(s.tokens.len(), layers)).collect()))
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

    /// Keys and values that all layers have of texts to be looked at, of which the encoder made `(tokens,
    /// hidden_size)`: for each text those of each layer.
    pub(super) fn read_sources(&self, x: &Tensor, rows: &[Range<usize>]) -> Result<Vec<Vec<LayerSpan>>> {
        let mut sources: Vec<Vec<LayerSpan>> = rows.iter().map(|_| Vec::new()).collect();
        for cross in self.weights.layers.iter().filter_map(|layer| layer.cross.as_ref()) {
            let new = cross.read_sources(x, rows, self.config.head_dim)?;
            sources.iter_mut().zip(new).for_each(|(source, new)| source.push(new));
        }
        Ok(sources)
    }

    /// Bytes that a new span of that many tokens takes.
    pub(super) fn cache_bytes(&self, tokens: usize) -> usize {
        let width = self.config.num_kv_heads * self.config.head_dim;
        2 * self.config.layers.len() * tokens * width * self.dtype.size_in_bytes()
    }

    /// The first `len` tokens of consecutive spans as one.
    pub(super) fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> Result<Arc<KvSpan>> {
        let join = |layer| LayerSpan::join(&of_layer(spans, layer))?.begin(len);
        let layers: Vec<LayerSpan> = (0..self.config.layers.len()).map(join).collect::<Result<_>>()?;
        Ok(Arc::new(KvSpan::new(len, layers)))
    }
}
