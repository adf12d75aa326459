//! Row-wise computations: norms, activations, the head, rotations.

use probity_kernels::{
    Activation, HeadMatrix, Inputs, Isa, Matrix, Norm, PackedMatrix, ProductForm, RopeLayout, RopeTable, WeightType,
    activate, greedy_among, head, log_sum_exp, normalise, soft_cap,
};

use crate::{Random, bits, isas, run_packed};

#[test]
fn rows_are_normalised_and_summed_alike_on_every_instruction_set() {
    let mut random = Random(8);
    for width in [1, 15, 64, 576, 1000] {
        // Far from zero, so that a missing mean subtraction would be visible.
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
        Activation::ClampedSigmoid => x.min(7.0) / (1.0 + libm::exp(-1.702 * x.min(7.0))),
        Activation::Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
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
            // In addition to two roundings of the result.
            let error = (f64::from(*y) - expected).abs() - expected.abs() * 2.0 * f64::from(f32::EPSILON);
            largest = largest.max(error);
        }
        println!("{activation:?}: largest error {largest:e}");
        assert!(largest < 1e-7, "{activation:?}: {largest:e}");
        for isa in isas() {
            assert_eq!(bits(&on(isa, None)), bits(&plain), "{activation:?} on {}", isa.name());
            let factor = if activation == Activation::ClampedSigmoid { 3.0 } else { 2.0 };
            let gated: Vec<f32> = plain.iter().map(|y| factor * y).collect();
            assert_eq!(bits(&on(isa, Some(&doubled))), bits(&gated), "{activation:?} gated on {}", isa.name());
        }
        let mut y = [0.0; 2];
        activate(Isa::best(), activation, &[f32::NAN, f32::INFINITY], None, &mut y);
        let largest = match activation {
            Activation::Sigmoid => 1.0,
            Activation::ClampedSigmoid => 7.0,
            _ => f32::INFINITY,
        };
        assert!(y[0].is_nan() && (y[1] == largest || (y[1] - largest).abs() < 1e-4), "{activation:?}: {y:?}");
    }
}

#[test]
fn the_clamped_gate_limits_both_products() {
    let isa = Isa::best();
    let gated = |gate: f32, up: f32| {
        let mut y = [0.0];
        activate(isa, Activation::ClampedSigmoid, &[gate], Some(&[up]), &mut y);
        y[0]
    };
    let half = 1.0 / (1.0 + (-0.851f32).exp());
    for (gate, up, expected) in [
        (0.5, 0.0, 0.5 * half),
        (0.5, -1.0, 0.0),
        (0.5, 7.0, 4.0 * half),
        (0.5, 100.0, 4.0 * half),
        (0.5, -100.0, -3.0 * half),
        (7.0, 1.0, gated(1e9, 1.0)),
        (-9.0, 0.0, -9.0 / (1.0 + (9.0f32 * 1.702).exp())),
    ] {
        assert!((gated(gate, up) - expected).abs() < 1e-5, "{gate} and {up}: {} for {expected}", gated(gate, up));
    }
    assert!(gated(0.5, f32::NAN).is_nan() && gated(f32::NAN, 0.5).is_nan());
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
                        // Each row is also run alone below: a sample of them is enough.
                        if rows == 40 && row % 13 != 0 {
                            continue;
                        }
                        let mut alone = Inputs::new();
                        alone.set(isa, &x[row * width..][..width], width, [form]);
                        for share in [0.0, 0.002, 0.5, 1.0] {
                            // All but the most likely token, and smaller sets; words beyond the vocabulary.
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
