//! Matrix products `y = x · Wᵀ` over packed weights.
//!
//! Every output element is summed over `k` in one ascending order, for any number of rows and threads and any
//! instruction set: threads and vectors divide the outputs, never the sum. A thread takes a few panels of 32 outputs
//! and processes `k` in chunks. It expands a chunk of a panel into the first-level cache and multiplies all rows with
//! it, one register tile at a time.

use std::ops::Range;

use rayon::prelude::*;

use crate::activation::{Activation, activate_lanes};
use crate::inputs::Inputs;
use crate::isa::dispatch;
use crate::output::{OutputColumns, PackedActivations};
use crate::pack::{PANEL, PackedMatrix};
use crate::simd::{LANES, Simd};
use crate::tiles::PanelSums;
use crate::worker::{FEW_ROWS, PanelStrip, with_scratch};
use crate::{Isa, ProductForm};

/// Rows whose activations and sums stay in the second-level cache while a thread iterates over its panels; a multiple
/// of every tile.
const ROW_BLOCK: usize = 576;
/// Panels that a thread processes together, chunk by chunk, if there are many rows.
const GROUP: usize = 8;

/// One of several products of the same activations.
pub struct MatrixProduct<'a> {
    /// The weights `(out_features, in_features)`.
    pub weights: &'a PackedMatrix,
    /// Added to each row, `out_features` long.
    pub bias: Option<&'a [f32]>,
    /// The result `(rows, out_features)`.
    pub y: &'a mut [f32],
    /// Whether the product is added to `y` or replaces it.
    pub add: bool,
}

/// Computes `y = x · Wᵀ + b` for each of `products`. `inputs` must be packed in the form of its weights.
pub fn matmul(isa: Isa, inputs: &Inputs, products: &mut [MatrixProduct<'_>]) {
    let mut tasks = Vec::new();
    let mut targets = Vec::with_capacity(products.len());
    let group = group_len(inputs, products.iter().map(|p| p.weights.panels()).sum());
    for (index, product) in products.iter_mut().enumerate() {
        check(inputs, product.weights, product.bias);
        let panels = product.weights.panels();
        tasks.extend((0..panels).step_by(group).map(|first| (index, first..panels.min(first + group))));
        let target = SumTarget { weights: product.weights, bias: product.bias, add: product.add };
        targets.push((target, OutputColumns::new(product.y, inputs.rows(), product.weights.out_features())));
    }
    tasks.into_par_iter().for_each(|(index, panels)| {
        let (target, y) = &targets[index];
        let strips: Vec<PanelStrip<'_>> = panels.clone().map(|panel| PanelStrip { weights: target.weights, panel }).collect();
        with_scratch(|scratch| {
            for rows in row_blocks(inputs.rows()) {
                let rows_held = scratch.sums(isa, inputs, &strips, rows.clone());
                let (block, sums) = ((&panels, &rows), &*scratch.sums);
                dispatch!(isa, write_sums(y: &OutputColumns<'_>, block: (&Range<usize>, &Range<usize>), sums: &[PanelSums], rows_held: usize, target: &SumTarget<'_>));
            }
        });
    });
}

/// The first half of a feed-forward layer: one product with an activation, which optionally gates a second product.
#[derive(Clone, Copy)]
pub struct Activated<'a> {
    /// The function applied to the first product.
    pub activation: Activation,
    /// Weights and bias of the activated product.
    pub gate: (&'a PackedMatrix, Option<&'a [f32]>),
    /// Weights and bias of the product that it gates, if the layer is gated.
    pub up: Option<(&'a PackedMatrix, Option<&'a [f32]>)>,
}

/// Computes `activation(x · Gᵀ + b)`, times `x · Uᵀ + c` if the layer is gated, and packs it into `to` for products in
/// `form`.
pub fn activated_matmul(isa: Isa, inputs: &Inputs, layer: &Activated<'_>, to: &mut Inputs, form: ProductForm) {
    let (gate, up) = (layer.gate, layer.up);
    for (weights, bias) in [gate].into_iter().chain(up) {
        check(inputs, weights, bias);
        assert_eq!(weights.out_features(), gate.0.out_features(), "gate and up are of one width");
    }
    let panels = gate.0.panels();
    // A gated layer has two panels of weights per panel of results.
    let group = group_len(inputs, panels).div_ceil(if up.is_some() { 2 } else { 1 });
    to.fill(isa, (inputs.rows(), gate.0.out_features()), form, |to| {
        (0..panels.div_ceil(group)).into_par_iter().for_each(|index| {
            let panels = index * group..panels.min((index + 1) * group);
            let strips = [gate].into_iter().chain(up).flat_map(|(weights, _)| panels.clone().map(move |panel| PanelStrip { weights, panel }));
            let strips: Vec<PanelStrip<'_>> = strips.collect();
            with_scratch(|scratch| {
                for rows in row_blocks(inputs.rows()) {
                    let rows_held = scratch.sums(isa, inputs, &strips, rows.clone());
                    let (gates, ups) = scratch.sums.split_at_mut(panels.len() * rows_held);
                    // The padding of the last tile is not used.
                    let held = |slot: usize| slot * rows_held..slot * rows_held + rows.len();
                    for (slot, panel) in panels.clone().enumerate() {
                        let gates = &mut gates[held(slot)];
                        add_bias(isa, gates, gate.1, panel);
                        let ups = up.map(|(_, bias)| {
                            let ups = &mut ups[held(slot)];
                            add_bias(isa, ups, bias, panel);
                            &*ups
                        });
                        let (activation, gates, at) = (layer.activation, &*gates, (panel, rows.start));
                        dispatch!(isa, activate_sums(activation: Activation, gates: &[PanelSums], ups: Option<&[PanelSums]>, to: &PackedActivations<'_>, at: (usize, usize)));
                    }
                }
            });
        });
    });
}

fn check(inputs: &Inputs, weights: &PackedMatrix, bias: Option<&[f32]>) {
    assert_eq!(inputs.width(), weights.in_features(), "activations and weights are of one width");
    assert!(bias.is_none_or(|bias| bias.len() == weights.out_features()), "a bias for each output");
}

/// Activates some rows' sums over a panel and writes them, `at` the panel and the first row.
#[inline(always)]
fn activate_sums<S: Simd>(
    activation: Activation,
    gates: &[PanelSums],
    ups: Option<&[PanelSums]>,
    to: &PackedActivations<'_>,
    at: (usize, usize),
) {
    for (index, gate) in gates.iter().enumerate() {
        let mut values = [[0.0; LANES]; 2];
        for half in 0..2 {
            activate_lanes::<S>(activation, &gate[half], ups.map(|ups| &ups[index][half]), &mut values[half]);
        }
        // SAFETY: the task that computed this panel is the only one that writes it.
        unsafe { to.write::<S>(at.1 + index, at.0, &values) };
    }
}

fn add_bias(isa: Isa, sums: &mut [PanelSums], bias: Option<&[f32]>, panel: usize) {
    let Some(bias) = bias else { return };
    let bias = &bias[panel * PANEL..bias.len().min((panel + 1) * PANEL)];
    // Columns outside the matrix are ignored.
    let mut lanes = [[0.0; LANES]; 2];
    lanes.as_flattened_mut()[..bias.len()].copy_from_slice(bias);
    let bias = &lanes;
    dispatch!(isa, add_lanes(sums: &mut [PanelSums], bias: &[[f32; LANES]; 2]));
}

#[inline(always)]
fn add_lanes<S: Simd>(sums: &mut [PanelSums], bias: &[[f32; LANES]; 2]) {
    for sums in sums {
        for half in 0..2 {
            S::store(S::add(S::load(&sums[half]), S::load(&bias[half])), &mut sums[half]);
        }
    }
}

/// Panels per task: enough tasks for all threads, and large enough that activations are read from the cache.
fn group_len(inputs: &Inputs, panels: usize) -> usize {
    if inputs.rows() <= FEW_ROWS { 1 } else { (panels / (2 * rayon::current_num_threads())).clamp(1, GROUP) }
}

pub(crate) fn row_blocks(rows: usize) -> impl Iterator<Item = Range<usize>> {
    // Blocks of similar size, so that no small last block reads all weights again. 48 is a multiple of all register
    // tiles and of tiles of sixteen rows.
    let block = rows.div_ceil(rows.div_ceil(ROW_BLOCK).max(1)).next_multiple_of(48);
    (0..rows).step_by(block.max(1)).map(move |first| first..rows.min(first + block))
}

/// The destination of a product's sums.
struct SumTarget<'a> {
    weights: &'a PackedMatrix,
    bias: Option<&'a [f32]>,
    add: bool,
}

/// Writes the sums of some rows over some panels, `(panel, rows_held)`, to panels that no other thread writes.
#[inline(always)]
fn write_sums<S: Simd>(
    y: &OutputColumns<'_>,
    block: (&Range<usize>, &Range<usize>),
    sums: &[PanelSums],
    rows_held: usize,
    target: &SumTarget<'_>,
) {
    let (panels, rows) = block;
    for (index, row) in rows.clone().enumerate() {
        for (slot, panel) in panels.clone().enumerate() {
            // SAFETY: only this task has these panels.
            let y = unsafe { y.panel(row, panel) };
            let sums = &sums[slot * rows_held + index];
            let bias = target.bias.map(|bias| &bias[panel * PANEL..][..y.len()]);
            let (whole, []) = y.as_chunks_mut::<LANES>() else {
                write_rest(y, sums.as_flattened(), bias, target.add);
                continue;
            };
            let bias = bias.map(|bias| bias.as_chunks::<LANES>().0);
            for (half, (y, sum)) in whole.iter_mut().zip(sums).enumerate() {
                let sum = S::load(sum);
                // The bias first, then the value of `y`: the same order as in `write_rest`.
                let value = if let Some(bias) = bias { S::add(sum, S::load(&bias[half])) } else { sum };
                S::store(if target.add { S::add(S::load(y), value) } else { value }, y);
            }
        }
    }
}

/// [`write_sums`] for a panel that is not a whole number of vectors.
fn write_rest(y: &mut [f32], sums: &[f32], bias: Option<&[f32]>, add: bool) {
    for (column, (y, sum)) in y.iter_mut().zip(sums).enumerate() {
        let value = bias.map_or(*sum, |bias| sum + bias[column]);
        *y = if add { *y + value } else { value };
    }
}
