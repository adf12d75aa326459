//! Sixteen lanes of f32 or i32 on each instruction set, with identical results on all of them.
//!
//! Kernels are written once over [`Simd`]. Each operation is exactly rounded (or exact in integers) and lanes never
//! meet but in [`Simd::sum`], whose order is fixed; so a kernel gives the same bits whatever it is compiled for.

use half::f16;

use crate::groups::IntGroups;
use crate::tiles::{GroupRows, add_quads};

/// Lanes in a vector.
pub(crate) const LANES: usize = 16;

/// Sixteen-lane arithmetic. Loads and stores take arrays, so that no length can be wrong.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32.
    type I: Copy;
    /// Sixty-four bytes.
    type B: Copy;
    /// Rows whose sums of two vectors each stay in registers while vectors are multiplied with a number of each row.
    const ROWS: usize;
    /// Rows of the largest register tile of any product: code for larger ones is not made.
    const MOST_ROWS: usize;
    /// Whether few rows are multiplied with quantised weights where they lie.
    const IN_PLACE: bool;
    fn splat(x: f32) -> Self::F;
    fn load(from: &[f32; LANES]) -> Self::F;
    fn store(v: Self::F, to: &mut [f32; LANES]);
    fn add(a: Self::F, b: Self::F) -> Self::F;
    fn sub(a: Self::F, b: Self::F) -> Self::F;
    fn mul(a: Self::F, b: Self::F) -> Self::F;
    fn div(a: Self::F, b: Self::F) -> Self::F;
    /// The larger of each lane; `b` where one is NaN.
    fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller of each lane; `b` where one is NaN.
    fn min(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Denormals as zeros of their sign.
    fn flush(v: Self::F) -> Self::F;
    /// `p · 2ⁿ` where `z` holds `n + 1.5 · 2²³`, −126 ≤ n ≤ 127.
    fn scale_by_power(p: Self::F, z: Self::F) -> Self::F;

    /// Sixteen halves, widened exactly.
    fn load_f16(from: &[u8; 2 * LANES]) -> Self::F;
    /// Sixteen small unsigned integers.
    fn load_u8(from: &[u8; LANES]) -> Self::F;
    /// Sixteen small signed integers.
    fn load_i8(from: &[u8; LANES]) -> Self::F;
    /// Of sixteen pairs of upper halves of f32, the first and the second ones.
    fn load_pairs(from: &[u8; 4 * LANES]) -> [Self::F; 2];

    fn load_b(from: &[u8; 4 * LANES]) -> Self::B;
    fn store_b(v: Self::B, to: &mut [u8; 4 * LANES]);
    fn and_b(a: Self::B, mask: u8) -> Self::B;
    fn or_b(a: Self::B, b: Self::B) -> Self::B;
    fn sub_b(a: Self::B, b: u8) -> Self::B;
    /// Each byte shifted right by `n`, its upper bits those of the neighbour: mask them.
    fn shr_b(a: Self::B, n: u32) -> Self::B;
    /// Each byte shifted left by `n`, its lower bits those of the neighbour: mask them.
    fn shl_b(a: Self::B, n: u32) -> Self::B;
    /// Byte `i` of each of the sixteen words, as floats, for `i` in 0..4.
    fn unzip(v: Self::B) -> [Self::F; 4];
    /// Words of two bf16, the nearest to the lanes of `even` and of `odd` (to even), denormals as zeros. The lanes are
    /// numbers.
    fn to_pairs(even: Self::F, odd: Self::F) -> Self::B;

    fn splat_i(x: i32) -> Self::I;
    fn to_f(v: Self::I) -> Self::F;
    /// Adds the products of a group of weights with a tile's rows to their sums. Dot products are exact, the rest is
    /// [`end_half`](crate::tiles::end_half).
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    );

    /// The lanes, for the horizontal steps.
    fn lanes(v: Self::F) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        Self::store(v, &mut lanes);
        lanes
    }

    /// The sum over lanes as a balanced tree: halves are added lane by lane until one is left.
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

    /// The largest lane, NaN left out.
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

    /// 2ˣ for x ≤ 0 to 2⁻¹⁴ of its value; arguments below −126 are taken as that, NaN stays NaN.
    #[inline(always)]
    fn exp2_short(x: Self::F) -> Self::F {
        let x = Self::max(Self::splat(-126.0), x);
        let magic = Self::splat(12_582_912.0);
        let z = Self::add(x, magic);
        let r = Self::sub(x, Self::sub(z, magic));
        // Taylor of e^(r ln 2) to the fourth degree on |r| ≤ ½: the remainder is below 5e-5.
        let mut p = Self::splat(9.618_129e-3);
        for c in [5.550_411e-2, 0.240_226_5, std::f32::consts::LN_2, 1.0] {
            p = Self::fma(p, r, Self::splat(c));
        }
        Self::scale_by_power(p, z)
    }

    /// eˣ to about one unit in the last place for −87 ≤ x ≤ 88; arguments outside are taken as the nearest bound, NaN
    /// stays NaN.
    #[inline(always)]
    fn exp(x: Self::F) -> Self::F {
        // NaN passes through: both comparisons give their second argument then.
        let x = Self::min(Self::splat(88.0), Self::max(Self::splat(-87.0), x));
        // n = round(x / ln 2), held in the low mantissa bits of z; r = x − n ln 2 in two steps.
        let magic = Self::splat(12_582_912.0);
        let z = Self::fma(x, Self::splat(std::f32::consts::LOG2_E), magic);
        let n = Self::sub(z, magic);
        let r = Self::fma(n, Self::splat(-0.693_359_4), x);
        let r = Self::fma(n, Self::splat(2.121_944_4e-4), r);
        // Taylor to the seventh degree on |r| ≤ 0.347: the remainder is below 6e-9.
        let mut p = Self::splat(1.0 / 5040.0);
        for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            p = Self::fma(p, r, Self::splat(c));
        }
        Self::scale_by_power(p, z)
    }
}

/// The nearest bf16, to even, as the lower half of a word; denormals become zero.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> u32 {
    // Without branches, so that loops over it become vector code.
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

/// Portable lanes.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Plain {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type B = [u8; 4 * LANES];
    const ROWS: usize = 4;
    const MOST_ROWS: usize = 4;
    const IN_PLACE: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::F {
        *from
    }
    #[inline(always)]
    fn store(v: Self::F, to: &mut [f32; LANES]) {
        *to = v;
    }
    #[inline(always)]
    fn add(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn max(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // A closure in place of the loop would not be compiled for the caller's instruction set.
        let mut y = c;
        for i in 0..LANES {
            y[i] = a[i].mul_add(b[i], c[i]);
        }
        y
    }
    #[inline(always)]
    fn flush(v: Self::F) -> Self::F {
        v.map(|x| if x.abs() < f32::MIN_POSITIVE { f32::from_bits(x.to_bits() & 0x8000_0000) } else { x })
    }
    #[inline(always)]
    fn scale_by_power(p: Self::F, z: Self::F) -> Self::F {
        zip(p, z, |p, z| f32::from_bits(p.to_bits().wrapping_add(z.to_bits() << 23)))
    }
    #[inline(always)]
    fn splat_i(x: i32) -> Self::I {
        [x; LANES]
    }
    #[inline(always)]
    fn to_f(v: Self::I) -> Self::F {
        v.map(|x| x as f32)
    }
    #[inline(always)]
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    ) {
        add_quads::<Self, R, QUADS, MINIMA>(weights, rows, y);
    }
    #[inline(always)]
    fn load_f16(from: &[u8; 2 * LANES]) -> Self::F {
        std::array::from_fn(|i| f16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32())
    }
    #[inline(always)]
    fn load_u8(from: &[u8; LANES]) -> Self::F {
        from.map(f32::from)
    }
    #[inline(always)]
    fn load_i8(from: &[u8; LANES]) -> Self::F {
        from.map(|byte| f32::from(byte.cast_signed()))
    }
    #[inline(always)]
    fn load_pairs(from: &[u8; 4 * LANES]) -> [Self::F; 2] {
        let half = |i: usize| f32::from_bits(u32::from(u16::from_le_bytes([from[2 * i], from[2 * i + 1]])) << 16);
        [std::array::from_fn(|i| half(2 * i)), std::array::from_fn(|i| half(2 * i + 1))]
    }
    #[inline(always)]
    fn load_b(from: &[u8; 4 * LANES]) -> Self::B {
        *from
    }
    #[inline(always)]
    fn store_b(v: Self::B, to: &mut [u8; 4 * LANES]) {
        *to = v;
    }
    #[inline(always)]
    fn and_b(a: Self::B, mask: u8) -> Self::B {
        a.map(|a| a & mask)
    }
    #[inline(always)]
    fn or_b(a: Self::B, b: Self::B) -> Self::B {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn sub_b(a: Self::B, b: u8) -> Self::B {
        a.map(|a| a.wrapping_sub(b))
    }
    #[inline(always)]
    fn shr_b(a: Self::B, n: u32) -> Self::B {
        a.map(|a| a >> n)
    }
    #[inline(always)]
    fn shl_b(a: Self::B, n: u32) -> Self::B {
        a.map(|a| a << n)
    }
    #[inline(always)]
    fn unzip(v: Self::B) -> [Self::F; 4] {
        std::array::from_fn(|i| std::array::from_fn(|lane| f32::from(v[4 * lane + i])))
    }
    #[inline(always)]
    fn to_pairs(even: Self::F, odd: Self::F) -> Self::B {
        let mut words = [0; 4 * LANES];
        for (word, (even, odd)) in words.as_chunks_mut::<4>().0.iter_mut().zip(even.iter().zip(&odd)) {
            *word = (to_bf16(*even) | to_bf16(*odd) << 16).to_le_bytes();
        }
        words
    }
}

/// Lanes that have a product of four bytes of their own.
pub(crate) trait Dot4: Simd {
    /// Each lane plus the dot product of its four unsigned bytes with the four signed bytes of `word` (little end
    /// first). Exact.
    fn dot4(acc: Self::I, unsigned: Self::B, word: i32) -> Self::I;
}

impl Dot4 for Plain {
    #[inline(always)]
    fn dot4(acc: Self::I, unsigned: Self::B, word: i32) -> Self::I {
        let bytes = word.to_le_bytes();
        std::array::from_fn(|lane| {
            (0..4).fold(acc[lane], |sum, b| sum + i32::from(unsigned[4 * lane + b]) * i32::from(bytes[b].cast_signed()))
        })
    }
}
