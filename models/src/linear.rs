//! Weights: packed for products when they are loaded, or read row by row where they lie.

use probity_kernels::{Matrix, MatrixProduct, PackedMatrix, ProductForm, WeightType, dequantise};
use rayon::prelude::*;

use crate::row_range::RowRange;
use crate::{Arithmetic, Compute, RawTensor, SourceError, WeightSource};

/// Those rows, so wide, of a weight matrix `(out_features, in_features)`, packed for products; their pages in the file are
/// let go.
pub(crate) fn load_packed(
    source: &dyn WeightSource,
    name: &str,
    rows: RowRange,
    width: usize,
    compute: Compute,
) -> Result<PackedMatrix, SourceError> {
    let raw = matrix_rows(source, name, rows, width)?;
    let form = ProductForm::of(raw.weight_type, compute.arithmetic);
    let no_memory = |error: std::io::Error| SourceError::NoMemory {
        name: name.to_owned(),
        bytes: raw.bytes.len(),
        why: error.to_string(),
    };
    let packed = PackedMatrix::pack(matrix(&raw), form).map_err(no_memory)?;
    // Packing has read the whole tensor once: kept, its pages would hold the weights in memory a second time.
    raw.bytes.release();
    Ok(packed)
}

/// A tensor, refused where its shape is another than expected or its rows are no whole number of blocks.
fn tensor_of_shape(source: &dyn WeightSource, name: &str, shape: &[usize]) -> Result<RawTensor, SourceError> {
    of_shape(source.tensor(name)?, source, name, shape)
}

fn of_shape(raw: RawTensor, source: &dyn WeightSource, name: &str, shape: &[usize]) -> Result<RawTensor, SourceError> {
    let width = shape.last().copied().unwrap_or(1);
    let why = if raw.shape != shape {
        format!("expected shape {shape:?}, found {:?}", raw.shape)
    } else if raw.weight_type.row_bytes(width).is_none() {
        format!("rows of {width} weights are no whole number of {} blocks", raw.weight_type)
    } else {
        return Ok(raw);
    };
    Err(SourceError::Invalid { name: name.to_owned(), path: source.path(), why })
}

/// Some rows of a matrix, as a matrix of their own.
fn matrix_rows(source: &dyn WeightSource, name: &str, rows: RowRange, width: usize) -> Result<RawTensor, SourceError> {
    let mut raw = source.tensor(name)?;
    // Experts' matrices stand in one tensor of three dimensions.
    if let [experts, rows, width] = raw.shape[..] {
        raw.shape = vec![experts * rows, width];
    }
    let raw = of_shape(raw, source, name, &[rows.of, width])?;
    let row = raw.weight_type.row_bytes(width).expect("whole blocks");
    let bytes = raw.bytes.part(rows.first * row..(rows.first + rows.len) * row);
    Ok(RawTensor { shape: vec![rows.len, width], bytes, ..raw })
}

/// Those elements of a vector as f32.
pub(crate) fn load_elements(source: &dyn WeightSource, name: &str, rows: RowRange) -> Result<Vec<f32>, SourceError> {
    Ok(load_floats(source, name, &[rows.of])?[rows.first..][..rows.len].to_vec())
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

/// A tensor's elements as f32: the weight of a norm, a bias, or what a device adds; its pages in the file are let go.
pub(crate) fn load_floats(source: &dyn WeightSource, name: &str, shape: &[usize]) -> Result<Vec<f32>, SourceError> {
    Ok(floats(&tensor_of_shape(source, name, shape)?))
}

/// Token embeddings `(vocab_size, hidden_size)`, read where they lie in the file.
pub(crate) struct TokenEmbedding {
    raw: RawTensor,
}

impl TokenEmbedding {
    pub(crate) fn load(source: &dyn WeightSource, name: &str, shape: [usize; 2]) -> Result<Self, SourceError> {
        let raw = tensor_of_shape(source, name, &shape)?;
        // Whoever looked at all weights before, for numbers that are none or to pack a tied head, brought all pages
        // into memory; a text needs a few rows.
        raw.bytes.release();
        Ok(Self { raw })
    }

    /// Writes the tokens' rows to `x`, `(tokens, hidden_size)`. A token outside the vocabulary is an error.
    pub(crate) fn rows(&self, tokens: &[u32], x: &mut [f32]) -> candle_core::Result<()> {
        let matrix = matrix(&self.raw);
        if let Some(token) = tokens.iter().find(|token| **token as usize >= matrix.out_features()) {
            candle_core::bail!("token {token} is outside the vocabulary of {}", matrix.out_features());
        }
        let rows = x.par_chunks_exact_mut(matrix.in_features()).with_min_len(16);
        rows.zip(tokens).for_each(|(row, token)| dequantise(matrix.weight_type(), matrix.row(*token as usize), 0, row));
        Ok(())
    }

    /// Gives the pages of the rows that were read back to the system.
    pub(crate) fn release(&self) {
        self.raw.bytes.release();
    }
}

/// Where the tensors of a part of a model are, and what they are packed for.
pub(crate) struct TensorLoader<'a> {
    pub(crate) source: &'a dyn WeightSource,
    /// What their names begin with.
    prefix: String,
    pub(crate) compute: Compute,
}

impl<'a> TensorLoader<'a> {
    pub(crate) fn new(source: &'a dyn WeightSource, prefix: &str, compute: Compute) -> Self {
        Self { source, prefix: prefix.to_owned(), compute }
    }

    /// The part whose names go on with `more`.
    pub(crate) fn under(&self, more: &str) -> Self {
        Self { source: self.source, prefix: format!("{}{more}", self.prefix), compute: self.compute }
    }

    /// The same part, for products that round nothing but weights.
    pub(crate) fn unrounded(&self) -> Self {
        Self { compute: Compute { arithmetic: Arithmetic::Exact, ..self.compute }, ..self.under("") }
    }

    /// The part whose names go on with `more`, or the same where the checkpoint leaves that out of them, as is seen by
    /// any of `names`.
    pub(crate) fn under_optional(&self, more: &str, names: &[&str]) -> Self {
        let under = self.under(more);
        if names.iter().any(|name| under.contains(name)) { under } else { self.under("") }
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The first of some names that the checkpoint has; where it has none, the first of all.
    pub(crate) fn first_of<'b>(&self, names: &[&'b str]) -> &'b str {
        // Where none is there, the error that follows names the usual one.
        names.iter().find(|name| self.contains(name)).or(names.first()).expect("a name at least")
    }

    /// The same of products, whose names go on with `.weight`.
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

    /// See [`load_packed`].
    pub(crate) fn packed(&self, name: &str, [rows, width]: [usize; 2]) -> Result<PackedMatrix, SourceError> {
        load_packed(self.source, &self.name(name), RowRange::all(rows), width, self.compute)
    }

    /// Those rows, so wide, of a matrix as they lie in the file.
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
    /// Loads those rows, so wide, of `{name}.weight` and, where asked, of `{name}.bias`.
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

    /// Its weight, and its bias where it has one.
    pub(crate) fn weights(&self) -> (&PackedMatrix, Option<&[f32]>) {
        (&self.weight, self.bias.as_deref())
    }

    /// The product with what the inputs of a call hold, into `y` `(rows, out_features)`.
    pub(crate) fn product<'a>(&'a self, y: &'a mut [f32]) -> MatrixProduct<'a> {
        MatrixProduct { weights: &self.weight, bias: self.bias.as_deref(), y, add: false }
    }
}

/// The storage types of a checkpoint by their share of bytes, largest first: `Q4_1, Q8_0, F32`.
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
