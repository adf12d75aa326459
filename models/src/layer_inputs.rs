//! Inputs that the layers of a decoder receive beside the residual stream: for each layer a row of a second token
//! table, added to a projection of the embedded token (per-layer embeddings, Gemma Team 2025).

use candle_core::Result;
use probity_kernels::{Isa, PackedMatrix, add_scaled, matmul};

use crate::SourceError;
use crate::cpu::{NormWeights, Workspace};
use crate::linear::{TensorLoader, TokenEmbedding};
use crate::row_range::RowRange;
use crate::stack_config::StackConfig;

/// The configuration of the inputs of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerInputConfig {
    /// Width of a layer's input.
    pub width: usize,
    /// Rows of the token table.
    pub vocab_size: usize,
}

/// The token table `(vocab_size, layers · width)`.
pub(crate) const TABLE: &str = "embed_tokens_per_layer.weight";
/// The projection of embedded tokens to all layers.
pub(crate) const PROJECTION: &str = "per_layer_model_projection";
/// The norm of each layer's part of the projection.
pub(crate) const NORM: &str = "per_layer_projection_norm";
/// Factor of the sum of both parts.
pub(crate) const SUM_SCALE: f32 = std::f32::consts::FRAC_1_SQRT_2;

/// Factors of the projection and of the token table.
pub(crate) fn scales(hidden_size: usize, width: usize) -> (f32, f32) {
    ((hidden_size as f64).powf(-0.5) as f32, (width as f64).sqrt() as f32)
}

/// The inputs of all layers, on our kernels.
pub(crate) struct LayerInputs {
    table: TokenEmbedding,
    projection: PackedMatrix,
    norm: NormWeights,
    /// Of the projection and of the table.
    scales: (f32, f32),
}

impl LayerInputs {
    pub(crate) fn load(
        loader: &TensorLoader<'_>,
        LayerInputConfig { width, vocab_size }: LayerInputConfig,
        c: &StackConfig,
    ) -> std::result::Result<Self, SourceError> {
        let all = width * c.layers.len();
        Ok(Self {
            projection: loader.linear(PROJECTION, RowRange::all(all), c.hidden_size, false)?.weight,
            norm: NormWeights::load(loader, NORM, width, (c.norm, c.norm_eps))?,
            table: loader.embedding(TABLE, [vocab_size, all])?,
            scales: scales(c.hidden_size, width),
        })
    }

    /// Computes the inputs of all layers `(tokens, layers · width)` from the embedded tokens in `w.x`.
    pub(crate) fn compute(&self, w: &mut Workspace, isa: Isa, tokens: &[u32]) -> Result<()> {
        let all = self.projection.out_features();
        w.inputs.set(isa, &w.x, self.projection.in_features(), [self.projection.form()]);
        w.layer_inputs.set_len(tokens.len() * all);
        let y = &mut *w.layer_inputs;
        let product = probity_kernels::MatrixProduct { weights: &self.projection, bias: None, y, add: false };
        matmul(isa, &w.inputs, &mut [product]);
        let (projected, table) = self.scales;
        w.layer_inputs.iter_mut().for_each(|x| *x *= projected);
        w.normalise_layer_inputs(isa, self.norm.norm());
        // The table's rows, in a buffer that the layers use only later.
        w.branch.set_len(tokens.len() * all);
        self.table.rows(tokens, &mut w.branch)?;
        add_scaled(&w.branch, table, &mut w.layer_inputs);
        w.layer_inputs.iter_mut().for_each(|x| *x *= SUM_SCALE);
        Ok(())
    }
}
