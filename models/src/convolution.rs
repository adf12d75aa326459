//! Gated convolutions (Liquid AI 2025, LFM2) as layers: their tensors and weights. Such a layer has the last inputs of its
//! convolution as a state instead of keys and values. [`crate::convolution_layer`] computes it.

use crate::gguf::Pair;
use crate::row_range::RowRange;
use crate::stack_config::StackConfig;
use crate::weight_loader::{PartNorms, WeightLoader};

const INPUTS: &str = "conv.in_proj";
const CONVOLUTION: &str = "conv.conv";
const OUTPUT: &str = "conv.out_proj";

/// Their tensors in Hugging Face checkpoints and in GGUF files.
pub(crate) const CONVOLUTION_PAIRS: [Pair; 3] =
    [(INPUTS, "shortconv.in_proj"), (CONVOLUTION, "shortconv.conv"), (OUTPUT, "shortconv.out_proj")];

/// The weights of a gated convolution, with linear layers `L` and norms `N`.
pub(crate) struct ConvolutionWeights<L, N> {
    /// Gates of the inputs, gates of the results, and inputs.
    pub(crate) inputs: L,
    /// `(width, hidden_size)`, the oldest token first.
    pub(crate) taps: Vec<f32>,
    pub(crate) output: L,
    pub(crate) norms: PartNorms<N>,
}

impl<L, N> ConvolutionWeights<L, N> {
    pub(crate) fn load<P: WeightLoader<L, N>>(parts: &P, width: usize, c: &StackConfig) -> Result<Self, P::Error> {
        let taps = parts.table(&format!("{CONVOLUTION}.weight"), c.hidden_size, width)?;
        Ok(Self {
            inputs: parts.linear(INPUTS, RowRange::all(3 * c.hidden_size), c.hidden_size, false)?,
            taps: (0..width).flat_map(|tap| taps.iter().skip(tap).step_by(width)).copied().collect(),
            output: parts.linear(OUTPUT, RowRange::all(c.hidden_size), c.hidden_size, false)?,
            norms: parts.part_norms(c.names.attention.norms, c)?,
        })
    }
}
