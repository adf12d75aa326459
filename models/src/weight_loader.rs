//! Loading weights for an executor. The executors are [`crate::transformer`], with our kernels, and [`crate::device`],
//! with candle operations.

use std::ops::Range;

use crate::cpu::NormKind;
use crate::row_range::RowRange;
use crate::stack_config::{NormNames, StackConfig};

/// Loads weights for an executor, as linear layers `L` and norms `N`.
pub(crate) trait WeightLoader<L, N>: Sized {
    type Error;

    /// A loader with `more` appended to the name prefix.
    fn under(&self, more: &str) -> Self;

    /// A loader for layer `index` under `layers`.
    fn layer(&self, layers: &str, index: usize) -> Self {
        self.under(&format!("{layers}.{index}."))
    }

    /// The same loader, for products that are not rounded if that costs little.
    fn unrounded(&self) -> Self;

    /// Loads rows of `{name}.weight`, of the given `width`, and of `{name}.bias` if `bias` is true.
    fn linear(&self, name: &str, rows: RowRange, width: usize, bias: bool) -> Result<L, Self::Error>;

    /// Loads the listed rows, one range after another, of the tensor `name`, which has `of` rows of the given width.
    fn rows(&self, name: &str, rows: &[Range<usize>], of: usize, width: usize) -> Result<L, Self::Error>;

    /// Loads a norm of `width` elements with its epsilon.
    fn norm(&self, name: &str, width: usize, kind: (NormKind, f64)) -> Result<N, Self::Error>;

    /// A norm of `width` elements whose factors are one.
    fn plain_norm(&self, width: usize, kind: (NormKind, f64)) -> Result<N, Self::Error>;

    /// Loads all `len` elements of the tensor `name`.
    fn elements(&self, name: &str, len: usize) -> Result<Vec<f32>, Self::Error>;

    /// Loads all elements of the matrix `name`, `(rows, width)`. A dimension of one between the two is allowed.
    fn table(&self, name: &str, rows: usize, width: usize) -> Result<Vec<f32>, Self::Error>;

    /// Whether the checkpoint contains the tensor `name`.
    fn has(&self, name: &str) -> bool;

    fn norm_of(&self, name: &str, c: &StackConfig) -> Result<N, Self::Error> {
        self.norm(name, c.hidden_size, (c.norm, c.norm_eps))
    }

    fn part_norms(&self, names: NormNames, c: &StackConfig) -> Result<PartNorms<N>, Self::Error> {
        let load = |name: Option<&str>| name.map(|name| self.norm_of(name, c)).transpose();
        Ok(PartNorms { stream: load(names.stream)?, branch: load(names.branch)? })
    }
}

/// The norms of a sublayer.
pub(crate) struct PartNorms<N> {
    /// Norm of the sublayer's input (pre-norm) or of the sum after it (post-norm).
    pub(crate) stream: Option<N>,
    /// Norm of the sublayer's output before it is added.
    pub(crate) branch: Option<N>,
}
