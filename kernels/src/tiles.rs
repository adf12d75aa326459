//! The inner loops: one register tile of rows against a panel of 32 outputs, generic over the instruction set.
//!
//! Sums are passed in and out as `(row, half of the panel, output)`, so that a long `k` is processed in chunks.

use crate::groups::{GroupRows, IntGroups, IntPanel, IntProducts};
use crate::pack::PackedPart;
use crate::simd::{LANES, Simd};

/// Sums of a row over a panel.
pub(crate) type PanelSums = [[f32; LANES]; 2];

/// The sums of a tile's rows before a chunk of `k`.
pub(crate) struct PartialSums<'a> {
    pub(crate) sums: &'a mut [PanelSums],
    /// Whether this is the first chunk: the sums start at zero and their contents are ignored.
    pub(crate) fresh: bool,
}

/// Some columns of a tile of 8-bit activations.
#[derive(Clone, Copy)]
pub(crate) struct IntTile<'a> {
    pub(crate) words: &'a [i32],
    pub(crate) scales: &'a [f32],
    pub(crate) sums: &'a [i32],
    pub(crate) scaled_sums: &'a [f32],
}

/// Calls `$f::<S, R, …>` for the tile's number of rows.
macro_rules! by_rows {
    ($rows:expr, $f:ident :: <$s:ident $(, $g:tt)*> ($($arg:expr),* $(,)?)) => {
        match $rows {
            12 if $s::MOST_ROWS >= 12 => $f::<$s, 12 $(, $g)*>($($arg),*),
            6 if $s::MOST_ROWS >= 6 => $f::<$s, 6 $(, $g)*>($($arg),*),
            4 => $f::<$s, 4 $(, $g)*>($($arg),*),
            3 => $f::<$s, 3 $(, $g)*>($($arg),*),
            2 => $f::<$s, 2 $(, $g)*>($($arg),*),
            _ => $f::<$s, 1 $(, $g)*>($($arg),*),
        }
    };
}
pub(crate) use by_rows;

#[inline(always)]
pub(crate) fn load<S: Simd, const R: usize>(before: &PartialSums<'_>) -> [[S::F; 2]; R] {
    let sums = before.sums.first_chunk::<R>().expect("a sum for each row of the tile");
    // A closure would not be compiled for the caller's instruction set.
    let mut values = [[S::splat(0.0); 2]; R];
    if !before.fresh {
        for r in 0..R {
            values[r] = [S::load(&sums[r][0]), S::load(&sums[r][1])];
        }
    }
    values
}

#[inline(always)]
pub(crate) fn store<S: Simd, const R: usize>(values: [[S::F; 2]; R], before: &mut PartialSums<'_>) {
    for (to, value) in before.sums.iter_mut().zip(values) {
        S::store(value[0], &mut to[0]);
        S::store(value[1], &mut to[1]);
    }
}

/// `Form::Float`: `tile` is `(k, row)`.
#[inline(always)]
pub(crate) fn float_tile<S: Simd, const R: usize>(
    panel: &[[[f32; LANES]; 2]],
    tile: &[f32],
    mut before: PartialSums<'_>,
) {
    let mut y = load::<S, R>(&before);
    for (w, x) in panel.iter().zip(tile.as_chunks::<R>().0) {
        let (w0, w1) = (S::load(&w[0]), S::load(&w[1]));
        for r in 0..R {
            let x = S::splat(x[r]);
            y[r][0] = S::fma(x, w0, y[r][0]);
            y[r][1] = S::fma(x, w1, y[r][1]);
        }
    }
    store::<S, R>(y, &mut before);
}

/// `Form::Int8` with unsigned weights in groups of `4 · QUADS`.
#[inline(always)]
pub(crate) fn int_tile<S: IntProducts, const R: usize, const QUADS: usize, const MINIMA: bool>(
    weights: &impl IntGroups<S, QUADS>,
    tile: IntTile<'_>,
    mut before: PartialSums<'_>,
) {
    let mut y = load::<S, R>(&before);
    let (row_scales, row_sums) = (tile.scales.as_chunks::<R>().0, tile.sums.as_chunks::<R>().0);
    let scaled_sums = tile.scaled_sums.as_chunks::<R>().0;
    for (group, words) in tile.words.as_chunks::<R>().0.as_chunks::<QUADS>().0.iter().enumerate() {
        weights.ask_ahead(group);
        // Activations have one scale per 32.
        let by_32 = group * QUADS / 8;
        let rows = GroupRows {
            group,
            words,
            sums: &row_sums[group],
            scales: &row_scales[by_32],
            scaled_sums: &scaled_sums[by_32],
        };
        S::add_group::<R, QUADS, MINIMA>(weights, &rows, &mut y);
    }
    store::<S, R>(y, &mut before);
}

/// Two bf16 of a word, as floats.
#[inline(always)]
fn halves<S: Simd>(word: u32) -> [S::F; 2] {
    [S::splat(f32::from_bits(word << 16)), S::splat(f32::from_bits(word & 0xffff_0000))]
}

/// `Form::Pairs`: weights `(k / 2, half, output, 2)`, `tile` `(k / 2, row)`.
#[inline(always)]
pub(crate) fn pair_tile<S: Simd, const R: usize>(
    panel: &[[[u8; 4 * LANES]; 2]],
    tile: &[u32],
    mut before: PartialSums<'_>,
) {
    let mut y = load::<S, R>(&before);
    for (w, x) in panel.iter().zip(tile.as_chunks::<R>().0) {
        for half in 0..2 {
            let [w0, w1] = S::load_pairs(&w[half]);
            for r in 0..R {
                let [x0, x1] = halves::<S>(x[r]);
                // The second before the first, with denormals flushed after each, like the instruction.
                let second = S::flush(S::fma(x1, w1, y[r][half]));
                y[r][half] = S::flush(S::fma(x0, w0, second));
            }
        }
    }
    store::<S, R>(y, &mut before);
}

/// Two `k` of a step of `Form::Tiles`, for some rows: each has a separate chain.
#[inline(always)]
pub(crate) fn add_pair<S: Simd, const R: usize>(
    x: &[u32; R],
    [w0, w1]: [S::F; 2],
    even: &mut [S::F; R],
    odd: &mut [S::F; R],
) {
    for r in 0..R {
        let [x0, x1] = halves::<S>(x[r]);
        even[r] = S::flush(S::fma(x0, w0, even[r]));
        odd[r] = S::flush(S::fma(x1, w1, odd[r]));
    }
}

/// Adds a step of `Form::Tiles` to a sum.
#[inline(always)]
pub(crate) fn end_step<S: Simd>(y: S::F, even: S::F, odd: S::F) -> S::F {
    S::flush(S::add(y, S::flush(S::add(even, odd))))
}

/// `Form::Tiles`: layouts as in [`pair_tile`], a whole number of steps of 32 `k`.
#[inline(always)]
pub(crate) fn step_tile<S: Simd, const R: usize>(
    panel: &[[[u8; 4 * LANES]; 2]],
    tile: &[u32],
    mut before: PartialSums<'_>,
) {
    let mut y = load::<S, R>(&before);
    for (w, x) in panel.as_chunks::<16>().0.iter().zip(tile.as_chunks::<R>().0.as_chunks::<16>().0) {
        for half in 0..2 {
            let mut even = [S::splat(0.0); R];
            let mut odd = [S::splat(0.0); R];
            for (w, x) in w.iter().zip(x) {
                add_pair::<S, R>(x, S::load_pairs(&w[half]), &mut even, &mut odd);
            }
            for r in 0..R {
                y[r][half] = end_step::<S>(y[r][half], even[r], odd[r]);
            }
        }
    }
    store::<S, R>(y, &mut before);
}

/// `Form::Pairs` for a number of rows; panel, tile and sums as in [`pair_tile`].
pub(crate) type PairTile = fn(usize, &[[[u8; 4 * LANES]; 2]], &[u32], PartialSums<'_>);

/// Rows and columns of a tile of results in a [`TileUnit`].
pub(crate) const TILE_ROWS: usize = 16;

/// The factors of a product: some rows and some columns, both in bf16, with two `k` per word.
pub(crate) struct TileFactors<'a> {
    /// Number of rows, at most two tiles; memory holds whole tiles.
    pub(crate) rows: usize,
    /// Rows, and their distance in words.
    pub(crate) left: (&'a [u32], usize),
    /// For each 32 `k`, the rows of two `k`, and their distance in words.
    pub(crate) steps: (&'a [&'a [u32]], usize),
    /// The offsets of one or two tiles of sixteen columns in a step's rows.
    pub(crate) columns: &'a [usize],
}

/// A machine's unit for products of whole tiles, configured for a thread: sixteen rows by sixteen outputs at once, with
/// the bits of [`int_tile`] and [`step_tile`]. Holding a value permits the use of its instructions.
pub(crate) trait TileUnit: Sized {
    /// The lanes for computations outside the unit.
    type Lanes: Simd;
    /// Configures products over `quads · 4` bytes of `k` at a time, with at most 16 quads. The machine must have a
    /// unit.
    fn configure(quads: usize) -> Self;
    /// The configured number of quads.
    fn quads(&self) -> usize;
    /// `Form::Int8`: all rows with a part, expanded into `ints`; sums start at zero with the first part.
    fn int_rows<'a>(
        &self,
        part: PackedPart<'_>,
        ints: &mut IntPanel,
        rows: impl Iterator<Item = IntTile<'a>>,
        sums: &mut [PanelSums],
    );
    /// Expands a part of quantised weights to bf16, `(k / 2, half, output, 2)`.
    fn unpack_pairs(&self, part: PackedPart<'_>, to: &mut [[[u8; 4 * LANES]; 2]]);
    /// `Form::Tiles`: all rows, `(k / 32, 16 rows, 16)` words of two for each tile, with a panel; sums start at zero if
    /// they are `fresh`. The next part, if there is one, is expanded meanwhile.
    fn half_rows<'a>(
        &self,
        panel: &[[[u8; 4 * LANES]; 2]],
        rows: impl Iterator<Item = &'a [u32]>,
        sums: &mut [PanelSums],
        fresh: bool,
        next: Option<(PackedPart<'_>, &mut [[[u8; 4 * LANES]; 2]])>,
    );
    /// Products of rows and columns that are both activations, in the order of
    /// [`ProductForm::Tiles`](crate::ProductForm), to rows `row` apart. The unit must be configured for 16 quads.
    fn multiply(&self, factors: &TileFactors<'_>, to: &mut [f32], row: usize);
    /// Rounds each 32 floats of a row to sixteen words of two bf16, stored from the beginning of the row; returns their
    /// sum.
    fn round_row(&self, row: &mut [u32]) -> f32;
}
