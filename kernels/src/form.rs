//! The arithmetics of matrix products.

use crate::WeightType;

/// How much products may round beyond f32. Each gives the same bits on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Weights at their stored values, f32 activations, sums and products.
    Exact,
    /// Activations of 8 bits for quantised weights; activations in bf16 for floats, which are rounded to bf16: what the
    /// dot products of AVX-512 multiply.
    Dots,
    /// Activations and weights rounded to bf16: what the tiles of AMX multiply.
    Tiles,
}

/// What activations and weights are rounded to and how a product is summed. Each form gives the same bits on every
/// instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProductForm {
    /// `y ← fma(x, w, y)` over ascending `k`, in f32.
    Float,
    /// Activations in 8 bits, one scale (the largest magnitude over 127) for each 32. Per group of weights that share a
    /// scale, ascending: `y ← fma(Σ u·a, d_w · d_a, y)`, then, where the format has minima, `y ← fma(m_w, d_a · Σ a,
    /// y)`.
    Int8,
    /// Activations in bf16, and for each pair of `k`, ascending: `y ← fma(x₁, w₁, y)`, then `y ← fma(x₀, w₀, y)`, in
    /// f32 without denormals, as the bf16 dot product of AVX-512 does.
    Pairs,
    /// Activations and weights in bf16, and for each 32 `k`, ascending: `y ← y + (Σ x₂ᵢ w₂ᵢ + Σ x₂ᵢ₊₁ w₂ᵢ₊₁)`, both
    /// sums chains of fused multiply-adds from zero, in f32 without denormals, as the bf16 tiles of AMX do.
    Tiles,
}

impl ProductForm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Float, Self::Int8, Self::Pairs, Self::Tiles];

    /// The form of `arithmetic` for a weight type.
    pub fn of(weight_type: WeightType, arithmetic: Arithmetic) -> Self {
        match (arithmetic, weight_type) {
            (Arithmetic::Exact, _) => Self::Float,
            (Arithmetic::Tiles, _) => Self::Tiles,
            (Arithmetic::Dots, _) if weight_type.is_quantised() => Self::Int8,
            (Arithmetic::Dots, _) => Self::Pairs,
        }
    }

    /// Whether weights of this type can be multiplied so.
    pub fn suits(self, weight_type: WeightType) -> bool {
        match self {
            Self::Float | Self::Tiles => true,
            Self::Int8 => weight_type.is_quantised(),
            Self::Pairs => !weight_type.is_quantised(),
        }
    }

    /// Columns whose weights are expanded at a time: what stays in the first-level cache.
    pub(crate) const fn chunk(self) -> usize {
        // Of a panel of 32 outputs that is 32 KiB of f32 or of pairs, which are read where they lie, and 16 KiB of what
        // is expanded to bytes or for tiles. Sums go on from chunk to chunk, so that its length changes no bit.
        match self {
            Self::Float | Self::Tiles => 256,
            Self::Int8 | Self::Pairs => 512,
        }
    }
}
