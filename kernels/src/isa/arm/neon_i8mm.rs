//! NEON with byte matrix products (`FEAT_I8MM`), in processors since 2021: two outputs of two rows, eight `k` deep, in
//! one instruction.
//!
//! [`NeonI8mm`] is used only inside `dispatch!`, which has detected the instruction set; every intrinsic relies on
//! that.

use std::arch::aarch64::{
    int32x4_t, uint8x16_t, vaddq_s32, vdupq_n_s32, vld1q_s32, vreinterpretq_u8_u32, vreinterpretq_u32_u8, vuzp1q_s32,
    vuzp2q_s32, vzip1q_u32, vzip2q_u32,
};
use std::arch::{asm, is_aarch64_feature_detected};

use super::neon::{self, Quarters, each, end_quarters};
use crate::groups::{GroupRows, IntGroups, IntProducts};
use crate::isa::IsaFacts;
use crate::simd::Simd;

pub(in crate::isa) const FACTS: IsaFacts =
    IsaFacts { is_available, rows: NeonI8mm::ROWS, has_byte_dot: true, pair_tile: || None, has_tiles: false };

fn is_available() -> bool {
    neon::is_available() && is_aarch64_feature_detected!("i8mm")
}

/// Compiles a body over [`NeonI8mm`].
macro_rules! neon_i8mm {
    ($($body:tt)*) => { $crate::isa::compile!("neon,i8mm", $crate::isa::arm::NeonI8mm, $($body)*) };
}
pub(crate) use neon_i8mm;

/// Quarters of a machine with byte matrix products.
pub(crate) type NeonI8mm = Quarters<2>;

/// Adds the dot product of four unsigned bytes with four signed ones to each lane.
#[inline(always)]
fn usdot(mut acc: int32x4_t, w: uint8x16_t, x: int32x4_t) -> int32x4_t {
    // SAFETY: the instruction was found before this is called. The compiler's intrinsic is not stable.
    unsafe {
        asm!("usdot {0:v}.4s, {1:v}.16b, \
              {2:v}.16b", inout(vreg) acc, in(vreg) w, in(vreg) x, options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// `(output, row)` plus the products of two outputs' eight unsigned bytes with two rows' eight signed ones.
#[inline(always)]
fn usmmla(mut acc: int32x4_t, w: uint8x16_t, x: int32x4_t) -> int32x4_t {
    // SAFETY: as of `usdot`.
    unsafe {
        asm!("usmmla {0:v}.4s, {1:v}.16b, \
              {2:v}.16b", inout(vreg) acc, in(vreg) w, in(vreg) x, options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// Eight `k` of two rows: two quads, each with both rows.
type TwoRows = [i32; 4];

impl NeonI8mm {
    /// Dot products of a quarter of half a panel. `pairs` are pairs of rows, without an odd last one.
    #[inline(always)]
    fn dots<const R: usize, const QUADS: usize>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        pairs: &[[TwoRows; R]; QUADS],
        half: usize,
        q: usize,
    ) -> [int32x4_t; R] {
        // SAFETY: NEON was found before this type is used.
        let zeros = unsafe { [vdupq_n_s32(0); 2] };
        // For two rows, both outputs of the first half and of the second; an odd row is separate.
        let mut sums = [zeros; R];
        let mut last = zeros[0];
        for (two, words) in rows.words.as_chunks::<2>().0.iter().enumerate() {
            let (a, b) = (weights.quad(rows.group, 2 * two, half)[q], weights.quad(rows.group, 2 * two + 1, half)[q]);
            // SAFETY: as above.
            let outputs = unsafe {
                let (a, b) = (vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b));
                [vreinterpretq_u8_u32(vzip1q_u32(a, b)), vreinterpretq_u8_u32(vzip2q_u32(a, b))]
            };
            for pair in 0..R / 2 {
                // SAFETY: as above; the array is one vector long.
                let x = unsafe { vld1q_s32(pairs[two][pair].as_ptr()) };
                sums[pair] = [usmmla(sums[pair][0], outputs[0], x), usmmla(sums[pair][1], outputs[1], x)];
            }
            if !R.is_multiple_of(2) {
                // SAFETY: as above.
                let x = unsafe { [vdupq_n_s32(words[0][R - 1]), vdupq_n_s32(words[1][R - 1])] };
                last = usdot(usdot(last, a, x[0]), b, x[1]);
            }
        }
        let mut dots = Self::taken_off(weights.weight_type(), rows.sums);
        for r in 0..R {
            let [first, second] = sums[r / 2];
            // SAFETY: as above.
            let row = unsafe {
                match r {
                    r if r + 1 == R && !R.is_multiple_of(2) => last,
                    r if r.is_multiple_of(2) => vuzp1q_s32(first, second),
                    _ => vuzp2q_s32(first, second),
                }
            };
            // SAFETY: as above.
            dots[r] = unsafe { vaddq_s32(dots[r], row) };
        }
        dots
    }
}

impl IntProducts for NeonI8mm {
    #[inline(always)]
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    ) {
        // Once for the whole panel.
        let mut pairs = [[[0; 4]; R]; QUADS];
        for (two, [a, b]) in rows.words.as_chunks::<2>().0.iter().enumerate() {
            for pair in 0..R / 2 {
                pairs[two][pair] = [a[2 * pair], b[2 * pair], a[2 * pair + 1], b[2 * pair + 1]];
            }
        }
        for half in 0..2 {
            let dots = each!(q => Self::dots(weights, rows, &pairs, half, q));
            end_quarters::<Self, R, QUADS, MINIMA>(weights, rows, half, dots, y);
        }
    }
}
