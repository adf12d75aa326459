//! What a stack begins with, over candle's operations: what [`crate::embeddings`] computes with our kernels.

use candle_core::{DType, Result, Tensor, bail};

use super::layer::{DeviceLoadError, DeviceLoader, DeviceNorm};
use crate::embeddings::{EmbeddedText, EmbeddingsConfig, PositionTable, token_places};
use crate::layer::WeightLoader as _;

pub(super) struct DeviceEmbeddings {
    /// `(vocab_size, width)`: the output head as well, where that is tied; then in f32, as heads are.
    pub(super) tokens: Tensor,
    /// Of the rows that are read.
    dtype: DType,
    scale: Option<f32>,
    /// From the first position's row on.
    positions: Option<Tensor>,
    /// Rows of the kinds of text.
    kinds: Option<Tensor>,
    norm: Option<DeviceNorm>,
}

impl DeviceEmbeddings {
    /// `is_head` where the rows of tokens are the output head too.
    pub(super) fn load(
        loader: &DeviceLoader<'_>,
        config: &EmbeddingsConfig,
        is_head: bool,
    ) -> std::result::Result<Self, DeviceLoadError> {
        let name = loader.weights.first_of(config.tokens);
        let of_tokens = if is_head { loader.in_f32() } else { loader.under("") };
        Self::with_tokens(loader, config, of_tokens.tensor(name, &[config.vocab_size, config.width])?)
    }

    /// Those of a stack whose rows of tokens are there already.
    pub(super) fn with_tokens(
        loader: &DeviceLoader<'_>,
        config: &EmbeddingsConfig,
        tokens: Tensor,
    ) -> std::result::Result<Self, DeviceLoadError> {
        let positions = |table: PositionTable| -> std::result::Result<Tensor, DeviceLoadError> {
            let all = loader.tensor(table.name, &[table.rows, config.width])?;
            Ok(all.narrow(0, table.first, table.rows - table.first)?.contiguous()?)
        };
        Ok(Self {
            tokens,
            dtype: loader.dtype,
            scale: config.scale,
            positions: config.positions.map(positions).transpose()?,
            kinds: config.types.map(|(name, rows)| loader.tensor(name, &[rows, config.width])).transpose()?,
            norm: config.norm.map(|(name, kind, eps)| loader.norm(name, config.width, (kind, eps))).transpose()?,
        })
    }

    /// The rows of some stretches of text, `(tokens, width)`.
    pub(super) fn rows(&self, texts: &[EmbeddedText<'_>]) -> Result<Tensor> {
        let rows_of = |table: &Option<Tensor>| table.as_ref().map(|table| table.dims()[0]);
        let places = token_places(texts, rows_of(&self.kinds).unwrap_or(0), rows_of(&self.positions))?;
        let tokens: Vec<u32> = texts.iter().flat_map(|text| text.tokens.iter().copied()).collect();
        let vocabulary = self.tokens.dim(0)?;
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            bail!("token {token} is outside the vocabulary of {vocabulary}");
        }
        let mut x = of_table(&self.tokens, tokens)?.to_dtype(self.dtype)?;
        if let Some(scale) = self.scale {
            x = (x * f64::from(scale))?;
        }
        // In the order in which our kernels add them.
        if let Some(kinds) = &self.kinds {
            x = (x + of_table(kinds, places.iter().map(|(_, second)| u32::from(*second)).collect())?)?;
        }
        if let Some(table) = &self.positions {
            x = (x + of_table(table, places.iter().map(|(position, _)| *position as u32).collect())?)?;
        }
        self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
    }
}

fn of_table(table: &Tensor, rows: Vec<u32>) -> Result<Tensor> {
    table.index_select(&Tensor::new(rows, table.device())?, 0)
}
