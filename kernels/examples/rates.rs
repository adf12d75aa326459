//! Prints the rate of each matrix product on this machine: `cargo run --release -p probity-kernels --example rates`.

use std::time::Instant;

use probity_kernels::{Isa, Matrix, WeightType, matmul, matmul_fast};

fn main() {
    let (m, n, k) = (512, 5632, 2048);
    let x: Vec<f32> = (0..m * k).map(|i| (i % 17) as f32 * 0.1 - 0.8).collect();
    let mut y = vec![0.0; m * n];
    for weight_type in WeightType::ALL {
        let bytes = vec![0x11u8; weight_type.row_bytes(k).expect("whole blocks") * n];
        let weights = Matrix::new(weight_type, &bytes, n, k).expect("sizes fit");
        for (name, product) in [("exact", matmul as fn(Isa, &[f32], Matrix<'_>, &mut [f32])), ("fast", matmul_fast)] {
            let mut times: Vec<f64> = (0..5)
                .map(|_| {
                    let start = Instant::now();
                    product(Isa::best(), &x, weights, &mut y);
                    start.elapsed().as_secs_f64()
                })
                .collect();
            times.sort_by(f64::total_cmp);
            println!("{weight_type:>5} {name:>5}: {:7.1} Gop/s", 2.0 * (m * n * k) as f64 / times[2] / 1e9);
        }
    }
}
