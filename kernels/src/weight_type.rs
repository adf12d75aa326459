//! Storage types of weights: plain floats and the block formats of GGUF.

use std::fmt;

/// The storage type of a weight tensor, row-major, each row a whole number of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, reason = "the names that GGUF files and their tools use")]
pub enum WeightType {
    /// 32-bit float.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// 32 weights: an f16 scale, 8-bit integers.
    Q8_0,
    /// 32 weights: an f16 scale, 4-bit integers around 8.
    Q4_0,
    /// 32 weights: an f16 scale and minimum, 4-bit integers.
    Q4_1,
    /// 32 weights: an f16 scale, 5-bit integers around 16.
    Q5_0,
    /// 32 weights: an f16 scale and minimum, 5-bit integers.
    Q5_1,
    /// 256 weights in 8 groups: f16 super-scales, 6-bit scales and minima, 4-bit integers.
    Q4_K,
    /// 256 weights in 8 groups: f16 super-scales, 6-bit scales and minima, 5-bit integers.
    Q5_K,
    /// 256 weights in 16 groups: an f16 super-scale, 8-bit scales, 6-bit integers around 32.
    Q6_K,
    /// 32 weights: an 8-bit exponent as the scale, 4-bit floats (Open Compute Project, *Microscaling Formats*, 2023).
    MXFP4,
}

/// Twice the value of each 4-bit float of [`WeightType::MXFP4`], plus 12: the largest magnitude.
pub(crate) const FLOATS4: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

impl WeightType {
    /// All types, plain floats first.
    pub const ALL: [Self; 12] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::MXFP4,
    ];

    /// Weights per block; 1 for plain floats.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::MXFP4 => 32,
            Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
        }
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
            Self::MXFP4 => 17,
        }
    }

    /// Whether weights are in blocks with scales.
    pub const fn is_quantised(self) -> bool {
        self.block_len() > 1
    }

    /// Bytes of a row of `len` weights; `None` if `len` is not a multiple of the block length or the size overflows.
    pub const fn row_bytes(self, len: usize) -> Option<usize> {
        if len.is_multiple_of(self.block_len()) {
            (len / self.block_len()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }

    /// The type's name in GGUF.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q4_K => "Q4_K",
            Self::Q5_K => "Q5_K",
            Self::Q6_K => "Q6_K",
            Self::MXFP4 => "MXFP4",
        }
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
