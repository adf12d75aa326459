//! Weights on a device, which stay quantised if they are quantised in the file, and their products.

use std::ops::Range;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{CpuStorage, D, DType, Device, Result, Storage, Tensor};
use candle_nn::ops::{layer_norm, rms_norm};
use probity_kernels::{WeightType, dequantise};
use rayon::prelude::*;

use crate::cpu::{NormKind, norm_names};
use crate::row_range::RowRange;
use crate::weight_loader::WeightLoader;
use crate::{RawTensor, SourceError, linear};

/// Number of weights converted at a time, which bounds the temporary memory of a large vocabulary's head: 32 MiB of
/// f32.
pub(super) const WIDENED_WEIGHTS: usize = 1 << 23;

/// Why loading weights to a device failed.
#[derive(thiserror::Error, miette::Diagnostic, Debug)]
#[error(transparent)]
pub(super) enum DeviceLoadError {
    #[diagnostic(transparent)]
    Source(#[from] SourceError),
    Device(#[from] candle_core::Error),
}

type Loaded<T> = std::result::Result<T, DeviceLoadError>;

/// Loads tensors of a checkpoint to devices.
pub(super) struct DeviceLoader<'a> {
    pub(super) weights: linear::TensorLoader<'a>,
    /// Each device with its first layer, counted over all stacks.
    stages: &'a [(Device, usize)],
    /// Number of layers before those being loaded.
    layers_before: usize,
    /// The target of tensors, initially the last device.
    pub(super) device: &'a Device,
    /// Type of activations and of their biases and scales.
    pub(super) dtype: DType,
    /// Whether products are exact in f32: weights are stored as in the file and converted for each product.
    pub(super) exact: bool,
}

impl<'a> DeviceLoader<'a> {
    pub(super) fn new(
        weights: linear::TensorLoader<'a>,
        stages: &'a [(Device, usize)],
        (dtype, exact): (DType, bool),
    ) -> Self {
        let device = &stages.last().expect("a model is on a device").0;
        Self { weights, stages, layers_before: 0, device, dtype, exact }
    }

    /// A loader for `count` layers after `before` others. Tensors outside the layers go to the device of the last one.
    pub(super) fn for_layers(&self, before: usize, count: usize) -> Self {
        let device = self.device_of(before + count.saturating_sub(1));
        Self { device, layers_before: before, ..self.under("") }
    }

    /// The devices of the next `count` layers, with each device's layers.
    pub(super) fn stages(&self, count: usize) -> Vec<(&'a Device, Range<usize>)> {
        let mut stages: Vec<(&Device, Range<usize>)> = Vec::new();
        for layer in 0..count {
            let device = self.device_of(self.layers_before + layer);
            match stages.last_mut().filter(|(last, _)| std::ptr::eq(*last, device)) {
                Some((_, layers)) => layers.end += 1,
                None => stages.push((device, layer..layer + 1)),
            }
        }
        stages
    }

    fn device_of(&self, layer: usize) -> &'a Device {
        let (device, _) =
            self.stages.iter().rfind(|(_, first)| *first <= layer).expect("the first device has the first layer");
        device
    }

    /// The same devices with another part of the tensors.
    pub(super) fn with_weights(&self, weights: linear::TensorLoader<'a>) -> Self {
        Self { weights, ..*self }
    }

    /// The same part for f32 activations.
    pub(super) fn in_f32(&self) -> Self {
        Self { dtype: DType::F32, ..self.under("") }
    }

    /// Loads a tensor, dequantised.
    pub(super) fn tensor(&self, name: &str, shape: &[usize]) -> Loaded<Tensor> {
        self.arrived(self.weights.floats(name, shape)?, shape)
    }

    /// Loads rows of a matrix with the given width.
    pub(super) fn matrix(&self, name: &str, rows: RowRange, width: usize) -> Loaded<DeviceMatrix> {
        let raw = self.weights.raw_matrix(name, rows, width)?;
        let matrix = DeviceMatrix::new(&raw, self)?;
        // Its file pages would keep it in memory a second time.
        raw.bytes.release();
        Ok(matrix)
    }

    fn arrived(&self, values: Vec<f32>, shape: &[usize]) -> Loaded<Tensor> {
        // Rounded before the transfer, so that the device never holds an f32 copy.
        Ok(Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(self.dtype)?.to_device(self.device)?)
    }
}

impl WeightLoader<DeviceLinear, DeviceNorm> for DeviceLoader<'_> {
    type Error = DeviceLoadError;

    fn under(&self, more: &str) -> Self {
        self.with_weights(self.weights.under(more))
    }

    fn layer(&self, layers: &str, index: usize) -> Self {
        Self { device: self.device_of(self.layers_before + index), ..self.under(&format!("{layers}.{index}.")) }
    }

    fn unrounded(&self) -> Self {
        Self { exact: true, ..self.in_f32() }
    }

    fn linear(&self, name: &str, rows: RowRange, width: usize, bias: bool) -> Loaded<DeviceLinear> {
        let weight = self.matrix(&format!("{name}.weight"), rows, width)?;
        let bias = bias.then(|| self.weights.elements(&format!("{name}.bias"), rows)).transpose()?;
        let bias = bias.map(|values| self.arrived(values, &[rows.len])).transpose()?;
        Ok(DeviceLinear { weight, bias })
    }

    fn plain_norm(&self, width: usize, (_, eps): (NormKind, f64)) -> Loaded<DeviceNorm> {
        Ok(DeviceNorm { weight: self.arrived(vec![1.0; width], &[width])?, bias: None, eps: eps as f32 })
    }

    fn rows(&self, name: &str, rows: &[Range<usize>], of: usize, width: usize) -> Loaded<DeviceLinear> {
        let raw = self.weights.raw_rows(name, rows, of, width)?;
        let weight = DeviceMatrix::new(&raw, self)?;
        raw.bytes.release();
        Ok(DeviceLinear { weight, bias: None })
    }

    fn table(&self, name: &str, rows: usize, width: usize) -> Loaded<Vec<f32>> {
        Ok(self.weights.table(name, rows, width)?)
    }

    fn elements(&self, name: &str, len: usize) -> Loaded<Vec<f32>> {
        Ok(self.weights.floats(name, &[len])?)
    }

    fn has(&self, name: &str) -> bool {
        self.weights.contains(name)
    }

    fn norm(&self, name: &str, width: usize, (kind, eps): (NormKind, f64)) -> Loaded<DeviceNorm> {
        let (weight, bias) = norm_names(name, kind, |name| self.weights.contains(name));
        // The norm's factor is computed in f32, before rounding.
        let mut values = self.weights.floats(&weight, &[width])?;
        kind.settle(&mut values);
        let loader =
            if matches!(kind, NormKind::Layer | NormKind::LayerWithoutBias) { self.in_f32() } else { self.under("") };
        let bias = match kind {
            NormKind::LayerWithoutBias => Some(loader.arrived(vec![0.0; width], &[width])?),
            _ => bias.map(|name| loader.tensor(&name, &[width])).transpose()?,
        };
        Ok(DeviceNorm { weight: loader.arrived(values, &[width])?, bias, eps: eps as f32 })
    }
}

/// A matrix `(out_features, in_features)`, in parts of rows that are converted one at a time.
pub(super) struct DeviceMatrix {
    parts: Vec<HeldWeights>,
}

/// Weights as stored on a device.
enum HeldWeights {
    Floats(Tensor),
    /// Quantised blocks as in the file. The flag selects whether products convert them to f32 or quantise the
    /// activations as well.
    Quantised {
        blocks: Arc<QTensor>,
        widened: bool,
    },
}

/// candle's name of a float type.
fn float_type(weight_type: WeightType) -> Option<DType> {
    match weight_type {
        WeightType::F32 => Some(DType::F32),
        WeightType::F16 => Some(DType::F16),
        WeightType::BF16 => Some(DType::BF16),
        _ => None,
    }
}

/// candle's name of a block type; `None` for floats, and for blocks that candle does not know.
pub(super) fn block_type(weight_type: WeightType) -> Option<GgmlDType> {
    match weight_type {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 | WeightType::MXFP4 => None,
        WeightType::Q8_0 => Some(GgmlDType::Q8_0),
        WeightType::Q4_0 => Some(GgmlDType::Q4_0),
        WeightType::Q4_1 => Some(GgmlDType::Q4_1),
        WeightType::Q5_0 => Some(GgmlDType::Q5_0),
        WeightType::Q5_1 => Some(GgmlDType::Q5_1),
        WeightType::Q4_K => Some(GgmlDType::Q4K),
        WeightType::Q5_K => Some(GgmlDType::Q5K),
        WeightType::Q6_K => Some(GgmlDType::Q6K),
    }
}

/// Converts weights to another float type; on the CPU, bf16 is converted on all threads.
fn widen_floats(weight: &Tensor, dtype: DType) -> Result<Tensor> {
    if dtype == DType::F32 && weight.is_contiguous() {
        let (storage, layout) = weight.storage_and_layout();
        if let Storage::Cpu(CpuStorage::BF16(all)) = &*storage {
            let values = &all[layout.start_offset()..][..weight.elem_count()];
            let values: Vec<f32> = values.par_iter().with_min_len(1 << 14).map(|x| x.to_f32()).collect();
            return Tensor::from_vec(values, weight.shape(), weight.device());
        }
    }
    weight.to_dtype(dtype)
}

/// Blocks that candle does not know, as bf16. It has every value of MXFP4.
fn floats_of_blocks(weight_type: WeightType, bytes: &[u8], shape: (usize, usize)) -> Result<Tensor> {
    let mut values = vec![0.0; shape.0 * shape.1];
    let row_bytes = weight_type.row_bytes(shape.1).expect("checked when it was read");
    let rows = values.par_chunks_mut(shape.1.max(1)).zip(bytes.par_chunks(row_bytes.max(1)));
    rows.for_each(|(row, bytes)| dequantise(weight_type, bytes, 0, row));
    Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(DType::BF16)
}

impl HeldWeights {
    fn new(raw: &RawTensor, bytes: &[u8], rows: usize, loader: &DeviceLoader<'_>) -> Result<Self> {
        let shape = (rows, raw.shape[1]);
        let Some(blocks) = block_type(raw.weight_type) else {
            let stored = match float_type(raw.weight_type) {
                Some(dtype) => Tensor::from_raw_buffer(bytes, dtype, &[rows, raw.shape[1]], &Device::Cpu)?,
                None => floats_of_blocks(raw.weight_type, bytes, shape)?,
            };
            // In bf16 products both sides are bf16. Products in f32 under `fast` are those of heads, where conversion
            // on each use would cost more than it saves.
            let held = if loader.exact { stored } else { stored.to_dtype(loader.dtype)? };
            return Ok(Self::Floats(held.to_device(loader.device)?));
        };
        // candle casts block pointers without checking alignment.
        let mut aligned = vec![0u32; bytes.len().div_ceil(4)];
        let aligned: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut aligned)[..bytes.len()];
        aligned.copy_from_slice(bytes);
        let storage = QStorage::from_data((&*aligned).into(), loader.device, blocks)?;
        Ok(Self::Quantised { blocks: Arc::new(QTensor::new(storage, shape)?), widened: loader.exact })
    }

    /// `x · Wᵀ` in the type of `x`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            // candle uses another algorithm for a single row, with different bits, so no bits can be guaranteed here.
            Self::Floats(weight) => x.matmul(&widen_floats(weight, x.dtype())?.t()?),
            Self::Quantised { blocks, widened: true } => {
                x.matmul(&blocks.dequantize(x.device())?.to_dtype(x.dtype())?.t()?)
            }
            Self::Quantised { blocks, widened: false } => {
                let x = x.contiguous()?;
                // Metal's kernels only read f32.
                let inputs = if x.device().is_metal() { x.to_dtype(DType::F32)? } else { x.clone() };
                inputs.apply_op1_no_bwd(blocks.as_ref())?.to_dtype(x.dtype())
            }
        }
    }
}

impl DeviceMatrix {
    fn new(raw: &RawTensor, loader: &DeviceLoader<'_>) -> Loaded<Self> {
        let [rows, width] = raw.shape[..] else { unreachable!("a matrix has rows and a width") };
        // Weights that are not converted are multiplied in one product.
        let is_widened = loader.exact && raw.weight_type != WeightType::F32;
        let at_once = if is_widened { (WIDENED_WEIGHTS / width.max(1)).max(1) } else { rows.max(1) };
        let row_bytes = raw.weight_type.row_bytes(width).expect("checked when it was read");
        let part = |first: usize| {
            let count = at_once.min(rows - first);
            HeldWeights::new(raw, &raw.bytes[first * row_bytes..(first + count) * row_bytes], count, loader)
        };
        Ok(Self { parts: (0..rows).step_by(at_once).map(part).collect::<Result<_>>()? })
    }

    /// `x · Wᵀ` for `x` of shape `(rows, in_features)`, in the type of `x`.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.parts[..] {
            [all] => all.forward(x),
            parts => Tensor::cat(&parts.iter().map(|part| part.forward(x)).collect::<Result<Vec<_>>>()?, 1),
        }
    }
}

pub(super) struct DeviceLinear {
    weight: DeviceMatrix,
    bias: Option<Tensor>,
}

impl DeviceLinear {
    #[cfg(test)]
    pub(super) fn from_floats(weight: Tensor) -> Self {
        Self { weight: DeviceMatrix { parts: vec![HeldWeights::Floats(weight)] }, bias: None }
    }

    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.weight.forward(x)?;
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
    }
}

pub(super) struct DeviceNorm {
    /// In f32 if there is a bias.
    weight: Tensor,
    bias: Option<Tensor>,
    eps: f32,
}

impl DeviceNorm {
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Some(bias) = &self.bias else { return rms_norm(x, &self.weight, self.eps) };
        // candle's kernel computes the variance as a difference of two sums, which is inaccurate for a large mean, so
        // the mean is subtracted first.
        let wide = x.to_dtype(DType::F32)?;
        let centred = wide.broadcast_sub(&wide.mean_keepdim(D::Minus1)?)?;
        layer_norm(&centred, &self.weight, bias, self.eps)?.to_dtype(x.dtype())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_widened_on_all_threads_to_the_bits_of_one() {
        let values: Vec<f32> = (0..300 * 200).map(|at| (at * 7919 % 10_007) as f32 / 5003.5 - 1.0).collect();
        let numbers = Tensor::from_vec(values, (300, 200), &Device::Cpu).expect("a matrix");
        let bits = |x: &Tensor| -> Vec<u32> {
            let values: Vec<f32> = x.flatten_all().and_then(|x| x.to_vec1()).expect("floats");
            values.into_iter().map(f32::to_bits).collect()
        };
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            // A range of the stored rows, as in a part of a product's weights.
            let held = numbers.to_dtype(dtype).and_then(|x| x.narrow(0, 3, 290)).expect("rounds");
            let (ours, candle) = (widen_floats(&held, DType::F32), held.to_dtype(DType::F32));
            let (ours, candle) = (ours.expect("widens"), candle.expect("widens"));
            assert_eq!((bits(&ours), ours.shape()), (bits(&candle), candle.shape()), "{dtype:?}");
        }
    }
}
