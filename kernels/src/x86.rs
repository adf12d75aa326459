//! [`Simd`] on AVX2 and AVX-512.
//!
//! The token types exist only behind `dispatch!`, which runs them after it found the instruction set; every intrinsic
//! relies on that.

#![allow(
    clippy::wildcard_imports,
    reason = "a list of seventy intrinsics says nothing; clippy does not look in test builds"
)]
#![expect(clippy::cast_ptr_alignment, reason = "the loads are those for unaligned data")]

use std::arch::x86_64::*;

use crate::groups::{IntGroups, Packed, Quantised, by_type};
use crate::simd::{Dot4, LANES, Simd};
use crate::tiles::{Before, GroupRows, Sums, add_quads, end_half, load, store};
use crate::unpack::Part;
use crate::worker::Work;
use crate::{Form, WeightType};

/// Two 256-bit halves.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// One 512-bit register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// An expression for both halves: a closure would not be compiled for its caller's instruction set.
macro_rules! each {
    ($h:ident => $body:expr) => {
        [
            {
                let $h = 0usize;
                $body
            },
            {
                let $h = 1usize;
                $body
            },
        ]
    };
}

macro_rules! both {
    ($f:ident, $($v:expr),+) => {
        // SAFETY: AVX2 and FMA were found before this type is used.
        unsafe { [$f($($v[0]),+), $f($($v[1]),+)] }
    };
}

impl Avx2 {
    /// Numbers whose upper halves are the nearest bf16.
    #[inline(always)]
    fn rounded(v: [__m256; 2]) -> [__m256i; 2] {
        let v = Self::flush(v);
        // SAFETY: AVX2 was found before this type is used.
        each!(h => unsafe {
            let bits = _mm256_castps_si256(v[h]);
            let half = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            _mm256_add_epi32(bits, _mm256_add_epi32(half, _mm256_set1_epi32(0x7fff)))
        })
    }
}

impl Avx2 {
    /// Dot products of half a group of weights of few bits: products are summed in 16 bits, `RUN` quads long.
    #[inline(always)]
    fn dots_by_runs<const R: usize, const QUADS: usize, const RUN: usize>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        half: usize,
    ) -> [[__m256i; 2]; R] {
        let mut dots = [Self::splat_i(0); R];
        let (runs, []) = rows.words.as_chunks::<RUN>() else { unreachable!("a group is whole runs") };
        for (run, words) in runs.iter().enumerate() {
            let mut short = [Self::splat_i(0); R];
            for (quad, x) in words.iter().enumerate() {
                let w = weights.quad(rows.group, run * RUN + quad, half);
                for r in 0..R {
                    // SAFETY: AVX2 was found before this type is used.
                    short[r] = each!(h => unsafe { _mm256_add_epi16(short[r][h], _mm256_maddubs_epi16(w[h], _mm256_set1_epi32(x[r]))) });
                }
            }
            for r in 0..R {
                // SAFETY: as above.
                dots[r] = each!(h => unsafe { _mm256_add_epi32(dots[r][h], _mm256_madd_epi16(short[r][h], _mm256_set1_epi16(1))) });
            }
        }
        // Last, so that there are registers for the sums of the loop.
        let zero = weights.weight_type().zero();
        for r in 0..R {
            dots[r] = both!(_mm256_sub_epi32, dots[r], Self::splat_i(zero * rows.sums[r]));
        }
        dots
    }

    /// Dot products of half a group of weights of eight bits, 128 standing for zero: their magnitudes by words that
    /// have their signs, so that two products fit into 16 bits.
    #[inline(always)]
    fn signed_dots<const R: usize, const QUADS: usize>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        half: usize,
    ) -> [[__m256i; 2]; R] {
        let mut dots = [Self::splat_i(0); R];
        for (quad, x) in rows.words.iter().enumerate() {
            let w = Self::sub_b(weights.quad(rows.group, quad, half), 128);
            for r in 0..R {
                // SAFETY: AVX2 was found before this type is used.
                dots[r] = each!(h => unsafe {
                    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w[h]), _mm256_sign_epi8(_mm256_set1_epi32(x[r]), w[h]));
                    _mm256_add_epi32(dots[r][h], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
                });
            }
        }
        dots
    }
}

impl Simd for Avx2 {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    type B = [__m256i; 2];
    const ROWS: usize = 3;
    const MOST_ROWS: usize = 6;
    const IN_PLACE: bool = true;

    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        // SAFETY: AVX2 was found before this type is used.
        unsafe { [_mm256_set1_ps(x); 2] }
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::F {
        // SAFETY: AVX2 was found before this type is used.
        unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
    }
    #[inline(always)]
    fn store(v: Self::F, to: &mut [f32; LANES]) {
        // SAFETY: AVX2 was found before this type is used.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), v[1]);
        }
    }
    #[inline(always)]
    fn add(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_add_ps, a, b)
    }
    #[inline(always)]
    fn sub(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_sub_ps, a, b)
    }
    #[inline(always)]
    fn mul(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_mul_ps, a, b)
    }
    #[inline(always)]
    fn div(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_div_ps, a, b)
    }
    #[inline(always)]
    fn max(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_max_ps, a, b)
    }
    #[inline(always)]
    fn min(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_min_ps, a, b)
    }
    #[inline(always)]
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(_mm256_fmadd_ps, a, b, c)
    }
    #[inline(always)]
    fn flush(v: Self::F) -> Self::F {
        // SAFETY: AVX2 was found before this type is used.
        each!(h => unsafe {
            let sign = _mm256_set1_ps(-0.0);
            let tiny = _mm256_cmp_ps::<_CMP_LT_OQ>(_mm256_andnot_ps(sign, v[h]), _mm256_set1_ps(f32::MIN_POSITIVE));
            _mm256_blendv_ps(v[h], _mm256_and_ps(v[h], sign), tiny)
        })
    }
    #[inline(always)]
    fn scale_by_power(p: Self::F, z: Self::F) -> Self::F {
        // SAFETY: AVX2 was found before this type is used.
        each!(h => unsafe {
            let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(z[h]));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p[h]), exponent))
        })
    }
    #[inline(always)]
    fn splat_i(x: i32) -> Self::I {
        // SAFETY: AVX2 was found before this type is used.
        unsafe { [_mm256_set1_epi32(x); 2] }
    }
    #[inline(always)]
    fn to_f(v: Self::I) -> Self::F {
        both!(_mm256_cvtepi32_ps, v)
    }
    #[inline(always)]
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    ) {
        for half in 0..2 {
            // As many sums of two products as 16 bits hold: 2 · RUN · (2ᵇⁱᵗˢ − 1) · 127 is below 2¹⁵.
            let dots = match weights.weight_type().bits() {
                4 => Self::dots_by_runs::<R, QUADS, 8>(weights, rows, half),
                5 => Self::dots_by_runs::<R, QUADS, 4>(weights, rows, half),
                6 => Self::dots_by_runs::<R, QUADS, 2>(weights, rows, half),
                _ => Self::signed_dots(weights, rows, half),
            };
            end_half::<Self, R, QUADS, MINIMA>(weights, rows, half, dots, y);
        }
    }
    #[inline(always)]
    fn load_f16(from: &[u8; 2 * LANES]) -> Self::F {
        // SAFETY: F16C was found before this type is used.
        unsafe {
            let at = from.as_ptr().cast::<__m128i>();
            [_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at.add(1)))]
        }
    }
    #[inline(always)]
    fn load_u8(from: &[u8; LANES]) -> Self::F {
        // SAFETY: AVX2 was found before this type is used.
        each!(h => unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.as_ptr().add(8 * h).cast()))) })
    }
    #[inline(always)]
    fn load_i8(from: &[u8; LANES]) -> Self::F {
        // SAFETY: AVX2 was found before this type is used.
        each!(h => unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().add(8 * h).cast()))) })
    }
    #[inline(always)]
    fn load_pairs(from: &[u8; 4 * LANES]) -> [Self::F; 2] {
        let pairs = Self::load_b(from);
        // SAFETY: AVX2 was found before this type is used.
        let first = each!(h => unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs[h])) });
        // SAFETY: as above.
        let second = each!(h => unsafe { _mm256_castsi256_ps(_mm256_and_si256(pairs[h], _mm256_set1_epi32(-65536))) });
        [first, second]
    }
    #[inline(always)]
    fn load_b(from: &[u8; 4 * LANES]) -> Self::B {
        let at = from.as_ptr().cast::<__m256i>();
        // SAFETY: AVX2 was found before this type is used; the array is two vectors long.
        unsafe { [_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))] }
    }
    #[inline(always)]
    fn store_b(v: Self::B, to: &mut [u8; 4 * LANES]) {
        let at = to.as_mut_ptr().cast::<__m256i>();
        // SAFETY: AVX2 was found before this type is used; the array is two vectors long.
        unsafe {
            _mm256_storeu_si256(at, v[0]);
            _mm256_storeu_si256(at.add(1), v[1]);
        }
    }
    #[inline(always)]
    fn and_b(a: Self::B, mask: u8) -> Self::B {
        // SAFETY: AVX2 was found before this type is used.
        each!(h => unsafe { _mm256_and_si256(a[h], _mm256_set1_epi8(mask.cast_signed())) })
    }
    #[inline(always)]
    fn or_b(a: Self::B, b: Self::B) -> Self::B {
        both!(_mm256_or_si256, a, b)
    }
    #[inline(always)]
    fn sub_b(a: Self::B, b: u8) -> Self::B {
        // SAFETY: AVX2 was found before this type is used.
        each!(h => unsafe { _mm256_sub_epi8(a[h], _mm256_set1_epi8(b.cast_signed())) })
    }
    #[inline(always)]
    fn shr_b(a: Self::B, n: u32) -> Self::B {
        // SAFETY: AVX2 was found before this type is used.
        each!(h => unsafe { _mm256_srl_epi16(a[h], _mm_cvtsi32_si128(n as i32)) })
    }
    #[inline(always)]
    fn shl_b(a: Self::B, n: u32) -> Self::B {
        // SAFETY: AVX2 was found before this type is used.
        each!(h => unsafe { _mm256_sll_epi16(a[h], _mm_cvtsi32_si128(n as i32)) })
    }
    #[inline(always)]
    fn unzip(v: Self::B) -> [Self::F; 4] {
        // SAFETY: AVX2 was found before this type is used.
        let mut bytes = [[unsafe { _mm256_setzero_ps() }; 2]; 4];
        for (i, bytes) in bytes.iter_mut().enumerate() {
            // SAFETY: as above.
            *bytes = each!(h => unsafe {
                let byte = _mm256_srl_epi32(v[h], _mm_cvtsi32_si128(8 * i as i32));
                _mm256_cvtepi32_ps(_mm256_and_si256(byte, _mm256_set1_epi32(255)))
            });
        }
        bytes
    }
    #[inline(always)]
    fn to_pairs(even: Self::F, odd: Self::F) -> Self::B {
        // SAFETY: AVX2 was found before this type is used.
        let (even, odd) = (Self::rounded(even), Self::rounded(odd));
        // SAFETY: as above.
        each!(h => unsafe {
            let high = _mm256_and_si256(odd[h], _mm256_set1_epi32(-65536));
            _mm256_or_si256(_mm256_srli_epi32::<16>(even[h]), high)
        })
    }
}

macro_rules! one {
    ($f:ident, $($v:expr),+) => {
        // SAFETY: AVX-512 was found before this type is used.
        unsafe { $f($($v),+) }
    };
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;
    const ROWS: usize = 12;
    const MOST_ROWS: usize = 12;
    const IN_PLACE: bool = true;

    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        one!(_mm512_set1_ps, x)
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::F {
        // SAFETY: AVX-512 was found before this type is used.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn store(v: Self::F, to: &mut [f32; LANES]) {
        // SAFETY: AVX-512 was found before this type is used.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn add(a: Self::F, b: Self::F) -> Self::F {
        one!(_mm512_add_ps, a, b)
    }
    #[inline(always)]
    fn sub(a: Self::F, b: Self::F) -> Self::F {
        one!(_mm512_sub_ps, a, b)
    }
    #[inline(always)]
    fn mul(a: Self::F, b: Self::F) -> Self::F {
        one!(_mm512_mul_ps, a, b)
    }
    #[inline(always)]
    fn div(a: Self::F, b: Self::F) -> Self::F {
        one!(_mm512_div_ps, a, b)
    }
    #[inline(always)]
    fn max(a: Self::F, b: Self::F) -> Self::F {
        one!(_mm512_max_ps, a, b)
    }
    #[inline(always)]
    fn min(a: Self::F, b: Self::F) -> Self::F {
        one!(_mm512_min_ps, a, b)
    }
    #[inline(always)]
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        one!(_mm512_fmadd_ps, a, b, c)
    }
    #[inline(always)]
    fn flush(v: Self::F) -> Self::F {
        // SAFETY: AVX-512 was found before this type is used.
        unsafe {
            let tiny = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_abs_ps(v), _mm512_set1_ps(f32::MIN_POSITIVE));
            let sign = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(i32::MIN));
            _mm512_mask_mov_ps(v, tiny, _mm512_castsi512_ps(sign))
        }
    }
    #[inline(always)]
    fn scale_by_power(p: Self::F, z: Self::F) -> Self::F {
        // SAFETY: AVX-512 was found before this type is used.
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(z));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent))
        }
    }
    #[inline(always)]
    fn splat_i(x: i32) -> Self::I {
        one!(_mm512_set1_epi32, x)
    }
    #[inline(always)]
    fn to_f(v: Self::I) -> Self::F {
        one!(_mm512_cvtepi32_ps, v)
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
        // SAFETY: AVX-512 was found before this type is used; the array is one 256-bit vector long.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_u8(from: &[u8; LANES]) -> Self::F {
        // SAFETY: AVX-512 was found before this type is used; the array is one 128-bit vector long.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn load_i8(from: &[u8; LANES]) -> Self::F {
        // SAFETY: AVX-512 was found before this type is used; the array is one 128-bit vector long.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn load_pairs(from: &[u8; 4 * LANES]) -> [Self::F; 2] {
        // SAFETY: AVX-512 was found before this type is used; the array is one vector long.
        unsafe {
            let pairs = _mm512_loadu_si512(from.as_ptr().cast());
            let second = _mm512_and_si512(pairs, _mm512_set1_epi32(-65536));
            [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(second)]
        }
    }
    #[inline(always)]
    fn load_b(from: &[u8; 4 * LANES]) -> Self::B {
        // SAFETY: AVX-512 was found before this type is used; the array is one vector long.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store_b(v: Self::B, to: &mut [u8; 4 * LANES]) {
        // SAFETY: AVX-512 was found before this type is used; the array is one vector long.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), v) }
    }
    #[inline(always)]
    fn and_b(a: Self::B, mask: u8) -> Self::B {
        // SAFETY: AVX-512 was found before this type is used.
        unsafe { _mm512_and_si512(a, _mm512_set1_epi8(mask.cast_signed())) }
    }
    #[inline(always)]
    fn or_b(a: Self::B, b: Self::B) -> Self::B {
        one!(_mm512_or_si512, a, b)
    }
    #[inline(always)]
    fn sub_b(a: Self::B, b: u8) -> Self::B {
        // SAFETY: AVX-512 was found before this type is used.
        unsafe { _mm512_sub_epi8(a, _mm512_set1_epi8(b.cast_signed())) }
    }
    #[inline(always)]
    fn shr_b(a: Self::B, n: u32) -> Self::B {
        // SAFETY: AVX-512 was found before this type is used.
        unsafe { _mm512_srl_epi16(a, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    fn shl_b(a: Self::B, n: u32) -> Self::B {
        // SAFETY: AVX-512 was found before this type is used.
        unsafe { _mm512_sll_epi16(a, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    fn unzip(v: Self::B) -> [Self::F; 4] {
        // SAFETY: AVX-512 was found before this type is used.
        std::array::from_fn(|i| unsafe {
            let byte = _mm512_srl_epi32(v, _mm_cvtsi32_si128(8 * i as i32));
            _mm512_cvtepi32_ps(_mm512_and_si512(byte, _mm512_set1_epi32(255)))
        })
    }
    #[inline(always)]
    fn to_pairs(even: Self::F, odd: Self::F) -> Self::B {
        let (even, odd) = (Self::flush(even), Self::flush(odd));
        // SAFETY: AVX-512 was found before this type is used.
        unsafe {
            let (even, odd) = (_mm512_castps_si512(even), _mm512_castps_si512(odd));
            let (one, most) = (_mm512_set1_epi32(1), _mm512_set1_epi32(0x7fff));
            let even =
                _mm512_add_epi32(even, _mm512_add_epi32(_mm512_and_si512(_mm512_srli_epi32::<16>(even), one), most));
            let odd =
                _mm512_add_epi32(odd, _mm512_add_epi32(_mm512_and_si512(_mm512_srli_epi32::<16>(odd), one), most));
            _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(even), odd)
        }
    }
}

impl Dot4 for Avx512 {
    #[inline(always)]
    fn dot4(acc: Self::I, unsigned: Self::B, word: i32) -> Self::I {
        // SAFETY: AVX-512 VNNI was found before this type is used.
        unsafe { _mm512_dpbusd_epi32(acc, unsigned, _mm512_set1_epi32(word)) }
    }
}

/// `Form::Pairs` on the bf16 dot product: weights `(k / 2, half, output, 2)`, `tile` `(k / 2, row)`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
#[inline]
fn dot_tile<const R: usize>(panel: &[[[u8; 4 * LANES]; 2]], tile: &[u32], mut before: Before<'_>) {
    let mut y: [[__m512; 2]; R] = load::<Avx512, R>(&before);
    for (w, x) in panel.iter().zip(tile.as_chunks::<R>().0) {
        // SAFETY: both bit patterns are vectors of 512 bits.
        let [w0, w1] = unsafe {
            std::mem::transmute::<[__m512i; 2], [__m512bh; 2]>([Avx512::load_b(&w[0]), Avx512::load_b(&w[1])])
        };
        for r in 0..R {
            // SAFETY: as above.
            let x = unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(x[r].cast_signed())) };
            y[r][0] = _mm512_dpbf16_ps(y[r][0], x, w0);
            y[r][1] = _mm512_dpbf16_ps(y[r][1], x, w1);
        }
    }
    store::<Avx512, R>(y, &mut before);
}

/// Expands a part to bf16, `(k / 2, half, output, 2)`, in the bits of [`unpack_pairs`](crate::unpack::unpack_pairs).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
pub(crate) fn unpack_bf16(part: Part<'_>, to: &mut [[[u8; 4 * LANES]; 2]]) {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
    fn whole<T: Quantised, const QUADS: usize, const MINIMA: bool>(part: Part<'_>, to: &mut [[[u8; 4 * LANES]; 2]]) {
        Expansion::<T, QUADS, MINIMA>::new(part, to).advance(1, 1);
    }
    by_type!(part.weights.weight_type(), whole(part, to));
}

/// A part that is being expanded, four `k` of half a panel after the other.
pub(crate) struct Expansion<'a, T, const QUADS: usize, const MINIMA: bool> {
    weights: Packed<'a, T>,
    /// By group and quad, both halves of two `k` and of the next two.
    to: &'a mut [[[[[u8; 4 * LANES]; 2]; 2]; QUADS]],
    /// Quads that are done, of `to.len()` groups of two halves of `QUADS`.
    done: usize,
    /// The group's scales and what is added.
    d: __m512,
    offset: __m512,
}

impl<'a, T: Quantised, const QUADS: usize, const MINIMA: bool> Expansion<'a, T, QUADS, MINIMA> {
    /// Of a part into as many words as it has.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
    #[inline]
    pub(crate) fn new(part: Part<'a>, to: &'a mut [[[u8; 4 * LANES]; 2]]) -> Self {
        let to = to.as_chunks_mut::<2>().0.as_chunks_mut::<QUADS>().0;
        Self { weights: Packed::new(part), to, done: 0, d: _mm512_setzero_ps(), offset: _mm512_setzero_ps() }
    }

    /// Goes on until `turn` of `turns` shares are done.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
    #[inline]
    pub(crate) fn advance(&mut self, turn: usize, turns: usize) {
        let until = 2 * QUADS * self.to.len() * turn / turns;
        while self.done < until {
            let (group, half, quad) = (self.done / (2 * QUADS), self.done / QUADS % 2, self.done % QUADS);
            let weights = &self.weights;
            if quad == 0 {
                self.d = IntGroups::<Avx512, QUADS>::scale(weights, group, half);
                // What is added to a product: the minimum, or what the integer that stands for zero makes. That is a
                // power of two and its product exact, so that the sum is rounded as the product of the difference would
                // be.
                self.offset = if MINIMA {
                    IntGroups::<Avx512, QUADS>::minimum(weights, group, half)
                } else {
                    _mm512_mul_ps(self.d, _mm512_set1_ps(-T::TYPE.zero() as f32))
                };
            }
            let q = IntGroups::<Avx512, QUADS>::quad(weights, group, quad, half);
            let [first, second] = quad_to_bf16::<MINIMA>(q, self.d, self.offset);
            let to = &mut self.to[group][quad];
            Avx512::store_b(first, &mut to[0][half]);
            Avx512::store_b(second, &mut to[1][half]);
            self.done += 1;
        }
    }
}

/// The nearest bf16 of `u · d + offset` for four unsigned integers a lane, by twos; the product is rounded where it is
/// `APART`.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
fn quad_to_bf16<const APART: bool>(q: __m512i, d: __m512, offset: __m512) -> [__m512i; 2] {
    // Of two vectors of halves, one from each in turn.
    const ORDER: [u16; 32] = {
        let mut order = [0; 32];
        let mut at = 0;
        while at < 32 {
            order[at] = (at / 2 + at % 2 * 16) as u16;
            at += 1;
        }
        order
    };
    // SAFETY: the array is one vector long.
    let order = unsafe { _mm512_loadu_si512(ORDER.as_ptr().cast()) };
    let byte = _mm512_set1_epi32(255);
    let bytes = [
        _mm512_and_si512(q, byte),
        _mm512_and_si512(_mm512_srli_epi32::<8>(q), byte),
        _mm512_and_si512(_mm512_srli_epi32::<16>(q), byte),
        _mm512_srli_epi32::<24>(q),
    ];
    let mut k = [d; 4];
    for (k, q) in k.iter_mut().zip(bytes) {
        let q = _mm512_cvtepi32_ps(q);
        *k = if APART { _mm512_add_ps(_mm512_mul_ps(q, d), offset) } else { _mm512_fmadd_ps(q, d, offset) };
    }
    let mut pairs = [q; 2];
    for (pairs, halves) in pairs.iter_mut().zip([_mm512_cvtne2ps_pbh(k[1], k[0]), _mm512_cvtne2ps_pbh(k[3], k[2])]) {
        // SAFETY: both bit patterns are vectors of 512 bits.
        let halves = unsafe { std::mem::transmute::<__m512bh, __m512i>(halves) };
        *pairs = _mm512_permutexvar_epi16(order, halves);
    }
    pairs
}

/// `Form::Pairs` on the bf16 dot product.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(crate) fn dot_rows(work: &Work<'_>, sums: &mut [Sums]) {
    let part = work.part;
    for (tile, first) in work.tiles() {
        let x = work.inputs.half_tile(Form::Pairs, tile, part.start, part.len);
        let (panel, sums) = (part.lines(), Before { sums: &mut sums[first..], fresh: part.start == 0 });
        match tile.1 {
            12 => dot_tile::<12>(panel, x, sums),
            6 => dot_tile::<6>(panel, x, sums),
            4 => dot_tile::<4>(panel, x, sums),
            3 => dot_tile::<3>(panel, x, sums),
            2 => dot_tile::<2>(panel, x, sums),
            _ => dot_tile::<1>(panel, x, sums),
        }
    }
}
