//! Expansion of packed weights for the inner loops: part of one panel at a time, small enough for the first-level
//! cache.

use crate::WeightType;
use crate::buffer::Buffer;
use crate::groups::{IntPanel, QuantisedType, by_type};
use crate::pack::PackedPart;
use crate::simd::{LANES, Simd};

/// `(k, half of the panel, output)`.
pub(crate) type FloatPanel = Buffer<[[f32; LANES]; 2]>;

/// Prefetch distance of expansion in bytes; the weights are already in the second-level cache.
const AHEAD: usize = 2048;

/// Expands a part of quantised weights to integers: unsigned, or with the zero point subtracted if `SIGNED`.
#[inline(always)]
pub(crate) fn unpack_ints<S: Simd, const SIGNED: bool>(part: PackedPart<'_>, panel: &mut IntPanel) {
    by_type!(part.weights.weight_type(), unpack_units::<S, SIGNED>(part, panel));
}

#[inline(always)]
fn unpack_units<S: Simd, const SIGNED: bool, T: QuantisedType, const QUADS: usize, const MINIMA: bool>(
    part: PackedPart<'_>,
    panel: &mut IntPanel,
) {
    let per_unit = T::LAYOUT.unit / (4 * QUADS);
    panel.quants.set_len(part.len / 4);
    panel.scales.set_len(part.len / (4 * QUADS));
    panel.minima.set_len(part.len / (4 * QUADS));
    let zero = if SIGNED { T::TYPE.zero() as u8 } else { 0 };
    let quants = panel.quants.as_chunks_mut::<QUADS>().0.chunks_exact_mut(per_unit);
    let scales = panel.scales.chunks_exact_mut(per_unit).zip(panel.minima.chunks_exact_mut(per_unit));
    for (bytes, (quants, (scales, minima))) in part.bytes().chunks_exact(T::LAYOUT.unit_bytes).zip(quants.zip(scales)) {
        for line in 0..bytes.len() / 64 {
            S::prefetch::<true>(bytes.as_ptr().wrapping_add(AHEAD + 64 * line));
        }
        let unit = T::LAYOUT.parts(bytes);
        for (group, quants) in quants.iter_mut().enumerate() {
            for half in 0..2 {
                for (quad, to) in quants.iter_mut().enumerate() {
                    S::store_b(S::sub_b(unit.quad::<S>(&T::LAYOUT, group * QUADS + quad, half), zero), &mut to[half]);
                }
                S::store(unit.scale::<S>(T::TYPE, group, half), &mut scales[group][half]);
                if MINIMA {
                    S::store(unit.minimum::<S>(T::TYPE, group, half), &mut minima[group][half]);
                }
            }
        }
    }
}

/// Words of two bf16, `(k / 2, half, output, 2)`.
pub(crate) type PairPanel = Buffer<[[u8; 4 * LANES]; 2]>;

/// Expands a part of quantised weights to the nearest bf16 of the result of [`dequantise`](crate::dequantise).
#[inline(always)]
pub(crate) fn unpack_pairs<S: Simd>(part: PackedPart<'_>, ints: &mut IntPanel, panel: &mut PairPanel) {
    panel.set_len(part.len / 2);
    unpack_ints::<S, false>(part, ints);
    let weight_type = part.weights.weight_type();
    let (quants, panel) = (&*ints.quants, panel.as_chunks_mut::<2>().0);
    for half in 0..2 {
        for index in 0..quants.len().min(panel.len()) {
            let [a, b, c, d] = floats::<S>(weight_type, ints, quants, index, half);
            S::store_b(S::to_pairs(a, b), &mut panel[index][0][half]);
            S::store_b(S::to_pairs(c, d), &mut panel[index][1][half]);
        }
    }
}

/// Four `k` of half a panel, product and sum rounded separately.
#[inline(always)]
fn floats<S: Simd>(
    weight_type: WeightType,
    ints: &IntPanel,
    quants: &[[[u8; 4 * LANES]; 2]],
    quad: usize,
    half: usize,
) -> [S::F; 4] {
    let group = 4 * quad / weight_type.group_len();
    let (zero, d) = (S::splat(weight_type.zero() as f32), S::load(&ints.scales[group][half]));
    // As in the format's own tools, although one fused operation would be more accurate.
    let mut floats = S::unzip(S::load_b(&quants[quad][half]));
    for q in &mut floats {
        *q = S::mul(S::sub(*q, zero), d);
    }
    if weight_type.has_minima() {
        let m = S::load(&ints.minima[group][half]);
        for q in &mut floats {
            *q = S::add(*q, m);
        }
    }
    floats
}

/// Expands a part to f32, as [`dequantise`](crate::dequantise) does. `F32` needs no expansion and is not supported.
#[inline(always)]
pub(crate) fn unpack_floats<S: Simd>(part: PackedPart<'_>, ints: &mut IntPanel, panel: &mut FloatPanel) {
    panel.set_len(part.len);
    match part.weights.weight_type() {
        WeightType::F32 => unreachable!("f32 panels are read in place"),
        WeightType::F16 => {
            for (to, from) in panel.iter_mut().zip(part.bytes().as_chunks::<{ 2 * LANES }>().0.as_chunks::<2>().0) {
                for half in 0..2 {
                    S::store(S::load_f16(&from[half]), &mut to[half]);
                }
            }
        }
        WeightType::BF16 => {
            for (to, from) in panel.chunks_mut(2).zip(part.bytes().as_chunks::<{ 4 * LANES }>().0.as_chunks::<2>().0) {
                for half in 0..2 {
                    for (to, value) in to.iter_mut().zip(S::load_pairs(&from[half])) {
                        S::store(value, &mut to[half]);
                    }
                }
            }
        }
        weight_type => {
            unpack_ints::<S, false>(part, ints);
            let (quants, panel) = (&*ints.quants, panel.as_chunks_mut::<4>().0);
            for half in 0..2 {
                for index in 0..quants.len().min(panel.len()) {
                    let values = floats::<S>(weight_type, ints, quants, index, half);
                    for k in 0..4 {
                        S::store(values[k], &mut panel[index][k][half]);
                    }
                }
            }
        }
    }
}
