//! The [layers](crate::layer) of a decoder over candle's operations.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::ops::{layer_norm, rms_norm};
use candle_nn::rotary_emb::{rope, rope_i};
use probity_kernels::{Activation, RopeLayout};

use super::attention::{AttentionPlan, LayerSpan};
use crate::cpu::{NormKind, norm_names};
use crate::layer::{
    AttentionWeights, FeedForwardWeights, GatedProducts, LayerWeights, PartNorms, StackWeights, WeightLoader,
    chosen_experts,
};
use crate::packed::{KvSpan, LayerTaps, PackedSegment};
use crate::row_range::RowRange;
use crate::stack_config::{ExpertChoice, LayerSight, StackConfig};
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

impl DeviceLoader<'_> {
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
        Self { weights: self.weights.under(more), ..*self }
    }

    fn unrounded(&self) -> Self {
        // Its inputs are of the device's type.
        self.under("")
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
        let bias = bias.map(|name| self.tensor(&name, &[width])).transpose()?;
        Ok(DeviceNorm { weight: self.arrived(values, &[width])?, bias, eps: eps as f32 })
    }
}

pub(super) struct DeviceLinear {
    /// `(out_features, in_features)`
    weight: Tensor,
    bias: Option<Tensor>,
}

impl DeviceLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // For one row candle takes another way than for many, and the bits differ: nothing here can promise them.
        let y = x.matmul(&self.weight.t()?)?;
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
    }
}

pub(super) struct DeviceNorm {
    weight: Tensor,
    bias: Option<Tensor>,
    eps: f32,
}

impl DeviceNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => layer_norm(x, &self.weight, bias, self.eps),
            None => rms_norm(x, &self.weight, self.eps),
        }
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

/// What a batch shares in all layers.
pub(super) struct BatchPlan<'a> {
    segments: &'a [PackedSegment],
    /// Where each segment's rows lie in the batch.
    pub(super) rows: Vec<Range<usize>>,
    /// For each window that layers have.
    attention: Vec<(Option<usize>, AttentionPlan)>,
    rotations: Vec<BatchRotation>,
    stack: &'a StackConfig,
}

impl<'a> BatchPlan<'a> {
    pub(super) fn new(
        segments: &'a [PackedSegment],
        stack: &'a StackConfig,
        (ropes, layout): (&[(&[f32], f32)], RopeLayout),
        device: &Device,
    ) -> Result<Self> {
        let rows = segments.iter().scan(0, |next, segment| {
            let start = *next;
            *next += segment.tokens.len();
            Some(start..*next)
        });
        let mut plans: Vec<(Option<usize>, AttentionPlan)> = Vec::new();
        for LayerSight { window, .. } in &stack.layers {
            if plans.iter().all(|(of, _)| of != window) {
                plans.push((*window, AttentionPlan::new(segments, stack, *window, device)?));
            }
        }
        Ok(Self {
            segments,
            rows: rows.collect(),
            attention: plans,
            rotations: ropes
                .iter()
                .map(|rope| BatchRotation::new(segments, *rope, layout, device))
                .collect::<Result<_>>()?,
            stack,
        })
    }

    fn attention(&self, layer: usize) -> &AttentionPlan {
        let window = self.stack.layers[layer].window;
        &self.attention.iter().find(|(of, _)| *of == window).expect("a plan for each window").1
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
        segments: &[PackedSegment],
        (frequencies, scale): (&[f32], f32),
        layout: RopeLayout,
        device: &Device,
    ) -> Result<Self> {
        let positions = segments.iter().flat_map(|s| s.start()..s.start() + s.tokens.len());
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
    /// `(tokens, hidden_size)` to the same, and each segment's new span in this layer.
    fn forward(&self, x: &Tensor, plan: &BatchPlan<'_>, layer: usize) -> Result<(Tensor, Vec<LayerSpan>)> {
        let attention = plan.attention(layer);
        let rotation = plan.stack.layers[layer].rotation.map(|which| &plan.rotations[which]);
        let of_all_heads = plan.stack.names.head_norms.is_some_and(|norms| norms.of_all_heads);
        // Norms come before rotation, as our kernels have them.
        let rotated = |linear: &DeviceLinear, norm: &Option<DeviceNorm>| {
            let normed = |x: Tensor, is_here: bool| {
                norm.as_ref().filter(|_| is_here).map_or(Ok(x.clone()), |norm| norm.forward(&x))
            };
            let heads = attention.heads(&normed(linear.forward(x)?, of_all_heads)?)?; // (heads, tokens, head_dim)
            let heads = normed(heads, !of_all_heads)?;
            rotation.map_or(Ok(heads.clone()), |rotation| rotation.apply(&heads))
        };
        let q = rotated(&self.query, &self.query_norm)?;
        let values = attention.heads(&self.value.forward(x)?)?;
        let batch = LayerSpan { keys: rotated(&self.key, &self.key_norm)?, values };
        let new = plan.rows.iter().map(|rows| batch.part(rows)).collect::<Result<Vec<_>>>()?;
        let seen = plan.segments.iter().zip(&new).map(|(segment, new)| {
            let mut spans = of_layer(&segment.past, layer);
            spans.push(new);
            spans
        });
        let y = attention.attend(&q, &seen.collect::<Vec<_>>())?;
        Ok((self.output.forward(&y)?, new))
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
        let logits = router.forward(x)?.to_dtype(DType::F32)?.to_vec2::<f32>()?;
        let mut of_experts: Vec<(Vec<u32>, Vec<f32>)> = vec![Default::default(); choice.count];
        for (row, logits) in logits.iter().enumerate() {
            for (expert, weight) in chosen_experts(logits, choice) {
                of_experts[expert].0.push(row as u32);
                of_experts[expert].1.push(weight);
            }
        }
        let mut sum = x.zeros_like()?;
        for (products, (rows, weights)) in self.products.iter().zip(of_experts).filter(|(_, of)| !of.0.is_empty()) {
            let count = rows.len();
            let rows = Tensor::from_vec(rows, count, x.device())?;
            let weights = Tensor::from_vec(weights, (count, 1), x.device())?.to_dtype(x.dtype())?;
            let y = products.forward(&x.index_select(&rows, 0)?, self.activation)?.broadcast_mul(&weights)?;
            sum = sum.index_add(&rows, &y, 0)?;
        }
        Ok(sum)
    }
}

impl GatedProducts<DeviceLinear> {
    fn forward(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        let gate = self.gate.forward(x)?;
        let activated = match activation {
            Activation::Silu => gate.silu()?,
            Activation::GeluErf => gate.gelu_erf()?,
            // What candle calls `gelu` is the approximation; in configurations that name means the other one.
            Activation::GeluTanh => gate.gelu()?,
            Activation::Relu => gate.relu()?,
        };
        match &self.up {
            Some(up) => self.down.forward(&(activated * up.forward(x)?)?),
            None => self.down.forward(&activated),
        }
    }
}

impl LayerWeights<DeviceLinear, DeviceNorm> {
    /// Takes the residual stream `(tokens, hidden_size)` through the layer; returns each segment's new span in it too.
    fn forward(&self, x: &Tensor, plan: &BatchPlan<'_>, layer: usize) -> Result<(Tensor, Vec<LayerSpan>)> {
        let norms = &self.attention.norms;
        let (y, new) = self.attention.forward(&norms.before(x, plan.stack)?, plan, layer)?;
        let x = norms.sum(x, &y, plan.stack)?;
        let norms = &self.feed_forward.norms;
        let y = self.feed_forward.forward(&norms.before(&x, plan.stack)?, plan.stack.experts)?;
        Ok((norms.sum(&x, &y, plan.stack)?, new))
    }
}

impl StackWeights<DeviceLinear, DeviceNorm> {
    /// Takes `(tokens, hidden_size)` through all layers; returns each segment's new span in each of them too.
    pub(super) fn forward(
        &self,
        mut x: Tensor,
        plan: &BatchPlan<'_>,
        taps: &mut LayerTaps<'_>,
    ) -> Result<(Tensor, Vec<Vec<LayerSpan>>)> {
        let mut spans: Vec<Vec<LayerSpan>> = plan.segments.iter().map(|_| Vec::new()).collect();
        for (index, layer) in self.layers.iter().enumerate() {
            // Fetched from the device only where somebody looks.
            if taps.layers.contains(&index) {
                taps.show(index, &x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?);
            }
            let (y, new) = layer.forward(&x, plan, index)?;
            x = y;
            spans.iter_mut().zip(new).for_each(|(spans, new)| spans.push(new));
        }
        Ok((x, spans))
    }

    /// What the last norm, where there is one, makes of some rows.
    pub(super) fn finish(&self, x: &Tensor) -> Result<Tensor> {
        self.last_norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(x))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::path::PathBuf;

    use probity_kernels::{RopeTable, WeightType};

    use super::*;
    use crate::cpu::Workspace;
    use crate::stack_config::{AttentionNames, HeadNorms, LayerBiases, LayerNames, NormNames, usual_scale};
    use crate::transformer::{ForwardPass, LayerStack, TextRows};
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
    /// Of two rotations.
    const SCALES: [f32; 2] = [1.0, 0.5];

    /// What our kernels make of some rows.
    fn by_kernels(source: &dyn WeightSource, config: &StackConfig, x: &[f32], frequencies: &[f32]) -> Vec<f32> {
        let compute = Compute::from(Arithmetic::Exact);
        let stack =
            LayerStack::load(&linear::TensorLoader::new(source, "", compute), config.clone()).expect("all is there");
        let mut w = Workspace::default();
        w.x.set_len(x.len());
        w.x.copy_from_slice(x);
        let positions: Vec<u32> = (0..TOKENS as u32).collect();
        let table = |positions: &[u32], scale: f32| RopeTable::new(positions, frequencies, scale);
        let angles = |scale: f32| transformer::RowAngles { all: table(&positions, scale), kept: table(&[], scale) };
        let rotations = transformer::RowRotations { layout: RopeLayout::Halves, tables: SCALES.map(angles).into() };
        let stretches = vec![TextRows { past: &[], source: None, len: TOKENS }];
        stack.run(&mut w, &ForwardPass { compute, stretches, wanted: None, rotations: Some(rotations) }, |_, _| ());
        stack.finish(&w, compute)
    }

    /// What candle's operations make of them.
    fn by_candle(source: &dyn WeightSource, config: &StackConfig, x: &[f32], frequencies: &[f32]) -> Result<Vec<f32>> {
        let device = &Device::Cpu;
        let weights = linear::TensorLoader::new(source, "", Arithmetic::Exact.into());
        let loader = DeviceLoader { weights, device, dtype: DType::F32 };
        let Ok(layers) = StackWeights::load(&loader, config) else { panic!("all is there") };
        let segments = [PackedSegment { past: Vec::new(), tokens: vec![0; TOKENS], wanted: Vec::new() }];
        let ropes = SCALES.map(|scale| (frequencies, scale));
        let plan = BatchPlan::new(&segments, config, (&ropes, RopeLayout::Halves), device)?;
        let (y, _) = layers.forward(
            Tensor::from_vec(x.to_vec(), (TOKENS, config.hidden_size), device)?,
            &plan,
            &mut LayerTaps { layers: &[], see: &mut |_, _| () },
        )?;
        layers.finish(&y)?.flatten_all()?.to_vec1()
    }

    fn experts(normalised: bool) -> ExpertChoice {
        ExpertChoice { count: 5, chosen: 2, normalised }
    }

    fn sight(window: Option<usize>, rotation: Option<usize>) -> LayerSight {
        LayerSight { window, rotation }
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
            norm: NormKind::RootMeanSquare,
            norm_eps: 1e-5,
            norm_first: true,
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
            StackConfig { names: &ALL_NORMED, ..base.clone() },
            StackConfig { names: &BRANCHES, ..base.clone() },
            StackConfig { names: &MIXED, experts: Some(experts(true)), ..base.clone() },
            StackConfig { names: &MIXED, experts: Some(experts(false)), branch_scale: 0.5, ..base.clone() },
            StackConfig { names: &FUSED, biases: LayerBiases::ALL, ..base.clone() },
            StackConfig { names: &AROUND, branch_scale: 0.5, ..base.clone() },
            StackConfig { names: &HEAD_NORMED, ..base.clone() },
            StackConfig { names: &HEAD_NORMED, norm: NormKind::Layer, biases: LayerBiases::ALL, ..base.clone() },
        ];
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
            let source = asked.into_inner();
            let kernels = by_kernels(&source, &config, &x, &frequencies);
            let candle = by_candle(&source, &config, &x, &frequencies).expect("runs");
            for (a, b) in kernels.iter().zip(&candle) {
                assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{a} and {b} of {config:?}");
            }
            assert!(!seen.contains(&kernels), "{config:?} says what another says");
            seen.push(kernels);
        }
    }
}
