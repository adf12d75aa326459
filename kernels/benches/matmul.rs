//! Matrix products by weight type, form and rows: `cargo bench -p probity-kernels-benches --bench matmul -- Q8_0`.
//!
//! A measurement includes packing the activations, as in a layer. Throughput is in operations, two per weight and row.
//! Weights are cold in the second-level cache: several copies are used in turn.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use probity_kernels::{Arithmetic, Inputs, Isa, Matrix, MatrixProduct, PackedMatrix, ProductForm, WeightType, matmul};

const COPIES: usize = 4;

fn products(c: &mut Criterion) {
    for weight_type in WeightType::ALL {
        let mut forms = [Arithmetic::Exact, Arithmetic::Dots, Arithmetic::Tiles]
            .map(|a| ProductForm::for_weight_type(weight_type, a))
            .to_vec();
        forms.dedup();
        for form in forms {
            for (outputs, width) in [(2048, 2048), (5632, 2048)] {
                product(c, weight_type, form, outputs, width);
            }
        }
    }
}

fn product(c: &mut Criterion, weight_type: WeightType, form: ProductForm, outputs: usize, width: usize) {
    let isa = Isa::best();
    let bytes = vec![0x11u8; weight_type.row_bytes(width).expect("whole blocks") * outputs];
    let matrix = Matrix::new(weight_type, &bytes, outputs, width).expect("sizes fit");
    let weights: Vec<_> = (0..COPIES).map(|_| PackedMatrix::pack(matrix, form).expect("memory")).collect();
    let mut group = c.benchmark_group(format!("cpu_matmul/{weight_type}/{form:?}/{outputs}x{width}"));
    group.sampling_mode(SamplingMode::Flat).sample_size(20);
    for rows in [1, 16, 512] {
        let x: Vec<f32> = (0..rows * width).map(|i| (i % 17) as f32 * 0.1 - 0.8).collect();
        let mut y = vec![0.0; rows * outputs];
        let mut inputs = Inputs::new();
        let mut turn = 0;
        group.throughput(Throughput::Elements((2 * rows * outputs * width) as u64));
        group.bench_function(BenchmarkId::from_parameter(rows), |b| {
            b.iter(|| {
                turn = (turn + 1) % COPIES;
                inputs.set(isa, black_box(&x), width, [form]);
                matmul(
                    isa,
                    &inputs,
                    &mut [MatrixProduct { weights: &weights[turn], bias: None, y: &mut y, add: false }],
                );
            });
        });
    }
    group.finish();
}

criterion_group!(benches, products);
criterion_main!(benches);
