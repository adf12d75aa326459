//! Weights on a device: matrices as they are in the file where they are quantised, and what multiplies with them.

use std::ops::Range;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{CpuStorage, D, DType, Device, Result, Storage, Tensor};
use candle_nn::ops::{layer_norm, rms_norm};
use probity_kernels::WeightType;
use rayon::prelude::*;

use crate::cpu::{NormKind, norm_names};
use crate::layer::WeightLoader;
use crate::row_range::RowRange;
use crate::{RawTensor, SourceError, linear};

/// Weights that are widened at a time, so that a head of a large vocabulary needs little memory while it is multiplied
/// with: 32 MiB of f32.
pub(super) const WIDENED_WEIGHTS: usize = 1 << 23;

/// Why weights did not arrive on the device.
#[derive(thiserror::Error, miette::Diagnostic, Debug)]
#[error(transparent)]
pub(super) enum DeviceLoadError {
    #[diagnostic(transparent)]
    Source(#[from] SourceError),
    Device(#[from] candle_core::Error),
}

type Loaded<T> = std::result::Result<T, DeviceLoadError>;

/// Tensors of a checkpoint on their way to devices.
pub(super) struct DeviceLoader<'a> {
    pub(super) weights: linear::TensorLoader<'a>,
    /// Each with the number of its first layer, among those of all stacks.
    stages: &'a [(Device, usize)],
    /// How many layers come before those that are loaded.
    layers_before: usize,
    /// Where tensors go: at first to the last device.
    pub(super) device: &'a Device,
    /// Of activations, and of what is added to them or scales them.
    pub(super) dtype: DType,
    /// Whether products are those of f32: all weights are kept as they are in the file and widened for each product.
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

    /// For so many layers that come after so many others: what belongs to no layer goes to the device of the last one.
    pub(super) fn of_layers(&self, before: usize, count: usize) -> Self {
        let device = self.device_of(before + count.saturating_sub(1));
        Self { device, layers_before: before, ..self.under("") }
    }

    /// The devices of the layers that are loaded, which are so many, and of each device its layers.
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

    /// The same devices, and the tensors of another part.
    pub(super) fn of(&self, weights: linear::TensorLoader<'a>) -> Self {
        Self { weights, ..*self }
    }

    /// The same part for activations in f32.
    pub(super) fn in_f32(&self) -> Self {
        Self { dtype: DType::F32, ..self.under("") }
    }

    /// The tensor of that name, dequantised.
    pub(super) fn tensor(&self, name: &str, shape: &[usize]) -> Loaded<Tensor> {
        self.arrived(self.weights.floats(name, shape)?, shape)
    }

    /// Those rows, so wide, of a matrix.
    pub(super) fn matrix(&self, name: &str, rows: RowRange, width: usize) -> Loaded<DeviceMatrix> {
        let raw = self.weights.raw_matrix(name, rows, width)?;
        let matrix = DeviceMatrix::new(&raw, self)?;
        // Its pages in the file would hold it in memory a second time.
        raw.bytes.release();
        Ok(matrix)
    }

    fn arrived(&self, values: Vec<f32>, shape: &[usize]) -> Loaded<Tensor> {
        // Rounded before it goes over: there is never an f32 copy on the device.
        Ok(Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(self.dtype)?.to_device(self.device)?)
    }
}

impl WeightLoader<DeviceLinear, DeviceNorm> for DeviceLoader<'_> {
    type Error = DeviceLoadError;

    fn under(&self, more: &str) -> Self {
        self.of(self.weights.under(more))
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

    fn has(&self, name: &str) -> bool {
        self.weights.contains(name)
    }

    fn norm(&self, name: &str, width: usize, (kind, eps): (NormKind, f64)) -> Loaded<DeviceNorm> {
        let (weight, bias) = norm_names(name, kind, |name| self.weights.contains(name));
        // Settled in f32, before it is rounded.
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

/// A matrix `(out_features, in_features)`, rows in parts that are widened one after another.
pub(super) struct DeviceMatrix {
    parts: Vec<HeldWeights>,
}

/// Weights as a device holds them.
enum HeldWeights {
    Floats(Tensor),
    /// Blocks of integers, as they are in the file; whether products widen them, or round activations to such blocks too.
    Quantised {
        blocks: Arc<QTensor>,
        widened: bool,
    },
}

/// What candle calls a type of floats.
fn float_type(weight_type: WeightType) -> Option<DType> {
    match weight_type {
        WeightType::F32 => Some(DType::F32),
        WeightType::F16 => Some(DType::F16),
        WeightType::BF16 => Some(DType::BF16),
        _ => None,
    }
}

/// What candle calls a type of blocks; plain floats have none.
fn block_type(weight_type: WeightType) -> Option<GgmlDType> {
    match weight_type {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => None,
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

/// Weights in another type of floats; on the processor bf16 is widened on all its threads.
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

impl HeldWeights {
    fn new(raw: &RawTensor, bytes: &[u8], rows: usize, loader: &DeviceLoader<'_>) -> Result<Self> {
        let shape = (rows, raw.shape[1]);
        if let Some(dtype) = float_type(raw.weight_type) {
            let stored = Tensor::from_raw_buffer(bytes, dtype, &[rows, raw.shape[1]], &Device::Cpu)?;
            // Products in bf16 have both sides in it; those in f32 under `fast` are of heads, where widening each time
            // would cost more than it saves.
            let held = if loader.exact { stored } else { stored.to_dtype(loader.dtype)? };
            return Ok(Self::Floats(held.to_device(loader.device)?));
        }
        let blocks = block_type(raw.weight_type).expect("what is no float has blocks");
        // Candle reads blocks where they lie as if they were aligned.
        let mut aligned = vec![0u32; bytes.len().div_ceil(4)];
        let aligned: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut aligned)[..bytes.len()];
        aligned.copy_from_slice(bytes);
        let storage = QStorage::from_data((&*aligned).into(), loader.device, blocks)?;
        Ok(Self::Quantised { blocks: Arc::new(QTensor::new(storage, shape)?), widened: loader.exact })
    }

    /// `x · Wᵀ` in the type of `x`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            // For one row candle takes another way than for many, and the bits differ: nothing here can promise them.
            Self::Floats(weight) => x.matmul(&widen_floats(weight, x.dtype())?.t()?),
            Self::Quantised { blocks, widened: true } => {
                x.matmul(&blocks.dequantize(x.device())?.to_dtype(x.dtype())?.t()?)
            }
            Self::Quantised { blocks, widened: false } => {
                let x = x.contiguous()?;
                // Metal's kernels read f32 alone.
                let inputs = if x.device().is_metal() { x.to_dtype(DType::F32)? } else { x.clone() };
                inputs.apply_op1_no_bwd(blocks.as_ref())?.to_dtype(x.dtype())
            }
        }
    }
}

impl DeviceMatrix {
    fn new(raw: &RawTensor, loader: &DeviceLoader<'_>) -> Loaded<Self> {
        let [rows, width] = raw.shape[..] else { unreachable!("a matrix has rows and a width") };
        // What is not widened is multiplied with at once.
        let is_widened = loader.exact && raw.weight_type != WeightType::F32;
        let at_once = if is_widened { (WIDENED_WEIGHTS / width.max(1)).max(1) } else { rows.max(1) };
        let row_bytes = raw.weight_type.row_bytes(width).expect("checked when it was read");
        let part = |first: usize| {
            let count = at_once.min(rows - first);
            HeldWeights::new(raw, &raw.bytes[first * row_bytes..(first + count) * row_bytes], count, loader)
        };
        Ok(Self { parts: (0..rows).step_by(at_once).map(part).collect::<Result<_>>()? })
    }

    /// `x · Wᵀ` of `(rows, in_features)`, in the type of `x`.
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
    pub(super) fn of_floats(weight: Tensor) -> Self {
        Self { weight: DeviceMatrix { parts: vec![HeldWeights::Floats(weight)] }, bias: None }
    }

    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.weight.forward(x)?;
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
    }
}

pub(super) struct DeviceNorm {
    /// In f32 where there is a bias.
    weight: Tensor,
    bias: Option<Tensor>,
    eps: f32,
}

impl DeviceNorm {
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Some(bias) = &self.bias else { return rms_norm(x, &self.weight, self.eps) };
        // Candle's kernel has the variance from the difference of two sums, in which little is left where the mean is
        // large: rows go there without it.
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
            // Some rows of what is held, as a part of a product's weights is.
            let held = numbers.to_dtype(dtype).and_then(|x| x.narrow(0, 3, 290)).expect("rounds");
            let (ours, candle) = (widen_floats(&held, DType::F32), held.to_dtype(DType::F32));
            let (ours, candle) = (ours.expect("widens"), candle.expect("widens"));
            assert_eq!((bits(&ours), ours.shape()), (bits(&candle), candle.shape()), "{dtype:?}");
        }
    }
}
