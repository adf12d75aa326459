//! Matrix products `y = x · Wᵀ` over packed weights.
//!
//! Every output element is summed over `k` in one ascending order, whatever the number of rows, threads or the instruction set: threads and
//! vectors split the outputs, never the sum. A thread takes a few panels of 32 outputs and works through `k` in chunks: it expands a chunk of
//! a panel into the first-level cache and multiplies all rows with it, a register tile at a time.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::elementwise::silu_mul_lanes;
use crate::groups::{Packed, Quantised, by_type};
use crate::inputs::Inputs;
use crate::isa::dispatch;
use crate::pack::{PANEL, PackedMatrix};
use crate::simd::{LANES, Simd};
use crate::tiles::{Before, Sums, by_rows, float_tile, int_tile, pair_tile, step_tile};
use crate::unpack::{FloatPanel, IntPanel, PairPanel, Part, prefetch_behind, unpack_floats, unpack_ints, unpack_pairs};
use crate::{Form, Isa, WeightType};

/// Rows whose activations and sums stay in the second-level cache while a thread walks over its panels; a multiple of every tile.
const ROW_BLOCK: usize = 576;
/// Panels that a thread works through together, chunk by chunk, where there are many rows.
const GROUP: usize = 8;
/// Up to this many rows, a panel is read to its end before the next: memory is the limit, and likes long stretches.
const FEW_ROWS: usize = 32;
/// Up to this many rows, integers are expanded as they are multiplied.
const FEW_TILES: usize = 6;

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
        with_scratch(|scratch| {
            for rows in row_blocks(inputs.rows()) {
                let rows_held = scratch.sums(isa, target.weights, inputs, panels.clone(), rows.clone(), 0);
                let (block, sums) = ((&panels, &rows), &*scratch.sums[0]);
                dispatch!(isa, write_sums(y: &Columns<'_>, block: (&Range<usize>, &Range<usize>), sums: &[Sums], rows_held: usize, target: &Target<'_>));
            }
        });
    });
}

/// The two products of a gated layer: `y = silu(x · Gᵀ + b) · (x · Uᵀ + c)`, where `gate` and `up` are weights with their biases.
pub fn gated_matmul(isa: Isa, inputs: &Inputs, gate: (&PackedMatrix, Option<&[f32]>), up: (&PackedMatrix, Option<&[f32]>), y: &mut [f32]) {
    check(inputs, gate.0, gate.1);
    check(inputs, up.0, up.1);
    assert_eq!(gate.0.out_features(), up.0.out_features(), "gate and up are of one width");
    let panels = gate.0.panels();
    let group = group_len(inputs, panels).div_ceil(2);
    let target = Target { weights: gate.0, bias: None, add: false };
    let y = Columns::new(y, inputs.rows(), gate.0.out_features());
    (0..panels.div_ceil(group)).into_par_iter().for_each(|index| {
        let panels = index * group..panels.min((index + 1) * group);
        with_scratch(|scratch| {
            for rows in row_blocks(inputs.rows()) {
                let rows_held = scratch.sums(isa, gate.0, inputs, panels.clone(), rows.clone(), 0);
                scratch.sums(isa, up.0, inputs, panels.clone(), rows.clone(), 1);
                let [gates, ups] = &mut scratch.sums;
                let both = gates.chunks_exact_mut(rows_held).zip(ups.chunks_exact_mut(rows_held));
                for (panel, (gates, ups)) in panels.clone().zip(both) {
                    // What pads the last tile is nobody's.
                    let (gates, ups) = (&mut gates[..rows.len()], &mut ups[..rows.len()]);
                    add_bias(gates, gate.1, panel);
                    add_bias(ups, up.1, panel);
                    let ups = &*ups;
                    dispatch!(isa, gate_sums(gates: &mut [Sums], ups: &[Sums]));
                }
                let (y, block, sums, target) = (&y, (&panels, &rows), &**gates, &target);
                dispatch!(isa, write_sums(y: &Columns<'_>, block: (&Range<usize>, &Range<usize>), sums: &[Sums], rows_held: usize, target: &Target<'_>));
            }
        });
    });
}

fn check(inputs: &Inputs, weights: &PackedMatrix, bias: Option<&[f32]>) {
    assert_eq!(inputs.width(), weights.in_features(), "activations and weights are of one width");
    assert!(bias.is_none_or(|bias| bias.len() == weights.out_features()), "a bias for each output");
}

#[inline(always)]
fn gate_sums<S: Simd>(gates: &mut [Sums], ups: &[Sums]) {
    for (gate, up) in gates.iter_mut().zip(ups) {
        for half in 0..2 {
            let value = gate[half];
            silu_mul_lanes::<S>(&value, &up[half], &mut gate[half]);
        }
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

/// The output, shared by threads that each own whole panels of columns.
struct Columns<'a> {
    start: *mut f32,
    width: usize,
    rows: usize,
    _output: PhantomData<&'a mut [f32]>,
}

// SAFETY: threads reach the output only through `panel`, each for the columns of its own panels.
unsafe impl Sync for Columns<'_> {}
// SAFETY: as above; the pointer is that of a slice of plain numbers, borrowed for `'a`.
unsafe impl Send for Columns<'_> {}

impl<'a> Columns<'a> {
    fn new(y: &'a mut [f32], rows: usize, width: usize) -> Self {
        assert_eq!(y.len(), rows * width, "y is (rows, out_features)");
        Self { start: y.as_mut_ptr(), width, rows, _output: PhantomData }
    }

    /// Columns of a panel in a row, by vectors.
    ///
    /// # Safety
    /// No two threads may ask for the same panel.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "threads have panels of their own, by contract")]
    unsafe fn panel(&self, row: usize, panel: usize) -> &mut [f32] {
        let columns = panel * PANEL..self.width.min((panel + 1) * PANEL);
        assert!(row < self.rows && columns.start < columns.end, "inside the output");
        // SAFETY: row and columns lie inside the output, and by contract nobody else uses this panel.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.width + columns.start), columns.len()) }
    }
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

/// Expanded weights.
#[derive(Default)]
struct Panels {
    ints: IntPanel,
    floats: FloatPanel,
    pairs: PairPanel,
}

/// A thread's memory for expanded weights and sums, kept from product to product.
#[derive(Default)]
pub(crate) struct Scratch {
    panels: Panels,
    pub(crate) sums: [Buffer<Sums>; 2],
}

/// Lends this thread's memory.
pub(crate) fn with_scratch(work: impl FnOnce(&mut Scratch)) {
    thread_local! {
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(work);
}

impl Scratch {
    /// Sums of a block of rows over some panels, `(panel, row)` in `self.sums[slot]`; returns how many rows each panel has there, some of
    /// them padding.
    pub(crate) fn sums(
        &mut self,
        isa: Isa,
        weights: &PackedMatrix,
        inputs: &Inputs,
        panels: Range<usize>,
        rows: Range<usize>,
        slot: usize,
    ) -> usize {
        let rows_held = rows.len().next_multiple_of(16);
        let sums = &mut self.sums[slot];
        sums.set_len(panels.len() * rows_held);
        let chunk = weights.form().chunk();
        let worker = Worker::new(isa, weights, inputs);
        for start in (0..weights.in_features()).step_by(chunk) {
            let len = chunk.min(weights.in_features() - start);
            for (panel, sums) in panels.clone().zip(sums.chunks_exact_mut(rows_held)) {
                let part = Part { weights, panel, start, len };
                worker.add(part, rows.clone(), &mut self.panels, sums);
            }
        }
        rows_held
    }
}

/// How a thread multiplies: the instruction set, and tile registers where it uses them.
struct Worker<'a> {
    isa: Isa,
    inputs: &'a Inputs,
    #[cfg(target_arch = "x86_64")]
    tiles: Option<crate::amx::Tiles>,
}

impl<'a> Worker<'a> {
    fn new(isa: Isa, weights: &PackedMatrix, inputs: &'a Inputs) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let quads = if weights.form() == Form::Int8 { weights.weight_type().group_len() / 4 } else { 16 };
            let tiles = inputs.tiling(weights.form()).amx.then(|| crate::amx::Tiles::configure(quads));
            Self { isa, inputs, tiles }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self { isa, inputs }
    }

    /// Adds the products of a part to the rows' sums.
    #[inline]
    fn add(&self, part: Part<'_>, rows: Range<usize>, panels: &mut Panels, sums: &mut [Sums]) {
        let Panels { ints, floats, pairs } = panels;
        let isa = self.isa;
        let work = Work { part, rows, inputs: self.inputs };
        let work = &work;
        #[cfg(target_arch = "x86_64")]
        if let Some(tiles) = &self.tiles {
            if part.weights.form() == Form::Int8 {
                dispatch!(isa, unpack_signed(part: Part<'_>, ints: &mut IntPanel));
                // SAFETY: AVX-512 was found with the tiles.
                unsafe { int_tiles(tiles, work, ints, sums) };
            } else {
                if part.weights.weight_type() != WeightType::BF16 {
                    pairs.set_len(part.len / 2);
                    // SAFETY: a machine with tiles has AVX-512 with bf16.
                    unsafe { unpack_bf16(part, ints, pairs) };
                }
                half_tiles(tiles, work, pair_lines(part, pairs), sums);
            }
            return;
        }
        match part.weights.form() {
            Form::Float => dispatch!(isa, float_rows(work: &Work<'_>, ints: &mut IntPanel, floats: &mut FloatPanel, sums: &mut [Sums])),
            Form::Int8 => dispatch!(isa, int_rows(work: &Work<'_>, ints: &mut IntPanel, sums: &mut [Sums])),
            #[cfg(target_arch = "x86_64")]
            Form::Pairs if matches!(isa, Isa::Avx512 | Isa::Amx) && crate::isa::has_bf16_dot() => {
                // SAFETY: AVX-512 with bf16 was found just now.
                unsafe { dot_rows(work, sums) };
            }
            Form::Pairs => dispatch!(isa, pair_rows(work: &Work<'_>, sums: &mut [Sums])),
            Form::Tiles => {
                dispatch!(isa, step_rows(work: &Work<'_>, ints: &mut IntPanel, pairs: &mut PairPanel, sums: &mut [Sums]));
            }
        }
    }
}

/// Rows to be multiplied with a part of the weights.
struct Work<'a> {
    part: Part<'a>,
    rows: Range<usize>,
    inputs: &'a Inputs,
}

impl Work<'_> {
    /// `(first row of all, rows, first row of the block)` of each tile.
    #[inline(always)]
    fn tiles(&self) -> impl Iterator<Item = ((usize, usize), usize)> {
        let start = self.rows.start;
        self.inputs.tiling(self.part.weights.form()).tiles(self.rows.len()).map(move |(first, rows)| ((start + first, rows), first))
    }
}

#[inline(always)]
fn float_rows<S: Simd>(work: &Work<'_>, ints: &mut IntPanel, floats: &mut FloatPanel, sums: &mut [Sums]) {
    let part = work.part;
    let panel = if part.weights.weight_type() == WeightType::F32 {
        bytemuck::cast_slice(part.bytes())
    } else {
        unpack_floats::<S>(part, ints, floats);
        &**floats
    };
    for (tile, first) in work.tiles() {
        let x = work.inputs.float_tile(tile, part.start, part.len);
        by_rows!(tile.1, float_tile::<S>(panel, x, Before { sums: &mut sums[first..], fresh: part.start == 0 }));
    }
}

#[inline(always)]
fn int_rows<S: Simd>(work: &Work<'_>, ints: &mut IntPanel, sums: &mut [Sums]) {
    let part = work.part;
    let weight_type = part.weights.weight_type();
    if work.rows.len() <= FEW_TILES {
        by_type!(weight_type, packed_rows::<S>(work, sums));
        return;
    }
    unpack_ints::<S, false>(part, ints);
    let (group, zero) = (weight_type.group_len(), weight_type.zero());
    for (tile, first) in work.tiles() {
        let x = work.inputs.int_tile(tile, part.start, part.len, group);
        let before = Before { sums: &mut sums[first..], fresh: part.start == 0 };
        match (group, weight_type.has_minima()) {
            (16, _) => by_rows!(tile.1, int_tile::<S, 4, false>(ints, x, zero, before)),
            (_, true) => by_rows!(tile.1, int_tile::<S, 8, true>(ints, x, zero, before)),
            (_, false) => by_rows!(tile.1, int_tile::<S, 8, false>(ints, x, zero, before)),
        }
    }
}

/// A few rows with weights where they lie.
#[inline(always)]
fn packed_rows<S: Simd, T: Quantised, const QUADS: usize, const MINIMA: bool>(work: &Work<'_>, sums: &mut [Sums]) {
    let part = work.part;
    let mut weights = Packed::<T>::new(part);
    for (tile, first) in work.tiles() {
        let x = work.inputs.int_tile(tile, part.start, part.len, 4 * QUADS);
        let before = Before { sums: &mut sums[first..], fresh: part.start == 0 };
        by_rows!(tile.1, int_tile::<S, QUADS, MINIMA>(&weights, x, T::TYPE.zero(), before));
        weights.ahead = false;
    }
}

#[inline(always)]
fn pair_rows<S: Simd>(work: &Work<'_>, sums: &mut [Sums]) {
    let part = work.part;
    for (tile, first) in work.tiles() {
        let x = work.inputs.half_tile(Form::Pairs, tile, part.start, part.len);
        by_rows!(tile.1, pair_tile::<S>(part.lines(), x, Before { sums: &mut sums[first..], fresh: part.start == 0 }));
    }
}

#[inline(always)]
fn step_rows<S: Simd>(work: &Work<'_>, ints: &mut IntPanel, pairs: &mut PairPanel, sums: &mut [Sums]) {
    let part = work.part;
    unpack_tiles::<S>(part, ints, pairs);
    let panel = pair_lines(part, pairs);
    for (tile, first) in work.tiles() {
        let x = work.inputs.half_tile(Form::Tiles, tile, part.start, part.len.next_multiple_of(32));
        by_rows!(tile.1, step_tile::<S>(panel, x, Before { sums: &mut sums[first..], fresh: part.start == 0 }));
    }
}

/// Expands what is not bf16 already.
#[inline(always)]
fn unpack_tiles<S: Simd>(part: Part<'_>, ints: &mut IntPanel, pairs: &mut PairPanel) {
    if part.weights.weight_type() != WeightType::BF16 {
        unpack_pairs::<S>(part, ints, pairs);
    }
}

/// A part's weights in bf16: in place where they are stored so, else as expanded.
fn pair_lines<'a>(part: Part<'a>, pairs: &'a PairPanel) -> &'a [[[u8; 64]; 2]] {
    if part.weights.weight_type() == WeightType::BF16 { part.lines() } else { pairs }
}

/// [`unpack_pairs`](crate::unpack::unpack_pairs) on AVX-512 with bf16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
fn unpack_bf16(part: Part<'_>, ints: &mut IntPanel, pairs: &mut PairPanel) {
    use crate::x86::{Avx512, group_to_bf16};
    let weight_type = part.weights.weight_type();
    let (layout, zero) = (part.weights.layout(), weight_type.zero() as f32);
    let pairs = pairs.as_chunks_mut::<2>().0;
    if weight_type == WeightType::Q8_0 {
        // Its integers need no expanding: they are read where they lie.
        for (bytes, to) in part.bytes().chunks_exact(layout.unit_bytes).zip(pairs.chunks_exact_mut(layout.unit / 4)) {
            prefetch_behind::<Avx512>(bytes.as_ptr(), bytes.len() / 64);
            let unit = layout.parts(bytes);
            for half in 0..2 {
                let d = Avx512::load_f16(&unit.scales[half]);
                group_to_bf16::<false>(unit.low.as_chunks().0, half, (d, d, zero), to);
            }
        }
        return;
    }
    unpack_ints::<Avx512, false>(part, ints);
    let quads = weight_type.group_len() / 4;
    for (group, (quants, to)) in ints.quants.chunks_exact(quads).zip(pairs.chunks_exact_mut(quads)).enumerate() {
        for half in 0..2 {
            let (d, m) = (Avx512::load(&ints.scales[group][half]), Avx512::load(&ints.minima[group][half]));
            if weight_type.has_minima() {
                group_to_bf16::<true>(quants, half, (d, m, zero), to);
            } else {
                group_to_bf16::<false>(quants, half, (d, m, zero), to);
            }
        }
    }
}

#[inline(always)]
fn unpack_signed<S: Simd>(part: Part<'_>, ints: &mut IntPanel) {
    unpack_ints::<S, true>(part, ints);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
fn dot_rows(work: &Work<'_>, sums: &mut [Sums]) {
    use crate::x86::dot_tile;
    let part = work.part;
    for ((start, rows), first) in work.tiles() {
        let x = work.inputs.half_tile(Form::Pairs, (start, rows), part.start, part.len);
        let (panel, sums) = (part.lines(), Before { sums: &mut sums[first..], fresh: part.start == 0 });
        match rows {
            12 => dot_tile::<12>(panel, x, sums),
            6 => dot_tile::<6>(panel, x, sums),
            4 => dot_tile::<4>(panel, x, sums),
            3 => dot_tile::<3>(panel, x, sums),
            2 => dot_tile::<2>(panel, x, sums),
            _ => dot_tile::<1>(panel, x, sums),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn int_tiles(tiles: &crate::amx::Tiles, work: &Work<'_>, ints: &IntPanel, sums: &mut [Sums]) {
    use crate::amx::int_tile;
    let fresh = work.part.start == 0;
    let weight_type = work.part.weights.weight_type();
    for (sums, first) in sums.as_chunks_mut().0.iter_mut().zip((work.rows.start..).step_by(16)) {
        let x = work.inputs.int_tile((first, 16), work.part.start, work.part.len, 32);
        match (weight_type.group_len(), weight_type.has_minima()) {
            (16, _) => int_tile::<4, false>(tiles, ints, x, sums, fresh),
            (_, true) => int_tile::<8, true>(tiles, ints, x, sums, fresh),
            (_, false) => int_tile::<8, false>(tiles, ints, x, sums, fresh),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn half_tiles(tiles: &crate::amx::Tiles, work: &Work<'_>, panel: &[[[u8; 64]; 2]], sums: &mut [Sums]) {
    let part = work.part;
    // Padding behind an odd last tile is no tile.
    let sums = &mut sums[..work.rows.len().next_multiple_of(16)];
    for (sums, first) in sums.chunks_mut(32).zip((work.rows.start..).step_by(32)) {
        let tile = |first| work.inputs.half_tile(Form::Tiles, (first, 16), part.start, part.len.next_multiple_of(32));
        let both = [tile(first), if sums.len() > 16 { tile(first + 16) } else { &[] }];
        crate::amx::half_tiles(tiles, panel, both, sums, part.start == 0);
    }
}
