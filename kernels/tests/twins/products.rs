//! Matrix products and the decoding of weights.

use half::bf16;
use probity_kernels::{
    Activated, Activation, Inputs, Isa, Matrix, MatrixProduct, Norm, PackedMatrix, ProductForm, WeightType, activate,
    activated_matmul, dequantise, matmul, normalise,
};

use crate::{Random, bits, isas, run_packed};

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

/// Rows, outputs and columns that leave every kind of remainder: tiles, panels, chunks.
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
            // Compared in f64 with dequantised weights and equally rounded activations.
            let w = expanded(weights);
            let rounded: Vec<f64> = x.chunks(32).flat_map(round_to_8_bits).collect();
            for (at, y) in plain.iter().enumerate() {
                let (x, w) = (&rounded[at / n * k..][..k], &w[at % n * k..][..k]);
                let exact: f64 = x.iter().zip(w).map(|(x, w)| x * f64::from(*w)).sum();
                let size: f64 = x.iter().zip(w).map(|(x, w)| (x * f64::from(*w)).abs()).sum();
                let rest = (f64::from(*y) - exact).abs();
                // Terms with a minimum cancel inside a group: their error scales with the sum of magnitudes, not with
                // the difference.
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
        // All bits set, none, those of the largest integer of either sign if it is signed, those of the largest code.
        for byte in [0xff, 0x00, 0x7f, 0x80, 0x77] {
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

/// Flushes denormals to zero.
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
            // Magnitudes vary widely, so that the order of sums matters.
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
    use WeightType::{BF16, F32, MXFP4, Q4_1, Q6_K, Q8_0};
    let mut random = Random(3);
    for weight_type in [F32, BF16, Q8_0, Q4_1, Q6_K, MXFP4] {
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
        // Both factors of a gated layer have the same width.
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
                // The packed result is checked by a product with it.
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
