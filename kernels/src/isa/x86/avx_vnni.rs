//! AVX-VNNI: AVX2 with byte dot products, in processors without AVX-512.
//!
//! [`AvxVnni`] is used only inside `dispatch!`, which has detected the instruction set; every intrinsic relies on that.

use std::arch::x86_64::{_mm256_dpbusd_avx_epi32, _mm256_set1_epi32};

use super::avx2::{self, Halves, each};
use crate::groups::{GroupRows, IntGroups, IntProducts, end_half};
use crate::isa::IsaFacts;
use crate::simd::Simd;

pub(in crate::isa) const FACTS: IsaFacts =
    IsaFacts { is_available, rows: AvxVnni::ROWS, has_byte_dot: true, pair_tile: || None, has_tiles: false };

fn is_available() -> bool {
    avx2::is_available() && is_x86_feature_detected!("avxvnni")
}

/// Compiles a body over [`AvxVnni`].
macro_rules! avx_vnni {
    ($($body:tt)*) => { $crate::isa::compile!("avxvnni,avx2,fma,f16c", $crate::isa::x86::AvxVnni, $($body)*) };
}
pub(crate) use avx_vnni;

/// Halves of a machine with AVX-VNNI.
pub(crate) type AvxVnni = Halves<true>;

impl IntProducts for AvxVnni {
    #[inline(always)]
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    ) {
        let zero = weights.weight_type().zero();
        // Half a panel at a time, unlike AVX-512: sixteen registers hold no more sums.
        for half in 0..2 {
            let mut dots = rows.sums.map(|sum| Self::splat_i(-zero * sum));
            for (quad, x) in rows.words.iter().enumerate() {
                let w = weights.quad(rows.group, quad, half);
                for r in 0..R {
                    // SAFETY: AVX-VNNI was found before this type is used.
                    dots[r] = each!(h => unsafe { _mm256_dpbusd_avx_epi32(dots[r][h], w[h], _mm256_set1_epi32(x[r])) });
                }
            }
            end_half::<Self, R, QUADS, MINIMA>(weights, rows, half, dots, y);
        }
    }
}
