//! AVX-512 F, BW, VL and VNNI, and its bf16 dot products if the machine has them.
//!
//! [`Avx512`] is used only inside `dispatch!`, which has detected the instruction set; every intrinsic relies on that.

#![allow(
    clippy::wildcard_imports,
    reason = "a list of seventy intrinsics says nothing; clippy does not look in test builds"
)]

use std::arch::x86_64::*;

use super::{avx2, prefetch};
use crate::ProductForm;
use crate::groups::{GroupRows, IntGroups, IntProducts, add_quads};
use crate::isa::IsaFacts;
use crate::simd::{Dot4, LANES, Simd};
use crate::tiles::{PairTile, PartialSums, load, store};

pub(in crate::isa) const FACTS: IsaFacts =
    IsaFacts { is_available, rows: Avx512::ROWS, has_byte_dot: true, pair_tile: found_pair_tile, has_tiles: false };

pub(in crate::isa) fn is_available() -> bool {
    avx2::is_available()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

/// Compiles a body over [`Avx512`].
macro_rules! avx512 {
    ($($body:tt)*) => {
        $crate::isa::compile!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c", $crate::isa::x86::Avx512, $($body)*)
    };
}
pub(crate) use avx512;

/// One 512-bit register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// Arithmetic of two vectors in one instruction each.
macro_rules! lanewise {
    ($($name:ident = $f:ident),+) => {
        $(#[inline(always)]
        fn $name(a: Self::F, b: Self::F) -> Self::F {
            one!($f, a, b)
        })+
    };
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
    // Thirty-two registers: twelve rows have 24 for their sums, the rest is for weights and a number. A group of
    // integers needs its dot products in addition to the sums, so half as many rows fit.
    const ROWS: [usize; ProductForm::ALL.len()] = [12, 6, 12, 4];
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
    lanewise! {
        add = _mm512_add_ps, sub = _mm512_sub_ps, mul = _mm512_mul_ps, div = _mm512_div_ps, max = _mm512_max_ps, min = _mm512_min_ps
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
    fn pick_b(table: &[u8; 16], at: Self::B) -> Self::B {
        // SAFETY: AVX-512 was found before this type is used; the table is one 128-bit vector long.
        unsafe { _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), at) }
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
    #[inline(always)]
    fn prefetch<const SOON: bool>(at: *const u8) {
        prefetch::<SOON>(at);
    }
}

impl IntProducts for Avx512 {
    #[inline(always)]
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    ) {
        add_quads::<Self, R, QUADS, MINIMA>(weights, rows, y);
    }
}

impl Dot4 for Avx512 {
    #[inline(always)]
    fn dot4(acc: Self::I, unsigned: Self::B, word: i32) -> Self::I {
        // SAFETY: AVX-512 VNNI was found before this type is used.
        unsafe { _mm512_dpbusd_epi32(acc, unsigned, _mm512_set1_epi32(word)) }
    }
}

/// [`pair_tile`], if this machine has the bf16 dot product instruction.
fn found_pair_tile() -> Option<PairTile> {
    // SAFETY: AVX-512 with bf16 exists where the tile is handed out.
    let tile: PairTile = |rows, panel, tile, before| unsafe { pair_tile(rows, panel, tile, before) };
    (is_available() && is_x86_feature_detected!("avx512bf16")).then_some(tile)
}

/// `Form::Pairs` on the bf16 dot product.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
fn pair_tile(rows: usize, panel: &[[[u8; 4 * LANES]; 2]], tile: &[u32], before: PartialSums<'_>) {
    match rows {
        12 => dot_tile::<12>(panel, tile, before),
        6 => dot_tile::<6>(panel, tile, before),
        4 => dot_tile::<4>(panel, tile, before),
        3 => dot_tile::<3>(panel, tile, before),
        2 => dot_tile::<2>(panel, tile, before),
        _ => dot_tile::<1>(panel, tile, before),
    }
}

/// `R` rows: weights `(k / 2, half, output, 2)`, `tile` `(k / 2, row)`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
#[inline]
fn dot_tile<const R: usize>(panel: &[[[u8; 4 * LANES]; 2]], tile: &[u32], mut before: PartialSums<'_>) {
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
