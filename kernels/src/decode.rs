//! The block formats of GGUF, each reduced to one form: unsigned integers `u` with `w = d · (u − zero) + m` per group
//! of 16 or 32. The 4-bit floats of `MXFP4` are codes of such integers.
//!
//! Everything here is inlined into kernels, so that it is compiled for their instruction set. Exact arithmetic expands
//! this form to f32, tiles to bf16, and dots multiply its integers. The formats follow ggml's published layouts.

use half::f16;

use crate::WeightType;
use crate::weight_type::FLOATS4;

/// The longest block.
pub(crate) const MAX_BLOCK: usize = 256;

/// A decoded block. The weight type determines which fields are valid.
pub(crate) struct DecodedBlock {
    /// Unsigned integers or their codes, `block_len` of them.
    pub(crate) quants: [u8; MAX_BLOCK],
    /// The scale, an f16; for `MXFP4` a bf16.
    pub(crate) scale: u16,
    /// The minimum, an f16; it is subtracted for `Q4_K` and `Q5_K`.
    pub(crate) minimum: u16,
    /// Multipliers of the scale per group: unsigned, except for `Q6_K`.
    pub(crate) group_scales: [u8; MAX_BLOCK / 16],
    /// Multipliers of the minimum per group.
    pub(crate) group_minima: [u8; MAX_BLOCK / 32],
}

impl DecodedBlock {
    pub(crate) fn new() -> Self {
        Self {
            quants: [0; MAX_BLOCK],
            scale: 0,
            minimum: 0,
            group_scales: [0; MAX_BLOCK / 16],
            group_minima: [0; MAX_BLOCK / 32],
        }
    }

    /// The scale `d` and the minimum `m` of a group; `m` is zero for formats without minima.
    #[inline(always)]
    pub(crate) fn group(&self, weight_type: WeightType, group: usize) -> (f32, f32) {
        let scale = match weight_type {
            WeightType::MXFP4 => f32::from_bits(u32::from(self.scale) << 16),
            _ => f16::from_bits(self.scale).to_f32(),
        };
        let minimum = f16::from_bits(self.minimum).to_f32();
        match weight_type {
            WeightType::Q4_K | WeightType::Q5_K => {
                (scale * f32::from(self.group_scales[group]), -(minimum * f32::from(self.group_minima[group])))
            }
            WeightType::Q6_K => (scale * f32::from(self.group_scales[group].cast_signed()), 0.0),
            _ => (scale, minimum),
        }
    }
}

impl WeightType {
    /// Number of weights that share a scale.
    pub(crate) const fn group_len(self) -> usize {
        if matches!(self, Self::Q6_K) { 16 } else { 32 }
    }

    /// The integer that represents zero.
    pub(crate) const fn zero(self) -> i32 {
        match self {
            Self::Q8_0 => 128,
            Self::Q4_0 => 8,
            Self::Q5_0 => 16,
            Self::Q6_K => 32,
            Self::MXFP4 => 12,
            _ => 0,
        }
    }

    /// The integer of each 4-bit code, if weights are codes.
    pub(crate) const fn codes(self) -> Option<&'static [u8; 16]> {
        if matches!(self, Self::MXFP4) { Some(&FLOATS4) } else { None }
    }

    /// Whether groups have a minimum.
    pub(crate) const fn has_minima(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1 | Self::Q4_K | Self::Q5_K)
    }
}

#[inline(always)]
fn bits_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Nibbles: the low ones go to the first half of `out`, the high ones to the second.
#[inline(always)]
fn nibbles(packed: &[u8], out: &mut [u8]) {
    let (low, high) = out.split_at_mut(packed.len());
    for ((byte, low), high) in packed.iter().zip(low).zip(high) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

/// Adds bit `i` of a 32-bit mask as the fifth bit of `out[i]`.
#[inline(always)]
fn fifth_bits(mask: &[u8], out: &mut [u8]) {
    let mask = u32::from_le_bytes([mask[0], mask[1], mask[2], mask[3]]);
    for (i, q) in out.iter_mut().enumerate() {
        *q |= ((mask >> i & 1) << 4) as u8;
    }
}

/// The 6-bit scale and minimum of group `j` of a `Q4_K` or `Q5_K` block.
#[inline(always)]
fn scale_min(packed: &[u8], j: usize) -> (u8, u8) {
    // Twelve bytes for eight pairs of six bits: the upper two bits of the last four pairs are stored in the bytes of
    // the first four pairs.
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (packed[j + 4] & 15 | (packed[j - 4] >> 6) << 4, packed[j + 4] >> 4 | (packed[j] >> 6) << 4)
    }
}

/// Decodes one block of a quantised type; `bytes` holds exactly one.
#[inline(always)]
pub(crate) fn decode_block(weight_type: WeightType, bytes: &[u8], block: &mut DecodedBlock) {
    let q = &mut block.quants;
    match weight_type {
        WeightType::Q8_0 => {
            block.scale = bits_at(bytes, 0);
            for (q, b) in q.iter_mut().zip(&bytes[2..34]) {
                // Unsigned with an offset of 128, so that one kernel serves these and the types with fewer bits.
                *q = b.wrapping_add(128);
            }
        }
        WeightType::Q4_0 => {
            block.scale = bits_at(bytes, 0);
            nibbles(&bytes[2..18], &mut q[..32]);
        }
        WeightType::Q4_1 => {
            block.scale = bits_at(bytes, 0);
            block.minimum = bits_at(bytes, 2);
            nibbles(&bytes[4..20], &mut q[..32]);
        }
        WeightType::Q5_0 => {
            block.scale = bits_at(bytes, 0);
            nibbles(&bytes[6..22], &mut q[..32]);
            fifth_bits(&bytes[2..6], &mut q[..32]);
        }
        WeightType::Q5_1 => {
            block.scale = bits_at(bytes, 0);
            block.minimum = bits_at(bytes, 2);
            nibbles(&bytes[8..24], &mut q[..32]);
            fifth_bits(&bytes[4..8], &mut q[..32]);
        }
        WeightType::Q4_K | WeightType::Q5_K => decode_k45(weight_type, bytes, block),
        WeightType::Q6_K => decode_q6(bytes, block),
        WeightType::MXFP4 => {
            // Half of 2^(e − 127), because the integers are twice the floats; below 2⁻¹²⁶ it is denormal.
            let exponent = u16::from(bytes[0]);
            block.scale = if exponent < 2 { 0x20 << exponent } else { (exponent - 1) << 7 };
            nibbles(&bytes[1..17], &mut q[..32]);
        }
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => unreachable!("plain floats have no blocks"),
    }
}

#[inline(always)]
fn decode_k45(weight_type: WeightType, bytes: &[u8], block: &mut DecodedBlock) {
    (block.scale, block.minimum) = (bits_at(bytes, 0), bits_at(bytes, 2));
    for j in 0..8 {
        (block.group_scales[j], block.group_minima[j]) = scale_min(&bytes[4..16], j);
    }
    // Each of these bytes holds the fifth bits of eight weights, 32 apart.
    let high = &bytes[16..48];
    let low = if weight_type == WeightType::Q5_K { &bytes[48..176] } else { &bytes[16..144] };
    for (pair, packed) in low.chunks_exact(32).enumerate() {
        let out = &mut block.quants[64 * pair..64 * pair + 64];
        nibbles(packed, out);
        if weight_type == WeightType::Q5_K {
            for (i, q) in out.iter_mut().enumerate() {
                *q |= (high[i % 32] >> (2 * pair + i / 32) & 1) << 4;
            }
        }
    }
}

#[inline(always)]
fn decode_q6(bytes: &[u8], block: &mut DecodedBlock) {
    let (low, high, scales) = (&bytes[..128], &bytes[128..192], &bytes[192..208]);
    block.scale = bits_at(bytes, 208);
    block.group_scales.copy_from_slice(scales);
    for part in 0..2 {
        // A byte of `low` holds weights 64 apart, one of `high` two bits each of four weights 32 apart.
        let (low, high) = (&low[64 * part..64 * part + 64], &high[32 * part..32 * part + 32]);
        let out = &mut block.quants[128 * part..128 * part + 128];
        for i in 0..32 {
            out[i] = low[i] & 15 | (high[i] & 3) << 4;
            out[i + 32] = low[i + 32] & 15 | (high[i] >> 2 & 3) << 4;
            out[i + 64] = low[i] >> 4 | (high[i] >> 4 & 3) << 4;
            out[i + 96] = low[i + 32] >> 4 | (high[i] >> 6) << 4;
        }
    }
}

/// Expands part of a row to f32: `out.len()` weights from weight `start`, both multiples of the block length.
///
/// A quantised weight is `d · (u − zero) + m`, with product and sum rounded separately, as in the format's own tools.
#[inline(always)]
pub fn dequantise(weight_type: WeightType, row: &[u8], start: usize, out: &mut [f32]) {
    let (len, size) = (weight_type.block_len(), weight_type.block_bytes());
    debug_assert!(start.is_multiple_of(len) && out.len().is_multiple_of(len), "whole blocks");
    let bytes = &row[start / len * size..][..out.len() / len * size];
    match weight_type {
        WeightType::F32 => {
            for (x, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *x = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
        WeightType::F16 => {
            for (x, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *x = f16::from_bits(bits_at(b, 0)).to_f32();
            }
        }
        WeightType::BF16 => {
            for (x, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *x = f32::from_bits(u32::from(bits_at(b, 0)) << 16);
            }
        }
        _ => {
            let mut block = DecodedBlock::new();
            for (out, bytes) in out.chunks_exact_mut(len).zip(bytes.chunks_exact(size)) {
                decode_block(weight_type, bytes, &mut block);
                expand(weight_type, &block, out);
            }
        }
    }
}

/// The f32 values of a decoded block.
#[inline(always)]
fn expand(weight_type: WeightType, block: &DecodedBlock, out: &mut [f32]) {
    let group = weight_type.group_len();
    for (g, (out, quants)) in out.chunks_exact_mut(group).zip(block.quants.chunks_exact(group)).enumerate() {
        let (d, m) = block.group(weight_type, g);
        for (x, q) in out.iter_mut().zip(quants) {
            let q = weight_type.codes().map_or(*q, |codes| codes[usize::from(*q)]);
            // Zero is subtracted as an integer, which is exact.
            let product = (i32::from(q) - weight_type.zero()) as f32 * d;
            *x = if weight_type.has_minima() { product + m } else { product };
        }
    }
}
