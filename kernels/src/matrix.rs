//! Unpacked weight matrices, as stored in files.

use crate::WeightType;

/// Weights `(out_features, in_features)` in memory, row-major.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    weight_type: WeightType,
    bytes: &'a [u8],
    out_features: usize,
    in_features: usize,
    row_bytes: usize,
}

impl<'a> Matrix<'a> {
    /// Returns `None` unless `bytes` is exactly `out_features` rows of `in_features` weights.
    pub fn new(weight_type: WeightType, bytes: &'a [u8], out_features: usize, in_features: usize) -> Option<Self> {
        let row_bytes = weight_type.row_bytes(in_features)?;
        (row_bytes.checked_mul(out_features)? == bytes.len()).then_some(Self {
            weight_type,
            bytes,
            out_features,
            in_features,
            row_bytes,
        })
    }

    /// Rows of the matrix.
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Columns of the matrix.
    pub fn in_features(&self) -> usize {
        self.in_features
    }

    /// The storage type.
    pub fn weight_type(&self) -> WeightType {
        self.weight_type
    }

    /// The bytes of row `index`.
    pub fn row(&self, index: usize) -> &'a [u8] {
        &self.bytes[index * self.row_bytes..][..self.row_bytes]
    }
}
