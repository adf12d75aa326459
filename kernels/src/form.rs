//! The arithmetics of matrix products.

use crate::WeightType;

/// How much products may be rounded beyond f32. Each setting gives the same bits on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Weights at their stored values; activations, sums and products in f32.
    Exact,
    /// 8-bit activations for quantised weights; bf16 activations for float weights, which are rounded to bf16. The
    /// arithmetic of AVX-512's dot products.
    Dots,
    /// Activations and weights rounded to bf16, the arithmetic of AMX tiles.
    Tiles,
}

/// The rounding of activations and weights, and the order of summation. Each form gives the same bits on every
/// instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProductForm {
    /// `y ← fma(x, w, y)` over ascending `k`, in f32.
    Float,
    /// 8-bit activations, with one scale (the largest magnitude over 127) for each 32. Per group of weights that share
    /// a scale, ascending: `y ← fma(Σ u·a, d_w · d_a, y)`, then, if the format has minima, `y ← fma(m_w, d_a · Σ a,
    /// y)`.
    Int8,
    /// bf16 activations; for each pair of `k`, ascending: `y ← fma(x₁, w₁, y)`, then `y ← fma(x₀, w₀, y)`, in f32
    /// without denormals, as in the bf16 dot product of AVX-512.
    Pairs,
    /// bf16 activations and weights; for each 32 `k`, ascending: `y ← y + (Σ x₂ᵢ w₂ᵢ + Σ x₂ᵢ₊₁ w₂ᵢ₊₁)`, where both sums
    /// are chains of fused multiply-adds from zero, in f32 without denormals, as in the bf16 tiles of AMX.
    Tiles,
}

impl ProductForm {
    /// All forms.
    pub const ALL: [Self; 4] = [Self::Float, Self::Int8, Self::Pairs, Self::Tiles];

    /// The form of `arithmetic` for a weight type.
    pub fn for_weight_type(weight_type: WeightType, arithmetic: Arithmetic) -> Self {
        match (arithmetic, weight_type) {
            (Arithmetic::Exact, _) => Self::Float,
            (Arithmetic::Tiles, _) => Self::Tiles,
            (Arithmetic::Dots, _) if weight_type.is_quantised() => Self::Int8,
            (Arithmetic::Dots, _) => Self::Pairs,
        }
    }

    /// Whether weights of this type can be multiplied in this form.
    pub fn suits(self, weight_type: WeightType) -> bool {
        match self {
            Self::Float | Self::Tiles => true,
            Self::Int8 => weight_type.is_quantised(),
            Self::Pairs => !weight_type.is_quantised(),
        }
    }

    /// Columns whose weights are expanded at a time, such that they stay in the first-level cache.
    pub(crate) const fn chunk(self) -> usize {
        // For a panel of 32 outputs that is 32 KiB of f32 or of pairs, which are read in place, and 16 KiB of weights
        // expanded to bytes or for tiles. Sums continue from chunk to chunk, so the chunk length does not change
        // results.
        match self {
            Self::Float | Self::Tiles => 256,
            Self::Int8 | Self::Pairs => 512,
        }
    }
}
