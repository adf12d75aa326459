//! Each instruction set gives the bits of the plain twin, and the twin the right numbers.

use std::ops::Range;

use half::{bf16, f16};
use probity_kernels::{
    Activated, Activation, Arithmetic, AttentionSegment, AttentionShape, DistanceColumns, DistanceProducts, HeadMatrix,
    Inputs, Isa, Matrix, MatrixProduct, Norm, PackedMatrix, PackedSpan, ProductForm, QueryRows, RelativeBias,
    RopeLayout, RopeTable, ScoreBias, WeightType, activate, activated_matmul, attention, dequantise, greedy_among,
    head, join_spans, log_sum_exp, matmul, normalise, pack_span, soft_cap,
};

/// A small generator, so that each test names its seed.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// Between −1 and 1.
    fn float(&mut self) -> f32 {
        self.bits() as f32 / (1u32 << 30) as f32 - 1.0
    }

    fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.float()).collect()
    }

    /// Rows of random blocks whose scales are ordinary numbers.
    fn weights(&mut self, weight_type: WeightType, rows: usize, cols: usize) -> Vec<u8> {
        self.blocks(weight_type, rows * cols, |random| random.bits() as u8)
    }

    /// Blocks of `len` weights whose bytes are `byte`'s, but for their scales, which are ordinary numbers.
    fn blocks(&mut self, weight_type: WeightType, len: usize, byte: impl Fn(&mut Self) -> u8) -> Vec<u8> {
        let scale = |r: &mut Self| f16::from_f32(r.float() * 0.02).to_le_bytes();
        let mut bytes = Vec::new();
        for _ in 0..len / weight_type.block_len() {
            let start = bytes.len();
            bytes.extend((0..weight_type.block_bytes()).map(|_| byte(self)));
            let block = &mut bytes[start..];
            match weight_type {
                WeightType::F32 => block.copy_from_slice(&self.float().to_le_bytes()),
                WeightType::F16 => block.copy_from_slice(&f16::from_f32(self.float()).to_le_bytes()),
                WeightType::BF16 => block.copy_from_slice(&bf16::from_f32(self.float()).to_le_bytes()),
                WeightType::Q6_K => block[208..].copy_from_slice(&scale(self)),
                WeightType::Q8_0 | WeightType::Q4_0 | WeightType::Q5_0 => block[..2].copy_from_slice(&scale(self)),
                _ => {
                    block[..2].copy_from_slice(&scale(self));
                    block[2..4].copy_from_slice(&scale(self));
                }
            }
        }
        bytes
    }
}

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn expanded(weights: Matrix<'_>) -> Vec<f32> {
    let mut values = vec![0.0; weights.out_features() * weights.in_features()];
    for (row, out) in values.chunks_exact_mut(weights.in_features()).enumerate() {
        dequantise(weights.weight_type(), weights.row(row), 0, out);
    }
    values
}

/// `x · Wᵀ` in a form.
fn run(form: ProductForm, isa: Isa, x: &[f32], weights: Matrix<'_>) -> Vec<f32> {
    let packed = PackedMatrix::pack(weights, form).expect("memory");
    run_packed(isa, x, &packed)
}

fn run_packed(isa: Isa, x: &[f32], weights: &PackedMatrix) -> Vec<f32> {
    let mut inputs = Inputs::new();
    inputs.set(isa, x, weights.in_features(), [weights.form()]);
    let mut y = vec![f32::NAN; inputs.rows() * weights.out_features()];
    matmul(isa, &inputs, &mut [MatrixProduct { weights, bias: None, y: &mut y, add: false }]);
    y
}

/// Rows, outputs and columns that leave every kind of rest: tiles, panels, chunks.
fn shapes(weight_type: WeightType) -> Vec<(usize, usize, usize)> {
    let k = if weight_type.block_len() == 1 { 37 } else { weight_type.block_len() };
    vec![
        (1, 1, k),
        (5, 33, k),
        (13, 70, 3 * k),
        (12, 64, 512 + k.max(256)),
        (27, 31, 2 * k),
        (35, 300, k),
        (1201, 3, k),
    ]
}

#[test]
fn float_products_are_chains_of_fused_multiply_adds_on_every_instruction_set() {
    let mut random = Random(1);
    for weight_type in WeightType::ALL {
        for (m, n, k) in shapes(weight_type) {
            let bytes = random.weights(weight_type, n, k);
            let weights = Matrix::new(weight_type, &bytes, n, k).expect("sizes fit");
            let (x, w) = (random.floats(m * k), expanded(weights));
            let chain = |i: usize, j: usize| (0..k).fold(0.0f32, |sum, t| x[i * k + t].mul_add(w[j * k + t], sum));
            let expected: Vec<f32> = (0..m * n).map(|at| chain(at / n, at % n)).collect();
            for isa in isas() {
                let y = run(ProductForm::Float, isa, &x, weights);
                assert_eq!(bits(&y), bits(&expected), "{weight_type} ({m}, {n}, {k}) on {}", isa.name());
            }
        }
    }
}

#[test]
fn integer_products_follow_their_definition_on_every_instruction_set() {
    let mut random = Random(2);
    for weight_type in WeightType::ALL.into_iter().filter(|t| t.is_quantised()) {
        for (m, n, k) in shapes(weight_type) {
            let bytes = random.weights(weight_type, n, k);
            let weights = Matrix::new(weight_type, &bytes, n, k).expect("sizes fit");
            let x = random.floats(m * k);
            let plain = run(ProductForm::Int8, Isa::Plain, &x, weights);
            for isa in isas() {
                let y = run(ProductForm::Int8, isa, &x, weights);
                assert_eq!(bits(&y), bits(&plain), "{weight_type} ({m}, {n}, {k}) on {}", isa.name());
            }
            // Against dequantised weights and activations rounded in the same way, in f64.
            let w = expanded(weights);
            let rounded: Vec<f64> = x.chunks(32).flat_map(round_to_8_bits).collect();
            for (at, y) in plain.iter().enumerate() {
                let (x, w) = (&rounded[at / n * k..][..k], &w[at % n * k..][..k]);
                let exact: f64 = x.iter().zip(w).map(|(x, w)| x * f64::from(*w)).sum();
                let size: f64 = x.iter().zip(w).map(|(x, w)| (x * f64::from(*w)).abs()).sum();
                let rest = (f64::from(*y) - exact).abs();
                // Terms with a minimum cancel inside a group: its error scales with the whole, not with the difference.
                assert!(rest <= 2e-4 * size + 1e-7, "{weight_type} ({m}, {n}, {k}): {y} for {exact}");
            }
        }
    }
}

#[test]
fn the_largest_integers_do_not_overflow() {
    let (m, n, k) = (13, 33, 512);
    let mut random = Random(22);
    for weight_type in WeightType::ALL.into_iter().filter(|t| t.is_quantised()) {
        // All bits set, none, and those of the largest integer of either sign where it is signed.
        for byte in [0xff, 0x00, 0x7f, 0x80] {
            let bytes = random.blocks(weight_type, n * k, |_| byte);
            let weights = Matrix::new(weight_type, &bytes, n, k).expect("sizes fit");
            for sign in [1.0, -1.0] {
                let x = vec![sign; m * k];
                let plain = run(ProductForm::Int8, Isa::Plain, &x, weights);
                for isa in isas() {
                    assert_eq!(
                        bits(&run(ProductForm::Int8, isa, &x, weights)),
                        bits(&plain),
                        "{weight_type} of {byte:#x} on {}",
                        isa.name()
                    );
                }
            }
        }
    }
}

fn round_to_8_bits(x: &[f32]) -> Vec<f64> {
    let largest = x.iter().fold(0.0f32, |a, b| a.max(b.abs()));
    let (scale, inverse) = (f64::from(largest / 127.0), f64::from(127.0 / largest));
    x.iter().map(|v| (f64::from(*v) * inverse).round_ties_even() * scale).collect()
}

/// Denormals as zeros.
fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0f32.copysign(x) } else { x }
}

/// The nearest bf16.
fn to_bf16(x: f32) -> f32 {
    bf16::from_f32(flush(x)).to_f32()
}

fn pairs_by_definition(x: &[f32], w: &[f32]) -> f32 {
    let at = |v: &[f32], i: usize| v.get(i).copied().unwrap_or(0.0);
    (0..x.len()).step_by(2).fold(0.0, |y, i| {
        let second = flush(at(x, i + 1).mul_add(at(w, i + 1), y));
        flush(x[i].mul_add(w[i], second))
    })
}

fn tiles_by_definition(x: &[f32], w: &[f32]) -> f32 {
    let at = |v: &[f32], i: usize| v.get(i).copied().unwrap_or(0.0);
    (0..x.len()).step_by(32).fold(0.0, |y, step| {
        let chain = |first: usize| {
            (step + first..step + 32).step_by(2).fold(0.0, |sum, i| flush(at(x, i).mul_add(at(w, i), sum)))
        };
        flush(y + flush(chain(0) + chain(1)))
    })
}

#[test]
fn bf16_products_follow_their_definition_on_every_instruction_set() {
    let mut random = Random(12);
    for weight_type in WeightType::ALL.into_iter().filter(|t| ProductForm::Tiles.suits(*t)) {
        for (m, n, k) in shapes(weight_type).into_iter().chain([(49, 64, 1280), (33, 70, 512)]) {
            let bytes = random.weights(weight_type, n, k);
            let weights = Matrix::new(weight_type, &bytes, n, k).expect("sizes fit");
            // Of very different sizes, so that the order of sums shows.
            let x: Vec<f32> = random.floats(m * k).iter().map(|x| x * x * x * 8.0).collect();
            let rounded = |x: Vec<f32>| -> Vec<f32> { x.iter().map(|x| to_bf16(*x)).collect() };
            let (x_rounded, w) = (rounded(x.clone()), rounded(expanded(weights)));
            for (form, definition) in [
                (ProductForm::Pairs, pairs_by_definition as fn(&[f32], &[f32]) -> f32),
                (ProductForm::Tiles, tiles_by_definition),
            ] {
                if form.suits(weight_type) {
                    let expected: Vec<f32> =
                        (0..m * n).map(|at| definition(&x_rounded[at / n * k..][..k], &w[at % n * k..][..k])).collect();
                    for isa in isas() {
                        let y = run(form, isa, &x, weights);
                        assert_eq!(
                            bits(&y),
                            bits(&expected),
                            "{weight_type} {form:?} ({m}, {n}, {k}) on {}",
                            isa.name()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    let mut random = Random(3);
    for weight_type in [WeightType::F32, WeightType::BF16, WeightType::Q8_0, WeightType::Q4_1, WeightType::Q6_K] {
        let (n, k) = (70, 768);
        let bytes = random.weights(weight_type, n, k);
        let weights = Matrix::new(weight_type, &bytes, n, k).expect("sizes fit");
        let x = random.floats(41 * k);
        for form in ProductForm::ALL.into_iter().filter(|form| form.suits(weight_type)) {
            let packed = PackedMatrix::pack(weights, form).expect("memory");
            let together = run_packed(Isa::best(), &x, &packed);
            let alone: Vec<f32> = x.chunks(k).flat_map(|x| run_packed(Isa::best(), x, &packed)).collect();
            assert_eq!(bits(&together), bits(&alone), "{weight_type} {form:?}");
        }
    }
}

#[test]
fn infinities_nan_and_denormals_are_not_hidden() {
    let mut random = Random(4);
    for weight_type in [WeightType::F32, WeightType::BF16, WeightType::Q8_0, WeightType::Q5_1] {
        let bytes = random.weights(weight_type, 40, 64);
        let weights = Matrix::new(weight_type, &bytes, 40, 64).expect("sizes fit");
        for form in ProductForm::ALL.into_iter().filter(|form| form.suits(weight_type)) {
            for (special, rows) in
                [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().flat_map(|s| [(s, 3), (s, 20)])
            {
                let mut x = random.floats(rows * 64);
                x[64 + 7] = special;
                for isa in isas() {
                    let y = run(form, isa, &x, weights);
                    assert!(
                        y[40..80].iter().all(|y| !y.is_finite()),
                        "{weight_type} {form:?}: {special} vanished on {}",
                        isa.name()
                    );
                    assert!(
                        y[..40].iter().chain(&y[80..]).all(|y| y.is_finite()),
                        "{weight_type} {form:?}: {special} spread"
                    );
                }
            }
            let tiny: Vec<f32> = (0..17 * 64).map(|i| f32::from_bits(i * 3000)).collect();
            let plain = run(form, Isa::Plain, &tiny, weights);
            assert!(
                isas().all(|isa| bits(&run(form, isa, &tiny, weights)) == bits(&plain)),
                "{weight_type} {form:?}: denormals differ"
            );
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    let mut random = Random(5);
    let bytes = random.weights(WeightType::Q4_K, 300, 512);
    let weights = Matrix::new(WeightType::Q4_K, &bytes, 300, 512).expect("sizes fit");
    let x = random.floats(50 * 512);
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| {
            (run(ProductForm::Float, Isa::best(), &x, weights), run(ProductForm::Int8, Isa::best(), &x, weights))
        })
    };
    assert_eq!(with(1), with(5));
}

#[test]
fn rows_normed_while_they_are_packed_are_those_normed_before() {
    let mut random = Random(17);
    let (m, n, k) = (29, 40, 96);
    let (x, weight, bias) = (random.floats(m * k), random.floats(k), random.floats(k));
    let kinds = [
        (WeightType::F32, ProductForm::Float),
        (WeightType::Q4_0, ProductForm::Int8),
        (WeightType::BF16, ProductForm::Pairs),
        (WeightType::BF16, ProductForm::Tiles),
    ];
    for (weight_type, form) in kinds {
        let bytes = random.weights(weight_type, n, k);
        let packed =
            PackedMatrix::pack(Matrix::new(weight_type, &bytes, n, k).expect("sizes fit"), form).expect("memory");
        for (isa, bias) in isas().flat_map(|isa| [(isa, None), (isa, Some(&*bias))]) {
            let norm = Norm { weight: &weight, bias, eps: 1e-5 };
            let mut normed = vec![0.0; x.len()];
            normalise(isa, &x, norm, &mut normed);
            let mut inputs = Inputs::new();
            inputs.set_normed(isa, &x, norm, [form]);
            let mut y = vec![f32::NAN; m * n];
            matmul(isa, &inputs, &mut [MatrixProduct { weights: &packed, bias: None, y: &mut y, add: false }]);
            assert_eq!(bits(&y), bits(&run_packed(isa, &normed, &packed)), "{form:?} on {}", isa.name());
        }
    }
}

#[test]
fn products_together_biased_added_and_gated_equal_those_apart() {
    let mut random = Random(13);
    let (m, k) = (19, 96);
    let x = random.floats(m * k);
    let kinds = [
        (WeightType::Q8_0, ProductForm::Int8, 40),
        (WeightType::F16, ProductForm::Float, 33),
        (WeightType::Q4_1, ProductForm::Int8, 100),
    ];
    let bytes = kinds.map(|(weight_type, _, n)| random.weights(weight_type, n, k));
    let biases = kinds.map(|(_, _, n)| random.floats(n));
    let down = random.weights(WeightType::BF16, 7, 40);
    let packed: Vec<PackedMatrix> = std::iter::zip(&kinds, &bytes)
        .map(|((t, form, n), bytes)| {
            PackedMatrix::pack(Matrix::new(*t, bytes, *n, k).expect("sizes fit"), *form).expect("memory")
        })
        .collect();
    for isa in isas() {
        let mut inputs = Inputs::new();
        inputs.set(isa, &x, k, packed.iter().map(PackedMatrix::form));
        let mut together: Vec<Vec<f32>> = kinds.iter().map(|(_, _, n)| vec![0.5; m * n]).collect();
        let targets = packed.iter().zip(&biases).zip(&mut together);
        let mut products: Vec<MatrixProduct<'_>> =
            targets.map(|((weights, bias), y)| MatrixProduct { weights, bias: Some(bias), y, add: true }).collect();
        matmul(isa, &inputs, &mut products);
        for ((weights, bias), y) in packed.iter().zip(&biases).zip(&together) {
            let apart = run_packed(isa, &x, weights);
            let expected: Vec<f32> =
                apart.iter().enumerate().map(|(at, y)| 0.5 + (y + bias[at % bias.len()])).collect();
            assert_eq!(bits(y), bits(&expected), "{} on {}", weights.weight_type(), isa.name());
        }
        // Both factors of a gated layer are of one width.
        let (gate, up) = (&packed[0], &packed[0]);
        let apart: Vec<f32> =
            run_packed(isa, &x, gate).iter().enumerate().map(|(at, y)| y + biases[0][at % 40]).collect();
        for (activation, form) in
            Activation::ALL.into_iter().flat_map(|a| [(a, ProductForm::Float), (a, ProductForm::Tiles)])
        {
            let down = PackedMatrix::pack(Matrix::new(WeightType::BF16, &down, 7, 40).expect("sizes fit"), form)
                .expect("memory");
            for gated in [true, false] {
                let mut expected = vec![0.0; m * 40];
                activate(isa, activation, &apart, gated.then_some(&apart), &mut expected);
                // What it packs shows in a product with it.
                let (mut at_once, mut y) = (Inputs::new(), vec![0.0; m * 7]);
                let layer = Activated {
                    activation,
                    gate: (gate, Some(&biases[0])),
                    up: gated.then_some((up, Some(&biases[0]))),
                };
                activated_matmul(isa, &inputs, &layer, &mut at_once, form);
                matmul(isa, &at_once, &mut [MatrixProduct { weights: &down, bias: None, y: &mut y, add: false }]);
                let what = format!("{activation:?}, gated {gated}, {form:?} on {}", isa.name());
                assert_eq!(bits(&y), bits(&run_packed(isa, &expected, &down)), "{what}");
            }
        }
    }
}

#[test]
fn decoded_blocks_equal_the_reference() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/goldens/blocks.safetensors");
    let file = std::fs::read(path).expect("goldens are part of the repository");
    let tensors = safetensors::SafeTensors::deserialize(&file).expect("valid goldens");
    for weight_type in WeightType::ALL.into_iter().filter(|t| *t != WeightType::F32) {
        let name = weight_type.name().to_lowercase();
        let bytes = tensors.tensor(&format!("{name}.bytes")).expect("bytes");
        let values = tensors.tensor(&format!("{name}.values")).expect("values");
        let [rows, cols] = *values.shape() else { panic!("values are a matrix") };
        let weights = Matrix::new(weight_type, bytes.data(), rows, cols).expect("sizes fit");
        let expected: Vec<u32> = values.data().as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        assert_eq!(bits(&expanded(weights)), expected, "{weight_type}");
    }
}

/// Packed keys and values of some rows, which stand at these positions.
fn pack(
    isa: Isa,
    shape: &AttentionShape,
    keys: &[f32],
    values: &[f32],
    rows: Range<usize>,
) -> (Vec<u32>, Vec<u32>, usize) {
    let (mut k, mut v) = (vec![0; shape.keys_len(rows.len())], vec![0; shape.values_len(rows.len())]);
    pack_span(isa, shape, (keys, values), rows.clone(), rows.start, &mut k, &mut v);
    (k, v, rows.len())
}

/// A case of attention: keys and values of all positions, queries of the last `rows`.
#[derive(Clone)]
struct Case {
    shape: AttentionShape,
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
    positions: usize,
    rows: usize,
    /// Whether each row sees what comes after it too; then there are as many rows as positions, or more.
    sees_all: bool,
    bias: Option<RelativeBias>,
}

impl Case {
    fn new(random: &mut Random, shape: AttentionShape, positions: usize, rows: usize) -> Self {
        let kv = positions * shape.kv_heads * shape.head_dim;
        let queries: Vec<f32> = random.floats(rows * shape.heads * shape.head_dim).iter().map(|q| 4.0 * q).collect();
        Self {
            shape,
            keys: random.floats(kv),
            values: random.floats(kv),
            queries,
            positions,
            rows,
            sees_all: false,
            bias: None,
        }
    }

    /// The result with the positions cut into spans at `cuts`.
    fn attend(&self, isa: Isa, cuts: &[usize]) -> Vec<f32> {
        let mut bounds = vec![0];
        bounds.extend(cuts);
        bounds.push(self.positions);
        let packed: Vec<_> =
            bounds.windows(2).map(|b| pack(isa, &self.shape, &self.keys, &self.values, b[0]..b[1])).collect();
        let spans = packed.iter().map(|(keys, values, len)| PackedSpan { keys, values, len: *len }).collect();
        let mut out = vec![f32::NAN; self.queries.len()];
        attention(
            isa,
            &self.shape,
            self.bias.as_ref().map(ScoreBias::Distance),
            &self.queries,
            &[AttentionSegment { spans, rows: self.seen(), wanted: None }],
            &mut out,
        );
        out
    }

    fn seen(&self) -> QueryRows {
        if self.sees_all {
            QueryRows::All(self.rows)
        } else {
            QueryRows::Causal(self.positions - self.rows + 1..self.positions + 1)
        }
    }

    /// The definition in f64, of numbers rounded as the shape says.
    fn expected(&self) -> Vec<f64> {
        let AttentionShape { heads, kv_heads, head_dim: dim, scale, cap, window, arithmetic } = self.shape;
        let rounded = |x: f32| f64::from(if arithmetic == Arithmetic::Tiles { bf16::from_f32(x).to_f32() } else { x });
        let mut out = Vec::new();
        for row in 0..self.rows {
            let own = if self.sees_all { row } else { self.positions - self.rows + row };
            let behind = if self.sees_all { window.unwrap_or(self.positions) } else { 1 };
            let seen = window.map_or(0, |w| (own + 1).saturating_sub(w))..self.positions.min(own + behind);
            for head in 0..heads {
                let at = |position: usize| (position * kv_heads + head / (heads / kv_heads)) * dim;
                let q = &self.queries[(row * heads + head) * dim..][..dim];
                let dot = |p: usize| (0..dim).map(|d| rounded(q[d]) * rounded(self.keys[at(p) + d])).sum::<f64>();
                let bias = |p: usize| {
                    if self.bias.is_some() { f64::from(summand(head, p as isize - own as isize)) } else { 0.0 }
                };
                let capped = |score: f64| cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh());
                let weights: Vec<f64> =
                    seen.clone().map(|p| (capped(dot(p) * f64::from(scale)) + bias(p)).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for d in 0..dim {
                    let value: f64 = seen.clone().zip(&weights).map(|(p, w)| w * rounded(self.values[at(p) + d])).sum();
                    out.push(value / sum);
                }
            }
        }
        out
    }
}

/// How far a bias reaches, and what it is.
const REACH: usize = 9;

fn summand(head: usize, distance: isize) -> f32 {
    let distance = distance.clamp(-(REACH as isize), REACH as isize);
    ((head as isize * 5 + distance * 7).rem_euclid(11) - 5) as f32 * 0.3
}

/// The arithmetics of attention, and how far a result may be from the definition: weights in bf16 have eight digits.
const ATTENTIONS: [(Arithmetic, f64); 2] = [(Arithmetic::Exact, 2e-6), (Arithmetic::Tiles, 2e-3)];

#[test]
fn attention_is_right_and_blind_to_how_positions_are_cut() {
    let mut random = Random(6);
    for (arithmetic, tolerance) in ATTENTIONS {
        for (heads, kv_heads, head_dim, window, cap) in [
            (4, 2, 16, None, None),
            (9, 3, 64, None, None),
            (3, 1, 20, Some(5), None),
            (2, 2, 80, Some(40), Some(0.7)),
            (6, 2, 128, None, None),
            (4, 2, 16, None, Some(2.0)),
        ] {
            let scale = 1.0 / (head_dim as f32).sqrt();
            let shape = AttentionShape { heads, kv_heads, head_dim, scale, cap, window, arithmetic };
            for (positions, rows) in [(1, 1), (17, 17), (100, 37), (130, 1)] {
                let case = Case::new(&mut random, shape, positions, rows);
                let whole = case.attend(Isa::Plain, &[]);
                for (y, expected) in whole.iter().zip(case.expected()) {
                    assert!(
                        (f64::from(*y) - expected).abs() < tolerance,
                        "{shape:?} ({positions}, {rows}): {y} for {expected}"
                    );
                }
                for isa in isas() {
                    assert_eq!(
                        bits(&case.attend(isa, &[])),
                        bits(&whole),
                        "{shape:?} ({positions}, {rows}) on {}",
                        isa.name()
                    );
                    for cuts in [vec![1], vec![16], vec![7, 23], vec![32, 33, 64], vec![positions - rows]] {
                        if cuts.iter().all(|c| *c > 0 && *c < positions) {
                            assert_eq!(
                                bits(&case.attend(isa, &cuts)),
                                bits(&whole),
                                "{shape:?} ({positions}, {rows}) cut at {cuts:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn attention_to_all_positions_and_with_a_bias_is_right_and_blind_to_cuts() {
    let mut random = Random(21);
    for (arithmetic, tolerance) in ATTENTIONS {
        for (heads, head_dim, sees_all, biased, window) in [
            (4, 64, true, true, None),
            (3, 20, true, false, None),
            (2, 32, false, true, None),
            (1, 80, true, true, None),
            (2, 20, true, false, Some(1)),
            (2, 32, true, false, Some(7)),
            (3, 64, true, true, Some(33)),
        ] {
            let shape = AttentionShape { heads, kv_heads: heads, head_dim, scale: 0.2, cap: None, window, arithmetic };
            // With fewer positions than rows, and more: a decoder's rows that look at an encoder's text.
            for (positions, rows) in [(1, 1), (5, 17), (37, 37), (100, 100), (130, 7)] {
                if (!sees_all || window.is_some()) && rows > positions {
                    continue;
                }
                let bias = biased.then(|| RelativeBias::new(heads, REACH, summand));
                let case = Case { sees_all, bias, ..Case::new(&mut random, shape, positions, rows) };
                let whole = case.attend(Isa::Plain, &[]);
                for (y, expected) in whole.iter().zip(case.expected()) {
                    assert!(
                        (f64::from(*y) - expected).abs() < tolerance,
                        "{shape:?} ({positions}, {rows}): {y} for {expected}"
                    );
                }
                for isa in isas() {
                    for cuts in [vec![], vec![1], vec![7, 23], vec![32, 33, 64]] {
                        if cuts.iter().all(|c| *c < positions) {
                            assert_eq!(
                                bits(&case.attend(isa, &cuts)),
                                bits(&whole),
                                "{shape:?} {sees_all} cut at {cuts:?} on {}",
                                isa.name()
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn products_with_distances_are_gathered_by_them() {
    const COLUMNS: usize = 11;
    let mut random = Random(31);
    // The first columns are of keys far behind; distances beyond reach have the last one or the first.
    let column = |distance: isize| (5 - distance.clamp(-5, 5)) as usize;
    let columns = DistanceColumns::new(COLUMNS, 5, column);
    for (arithmetic, tolerance) in ATTENTIONS {
        for (heads, head_dim, with_queries, with_keys) in
            [(3, 20, true, true), (2, 64, true, false), (1, 32, false, true)]
        {
            let shape =
                AttentionShape { heads, kv_heads: heads, head_dim, scale: 0.2, cap: None, window: None, arithmetic };
            let (width, lens) = (heads * head_dim, [37, 1, 64]);
            let all: usize = lens.iter().sum();
            let cases = lens.map(|len| Case { sees_all: true, ..Case::new(&mut random, shape, len, len) });
            // (heads, rows, columns)
            let products = [with_queries, with_keys].map(|with| with.then(|| random.floats(heads * all * COLUMNS)));
            let attend = |isa: Isa, wanted: Option<&[usize]>, of_queries: Option<&[f32]>| {
                let packed =
                    cases.each_ref().map(|case| pack(isa, &shape, &case.keys, &case.values, 0..case.positions));
                let mut segments = Vec::new();
                let mut queries = Vec::new();
                for (case, (keys, values, len)) in cases.iter().zip(&packed) {
                    // Of the others no rows, where some of the last are asked for.
                    let wanted = wanted.map(|wanted| if case.rows == 64 { wanted } else { &[] });
                    match wanted {
                        None => queries.extend(&case.queries),
                        Some(wanted) => {
                            for row in wanted {
                                queries.extend(&case.queries[row * width..][..width]);
                            }
                        }
                    }
                    let spans = vec![PackedSpan { keys, values, len: *len }];
                    segments.push(AttentionSegment { spans, rows: case.seen(), wanted });
                }
                let mut out = vec![f32::NAN; queries.len()];
                let products = DistanceProducts { columns: &columns, of_queries, of_keys: products[1].as_deref() };
                attention(isa, &shape, Some(ScoreBias::Products(products)), &queries, &segments, &mut out);
                out
            };
            let whole = attend(Isa::Plain, None, products[0].as_deref());
            // The definition in f64, of numbers rounded as the shape says.
            let rounded =
                |x: f32| f64::from(if arithmetic == Arithmetic::Tiles { bf16::from_f32(x).to_f32() } else { x });
            let mut first = 0;
            for case in &cases {
                for (row, head) in (0..case.rows).flat_map(|row| (0..heads).map(move |head| (row, head))) {
                    let at = |row: usize| (row * heads + head) * head_dim;
                    let product = |which: usize, row: usize, column: usize| {
                        let of = |all_products: &Vec<f32>| all_products[(head * all + first + row) * COLUMNS + column];
                        f64::from(products[which].as_ref().map_or(0.0, of))
                    };
                    let weight = |p: usize| {
                        let column = column(p as isize - row as isize);
                        let dot = (0..head_dim)
                            .map(|d| rounded(case.queries[at(row) + d]) * rounded(case.keys[at(p) + d]))
                            .sum::<f64>();
                        (0.2 * (dot + product(0, row, column) + product(1, p, column))).exp()
                    };
                    let weights: Vec<f64> = (0..case.positions).map(weight).collect();
                    for d in 0..head_dim {
                        let sum =
                            (0..case.positions).map(|p| weights[p] * rounded(case.values[at(p) + d])).sum::<f64>();
                        let (y, expected) = (whole[first * width + at(row) + d], sum / weights.iter().sum::<f64>());
                        assert!(
                            (f64::from(y) - expected).abs() < tolerance,
                            "{shape:?}, row {row}: {y} for {expected}"
                        );
                    }
                }
                first += case.rows;
            }
            let wanted = [0, 3, 40, 63];
            let rows = |x: &[f32], len: usize| -> Vec<f32> {
                wanted.iter().flat_map(|row| x[(38 + row) * len..][..len].to_vec()).collect()
            };
            let of_wanted: Option<Vec<f32>> = products[0]
                .as_ref()
                .map(|products| products.chunks_exact(all * COLUMNS).flat_map(|head| rows(head, COLUMNS)).collect());
            for isa in isas() {
                assert_eq!(
                    bits(&attend(isa, None, products[0].as_deref())),
                    bits(&whole),
                    "{shape:?} on {}",
                    isa.name()
                );
                let some = attend(isa, Some(&wanted), of_wanted.as_deref());
                assert_eq!(bits(&some), bits(&rows(&whole, width)), "{shape:?} on {}: wanted rows", isa.name());
            }
        }
    }
}

#[test]
fn wanted_rows_have_the_bits_they_have_among_all() {
    let mut random = Random(14);
    for (arithmetic, _) in ATTENTIONS {
        let shape =
            AttentionShape { heads: 6, kv_heads: 2, head_dim: 48, scale: 0.2, cap: None, window: Some(30), arithmetic };
        let bias = Some(RelativeBias::new(shape.heads, REACH, summand));
        let case = Case { bias, ..Case::new(&mut random, shape, 90, 60) };
        let width = shape.heads * shape.head_dim;
        let wanted = [0, 3, 4, 40, 41, 59];
        let queries: Vec<f32> = wanted.iter().flat_map(|row| case.queries[row * width..][..width].to_vec()).collect();
        for isa in isas() {
            let (keys, values, len) = pack(isa, &shape, &case.keys, &case.values, 0..90);
            let spans = vec![PackedSpan { keys: &keys, values: &values, len }];
            let mut out = vec![f32::NAN; queries.len()];
            attention(
                isa,
                &shape,
                case.bias.as_ref().map(ScoreBias::Distance),
                &queries,
                &[AttentionSegment { spans, rows: case.seen(), wanted: Some(&wanted) }],
                &mut out,
            );
            let all = case.attend(isa, &[]);
            let expected: Vec<f32> = wanted.iter().flat_map(|row| all[row * width..][..width].to_vec()).collect();
            assert_eq!(bits(&out), bits(&expected), "{arithmetic:?} on {}", isa.name());
        }
    }
}

#[test]
fn joined_spans_equal_those_packed_at_once() {
    let mut random = Random(11);
    for (arithmetic, _) in ATTENTIONS {
        let shape =
            AttentionShape { heads: 4, kv_heads: 2, head_dim: 20, scale: 1.0, cap: None, window: None, arithmetic };
        let case = Case::new(&mut random, shape, 45, 1);
        let pack = |rows| pack(Isa::best(), &shape, &case.keys, &case.values, rows);
        for (start, cuts) in [(0, [1, 2, 30]), (3, [4, 6, 31])] {
            let parts = [pack(start..cuts[0]), pack(cuts[0]..cuts[1]), pack(cuts[1]..cuts[2]), pack(cuts[2]..45)];
            let spans: Vec<PackedSpan<'_>> =
                parts.iter().map(|(keys, values, len)| PackedSpan { keys, values, len: *len }).collect();
            let (keys, values, _) = pack(start..45);
            let (mut k, mut v) = (vec![0; keys.len()], vec![0; values.len()]);
            join_spans(&shape, &spans, 45 - start, start, &mut k, &mut v);
            assert!(k == keys && v == values, "{arithmetic:?} from {start}");
            // What comes behind is left out, wherever the cut falls.
            for end in [cuts[0], cuts[1], cuts[1] + 3, cuts[2] - 1, cuts[2] + 1, 44] {
                let (keys, values, _) = pack(start..end);
                let (mut k, mut v) = (vec![0; keys.len()], vec![0; values.len()]);
                join_spans(&shape, &spans, end - start, start, &mut k, &mut v);
                assert!(k == keys && v == values, "{arithmetic:?} from {start} to {end}");
            }
        }
    }
}

#[test]
fn a_query_has_the_same_bits_alone_and_among_others() {
    let mut random = Random(7);
    for (arithmetic, _) in ATTENTIONS {
        let shape =
            AttentionShape { heads: 6, kv_heads: 2, head_dim: 32, scale: 0.2, cap: None, window: Some(50), arithmetic };
        let case = Case::new(&mut random, shape, 90, 90);
        let together = case.attend(Isa::best(), &[]);
        let width = shape.heads * shape.head_dim;
        for row in [0, 15, 16, 60, 89] {
            let kv = (row + 1) * shape.kv_heads * shape.head_dim;
            let alone = Case {
                shape,
                keys: case.keys[..kv].to_vec(),
                values: case.values[..kv].to_vec(),
                queries: case.queries[row * width..][..width].to_vec(),
                positions: row + 1,
                rows: 1,
                ..case.clone()
            };
            assert_eq!(
                bits(&alone.attend(Isa::best(), &[])),
                bits(&together[row * width..][..width]),
                "{arithmetic:?}, row {row}"
            );
        }
    }
}

#[test]
fn what_is_not_finite_reaches_those_who_see_it_and_nobody_else() {
    let mut random = Random(16);
    for (arithmetic, _) in ATTENTIONS {
        let shape =
            AttentionShape { heads: 4, kv_heads: 2, head_dim: 32, scale: 0.2, cap: None, window: Some(20), arithmetic };
        let width = shape.heads * shape.head_dim;
        let finite = Case::new(&mut random, shape, 70, 70);
        let expected = finite.attend(Isa::best(), &[]);
        for (bad, in_keys) in
            [(f32::NAN, false), (f32::INFINITY, false), (f32::NAN, true), (3.4e38, true), (f32::INFINITY, true)]
        {
            // In the first key head, which two query heads read.
            let mut case = finite.clone();
            let element =
                &mut if in_keys { &mut case.keys } else { &mut case.values }[40 * shape.kv_heads * shape.head_dim + 7];
            *element = bad;
            for isa in isas() {
                let results = case.attend(isa, &[33]);
                for (row, (results, expected)) in results.chunks(width).zip(expected.chunks(width)).enumerate() {
                    let reached = if (40..60).contains(&row) { 2 * shape.head_dim } else { 0 };
                    let what =
                        format!("{arithmetic:?} row {row}, {bad} in {}", if in_keys { "keys" } else { "values" });
                    assert_eq!(bits(&results[reached..]), bits(&expected[reached..]), "{what} on {}", isa.name());
                    if reached > 0 && bad.is_nan() {
                        assert!(results[..reached].iter().any(|y| y.is_nan()), "{what}");
                    }
                }
                assert_eq!(bits(&results), bits(&case.attend(Isa::Plain, &[33])), "{arithmetic:?} on {}", isa.name());
            }
        }
    }
}

#[test]
fn rows_are_normalised_and_summed_alike_on_every_instruction_set() {
    let mut random = Random(8);
    for width in [1, 15, 64, 576, 1000] {
        // Far from zero, so that a mean that was not taken off would show.
        let x: Vec<f32> = random.floats(3 * width).iter().map(|x| x + 1.5).collect();
        let (weight, bias) = (random.floats(width), random.floats(width));
        let all = |isa| {
            let (mut rms, mut layer) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            normalise(isa, &x, Norm { weight: &weight, bias: None, eps: 1e-5 }, &mut rms);
            normalise(isa, &x, Norm { weight: &weight, bias: Some(&bias), eps: 1e-5 }, &mut layer);
            (
                bits(&rms),
                bits(&layer),
                log_sum_exp(isa, &x, width).iter().map(|s| s.to_bits()).collect::<Vec<_>>(),
                rms,
                layer,
            )
        };
        let plain = all(Isa::Plain);
        assert!(isas().all(|isa| all(isa) == plain), "width {width}");
        let sums = log_sum_exp(Isa::Plain, &x, width);
        for (row, x) in x.chunks(width).enumerate() {
            let exact = |f: &dyn Fn(f64) -> f64| x.iter().map(|v| f(f64::from(*v))).sum::<f64>();
            let mean = exact(&|v| v) / width as f64;
            let scale = (exact(&|v| v * v) / width as f64 + 1e-5).sqrt();
            let deviation = (exact(&|v| (v - mean) * (v - mean)) / width as f64 + 1e-5).sqrt();
            for (i, v) in x.iter().map(|v| f64::from(*v)).enumerate() {
                let (at, w) = (row * width + i, f64::from(weight[i]));
                assert!((f64::from(plain.3[at]) - v / scale * w).abs() < 1e-5, "root mean square of width {width}");
                let layer = (v - mean) / deviation * w + f64::from(bias[i]);
                assert!((f64::from(plain.4[at]) - layer).abs() < 1e-5, "layer norm of width {width}");
            }
            assert!((sums[row] - exact(&f64::exp).ln()).abs() < 1e-6, "log-sum-exp of width {width}");
        }
    }
}

#[test]
fn activations_are_right_to_their_bound_on_every_instruction_set() {
    let x: Vec<f32> = (-400_000..=400_000).map(|i| i as f32 * 5e-5).chain([-1e30, 1e30, -1e4, 1e-30]).collect();
    let exact = |activation: Activation, x: f64| match activation {
        Activation::Silu => x / (1.0 + libm::exp(-x)),
        Activation::GeluErf => x * 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + libm::tanh((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)))
        }
        Activation::Relu => x.max(0.0),
    };
    for activation in Activation::ALL {
        let on = |isa, up| {
            let mut y = vec![f32::NAN; x.len()];
            activate(isa, activation, &x, up, &mut y);
            y
        };
        let plain = on(Isa::Plain, None);
        let doubled = vec![2.0; x.len()];
        let mut largest = 0.0f64;
        for (x, y) in x.iter().zip(&plain) {
            let expected = exact(activation, f64::from(*x));
            // Beside two roundings of the result itself.
            let error = (f64::from(*y) - expected).abs() - expected.abs() * 2.0 * f64::from(f32::EPSILON);
            largest = largest.max(error);
        }
        println!("{activation:?}: largest error {largest:e}");
        assert!(largest < 1e-7, "{activation:?}: {largest:e}");
        for isa in isas() {
            assert_eq!(bits(&on(isa, None)), bits(&plain), "{activation:?} on {}", isa.name());
            let twice: Vec<f32> = plain.iter().map(|y| 2.0 * y).collect();
            assert_eq!(bits(&on(isa, Some(&doubled))), bits(&twice), "{activation:?} gated on {}", isa.name());
        }
        let mut y = [0.0; 2];
        activate(Isa::best(), activation, &[f32::NAN, f32::INFINITY], None, &mut y);
        assert!(y[0].is_nan() && y[1] == f32::INFINITY, "{activation:?}: {y:?}");
    }
}

#[test]
fn the_normaliser_is_exact_over_a_vocabulary_and_refuses_what_is_not_finite() {
    let mut random = Random(9);
    let x: Vec<f32> = random.floats(150_000).iter().map(|v| 30.0 * v).collect();
    let expected: f64 = x.iter().map(|v| f64::from(*v).exp()).sum::<f64>().ln();
    let got = log_sum_exp(Isa::best(), &x, x.len())[0];
    assert!((got - expected).abs() < 3e-7, "{got} for {expected}");
    assert!(log_sum_exp(Isa::best(), &[0.0, f32::NAN], 2)[0].is_nan());
    assert!(log_sum_exp(Isa::best(), &[0.0, f32::INFINITY], 2)[0].is_nan());
    assert!(log_sum_exp(Isa::best(), &[0.0, f32::NEG_INFINITY], 2)[0].abs() < 1e-12);
}

#[test]
fn the_head_is_the_product_and_its_normaliser() {
    let mut random = Random(15);
    for (weight_type, form) in [
        (WeightType::F32, ProductForm::Float),
        (WeightType::Q8_0, ProductForm::Int8),
        (WeightType::BF16, ProductForm::Tiles),
    ] {
        let (vocab_size, width) = (1333, 576);
        let bytes = random.weights(weight_type, vocab_size, width);
        let weights = Matrix::new(weight_type, &bytes, vocab_size, width).expect("sizes fit");
        let biases = random.floats(vocab_size);
        let packed = PackedMatrix::pack(weights, form).expect("memory");
        for rows in [1, 7, 40] {
            let mut x: Vec<f32> = random.floats(rows * width).iter().map(|x| 20.0 * x).collect();
            if rows == 7 {
                x[3 * width] = f32::NAN;
            }
            let asked: Vec<Vec<u32>> = (0..rows).map(|row| vec![511, row as u32, 1332, 512, 511]).collect();
            for (isa, bias, cap) in
                isas().flat_map(|isa| [(isa, None, None), (isa, Some(&*biases), None), (isa, None, Some(30.0))])
            {
                let matrix = HeadMatrix { weights: &packed, bias, cap };
                let mut logits = run_packed(isa, &x, &packed);
                logits
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, logit)| *logit += bias.map_or(0.0, |bias| bias[at % vocab_size]));
                if let Some(cap) = cap {
                    soft_cap(isa, 1.0, cap, &mut logits);
                }
                let normalisers = log_sum_exp(isa, &logits, vocab_size);
                let mut inputs = Inputs::new();
                inputs.set(isa, &x, width, [form]);
                for (row, short) in head(isa, &inputs, matrix, &asked).iter().enumerate() {
                    let logits = &logits[row * vocab_size..][..vocab_size];
                    assert_eq!(
                        short.normaliser.to_bits(),
                        normalisers[row].to_bits(),
                        "{form:?} row {row} on {}",
                        isa.name()
                    );
                    let expected: Vec<f32> = asked[row].iter().map(|token| logits[*token as usize]).collect();
                    assert_eq!(bits(&short.logits), bits(&expected), "{form:?} row {row} on {}", isa.name());
                    if normalisers[row].is_finite() {
                        let largest =
                            (0..vocab_size).fold(0, |best, id| if logits[id] > logits[best] { id } else { best });
                        assert_eq!(short.greedy as usize, largest, "{form:?} row {row} on {}", isa.name());
                        let mut alone = Inputs::new();
                        alone.set(isa, &x[row * width..][..width], width, [form]);
                        for share in [0.0, 0.002, 0.5, 1.0] {
                            // All but the likeliest, and fewer; words beyond the vocabulary.
                            let allowed = |id: usize| {
                                id != largest && (share == 1.0 || (id * 7919 + row) as f32 % 1000.0 < share * 1000.0)
                            };
                            let words =
                                |word: usize| (0..32).map(|bit| u32::from(allowed(32 * word + bit)) << bit).sum();
                            let words: Vec<u32> = (0..vocab_size.div_ceil(32) + 20).map(words).collect();
                            let better = |best: Option<usize>, id| {
                                if best.is_none_or(|best| logits[id] > logits[best]) { Some(id) } else { best }
                            };
                            let expected = (0..vocab_size).filter(|id| allowed(*id)).fold(None, better);
                            for words in [&words[..], &words[..=vocab_size / 32]] {
                                let found = greedy_among(isa, &alone, matrix, short, words);
                                assert_eq!(
                                    found.map(|id| id as usize),
                                    expected,
                                    "{form:?} row {row} on {}, {share}",
                                    isa.name()
                                );
                            }
                        }
                    } else {
                        assert!((rows, row) == (7, 3), "row {row} of {rows} is finite");
                    }
                }
            }
        }
    }
}

#[test]
fn a_part_of_each_head_is_rotated_and_the_rest_stays() {
    let mut random = Random(11);
    let x = random.floats(2 * 3 * 12);
    let frequencies = [1.0, 0.3, 0.01, 0.0001];
    let table = RopeTable::new(&[3, 4000], &frequencies, 0.5);
    let mut part = x.clone();
    table.apply(Isa::best(), RopeLayout::Halves, 12, &mut part);
    let firsts = |x: &[f32]| -> Vec<f32> { x.chunks(12).flat_map(|head| head[..8].to_vec()).collect() };
    let mut alone = firsts(&x);
    RopeTable::new(&[3, 4000], &frequencies, 1.0).apply(Isa::best(), RopeLayout::Halves, 8, &mut alone);
    let halved: Vec<f32> = alone.iter().map(|x| x * 0.5).collect();
    assert_eq!(firsts(&part), halved, "cosines and sines are halved, and so is what they make");
    for (part, x) in part.chunks(12).zip(x.chunks(12)) {
        assert_eq!(part[8..], x[8..]);
    }
}

#[test]
fn caps_are_hyperbolic_tangents_on_every_instruction_set() {
    let mut random = Random(12);
    let mut x: Vec<f32> = random.floats(531).iter().map(|x| 200.0 * x * x * x).collect();
    x.extend([0.0, f32::INFINITY, f32::NEG_INFINITY, 1e30, f32::NAN]);
    let (scale, cap) = (0.3, 30.0);
    let mut plain = x.clone();
    soft_cap(Isa::Plain, scale, cap, &mut plain);
    for (x, y) in x.iter().zip(&plain) {
        let expected = f64::from(cap) * (f64::from(*x) * f64::from(scale) / f64::from(cap)).tanh();
        assert!((f64::from(*y) - expected).abs() < 6e-6 || y.is_nan() && x.is_nan(), "{x}: {y} for {expected}");
    }
    for isa in isas() {
        let mut y = x.clone();
        soft_cap(isa, scale, cap, &mut y);
        assert_eq!(bits(&y), bits(&plain), "{}", isa.name());
    }
}

#[test]
fn rotation_layouts_agree_up_to_their_permutation() {
    let mut random = Random(10);
    let x = random.floats(2 * 3 * 8);
    let table = RopeTable::new(&[3, 4000], &[1.0, 0.3, 0.01, 0.0001], 1.0);
    let mut halves = x.clone();
    table.apply(Isa::best(), RopeLayout::Halves, 8, &mut halves);
    let permute = |x: &[f32]| -> Vec<f32> {
        x.chunks(8).flat_map(|h| (0..8).map(|i| h[i / 2 + i % 2 * 4]).collect::<Vec<_>>()).collect()
    };
    let mut interleaved = permute(&x);
    table.apply(Isa::best(), RopeLayout::Interleaved, 8, &mut interleaved);
    assert_eq!(permute(&halves), interleaved);
    let angle = f64::from(4000.0f32 * 0.3);
    let expected = f64::from(x[24 + 1]) * angle.cos() - f64::from(x[24 + 5]) * angle.sin();
    assert!((f64::from(halves[24 + 1]) - expected).abs() < 1e-6);
}
