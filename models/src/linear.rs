//! Weights as they lie in their file, and the operations that read them: linear layers and embeddings.

use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor, bail};
use probity_kernels::{Isa, Matrix, WeightType, dequantise, matmul, matmul_fast};

use crate::{Arithmetic, RawTensor, SourceError, WeightSource};

/// A weight matrix `(out_features, in_features)`, kept in its storage type.
pub(crate) struct Weight {
    raw: RawTensor,
    arithmetic: Arithmetic,
}

impl Weight {
    /// Takes the tensor where its shape is the one expected.
    pub(crate) fn load(
        source: &dyn WeightSource,
        name: &str,
        shape: [usize; 2],
        arithmetic: Arithmetic,
    ) -> std::result::Result<Self, SourceError> {
        let raw = tensor_of_shape(source, name, &shape)?;
        if raw.weight_type.row_bytes(shape[1]).is_none() {
            let why = format!("rows of {} weights are no whole number of {} blocks", shape[1], raw.weight_type);
            return Err(SourceError::Invalid { name: name.to_owned(), path: source.path(), why });
        }
        Ok(Self { raw, arithmetic })
    }

    fn matrix(&self) -> Matrix<'_> {
        let [out_features, in_features] = [self.raw.shape[0], self.raw.shape[1]];
        Matrix::new(self.raw.weight_type, &self.raw.bytes, out_features, in_features).expect("checked when loaded")
    }

    /// Rows of the matrix as f32: `(tokens, in_features)`.
    pub(crate) fn embed(&self, tokens: &[u32]) -> Result<Tensor> {
        let matrix = self.matrix();
        let width = matrix.in_features();
        let mut rows = vec![0.0; tokens.len() * width];
        for (token, row) in tokens.iter().zip(rows.chunks_exact_mut(width)) {
            let token = *token as usize;
            if token >= matrix.out_features() {
                bail!("token {token} is outside the vocabulary of {}", matrix.out_features());
            }
            dequantise(matrix.weight_type(), matrix.row(token), 0, row);
        }
        Tensor::from_vec(rows, (tokens.len(), width), &Device::Cpu)
    }

    /// `x · Wᵀ`.
    pub(crate) fn matmul(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op1_no_bwd(&MatMul { weight: self, bias: None })
    }
}

/// A tensor, refused where its shape is another than expected.
pub(crate) fn tensor_of_shape(source: &dyn WeightSource, name: &str, shape: &[usize]) -> std::result::Result<RawTensor, SourceError> {
    let raw = source.tensor(name)?;
    if raw.shape == shape {
        return Ok(raw);
    }
    let why = format!("expected shape {shape:?}, found {:?}", raw.shape);
    Err(SourceError::Invalid { name: name.to_owned(), path: source.path(), why })
}

/// A vector of `len` elements as f32: the weight of a norm, a bias.
pub(crate) fn load_vector(source: &dyn WeightSource, name: &str, len: usize) -> std::result::Result<Vec<f32>, SourceError> {
    let raw = tensor_of_shape(source, name, &[len])?;
    let mut values = vec![0.0; len];
    if raw.weight_type.row_bytes(len) != Some(raw.bytes.len()) {
        let why = format!("{len} elements are no whole number of {} blocks", raw.weight_type);
        return Err(SourceError::Invalid { name: name.to_owned(), path: source.path(), why });
    }
    dequantise(raw.weight_type, &raw.bytes, 0, &mut values);
    Ok(values)
}

/// `x · Wᵀ + b`.
pub(crate) struct Linear {
    weight: Weight,
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// Loads `{name}.weight` and, where asked, `{name}.bias`.
    pub(crate) fn load(
        source: &dyn WeightSource,
        name: &str,
        shape: [usize; 2],
        bias: bool,
        arithmetic: Arithmetic,
    ) -> std::result::Result<Self, SourceError> {
        let weight = Weight::load(source, &format!("{name}.weight"), shape, arithmetic)?;
        let bias = if bias { Some(load_vector(source, &format!("{name}.bias"), shape[0])?) } else { None };
        Ok(Self { weight, bias })
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op1_no_bwd(&MatMul { weight: &self.weight, bias: self.bias.as_deref() })
    }
}

struct MatMul<'a> {
    weight: &'a Weight,
    bias: Option<&'a [f32]>,
}

impl CustomOp1 for MatMul<'_> {
    fn name(&self) -> &'static str {
        "probity-matmul"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = contiguous(storage, layout)?;
        let matrix = self.weight.matrix();
        let (rows, in_features) = layout.shape().dims2()?;
        if in_features != matrix.in_features() {
            bail!("a layer of {} inputs was given {in_features}", matrix.in_features());
        }
        let mut y = vec![0.0; rows * matrix.out_features()];
        match self.weight.arithmetic {
            Arithmetic::Exact => matmul(Isa::best(), x, matrix, &mut y),
            Arithmetic::Fast => matmul_fast(Isa::best(), x, matrix, &mut y),
        }
        if let Some(bias) = self.bias {
            for row in y.chunks_exact_mut(bias.len()) {
                row.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
            }
        }
        Ok((CpuStorage::F32(y), (rows, matrix.out_features()).into()))
    }
}

/// The elements of a contiguous f32 tensor.
pub(crate) fn contiguous<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let values = storage.as_slice::<f32>()?;
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&values[start..end]),
        None => bail!("expected a contiguous {:?} tensor", DType::F32),
    }
}

/// The storage types of a checkpoint by their share of bytes, largest first: `Q4_1, Q8_0, F32`.
pub fn weight_types(source: &dyn WeightSource) -> Vec<(WeightType, usize)> {
    let mut bytes: Vec<(WeightType, usize)> = WeightType::ALL.iter().map(|t| (*t, 0)).collect();
    for raw in source.names().iter().filter_map(|name| source.tensor(name).ok()) {
        if let Some((_, sum)) = bytes.iter_mut().find(|(t, _)| *t == raw.weight_type) {
            *sum += raw.bytes.len();
        }
    }
    bytes.retain(|(_, sum)| *sum > 0);
    bytes.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    bytes
}
