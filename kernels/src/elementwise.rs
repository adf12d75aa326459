//! Row-wise operations: normalisation and rotary positions.

use rayon::prelude::*;

use crate::Isa;
use crate::isa::dispatch;
use crate::simd::{LANES, Simd};

/// Rows per task.
const TASK_ROWS: usize = 16;
/// Elements per task.
const TASK: usize = 1 << 14;

/// A norm of rows: RMS norm, or a layer norm, which subtracts the mean first.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// A factor for each element of a row.
    pub weight: &'a [f32],
    /// The bias of a layer norm; `None` for an RMS norm.
    pub bias: Option<&'a [f32]>,
    /// Added to the mean square.
    pub eps: f32,
}

/// Normalises each row: `x / √(mean(x²) + eps) · weight`, or with a bias `(x − mean(x)) / √(mean((x − mean(x))²) + eps)
/// · weight + bias`. Sums run over sixteen lanes, then over the lanes.
pub fn normalise(isa: Isa, x: &[f32], norm: Norm<'_>, y: &mut [f32]) {
    let width = norm.weight.len();
    assert!(x.len() == y.len() && x.len().is_multiple_of(width), "x and y are (rows, {width})");
    x.par_chunks(TASK_ROWS * width)
        .zip(y.par_chunks_mut(TASK_ROWS * width))
        .for_each(|(x, y)| norm_rows(isa, x, norm, y));
}

/// As [`normalise`], on this thread.
pub(crate) fn norm_rows(isa: Isa, x: &[f32], norm: Norm<'_>, y: &mut [f32]) {
    if let Some(bias) = norm.bias {
        assert_eq!(bias.len(), norm.weight.len(), "a summand for each element");
        dispatch!(isa, layer_norm_rows(x: &[f32], norm: Norm<'_>, bias: &[f32], y: &mut [f32]));
    } else {
        dispatch!(isa, rms_norm_rows(x: &[f32], norm: Norm<'_>, y: &mut [f32]));
    }
}

#[inline(always)]
fn layer_norm_rows<S: Simd>(x: &[f32], norm: Norm<'_>, bias: &[f32], y: &mut [f32]) {
    let width = norm.weight.len();
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        let (whole, rest) = x.as_chunks::<LANES>();
        let mut last = [0.0; LANES];
        last[..rest.len()].copy_from_slice(rest);
        let mut sum = S::load(&last);
        for x in whole {
            sum = S::add(S::load(x), sum);
        }
        // The mean is subtracted before squaring: the difference of two large sums would be inaccurate.
        let mean = S::sum(sum) / width as f32;
        // The padding of the last lanes then adds nothing to the squares.
        last[rest.len()..].fill(mean);
        let off = S::sub(S::load(&last), S::splat(mean));
        let mut squares = S::mul(off, off);
        for x in whole {
            let off = S::sub(S::load(x), S::splat(mean));
            squares = S::fma(off, off, squares);
        }
        let scale = 1.0 / (S::sum(squares) / width as f32 + norm.eps).sqrt();
        for (((y, x), w), b) in y.iter_mut().zip(x).zip(norm.weight).zip(bias) {
            *y = (x - mean) * scale * w + b;
        }
    }
}

/// Σ x², in one order on all instruction sets.
#[inline(always)]
pub(crate) fn sum_of_squares<S: Simd>(x: &[f32]) -> f32 {
    let (whole, rest) = x.as_chunks::<LANES>();
    // One sum vector: several would be faster, but have another order.
    let mut sum = S::splat(0.0);
    for x in whole {
        sum = S::fma(S::load(x), S::load(x), sum);
    }
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    S::sum(S::fma(S::load(&last), S::load(&last), sum))
}

#[inline(always)]
fn rms_norm_rows<S: Simd>(x: &[f32], norm: Norm<'_>, y: &mut [f32]) {
    let width = norm.weight.len();
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        let scale = 1.0 / (sum_of_squares::<S>(x) / width as f32 + norm.eps).sqrt();
        for ((y, x), w) in y.iter_mut().zip(x).zip(norm.weight) {
            *y = x * scale * w;
        }
    }
}

/// `y + scale · x`, element by element, into `y`.
pub fn add_scaled(x: &[f32], scale: f32, y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "x and y are of one shape");
    y.par_chunks_mut(TASK).zip(x.par_chunks(TASK)).for_each(|(y, x)| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += scale * x);
    });
}

/// Replaces each `x` by `cap · tanh(scale / cap · x)`.
pub fn soft_cap(isa: Isa, scale: f32, cap: f32, x: &mut [f32]) {
    x.par_chunks_mut(TASK).for_each(|x| {
        dispatch!(isa, soft_cap_part(scale: f32, cap: f32, x: &mut [f32]));
    });
}

/// As [`soft_cap`], on this thread; accurate to 1e-7 of the cap.
#[inline(always)]
pub(crate) fn soft_cap_part<S: Simd>(scale: f32, cap: f32, x: &mut [f32]) {
    let (double, one, two) = (S::splat(2.0 * scale / cap), S::splat(1.0), S::splat(2.0));
    // tanh u = 1 − 2 / (e²ᵘ + 1).
    let capped = |x: &[f32; LANES]| {
        let past = S::div(two, S::add(S::exp(S::mul(S::load(x), double)), one));
        S::mul(S::sub(one, past), S::splat(cap))
    };
    let (whole, rest) = x.as_chunks_mut::<LANES>();
    for x in whole {
        S::store(capped(x), x);
    }
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    rest.copy_from_slice(&S::lanes(capped(&last))[..rest.len()]);
}

/// Which elements of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopeLayout {
    /// Element `i` with `i + head_dim / 2`: Hugging Face checkpoints, GGUF files of most architectures.
    Halves,
    /// Element `2i` with `2i + 1`: GGUF files of the llama architecture, whose rows are permuted for it.
    Interleaved,
}

/// Cosines and sines of the positions of some rows, `(rows, pairs)` each, with one pair per rotated pair of a head.
#[derive(Debug, Clone)]
pub struct RopeTable {
    cos: Vec<f32>,
    sin: Vec<f32>,
    half: usize,
}

impl RopeTable {
    /// Angles are `position · frequency`, rounded to f32 as in the reference. Their cosine and sine are correctly
    /// rounded except in rare cases, and multiplied by `scale`.
    pub fn new(positions: &[u32], frequencies: &[f32], scale: f32) -> Self {
        let half = frequencies.len();
        let mut table = Self { cos: vec![0.0; positions.len() * half], sin: vec![0.0; positions.len() * half], half };
        let rows = table.cos.par_chunks_mut(half.max(1)).zip(table.sin.par_chunks_mut(half.max(1)));
        rows.zip(positions.par_iter()).for_each(|((cos, sin), position)| {
            for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(frequencies) {
                // In f64 and rounded once, which is nearly always the nearest f32. `libm` in Rust, since system
                // libraries may differ in the last bit.
                let (s, c) = libm::sincos(f64::from(*position as f32 * frequency));
                (*cos, *sin) = (c as f32 * scale, s as f32 * scale);
            }
        });
        table
    }

    /// Rotates each head of `x`, `(rows, heads, head_dim)`, by its row's angles; only its first elements if there are
    /// fewer angles than pairs.
    pub fn apply(&self, isa: Isa, layout: RopeLayout, head_dim: usize, x: &mut [f32]) {
        let rows = self.cos.len() / self.half.max(1);
        if rows == 0 {
            assert!(x.is_empty(), "a row of angles for each row");
            return;
        }
        assert!(x.len().is_multiple_of(rows * head_dim), "x is (rows, heads, head_dim)");
        assert!(2 * self.half <= head_dim, "a head has an element for each that is rotated");
        let width = x.len() / rows;
        x.par_chunks_mut(TASK_ROWS * width).enumerate().for_each(|(task, x)| {
            let (first, table, sizes) = (task * TASK_ROWS, self, (width, head_dim));
            dispatch!(isa, rotate_rows(table: &RopeTable, layout: RopeLayout, first: usize, sizes: (usize, usize), x: &mut [f32]));
        });
    }
}

#[inline(always)]
fn rotate_rows<S: Simd>(
    table: &RopeTable,
    layout: RopeLayout,
    first: usize,
    (width, head_dim): (usize, usize),
    x: &mut [f32],
) {
    let half = table.half;
    for (row, x) in x.chunks_exact_mut(width).enumerate() {
        let (cos, sin) = (&table.cos[(first + row) * half..][..half], &table.sin[(first + row) * half..][..half]);
        for head in x.chunks_exact_mut(head_dim) {
            let head = &mut head[..2 * half];
            match layout {
                RopeLayout::Halves => {
                    let (a, b) = head.split_at_mut(half);
                    for i in 0..half {
                        (a[i], b[i]) = (a[i] * cos[i] - b[i] * sin[i], b[i] * cos[i] + a[i] * sin[i]);
                    }
                }
                RopeLayout::Interleaved => {
                    for ((pair, c), s) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                        let [a, b] = *pair;
                        *pair = [a * c - b * s, b * c + a * s];
                    }
                }
            }
        }
    }
}
