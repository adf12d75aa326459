//! Gated delta nets (Yang et al. 2025, arXiv:2412.06464) as layers: their sizes, tensors and weights. Such a layer has
//! a recurrent state instead of keys and values. [`crate::delta_layer`] computes it.

use std::ops::Range;

use probity_kernels::DeltaShape;

use crate::cpu::NormKind;
use crate::gguf::Pair;
use crate::row_range::RowRange;
use crate::stack_config::{DeltaNet, StackConfig};
use crate::weight_loader::{PartNorms, WeightLoader};

const FUSED: &str = "linear_attn.in_proj_qkvz";
const FUSED_GATES: &str = "linear_attn.in_proj_ba";
const MIXED: &str = "linear_attn.in_proj_qkv";
const OUTPUT_GATE: &str = "linear_attn.in_proj_z";
const RATES: &str = "linear_attn.in_proj_b";
const STEPS: &str = "linear_attn.in_proj_a";
const CONVOLUTION: &str = "linear_attn.conv1d";
const NORM: &str = "linear_attn.norm";
const OUTPUT: &str = "linear_attn.out_proj";
const DECAY: &str = "linear_attn.A_log";
const STEP_BIAS: &str = "linear_attn.dt_bias";

/// Their tensors in Hugging Face checkpoints and in GGUF files.
pub(crate) const DELTA_PAIRS: [Pair; 11] = [
    (FUSED, "ssm_in"),
    (FUSED_GATES, "ssm_ba"),
    (MIXED, "attn_qkv"),
    (OUTPUT_GATE, "attn_gate"),
    (RATES, "ssm_beta"),
    (STEPS, "ssm_alpha"),
    (CONVOLUTION, "ssm_conv1d"),
    (NORM, "ssm_norm"),
    (OUTPUT, "ssm_out"),
    (DECAY, "ssm_a"),
    (STEP_BIAS, "ssm_dt.bias"),
];

/// The weights of a gated delta net, with linear layers `L` and norms `N`.
pub(crate) struct DeltaWeights<L, N> {
    pub(crate) shape: DeltaShape,
    /// Queries, keys and values before the convolution.
    pub(crate) mixed: L,
    /// Gates of the results.
    pub(crate) gate: L,
    /// Logits of β.
    pub(crate) rates: L,
    /// Time steps before bias and softplus.
    pub(crate) steps: L,
    /// `(width, channels)`, the oldest token first.
    pub(crate) convolution: Vec<f32>,
    pub(crate) decay: Vec<f32>,
    pub(crate) step_bias: Vec<f32>,
    /// Norm of each value head's result.
    pub(crate) norm: N,
    pub(crate) output: L,
    pub(crate) norms: PartNorms<N>,
}

/// The rows of one part of a tensor that holds all parts of a head, then those of the next head; `lens` are the rows of
/// each part of a head.
fn rows_of_part(heads: usize, lens: &[usize], part: usize) -> Vec<Range<usize>> {
    let (head, before): (usize, usize) = (lens.iter().sum(), lens[..part].iter().sum());
    (0..heads).map(|index| index * head + before..index * head + before + lens[part]).collect()
}

impl<L, N> DeltaWeights<L, N> {
    pub(crate) fn load<P: WeightLoader<L, N>>(parts: &P, delta: DeltaNet, c: &StackConfig) -> Result<Self, P::Error> {
        let s = delta.shape;
        let heads = s.value_heads;
        let linear = |name: &str, rows| parts.linear(name, RowRange::all(rows), c.hidden_size, false);
        let (mixed, gate) = if parts.has(&format!("{FUSED}.weight")) {
            fused(parts, s, c)?
        } else {
            (linear(MIXED, s.channels())?, linear(OUTPUT_GATE, s.values())?)
        };
        // Unrounded: their errors accumulate over the tokens of a text, and these products are small.
        let exact = parts.unrounded();
        let (rates, steps) = if parts.has(&format!("{FUSED_GATES}.weight")) {
            let lens = [heads / s.key_heads; 2];
            let name = format!("{FUSED_GATES}.weight");
            let load = |part| exact.rows(&name, &rows_of_part(s.key_heads, &lens, part), 2 * heads, c.hidden_size);
            (load(0)?, load(1)?)
        } else {
            let load = |name| exact.linear(name, RowRange::all(heads), c.hidden_size, false);
            (load(RATES)?, load(STEPS)?)
        };
        let taps = parts.table(&format!("{CONVOLUTION}.weight"), s.channels(), s.width)?;
        let mut decay = parts.elements(DECAY, heads)?;
        if !delta.stores_decay {
            for decay in &mut decay {
                *decay = -libm::expf(*decay);
            }
        }
        Ok(Self {
            shape: s,
            mixed,
            gate,
            rates,
            steps,
            convolution: (0..s.width).flat_map(|tap| taps.iter().skip(tap).step_by(s.width)).copied().collect(),
            decay,
            step_bias: parts.elements(STEP_BIAS, heads)?,
            // Its weight is the factor, also where those of the other norms are one less.
            norm: parts.norm(NORM, s.value_dim, (NormKind::RootMeanSquare, c.norm_eps))?,
            output: parts.linear(OUTPUT, RowRange::all(c.hidden_size), s.values(), false)?,
            norms: parts.part_norms(c.names.attention.norms, c)?,
        })
    }
}

/// Loads queries, keys and values, and the gates, from the tensor that holds all of them by key head.
fn fused<L, N, P: WeightLoader<L, N>>(parts: &P, s: DeltaShape, c: &StackConfig) -> Result<(L, L), P::Error> {
    let values = s.values() / s.key_heads;
    let lens = [s.key_dim, s.key_dim, values, values];
    let rows = |part| rows_of_part(s.key_heads, &lens, part);
    let load =
        |rows: &[Range<usize>]| parts.rows(&format!("{FUSED}.weight"), rows, s.channels() + s.values(), c.hidden_size);
    Ok((load(&[rows(0), rows(1), rows(2)].concat())?, load(&rows(3))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_all_heads_are_all_rows_once() {
        let lens = [2, 2, 6, 6];
        assert_eq!(rows_of_part(2, &lens, 2), [4..10, 20..26]);
        let mut all: Vec<usize> = (0..4).flat_map(|part| rows_of_part(2, &lens, part)).flatten().collect();
        all.sort_unstable();
        assert_eq!(all, (0..32).collect::<Vec<_>>());
    }
}
