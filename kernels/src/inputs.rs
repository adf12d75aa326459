//! Activations packed for products: rounded to the form's precision, with the rows of a register tile side by side.

use std::cell::RefCell;

use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::elementwise::{Norm, norm_rows};
use crate::isa::dispatch;
use crate::output::{OutputColumns, PackedActivations, TileSteps};
use crate::simd::{Simd, round_pairs};
use crate::tiles::{IntTile, TILE_ROWS};
use crate::{Isa, ProductForm};

/// Up to this many rows, quantised weights are multiplied in place, and memory bandwidth is the limit. Up to two
/// register tiles, expanding is not faster, and fewer rows do not fill a tile of the tile unit.
const IN_PLACE_ROWS: usize = 12;

/// How rows are divided into register tiles. The division does not change results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowTiling {
    /// Rows per tile; the last tiles may have fewer.
    most: usize,
    /// Whether tiles have 16 rows, row-major and padded, for a tile unit.
    pub(crate) in_unit: bool,
}

impl RowTiling {
    fn new(isa: Isa, form: ProductForm, rows: usize) -> Self {
        let facts = isa.facts();
        let in_unit =
            facts.has_tiles && (form == ProductForm::Tiles || (form == ProductForm::Int8 && rows > IN_PLACE_ROWS));
        Self { most: if in_unit { TILE_ROWS } else { facts.rows[form as usize] }, in_unit }
    }

    /// Whether this many rows are multiplied with quantised weights in place.
    pub(crate) fn in_place(self, rows: usize) -> bool {
        rows <= (2 * self.most).clamp(IN_PLACE_ROWS / 2, IN_PLACE_ROWS)
    }

    /// Words of two halves per row, padded to what a product multiplies at a time. Rows for a tile unit have an
    /// additional step, because at a power of two they would compete for the same cache lines.
    fn half_words(self, form: ProductForm, width: usize) -> usize {
        match form {
            ProductForm::Tiles if self.in_unit => width.next_multiple_of(32) / 2 + TILE_ROWS,
            ProductForm::Tiles => width.next_multiple_of(32) / 2,
            _ => width.div_ceil(2),
        }
    }

    /// `(first row, rows)` of each tile.
    pub(crate) fn tiles(self, rows: usize) -> impl Iterator<Item = (usize, usize)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let left = rows - at;
            let fits = |width: &usize| *width <= left && *width <= self.most;
            let width = if self.in_unit {
                left.min(TILE_ROWS)
            } else {
                // The row counts that `by_rows!` generates code for.
                [self.most, 6, 4, 3, 2, 1].into_iter().find(fits).unwrap_or(0)
            };
            at += width;
            (width > 0).then_some((at - width, width))
        })
    }
}

/// Activations `(rows, width)` in the forms that products require. The memory is reused between uses.
#[derive(Default)]
pub struct Inputs {
    rows: usize,
    width: usize,
    packed: [Option<RowTiling>; ProductForm::ALL.len()],
    floats: Buffer<f32>,
    ints: QuantisedInputs,
    halves: Buffer<u32>,
    /// Activations that were computed row by row and are packed later.
    rows_made: Buffer<f32>,
}

/// Rows in tiles, each `(k / 4, row)` words of four activations, or `(k / 32, 16 rows, 8)` for a tile unit; the other
/// fields are `(group, row)`.
#[derive(Default)]
struct QuantisedInputs {
    words: Buffer<i32>,
    /// One per 32 activations.
    scales: Buffer<f32>,
    /// Sums of 16 activations.
    sums16: Buffer<i32>,
    /// Sums of 32 activations.
    sums32: Buffer<i32>,
    /// Scale times sum, per 32.
    scaled_sums: Buffer<f32>,
}

impl Inputs {
    /// Creates an empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Packs activations `(rows, width)` for `forms` and replaces the previous contents.
    pub fn set(&mut self, isa: Isa, x: &[f32], width: usize, forms: impl IntoIterator<Item = ProductForm>) {
        self.set_rows(isa, x, width, None, forms);
    }

    /// As [`set`](Self::set), for the result of [`normalise`](crate::normalise) of `x`, `(rows, norm.weight.len())`.
    pub fn set_normed(&mut self, isa: Isa, x: &[f32], norm: Norm<'_>, forms: impl IntoIterator<Item = ProductForm>) {
        self.set_rows(isa, x, norm.weight.len(), Some(norm), forms);
    }

    fn set_rows(
        &mut self,
        isa: Isa,
        x: &[f32],
        width: usize,
        norm: Option<Norm<'_>>,
        forms: impl IntoIterator<Item = ProductForm>,
    ) {
        assert!(width > 0 && x.len().is_multiple_of(width), "x is (rows, {width})");
        (self.rows, self.width) = (x.len() / width, width);
        self.packed = [None; ProductForm::ALL.len()];
        for form in forms {
            if self.packed[form as usize].is_none() {
                let tiling = RowTiling::new(isa, form, self.rows);
                self.pack(isa, form, tiling, x, norm);
                self.packed[form as usize] = Some(tiling);
            }
        }
    }

    /// Packs activations `(rows, width)` for `form`, which `make` writes completely, and replaces the previous
    /// contents.
    pub(crate) fn fill(
        &mut self,
        isa: Isa,
        (rows, width): (usize, usize),
        form: ProductForm,
        make: impl FnOnce(&PackedActivations<'_>),
    ) {
        let tiling = RowTiling::new(isa, form, rows);
        if form == ProductForm::Tiles && tiling.in_unit {
            let words = tiling.half_words(form, width);
            self.halves.set_len(rows.next_multiple_of(TILE_ROWS) * words);
            make(&PackedActivations::Packed(TileSteps::new(&mut self.halves, words)));
            (self.rows, self.width, self.packed) = (rows, width, [None; ProductForm::ALL.len()]);
            self.packed[form as usize] = Some(tiling);
        } else {
            let mut x = std::mem::take(&mut self.rows_made);
            x.set_len(rows * width);
            make(&PackedActivations::Rows(OutputColumns::new(&mut x, rows, width)));
            self.set(isa, &x, width, [form]);
            self.rows_made = x;
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn tiling(&self, form: ProductForm) -> RowTiling {
        self.packed[form as usize].expect("activations were packed for this form")
    }

    fn pack(&mut self, isa: Isa, form: ProductForm, tiling: RowTiling, x: &[f32], norm: Option<Norm<'_>>) {
        let padded = if tiling.in_unit { self.rows.next_multiple_of(TILE_ROWS) } else { self.rows };
        let rows = x.par_chunks(tiling.most * self.width);
        match form {
            ProductForm::Float => {
                self.floats.set_len(padded * self.width);
                rows.zip(self.floats.par_chunks_mut(tiling.most * self.width))
                    .for_each(|(x, to)| normed(isa, x, norm, |x| pack_floats(x, self.width, tiling, to)));
            }
            ProductForm::Int8 => {
                assert!(self.width.is_multiple_of(32), "quantised rows are whole groups of 32");
                let (ints, per_row) = (&mut self.ints, self.width / 32);
                let most = tiling.most * per_row;
                ints.words.set_len(padded * per_row * 8);
                ints.scales.set_len(padded * per_row);
                ints.sums16.set_len(padded * per_row * 2);
                ints.sums32.set_len(padded * per_row);
                ints.scaled_sums.set_len(padded * per_row);
                let sums = ints.sums16.par_chunks_mut(2 * most).zip(ints.sums32.par_chunks_mut(most));
                let scales = ints.scales.par_chunks_mut(most).zip(ints.scaled_sums.par_chunks_mut(most));
                let width = self.width;
                rows.zip(ints.words.par_chunks_mut(8 * most)).zip(sums).zip(scales).for_each(|(((x, words), sums), scales)| {
                    let mut to = IntRows { words, scales: scales.0, sums16: sums.0, sums32: sums.1, scaled_sums: scales.1 };
                    let to = &mut to;
                    normed(isa, x, norm, |x| dispatch!(isa, pack_ints(x: &[f32], width: usize, tiling: RowTiling, to: &mut IntRows<'_>)));
                });
            }
            ProductForm::Pairs | ProductForm::Tiles => {
                let words = tiling.half_words(form, self.width);
                self.halves.set_len(padded * words);
                let width = self.width;
                rows.zip(self.halves.par_chunks_mut(tiling.most * words)).for_each(|(x, to)| {
                    normed(isa, x, norm, |x| {
                        dispatch!(isa, pack_halves(x: &[f32], width: usize, words: usize, tiling: RowTiling, to: &mut [u32]));
                    });
                });
            }
        }
    }

    /// Columns `start..start + len` of a tile, `(k, row)`.
    #[inline(always)]
    pub(crate) fn float_tile(&self, (first, rows): (usize, usize), start: usize, len: usize) -> &[f32] {
        &self.floats[first * self.width + start * rows..][..len * rows]
    }

    /// Columns `start..start + len` of a tile for weights in groups of `group`.
    #[inline(always)]
    pub(crate) fn int_tile(
        &self,
        (first, rows): (usize, usize),
        start: usize,
        len: usize,
        group: usize,
    ) -> IntTile<'_> {
        let part = |per: usize| {
            first * self.width / per + start / per * rows..first * self.width / per + (start + len) / per * rows
        };
        IntTile {
            words: &self.ints.words[part(4)],
            scales: &self.ints.scales[part(32)],
            sums: if group == 16 { &self.ints.sums16[part(16)] } else { &self.ints.sums32[part(32)] },
            scaled_sums: &self.ints.scaled_sums[part(32)],
        }
    }

    /// Columns `start..start + len` of a tile in bf16: words of two, `(k / 2, row)`, or `(k / 32, 16 rows, 16)` for a
    /// tile unit.
    #[inline(always)]
    pub(crate) fn half_tile(
        &self,
        form: ProductForm,
        (first, rows): (usize, usize),
        start: usize,
        len: usize,
    ) -> &[u32] {
        let words = self.tiling(form).half_words(form, self.width);
        &self.halves[first * words + start / 2 * rows..][..len.div_ceil(2) * rows]
    }
}

/// Passes a few rows, normalised if there is a norm, to `pack`.
fn normed(isa: Isa, x: &[f32], norm: Option<Norm<'_>>, pack: impl FnOnce(&[f32])) {
    thread_local! {
        static NORMED: RefCell<Buffer<f32>> = RefCell::default();
    }
    let Some(norm) = norm else { return pack(x) };
    NORMED.with_borrow_mut(|y| {
        y.set_len(x.len());
        norm_rows(isa, x, norm, y);
        pack(y);
    });
}

fn pack_floats(x: &[f32], width: usize, tiling: RowTiling, to: &mut [f32]) {
    for (first, rows) in tiling.tiles(x.len() / width) {
        let tile = &mut to[first * width..][..rows * width];
        for (r, x) in x[first * width..][..rows * width].chunks_exact(width).enumerate() {
            for (value, to) in x.iter().zip(tile.iter_mut().skip(r).step_by(rows)) {
                *to = *value;
            }
        }
    }
}

/// The destination of a few rows of 8-bit activations.
struct IntRows<'a> {
    words: &'a mut [i32],
    scales: &'a mut [f32],
    sums16: &'a mut [i32],
    sums32: &'a mut [i32],
    scaled_sums: &'a mut [f32],
}

/// Rounds 32 activations to 8 bits, ties to even; returns the scale, which is not finite if an activation is not.
#[inline(always)]
fn quantise(x: &[f32; 32], q: &mut [i8; 32]) -> f32 {
    // Magnitudes have the same order as bits as by value, with infinities and NaN above all others.
    let largest = f32::from_bits(x.iter().fold(0, |most, v| most.max(v.to_bits() & 0x7fff_ffff)));
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    // A maximum near the smallest f32 has no finite inverse; such a group counts as zero.
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    for (q, v) in q.iter_mut().zip(x) {
        // 1.5 · 2²³ rounds to an integer, to even, in the low bits. The range is −127 to 127, never −128: on AVX2 signs
        // are moved from weights to activations.
        *q = (v.mul_add(inverse, 12_582_912.0).to_bits() & 0xff) as u8 as i8;
    }
    largest / 127.0
}

#[inline(always)]
fn pack_ints<S: Simd>(x: &[f32], width: usize, tiling: RowTiling, to: &mut IntRows<'_>) {
    for (first, rows) in tiling.tiles(x.len() / width) {
        // Rows of a tile for the unit are always 16 apart. Missing rows keep earlier values, which no result uses.
        let stride = if tiling.in_unit { TILE_ROWS } else { rows };
        for r in 0..rows {
            for (index, x) in x[(first + r) * width..][..width].as_chunks::<32>().0.iter().enumerate() {
                let mut q = [0; 32];
                let scale = quantise(x, &mut q);
                let at = first * width / 32 + index * stride + r;
                for (quad, q) in q.as_chunks::<4>().0.iter().enumerate() {
                    let word = if tiling.in_unit { 8 * r + quad } else { quad * rows + r };
                    to.words[first * width / 4 + 8 * index * stride + word] =
                        i32::from_le_bytes(q.map(i8::cast_unsigned));
                }
                let sums: [i32; 2] =
                    std::array::from_fn(|half| q[16 * half..16 * half + 16].iter().map(|q| i32::from(*q)).sum());
                for (half, sum) in sums.iter().enumerate() {
                    to.sums16[first * width / 16 + (2 * index + half) * stride + r] = *sum;
                }
                to.scales[at] = scale;
                to.sums32[at] = sums[0] + sums[1];
                to.scaled_sums[at] = scale * (sums[0] + sums[1]) as f32;
            }
        }
    }
}

/// Rows as words of two bf16, in steps of 32 activations: `(k / 2, row)`, or `(k / 32, 16 rows, 16)` for a tile unit.
#[inline(always)]
fn pack_halves<S: Simd>(x: &[f32], width: usize, words: usize, tiling: RowTiling, to: &mut [u32]) {
    for (first, rows) in tiling.tiles(x.len() / width) {
        let tile = &mut to[first * words..];
        for r in 0..rows {
            let x = &x[(first + r) * width..][..width];
            let (whole, rest) = x.as_chunks::<32>();
            let mut last = [0.0; 32];
            last[..rest.len()].copy_from_slice(rest);
            for (step, x) in whole.iter().chain((!rest.is_empty()).then_some(&last)).enumerate() {
                let pairs = round_pairs::<S>(x);
                if tiling.in_unit {
                    *tile[(step * TILE_ROWS + r) * 16..].first_chunk_mut().expect("a row of a step") = pairs;
                } else {
                    for (pair, word) in pairs[..16.min(words - 16 * step)].iter().enumerate() {
                        tile[(16 * step + pair) * rows + r] = *word;
                    }
                }
            }
        }
    }
}
