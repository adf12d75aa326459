//! NEON with byte dot products (`FEAT_DotProd`), in processors since 2018.
//!
//! [`NeonDot`] is used only inside `dispatch!`, which has detected the instruction set.

use std::arch::aarch64::{int32x4_t, uint8x16_t, vdupq_n_s32};
use std::arch::{asm, is_aarch64_feature_detected};

use super::neon::{self, Quarters, each, end_quarters};
use crate::WeightType;
use crate::groups::{GroupRows, IntGroups, IntProducts};
use crate::isa::IsaFacts;
use crate::simd::Simd;

pub(in crate::isa) const FACTS: IsaFacts =
    IsaFacts { is_available, rows: NeonDot::ROWS, has_byte_dot: true, pair_tile: || None, has_tiles: false };

fn is_available() -> bool {
    neon::is_available() && is_aarch64_feature_detected!("dotprod")
}

/// Compiles a body over [`NeonDot`].
macro_rules! neon_dot {
    ($($body:tt)*) => { $crate::isa::compile!("neon,dotprod", $crate::isa::arm::NeonDot, $($body)*) };
}
pub(crate) use neon_dot;

/// Quarters of a machine with signed byte dot products.
pub(crate) type NeonDot = Quarters<1>;

/// Adds the dot product of four signed bytes to each lane.
#[inline(always)]
fn sdot(mut acc: int32x4_t, w: uint8x16_t, x: int32x4_t) -> int32x4_t {
    // SAFETY: dot products were found before this is called. The compiler's intrinsic is not stable.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, \
              {2:v}.16b", inout(vreg) acc, in(vreg) w, in(vreg) x, options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

impl NeonDot {
    /// Dot products of a quarter of half a panel.
    #[inline(always)]
    fn dots<const R: usize, const QUADS: usize>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        half: usize,
        q: usize,
    ) -> [int32x4_t; R] {
        // Weights with fewer than eight bits have the same signed and unsigned value; from 8-bit weights the zero point
        // is subtracted.
        let signed = weights.weight_type() == WeightType::Q8_0;
        let mut dots = Self::taken_off(weights.weight_type(), if signed { &[0; R] } else { rows.sums });
        for (quad, x) in rows.words.iter().enumerate() {
            let mut w = weights.quad(rows.group, quad, half);
            if signed {
                w = Self::sub_b(w, 128);
            }
            for r in 0..R {
                // SAFETY: NEON was found before this type is used.
                dots[r] = sdot(dots[r], w[q], unsafe { vdupq_n_s32(x[r]) });
            }
        }
        dots
    }
}

impl IntProducts for NeonDot {
    #[inline(always)]
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    ) {
        for half in 0..2 {
            let dots = each!(q => Self::dots(weights, rows, half, q));
            end_quarters::<Self, R, QUADS, MINIMA>(weights, rows, half, dots, y);
        }
    }
}
