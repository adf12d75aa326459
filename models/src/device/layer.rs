//! Transformer [layers](crate::layer) on candle operations.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::ops::sigmoid;
use candle_nn::rotary_emb::{rope, rope_i};
use probity_kernels::{Activation, RopeLayout};

use super::attention::{AttendingRows, AttentionPlan, DistanceBias, HeadSinks, LayerSpan, Sight, heads};
use super::distances::DeviceLayerDistances;
use super::limits::check_rows;
use super::pool::{KvPool, PoolBatch, SlotSpan};
use super::stack::moved;
use super::weights::{DeviceLinear, DeviceNorm};
use crate::layer::{AttentionWeights, LayerInputWeights, LayerWeights, TokenMixer};
use crate::stack_config::{KeyHeads, LayerSight, StackConfig};
use crate::transformer::TextRows;
use crate::weight_loader::PartNorms;

impl PartNorms<DeviceNorm> {
    /// The input of a sublayer: the residual stream, normalised if the model is pre-norm.
    fn before(&self, x: &Tensor, stack: &StackConfig) -> Result<Tensor> {
        self.stream.as_ref().filter(|_| stack.norm_first).map_or(Ok(x.clone()), |norm| norm.forward(x))
    }

    /// Adds a sublayer's output to the residual stream.
    fn sum(&self, x: &Tensor, y: &Tensor, stack: &StackConfig) -> Result<Tensor> {
        let mut y = self.branch.as_ref().map_or(Ok(y.clone()), |norm| norm.forward(y))?;
        if stack.branch_scale != 1.0 {
            y = (y * f64::from(stack.branch_scale))?;
        }
        let x = (x + y)?;
        self.stream.as_ref().filter(|_| !stack.norm_first).map_or(Ok(x.clone()), |norm| norm.forward(&x))
    }
}

/// Rows of a text, with the slots of its source.
pub(super) type DeviceRows<'a> = TextRows<'a, SlotSpan>;

/// A model's rotations, each with frequencies and a factor of sines and cosines, and their layout.
pub(super) type Rotations<'a> = (&'a [(&'a [f32], f32)], RopeLayout);
/// For models without rotation.
pub(super) const NO_ROTATIONS: Rotations<'static> = (&[], RopeLayout::Halves);

/// The pools of keys and values that rows attend to.
#[derive(Clone, Copy)]
pub(super) struct Pools<'a> {
    /// Of the texts and their past; `None` if each text is read as a whole.
    pub(super) own: Option<&'a KvPool>,
    /// Of cross-attention sources.
    pub(super) sources: Option<&'a KvPool>,
}

/// The plan of a batch, shared by all layers.
pub(super) struct BatchPlan<'a> {
    /// Row ranges of the texts in the batch.
    pub(super) rows: Vec<Range<usize>>,
    /// The slots of their keys and values.
    pub(super) spans: Vec<SlotSpan>,
    own: Option<PoolBatch<'a>>,
    sources: Option<PoolBatch<'a>>,
    stages: Vec<StagePlan>,
    /// One for each layer with relative position terms.
    distances: &'a [DeviceLayerDistances],
    /// The inputs of all layers beside the residual stream, `(tokens, layers · width)`.
    pub(super) layer_inputs: Option<Tensor>,
    /// One for each layer with sinks.
    sinks: &'a [HeadSinks],
    stack: &'a StackConfig,
    /// Where each layer's keys and values are in the pool.
    slots: Vec<usize>,
}

/// The plan shared by the layers of one device.
struct StagePlan {
    layers: Range<usize>,
    /// One for each window size and shape of key heads.
    attention: Vec<((Option<usize>, KeyHeads), AttentionPlan)>,
    /// Cross-attention, if there are sources.
    to_sources: Option<AttentionPlan>,
    rotations: Vec<BatchRotation>,
    /// A factor of each row's queries, `(1, tokens, 1)`, if they depend on the position.
    temperatures: Option<Tensor>,
}

/// Layers on one device.
pub(super) struct LayerGroup {
    pub(super) device: Device,
    pub(super) layers: Range<usize>,
    /// Bias by relative position.
    pub(super) bias: Option<DistanceBias>,
}

/// Consecutive ranges with these lengths.
pub(super) fn ranges(lens: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let range = |next: &mut usize, len| {
        *next += len;
        Some(*next - len..*next)
    };
    lens.into_iter().scan(0, range).collect()
}

impl<'a> BatchPlan<'a> {
    pub(super) fn new(
        texts: &[DeviceRows<'_>],
        (stack, stages): (&'a StackConfig, &[LayerGroup]),
        (distances, sinks): (&'a [DeviceLayerDistances], &'a [HeadSinks]),
        rotations: Rotations<'_>,
        pools: Pools<'a>,
        dtype: DType,
    ) -> Result<Self> {
        let rows = ranges(texts.iter().map(|text| text.len));
        check_rows(rows.last().map_or(0, |rows| rows.end), stack)?;
        let (spans, own) = match pools.own {
            Some(pool) => {
                let (spans, batch) = pool.batch(&rows)?;
                (spans, Some(batch))
            }
            None => (Vec::new(), None),
        };
        let attending = |(at, text): (usize, &DeviceRows<'_>)| {
            let past = text.past.iter().flat_map(|span| span.cache::<SlotSpan>().ranges());
            // An encoder's rows attend to the rows of the batch.
            let new = spans.get(at).map_or(&rows[at..=at], SlotSpan::ranges);
            AttendingRows { rows: text.len, seen: past.chain(new).cloned().collect() }
        };
        let of_own: Vec<AttendingRows> = texts.iter().enumerate().map(attending).collect();
        let to_sources = stack.names.cross.map(|_| {
            let attending = |text: &DeviceRows<'_>| {
                let source = text.source.expect("a text of a decoder has a source");
                AttendingRows { rows: text.len, seen: source.ranges().to_vec() }
            };
            texts.iter().map(attending).collect::<Vec<_>>()
        });
        let plan = |stage: &LayerGroup| {
            StagePlan::new(texts, (&of_own, to_sources.as_deref()), (stack, stage), rotations, dtype)
        };
        Ok(Self {
            stages: stages.iter().map(plan).collect::<Result<_>>()?,
            rows,
            spans,
            own,
            sources: pools.sources.map(KvPool::read),
            distances,
            layer_inputs: None,
            sinks,
            stack,
            slots: stack.slots(),
        })
    }

    /// The plan of the layer's device.
    fn stage(&self, layer: usize) -> &StagePlan {
        self.stages.iter().find(|stage| stage.layers.contains(&layer)).expect("each layer is on a device")
    }
}

impl StagePlan {
    /// Plans the self-attention and cross-attention of texts.
    fn new(
        texts: &[DeviceRows<'_>],
        (of_own, to_sources): (&[AttendingRows], Option<&[AttendingRows]>),
        (stack, LayerGroup { device, layers, bias }): (&StackConfig, &LayerGroup),
        (ropes, layout): Rotations<'_>,
        dtype: DType,
    ) -> Result<Self> {
        let plan = |rows, heads, sight, bias: Option<&DistanceBias>| {
            AttentionPlan::new(rows, (stack, heads), sight, bias, (device, dtype))
        };
        let mut attention: Vec<((Option<usize>, KeyHeads), AttentionPlan)> = Vec::new();
        for layer in layers.clone() {
            let (window, heads) = (stack.layers[layer].window, stack.key_heads(layer));
            if attention.iter().all(|(of, _)| *of != (window, heads)) {
                let sight = if stack.bidirectional { Sight::Around { window } } else { Sight::UpToOwn { window } };
                attention.push(((window, heads), plan(of_own, heads, sight, bias.as_ref())?));
            }
        }
        // No relative bias: a source and the decoder text do not share positions.
        let heads = stack.key_heads(layers.start);
        let to_sources = to_sources.map(|rows| plan(rows, heads, Sight::Around { window: None }, None)).transpose()?;
        let rotations =
            ropes.iter().map(|rope| BatchRotation::new(texts, *rope, layout, device)).collect::<Result<_>>()?;
        let temperatures = stack.temperature.map(|temperature| {
            let positions = texts.iter().flat_map(|text| text.start()..text.start() + text.len);
            let factors: Vec<f32> = positions.map(|position| temperature.factor(position)).collect();
            Tensor::from_vec(factors, (1, (), 1), device)?.to_dtype(dtype)
        });
        Ok(Self { layers: layers.clone(), attention, to_sources, rotations, temperatures: temperatures.transpose()? })
    }

    fn attention(&self, window: Option<usize>, heads: KeyHeads) -> &AttentionPlan {
        &self.attention.iter().find(|(of, _)| *of == (window, heads)).expect("a plan for each kind of layer").1
    }
}

/// Angles of the batch's rows, `(tokens, pairs)` each.
struct BatchRotation {
    cos: Tensor,
    sin: Tensor,
    layout: RopeLayout,
}

impl BatchRotation {
    fn new(
        texts: &[DeviceRows<'_>],
        (frequencies, scale): (&[f32], f32),
        layout: RopeLayout,
        device: &Device,
    ) -> Result<Self> {
        let positions = texts.iter().flat_map(|text| text.start()..text.start() + text.len);
        // The same angles as `RopeTable`, for both executors.
        let angles = positions
            .flat_map(|position| frequencies.iter().map(move |frequency| f64::from(position as f32 * frequency)));
        let (sin, cos): (Vec<f32>, Vec<f32>) =
            angles.map(libm::sincos).map(|(sin, cos)| (sin as f32 * scale, cos as f32 * scale)).unzip();
        let table = |values: Vec<f32>| Tensor::from_vec(values, ((), frequencies.len()), device);
        Ok(Self { cos: table(cos)?, sin: table(sin)?, layout })
    }

    /// Rotates all or the first elements of each head in `(heads, tokens, head_dim)`, in f32 for any type.
    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let (rotated, width) = (2 * self.cos.dim(1)?, x.dim(2)?);
        if rotated < width {
            let first = self.apply(&x.narrow(2, 0, rotated)?.contiguous()?)?;
            return Tensor::cat(&[first, x.narrow(2, rotated, width - rotated)?], 2);
        }
        let wide = x.to_dtype(DType::F32)?.unsqueeze(0)?;
        let rotated = match self.layout {
            RopeLayout::Halves => rope(&wide, &self.cos, &self.sin)?,
            RopeLayout::Interleaved => rope_i(&wide, &self.cos, &self.sin)?,
        };
        rotated.squeeze(0)?.to_dtype(x.dtype())
    }
}

impl AttentionWeights<DeviceLinear, DeviceNorm> {
    /// Maps `(tokens, hidden_size)` to the same shape and stores keys and values in the plan's spans.
    fn forward(&self, x: &Tensor, plan: &BatchPlan<'_>, layer: usize) -> Result<Tensor> {
        let (stage, of_keys, LayerSight { window, rotation, .. }) =
            (plan.stage(layer), plan.stack.key_heads(layer), plan.stack.layers[layer]);
        let rotation = rotation.map(|which| &stage.rotations[which]);
        let of_all_heads = plan.stack.names.head_norms.is_some_and(|norms| norms.of_all_heads);
        // Norms come before rotation, as in our kernels.
        let rotated = |made: Tensor, norm: &Option<DeviceNorm>| {
            let normed = |x: Tensor, is_here: bool| {
                norm.as_ref().filter(|_| is_here).map_or(Ok(x.clone()), |norm| norm.forward(&x))
            };
            let heads = heads(&normed(made, of_all_heads)?, of_keys.dim)?; // (heads, tokens, head_dim)
            let heads = normed(heads, !of_all_heads)?;
            rotation.map_or(Ok(heads.clone()), |rotation| rotation.apply(&heads))
        };
        let mut q = rotated(self.query.forward(x)?, &self.query_norm)?;
        if let Some(factors) = &stage.temperatures {
            q = q.broadcast_mul(factors)?;
        }
        let attention = stage.attention(window, of_keys);
        let Some(key) = &self.key else {
            let own = plan.own.as_ref().expect("keys of other layers are kept in a pool");
            let all = own.layer(plan.slots[layer]).moved(x.device())?;
            return self.output.forward(&attention.attend(
                &q,
                &all,
                (plan.distances.get(layer), plan.sinks.get(layer)),
            )?);
        };
        let keys = key.forward(x)?;
        let values = heads(&self.value.as_ref().map_or(Ok(keys.clone()), |value| value.forward(x))?, of_keys.dim)?;
        let values = self.value_norm.as_ref().map_or(Ok(values.clone()), |norm| norm.forward(&values))?;
        let batch = LayerSpan { keys: rotated(keys, &self.key_norm)?, values };
        let all = plan.own.as_ref().map_or(Ok(&batch), |own| own.write(plan.slots[layer], &batch))?;
        self.output.forward(&attention.attend(&q, all, (plan.distances.get(layer), plan.sinks.get(layer)))?)
    }

    /// Adds the cross-attention output to the residual stream.
    fn to_sources(&self, x: &Tensor, plan: &BatchPlan<'_>, layer: usize) -> Result<Tensor> {
        let attention = &plan.stage(layer).to_sources;
        let attention = attention.as_ref().expect("a description with attention to sources has a plan of it");
        let q = heads(&self.query.forward(&self.norms.before(x, plan.stack)?)?, plan.stack.head_dim)?;
        let sources = plan.sources.as_ref().expect("a description with attention to sources has a pool of them");
        let y = self.output.forward(&attention.attend(&q, sources.layer(layer), (None, None))?)?;
        self.norms.sum(x, &y, plan.stack)
    }

    /// Cross-attention keys and values of sources, from the encoder's `(tokens, hidden_size)`.
    pub(super) fn read_sources(&self, x: &Tensor, head_dim: usize) -> Result<LayerSpan> {
        let of = |linear: &Option<DeviceLinear>| {
            heads(&linear.as_ref().expect("attention to sources has keys and values").forward(x)?, head_dim)
        };
        Ok(LayerSpan { keys: of(&self.key)?, values: of(&self.value)? })
    }
}

/// `activation(gate) · up`, or `activation(gate)` without `up`, as in our kernels.
pub(super) fn activate(gate: &Tensor, activation: Activation, up: Option<&Tensor>) -> Result<Tensor> {
    let limit = f64::from(Activation::CLAMPED_LIMIT);
    let activated = match activation {
        Activation::Silu => gate.silu(),
        Activation::GeluErf => gate.gelu_erf(),
        // candle's `gelu` is the tanh approximation; in configurations that name means the exact function.
        Activation::GeluTanh => gate.gelu(),
        Activation::Relu => gate.relu(),
        Activation::Sigmoid => sigmoid(gate),
        Activation::ClampedSigmoid => {
            let gate = gate.minimum(limit)?;
            &gate * sigmoid(&(&gate * f64::from(Activation::CLAMPED_FACTOR))?)?
        }
    }?;
    match up {
        Some(up) if activation == Activation::ClampedSigmoid => activated * (up.clamp(-limit, limit)? + 1.0)?,
        Some(up) => activated * up,
        None => Ok(activated),
    }
}

impl LayerWeights<DeviceLinear, DeviceNorm> {
    /// Runs the residual stream `(tokens, hidden_size)` through the layer.
    pub(super) fn forward(&self, x: &Tensor, plan: &BatchPlan<'_>, layer: usize) -> Result<Tensor> {
        let TokenMixer::Attention(attention) = &self.mixer else { unreachable!("refused before it is loaded") };
        let norms = &attention.norms;
        let mut x = norms.sum(x, &attention.forward(&norms.before(x, plan.stack)?, plan, layer)?, plan.stack)?;
        if let Some(cross) = &self.cross {
            x = cross.to_sources(&x, plan, layer)?;
        }
        let norms = &self.feed_forward.norms;
        let y = self.feed_forward.forward(&norms.before(&x, plan.stack)?)?;
        let mut x = norms.sum(&x, &y, plan.stack)?;
        if let Some((input, all)) = self.input.as_ref().zip(plan.layer_inputs.as_ref()) {
            x = (&x + input.forward(&x, all, (layer, plan.stack.activation))?)?;
        }
        self.scale.map_or(Ok(x.clone()), |scale| x * f64::from(scale))
    }
}

impl LayerInputWeights<DeviceLinear, DeviceNorm> {
    /// What the layer makes of its own input, a part of `all`, for the residual stream `(tokens, hidden_size)`.
    fn forward(&self, x: &Tensor, all: &Tensor, (layer, activation): (usize, Activation)) -> Result<Tensor> {
        let gate = self.gate.forward(x)?;
        let width = gate.dim(1)?;
        let own = moved(&all.narrow(1, layer * width, width)?, x.device())?;
        self.norm.forward(&self.output.forward(&activate(&gate, activation, Some(&own))?)?)
    }
}

#[cfg(test)]
mod tests;
