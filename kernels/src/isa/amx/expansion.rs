//! Expansion of quantised weights to bf16 while tiles multiply others.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _mm512_add_ps, _mm512_and_si512, _mm512_cvtepi32_ps, _mm512_cvtne2ps_pbh,
    _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_permutexvar_epi16, _mm512_set1_epi32, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_srli_epi32,
};

use crate::WeightType;
use crate::groups::{IntGroups, PackedWeights, QuantisedType, by_type};
use crate::isa::x86::Avx512;
use crate::pack::PackedPart;
use crate::simd::{LANES, Simd};

/// Expands a part to bf16, `(k / 2, half, output, 2)`, with the bits of [`unpack_pairs`](crate::unpack::unpack_pairs).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
pub(super) fn unpack_bf16(part: PackedPart<'_>, to: &mut [[[u8; 4 * LANES]; 2]]) {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
    fn whole<T: QuantisedType, const QUADS: usize, const MINIMA: bool>(
        part: PackedPart<'_>,
        to: &mut [[[u8; 4 * LANES]; 2]],
    ) {
        PanelExpansion::<T, QUADS, MINIMA>::new(part, to).advance(1, 1);
    }
    by_type!(part.weights.weight_type(), whole(part, to));
}

/// A part that is being expanded, four `k` of half a panel at a time.
pub(super) struct PanelExpansion<'a, T, const QUADS: usize, const MINIMA: bool> {
    weights: PackedWeights<'a, T>,
    /// By group and quad, both halves of two `k` and of the next two.
    to: &'a mut [[[[[u8; 4 * LANES]; 2]; 2]; QUADS]],
    /// Finished quads, of `to.len()` groups of two halves of `QUADS`.
    done: usize,
    /// The group's scales and offsets.
    d: __m512,
    offset: __m512,
}

impl<'a, T: QuantisedType, const QUADS: usize, const MINIMA: bool> PanelExpansion<'a, T, QUADS, MINIMA> {
    /// Expands a part into as many words as it has.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
    #[inline]
    pub(super) fn new(part: PackedPart<'a>, to: &'a mut [[[u8; 4 * LANES]; 2]]) -> Self {
        let to = to.as_chunks_mut::<2>().0.as_chunks_mut::<QUADS>().0;
        Self { weights: PackedWeights::new(part), to, done: 0, d: _mm512_setzero_ps(), offset: _mm512_setzero_ps() }
    }

    /// Continues until `turn` of `turns` shares are done.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
    #[inline]
    pub(super) fn advance(&mut self, turn: usize, turns: usize) {
        let until = 2 * QUADS * self.to.len() * turn / turns;
        while self.done < until {
            let (group, half, quad) = (self.done / (2 * QUADS), self.done / QUADS % 2, self.done % QUADS);
            let weights = &self.weights;
            if quad == 0 {
                self.d = IntGroups::<Avx512, QUADS>::scale(weights, group, half);
                // The offset of a product: the minimum, or the negative product of scale and zero point. The zero point
                // or the scale is a power of two, so that product is exact and the sum rounds like the product of the
                // difference.
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

/// The nearest bf16 of `u · d + offset` for four unsigned integers per lane, in pairs. The product is rounded
/// separately if `APART`.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
fn quad_to_bf16<const APART: bool>(q: __m512i, d: __m512, offset: __m512) -> [__m512i; 2] {
    // Interleaves two vectors of halves.
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
