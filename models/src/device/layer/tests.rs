use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use probity_kernels::{RopeTable, WeightType};

use super::super::stack::DeviceStack;
use super::super::weights::DeviceLoader;
use super::*;
use crate::cpu::{NormKind, NormWeights, Workspace, norm_names};
use crate::disentangled::Disentangled;
use crate::layer::StackWeights;
use crate::linear::TensorLoader;
use crate::relative::RelativeBuckets;
use crate::row_range::RowRange;
use crate::stack_config::{
    AttentionNames, DenseLayers, HeadNorms, LayerBiases, LayerNames, LayerVariant, NormNames, RouterScores,
    Temperature, usual_scale,
};
use crate::transformer::{ForwardPass, LayerStack};
use crate::weight_loader::WeightLoader;
use crate::{Arithmetic, Compute, ExpertChoice, RawTensor, SourceError, TensorBytes, WeightSource, transformer};

static PLAIN: LayerNames = LayerNames {
    layers: "layers",
    attention: AttentionNames { projections: ["q", "k", "v", "o"], norms: NormNames::stream("first") },
    head_norms: None,
    cross: None,
    router: None,
    router_correction: None,
    gate: "gate",
    up: None,
    down: "down",
    shared: None,
    dense: None,
    shared_gate: None,
    feed_forward_norms: NormNames::stream("second"),
    layer_input: None,
    layer_scale: None,
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
static SHARED: LayerNames = LayerNames {
    router_correction: Some("router.correction"),
    shared: Some(["s.gate", "s.up", "s.down"]),
    dense: Some(["gate", "up", "down"]),
    ..MIXED
};
static AROUND: LayerNames = LayerNames {
    attention: AttentionNames { norms: NormNames { stream: Some("first"), branch: Some("third") }, ..PLAIN.attention },
    feed_forward_norms: NormNames { stream: Some("second"), branch: Some("fourth") },
    ..GATED
};

static INPUTS: LayerNames =
    LayerNames { layer_input: Some(["i.gate", "i.o", "i.norm"]), layer_scale: Some("scale"), ..GATED };
static RELATIVE: LayerNames = LayerNames { relative: Some("relative"), ..GATED };
static CROSS: LayerNames = LayerNames {
    cross: Some(AttentionNames {
        projections: ["cross.q", "cross.k", "cross.v", "cross.o"],
        norms: NormNames { stream: Some("third"), branch: None },
    }),
    ..GATED
};
static RELATIVE_CROSS: LayerNames = LayerNames { cross: CROSS.cross, ..RELATIVE };

/// A checkpoint that generates the tensors a configuration requests and records their names and shapes.
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

    fn rows(&self, name: &str, _: &[Range<usize>], of: usize, width: usize) -> std::result::Result<(), Infallible> {
        self.0.borrow_mut().insert(format!("{}{name}", self.1), vec![of, width]);
        Ok(())
    }

    fn table(&self, name: &str, rows: usize, width: usize) -> std::result::Result<Vec<f32>, Infallible> {
        self.0.borrow_mut().insert(format!("{}{name}", self.1), vec![rows, width]);
        Ok(vec![0.0; rows * width])
    }

    fn elements(&self, name: &str, len: usize) -> std::result::Result<Vec<f32>, Infallible> {
        self.0.borrow_mut().insert(format!("{}{name}", self.1), vec![len]);
        Ok(vec![0.0; len])
    }

    fn has(&self, _: &str) -> bool {
        false
    }

    fn plain_norm(&self, _: usize, _: (NormKind, f64)) -> std::result::Result<(), Infallible> {
        Ok(())
    }

    fn norm(&self, name: &str, width: usize, (kind, _): (NormKind, f64)) -> std::result::Result<(), Infallible> {
        let (weight, bias) = norm_names(&format!("{}{name}", self.1), kind, |_| false);
        self.0.borrow_mut().extend([Some(weight), bias].into_iter().flatten().map(|name| (name, vec![width])));
        Ok(())
    }
}

/// Pseudo-random numbers between −½ and ½.
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

/// The inputs of all layers beside the residual stream, if any.
fn layer_inputs(config: &StackConfig) -> Vec<f32> {
    numbers(2, TOKENS * config.layers.len() * config.layer_inputs.unwrap_or(0))
}

/// The relative position table.
const TABLE: &str = "distances";
const TABLE_NORM: &str = "distances_norm";
const SINKS: &str = "sinks";
/// Number of tokens of a source.
const SOURCE: usize = 5;
/// Scales of two rotations.
const SCALES: [f32; 2] = [1.0, 0.5];

/// The result of our kernels for some rows.
fn by_kernels(source: &dyn WeightSource, config: &StackConfig, x: &[f32], frequencies: &[f32]) -> Vec<f32> {
    let compute = Compute::from(Arithmetic::Exact);
    let stack = LayerStack::load(&TensorLoader::new(source, "", compute), config.clone()).expect("all is there");
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
    let inputs = layer_inputs(config);
    w.layer_inputs.set_len(inputs.len());
    w.layer_inputs.copy_from_slice(&inputs);
    stack.run(&mut w, &ForwardPass { compute, stretches, wanted: None, rotations: Some(rotations) }, |_, _| ());
    stack.finish(&w, compute)
}

/// The result of candle operations, with separate stages that begin at these layers.
fn by_candle(
    source: &dyn WeightSource,
    config: &StackConfig,
    (x, frequencies): (&[f32], &[f32]),
    first_layers: &[usize],
) -> Result<Vec<f32>> {
    let device = &Device::Cpu;
    let stages: Vec<(Device, usize)> = first_layers.iter().map(|first| (Device::Cpu, *first)).collect();
    let weights = TensorLoader::new(source, "", Arithmetic::Exact.into());
    let loader = DeviceLoader::new(weights, &stages, (DType::F32, true));
    let stack = DeviceStack::load(&loader, config.clone()).expect("all is there, and computed");
    let x = Tensor::from_vec(x.to_vec(), (TOKENS, config.hidden_size), device)?;
    let sources = stack.read_sources(&x.narrow(0, 0, SOURCE)?, &ranges([SOURCE]))?;
    let rows = [DeviceRows { past: &[], source: sources.first(), len: TOKENS }];
    let ropes = SCALES.map(|scale| (frequencies, scale));
    let mut plan = stack.plan(&rows, (&ropes, RopeLayout::Halves))?;
    let inputs = layer_inputs(config);
    let of_all = |_| Tensor::from_vec(inputs, (TOKENS, ()), device);
    plan.layer_inputs = config.layer_inputs.map(of_all).transpose()?;
    let y = stack.run(x, &plan, &mut |_, _| Ok(()))?;
    stack.finish(&y)?.flatten_all()?.to_vec1()
}

fn experts(normalised: bool) -> ExpertChoice {
    ExpertChoice::softmax(5, 2, normalised)
}

fn sight(window: Option<usize>, rotation: Option<usize>) -> LayerSight {
    LayerSight { window, rotation, ..LayerSight::default() }
}

/// Configurations with attention sinks and with biases of router and experts.
fn with_sinks(base: &StackConfig) -> [StackConfig; 3] {
    let windows = vec![sight(Some(3), Some(0)), sight(None, Some(1))];
    [
        StackConfig { sinks: Some(SINKS), ..base.clone() },
        StackConfig { sinks: Some(SINKS), layers: windows, ..base.clone() },
        StackConfig {
            names: &MIXED,
            experts: Some(experts(true)),
            activation: Activation::ClampedSigmoid,
            biases: LayerBiases { feed_forward: true, router: true, ..LayerBiases::NONE },
            ..base.clone()
        },
    ]
}

/// Configurations with relative position terms.
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

/// Configurations whose second layer differs from the first.
fn with_variants(base: &StackConfig) -> Vec<StackConfig> {
    let of = |variant: LayerVariant| StackConfig {
        layers: vec![sight(None, Some(0)), LayerSight { variant, ..sight(None, Some(1)) }],
        ..base.clone()
    };
    let usual = LayerVariant::default();
    vec![
        of(LayerVariant { heads: Some(KeyHeads { count: 1, dim: 16 }), ..usual }),
        of(LayerVariant { keys_of: Some(0), ..usual }),
        of(LayerVariant { keys_are_values: true, ..usual }),
        of(LayerVariant { intermediate_size: Some(56), ..usual }),
        StackConfig { value_norm: true, ..of(LayerVariant { keys_are_values: true, ..usual }) },
        StackConfig { names: &INPUTS, layer_inputs: Some(6), ..base.clone() },
    ]
}

#[test]
fn each_description_is_computed_alike_by_our_kernels_and_by_candle() {
    let base = StackConfig {
        hidden_size: 24,
        intermediate_size: 40,
        experts: None,
        layers: vec![sight(None, Some(0)); 2],
        layer_inputs: None,
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 8,
        score_scale: usual_scale(8),
        score_cap: None,
        temperature: None,
        sinks: None,
        output_gate: false,
        recurrence: None,
        bidirectional: false,
        relative: None,
        disentangled: None,
        norm: NormKind::RootMeanSquare,
        value_norm: false,
        norm_eps: 1e-5,
        norm_first: true,
        first_input_norm: true,
        branch_scale: 1.0,
        activation: Activation::Silu,
        biases: LayerBiases::NONE,
        names: &GATED,
    };
    let sigmoid = ExpertChoice { scores: RouterScores::CorrectedSigmoid, ..experts(false) };
    let dense = Some(DenseLayers { count: 1, intermediate_size: 16 });
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
        StackConfig { names: &SHARED, experts: Some(sigmoid), ..base.clone() },
        StackConfig { names: &SHARED, experts: Some(ExpertChoice { normalised: true, ..sigmoid }), ..base.clone() },
        StackConfig { names: &SHARED, experts: Some(ExpertChoice { scale: 0.5, ..sigmoid }), ..base.clone() },
        StackConfig { names: &SHARED, experts: Some(ExpertChoice { shared: Some(8), ..sigmoid }), ..base.clone() },
        StackConfig { names: &SHARED, experts: Some(ExpertChoice { dense, ..sigmoid }), ..base.clone() },
        StackConfig { names: &SHARED, experts: Some(ExpertChoice { dense, ..experts(true) }), ..base.clone() },
        StackConfig { temperature: Some(Temperature { beta: 0.5, length: 3.0 }), ..base.clone() },
        StackConfig { names: &FUSED, biases: LayerBiases::ALL, ..base.clone() },
        StackConfig { names: &AROUND, branch_scale: 0.5, ..base.clone() },
        StackConfig { names: &HEAD_NORMED, ..base.clone() },
        StackConfig { names: &HEAD_NORMED, norm: NormKind::Layer, biases: LayerBiases::ALL, ..base.clone() },
    ];
    // Some distances between seven tokens exceed the maximum.
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
    descriptions.extend(with_variants(&base));
    descriptions.extend(with_sinks(&base));
    descriptions.extend(Activation::ALL.map(|activation| StackConfig { activation, ..base.clone() }));
    descriptions.extend(Activation::ALL.map(|activation| StackConfig { activation, names: &PLAIN, ..base.clone() }));
    let (x, frequencies) = (numbers(1, TOKENS * base.hidden_size), [1.0, 0.4, 0.1, 0.02]);
    let mut seen: Vec<Vec<f32>> = Vec::new();
    for config in descriptions {
        let asked = RefCell::default();
        let Ok(_) = StackWeights::load(&Asked(&asked, String::new()), &config);
        let mut source = asked.into_inner();
        // Loaded by the executor, not by the layers.
        source.extend(config.names.relative.map(|name| (name.to_owned(), vec![6, config.num_heads])));
        source.extend(config.disentangled.map(|of| (TABLE.to_owned(), vec![2 * of.span, config.hidden_size])));
        source.extend((0..2).map(|layer| (format!("layers.{layer}.{SINKS}"), vec![config.num_heads])));
        source.extend(["weight", "bias"].map(|part| (format!("{TABLE_NORM}.{part}"), vec![config.hidden_size])));
        let kernels = by_kernels(&source, &config, &x, &frequencies);
        let by_candle =
            |first_layers: &[usize]| by_candle(&source, &config, (&x, &frequencies), first_layers).expect("runs");
        let candle = by_candle(&[0]);
        assert_eq!(by_candle(&[0, 1]), candle, "layers by themselves: {config:?}");
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
    let weights = TensorLoader::new(&source, "", Arithmetic::Exact.into());
    let kind = (NormKind::Layer, 1e-12);
    let kernels = NormWeights::load(&weights, "norm", width, kind).expect("is there");
    let loader = DeviceLoader::new(weights, &[(Device::Cpu, 0)], (DType::F32, true));
    let candle = loader.norm("norm", width, kind).expect("is there");
    // The second row has zero variance.
    let rows: Vec<f32> = numbers(3, width).iter().map(|x| 300.0 + 0.1 * x).chain([7.3; 32]).collect();
    let mut expected = vec![0.0; rows.len()];
    probity_kernels::normalise(Compute::from(Arithmetic::Exact).isa, &rows, kernels.norm(), &mut expected);
    let rows = Tensor::from_vec(rows, (2, width), &Device::Cpu).expect("a matrix");
    let got: Vec<f32> = candle.forward(&rows).and_then(|x| x.flatten_all()?.to_vec1()).expect("runs");
    for (a, b) in got.iter().zip(&expected) {
        assert!((a - b).abs() <= 1e-3, "{a} and {b}");
    }
}
