//! Norms, rotary positions, activations and the normaliser: `cargo bench -p probity-kernels-benches --bench elementwise`.
//! Throughput is in elements.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use probity_kernels::{Activation, Isa, Norm, RopeLayout, RopeTable, activate, log_sum_exp, normalise};

const HIDDEN: usize = 2048;
const INNER: usize = 5632;
const VOCABULARY: usize = 32000;

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 29) as f32 * 0.1 - 1.4).collect()
}

fn elementwise(c: &mut Criterion) {
    let isa = Isa::best();
    for rows in [1, 512] {
        let mut group = c.benchmark_group("cpu_elementwise");
        let (x, weight) = (values(rows * HIDDEN), values(HIDDEN));
        let mut y = vec![0.0; x.len()];
        group.throughput(Throughput::Elements(x.len() as u64));
        group.bench_function(BenchmarkId::new("rms_norm", rows), |b| {
            b.iter(|| normalise(isa, black_box(&x), Norm { weight: &weight, bias: None, eps: 1e-5 }, &mut y));
        });
        let bias = values(HIDDEN);
        group.bench_function(BenchmarkId::new("layer_norm", rows), |b| {
            b.iter(|| normalise(isa, black_box(&x), Norm { weight: &weight, bias: Some(&bias), eps: 1e-5 }, &mut y));
        });
        let frequencies: Vec<f32> = (0..32).map(|i| 10000f32.powf(-(i as f32) / 32.0)).collect();
        let positions: Vec<u32> = (0..rows as u32).collect();
        group.bench_function(BenchmarkId::new("rope_table", rows), |b| {
            b.iter(|| RopeTable::new(black_box(&positions), &frequencies, 1.0));
        });
        let table = RopeTable::new(&positions, &frequencies, 1.0);
        group.bench_function(BenchmarkId::new("rope", rows), |b| {
            b.iter(|| table.apply(Isa::best(), RopeLayout::Halves, 64, black_box(&mut y)));
        });
        let (gate, up) = (values(rows * INNER), values(rows * INNER));
        let mut gated = vec![0.0; gate.len()];
        group.throughput(Throughput::Elements(gate.len() as u64));
        for (name, activation) in
            [("silu_mul", Activation::Silu), ("gelu_mul", Activation::GeluErf), ("gelu_tanh_mul", Activation::GeluTanh)]
        {
            group.bench_function(BenchmarkId::new(name, rows), |b| {
                b.iter(|| activate(isa, activation, black_box(&gate), Some(&up), &mut gated));
            });
        }
        let logits = values(rows.min(64) * VOCABULARY);
        group.throughput(Throughput::Elements(logits.len() as u64));
        group.bench_function(BenchmarkId::new("log_sum_exp", rows.min(64)), |b| {
            b.iter(|| log_sum_exp(isa, black_box(&logits), VOCABULARY));
        });
        group.finish();
    }
}

criterion_group!(benches, elementwise);
criterion_main!(benches);
