//! AVX2 with FMA.
//!
//! [`Halves`] is used only inside `dispatch!`, which has detected the instruction set; every intrinsic relies on that.

#![allow(
    clippy::wildcard_imports,
    reason = "a list of seventy intrinsics says nothing; clippy does not look in test builds"
)]
#![expect(clippy::cast_ptr_alignment, reason = "the loads are those for unaligned data")]

use std::arch::x86_64::*;

use super::prefetch;
use crate::groups::{GroupRows, IntGroups, IntProducts, end_half};
use crate::isa::IsaFacts;
use crate::simd::{LANES, Simd};
use crate::{ProductForm, WeightType};

pub(in crate::isa) const FACTS: IsaFacts =
    IsaFacts { is_available, rows: Avx2::ROWS, has_byte_dot: false, pair_tile: || None, has_tiles: false };

pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

/// Compiles a body over [`Avx2`].
macro_rules! avx2 {
    ($($body:tt)*) => { $crate::isa::compile!("avx2,fma,f16c", $crate::isa::x86::Avx2, $($body)*) };
}
pub(crate) use avx2;

/// Two 256-bit halves. `BYTE_DOT` means that the machine has a byte dot product instruction, which only changes the
/// [integer products](IntProducts).
#[derive(Clone, Copy)]
pub(crate) struct Halves<const BYTE_DOT: bool>;

/// Halves of a machine with plain AVX2.
pub(crate) type Avx2 = Halves<false>;

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
pub(super) use each;

macro_rules! both {
    ($f:ident, $($v:expr),+) => {
        // SAFETY: AVX2 and FMA were found before this type is used.
        unsafe { [$f($($v[0]),+), $f($($v[1]),+)] }
    };
}

/// Arithmetic of two vectors in one instruction for each half.
macro_rules! lanewise {
    ($($name:ident = $f:ident),+) => {
        $(#[inline(always)]
        fn $name(a: Self::F, b: Self::F) -> Self::F {
            both!($f, a, b)
        })+
    };
}

impl<const BYTE_DOT: bool> Halves<BYTE_DOT> {
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
    /// Dot products of half a group of weights with few bits: products are summed in 16 bits over `RUN` quads.
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
        // Last, to leave registers for the sums of the loop.
        let zero = weights.weight_type().zero();
        for r in 0..R {
            dots[r] = both!(_mm256_sub_epi32, dots[r], Self::splat_i(zero * rows.sums[r]));
        }
        dots
    }

    /// Dot products of half a group of 8-bit weights with zero point 128: their magnitudes are multiplied by words that
    /// carry their signs, so that two products fit 16 bits.
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

impl<const BYTE_DOT: bool> Simd for Halves<BYTE_DOT> {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    type B = [__m256i; 2];
    // Sixteen registers, two per vector: three rows have twelve for their sums, one number and one vector of weights.
    // Integer products hold half a panel at a time, so twice as many rows fit.
    const ROWS: [usize; ProductForm::ALL.len()] = [3, 6, 4, 4];
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
    lanewise! {
        add = _mm256_add_ps, sub = _mm256_sub_ps, mul = _mm256_mul_ps, div = _mm256_div_ps, max = _mm256_max_ps, min = _mm256_min_ps
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
    fn pick_b(table: &[u8; 16], at: Self::B) -> Self::B {
        // SAFETY: AVX2 was found before this type is used; the table is one 128-bit vector long.
        each!(h => unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, at[h])
        })
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
    #[inline(always)]
    fn prefetch<const SOON: bool>(at: *const u8) {
        prefetch::<SOON>(at);
    }
}

impl IntProducts for Avx2 {
    #[inline(always)]
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    ) {
        for half in 0..2 {
            // As many sums of two products as fit 16 bits: 2 · RUN · (2ᵇⁱᵗˢ − 1) · 127 is below 2¹⁵.
            let dots = match weights.weight_type() {
                WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Q4_K => {
                    Self::dots_by_runs::<R, QUADS, 8>(weights, rows, half)
                }
                WeightType::Q5_0 | WeightType::Q5_1 | WeightType::Q5_K | WeightType::MXFP4 => {
                    Self::dots_by_runs::<R, QUADS, 4>(weights, rows, half)
                }
                WeightType::Q6_K => Self::dots_by_runs::<R, QUADS, 2>(weights, rows, half),
                _ => Self::signed_dots(weights, rows, half),
            };
            end_half::<Self, R, QUADS, MINIMA>(weights, rows, half, dots, y);
        }
    }
}
