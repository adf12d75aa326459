//! A stack of layers on candle operations; the counterpart of [`crate::transformer`].

use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::attention::{DistanceBias, HeadSinks, heads};
use super::distances::DeviceLayerDistances;
use super::layer::{BatchPlan, DeviceRows, LayerGroup, Pools, Rotations};
use super::pool::{KvPool, SlotSpan};
use super::weights::{DeviceLinear, DeviceLoadError, DeviceLoader, DeviceNorm};
use crate::disentangled::Disentangled;
use crate::layer::StackWeights;
use crate::packed::{KvSpan, LayerTaps, PackedSegment};
use crate::row_range::RowRange;
use crate::stack_config::{KeyHeads, StackConfig};
use crate::weight_loader::WeightLoader as _;

/// Layers on one device, or in stages on several.
pub(super) struct DeviceStack {
    weights: StackWeights<DeviceLinear, DeviceNorm>,
    stages: Vec<LayerGroup>,
    /// One for each layer with relative position terms.
    distances: Vec<DeviceLayerDistances>,
    /// The sinks of each layer that has them.
    sinks: Vec<HeadSinks>,
    /// Keys and values of texts; `None` for an encoder, where only the own layer uses them.
    pool: Option<KvPool>,
    /// Keys and values of cross-attention sources.
    sources: Option<KvPool>,
    config: StackConfig,
    dtype: DType,
}

/// Copies `x` to a device through the host, synchronously. A direct copy between devices could still be reading `x`
/// when its memory is reused.
pub(super) fn moved(x: &Tensor, device: &Device) -> Result<Tensor> {
    if x.device().same_device(device) { Ok(x.clone()) } else { x.to_device(&Device::Cpu)?.to_device(device) }
}

/// The projected relative position table of each layer.
fn load_distances(
    loader: &DeviceLoader<'_>,
    of: &Disentangled,
    config: &StackConfig,
) -> std::result::Result<Vec<DeviceLayerDistances>, DeviceLoadError> {
    // Computed once from the weights, so rounded only at the end.
    let (all, width) = (loader.unrounded(), config.hidden_size);
    let mut table = all.tensor(of.table, &[2 * of.span, width])?;
    if let Some(name) = of.norm {
        table = all.norm(name, width, (config.norm, config.norm_eps))?.forward(&table)?;
    }
    let layer = |index: usize| {
        let parts = all.layer(config.names.layers, index);
        let table = moved(&table, parts.device)?;
        let of_heads = |name: &str| -> std::result::Result<Tensor, DeviceLoadError> {
            let rows = RowRange::all(config.num_heads * config.head_dim);
            let made = parts.linear(name, rows, width, config.biases.qkv)?.forward(&table)?;
            // (heads, head_dim, 2 span)
            Ok(heads(&made, config.head_dim)?.t()?.contiguous()?.to_dtype(loader.dtype)?)
        };
        Ok(DeviceLayerDistances {
            keys: of.keys.map(of_heads).transpose()?,
            queries: of.queries.map(of_heads).transpose()?,
        })
    };
    (0..config.layers.len()).map(layer).collect()
}

fn load_sinks(
    loader: &DeviceLoader<'_>,
    name: &str,
    config: &StackConfig,
) -> std::result::Result<Vec<HeadSinks>, DeviceLoadError> {
    let layer =
        |index| Ok(HeadSinks(loader.layer(config.names.layers, index).in_f32().tensor(name, &[config.num_heads])?));
    (0..config.layers.len()).map(layer).collect()
}

impl DeviceStack {
    pub(super) fn load(loader: &DeviceLoader<'_>, config: StackConfig) -> std::result::Result<Self, DeviceLoadError> {
        let table = config.names.relative.zip(config.relative).map(|(name, buckets)| {
            let table = loader.weights.floats(name, &[buckets.buckets, config.num_heads])?;
            Ok::<_, DeviceLoadError>((buckets, table))
        });
        let table = table.transpose()?;
        let stage = |(device, layers): (&Device, Range<usize>)| {
            let bias = table.as_ref();
            let bias = bias.map(|(buckets, table)| DistanceBias::new(*buckets, table, config.num_heads, device));
            Ok::<_, DeviceLoadError>(LayerGroup { device: device.clone(), layers, bias: bias.transpose()? })
        };
        let stages: Vec<LayerGroup> =
            loader.stages(config.layers.len()).into_iter().map(stage).collect::<std::result::Result<_, _>>()?;
        let devices: Vec<&Device> =
            stages.iter().flat_map(|stage| stage.layers.clone().map(|_| &stage.device)).collect();
        let pool = || KvPool::new(config.own_key_heads().map(|(layer, heads)| (devices[layer], heads)), loader.dtype);
        Ok(Self {
            pool: (!config.bidirectional).then(pool).transpose()?,
            sources: config.names.cross.map(|_| pool()).transpose()?,
            weights: StackWeights::load(loader, &config)?,
            distances: config.disentangled.map_or(Ok(Vec::new()), |of| load_distances(loader, &of, &config))?,
            sinks: config.sinks.map_or(Ok(Vec::new()), |name| load_sinks(loader, name, &config))?,
            stages,
            config,
            dtype: loader.dtype,
        })
    }

    pub(super) fn config(&self) -> &StackConfig {
        &self.config
    }

    /// Plans a batch of these texts for all layers.
    pub(super) fn plan(&self, texts: &[DeviceRows<'_>], rotations: Rotations<'_>) -> Result<BatchPlan<'_>> {
        let pools = Pools { own: self.pool.as_ref(), sources: self.sources.as_ref() };
        BatchPlan::new(
            texts,
            (&self.config, &self.stages),
            (&self.distances, &self.sinks),
            rotations,
            pools,
            self.dtype,
        )
    }

    /// Runs `(tokens, hidden_size)` through all layers, and calls `after` before the first and after each.
    pub(super) fn run(
        &self,
        mut x: Tensor,
        plan: &BatchPlan<'_>,
        after: &mut dyn FnMut(usize, &Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        after(0, &x)?;
        for stage in &self.stages {
            x = moved(&x, &stage.device)?;
            for index in stage.layers.clone() {
                x = self.weights.layers[index].forward(&x, plan, index)?;
                after(index + 1, &x)?;
            }
        }
        Ok(x)
    }

    /// Runs a decoder's segments. Returns the wanted rows after the final norm, and the new spans.
    pub(super) fn decode(
        &self,
        x: Tensor,
        plan: BatchPlan<'_>,
        segments: &[&PackedSegment],
        taps: &mut LayerTaps<'_>,
    ) -> Result<(Tensor, Vec<KvSpan>)> {
        let x = self.run(x, &plan, &mut |layer, x| {
            // Copied from the device only if the layer is observed.
            if taps.layers.contains(&layer) {
                taps.show(layer, &x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?);
            }
            Ok(())
        })?;
        let wanted = segments.iter().map(|s| &*s.wanted);
        let hidden = self.finish(&wanted_rows(&x, &plan, wanted)?)?;
        let spans = segments.iter().zip(plan.spans);
        Ok((hidden, spans.map(|(s, slots)| KvSpan::new(s.tokens.len(), slots)).collect()))
    }

    /// Applies the final norm, if there is one.
    pub(super) fn finish(&self, x: &Tensor) -> Result<Tensor> {
        match self.weights.last_norm.as_ref().filter(|_| x.dims()[0] > 0) {
            Some(norm) => norm.forward(x),
            None => Ok(x.clone()),
        }
    }

    /// Cross-attention keys and values of sources in all layers, from the encoder's `(tokens, hidden_size)`.
    pub(super) fn read_sources(&self, x: &Tensor, rows: &[Range<usize>]) -> Result<Vec<SlotSpan>> {
        let Some(pool) = &self.sources else { return Ok(Vec::new()) };
        let (spans, batch) = pool.batch(rows)?;
        for stage in &self.stages {
            let x = moved(x, &stage.device)?;
            for index in stage.layers.clone() {
                if let Some(cross) = &self.weights.layers[index].cross {
                    batch.write(index, &cross.read_sources(&x, self.config.head_dim)?)?;
                }
            }
        }
        Ok(spans)
    }

    /// Bytes of a new span of that many tokens, on the device with the most layers.
    pub(super) fn cache_bytes(&self, tokens: usize) -> usize {
        let own: Vec<(usize, KeyHeads)> = self.config.own_key_heads().collect();
        let width = |stage: &LayerGroup| -> usize {
            own.iter().filter(|(layer, _)| stage.layers.contains(layer)).map(|(_, heads)| heads.width()).sum()
        };
        2 * self.stages.iter().map(width).max().unwrap_or(0) * tokens * self.dtype.size_in_bytes()
    }
}

/// The wanted rows of each text, concatenated.
pub(super) fn wanted_rows<'b>(
    x: &Tensor,
    plan: &BatchPlan<'_>,
    wanted: impl Iterator<Item = &'b [usize]>,
) -> Result<Tensor> {
    let rows = plan.rows.iter().zip(wanted);
    let row = |(rows, offset): (&Range<usize>, &usize)| {
        // On CUDA an out-of-range index would make the device unusable for the process.
        if *offset >= rows.len() {
            bail!("row {offset} of a text of {} tokens", rows.len());
        }
        Ok((rows.start + offset) as u32)
    };
    let rows: Vec<u32> =
        rows.flat_map(|(rows, wanted)| wanted.iter().map(move |offset| row((rows, offset)))).collect::<Result<_>>()?;
    if rows.is_empty() {
        return x.narrow(0, 0, 0);
    }
    x.index_select(&Tensor::new(rows, x.device())?, 0)
}

/// Joins the first `len` tokens of consecutive spans.
pub(super) fn join(spans: &[Arc<KvSpan>], len: usize) -> Arc<KvSpan> {
    let slots: Vec<&SlotSpan> = spans.iter().map(|span| span.cache()).collect();
    Arc::new(KvSpan::new(len, SlotSpan::join(&slots, len)))
}
