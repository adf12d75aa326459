//! The arithmetics of matrix products.

use crate::{Isa, WeightType};

/// How much a product may round beyond f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Weights at their stored values, f32 activations, sums and products.
    Exact,
    /// Where the weights allow it, activations of 8 bits (quantised weights) or in bf16 (bf16 weights).
    Fast,
}

/// What activations are rounded to and how a product is summed. Each form gives the same bits on every instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// `y ← fma(x, w, y)` over ascending `k`, in f32.
    Float,
    /// Activations in 8 bits, one scale (the largest magnitude over 127) for each 32. Per group of weights that share a scale, ascending:
    /// `y ← fma(Σ u·a, d_w · d_a, y)`, then, where the format has minima, `y ← fma(m_w, d_a · Σ a, y)`.
    Int8,
    /// Activations in bf16, and for each pair of `k`, ascending: `y ← fma(x₁, w₁, y)`, then `y ← fma(x₀, w₀, y)`, in f32 without
    /// denormals, as the bf16 dot product of AVX-512 does.
    Pairs,
    /// Activations in bf16, and for each 32 `k`, ascending: `y ← y + (Σ x₂ᵢ w₂ᵢ + Σ x₂ᵢ₊₁ w₂ᵢ₊₁)`, both sums chains of fused
    /// multiply-adds from zero, in f32 without denormals, as the bf16 tiles of AMX do.
    Tiles,
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Float, Self::Int8, Self::Pairs, Self::Tiles];

    /// The form of `arithmetic` for a weight type. For bf16 weights that depends on the machine, not on the instruction set in use: tiles
    /// where it has them, else pairs where it has these, else exact arithmetic, which is the fastest then.
    pub fn of(weight_type: WeightType, arithmetic: Arithmetic) -> Self {
        match (arithmetic, weight_type) {
            (Arithmetic::Fast, WeightType::BF16) if Isa::Amx.is_available() => Self::Tiles,
            (Arithmetic::Fast, WeightType::BF16) if crate::isa::has_bf16_dot() => Self::Pairs,
            (Arithmetic::Fast, _) if weight_type.is_quantised() => Self::Int8,
            _ => Self::Float,
        }
    }

    /// Whether weights of this type can be multiplied so.
    pub fn suits(self, weight_type: WeightType) -> bool {
        match self {
            Self::Float => true,
            Self::Int8 => weight_type.is_quantised(),
            Self::Pairs | Self::Tiles => weight_type == WeightType::BF16,
        }
    }

    /// Its name in results: `float`, `int8`, `bf16-pairs`, `bf16-tiles`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Int8 => "int8",
            Self::Pairs => "bf16-pairs",
            Self::Tiles => "bf16-tiles",
        }
    }

    /// Columns whose weights are expanded at a time: what stays in the first-level cache.
    pub(crate) const fn chunk(self) -> usize {
        match self {
            Self::Float => 256,
            _ => 512,
        }
    }
}
