//! Outputs of products: memory shared by threads, each of which writes whole panels of columns.

use std::marker::PhantomData;

use crate::pack::PANEL;
use crate::simd::{LANES, Simd, round_pairs};
use crate::tiles::TILE_ROWS;

/// Rows of f32, `(rows, width)`.
pub(crate) struct OutputColumns<'a> {
    start: *mut f32,
    width: usize,
    rows: usize,
    _output: PhantomData<&'a mut [f32]>,
}

// SAFETY: threads access the output only through `panel`, each for the columns of its own panels.
unsafe impl Sync for OutputColumns<'_> {}

impl<'a> OutputColumns<'a> {
    pub(crate) fn new(y: &'a mut [f32], rows: usize, width: usize) -> Self {
        assert_eq!(y.len(), rows * width, "y is (rows, out_features)");
        Self { start: y.as_mut_ptr(), width, rows, _output: PhantomData }
    }

    /// Columns of a panel in a row.
    ///
    /// # Safety
    /// No two threads may request the same panel.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "threads have panels of their own, by contract")]
    pub(crate) unsafe fn panel(&self, row: usize, panel: usize) -> &mut [f32] {
        let columns = panel * PANEL..self.width.min((panel + 1) * PANEL);
        assert!(row < self.rows && columns.start < columns.end, "inside the output");
        // SAFETY: row and columns are inside the output, and by contract no other thread uses this panel.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.width + columns.start), columns.len()) }
    }
}

/// Rows in bf16 for a tile unit, `(rows / 16, steps of 32, 16 rows, 16)` words of two: a panel is a step.
pub(crate) struct TileSteps<'a> {
    start: *mut u32,
    /// Words per row.
    words: usize,
    rows: usize,
    _output: PhantomData<&'a mut [u32]>,
}

// SAFETY: threads access the output only through `panel`, each for its own panels.
unsafe impl Sync for TileSteps<'_> {}

impl<'a> TileSteps<'a> {
    pub(crate) fn new(halves: &'a mut [u32], words: usize) -> Self {
        Self { start: halves.as_mut_ptr(), words, rows: halves.len() / words, _output: PhantomData }
    }

    /// A row's words of a panel.
    ///
    /// # Safety
    /// No two threads may request the same panel.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "threads have panels of their own, by contract")]
    unsafe fn panel(&self, row: usize, panel: usize) -> &mut [u32; LANES] {
        assert!(row < self.rows && (panel + 1) * LANES <= self.words, "inside the output");
        let at = row / TILE_ROWS * TILE_ROWS * self.words + (panel * TILE_ROWS + row % TILE_ROWS) * LANES;
        // SAFETY: row and panel are inside the output, and by contract no other thread uses this panel.
        unsafe { &mut *self.start.add(at).cast() }
    }
}

/// The destination of activations: packed for the next product as they are computed, or rows to be packed later.
pub(crate) enum PackedActivations<'a> {
    Rows(OutputColumns<'a>),
    Packed(TileSteps<'a>),
}

impl PackedActivations<'_> {
    /// Writes a row's values over a panel; those outside the row's width are zero.
    ///
    /// # Safety
    /// No two threads may write the same panel.
    #[inline(always)]
    pub(crate) unsafe fn write<S: Simd>(&self, row: usize, panel: usize, values: &[[f32; LANES]; 2]) {
        match self {
            Self::Rows(rows) => {
                // SAFETY: no other thread uses the caller's panels.
                let to = unsafe { rows.panel(row, panel) };
                to.copy_from_slice(&values.as_flattened()[..to.len()]);
            }
            Self::Packed(steps) => {
                let values = values.as_flattened().first_chunk().expect("two vectors");
                // SAFETY: as above.
                *unsafe { steps.panel(row, panel) } = round_pairs::<S>(values);
            }
        }
    }
}
