//! Embeddings for device models. [`crate::embeddings`] computes the rows on the host, so that tables stay in their
//! files and take no device memory.

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

    /// The embedded rows of some texts, `(tokens, width)`, on the host.
    pub(super) fn rows(&self, texts: &[EmbeddedText<'_>]) -> Result<Tensor> {
        let mut w = Workspace::default();
        self.host.rows(self.isa, &mut w, texts)?;
        // Texts with many different tokens would keep the whole table in host memory.
        self.host.release();
        // Rounded before the transfer, to halve the bytes.
        Tensor::from_slice(&w.x, ((), self.width), &Device::Cpu)?.to_dtype(self.dtype)
    }

    /// No rows.
    pub(super) fn none(&self) -> Result<Tensor> {
        Tensor::zeros((0, self.width), self.dtype, &Device::Cpu)
    }
}
