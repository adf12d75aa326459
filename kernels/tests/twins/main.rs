//! Tests that each instruction set gives the bits of the portable implementation, and that the latter is correct.

mod attention;
mod delta;
mod products;
mod rows;

use half::{bf16, f16};
use probity_kernels::{Inputs, Isa, MatrixProduct, PackedMatrix, WeightType, matmul};

/// A small generator with an explicit seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// A float between −1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        self.bits() as f32 / (1u32 << 30) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.float()).collect()
    }

    /// Rows of random blocks with scales of normal size.
    pub(crate) fn weights(&mut self, weight_type: WeightType, rows: usize, cols: usize) -> Vec<u8> {
        self.blocks(weight_type, rows * cols, |random| random.bits() as u8)
    }

    /// Blocks of `len` weights with bytes from `byte` and scales of normal size.
    pub(crate) fn blocks(&mut self, weight_type: WeightType, len: usize, byte: impl Fn(&mut Self) -> u8) -> Vec<u8> {
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
                // 2⁻¹² to 2⁻⁵.
                WeightType::MXFP4 => block[0] = 115 + (self.bits() % 8) as u8,
                _ => {
                    block[..2].copy_from_slice(&scale(self));
                    block[2..4].copy_from_slice(&scale(self));
                }
            }
        }
        bytes
    }
}

pub(crate) fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

pub(crate) fn run_packed(isa: Isa, x: &[f32], weights: &PackedMatrix) -> Vec<f32> {
    let mut inputs = Inputs::new();
    inputs.set(isa, x, weights.in_features(), [weights.form()]);
    let mut y = vec![f32::NAN; inputs.rows() * weights.out_features()];
    matmul(isa, &inputs, &mut [MatrixProduct { weights, bias: None, y: &mut y, add: false }]);
    y
}
