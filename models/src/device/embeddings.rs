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
        })
    }

    /// The rows of some stretches of text, `(tokens, width)`, on the host.
    pub(super) fn rows(&self, texts: &[EmbeddedText<'_>]) -> Result<Tensor> {
        let mut w = Workspace::default();
        self.host.rows(self.isa, &mut w, texts)?;
        // Texts of many different tokens would keep the whole table in memory beside what the device holds.
        self.host.release();
        // Rounded before they go to a device: half as many bytes.
        Tensor::from_slice(&w.x, ((), self.width), &Device::Cpu)?.to_dtype(self.dtype)
    }

    /// No rows.
    pub(super) fn none(&self) -> Result<Tensor> {
        Tensor::zeros((0, self.width), self.dtype, &Device::Cpu)
    }
}
