//! The inner loops: one register tile of rows against a panel of 32 outputs, generic over the instruction set.
//!
//! Sums come in and go out as `(row, half of the panel, output)`, so that a long `k` is worked off in chunks.

use crate::groups::IntGroups;
use crate::inputs::IntTile;
use crate::simd::{Dot4, LANES, Simd};

/// Sums of a row over a panel.
pub(crate) type Sums = [[f32; LANES]; 2];

/// The sums of a tile's rows before a chunk of `k`.
pub(crate) struct Before<'a> {
    pub(crate) sums: &'a mut [Sums],
    /// Whether this is the first chunk: the sums begin at zero, whatever stands there.
    pub(crate) fresh: bool,
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
pub(crate) fn load<S: Simd, const R: usize>(before: &Before<'_>) -> [[S::F; 2]; R] {
    let sums = before.sums.first_chunk::<R>().expect("a sum for each row of the tile");
    // A closure in place of the loop would not be compiled for the caller's instruction set.
    let mut values = [[S::splat(0.0); 2]; R];
    if !before.fresh {
        for r in 0..R {
            values[r] = [S::load(&sums[r][0]), S::load(&sums[r][1])];
        }
    }
    values
}

#[inline(always)]
pub(crate) fn store<S: Simd, const R: usize>(values: [[S::F; 2]; R], before: &mut Before<'_>) {
    for (to, value) in before.sums.iter_mut().zip(values) {
        S::store(value[0], &mut to[0]);
        S::store(value[1], &mut to[1]);
    }
}

/// `Form::Float`: `tile` is `(k, row)`.
#[inline(always)]
pub(crate) fn float_tile<S: Simd, const R: usize>(panel: &[[[f32; LANES]; 2]], tile: &[f32], mut before: Before<'_>) {
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
pub(crate) fn int_tile<S: Simd, const R: usize, const QUADS: usize, const MINIMA: bool>(
    weights: &impl IntGroups<S, QUADS>,
    tile: IntTile<'_>,
    mut before: Before<'_>,
) {
    let mut y = load::<S, R>(&before);
    let (row_scales, row_sums) = (tile.scales.as_chunks::<R>().0, tile.sums.as_chunks::<R>().0);
    let scaled_sums = tile.scaled_sums.as_chunks::<R>().0;
    for (group, words) in tile.words.as_chunks::<R>().0.as_chunks::<QUADS>().0.iter().enumerate() {
        weights.ask_ahead(group);
        // Activations are rounded by 32.
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

/// A tile's rows where a group of weights meets them.
pub(crate) struct GroupRows<'a, const R: usize, const QUADS: usize> {
    pub(crate) group: usize,
    /// Four signed bytes each, little end first, none of them −128.
    pub(crate) words: &'a [[i32; R]; QUADS],
    pub(crate) sums: &'a [i32; R],
    pub(crate) scales: &'a [f32; R],
    pub(crate) scaled_sums: &'a [f32; R],
}

/// [`Simd::add_group`], four bytes after the other.
#[inline(always)]
pub(crate) fn add_quads<S: Dot4, const R: usize, const QUADS: usize, const MINIMA: bool>(
    weights: &impl IntGroups<S, QUADS>,
    rows: &GroupRows<'_, R, QUADS>,
    y: &mut [[S::F; 2]; R],
) {
    let zero = weights.weight_type().zero();
    let mut dots = [[S::splat_i(0); R]; 2];
    for r in 0..R {
        let start = S::splat_i(-zero * rows.sums[r]);
        (dots[0][r], dots[1][r]) = (start, start);
    }
    for (quad, x) in rows.words.iter().enumerate() {
        let (w0, w1) = (weights.quad(rows.group, quad, 0), weights.quad(rows.group, quad, 1));
        for r in 0..R {
            dots[0][r] = S::dot4(dots[0][r], w0, x[r]);
            dots[1][r] = S::dot4(dots[1][r], w1, x[r]);
        }
    }
    for half in 0..2 {
        end_half::<S, R, QUADS, MINIMA>(weights, rows, half, dots[half], y);
    }
}

/// Scales the dot products of half a panel and adds them to the sums.
#[inline(always)]
pub(crate) fn end_half<S: Simd, const R: usize, const QUADS: usize, const MINIMA: bool>(
    weights: &impl IntGroups<S, QUADS>,
    rows: &GroupRows<'_, R, QUADS>,
    half: usize,
    dots: [S::I; R],
    y: &mut [[S::F; 2]; R],
) {
    let d = weights.scale(rows.group, half);
    for r in 0..R {
        y[r][half] = S::fma(S::to_f(dots[r]), S::mul(d, S::splat(rows.scales[r])), y[r][half]);
    }
    if MINIMA {
        let m = weights.minimum(rows.group, half);
        for r in 0..R {
            y[r][half] = S::fma(m, S::splat(rows.scaled_sums[r]), y[r][half]);
        }
    }
}

/// Two bf16 of a word, as floats.
#[inline(always)]
fn halves<S: Simd>(word: u32) -> [S::F; 2] {
    [S::splat(f32::from_bits(word << 16)), S::splat(f32::from_bits(word & 0xffff_0000))]
}

/// `Form::Pairs`: weights `(k / 2, half, output, 2)`, `tile` `(k / 2, row)`.
#[inline(always)]
pub(crate) fn pair_tile<S: Simd, const R: usize>(panel: &[[[u8; 4 * LANES]; 2]], tile: &[u32], mut before: Before<'_>) {
    let mut y = load::<S, R>(&before);
    for (w, x) in panel.iter().zip(tile.as_chunks::<R>().0) {
        for half in 0..2 {
            let [w0, w1] = S::load_pairs(&w[half]);
            for r in 0..R {
                let [x0, x1] = halves::<S>(x[r]);
                let second = S::flush(S::fma(x1, w1, y[r][half]));
                y[r][half] = S::flush(S::fma(x0, w0, second));
            }
        }
    }
    store::<S, R>(y, &mut before);
}

/// Two `k` of a step of `Form::Tiles`, for some rows: each has a chain of its own.
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

/// A sum with a step of `Form::Tiles` added.
#[inline(always)]
pub(crate) fn end_step<S: Simd>(y: S::F, even: S::F, odd: S::F) -> S::F {
    S::flush(S::add(y, S::flush(S::add(even, odd))))
}

/// `Form::Tiles`: layouts as of [`pair_tile`], a whole number of steps of 32 `k`.
#[inline(always)]
pub(crate) fn step_tile<S: Simd, const R: usize>(panel: &[[[u8; 4 * LANES]; 2]], tile: &[u32], mut before: Before<'_>) {
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
