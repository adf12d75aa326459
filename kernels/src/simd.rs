//! Sixteen lanes of f32 or i32 on each instruction set, with identical results on all of them.
//!
//! Kernels are written once over [`Simd`]. Each operation is exactly rounded (or exact in integers), and lanes are
//! combined only in [`Simd::sum`], in a fixed order. A kernel therefore gives the same bits on every instruction set.

use crate::ProductForm;

/// Lanes per vector, independent of register size: where a sum runs over lanes, their number determines the order of
/// summation.
pub(crate) const LANES: usize = 16;

const fn most_rows(rows: [usize; ProductForm::ALL.len()]) -> usize {
    let (mut most, mut form) = (0, 0);
    while form < rows.len() {
        assert!(matches!(rows[form], 3 | 4 | 6 | 12), "`by_rows!` has code for no other tile");
        most = if rows[form] > most { rows[form] } else { most };
        form += 1;
    }
    most
}

/// Sixteen-lane arithmetic. Loads and stores take arrays, so that lengths are checked at compile time.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32.
    type I: Copy;
    /// Sixty-four bytes.
    type B: Copy;
    /// Rows of the register tiles of each [`ProductForm`]: as many as keep their sums of two vectors in registers, in
    /// addition to what a loop reads. Spilling costs more than anything else.
    const ROWS: [usize; ProductForm::ALL.len()];
    /// Rows of the largest tile: no code is generated for larger ones.
    const MOST_ROWS: usize = most_rows(Self::ROWS);
    /// Whether few rows are multiplied with quantised weights in place.
    const IN_PLACE: bool;
    fn splat(x: f32) -> Self::F;
    fn load(from: &[f32; LANES]) -> Self::F;
    fn store(v: Self::F, to: &mut [f32; LANES]);
    fn add(a: Self::F, b: Self::F) -> Self::F;
    fn sub(a: Self::F, b: Self::F) -> Self::F;
    fn mul(a: Self::F, b: Self::F) -> Self::F;
    fn div(a: Self::F, b: Self::F) -> Self::F;
    /// The larger value per lane; `b` if one is NaN.
    fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller value per lane; `b` if one is NaN.
    fn min(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Replaces denormals by zeros of the same sign.
    fn flush(v: Self::F) -> Self::F;
    /// `p · 2ⁿ` where `z` holds `n + 1.5 · 2²³`, −126 ≤ n ≤ 127.
    fn scale_by_power(p: Self::F, z: Self::F) -> Self::F;

    /// Sixteen f16, converted exactly.
    fn load_f16(from: &[u8; 2 * LANES]) -> Self::F;
    /// Sixteen 8-bit unsigned integers.
    fn load_u8(from: &[u8; LANES]) -> Self::F;
    /// Sixteen 8-bit signed integers.
    fn load_i8(from: &[u8; LANES]) -> Self::F;
    /// Sixteen pairs of bf16 as f32: the first elements and the second ones.
    fn load_pairs(from: &[u8; 4 * LANES]) -> [Self::F; 2];

    fn load_b(from: &[u8; 4 * LANES]) -> Self::B;
    fn store_b(v: Self::B, to: &mut [u8; 4 * LANES]);
    fn and_b(a: Self::B, mask: u8) -> Self::B;
    fn or_b(a: Self::B, b: Self::B) -> Self::B;
    fn sub_b(a: Self::B, b: u8) -> Self::B;
    /// The table's entry for each byte, all of which are below 16.
    fn pick_b(table: &[u8; 16], at: Self::B) -> Self::B;
    /// Each byte shifted right by `n`; the upper bits come from the neighbour and must be masked.
    fn shr_b(a: Self::B, n: u32) -> Self::B;
    /// Each byte shifted left by `n`; the lower bits come from the neighbour and must be masked.
    fn shl_b(a: Self::B, n: u32) -> Self::B;
    /// Byte `i` of each of the sixteen words, as floats, for `i` in 0..4.
    fn unzip(v: Self::B) -> [Self::F; 4];
    /// Words of two bf16, rounded from the lanes of `even` and of `odd` (ties to even), denormals as zeros. The lanes
    /// must not be NaN.
    fn to_pairs(even: Self::F, odd: Self::F) -> Self::B;

    fn splat_i(x: i32) -> Self::I;
    fn to_f(v: Self::I) -> Self::F;
    /// Prefetches the cache line at `at`, into the first-level cache if it is needed `SOON`. It does not affect
    /// results, and the address may be invalid.
    #[inline(always)]
    fn prefetch<const SOON: bool>(_at: *const u8) {}

    /// The lanes, for the horizontal steps.
    fn lanes(v: Self::F) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        Self::store(v, &mut lanes);
        lanes
    }

    /// The sum over lanes as a balanced tree: halves are added lane by lane until one lane remains.
    #[inline(always)]
    fn sum(v: Self::F) -> f32 {
        let mut lanes = Self::lanes(v);
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
            width /= 2;
        }
        lanes[0]
    }

    /// The largest lane, ignoring NaN.
    #[inline(always)]
    fn reduce_max(v: Self::F) -> f32 {
        let mut lanes = Self::lanes(v);
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                let (a, b) = (lanes[lane], lanes[lane + width]);
                lanes[lane] = if a > b || b.is_nan() { a } else { b };
            }
            width /= 2;
        }
        lanes[0]
    }

    /// 2ˣ for x ≤ 0 with a relative error of 2⁻¹⁴. Arguments are clamped to at least −126; NaN stays NaN.
    #[inline(always)]
    fn exp2_short(x: Self::F) -> Self::F {
        // 2⁻¹²⁶ is the smallest normal number: below it `scale_by_power` would leave the exponent's range. `max`
        // returns its second argument for NaN.
        let x = Self::max(Self::splat(-126.0), x);
        // 1.5 · 2²³: adding it to a number of moderate size rounds that to an integer, to even, in the low mantissa
        // bits.
        let magic = Self::splat(12_582_912.0);
        let z = Self::add(x, magic);
        let r = Self::sub(x, Self::sub(z, magic));
        // Taylor series of e^(r ln 2) to the fourth degree on |r| ≤ ½: the remainder is below 5e-5.
        let mut p = Self::splat(9.618_129e-3);
        for c in [5.550_411e-2, 0.240_226_5, std::f32::consts::LN_2, 1.0] {
            p = Self::fma(p, r, Self::splat(c));
        }
        Self::scale_by_power(p, z)
    }

    /// eˣ to about one unit in the last place for −87 ≤ x ≤ 88. Arguments are clamped to this range; NaN stays NaN.
    #[inline(always)]
    fn exp(x: Self::F) -> Self::F {
        // NaN passes through: both functions then return their second argument.
        let x = Self::min(Self::splat(88.0), Self::max(Self::splat(-87.0), x));
        // n = round(x / ln 2), in the low mantissa bits of z; r = x − n ln 2 in two steps, the first with a constant of
        // so few bits that its product is exact.
        let magic = Self::splat(12_582_912.0);
        let z = Self::fma(x, Self::splat(std::f32::consts::LOG2_E), magic);
        let n = Self::sub(z, magic);
        let r = Self::fma(n, Self::splat(-0.693_359_4), x);
        let r = Self::fma(n, Self::splat(2.121_944_4e-4), r);
        // Taylor series to the seventh degree on |r| ≤ 0.347: the remainder is below 6e-9.
        let mut p = Self::splat(1.0 / 5040.0);
        for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            p = Self::fma(p, r, Self::splat(c));
        }
        Self::scale_by_power(p, z)
    }
}

/// Rounds to bf16, ties to even, in the lower half of a word; denormals become zero.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> u32 {
    // Branch-free, so that loops over it are vectorised.
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let magnitude = bits & 0x7fff_ffff;
    let tiny = magnitude < 0x0080_0000;
    let nan = magnitude > 0x7f80_0000;
    if nan {
        bits >> 16 | 0x40
    } else if tiny {
        bits >> 16 & 0x8000
    } else {
        rounded
    }
}

/// Rounds 32 numbers to bf16, in pairs.
#[inline(always)]
pub(crate) fn round_pairs<S: Simd>(x: &[f32; 32]) -> [u32; 16] {
    let mut words = [0; 16];
    for (word, x) in words.iter_mut().zip(x.as_chunks::<2>().0) {
        *word = to_bf16(x[0]) | to_bf16(x[1]) << 16;
    }
    words
}

/// Lanes with a dot product of four bytes.
pub(crate) trait Dot4: Simd {
    /// Adds the dot product of each lane's four unsigned bytes with the four signed bytes of `word` (little-endian).
    /// Exact.
    fn dot4(acc: Self::I, unsigned: Self::B, word: i32) -> Self::I;
}
