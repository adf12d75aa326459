//! Attention over cached spans: `cargo bench -p probity-kernels-benches --bench attention`. Throughput is in query
//! rows.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use probity_kernels::{Arithmetic, AttentionSegment, AttentionShape, Isa, PackedSpan, QueryRows, attention, pack_span};

fn shape(arithmetic: Arithmetic) -> AttentionShape {
    AttentionShape { heads: 32, kv_heads: 8, head_dim: 64, scale: 0.125, cap: None, window: None, arithmetic }
}

struct Packed {
    keys: Vec<u32>,
    values: Vec<u32>,
    len: usize,
}

impl Packed {
    fn new(shape: &AttentionShape, start: usize, len: usize) -> Self {
        let rows: Vec<f32> = (0..len * shape.kv_heads * shape.head_dim).map(|i| (i % 23) as f32 * 0.05 - 0.5).collect();
        let (mut keys, mut values) = (vec![0; shape.keys_len(len)], vec![0; shape.values_len(len)]);
        pack_span(Isa::best(), shape, (&rows, &rows), 0..len, start, &mut keys, &mut values);
        Self { keys, values, len }
    }

    fn span(&self) -> PackedSpan<'_> {
        PackedSpan { keys: &self.keys, values: &self.values, len: self.len }
    }
}

/// `new` rows that continue a past, in that many segments sharing it.
fn spans(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu_attention");
    let cases = [
        ("prefill", 0, 512, 1),
        ("comparison", 460, 100, 10),
        ("decode", 512, 1, 1),
        ("decode", 4096, 1, 1),
        ("long_context", 4000, 60, 4),
    ];
    for (arithmetic, in_what) in [(Arithmetic::Exact, "f32"), (Arithmetic::Tiles, "bf16")] {
        let shape = shape(arithmetic);
        for (name, past, new, segments) in cases {
            let before = (past > 0).then(|| Packed::new(&shape, 0, past));
            let after = Packed::new(&shape, past, new);
            let all: Vec<AttentionSegment<'_>> = (0..segments)
                .map(|_| AttentionSegment {
                    spans: before.iter().chain([&after]).map(Packed::span).collect(),
                    rows: QueryRows::Causal(past + 1..past + new + 1),
                    wanted: None,
                })
                .collect();
            let rows = segments * new;
            let queries: Vec<f32> =
                (0..rows * shape.heads * shape.head_dim).map(|i| (i % 19) as f32 * 0.1 - 0.9).collect();
            let mut out = vec![0.0; queries.len()];
            group.throughput(Throughput::Elements(rows as u64));
            group.bench_function(
                BenchmarkId::new(format!("{name}_{in_what}"), format!("{past}+{segments}x{new}")),
                |b| {
                    b.iter(|| attention(Isa::best(), &shape, None, black_box(&queries), &all, &mut out));
                },
            );
        }
    }
    group.finish();
}

criterion_group!(benches, spans);
criterion_main!(benches);
