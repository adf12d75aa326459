//! Matrix products `y = x · Wᵀ` with weights in any storage type.
//!
//! Every output element is summed over `k` in one ascending order, whatever the number of rows, threads or the instruction set: threads and
//! vectors split the outputs, never the sum. Weights stay as they lie in the file; a panel of 32 outputs is unpacked at a time, and that
//! work is shared by all rows of the product.

use std::marker::PhantomData;

use rayon::prelude::*;

use crate::decode::{Block, MAX_BLOCK, decode_block, dequantise};
use crate::isa::dispatch;
use crate::simd::{LANES, Simd};
use crate::{Isa, WeightType};

/// Outputs unpacked together: two vectors.
const PANEL: usize = 2 * LANES;
/// Weights of a row that are unpacked at a time; a multiple of every block length.
const CHUNK: usize = 512;
/// Rows whose activations stay in the second-level cache while a thread walks over its panels.
const ROW_BLOCK: usize = 768;

/// Weights `(out_features, in_features)` as they lie in memory, row-major.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    weight_type: WeightType,
    bytes: &'a [u8],
    out_features: usize,
    in_features: usize,
    row_bytes: usize,
}

impl<'a> Matrix<'a> {
    /// `None` where `bytes` is not exactly `out_features` rows of `in_features` weights.
    pub fn new(weight_type: WeightType, bytes: &'a [u8], out_features: usize, in_features: usize) -> Option<Self> {
        let row_bytes = weight_type.row_bytes(in_features)?;
        (row_bytes.checked_mul(out_features)? == bytes.len()).then_some(Self { weight_type, bytes, out_features, in_features, row_bytes })
    }

    /// Rows of the matrix.
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Columns of the matrix.
    pub fn in_features(&self) -> usize {
        self.in_features
    }

    /// How the weights are stored.
    pub fn weight_type(&self) -> WeightType {
        self.weight_type
    }

    /// The bytes of row `index`.
    pub fn row(&self, index: usize) -> &'a [u8] {
        &self.bytes[index * self.row_bytes..][..self.row_bytes]
    }
}

/// `y = x · Wᵀ` in f32: `x` is `(rows, in_features)`, `y` `(rows, out_features)`. Quantised weights are dequantised first.
///
/// `y[i][j]` is a chain of fused multiply-adds over ascending `k`, from zero.
pub fn matmul(isa: Isa, x: &[f32], weights: Matrix<'_>, y: &mut [f32]) {
    product(isa, x, weights, y, &Exact);
}

/// `y = x · Wᵀ` for quantised weights with activations rounded to 8 bits per 32: integer dot products, f32 scales.
///
/// Per group of weights that share a scale, ascending: `y ← fma(Σ u·a, d_w · d_a, y)`, then, where the format has minima,
/// `y ← fma(m_w, d_a · Σ a, y)`. The activation scale is the largest magnitude of its 32 over 127. For plain floats this is [`matmul`].
pub fn matmul_fast(isa: Isa, x: &[f32], weights: Matrix<'_>, y: &mut [f32]) {
    if weights.weight_type.is_quantised() { product(isa, x, weights, y, &Fast) } else { matmul(isa, x, weights, y) }
}

/// One of the two arithmetics: how activations are packed, a panel unpacked, and both multiplied.
trait Arithmetic: Sync {
    type Packed: Default + Sync;
    type Panel: Default + Send;

    fn pack(&self, isa: Isa, x: Rows<'_>, weight_type: WeightType, packed: &mut Self::Packed);
    fn accumulate(&self, isa: Isa, weights: Part<'_>, packed: &Self::Packed, panel: &mut Self::Panel, y: &Columns<'_>);
}

/// A block of activation rows, columns `start..start + len`.
#[derive(Clone, Copy)]
struct Rows<'a> {
    x: &'a [f32],
    stride: usize,
    count: usize,
    start: usize,
    len: usize,
}

impl Rows<'_> {
    fn row(&self, index: usize) -> &[f32] {
        &self.x[index * self.stride + self.start..][..self.len]
    }
}

/// Output rows `panel * PANEL ..` of the weights, columns `start..start + len`.
#[derive(Clone, Copy)]
struct Part<'a> {
    weights: Matrix<'a>,
    panel: usize,
    start: usize,
    len: usize,
}

impl<'a> Part<'a> {
    fn width(&self) -> usize {
        PANEL.min(self.weights.out_features - self.panel * PANEL)
    }

    fn row(&self, lane: usize) -> &'a [u8] {
        self.weights.row(self.panel * PANEL + lane)
    }
}

fn product<A: Arithmetic>(isa: Isa, x: &[f32], weights: Matrix<'_>, y: &mut [f32], arithmetic: &A) {
    let (n, k) = (weights.out_features, weights.in_features);
    assert!(k > 0 && x.len().is_multiple_of(k) && y.len() == x.len() / k * n, "x is (rows, {k}) and y (rows, {n})");
    y.fill(0.0);
    let mut packed = A::Packed::default();
    for (x, y) in x.chunks(ROW_BLOCK * k).zip(y.chunks_mut((ROW_BLOCK * n).max(1))) {
        let columns = Columns::new(y, n);
        for start in (0..k).step_by(CHUNK) {
            let len = CHUNK.min(k - start);
            let rows = Rows { x, stride: k, count: x.len() / k, start, len };
            arithmetic.pack(isa, rows, weights.weight_type, &mut packed);
            (0..n.div_ceil(PANEL)).into_par_iter().for_each_init(A::Panel::default, |panel, index| {
                arithmetic.accumulate(isa, Part { weights, panel: index, start, len }, &packed, panel, &columns);
            });
        }
    }
}

/// The output, shared by threads that each own whole panels of columns.
struct Columns<'a> {
    start: *mut f32,
    stride: usize,
    rows: usize,
    _output: PhantomData<&'a mut [f32]>,
}

// SAFETY: threads reach the output only through `update`, each for the columns of its own panel.
unsafe impl Sync for Columns<'_> {}

impl<'a> Columns<'a> {
    fn new(y: &'a mut [f32], stride: usize) -> Self {
        Self { start: y.as_mut_ptr(), stride, rows: y.len() / stride, _output: PhantomData }
    }

    /// Lets `f` change columns `PANEL * panel ..` of a row, padded with zeros to a whole panel.
    ///
    /// # Safety
    /// No two threads may use the same panel at once.
    #[inline(always)]
    unsafe fn update(&self, row: usize, panel: usize, f: impl FnOnce(&mut [[f32; LANES]; 2])) {
        let column = panel * PANEL;
        let width = PANEL.min(self.stride - column);
        assert!(row < self.rows, "row of the output");
        let mut local = [[0.0; LANES]; 2];
        // SAFETY: row and columns lie inside the output, and by contract nobody else uses this panel.
        let output = unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride + column), width) };
        local.as_flattened_mut()[..width].copy_from_slice(output);
        f(&mut local);
        output.copy_from_slice(&local.as_flattened()[..width]);
    }
}

/// Widths of register tiles: the instruction set's own, then what is left in few steps.
fn tile_rows(left: usize, most: usize) -> usize {
    [most, 6, 4, 2, 1].into_iter().find(|&rows| rows <= left && rows <= most).unwrap_or(1)
}

/// Calls `$f::<S, R, …>` for the tile's number of rows.
macro_rules! by_rows {
    ($rows:expr, $f:ident :: <$s:ident $(, $g:tt)*> ($($arg:expr),* $(,)?)) => {
        match $rows {
            12 => $f::<$s, 12 $(, $g)*>($($arg),*),
            6 => $f::<$s, 6 $(, $g)*>($($arg),*),
            4 => $f::<$s, 4 $(, $g)*>($($arg),*),
            3 => $f::<$s, 3 $(, $g)*>($($arg),*),
            2 => $f::<$s, 2 $(, $g)*>($($arg),*),
            _ => $f::<$s, 1 $(, $g)*>($($arg),*),
        }
    };
}

/// Dequantised weights, f32 throughout.
struct Exact;

/// Rows in tiles, `(tile, k, row of tile)`.
#[derive(Default)]
struct PackedFloats {
    values: Vec<f32>,
    rows: usize,
}

/// `(k, output)`.
type FloatPanel = Vec<[[f32; LANES]; 2]>;

impl Arithmetic for Exact {
    type Packed = PackedFloats;
    type Panel = FloatPanel;

    fn pack(&self, isa: Isa, x: Rows<'_>, _: WeightType, packed: &mut PackedFloats) {
        packed.rows = x.count;
        packed.values.resize(x.count * x.len, 0.0);
        dispatch!(isa, pack_floats(x: Rows<'_>, packed: &mut PackedFloats));
    }

    fn accumulate(&self, isa: Isa, weights: Part<'_>, packed: &PackedFloats, panel: &mut FloatPanel, y: &Columns<'_>) {
        dispatch!(isa, float_panel(weights: Part<'_>, packed: &PackedFloats, panel: &mut FloatPanel, y: &Columns<'_>));
    }
}

#[inline(always)]
fn pack_floats<S: Simd>(x: Rows<'_>, packed: &mut PackedFloats) {
    let mut row = 0;
    while row < x.count {
        let width = tile_rows(x.count - row, S::FLOAT_ROWS);
        let tile = &mut packed.values[row * x.len..][..width * x.len];
        for r in 0..width {
            for (value, to) in x.row(row + r).iter().zip(tile.iter_mut().skip(r).step_by(width)) {
                *to = *value;
            }
        }
        row += width;
    }
}

#[inline(always)]
fn float_panel<S: Simd>(weights: Part<'_>, packed: &PackedFloats, panel: &mut FloatPanel, y: &Columns<'_>) {
    unpack_floats(weights, panel);
    let mut row = 0;
    while row < packed.rows {
        let width = tile_rows(packed.rows - row, S::FLOAT_ROWS);
        let tile = &packed.values[row * weights.len..][..width * weights.len];
        by_rows!(width, float_tile::<S>(panel, tile, y, row, weights.panel));
        row += width;
    }
}

/// Dequantises the part and transposes it, a block of columns at a time so that both sides stay in the first-level cache.
#[inline(always)]
fn unpack_floats(weights: Part<'_>, panel: &mut FloatPanel) {
    panel.resize(weights.len, [[0.0; LANES]; 2]);
    let mut values = [0.0f32; MAX_BLOCK];
    for (index, panel) in panel.chunks_mut(MAX_BLOCK).enumerate() {
        for lane in 0..weights.width() {
            let values = &mut values[..panel.len()];
            dequantise(weights.weights.weight_type, weights.row(lane), weights.start + index * MAX_BLOCK, values);
            for (outputs, value) in panel.iter_mut().zip(values) {
                outputs[lane / LANES][lane % LANES] = *value;
            }
        }
    }
}

#[inline(always)]
fn float_tile<S: Simd, const R: usize>(panel: &FloatPanel, tile: &[f32], y: &Columns<'_>, row: usize, index: usize) {
    let mut sums = [[S::splat(0.0); 2]; R];
    for (r, sum) in sums.iter_mut().enumerate() {
        // SAFETY: this thread alone works on this panel.
        unsafe { y.update(row + r, index, |y| *sum = [S::load(&y[0]), S::load(&y[1])]) };
    }
    for (w, x) in panel.iter().zip(tile.as_chunks::<R>().0) {
        let (w0, w1) = (S::load(&w[0]), S::load(&w[1]));
        for r in 0..R {
            let x = S::splat(x[r]);
            sums[r][0] = S::fma(x, w0, sums[r][0]);
            sums[r][1] = S::fma(x, w1, sums[r][1]);
        }
    }
    for (r, sum) in sums.iter().enumerate() {
        // SAFETY: this thread alone works on this panel.
        unsafe {
            y.update(row + r, index, |y| {
                S::store(sum[0], &mut y[0]);
                S::store(sum[1], &mut y[1]);
            });
        }
    }
}

/// Integer products of quantised weights with activations of 8 bits.
struct Fast;

/// Rows in tiles: four activations a word `(tile, k / 4, row)`; per group of weights the scale and the sum of its activations.
#[derive(Default)]
struct PackedInts {
    words: Vec<i32>,
    scales: Vec<f32>,
    sums: Vec<i32>,
    rows: usize,
}

/// Unsigned weights `(k / 4, output, 4)`, scales and minima `(group, output)`.
#[derive(Default)]
struct IntPanel {
    quants: Vec<[[u8; 4 * LANES]; 2]>,
    scales: Vec<[[f32; LANES]; 2]>,
    minima: Vec<[[f32; LANES]; 2]>,
}

impl Arithmetic for Fast {
    type Packed = PackedInts;
    type Panel = IntPanel;

    fn pack(&self, isa: Isa, x: Rows<'_>, weight_type: WeightType, packed: &mut PackedInts) {
        let groups = x.len / weight_type.group_len();
        packed.rows = x.count;
        packed.words.resize(x.count * x.len / 4, 0);
        packed.scales.resize(x.count * groups, 0.0);
        packed.sums.resize(x.count * groups, 0);
        dispatch!(isa, pack_ints(x: Rows<'_>, weight_type: WeightType, packed: &mut PackedInts));
    }

    fn accumulate(&self, isa: Isa, weights: Part<'_>, packed: &PackedInts, panel: &mut IntPanel, y: &Columns<'_>) {
        dispatch!(isa, int_panel(weights: Part<'_>, packed: &PackedInts, panel: &mut IntPanel, y: &Columns<'_>));
    }
}

/// Rounds 32 activations to 8 bits, to even; returns the scale, which is not finite where an activation is not.
#[inline(always)]
fn quantise(x: &[f32; 32], q: &mut [i8; 32]) -> f32 {
    // As bits, magnitudes order like their values, and infinities and NaN above them all.
    let largest = f32::from_bits(x.iter().fold(0, |most, v| most.max(v.to_bits() & 0x7fff_ffff)));
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    // A largest magnitude near the smallest f32 has no finite inverse; such a group is zero to any weight.
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    for (q, v) in q.iter_mut().zip(x) {
        *q = (v.mul_add(inverse, 12_582_912.0).to_bits() & 0xff) as u8 as i8;
    }
    largest / 127.0
}

#[inline(always)]
fn pack_ints<S: Simd>(x: Rows<'_>, weight_type: WeightType, packed: &mut PackedInts) {
    let per_scale = 32 / weight_type.group_len();
    let (quads, groups) = (x.len / 4, x.len / weight_type.group_len());
    let mut row = 0;
    while row < x.count {
        let width = tile_rows(x.count - row, S::INT_ROWS);
        let words = &mut packed.words[row * quads..][..width * quads];
        let scales = &mut packed.scales[row * groups..][..width * groups];
        let sums = &mut packed.sums[row * groups..][..width * groups];
        for r in 0..width {
            for (index, x) in x.row(row + r).as_chunks::<32>().0.iter().enumerate() {
                let mut q = [0; 32];
                let scale = quantise(x, &mut q);
                for (quad, q) in q.as_chunks::<4>().0.iter().enumerate() {
                    words[(8 * index + quad) * width + r] = i32::from_le_bytes(q.map(i8::cast_unsigned));
                }
                for (part, q) in q.chunks_exact(weight_type.group_len()).enumerate() {
                    let at = (per_scale * index + part) * width + r;
                    scales[at] = scale;
                    sums[at] = q.iter().map(|q| i32::from(*q)).sum();
                }
            }
        }
        row += width;
    }
}

#[inline(always)]
fn int_panel<S: Simd>(weights: Part<'_>, packed: &PackedInts, panel: &mut IntPanel, y: &Columns<'_>) {
    unpack_ints(weights, panel);
    let weight_type = weights.weights.weight_type;
    let (quads, groups) = (weights.len / 4, weights.len / weight_type.group_len());
    let mut row = 0;
    while row < packed.rows {
        let width = tile_rows(packed.rows - row, S::INT_ROWS);
        let tile = IntTile {
            words: &packed.words[row * quads..][..width * quads],
            scales: &packed.scales[row * groups..][..width * groups],
            sums: &packed.sums[row * groups..][..width * groups],
            zero: weight_type.zero(),
        };
        match (weight_type.group_len(), weight_type.has_minima()) {
            (16, _) => by_rows!(width, int_tile::<S, 4, false>(panel, tile, y, row, weights.panel)),
            (_, true) => by_rows!(width, int_tile::<S, 8, true>(panel, tile, y, row, weights.panel)),
            (_, false) => by_rows!(width, int_tile::<S, 8, false>(panel, tile, y, row, weights.panel)),
        }
        row += width;
    }
}

/// Decodes the part's blocks into the panel's layout.
#[inline(always)]
fn unpack_ints(weights: Part<'_>, panel: &mut IntPanel) {
    let weight_type = weights.weights.weight_type;
    let (len, size, group) = (weight_type.block_len(), weight_type.block_bytes(), weight_type.group_len());
    panel.quants.resize(weights.len / 4, [[0; 4 * LANES]; 2]);
    panel.scales.resize(weights.len / group, [[0.0; LANES]; 2]);
    panel.minima.resize(weights.len / group, [[0.0; LANES]; 2]);
    let mut block = Block::new();
    for index in 0..weights.len / len {
        let quants = &mut panel.quants[index * len / 4..][..len / 4];
        let scales = &mut panel.scales[index * len / group..][..len / group];
        let minima = &mut panel.minima[index * len / group..][..len / group];
        for lane in 0..weights.width() {
            let bytes = &weights.row(lane)[(weights.start / len + index) * size..][..size];
            decode_block(weight_type, bytes, &mut block);
            let (half, lane) = (lane / LANES, lane % LANES);
            for (to, from) in quants.iter_mut().zip(block.quants.as_chunks::<4>().0) {
                to[half].as_chunks_mut::<4>().0[lane] = *from;
            }
            for (g, (scale, min)) in scales.iter_mut().zip(minima.iter_mut()).enumerate() {
                scale[half][lane] = block.scales[g];
                min[half][lane] = block.minima[g];
            }
        }
    }
}

/// A tile of packed activations.
#[derive(Clone, Copy)]
struct IntTile<'a> {
    words: &'a [i32],
    scales: &'a [f32],
    sums: &'a [i32],
    zero: i32,
}

#[inline(always)]
fn int_tile<S: Simd, const R: usize, const QUADS: usize, const MINIMA: bool>(
    panel: &IntPanel,
    tile: IntTile<'_>,
    y: &Columns<'_>,
    row: usize,
    index: usize,
) {
    let mut sums = [[S::splat(0.0); 2]; R];
    for (r, sum) in sums.iter_mut().enumerate() {
        // SAFETY: this thread alone works on this panel.
        unsafe { y.update(row + r, index, |y| *sum = [S::load(&y[0]), S::load(&y[1])]) };
    }
    let groups = panel.quants.as_chunks::<QUADS>().0.iter().zip(tile.words.as_chunks::<R>().0.as_chunks::<QUADS>().0);
    let scales = panel.scales.iter().zip(&panel.minima);
    let rows = tile.scales.as_chunks::<R>().0.iter().zip(tile.sums.as_chunks::<R>().0);
    for (((quants, words), (scale, min)), (row_scales, row_sums)) in groups.zip(scales).zip(rows) {
        let mut dots: [[S::I; 2]; R] = std::array::from_fn(|r| [S::splat_i(-tile.zero * row_sums[r]); 2]);
        for (w, x) in quants.iter().zip(words) {
            for r in 0..R {
                dots[r][0] = S::dot4(dots[r][0], &w[0], x[r]);
                dots[r][1] = S::dot4(dots[r][1], &w[1], x[r]);
            }
        }
        for half in 0..2 {
            let d = S::load(&scale[half]);
            for r in 0..R {
                sums[r][half] = S::fma(S::to_f(dots[r][half]), S::mul(d, S::splat(row_scales[r])), sums[r][half]);
            }
            if MINIMA {
                let m = S::load(&min[half]);
                for r in 0..R {
                    sums[r][half] = S::fma(m, S::splat(row_scales[r] * row_sums[r] as f32), sums[r][half]);
                }
            }
        }
    }
    for (r, sum) in sums.iter().enumerate() {
        // SAFETY: this thread alone works on this panel.
        unsafe {
            y.update(row + r, index, |y| {
                S::store(sum[0], &mut y[0]);
                S::store(sum[1], &mut y[1]);
            });
        }
    }
}
