//! Attention over cached spans: `cargo bench -p probity-kernels --bench attention`. Throughput is in query rows.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use probity_kernels::{AttentionShape, Isa, Segment, Span, attention, pack_keys, pack_values};

const SHAPE: AttentionShape = AttentionShape { heads: 32, kv_heads: 8, head_dim: 64, scale: 0.125, window: None };

struct Packed {
    keys: Vec<f32>,
    values: Vec<f32>,
    len: usize,
}

impl Packed {
    fn new(len: usize) -> Self {
        let rows: Vec<f32> = (0..len * SHAPE.kv_heads * SHAPE.head_dim).map(|i| (i % 23) as f32 * 0.05 - 0.5).collect();
        let (mut keys, mut values) = (vec![0.0; SHAPE.keys_len(len)], vec![0.0; SHAPE.values_len(len)]);
        pack_keys(&SHAPE, &rows, 0..len, &mut keys);
        pack_values(&SHAPE, &rows, 0..len, &mut values);
        Self { keys, values, len }
    }

    fn span(&self) -> Span<'_> {
        Span { keys: &self.keys, values: &self.values, len: self.len }
    }
}

/// `new` rows that continue a past, as many segments of them as share it.
fn spans(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu_attention");
    for (name, past, new, segments) in
        [("prefill", 0, 512, 1), ("comparison", 460, 100, 10), ("decode", 512, 1, 1), ("decode", 4096, 1, 1), ("long_context", 4000, 60, 4)]
    {
        let before = (past > 0).then(|| Packed::new(past));
        let after = Packed::new(new);
        let all: Vec<Segment<'_>> = (0..segments)
            .map(|_| Segment {
                spans: before.iter().chain([&after]).map(Packed::span).collect(),
                ends: past + 1..past + new + 1,
                wanted: None,
            })
            .collect();
        let rows = segments * new;
        let queries: Vec<f32> = (0..rows * SHAPE.heads * SHAPE.head_dim).map(|i| (i % 19) as f32 * 0.1 - 0.9).collect();
        let mut out = vec![0.0; queries.len()];
        group.throughput(Throughput::Elements(rows as u64));
        group.bench_function(BenchmarkId::new(name, format!("{past}+{segments}x{new}")), |b| {
            b.iter(|| attention(Isa::best(), &SHAPE, black_box(&queries), &all, &mut out));
        });
    }
    group.finish();
}

criterion_group!(benches, spans);
criterion_main!(benches);
