//! Row ranges of tensors that hold several products.

/// A range of rows of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowRange {
    pub(crate) first: usize,
    pub(crate) len: usize,
    /// Total number of rows of the tensor.
    pub(crate) of: usize,
}

impl RowRange {
    pub(crate) fn all(len: usize) -> Self {
        Self { first: 0, len, of: len }
    }

    /// The rows of several products: all rows of separate tensors, or consecutive ranges of one tensor if all names are
    /// equal.
    pub(crate) fn of_products<const N: usize>(names: [&str; N], lens: [usize; N]) -> [Self; N] {
        let is_fused = N > 1 && names.iter().all(|name| *name == names[0]);
        let of = lens.iter().sum();
        let mut next = 0;
        lens.map(|len| {
            let first = next;
            next += len;
            if is_fused { Self { first, len, of } } else { Self::all(len) }
        })
    }
}
