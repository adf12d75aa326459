//! The [layers](crate::layer) over candle's operations.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::{layer_norm, rms_norm};
use candle_nn::rotary_emb::{rope, rope_i};
use probity_kernels::{Activation, RopeLayout};

use super::attention::{AttendingRows, AttentionPlan, DistanceBias, LayerSpan, Sight, heads};
use super::distances::LayerDistances;
use crate::cpu::{NormKind, norm_names};
use crate::layer::{
    AttentionWeights, FeedForwardWeights, GatedProducts, LayerWeights, PartNorms, WeightLoader, chosen_experts,
};
use crate::packed::KvSpan;
use crate::row_range::RowRange;
use crate::stack_config::{ExpertChoice, LayerSight, StackConfig};
use crate::transformer::TextRows;
use crate::{SourceError, linear};

/// Why weights did not arrive on the device.
#[derive(thiserror::Error, miette::Diagnostic, Debug)]
#[error(transparent)]
pub(super) enum DeviceLoadError {
    #[diagnostic(transparent)]
    Source(#[from] SourceError),
    Device(#[from] candle_core::Error),
}

/// Tensors of a checkpoint on their way to a device.
pub(super) struct DeviceLoader<'a> {
    pub(super) weights: linear::TensorLoader<'a>,
    pub(super) device: &'a Device,
    pub(super) dtype: DType,
}

impl<'a> DeviceLoader<'a> {
    /// The same device, and the tensors of another part.
    pub(super) fn of(&self, weights: linear::TensorLoader<'a>) -> Self {
        Self { weights, ..*self }
    }

    /// The same part, in the type in which nothing is rounded.
    pub(super) fn in_f32(&self) -> Self {
        Self { dtype: DType::F32, ..self.under("") }
    }

    /// The tensor of that name, dequantised.
    pub(super) fn tensor(&self, name: &str, shape: &[usize]) -> std::result::Result<Tensor, DeviceLoadError> {
        self.arrived(self.weights.floats(name, shape)?, shape)
    }

    fn arrived(&self, values: Vec<f32>, shape: &[usize]) -> std::result::Result<Tensor, DeviceLoadError> {
        // Rounded before it goes over: there is never an f32 copy on the device.
        Ok(Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(self.dtype)?.to_device(self.device)?)
    }
}

impl WeightLoader<DeviceLinear, DeviceNorm> for DeviceLoader<'_> {
    type Error = DeviceLoadError;

    fn under(&self, more: &str) -> Self {
        self.of(self.weights.under(more))
    }

    fn unrounded(&self) -> Self {
        self.in_f32()
    }

    fn linear(
        &self,
        name: &str,
        rows: RowRange,
        width: usize,
        bias: bool,
    ) -> std::result::Result<DeviceLinear, DeviceLoadError> {
        let weight = self.weights.matrix(&format!("{name}.weight"), rows, width)?;
        let bias = bias.then(|| self.weights.elements(&format!("{name}.bias"), rows)).transpose()?;
        let bias = bias.map(|values| self.arrived(values, &[rows.len])).transpose()?;
        Ok(DeviceLinear { weight: self.arrived(weight, &[rows.len, width])?, bias })
    }

    fn has(&self, name: &str) -> bool {
        self.weights.contains(name)
    }

    fn norm(
        &self,
        name: &str,
        width: usize,
        (kind, eps): (NormKind, f64),
    ) -> std::result::Result<DeviceNorm, DeviceLoadError> {
        let (weight, bias) = norm_names(name, kind, |name| self.weights.contains(name));
        // Settled in f32, before it is rounded.
        let mut values = self.weights.floats(&weight, &[width])?;
        kind.settle(&mut values);
        let loader =
            if matches!(kind, NormKind::Layer | NormKind::LayerWithoutBias) { self.in_f32() } else { self.under("") };
        let bias = match kind {
            NormKind::LayerWithoutBias => Some(loader.arrived(vec![0.0; width], &[width])?),
            _ => bias.map(|name| loader.tensor(&name, &[width])).transpose()?,
        };
        Ok(DeviceNorm { weight: loader.arrived(values, &[width])?, bias, eps: eps as f32 })
    }
}

pub(super) struct DeviceLinear {
    /// `(out_features, in_features)`
    weight: Tensor,
    bias: Option<Tensor>,
}

impl DeviceLinear {
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // For one row candle takes another way than for many, and the bits differ: nothing here can promise them.
        let y = x.matmul(&self.weight.t()?)?;
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
    }
}

pub(super) struct DeviceNorm {
    /// In f32 where there is a bias.
    weight: Tensor,
    bias: Option<Tensor>,
    eps: f32,
}

impl DeviceNorm {
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Some(bias) = &self.bias else { return rms_norm(x, &self.weight, self.eps) };
        // Candle's kernel has the variance from the difference of two sums, in which little is left where the mean is
        // large: rows go there without it.
        let wide = x.to_dtype(DType::F32)?;
        let centred = wide.broadcast_sub(&wide.mean_keepdim(D::Minus1)?)?;
        layer_norm(&centred, &self.weight, bias, self.eps)?.to_dtype(x.dtype())
    }
}

impl PartNorms<DeviceNorm> {
    /// What a part of a layer is given of the residual stream.
    fn before(&self, x: &Tensor, stack: &StackConfig) -> Result<Tensor> {
        self.stream.as_ref().filter(|_| stack.norm_first).map_or(Ok(x.clone()), |norm| norm.forward(x))
    }

    /// The residual stream with what a part made of it.
    fn sum(&self, x: &Tensor, y: &Tensor, stack: &StackConfig) -> Result<Tensor> {
        let mut y = self.branch.as_ref().map_or(Ok(y.clone()), |norm| norm.forward(y))?;
        if stack.branch_scale != 1.0 {
            y = (y * f64::from(stack.branch_scale))?;
        }
        let x = (x + y)?;
        self.stream.as_ref().filter(|_| !stack.norm_first).map_or(Ok(x.clone()), |norm| norm.forward(&x))
    }
}

/// Rows of a text, over what each layer has of what came before and of a source.
pub(super) type DeviceRows<'a> = TextRows<'a, Vec<LayerSpan>>;

/// A model's rotations, each with its frequencies and the factor of its angles' sines and cosines, and their layout.
pub(super) type Rotations<'a> = (&'a [(&'a [f32], f32)], RopeLayout);
/// Of a model that has none.
pub(super) const NO_ROTATIONS: Rotations<'static> = (&[], RopeLayout::Halves);

/// What a batch shares in all layers.
pub(super) struct BatchPlan<'a> {
    texts: Vec<DeviceRows<'a>>,
    /// Where each text's rows lie in the batch.
    pub(super) rows: Vec<Range<usize>>,
    /// For each window that layers have.
    attention: Vec<(Option<usize>, AttentionPlan)>,
    /// Where a source is looked at.
    to_sources: Option<AttentionPlan>,
    rotations: Vec<BatchRotation>,
    /// Of each layer, where scores depend on products with distances.
    distances: &'a [LayerDistances],
    stack: &'a StackConfig,
}

/// Where texts of those lengths lie, one behind the other.
pub(super) fn ranges(lens: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let range = |next: &mut usize, len| {
        *next += len;
        Some(*next - len..*next)
    };
    lens.into_iter().scan(0, range).collect()
}

impl<'a> BatchPlan<'a> {
    pub(super) fn new(
        texts: Vec<DeviceRows<'a>>,
        (stack, bias, distances): (&'a StackConfig, Option<&DistanceBias>, &'a [LayerDistances]),
        (ropes, layout): Rotations<'_>,
        device: &Device,
    ) -> Result<Self> {
        let attending = |text: &DeviceRows<'_>| AttendingRows { rows: text.len, positions: text.start() + text.len };
        let own: Vec<AttendingRows> = texts.iter().map(attending).collect();
        let mut plans: Vec<(Option<usize>, AttentionPlan)> = Vec::new();
        for LayerSight { window, .. } in &stack.layers {
            if plans.iter().all(|(of, _)| of != window) {
                let sight = if stack.bidirectional {
                    Sight::Around { window: *window }
                } else {
                    Sight::UpToOwn { window: *window }
                };
                plans.push((*window, AttentionPlan::new(&own, stack, sight, bias, device)?));
            }
        }
        let to_sources = stack.names.cross.map(|_| {
            let attending = |text: &DeviceRows<'_>| {
                Ok(AttendingRows { rows: text.len, positions: source_of(text)[0].keys.dim(1)? })
            };
            // No bias by distance: a source and the text that looks at it have no common positions.
            let sources = texts.iter().map(attending).collect::<Result<Vec<_>>>()?;
            AttentionPlan::new(&sources, stack, Sight::Around { window: None }, None, device)
        });
        Ok(Self {
            rows: ranges(texts.iter().map(|text| text.len)),
            attention: plans,
            to_sources: to_sources.transpose()?,
            rotations: ropes
                .iter()
                .map(|rope| BatchRotation::new(&texts, *rope, layout, device))
                .collect::<Result<_>>()?,
            texts,
            distances,
            stack,
        })
    }

    fn attention(&self, layer: usize) -> &AttentionPlan {
        let window = self.stack.layers[layer].window;
        &self.attention.iter().find(|(of, _)| *of == window).expect("a plan for each window").1
    }
}

fn source_of<'a>(text: &DeviceRows<'a>) -> &'a [LayerSpan] {
    text.source.expect("a text of a decoder has a source")
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
        // As `RopeTable` has them: both executors rotate by the same angles.
        let angles = positions
            .flat_map(|position| frequencies.iter().map(move |frequency| f64::from(position as f32 * frequency)));
        let (sin, cos): (Vec<f32>, Vec<f32>) =
            angles.map(libm::sincos).map(|(sin, cos)| (sin as f32 * scale, cos as f32 * scale)).unzip();
        let table = |values: Vec<f32>| Tensor::from_vec(values, ((), frequencies.len()), device);
        Ok(Self { cos: table(cos)?, sin: table(sin)?, layout })
    }

    /// Rotates `(heads, tokens, head_dim)`, or the first elements of its heads, in f32 whatever its type.
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
    /// `(tokens, hidden_size)` to the same, and each text's new span in this layer.
    fn forward(&self, x: &Tensor, plan: &BatchPlan<'_>, layer: usize) -> Result<(Tensor, Vec<LayerSpan>)> {
        let (attention, head_dim) = (plan.attention(layer), plan.stack.head_dim);
        let rotation = plan.stack.layers[layer].rotation.map(|which| &plan.rotations[which]);
        let of_all_heads = plan.stack.names.head_norms.is_some_and(|norms| norms.of_all_heads);
        // Norms come before rotation, as our kernels have them.
        let rotated = |linear: &DeviceLinear, norm: &Option<DeviceNorm>| {
            let normed = |x: Tensor, is_here: bool| {
                norm.as_ref().filter(|_| is_here).map_or(Ok(x.clone()), |norm| norm.forward(&x))
            };
            let heads = heads(&normed(linear.forward(x)?, of_all_heads)?, head_dim)?; // (heads, tokens, head_dim)
            let heads = normed(heads, !of_all_heads)?;
            rotation.map_or(Ok(heads.clone()), |rotation| rotation.apply(&heads))
        };
        let q = rotated(&self.query, &self.query_norm)?;
        let values = heads(&self.value.forward(x)?, head_dim)?;
        let batch = LayerSpan { keys: rotated(&self.key, &self.key_norm)?, values };
        let new = plan.rows.iter().map(|rows| batch.part(rows)).collect::<Result<Vec<_>>>()?;
        let seen = plan.texts.iter().zip(&new).map(|(text, new)| {
            let mut spans = of_layer(text.past, layer);
            spans.push(new);
            spans
        });
        let y = attention.attend(&q, &seen.collect::<Vec<_>>(), plan.distances.get(layer))?;
        Ok((self.output.forward(&y)?, new))
    }

    /// The residual stream with what the rows make of the texts that they look at.
    fn to_sources(&self, x: &Tensor, plan: &BatchPlan<'_>, layer: usize) -> Result<Tensor> {
        let attention = plan.to_sources.as_ref().expect("a description with attention to sources has a plan of it");
        let q = heads(&self.query.forward(&self.norms.before(x, plan.stack)?)?, plan.stack.head_dim)?;
        let seen: Vec<Vec<&LayerSpan>> = plan.texts.iter().map(|text| vec![&source_of(text)[layer]]).collect();
        let y = self.output.forward(&attention.attend(&q, &seen, None)?)?;
        self.norms.sum(x, &y, plan.stack)
    }

    /// Keys and values of texts to be looked at, of which the encoder made `(tokens, hidden_size)`.
    pub(super) fn read_sources(&self, x: &Tensor, rows: &[Range<usize>], head_dim: usize) -> Result<Vec<LayerSpan>> {
        let of = |linear: &DeviceLinear| heads(&linear.forward(x)?, head_dim);
        let batch = LayerSpan { keys: of(&self.key)?, values: of(&self.value)? };
        rows.iter().map(|rows| batch.part(rows)).collect()
    }
}

/// One layer's part of each span.
pub(super) fn of_layer(spans: &[Arc<KvSpan>], layer: usize) -> Vec<&LayerSpan> {
    spans.iter().map(|span| &span.cache::<Vec<LayerSpan>>()[layer]).collect()
}

impl FeedForwardWeights<DeviceLinear, DeviceNorm> {
    fn forward(&self, x: &Tensor, choice: Option<ExpertChoice>) -> Result<Tensor> {
        let Some((router, choice)) = self.router.as_ref().zip(choice) else {
            return self.products[0].forward(x, self.activation);
        };
        // In f32 throughout: rounded logits tie, and another expert is chosen.
        let logits = router.forward(&x.to_dtype(DType::F32)?)?.to_vec2::<f32>()?;
        let mut of_experts: Vec<(Vec<u32>, Vec<f32>)> = vec![Default::default(); choice.count];
        for (row, logits) in logits.iter().enumerate() {
            for (expert, weight) in chosen_experts(logits, choice) {
                of_experts[expert].0.push(row as u32);
                of_experts[expert].1.push(weight);
            }
        }
        let mut sum = Tensor::zeros(x.shape(), DType::F32, x.device())?;
        for (products, (rows, weights)) in self.products.iter().zip(of_experts).filter(|(_, of)| !of.0.is_empty()) {
            let count = rows.len();
            let rows = Tensor::from_vec(rows, count, x.device())?;
            let weights = Tensor::from_vec(weights, (count, 1), x.device())?;
            let y = products.forward(&x.index_select(&rows, 0)?, self.activation)?.to_dtype(DType::F32)?;
            sum = sum.index_add(&rows, &y.broadcast_mul(&weights)?, 0)?;
        }
        sum.to_dtype(x.dtype())
    }
}

pub(super) fn activate(x: &Tensor, activation: Activation) -> Result<Tensor> {
    match activation {
        Activation::Silu => x.silu(),
        Activation::GeluErf => x.gelu_erf(),
        // What candle calls `gelu` is the approximation; in configurations that name means the other one.
        Activation::GeluTanh => x.gelu(),
        Activation::Relu => x.relu(),
    }
}

impl GatedProducts<DeviceLinear> {
    fn forward(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        let gate = self.gate.forward(x)?;
        let activated = activate(&gate, activation)?;
        match &self.up {
            Some(up) => self.down.forward(&(activated * up.forward(x)?)?),
            None => self.down.forward(&activated),
        }
    }
}

impl LayerWeights<DeviceLinear, DeviceNorm> {
    /// Takes the residual stream `(tokens, hidden_size)` through the layer; returns each text's new span in it too.
    pub(super) fn forward(&self, x: &Tensor, plan: &BatchPlan<'_>, layer: usize) -> Result<(Tensor, Vec<LayerSpan>)> {
        let norms = &self.attention.norms;
        let (y, new) = self.attention.forward(&norms.before(x, plan.stack)?, plan, layer)?;
        let mut x = norms.sum(x, &y, plan.stack)?;
        if let Some(cross) = &self.cross {
            x = cross.to_sources(&x, plan, layer)?;
        }
        let norms = &self.feed_forward.norms;
        let y = self.feed_forward.forward(&norms.before(&x, plan.stack)?, plan.stack.experts)?;
        Ok((norms.sum(&x, &y, plan.stack)?, new))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::path::PathBuf;

    use probity_kernels::{RopeTable, WeightType};

    use super::super::stack::DeviceStack;
    use super::*;
    use crate::cpu::{NormWeights, Workspace};
    use crate::disentangled::Disentangled;
    use crate::layer::StackWeights;
    use crate::relative::RelativeBuckets;
    use crate::stack_config::{AttentionNames, HeadNorms, LayerBiases, LayerNames, NormNames, usual_scale};
    use crate::transformer::{ForwardPass, LayerStack};
    use crate::{Arithmetic, Compute, RawTensor, TensorBytes, WeightSource, transformer};

    static PLAIN: LayerNames = LayerNames {
        layers: "layers",
        attention: AttentionNames { projections: ["q", "k", "v", "o"], norms: NormNames::stream("first") },
        head_norms: None,
        cross: None,
        router: None,
        gate: "gate",
        up: None,
        down: "down",
        feed_forward_norms: NormNames::stream("second"),
        last_norm: None,
        relative: None,
    };
    static GATED: LayerNames = LayerNames { up: Some("up"), last_norm: Some("last"), ..PLAIN };
    static HEAD_NORMED: LayerNames =
        LayerNames { head_norms: Some(HeadNorms { names: ["q_norm", "k_norm"], of_all_heads: false }), ..GATED };
    static ALL_NORMED: LayerNames =
        LayerNames { head_norms: Some(HeadNorms { names: ["q_norm", "k_norm"], of_all_heads: true }), ..GATED };
    static BRANCHES: LayerNames = LayerNames {
        attention: AttentionNames { norms: NormNames::branch("first"), ..PLAIN.attention },
        feed_forward_norms: NormNames::branch("second"),
        ..GATED
    };
    static FUSED: LayerNames = LayerNames {
        attention: AttentionNames { projections: ["qkv", "qkv", "qkv", "o"], ..PLAIN.attention },
        gate: "gate_up",
        up: Some("gate_up"),
        ..GATED
    };
    static MIXED: LayerNames =
        LayerNames { router: Some("router"), gate: "e.gate", up: Some("e.up"), down: "e.down", ..GATED };
    static AROUND: LayerNames = LayerNames {
        attention: AttentionNames {
            norms: NormNames { stream: Some("first"), branch: Some("third") },
            ..PLAIN.attention
        },
        feed_forward_norms: NormNames { stream: Some("second"), branch: Some("fourth") },
        ..GATED
    };

    static RELATIVE: LayerNames = LayerNames { relative: Some("relative"), ..GATED };
    static CROSS: LayerNames = LayerNames {
        cross: Some(AttentionNames {
            projections: ["cross.q", "cross.k", "cross.v", "cross.o"],
            norms: NormNames { stream: Some("third"), branch: None },
        }),
        ..GATED
    };
    static RELATIVE_CROSS: LayerNames = LayerNames { cross: CROSS.cross, ..RELATIVE };

    /// A checkpoint of some numbers that holds what a description asks for: names, and their shapes.
    struct Asked<'a>(&'a RefCell<BTreeMap<String, Vec<usize>>>, String);

    impl WeightLoader<(), ()> for Asked<'_> {
        type Error = Infallible;

        fn under(&self, more: &str) -> Self {
            Self(self.0, format!("{}{more}", self.1))
        }

        fn unrounded(&self) -> Self {
            self.under("")
        }

        fn linear(&self, name: &str, rows: RowRange, width: usize, bias: bool) -> std::result::Result<(), Infallible> {
            self.0.borrow_mut().insert(format!("{}{name}.weight", self.1), vec![rows.of, width]);
            bias.then(|| self.0.borrow_mut().insert(format!("{}{name}.bias", self.1), vec![rows.of]));
            Ok(())
        }

        fn has(&self, _: &str) -> bool {
            false
        }

        fn norm(&self, name: &str, width: usize, (kind, _): (NormKind, f64)) -> std::result::Result<(), Infallible> {
            let (weight, bias) = norm_names(&format!("{}{name}", self.1), kind, |_| false);
            self.0.borrow_mut().extend([Some(weight), bias].into_iter().flatten().map(|name| (name, vec![width])));
            Ok(())
        }
    }

    /// Numbers between −½ and ½ that look like none in particular.
    fn numbers(seed: usize, count: usize) -> Vec<f32> {
        (0..count).map(|i| ((seed * 7919 + i * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
    }

    impl WeightSource for BTreeMap<String, Vec<usize>> {
        fn tensor(&self, name: &str) -> std::result::Result<RawTensor, SourceError> {
            let shape = self.get(name).unwrap_or_else(|| panic!("{name} was not asked for")).clone();
            let seed = name.bytes().map(usize::from).sum();
            let bytes: Vec<u8> = numbers(seed, shape.iter().product()).iter().flat_map(|x| x.to_le_bytes()).collect();
            let all = 0..bytes.len();
            let bytes = TensorBytes::slice(Arc::new(bytes), all).expect("all of it");
            Ok(RawTensor { shape, weight_type: WeightType::F32, bytes })
        }

        fn contains(&self, name: &str) -> bool {
            self.contains_key(name)
        }

        fn names(&self) -> Vec<String> {
            self.keys().cloned().collect()
        }

        fn path(&self) -> PathBuf {
            PathBuf::from("made")
        }
    }

    const TOKENS: usize = 7;
    /// What stands for distances, and its norm.
    const TABLE: &str = "distances";
    const TABLE_NORM: &str = "distances_norm";
    /// Tokens of a text that is looked at.
    const SOURCE: usize = 5;
    /// Of two rotations.
    const SCALES: [f32; 2] = [1.0, 0.5];

    /// What our kernels make of some rows.
    fn by_kernels(source: &dyn WeightSource, config: &StackConfig, x: &[f32], frequencies: &[f32]) -> Vec<f32> {
        let compute = Compute::from(Arithmetic::Exact);
        let stack =
            LayerStack::load(&linear::TensorLoader::new(source, "", compute), config.clone()).expect("all is there");
        let mut w = Workspace::default();
        let set = |w: &mut Workspace, x: &[f32]| {
            w.x.set_len(x.len());
            w.x.copy_from_slice(x);
        };
        let is_read = config.names.cross.is_some();
        set(&mut w, &x[..SOURCE * config.hidden_size]);
        let sources = if is_read { stack.read_sources(&mut w, None, compute, &[SOURCE]) } else { Vec::new() };
        set(&mut w, x);
        let positions: Vec<u32> = (0..TOKENS as u32).collect();
        let table = |positions: &[u32], scale: f32| RopeTable::new(positions, frequencies, scale);
        let angles = |scale: f32| transformer::RowAngles { all: table(&positions, scale), kept: table(&[], scale) };
        let rotations = transformer::RowRotations { layout: RopeLayout::Halves, tables: SCALES.map(angles).into() };
        let stretches = vec![TextRows { past: &[], source: sources.first(), len: TOKENS }];
        stack.run(&mut w, &ForwardPass { compute, stretches, wanted: None, rotations: Some(rotations) }, |_, _| ());
        stack.finish(&w, compute)
    }

    /// What candle's operations make of them.
    fn by_candle(source: &dyn WeightSource, config: &StackConfig, x: &[f32], frequencies: &[f32]) -> Result<Vec<f32>> {
        let device = &Device::Cpu;
        let weights = linear::TensorLoader::new(source, "", Arithmetic::Exact.into());
        let loader = DeviceLoader { weights, device, dtype: DType::F32 };
        let stack = DeviceStack::load(&loader, config.clone()).expect("all is there, and computed");
        let x = Tensor::from_vec(x.to_vec(), (TOKENS, config.hidden_size), device)?;
        let sources = stack.read_sources(&x.narrow(0, 0, SOURCE)?, &ranges([SOURCE]))?;
        let source = sources.first().filter(|_| config.names.cross.is_some());
        let ropes = SCALES.map(|scale| (frequencies, scale));
        let rows = vec![DeviceRows { past: &[], source, len: TOKENS }];
        let plan = stack.plan(rows, (&ropes, RopeLayout::Halves))?;
        let (y, _) = stack.run(x, &plan, &mut |_, _| Ok(()))?;
        stack.finish(&y)?.flatten_all()?.to_vec1()
    }

    fn experts(normalised: bool) -> ExpertChoice {
        ExpertChoice { count: 5, chosen: 2, normalised }
    }

    fn sight(window: Option<usize>, rotation: Option<usize>) -> LayerSight {
        LayerSight { window, rotation }
    }

    /// Descriptions of attention that reads distances.
    fn with_distances(unrotated: &StackConfig) -> Vec<StackConfig> {
        let distances =
            Disentangled { table: TABLE, span: 2, log_to: None, norm: None, keys: Some("k"), queries: Some("q") };
        let of = |distances| StackConfig {
            names: &PLAIN,
            norm: NormKind::Layer,
            norm_first: false,
            bidirectional: true,
            num_kv_heads: 4,
            biases: LayerBiases::ALL,
            disentangled: Some(distances),
            ..unrotated.clone()
        };
        vec![
            of(distances),
            of(Disentangled { span: 4, log_to: Some(6), ..distances }),
            of(Disentangled { norm: Some(TABLE_NORM), ..distances }),
            of(Disentangled { queries: None, ..distances }),
            of(Disentangled { keys: None, ..distances }),
            of(Disentangled { keys: Some("q"), queries: Some("k"), ..distances }),
            StackConfig { layers: vec![sight(Some(3), None); 2], ..of(distances) },
            StackConfig { bidirectional: false, biases: LayerBiases::NONE, ..of(distances) },
        ]
    }

    #[test]
    fn each_description_is_computed_alike_by_our_kernels_and_by_candle() {
        let base = StackConfig {
            hidden_size: 24,
            intermediate_size: 40,
            experts: None,
            layers: vec![sight(None, Some(0)); 2],
            num_heads: 4,
            num_kv_heads: 2,
            head_dim: 8,
            score_scale: usual_scale(8),
            score_cap: None,
            bidirectional: false,
            relative: None,
            disentangled: None,
            norm: NormKind::RootMeanSquare,
            norm_eps: 1e-5,
            norm_first: true,
            first_input_norm: true,
            branch_scale: 1.0,
            activation: Activation::Silu,
            biases: LayerBiases::NONE,
            names: &GATED,
        };
        let mut descriptions = vec![
            StackConfig { norm: NormKind::Layer, biases: LayerBiases::ALL, ..base.clone() },
            StackConfig { norm_first: false, names: &PLAIN, ..base.clone() },
            StackConfig { norm: NormKind::Layer, norm_first: false, score_scale: 1.0, ..base.clone() },
            StackConfig { layers: vec![sight(Some(3), Some(0)); 2], num_kv_heads: 4, ..base.clone() },
            StackConfig { layers: vec![sight(Some(3), Some(1)), sight(None, None)], ..base.clone() },
            StackConfig { branch_scale: 0.25, ..base.clone() },
            StackConfig { score_cap: Some(0.05), ..base.clone() },
            StackConfig { norm: NormKind::RootMeanSquareLessOne, ..base.clone() },
            StackConfig { norm: NormKind::LayerWithoutBias, first_input_norm: false, ..base.clone() },
            StackConfig { names: &ALL_NORMED, ..base.clone() },
            StackConfig { names: &BRANCHES, ..base.clone() },
            StackConfig { names: &MIXED, experts: Some(experts(true)), ..base.clone() },
            StackConfig { names: &MIXED, experts: Some(experts(false)), branch_scale: 0.5, ..base.clone() },
            StackConfig { names: &FUSED, biases: LayerBiases::ALL, ..base.clone() },
            StackConfig { names: &AROUND, branch_scale: 0.5, ..base.clone() },
            StackConfig { names: &HEAD_NORMED, ..base.clone() },
            StackConfig { names: &HEAD_NORMED, norm: NormKind::Layer, biases: LayerBiases::ALL, ..base.clone() },
        ];
        // Of seven tokens some are farther apart than that.
        let buckets = |bidirectional| Some(RelativeBuckets { buckets: 6, max_distance: 4, bidirectional });
        let unrotated = StackConfig { layers: vec![sight(None, None); 2], ..base.clone() };
        let relative = StackConfig { names: &RELATIVE, relative: buckets(true), ..unrotated.clone() };
        let encoder = StackConfig { bidirectional: true, ..unrotated.clone() };
        descriptions.extend([
            StackConfig { names: &PLAIN, norm: NormKind::Layer, norm_first: false, ..encoder.clone() },
            StackConfig { biases: LayerBiases::ALL, ..encoder.clone() },
            encoder,
            StackConfig { bidirectional: true, score_scale: 1.0, ..relative.clone() },
            StackConfig { bidirectional: true, relative: buckets(false), ..relative.clone() },
            StackConfig { relative: buckets(false), score_scale: 1.0, ..relative.clone() },
            StackConfig { layers: vec![sight(Some(3), None), sight(None, Some(1))], ..relative.clone() },
            relative,
            StackConfig { names: &CROSS, ..unrotated.clone() },
            StackConfig { names: &CROSS, norm: NormKind::Layer, norm_first: false, ..base.clone() },
            StackConfig { names: &RELATIVE_CROSS, relative: buckets(false), branch_scale: 0.5, ..unrotated.clone() },
        ]);
        descriptions.extend(with_distances(&unrotated));
        descriptions.extend(Activation::ALL.map(|activation| StackConfig { activation, ..base.clone() }));
        descriptions.extend(Activation::ALL.map(|activation| StackConfig {
            activation,
            names: &PLAIN,
            ..base.clone()
        }));
        let (x, frequencies) = (numbers(1, TOKENS * base.hidden_size), [1.0, 0.4, 0.1, 0.02]);
        let mut seen: Vec<Vec<f32>> = Vec::new();
        for config in descriptions {
            let asked = RefCell::default();
            let Ok(_) = StackWeights::load(&Asked(&asked, String::new()), &config);
            let mut source = asked.into_inner();
            // Brought by whoever computes, not by the layers.
            source.extend(config.names.relative.map(|name| (name.to_owned(), vec![6, config.num_heads])));
            source.extend(config.disentangled.map(|of| (TABLE.to_owned(), vec![2 * of.span, config.hidden_size])));
            source.extend(["weight", "bias"].map(|part| (format!("{TABLE_NORM}.{part}"), vec![config.hidden_size])));
            let kernels = by_kernels(&source, &config, &x, &frequencies);
            let candle = by_candle(&source, &config, &x, &frequencies).expect("runs");
            for (a, b) in kernels.iter().zip(&candle) {
                assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{a} and {b} of {config:?}");
            }
            assert!(!seen.contains(&kernels), "{config:?} says what another says");
            seen.push(kernels);
        }
    }

    #[test]
    fn a_norm_of_mean_and_variance_is_right_where_the_mean_is_large() {
        let width = 32;
        let names = ["norm.weight", "norm.bias"].map(|name| (name.to_owned(), vec![width]));
        let source: BTreeMap<String, Vec<usize>> = names.into();
        let weights = linear::TensorLoader::new(&source, "", Arithmetic::Exact.into());
        let kind = (NormKind::Layer, 1e-12);
        let kernels = NormWeights::load(&weights, "norm", width, kind).expect("is there");
        let loader = DeviceLoader { weights, device: &Device::Cpu, dtype: DType::F32 };
        let candle = loader.norm("norm", width, kind).expect("is there");
        // The second row has no variance at all.
        let rows: Vec<f32> = numbers(3, width).iter().map(|x| 300.0 + 0.1 * x).chain([7.3; 32]).collect();
        let mut expected = vec![0.0; rows.len()];
        probity_kernels::normalise(Compute::from(Arithmetic::Exact).isa, &rows, kernels.norm(), &mut expected);
        let rows = Tensor::from_vec(rows, (2, width), &Device::Cpu).expect("a matrix");
        let got: Vec<f32> = candle.forward(&rows).and_then(|x| x.flatten_all()?.to_vec1()).expect("runs");
        for (a, b) in got.iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-3, "{a} and {b}");
        }
    }
}
