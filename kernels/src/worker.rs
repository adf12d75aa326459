//! A thread's work for a product: the sums of some rows over some panels of weights, in any form and on any instruction
//! set.

mod in_unit;

use std::cell::RefCell;
use std::ops::Range;

use crate::buffer::Buffer;
use crate::groups::{ExpandedWeights, IntPanel, IntProducts, PackedWeights, QuantisedType, by_type};
use crate::inputs::Inputs;
use crate::isa::{TileRegisters, dispatch};
use crate::pack::{PackedMatrix, PackedPart};
use crate::simd::Simd;
use crate::tiles::{PairTile, PanelSums, PartialSums, by_rows, float_tile, int_tile, pair_tile, step_tile};
use crate::unpack::{FloatPanel, PairPanel, unpack_floats, unpack_ints, unpack_pairs};
use crate::{Isa, ProductForm, WeightType};

/// Up to this many rows, a panel is read to its end before the next: memory bandwidth is the limit and favours long
/// sequential reads.
pub(crate) const FEW_ROWS: usize = 32;

/// A panel of a matrix.
#[derive(Clone, Copy)]
pub(crate) struct PanelStrip<'a> {
    pub(crate) weights: &'a PackedMatrix,
    pub(crate) panel: usize,
}

/// Expanded weights.
#[derive(Default)]
struct ExpandedPanels {
    ints: IntPanel,
    floats: FloatPanel,
    pairs: PairPanel,
    /// The next part's weights in bf16, if they are expanded during the current product.
    next_pairs: PairPanel,
    /// Whether `pairs` holds the next part.
    ready: bool,
}

/// A thread's memory for expanded weights and sums, reused between products.
#[derive(Default)]
pub(crate) struct WorkerScratch {
    panels: ExpandedPanels,
    pub(crate) sums: Buffer<PanelSums>,
}

/// Calls `work` with this thread's memory.
pub(crate) fn with_scratch(work: impl FnOnce(&mut WorkerScratch)) {
    thread_local! {
        static SCRATCH: RefCell<WorkerScratch> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(work);
}

impl WorkerScratch {
    /// Sums of a block of rows over some panels, `(panel, row)` in `self.sums`; returns the number of rows per panel,
    /// including padding.
    pub(crate) fn sums(&mut self, isa: Isa, inputs: &Inputs, strips: &[PanelStrip<'_>], rows: Range<usize>) -> usize {
        let (width, rows_held) = (inputs.width(), rows.len().next_multiple_of(16));
        // Not cleared: the sums of the first chunk start at zero.
        self.sums.set_len(strips.len() * rows_held);
        let chunk = strips.iter().map(|strip| strip.weights.form().chunk()).min().unwrap_or(width);
        let chunks = width.div_ceil(chunk);
        // With many rows, all panels use a chunk of the activations while it is in the second-level cache. Few
        // activations stay there anyway, so weights are then read sequentially.
        let at = |turn: usize| {
            if rows.len() <= FEW_ROWS {
                (turn / chunks, turn % chunks)
            } else {
                (turn % strips.len(), turn / strips.len())
            }
        };
        let part = |turn: usize| {
            let (index, chunk_index) = at(turn);
            let (strip, start) = (strips.get(index)?, chunk_index * chunk);
            (start < width).then(|| PackedPart {
                weights: strip.weights,
                panel: strip.panel,
                start,
                len: chunk.min(width - start),
            })
        };
        let mut worker = Worker { isa, tiles: None };
        self.panels.ready = false;
        for turn in 0.. {
            let Some(now) = part(turn) else { break };
            let (index, panels) = (at(turn).0, strips.len());
            let work = PanelWork {
                part: now,
                rows: rows.clone(),
                inputs,
                next: part(turn + 1),
                later: part(turn + 2),
                turn: (index, panels),
            };
            worker.add(&work, &mut self.panels, &mut self.sums[index * rows_held..][..rows_held]);
        }
        rows_held
    }
}

/// Rows to be multiplied with a part of the weights.
struct PanelWork<'a> {
    part: PackedPart<'a>,
    rows: Range<usize>,
    inputs: &'a Inputs,
    /// The weights of the next turn, and of the one after it.
    next: Option<PackedPart<'a>>,
    later: Option<PackedPart<'a>>,
    /// The panel's index and the number of panels that share a chunk of the activations.
    turn: (usize, usize),
}

impl PanelWork<'_> {
    /// `(first row of all, rows)` and the first row of the block, for each tile. Meanwhile the weights of the turn
    /// after next are prefetched, a share with each tile.
    #[inline(always)]
    fn tiles<S: Simd>(&self) -> impl Iterator<Item = ((usize, usize), usize)> {
        let (start, rows) = (self.rows.start, self.rows.len());
        let form = self.part.weights.form();
        let tiling = self.inputs.tiling(form);
        let in_place = form == ProductForm::Int8 && tiling.in_place(rows);
        let later = self.later.filter(|_| !in_place).map_or(&[][..], PackedPart::bytes);
        tiling.tiles(rows).map(move |(first, count)| {
            let lines = later.len() / 64;
            for line in lines * first / rows..lines * (first + count) / rows {
                S::prefetch::<false>(later.as_ptr().wrapping_add(64 * line));
            }
            ((start + first, count), first)
        })
    }

    /// Prefetches this panel's share of a tile's activations of the next chunk.
    #[inline(always)]
    fn ask_for_halves<S: Simd>(&self, tile: (usize, usize)) {
        let start = self.part.start + self.part.len;
        let len = self.part.len.min(self.inputs.width() - start);
        let lines =
            self.inputs.half_tile(ProductForm::Tiles, tile, start, len.next_multiple_of(32)).as_chunks::<16>().0;
        let (turn, turns) = self.turn;
        for line in &lines[lines.len() * turn / turns..lines.len() * (turn + 1) / turns] {
            S::prefetch::<false>(line.as_ptr().cast());
        }
    }
}

/// A thread's instruction set, and its tile unit while that is used.
struct Worker {
    isa: Isa,
    tiles: Option<TileRegisters>,
}

impl Worker {
    /// Adds the products of a part to the rows' sums.
    #[inline]
    fn add(&mut self, work: &PanelWork<'_>, panels: &mut ExpandedPanels, sums: &mut [PanelSums]) {
        let (isa, form) = (self.isa, work.part.weights.form());
        if work.inputs.tiling(form).in_unit {
            return in_unit::add(&mut self.tiles, work, panels, sums);
        }
        match form {
            ProductForm::Float => {
                dispatch!(isa, float_rows(work: &PanelWork<'_>, panels: &mut ExpandedPanels, sums: &mut [PanelSums]));
            }
            ProductForm::Int8 => {
                dispatch!(isa, int_rows(work: &PanelWork<'_>, panels: &mut ExpandedPanels, sums: &mut [PanelSums]));
            }
            ProductForm::Pairs => {
                let in_one = (isa.facts().pair_tile)();
                dispatch!(isa, pair_rows(work: &PanelWork<'_>, sums: &mut [PanelSums], in_one: Option<PairTile>));
            }
            ProductForm::Tiles => {
                dispatch!(isa, step_rows(work: &PanelWork<'_>, panels: &mut ExpandedPanels, sums: &mut [PanelSums]));
            }
        }
    }
}

#[inline(always)]
fn float_rows<S: Simd>(work: &PanelWork<'_>, panels: &mut ExpandedPanels, sums: &mut [PanelSums]) {
    let part = work.part;
    let panel = if part.weights.weight_type() == WeightType::F32 {
        bytemuck::cast_slice(part.bytes())
    } else {
        unpack_floats::<S>(part, &mut panels.ints, &mut panels.floats);
        &*panels.floats
    };
    for (tile, first) in work.tiles::<S>() {
        let x = work.inputs.float_tile(tile, part.start, part.len);
        by_rows!(tile.1, float_tile::<S>(panel, x, PartialSums { sums: &mut sums[first..], fresh: part.start == 0 }));
    }
}

#[inline(always)]
fn int_rows<S: IntProducts>(work: &PanelWork<'_>, panels: &mut ExpandedPanels, sums: &mut [PanelSums]) {
    let part = work.part;
    let weight_type = part.weights.weight_type();
    // For a few rows, expansion to the cache and reading back cost more than the products.
    if S::IN_PLACE && work.inputs.tiling(ProductForm::Int8).in_place(work.rows.len()) {
        by_type!(weight_type, packed_rows::<S>(work, sums));
        return;
    }
    unpack_ints::<S, false>(part, &mut panels.ints);
    let (group, ints) = (weight_type.group_len(), &panels.ints);
    for (tile, first) in work.tiles::<S>() {
        let x = work.inputs.int_tile(tile, part.start, part.len, group);
        let before = PartialSums { sums: &mut sums[first..], fresh: part.start == 0 };
        match (group, weight_type.has_minima()) {
            (16, _) => by_rows!(tile.1, int_tile::<S, 4, false>(&ExpandedWeights::new(weight_type, ints), x, before)),
            (_, true) => by_rows!(tile.1, int_tile::<S, 8, true>(&ExpandedWeights::new(weight_type, ints), x, before)),
            (_, false) => {
                by_rows!(tile.1, int_tile::<S, 8, false>(&ExpandedWeights::new(weight_type, ints), x, before));
            }
        }
    }
}

/// A few rows with weights in place.
#[inline(always)]
fn packed_rows<S: IntProducts, T: QuantisedType, const QUADS: usize, const MINIMA: bool>(
    work: &PanelWork<'_>,
    sums: &mut [PanelSums],
) {
    let part = work.part;
    let mut weights = PackedWeights::<T>::new(part);
    for (tile, first) in work.tiles::<S>() {
        let x = work.inputs.int_tile(tile, part.start, part.len, 4 * QUADS);
        let before = PartialSums { sums: &mut sums[first..], fresh: part.start == 0 };
        by_rows!(tile.1, int_tile::<S, QUADS, MINIMA>(&weights, x, before));
        weights.ahead = false;
    }
}

/// Rows with the machine's `in_one` instruction tile, if it has one, or with several instructions.
#[inline(always)]
fn pair_rows<S: Simd>(work: &PanelWork<'_>, sums: &mut [PanelSums], in_one: Option<PairTile>) {
    let part = work.part;
    for (tile, first) in work.tiles::<S>() {
        let x = work.inputs.half_tile(ProductForm::Pairs, tile, part.start, part.len);
        let before = PartialSums { sums: &mut sums[first..], fresh: part.start == 0 };
        match in_one {
            Some(rows_in_one) => rows_in_one(tile.1, part.lines(), x, before),
            None => by_rows!(tile.1, pair_tile::<S>(part.lines(), x, before)),
        }
    }
}

#[inline(always)]
fn step_rows<S: Simd>(work: &PanelWork<'_>, panels: &mut ExpandedPanels, sums: &mut [PanelSums]) {
    let part = work.part;
    let panel = if part.weights.weight_type() == WeightType::BF16 {
        part.lines()
    } else {
        unpack_pairs::<S>(part, &mut panels.ints, &mut panels.pairs);
        &*panels.pairs
    };
    for (tile, first) in work.tiles::<S>() {
        let x = work.inputs.half_tile(ProductForm::Tiles, tile, part.start, part.len.next_multiple_of(32));
        by_rows!(tile.1, step_tile::<S>(panel, x, PartialSums { sums: &mut sums[first..], fresh: part.start == 0 }));
    }
}
