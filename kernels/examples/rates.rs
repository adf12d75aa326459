//! Prints the rate of each matrix product on this machine: `cargo run --release -p probity-kernels --example rates
//! [ROWS [ISA [TYPE [FORM]]]]`.

use std::time::Instant;

use probity_kernels::{Inputs, Isa, Matrix, MatrixProduct, PackedMatrix, ProductForm, WeightType, matmul};

/// More than a thread's share of any cache.
const FROM_MEMORY: usize = 768 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let m = arguments.next().and_then(|m| m.parse().ok()).unwrap_or(512);
    let isa =
        arguments.next().and_then(|name| Isa::ALL.into_iter().find(|isa| isa.name() == name)).unwrap_or(Isa::best());
    let only = arguments.next();
    let forms = arguments.next();
    let (n, k) = (5632, 2048);
    let x: Vec<f32> = (0..m * k).map(|i| (i % 17) as f32 * 0.1 - 0.8).collect();
    let mut y = vec![0.0; m * n];
    let mut inputs = Inputs::new();
    for weight_type in WeightType::ALL.into_iter().filter(|t| only.as_ref().is_none_or(|name| t.name() == name)) {
        let bytes = vec![0x11u8; weight_type.row_bytes(k).expect("whole blocks") * n];
        let weights = Matrix::new(weight_type, &bytes, n, k).expect("sizes fit");
        for form in ProductForm::ALL
            .into_iter()
            .filter(|form| form.suits(weight_type) && forms.as_ref().is_none_or(|name| format!("{form:?}") == *name))
        {
            // Few rows are memory-bound: several matrices in turn, more than a cache holds.
            let copies = if m <= 32 { FROM_MEMORY.div_ceil(bytes.len()) } else { 1 };
            let packed: Vec<_> = (0..copies).map(|_| PackedMatrix::pack(weights, form).expect("memory")).collect();
            let mut turns = packed.iter().cycle();
            let mut best = f64::INFINITY;
            let begin = Instant::now();
            while begin.elapsed().as_secs_f64() < 0.5 {
                let start = Instant::now();
                for weights in turns.by_ref().take(copies) {
                    inputs.set(isa, &x, k, [form]);
                    matmul(isa, &inputs, &mut [MatrixProduct { weights, bias: None, y: &mut y, add: false }]);
                }
                best = best.min(start.elapsed().as_secs_f64() / copies as f64);
            }
            let (rate, bandwidth) = (2.0 * (m * n * k) as f64 / best / 1e9, packed[0].bytes() as f64 / best / 1e9);
            println!("{weight_type:>5} {:>5}: {rate:7.1} Gop/s {bandwidth:6.1} GB/s", format!("{form:?}"));
        }
    }
}
