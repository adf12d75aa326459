//! NEON, available on every 64-bit ARM.
//!
//! [`Quarters`] is used only inside `dispatch!`, which has detected the instruction set; every intrinsic relies on
//! that.

#![allow(
    clippy::wildcard_imports,
    reason = "a list of seventy intrinsics says nothing; clippy does not look in test builds"
)]

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

use crate::groups::{GroupRows, IntGroups, IntProducts, end_half};
use crate::isa::IsaFacts;
use crate::simd::{LANES, Simd};
use crate::{ProductForm, WeightType};

pub(in crate::isa) const FACTS: IsaFacts =
    IsaFacts { is_available, rows: Neon::ROWS, has_byte_dot: false, pair_tile: || None, has_tiles: false };

pub(super) fn is_available() -> bool {
    is_aarch64_feature_detected!("neon")
}

/// Compiles a body over [`Neon`].
macro_rules! neon {
    ($($body:tt)*) => { $crate::isa::compile!("neon", $crate::isa::arm::Neon, $($body)*) };
}
pub(crate) use neon;

/// Four 128-bit quarters. `PRODUCTS` selects the byte product instructions, which only changes the [integer
/// products](IntProducts).
#[derive(Clone, Copy)]
pub(crate) struct Quarters<const PRODUCTS: u8>;

/// Quarters of a machine with plain NEON.
pub(crate) type Neon = Quarters<0>;

/// An expression for each quarter: a closure would not be compiled for its caller's instruction set.
macro_rules! each {
    ($q:ident => $body:expr) => {
        [
            {
                let $q = 0usize;
                $body
            },
            {
                let $q = 1usize;
                $body
            },
            {
                let $q = 2usize;
                $body
            },
            {
                let $q = 3usize;
                $body
            },
        ]
    };
}
pub(super) use each;

/// Arithmetic of two vectors in one instruction for each quarter.
macro_rules! lanewise {
    ($($name:ident = $f:ident),+) => {
        $(#[inline(always)]
        fn $name(a: Self::F, b: Self::F) -> Self::F {
            // SAFETY: NEON was found before this type is used.
            each!(q => unsafe { $f(a[q], b[q]) })
        })+
    };
}

impl<const PRODUCTS: u8> Quarters<PRODUCTS> {
    /// Numbers whose upper halves are the nearest bf16.
    #[inline(always)]
    fn rounded(v: [float32x4_t; 4]) -> [uint32x4_t; 4] {
        let v = Self::flush(v);
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe {
            let bits = vreinterpretq_u32_f32(v[q]);
            let half = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
            vaddq_u32(bits, vaddq_u32(half, vdupq_n_u32(0x7fff)))
        })
    }

    /// Initial value of the dot products of unsigned weights: the zero point is subtracted once per group.
    #[inline(always)]
    pub(super) fn taken_off<const R: usize>(weight_type: WeightType, sums: &[i32; R]) -> [int32x4_t; R] {
        let zero = weight_type.zero();
        // SAFETY: NEON was found before this type is used.
        let mut start = [unsafe { vdupq_n_s32(0) }; R];
        for r in 0..R {
            // SAFETY: as above.
            start[r] = unsafe { vdupq_n_s32(-zero * sums[r]) };
        }
        start
    }
}

impl Neon {
    /// Dot products of a quarter of half a panel: products are summed in 16 bits over `RUN` quads. 8-bit weights with
    /// zero point 128 are converted to signed ones (`SIGNED`).
    #[inline(always)]
    fn dots_by_runs<const R: usize, const QUADS: usize, const RUN: usize, const SIGNED: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        half: usize,
        q: usize,
    ) -> [int32x4_t; R] {
        // The first two and the last two of four outputs, with two sums each.
        let mut dots = [Self::taken_off(WeightType::Q8_0, &[0; R]); 2];
        let (runs, []) = rows.words.as_chunks::<RUN>() else { unreachable!("a group is whole runs") };
        for (run, words) in runs.iter().enumerate() {
            // SAFETY: NEON was found before this type is used.
            let mut short = [[unsafe { vdupq_n_s16(0) }; R]; 2];
            for (quad, x) in words.iter().enumerate() {
                let mut w = weights.quad(rows.group, run * RUN + quad, half);
                if SIGNED {
                    w = Self::sub_b(w, 128);
                }
                for r in 0..R {
                    // SAFETY: as above.
                    unsafe {
                        let (w, x) = (vreinterpretq_s8_u8(w[q]), vreinterpretq_s8_s32(vdupq_n_s32(x[r])));
                        short[0][r] = vmlal_s8(short[0][r], vget_low_s8(w), vget_low_s8(x));
                        short[1][r] = vmlal_high_s8(short[1][r], w, x);
                    }
                }
            }
            for r in 0..R {
                // SAFETY: as above.
                unsafe {
                    dots[0][r] = vpadalq_s16(dots[0][r], short[0][r]);
                    dots[1][r] = vpadalq_s16(dots[1][r], short[1][r]);
                }
            }
        }
        let mut whole = if SIGNED {
            Self::taken_off(weights.weight_type(), &[0; R])
        } else {
            Self::taken_off(weights.weight_type(), rows.sums)
        };
        for r in 0..R {
            // SAFETY: as above.
            whole[r] = unsafe { vaddq_s32(whole[r], vpaddq_s32(dots[0][r], dots[1][r])) };
        }
        whole
    }
}

/// [`end_half`] of the dot products of each quarter, for all rows.
#[inline(always)]
pub(super) fn end_quarters<S, const R: usize, const QUADS: usize, const MINIMA: bool>(
    weights: &impl IntGroups<S, QUADS>,
    rows: &GroupRows<'_, R, QUADS>,
    half: usize,
    quarters: [[int32x4_t; R]; 4],
    y: &mut [[S::F; 2]; R],
) where
    S: Simd<I = [int32x4_t; 4]>,
{
    // A closure would not be compiled for the caller's instruction set.
    let mut dots = [each!(q => quarters[q][0]); R];
    for r in 0..R {
        dots[r] = each!(q => quarters[q][r]);
    }
    end_half::<S, R, QUADS, MINIMA>(weights, rows, half, dots, y);
}

impl<const PRODUCTS: u8> Simd for Quarters<PRODUCTS> {
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];
    type B = [uint8x16_t; 4];
    // Thirty-two registers, four per vector: three rows have 24 for their sums. Integer products hold a quarter of half
    // a panel at a time, so more rows fit; matrix products take two of them at once and reuse loaded values twice as
    // often.
    const ROWS: [usize; ProductForm::ALL.len()] = [3, if PRODUCTS == 2 { 12 } else { 6 }, 3, 3];
    const IN_PLACE: bool = true;

    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        // SAFETY: NEON was found before this type is used.
        unsafe { [vdupq_n_f32(x); 4] }
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::F {
        // SAFETY: NEON was found before this type is used; the array is four vectors long.
        each!(q => unsafe { vld1q_f32(from.as_ptr().add(4 * q)) })
    }
    #[inline(always)]
    fn store(v: Self::F, to: &mut [f32; LANES]) {
        // SAFETY: NEON was found before this type is used; the array is four vectors long.
        each!(q => unsafe { vst1q_f32(to.as_mut_ptr().add(4 * q), v[q]) });
    }
    lanewise! { add = vaddq_f32, sub = vsubq_f32, mul = vmulq_f32, div = vdivq_f32 }
    #[inline(always)]
    fn max(a: Self::F, b: Self::F) -> Self::F {
        // The instruction `fmax` returns NaN if either is NaN. SAFETY: NEON was found before this type is used.
        each!(q => unsafe { vbslq_f32(vcgtq_f32(a[q], b[q]), a[q], b[q]) })
    }
    #[inline(always)]
    fn min(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe { vbslq_f32(vcltq_f32(a[q], b[q]), a[q], b[q]) })
    }
    #[inline(always)]
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe { vfmaq_f32(c[q], a[q], b[q]) })
    }
    #[inline(always)]
    fn flush(v: Self::F) -> Self::F {
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe {
            let tiny = vcaltq_f32(v[q], vdupq_n_f32(f32::MIN_POSITIVE));
            let sign = vandq_u32(vreinterpretq_u32_f32(v[q]), vdupq_n_u32(0x8000_0000));
            vbslq_f32(tiny, vreinterpretq_f32_u32(sign), v[q])
        })
    }
    #[inline(always)]
    fn scale_by_power(p: Self::F, z: Self::F) -> Self::F {
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe {
            let exponent = vshlq_n_u32::<23>(vreinterpretq_u32_f32(z[q]));
            vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p[q]), exponent))
        })
    }
    #[inline(always)]
    fn splat_i(x: i32) -> Self::I {
        // SAFETY: NEON was found before this type is used.
        unsafe { [vdupq_n_s32(x); 4] }
    }
    #[inline(always)]
    fn to_f(v: Self::I) -> Self::F {
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe { vcvtq_f32_s32(v[q]) })
    }
    #[inline(always)]
    fn load_f16(from: &[u8; 2 * LANES]) -> Self::F {
        // SAFETY: NEON was found before this type is used; the array is two vectors long.
        let halves = unsafe { [vld1q_u8(from.as_ptr()), vld1q_u8(from.as_ptr().add(16))] };
        each!(q => {
            let wide: float32x4_t;
            // SAFETY: as above. The compiler only has intrinsics of this instruction for 16-bit numbers, which are
            // newer.
            unsafe {
                if q.is_multiple_of(2) {
                    asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) wide, in(vreg) halves[q / 2], options(pure, nomem, nostack, preserves_flags));
                } else {
                    asm!("fcvtl2 {0:v}.4s, {1:v}.8h", out(vreg) wide, in(vreg) halves[q / 2], options(pure, nomem, nostack, preserves_flags));
                }
            }
            wide
        })
    }
    #[inline(always)]
    fn load_u8(from: &[u8; LANES]) -> Self::F {
        // SAFETY: NEON was found before this type is used; the array is one vector long.
        unsafe {
            let bytes = vld1q_u8(from.as_ptr());
            let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
            [
                vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))),
                vcvtq_f32_u32(vmovl_high_u16(low)),
                vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
                vcvtq_f32_u32(vmovl_high_u16(high)),
            ]
        }
    }
    #[inline(always)]
    fn load_i8(from: &[u8; LANES]) -> Self::F {
        // SAFETY: NEON was found before this type is used; the array is one vector long.
        unsafe {
            let bytes = vreinterpretq_s8_u8(vld1q_u8(from.as_ptr()));
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            [
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                vcvtq_f32_s32(vmovl_high_s16(low)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                vcvtq_f32_s32(vmovl_high_s16(high)),
            ]
        }
    }
    #[inline(always)]
    fn load_pairs(from: &[u8; 4 * LANES]) -> [Self::F; 2] {
        let pairs = Self::load_b(from);
        // SAFETY: NEON was found before this type is used.
        unsafe {
            [
                each!(q => vreinterpretq_f32_u32(vshlq_n_u32::<16>(vreinterpretq_u32_u8(pairs[q])))),
                each!(q => vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(pairs[q]), vdupq_n_u32(0xffff_0000)))),
            ]
        }
    }
    #[inline(always)]
    fn load_b(from: &[u8; 4 * LANES]) -> Self::B {
        // SAFETY: NEON was found before this type is used; the array is four vectors long.
        each!(q => unsafe { vld1q_u8(from.as_ptr().add(16 * q)) })
    }
    #[inline(always)]
    fn store_b(v: Self::B, to: &mut [u8; 4 * LANES]) {
        // SAFETY: NEON was found before this type is used; the array is four vectors long.
        each!(q => unsafe { vst1q_u8(to.as_mut_ptr().add(16 * q), v[q]) });
    }
    #[inline(always)]
    fn and_b(a: Self::B, mask: u8) -> Self::B {
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe { vandq_u8(a[q], vdupq_n_u8(mask)) })
    }
    #[inline(always)]
    fn or_b(a: Self::B, b: Self::B) -> Self::B {
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe { vorrq_u8(a[q], b[q]) })
    }
    #[inline(always)]
    fn sub_b(a: Self::B, b: u8) -> Self::B {
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe { vsubq_u8(a[q], vdupq_n_u8(b)) })
    }
    #[inline(always)]
    fn pick_b(table: &[u8; 16], at: Self::B) -> Self::B {
        // SAFETY: NEON was found before this type is used; the table is one vector long.
        each!(q => unsafe { vqtbl1q_u8(vld1q_u8(table.as_ptr()), at[q]) })
    }
    #[inline(always)]
    fn shr_b(a: Self::B, n: u32) -> Self::B {
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe { vshlq_u8(a[q], vdupq_n_s8(-(n as i8))) })
    }
    #[inline(always)]
    fn shl_b(a: Self::B, n: u32) -> Self::B {
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe { vshlq_u8(a[q], vdupq_n_s8(n as i8)) })
    }
    #[inline(always)]
    fn unzip(v: Self::B) -> [Self::F; 4] {
        let mut bytes = [Self::splat(0.0); 4];
        for (i, bytes) in bytes.iter_mut().enumerate() {
            // SAFETY: NEON was found before this type is used.
            *bytes = each!(q => unsafe {
                let byte = vshlq_u32(vreinterpretq_u32_u8(v[q]), vdupq_n_s32(-8 * i as i32));
                vcvtq_f32_u32(vandq_u32(byte, vdupq_n_u32(255)))
            });
        }
        bytes
    }
    #[inline(always)]
    fn to_pairs(even: Self::F, odd: Self::F) -> Self::B {
        let (even, odd) = (Self::rounded(even), Self::rounded(odd));
        // SAFETY: NEON was found before this type is used.
        each!(q => unsafe { vreinterpretq_u8_u32(vsriq_n_u32::<16>(odd[q], even[q])) })
    }
    #[inline(always)]
    fn prefetch<const SOON: bool>(at: *const u8) {
        // SAFETY: a prefetch has no effect but on caches, whatever the address.
        unsafe {
            if SOON {
                asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
            } else {
                asm!("prfm pldl2keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
            }
        }
    }
}

impl IntProducts for Neon {
    #[inline(always)]
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    ) {
        for half in 0..2 {
            // As many products as fit 16 bits: RUN · (2ᵇⁱᵗˢ − 1) · 127 is below 2¹⁵, and so is 2 · 128 · 127.
            let dots = match weights.weight_type() {
                WeightType::Q8_0 => {
                    each!(q => Self::dots_by_runs::<R, QUADS, 2, true>(weights, rows, half, q))
                }
                WeightType::Q6_K => {
                    each!(q => Self::dots_by_runs::<R, QUADS, 4, false>(weights, rows, half, q))
                }
                _ => each!(q => Self::dots_by_runs::<R, QUADS, QUADS, false>(weights, rows, half, q)),
            };
            end_quarters::<Self, R, QUADS, MINIMA>(weights, rows, half, dots, y);
        }
    }
}
