//! Weights packed once, at load time: panels of 32 outputs, in the order in which products read them.
//!
//! A panel holds its outputs side by side, so that vectors run over outputs and the sum over `k` stays in one order.
//! Quantised weights keep their bits: integers of up to 4 bits are stored two per byte, a fifth and sixth bit
//! separately, followed by the scales. A panel is a sequence of *units*, each with as many `k` as a block has.
//!
//! | part of a unit | bytes | contents |
//! |---|---|---|
//! | low | 32 · unit, or half of that | `(k / 4, half, 16 outputs, 4)` bytes; nibbles are `(k / 8, half, 16, 4)`, the
//! upper one 4 `k` later |
//! | high | unit · 4 per bit | `(k / 32, half, 16, 4)` with a bit for each quad, or `(k / 16, half, 16, 4)` with two |
//! | scales | 64, or 128 | f16 `d` of 32 outputs, then f16 `m` |
//! | groups | 32 or 64 per group | a byte of each output for the scale, another for the minimum |
//!
//! The nibbles of `MXFP4` are codes of integers, and its scales are bf16, which has all powers of two that the format
//! has, in pairs of both halves of the panel.

use rayon::prelude::*;

use crate::buffer::Pages;
use crate::decode::{DecodedBlock, decode_block, dequantise};
use crate::matrix::Matrix;
use crate::simd::{LANES, to_bf16};
use crate::{ProductForm, WeightType};

/// Outputs per panel: two vectors.
pub(crate) const PANEL: usize = 2 * LANES;

/// The layout of a weight type's units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnitLayout {
    /// `k` per unit.
    pub(crate) unit: usize,
    /// Bits per weight in the low part, 4 or 8, if the weights are quantised.
    pub(crate) low_bits: usize,
    /// Bits per weight in the high part: 0, 1 or 2.
    pub(crate) high_bits: usize,
    /// The integer of each 4-bit code, if weights are codes.
    pub(crate) codes: Option<&'static [u8; 16]>,
    low_bytes: usize,
    high_bytes: usize,
    scale_bytes: usize,
    /// Bytes per unit.
    pub(crate) unit_bytes: usize,
}

/// The parts of a unit.
pub(crate) struct UnitParts<'a> {
    pub(crate) low: &'a [[u8; 4 * LANES]],
    pub(crate) high: &'a [[u8; 4 * LANES]],
    /// `d` of both halves, then `m` of both halves if the type has minima; f16, or pairs of bf16.
    pub(crate) scales: &'a [[u8; 2 * LANES]],
    /// One byte per output for each group, halves side by side; scales first, then minima.
    pub(crate) groups: &'a [[u8; LANES]],
}

impl UnitLayout {
    pub(crate) const fn new(weight_type: WeightType, form: ProductForm) -> Self {
        let (unit, low_bits, high_bits, scale_bytes, group_bytes) = match weight_type {
            WeightType::F32 => (1, 32, 0, 0, 0),
            WeightType::F16 => (1, 16, 0, 0, 0),
            // Tiles multiply 32 `k` at a time.
            WeightType::BF16 => (if matches!(form, ProductForm::Tiles) { 32 } else { 2 }, 16, 0, 0, 0),
            WeightType::Q8_0 => (32, 8, 0, 64, 0),
            WeightType::Q4_0 | WeightType::MXFP4 => (32, 4, 0, 64, 0),
            WeightType::Q4_1 => (32, 4, 0, 128, 0),
            WeightType::Q5_0 => (32, 4, 1, 64, 0),
            WeightType::Q5_1 => (32, 4, 1, 128, 0),
            WeightType::Q4_K => (256, 4, 0, 128, 2 * 8 * PANEL),
            WeightType::Q5_K => (256, 4, 1, 128, 2 * 8 * PANEL),
            WeightType::Q6_K => (256, 4, 2, 64, 16 * PANEL),
        };
        let (low_bytes, high_bytes) = (PANEL * unit * low_bits / 8, PANEL * unit * high_bits / 8);
        let unit_bytes = low_bytes + high_bytes + scale_bytes + group_bytes;
        let codes = weight_type.codes();
        Self { unit, low_bits, high_bits, codes, low_bytes, high_bytes, scale_bytes, unit_bytes }
    }

    #[inline(always)]
    pub(crate) fn parts<'a>(&self, unit: &'a [u8]) -> UnitParts<'a> {
        let (low, rest) = unit.split_at(self.low_bytes);
        let (high, rest) = rest.split_at(self.high_bytes);
        let (scales, groups) = rest.split_at(self.scale_bytes);
        UnitParts {
            low: low.as_chunks().0,
            high: high.as_chunks().0,
            scales: scales.as_chunks().0,
            groups: groups.as_chunks().0,
        }
    }
}

/// A weight matrix `(out_features, in_features)` in panels.
pub struct PackedMatrix {
    weight_type: WeightType,
    out_features: usize,
    in_features: usize,
    form: ProductForm,
    layout: UnitLayout,
    panel_bytes: usize,
    data: Pages,
}

impl PackedMatrix {
    /// Packs `weights` for products in `form`, which must be supported by the weight type. Fails if memory cannot be
    /// allocated.
    pub fn pack(weights: Matrix<'_>, form: ProductForm) -> std::io::Result<Self> {
        assert!(form.suits(weights.weight_type()), "{form:?} products of {} weights", weights.weight_type());
        // Rounded once, here, so that products do not need to and read half as many bytes as f32.
        let stored = match (form, weights.weight_type()) {
            (ProductForm::Pairs | ProductForm::Tiles, WeightType::F32 | WeightType::F16) => WeightType::BF16,
            (_, weight_type) => weight_type,
        };
        let layout = UnitLayout::new(stored, form);
        let panel_bytes = weights.in_features().div_ceil(layout.unit) * layout.unit_bytes;
        let panels = weights.out_features().div_ceil(PANEL);
        // Zeroed: outputs after the last one, and the `k` after an odd last one, are multiplied like any other.
        let mut data = Pages::new(panels * panel_bytes)?;
        data.par_chunks_mut(panel_bytes.max(1)).enumerate().for_each(|(index, panel)| {
            let rows = index * PANEL..weights.out_features().min((index + 1) * PANEL);
            match (stored, weights.weight_type()) {
                (WeightType::F32, _) => pack_floats::<4>(weights, rows, panel),
                (WeightType::F16, _) => pack_floats::<2>(weights, rows, panel),
                (WeightType::BF16, WeightType::BF16) => pack_pairs(rows.map(|row| weights.row(row)), panel),
                (WeightType::BF16, _) => pack_pairs(rows.map(|row| rounded_row(weights, row)), panel),
                _ => pack_blocks(weights, rows, &layout, panel),
            }
        });
        let (out_features, in_features) = (weights.out_features(), weights.in_features());
        Ok(Self { weight_type: stored, out_features, in_features, form, layout, panel_bytes, data })
    }

    /// Rows of the matrix.
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Columns of the matrix.
    pub fn in_features(&self) -> usize {
        self.in_features
    }

    /// The storage type after packing: floats are bf16 for products in bf16.
    pub fn weight_type(&self) -> WeightType {
        self.weight_type
    }

    /// The form in which activations must be packed for a product with this matrix.
    pub fn form(&self) -> ProductForm {
        self.form
    }

    /// Size in memory.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn panels(&self) -> usize {
        self.out_features.div_ceil(PANEL)
    }

    /// The units of a panel with columns `start..start + len`, where `start` is a multiple of the unit.
    #[inline(always)]
    pub(crate) fn units(&self, panel: usize, start: usize, len: usize) -> &[u8] {
        let (first, count) = (start / self.layout.unit, len.div_ceil(self.layout.unit));
        &self.data[panel * self.panel_bytes + first * self.layout.unit_bytes..][..count * self.layout.unit_bytes]
    }
}

/// Columns `start..start + len` of a panel.
#[derive(Clone, Copy)]
pub(crate) struct PackedPart<'a> {
    pub(crate) weights: &'a PackedMatrix,
    pub(crate) panel: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl<'a> PackedPart<'a> {
    /// The packed units.
    #[inline(always)]
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.weights.units(self.panel, self.start, self.len)
    }

    /// The packed units as lines of both halves.
    #[inline(always)]
    pub(crate) fn lines(self) -> &'a [[[u8; 4 * LANES]; 2]] {
        self.bytes().as_chunks().0.as_chunks().0
    }
}

/// `(k, output)` elements of `SIZE` bytes.
fn pack_floats<const SIZE: usize>(weights: Matrix<'_>, rows: std::ops::Range<usize>, panel: &mut [u8]) {
    for (lane, row) in rows.enumerate() {
        let to = panel.as_chunks_mut::<SIZE>().0.iter_mut().skip(lane).step_by(PANEL);
        for (to, from) in to.zip(weights.row(row).as_chunks::<SIZE>().0) {
            *to = *from;
        }
    }
}

/// `(k / 2, output, 2)`; an odd last `k` is followed by zeros.
fn pack_pairs(rows: impl Iterator<Item = impl AsRef<[u8]>>, panel: &mut [u8]) {
    for (lane, row) in rows.enumerate() {
        let to = panel.as_chunks_mut::<4>().0.iter_mut().skip(lane).step_by(PANEL);
        for (to, from) in to.zip(row.as_ref().chunks(4)) {
            to[..from.len()].copy_from_slice(from);
        }
    }
}

/// A row of floats rounded to bf16.
fn rounded_row(weights: Matrix<'_>, row: usize) -> Vec<u8> {
    let mut floats = vec![0.0; weights.in_features()];
    dequantise(weights.weight_type(), weights.row(row), 0, &mut floats);
    floats.iter().flat_map(|x| (to_bf16(*x) as u16).to_le_bytes()).collect()
}

fn pack_blocks(weights: Matrix<'_>, rows: std::ops::Range<usize>, layout: &UnitLayout, panel: &mut [u8]) {
    let weight_type = weights.weight_type();
    let (block_bytes, quads) = (weight_type.block_bytes(), layout.unit / 4);
    // The quads of the longest unit.
    let mut wide = [[0u8; 4 * PANEL]; 64];
    let mut block = DecodedBlock::new();
    for (index, unit) in panel.chunks_exact_mut(layout.unit_bytes).enumerate() {
        let (integers, rest) = unit.split_at_mut(layout.low_bytes + layout.high_bytes);
        let (scales, groups) = rest.split_at_mut(layout.scale_bytes);
        for (lane, row) in rows.clone().enumerate() {
            decode_block(weight_type, &weights.row(row)[index * block_bytes..][..block_bytes], &mut block);
            for (wide, quad) in wide.iter_mut().zip(block.quants[..layout.unit].as_chunks::<4>().0) {
                wide[4 * lane..][..4].copy_from_slice(quad);
            }
            for (to, half) in scales.chunks_exact_mut(2 * PANEL).zip([block.scale, block.minimum]) {
                // Pairs of both halves if they are bf16.
                let at = if layout.codes.is_some() { lane % LANES * 2 + lane / LANES } else { lane };
                to[2 * at..][..2].copy_from_slice(&half.to_le_bytes());
            }
            let per_group =
                block.group_scales[..layout.unit / weight_type.group_len()].iter().chain(&block.group_minima);
            for (to, byte) in groups.chunks_exact_mut(PANEL).zip(per_group) {
                to[lane] = *byte;
            }
        }
        let (low, high) = integers.split_at_mut(layout.low_bytes);
        split_bits(&wide[..quads], layout, low, high);
    }
}

/// Distributes the bits of `(quad, output, 4)` integers over the low and the high part.
fn split_bits(wide: &[[u8; 4 * PANEL]], layout: &UnitLayout, low: &mut [u8], high: &mut [u8]) {
    if layout.low_bits == 8 {
        low.copy_from_slice(wide.as_flattened());
        return;
    }
    for (low, pair) in low.chunks_exact_mut(4 * PANEL).zip(wide.as_chunks::<2>().0) {
        for ((low, a), b) in low.iter_mut().zip(pair[0]).zip(pair[1]) {
            *low = a & 15 | b << 4;
        }
    }
    if let Some(together) = 8usize.checked_div(layout.high_bits) {
        high.fill(0);
        for (high, quads) in high.chunks_exact_mut(4 * PANEL).zip(wide.chunks_exact(together)) {
            for (index, quad) in quads.iter().enumerate() {
                for (high, q) in high.iter_mut().zip(quad) {
                    *high |= (q >> 4) << (index * layout.high_bits);
                }
            }
        }
    }
}
