//! Weight loading: matrices are packed for products, embeddings are read row by row from the file.

use std::ops::Range;
use std::sync::Arc;

use probity_kernels::{Matrix, MatrixProduct, PackedMatrix, ProductForm, WeightType, dequantise};
use rayon::prelude::*;

use crate::row_range::RowRange;
use crate::{Arithmetic, Compute, RawTensor, SourceError, TensorBytes, WeightSource};

/// Loads rows of a weight matrix `(out_features, in_features)` of the given width, packs them for products and releases
/// their file pages.
pub(crate) fn load_packed(
    source: &dyn WeightSource,
    name: &str,
    rows: RowRange,
    width: usize,
    compute: Compute,
) -> Result<PackedMatrix, SourceError> {
    pack(&matrix_rows(source, name, rows, width)?, name, compute)
}

/// Packs a matrix for products and releases its file pages.
fn pack(raw: &RawTensor, name: &str, compute: Compute) -> Result<PackedMatrix, SourceError> {
    let form = ProductForm::for_weight_type(raw.weight_type, compute.arithmetic);
    let no_memory = |error: std::io::Error| SourceError::NoMemory {
        name: name.to_owned(),
        bytes: raw.bytes.len(),
        why: error.to_string(),
    };
    let packed = PackedMatrix::pack(matrix(raw), form).map_err(no_memory)?;
    // Packing has read the whole tensor. Its file pages would keep the weights in memory a second time.
    raw.bytes.release();
    Ok(packed)
}

/// Loads a tensor and checks its shape and that its rows are whole blocks.
fn tensor_of_shape(source: &dyn WeightSource, name: &str, shape: &[usize]) -> Result<RawTensor, SourceError> {
    checked_shape(source.tensor(name)?, source, name, shape)
}

fn checked_shape(
    raw: RawTensor,
    source: &dyn WeightSource,
    name: &str,
    shape: &[usize],
) -> Result<RawTensor, SourceError> {
    let width = shape.last().copied().unwrap_or(1);
    let why = if raw.shape != shape {
        format!("expected shape {shape:?}, found {:?}", raw.shape)
    } else if raw.weight_type.row_bytes(width).is_none() {
        format!("rows of {width} weights are not a whole number of {} blocks", raw.weight_type)
    } else {
        return Ok(raw);
    };
    Err(SourceError::Invalid { name: name.to_owned(), path: source.path(), why })
}

/// Selects rows of a matrix.
fn matrix_rows(source: &dyn WeightSource, name: &str, rows: RowRange, width: usize) -> Result<RawTensor, SourceError> {
    let mut raw = source.tensor(name)?;
    // Experts' matrices are stored in one three-dimensional tensor.
    if let [experts, rows, width] = raw.shape[..] {
        raw.shape = vec![experts * rows, width];
    }
    // GGUF files store a matrix of one row as a vector.
    if let ([width], 1) = (&raw.shape[..], rows.of) {
        raw.shape = vec![1, *width];
    }
    let raw = checked_shape(raw, source, name, &[rows.of, width])?;
    let row = raw.weight_type.row_bytes(width).expect("whole blocks");
    let bytes = raw.bytes.part(rows.first * row..(rows.first + rows.len) * row);
    Ok(RawTensor { shape: vec![rows.len, width], bytes, ..raw })
}

/// A copy of the listed rows of a matrix, one range after another.
fn copied_rows(raw: &RawTensor, rows: &[Range<usize>]) -> RawTensor {
    let (width, count) = (raw.shape[1], rows.iter().map(Range::len).sum());
    let row = raw.weight_type.row_bytes(width).expect("whole blocks");
    let bytes: Vec<u8> =
        rows.iter().map(|rows| &raw.bytes[rows.start * row..rows.end * row]).collect::<Vec<_>>().concat();
    raw.bytes.release();
    let all = 0..bytes.len();
    let bytes = TensorBytes::slice(Arc::new(bytes), all).expect("all bytes");
    RawTensor { shape: vec![count, width], weight_type: raw.weight_type, bytes }
}

/// Selected elements of a vector as f32.
pub(crate) fn load_elements(source: &dyn WeightSource, name: &str, rows: RowRange) -> Result<Vec<f32>, SourceError> {
    let mut raw = source.tensor(name)?;
    // Experts' vectors are the rows of one matrix.
    if let [experts, rows] = raw.shape[..] {
        raw.shape = vec![experts * rows];
    }
    Ok(floats(&checked_shape(raw, source, name, &[rows.of])?)[rows.first..][..rows.len].to_vec())
}

fn floats(raw: &RawTensor) -> Vec<f32> {
    let mut values = vec![0.0; raw.shape.iter().product()];
    dequantise(raw.weight_type, &raw.bytes, 0, &mut values);
    raw.bytes.release();
    values
}

fn matrix(raw: &RawTensor) -> Matrix<'_> {
    Matrix::new(raw.weight_type, &raw.bytes, raw.shape[0], raw.shape[1]).expect("checked when loaded")
}

/// A tensor's elements as f32, such as a norm's weight or a bias. Releases its file pages.
pub(crate) fn load_floats(source: &dyn WeightSource, name: &str, shape: &[usize]) -> Result<Vec<f32>, SourceError> {
    Ok(floats(&tensor_of_shape(source, name, shape)?))
}

/// Token embeddings `(vocab_size, hidden_size)`, read from the file on demand.
pub(crate) struct TokenEmbedding {
    raw: RawTensor,
}

impl TokenEmbedding {
    pub(crate) fn load(source: &dyn WeightSource, name: &str, shape: [usize; 2]) -> Result<Self, SourceError> {
        let raw = tensor_of_shape(source, name, &shape)?;
        // An earlier pass over all weights, to check for NaN or to pack a tied head, has brought all pages into memory.
        // A text needs only a few rows.
        raw.bytes.release();
        Ok(Self { raw })
    }

    /// Writes the rows of the tokens to `x`, `(tokens, hidden_size)`. A token outside the vocabulary is an error.
    pub(crate) fn rows(&self, tokens: &[u32], x: &mut [f32]) -> candle_core::Result<()> {
        let matrix = matrix(&self.raw);
        if let Some(token) = tokens.iter().find(|token| **token as usize >= matrix.out_features()) {
            candle_core::bail!("token {token} is outside the vocabulary of {}", matrix.out_features());
        }
        let rows = x.par_chunks_exact_mut(matrix.in_features()).with_min_len(16);
        rows.zip(tokens).for_each(|(row, token)| dequantise(matrix.weight_type(), matrix.row(*token as usize), 0, row));
        Ok(())
    }

    /// Releases the memory pages of rows that were read.
    pub(crate) fn release(&self) {
        self.raw.bytes.release();
    }
}

/// Loads the tensors under a name prefix for a [`Compute`].
pub(crate) struct TensorLoader<'a> {
    pub(crate) source: &'a dyn WeightSource,
    /// The name prefix.
    prefix: String,
    pub(crate) compute: Compute,
}

impl<'a> TensorLoader<'a> {
    pub(crate) fn new(source: &'a dyn WeightSource, prefix: &str, compute: Compute) -> Self {
        Self { source, prefix: prefix.to_owned(), compute }
    }

    /// A loader with `more` appended to the prefix.
    pub(crate) fn under(&self, more: &str) -> Self {
        Self { source: self.source, prefix: format!("{}{more}", self.prefix), compute: self.compute }
    }

    /// The same loader for products that round only the weights.
    pub(crate) fn unrounded(&self) -> Self {
        Self { compute: Compute { arithmetic: Arithmetic::Exact, ..self.compute }, ..self.under("") }
    }

    /// A loader with `more` appended to the prefix, unless the checkpoint omits `more`, which is detected by `names`.
    pub(crate) fn under_optional(&self, more: &str, names: &[&str]) -> Self {
        let under = self.under(more);
        if names.iter().any(|name| under.contains(name)) { under } else { self.under("") }
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The first of `names` that the checkpoint contains, or else the first name.
    pub(crate) fn first_of<'b>(&self, names: &[&'b str]) -> &'b str {
        // If none exists, the later error reports the usual name.
        names.iter().find(|name| self.contains(name)).or(names.first()).expect("a name at least")
    }

    /// The same for products, whose names end with `.weight`.
    pub(crate) fn first_linear_of<'b>(&self, names: &[&'b str]) -> &'b str {
        let is_there = |name: &&&str| self.contains(&format!("{name}.weight"));
        names.iter().find(is_there).or(names.first()).expect("a name at least")
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.source.contains(&self.name(name))
    }

    /// See [`Linear::load`].
    pub(crate) fn linear(&self, name: &str, rows: RowRange, width: usize, bias: bool) -> Result<Linear, SourceError> {
        Linear::load(self.source, &self.name(name), (rows, width), bias, self.compute)
    }

    /// A product of the listed rows, one range after another, of the tensor `name`, which has `of` rows.
    pub(crate) fn linear_rows(
        &self,
        name: &str,
        rows: &[Range<usize>],
        of: usize,
        width: usize,
    ) -> Result<Linear, SourceError> {
        let raw = self.raw_rows(name, rows, of, width)?;
        Ok(Linear { weight: pack(&raw, &self.name(name), self.compute)?, bias: None })
    }

    /// The listed rows of a matrix in the file's storage type.
    pub(crate) fn raw_rows(
        &self,
        name: &str,
        rows: &[Range<usize>],
        of: usize,
        width: usize,
    ) -> Result<RawTensor, SourceError> {
        match rows {
            [one] => self.raw_matrix(name, RowRange { first: one.start, len: one.len(), of }, width),
            _ => Ok(copied_rows(&self.raw_matrix(name, RowRange::all(of), width)?, rows)),
        }
    }

    /// All elements of a matrix. A dimension of one between its two is allowed.
    pub(crate) fn table(&self, name: &str, rows: usize, width: usize) -> Result<Vec<f32>, SourceError> {
        Ok(floats(&self.raw_matrix(name, RowRange::all(rows), width)?))
    }

    /// See [`load_packed`].
    pub(crate) fn packed(&self, name: &str, [rows, width]: [usize; 2]) -> Result<PackedMatrix, SourceError> {
        load_packed(self.source, &self.name(name), RowRange::all(rows), width, self.compute)
    }

    /// Selected rows of a matrix in the file's storage type, with the given width.
    pub(crate) fn raw_matrix(&self, name: &str, rows: RowRange, width: usize) -> Result<RawTensor, SourceError> {
        matrix_rows(self.source, &self.name(name), rows, width)
    }

    /// See [`load_elements`].
    pub(crate) fn elements(&self, name: &str, rows: RowRange) -> Result<Vec<f32>, SourceError> {
        load_elements(self.source, &self.name(name), rows)
    }

    /// See [`load_floats`].
    pub(crate) fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, SourceError> {
        load_floats(self.source, &self.name(name), shape)
    }

    /// See [`TokenEmbedding::load`].
    pub(crate) fn embedding(&self, name: &str, shape: [usize; 2]) -> Result<TokenEmbedding, SourceError> {
        TokenEmbedding::load(self.source, &self.name(name), shape)
    }
}

/// `x · Wᵀ + b`.
pub(crate) struct Linear {
    pub(crate) weight: PackedMatrix,
    pub(crate) bias: Option<Vec<f32>>,
}

impl Linear {
    /// Loads rows of `{name}.weight`, of the given width, and of `{name}.bias` if `bias` is true.
    pub(crate) fn load(
        source: &dyn WeightSource,
        name: &str,
        (rows, width): (RowRange, usize),
        bias: bool,
        compute: Compute,
    ) -> Result<Self, SourceError> {
        let weight = load_packed(source, &format!("{name}.weight"), rows, width, compute)?;
        let bias = bias.then(|| load_elements(source, &format!("{name}.bias"), rows)).transpose()?;
        Ok(Self { weight, bias })
    }

    pub(crate) fn out_features(&self) -> usize {
        self.weight.out_features()
    }

    pub(crate) fn form(&self) -> ProductForm {
        self.weight.form()
    }

    /// The weight, and the bias if there is one.
    pub(crate) fn weights(&self) -> (&PackedMatrix, Option<&[f32]>) {
        (&self.weight, self.bias.as_deref())
    }

    /// The product with a call's inputs, written to `y` `(rows, out_features)`.
    pub(crate) fn product<'a>(&'a self, y: &'a mut [f32]) -> MatrixProduct<'a> {
        MatrixProduct { weights: &self.weight, bias: self.bias.as_deref(), y, add: false }
    }
}

/// The storage types of a checkpoint by share of bytes, largest first: `Q4_1, Q8_0, F32`.
pub fn weight_types(source: &dyn WeightSource) -> Vec<(WeightType, usize)> {
    let mut bytes: Vec<(WeightType, usize)> = WeightType::ALL.iter().map(|t| (*t, 0)).collect();
    for (weight_type, len) in source.names().iter().filter_map(|name| source.stored(name).ok()) {
        if let Some((_, sum)) = bytes.iter_mut().find(|(t, _)| *t == weight_type) {
            *sum += len;
        }
    }
    bytes.retain(|(_, sum)| *sum > 0);
    bytes.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    bytes
}
