//! Matrix products `y = x · Wᵀ` over packed weights.
//!
//! Every output element is summed over `k` in one ascending order, whatever the number of rows, threads or the instruction set: threads and
//! vectors split the outputs, never the sum. A thread takes a few panels of 32 outputs and works through `k` in chunks: it expands a chunk of
//! a panel into the first-level cache and multiplies all rows with it, a register tile at a time.

use std::ops::Range;

use rayon::prelude::*;

use crate::elementwise::silu_mul_lanes;
use crate::inputs::Inputs;
use crate::isa::dispatch;
use crate::output::{Activations, Columns};
use crate::pack::{PANEL, PackedMatrix};
use crate::simd::{LANES, Simd};
use crate::tiles::Sums;
use crate::worker::{Strip, with_scratch};
use crate::{Form, Isa};

/// Rows whose activations and sums stay in the second-level cache while a thread walks over its panels; a multiple of every tile.
const ROW_BLOCK: usize = 576;
/// Panels that a thread works through together, chunk by chunk, where there are many rows.
const GROUP: usize = 8;
/// Up to this many rows, a panel is read to its end before the next: memory is the limit, and likes long stretches.
const FEW_ROWS: usize = 32;

/// One of several products of the same activations.
pub struct Product<'a> {
    /// The weights `(out_features, in_features)`.
    pub weights: &'a PackedMatrix,
    /// Added to each row, `out_features` long.
    pub bias: Option<&'a [f32]>,
    /// The result `(rows, out_features)`.
    pub y: &'a mut [f32],
    /// Whether the product is added to what `y` holds, rather than replacing it.
    pub add: bool,
}

/// `y = x · Wᵀ + b` for each of `products`, in the form of its weights, which `inputs` must hold.
pub fn matmul(isa: Isa, inputs: &Inputs, products: &mut [Product<'_>]) {
    let mut tasks = Vec::new();
    let mut targets = Vec::with_capacity(products.len());
    let group = group_len(inputs, products.iter().map(|p| p.weights.panels()).sum());
    for (index, product) in products.iter_mut().enumerate() {
        check(inputs, product.weights, product.bias);
        let panels = product.weights.panels();
        tasks.extend((0..panels).step_by(group).map(|first| (index, first..panels.min(first + group))));
        let target = Target { weights: product.weights, bias: product.bias, add: product.add };
        targets.push((target, Columns::new(product.y, inputs.rows(), product.weights.out_features())));
    }
    tasks.into_par_iter().for_each(|(index, panels)| {
        let (target, y) = &targets[index];
        let strips: Vec<Strip<'_>> = panels.clone().map(|panel| Strip { weights: target.weights, panel }).collect();
        with_scratch(|scratch| {
            for rows in row_blocks(inputs.rows()) {
                let rows_held = scratch.sums(isa, inputs, &strips, rows.clone());
                let (block, sums) = ((&panels, &rows), &*scratch.sums);
                dispatch!(isa, write_sums(y: &Columns<'_>, block: (&Range<usize>, &Range<usize>), sums: &[Sums], rows_held: usize, target: &Target<'_>));
            }
        });
    });
}

/// The two products of a gated layer, `gate` and `up` weights with their biases: `silu(x · Gᵀ + b) · (x · Uᵀ + c)`, packed into `gated` for
/// products in `form`.
pub fn gated_matmul(
    isa: Isa,
    inputs: &Inputs,
    gate: (&PackedMatrix, Option<&[f32]>),
    up: (&PackedMatrix, Option<&[f32]>),
    gated: &mut Inputs,
    form: Form,
) {
    check(inputs, gate.0, gate.1);
    check(inputs, up.0, up.1);
    assert_eq!(gate.0.out_features(), up.0.out_features(), "gate and up are of one width");
    let panels = gate.0.panels();
    let group = group_len(inputs, panels).div_ceil(2);
    gated.fill(isa, (inputs.rows(), gate.0.out_features()), form, |to| {
        (0..panels.div_ceil(group)).into_par_iter().for_each(|index| {
            let panels = index * group..panels.min((index + 1) * group);
            let strips = |weights| panels.clone().map(move |panel| Strip { weights, panel });
            let strips: Vec<Strip<'_>> = strips(gate.0).chain(strips(up.0)).collect();
            with_scratch(|scratch| {
                for rows in row_blocks(inputs.rows()) {
                    let rows_held = scratch.sums(isa, inputs, &strips, rows.clone());
                    let (gates, ups) = scratch.sums.split_at_mut(panels.len() * rows_held);
                    let both = gates.chunks_exact_mut(rows_held).zip(ups.chunks_exact_mut(rows_held));
                    for (panel, (gates, ups)) in panels.clone().zip(both) {
                        // What pads the last tile is nobody's.
                        let (gates, ups) = (&mut gates[..rows.len()], &mut ups[..rows.len()]);
                        add_bias(gates, gate.1, panel);
                        add_bias(ups, up.1, panel);
                        let (gates, ups, at) = (&*gates, &*ups, (panel, rows.start));
                        dispatch!(isa, gate_sums(gates: &[Sums], ups: &[Sums], to: &Activations<'_>, at: (usize, usize)));
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
fn gate_sums<S: Simd>(gates: &[Sums], ups: &[Sums], to: &Activations<'_>, at: (usize, usize)) {
    for (index, (gate, up)) in gates.iter().zip(ups).enumerate() {
        let mut values = [[0.0; LANES]; 2];
        for half in 0..2 {
            silu_mul_lanes::<S>(&gate[half], &up[half], &mut values[half]);
        }
        // SAFETY: the task that computed this panel is the only one that writes it.
        unsafe { to.write::<S>(at.1 + index, at.0, &values) };
    }
}

fn add_bias(sums: &mut [Sums], bias: Option<&[f32]>, panel: usize) {
    let Some(bias) = bias else { return };
    let bias = &bias[panel * PANEL..bias.len().min((panel + 1) * PANEL)];
    for sums in sums {
        sums.as_flattened_mut().iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
    }
}

/// Panels of a task: enough tasks for all threads, large enough that activations are read from the cache.
fn group_len(inputs: &Inputs, panels: usize) -> usize {
    if inputs.rows() <= FEW_ROWS { 1 } else { (panels / (2 * rayon::current_num_threads())).clamp(1, GROUP) }
}

pub(crate) fn row_blocks(rows: usize) -> impl Iterator<Item = Range<usize>> {
    // Blocks of about one size, so that no last block of few rows reads all weights again.
    let block = rows.div_ceil(rows.div_ceil(ROW_BLOCK).max(1)).next_multiple_of(48);
    (0..rows).step_by(block.max(1)).map(move |first| first..rows.min(first + block))
}

/// What becomes of a product's sums.
struct Target<'a> {
    weights: &'a PackedMatrix,
    bias: Option<&'a [f32]>,
    add: bool,
}

/// Writes the sums of some rows over some panels, `(panel, rows_held)`, to panels that no other thread writes.
#[inline(always)]
fn write_sums<S: Simd>(y: &Columns<'_>, block: (&Range<usize>, &Range<usize>), sums: &[Sums], rows_held: usize, target: &Target<'_>) {
    let (panels, rows) = block;
    for (index, row) in rows.clone().enumerate() {
        for (slot, panel) in panels.clone().enumerate() {
            // SAFETY: this task alone has these panels.
            let y = unsafe { y.panel(row, panel) };
            let sums = &sums[slot * rows_held + index];
            let bias = target.bias.map(|bias| &bias[panel * PANEL..][..y.len()]);
            match (y.as_chunks_mut::<LANES>(), bias) {
                (([a, b], []), None) => {
                    for (y, sum) in [a, b].into_iter().zip(sums) {
                        let sum = S::load(sum);
                        S::store(if target.add { S::add(S::load(y), sum) } else { sum }, y);
                    }
                }
                _ => write_rest(y, sums.as_flattened(), bias, target.add),
            }
        }
    }
}

/// [`write_sums`] for a panel with a bias, or one that is not whole.
fn write_rest(y: &mut [f32], sums: &[f32], bias: Option<&[f32]>, add: bool) {
    for (column, (y, sum)) in y.iter_mut().zip(sums).enumerate() {
        let value = bias.map_or(*sum, |bias| sum + bias[column]);
        *y = if add { *y + value } else { value };
    }
}
