//! What a stack on a device begins with. The rows are made on the host by [`crate::embeddings`], so that the tables stay in
//! their files and no device holds them.

use candle_core::{DType, Device, Result, Tensor};
use probity_kernels::Isa;

use super::weights::{DeviceLoadError, DeviceLoader};
use crate::cpu::Workspace;
use crate::embeddings::{EmbeddedText, Embeddings, EmbeddingsConfig};

pub(super) struct DeviceEmbeddings {
    host: Embeddings,
    isa: Isa,
    width: usize,
    dtype: DType,
    device: Device,
}

impl DeviceEmbeddings {
    pub(super) fn load(
        loader: &DeviceLoader<'_>,
        config: &EmbeddingsConfig,
    ) -> std::result::Result<Self, DeviceLoadError> {
        Ok(Self {
            host: Embeddings::load(&loader.weights, config)?,
            isa: loader.weights.compute.isa,
            width: config.width,
            dtype: loader.dtype,
            device: loader.device.clone(),
        })
    }

    /// The rows of some stretches of text, `(tokens, width)`.
    pub(super) fn rows(&self, texts: &[EmbeddedText<'_>]) -> Result<Tensor> {
        let mut w = Workspace::default();
        self.host.rows(self.isa, &mut w, texts)?;
        // Rounded before they go over: half as many bytes.
        Tensor::from_slice(&w.x, ((), self.width), &Device::Cpu)?.to_dtype(self.dtype)?.to_device(&self.device)
    }

    /// No rows.
    pub(super) fn none(&self) -> Result<Tensor> {
        // A part of some: devices have no memory of no length.
        Tensor::zeros((1, self.width), self.dtype, &self.device)?.narrow(0, 0, 0)
    }
}
