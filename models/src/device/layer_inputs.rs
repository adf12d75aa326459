//! The inputs of layers on a device; the counterpart of [`crate::layer_inputs`].

use candle_core::{Device, Result, Tensor};

use super::stack::moved;
use super::weights::{DeviceLinear, DeviceLoadError, DeviceLoader, DeviceNorm};
use crate::layer_inputs::{LayerInputConfig, NORM, PROJECTION, SUM_SCALE, TABLE, scales};
use crate::linear::TokenEmbedding;
use crate::row_range::RowRange;
use crate::stack_config::StackConfig;
use crate::weight_loader::WeightLoader as _;

/// The token table stays in its file; the projection is on the device.
pub(super) struct DeviceLayerInputs {
    table: TokenEmbedding,
    projection: DeviceLinear,
    norm: DeviceNorm,
    /// Of the projection and of the table.
    scales: (f32, f32),
    layers: usize,
    width: usize,
    device: Device,
}

impl DeviceLayerInputs {
    pub(super) fn load(
        loader: &DeviceLoader<'_>,
        LayerInputConfig { width, vocab_size }: LayerInputConfig,
        c: &StackConfig,
    ) -> std::result::Result<Self, DeviceLoadError> {
        let layers = c.layers.len();
        Ok(Self {
            table: loader.weights.embedding(TABLE, [vocab_size, layers * width])?,
            projection: loader.linear(PROJECTION, RowRange::all(layers * width), c.hidden_size, false)?,
            norm: loader.norm(NORM, width, (c.norm, c.norm_eps))?,
            scales: scales(c.hidden_size, width),
            layers,
            width,
            device: loader.device.clone(),
        })
    }

    /// The inputs of all layers `(tokens, layers · width)`, from the embedded tokens `x`.
    pub(super) fn compute(&self, x: &Tensor, tokens: &[u32]) -> Result<Tensor> {
        let shape = (tokens.len(), self.layers, self.width);
        let mut rows = vec![0.0; tokens.len() * self.layers * self.width];
        self.table.rows(tokens, &mut rows)?;
        self.table.release();
        let (projected, table) = self.scales;
        let rows = (Tensor::from_vec(rows, shape, &Device::Cpu)? * f64::from(table))?;
        let rows = rows.to_dtype(x.dtype())?.to_device(&self.device)?;
        let made = (self.projection.forward(&moved(x, &self.device)?)? * f64::from(projected))?;
        let made = self.norm.forward(&made.reshape(shape)?)?;
        ((made + rows)? * f64::from(SUM_SCALE))?.flatten_from(1)
    }
}
