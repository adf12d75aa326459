//! Packed weights expanded for the inner loops: a stretch of one panel at a time, small enough for the first-level cache.

use crate::WeightType;
use crate::buffer::Buffer;
use crate::pack::{Layout, PackedMatrix, Unit};
use crate::simd::{LANES, Simd};

/// `(k, half of the panel, output)`.
pub(crate) type FloatPanel = Buffer<[[f32; LANES]; 2]>;

/// Integers `(k / 4, half, output, 4)`; scales and minima `(group, half, output)`.
#[derive(Default)]
pub(crate) struct IntPanel {
    pub(crate) quants: Buffer<[[u8; 4 * LANES]; 2]>,
    pub(crate) scales: Buffer<[[f32; LANES]; 2]>,
    pub(crate) minima: Buffer<[[f32; LANES]; 2]>,
}

/// Columns `start..start + len` of a panel.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) weights: &'a PackedMatrix,
    pub(crate) panel: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// How far ahead of their use weights are asked for, in bytes.
const AHEAD: usize = 16384;

impl<'a> Part<'a> {
    /// The packed units.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.weights.units(self.panel, self.start, self.len)
    }

    /// The packed units as lines of both halves.
    #[inline(always)]
    pub(crate) fn lines(&self) -> &'a [[[u8; 4 * LANES]; 2]] {
        self.bytes().as_chunks().0.as_chunks().0
    }
}

/// Asks for as many bytes behind a unit as it is long, some units ahead.
#[inline(always)]
pub(crate) fn prefetch_behind<S: Simd>(unit: &[u8]) {
    for line in unit.as_chunks::<64>().0 {
        S::prefetch(line.as_ptr().wrapping_add(AHEAD));
    }
}

/// Expands a part of quantised weights to integers, unsigned or, `SIGNED`, less the integer that stands for zero.
#[inline(always)]
pub(crate) fn unpack_ints<S: Simd, const SIGNED: bool>(part: Part<'_>, panel: &mut IntPanel) {
    let weight_type = part.weights.weight_type();
    let layout = part.weights.layout();
    let (quads, groups) = (layout.unit / 4, layout.unit / weight_type.group_len());
    panel.quants.set_len(part.len / 4);
    panel.scales.set_len(part.len / weight_type.group_len());
    panel.minima.set_len(part.len / weight_type.group_len());
    let zero = if SIGNED { weight_type.zero() as u8 } else { 0 };
    for (index, bytes) in part.bytes().chunks_exact(layout.unit_bytes).enumerate() {
        prefetch_behind::<S>(bytes);
        let unit = layout.parts(bytes);
        unpack_quads::<S>(layout, &unit, zero, &mut panel.quants[index * quads..][..quads]);
        let scales = &mut panel.scales[index * groups..][..groups];
        unpack_scales::<S>(weight_type, &unit, scales, &mut panel.minima[index * groups..][..groups]);
    }
}

#[inline(always)]
fn unpack_quads<S: Simd>(layout: &Layout, unit: &Unit<'_>, zero: u8, quads: &mut [[[u8; 4 * LANES]; 2]]) {
    match (layout.low_bits, layout.high_bits) {
        (8, _) => {
            for (quad, low) in quads.iter_mut().zip(unit.low.as_chunks::<2>().0) {
                for half in 0..2 {
                    S::store_b(S::sub_b(S::load_b(&low[half]), zero), &mut quad[half]);
                }
            }
        }
        (_, 0) => unpack_nibbles::<S, 0>(unit, zero, quads),
        (_, 1) => unpack_nibbles::<S, 1>(unit, zero, quads),
        _ => unpack_nibbles::<S, 2>(unit, zero, quads),
    }
}

#[inline(always)]
fn unpack_nibbles<S: Simd, const HIGH: usize>(unit: &Unit<'_>, zero: u8, quads: &mut [[[u8; 4 * LANES]; 2]]) {
    // Quads that share a vector of high bits.
    let per_high = 8 / HIGH.max(1);
    for (pair, (quads, low)) in quads.as_chunks_mut::<2>().0.iter_mut().zip(unit.low.as_chunks::<2>().0).enumerate() {
        for half in 0..2 {
            let nibbles = S::load_b(&low[half]);
            let mut both = [S::and_b(nibbles, 15), S::and_b(S::shr_b(nibbles, 4), 15)];
            if HIGH > 0 {
                let high = S::load_b(&unit.high[2 * (2 * pair / per_high) + half]);
                for (second, q) in both.iter_mut().enumerate() {
                    let shift = (2 * pair + second) % per_high * HIGH;
                    let bits = S::and_b(S::shr_b(high, shift as u32), (1 << HIGH) - 1);
                    *q = S::or_b(*q, S::shl_b(bits, 4));
                }
            }
            for (quad, q) in quads.iter_mut().zip(both) {
                S::store_b(S::sub_b(q, zero), &mut quad[half]);
            }
        }
    }
}

#[inline(always)]
fn unpack_scales<S: Simd>(weight_type: WeightType, unit: &Unit<'_>, scales: &mut [[[f32; LANES]; 2]], minima: &mut [[[f32; LANES]; 2]]) {
    for half in 0..2 {
        let d = S::load_f16(&unit.scales[half]);
        match weight_type {
            WeightType::Q4_K | WeightType::Q5_K => {
                // The minimum is subtracted.
                let m = S::mul(S::load_f16(&unit.scales[2 + half]), S::splat(-1.0));
                for group in 0..8 {
                    S::store(S::mul(d, S::load_u8(&unit.groups[2 * group + half])), &mut scales[group][half]);
                    S::store(S::mul(m, S::load_u8(&unit.groups[16 + 2 * group + half])), &mut minima[group][half]);
                }
            }
            WeightType::Q6_K => {
                for group in 0..16 {
                    S::store(S::mul(d, S::load_i8(&unit.groups[2 * group + half])), &mut scales[group][half]);
                }
            }
            _ => {
                S::store(d, &mut scales[0][half]);
                if weight_type.has_minima() {
                    S::store(S::load_f16(&unit.scales[2 + half]), &mut minima[0][half]);
                }
            }
        }
    }
}

/// Words of two bf16, `(k / 2, half, output, 2)`.
pub(crate) type PairPanel = Buffer<[[u8; 4 * LANES]; 2]>;

/// Expands a part of quantised weights to the nearest bf16 of what [`dequantise`](crate::dequantise) gives.
#[inline(always)]
pub(crate) fn unpack_pairs<S: Simd>(part: Part<'_>, ints: &mut IntPanel, panel: &mut PairPanel) {
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

/// Four `k` of half a panel, product and sum rounded apart.
#[inline(always)]
fn floats<S: Simd>(weight_type: WeightType, ints: &IntPanel, quants: &[[[u8; 4 * LANES]; 2]], quad: usize, half: usize) -> [S::F; 4] {
    let group = 4 * quad / weight_type.group_len();
    let (zero, d) = (S::splat(weight_type.zero() as f32), S::load(&ints.scales[group][half]));
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

/// Expands a part to f32, as [`dequantise`](crate::dequantise) does. `F32` needs no expanding and is not taken.
#[inline(always)]
pub(crate) fn unpack_floats<S: Simd>(part: Part<'_>, ints: &mut IntPanel, panel: &mut FloatPanel) {
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
