//! Groups of quantised weights as inputs of integer products: expanded, or read in place.

use std::marker::PhantomData;

use crate::buffer::Buffer;
use crate::pack::{PackedPart, UnitLayout, UnitParts};
use crate::simd::{Dot4, LANES, Simd};
use crate::{ProductForm, WeightType};

/// A weight type known at compile time.
pub(crate) trait QuantisedType {
    const TYPE: WeightType;
    const LAYOUT: UnitLayout = UnitLayout::new(Self::TYPE, ProductForm::Int8);
}

/// The quantised types as Rust types.
pub(crate) mod types {
    use super::{QuantisedType, WeightType};

    macro_rules! types {
        ($($name:ident),*) => {
            $(
                pub(crate) struct $name;
                impl QuantisedType for $name {
                    const TYPE: WeightType = WeightType::$name;
                }
            )*
        };
    }
    #[allow(non_camel_case_types, reason = "the names that the formats have")]
    mod named {
        use super::{QuantisedType, WeightType};
        types!(Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, MXFP4);
    }
    pub(crate) use named::*;
}

/// Calls `$f` for a quantised weight type, with the type, its number of quads per group, and whether it has minima.
macro_rules! by_type {
    ($type:expr, $f:ident $(:: <$($g:tt),*>)? ($($arg:expr),* $(,)?)) => {{
        use $crate::groups::types;
        match $type {
            WeightType::Q8_0 => $f::<$($($g,)*)? types::Q8_0, 8, false>($($arg),*),
            WeightType::Q4_0 => $f::<$($($g,)*)? types::Q4_0, 8, false>($($arg),*),
            WeightType::Q4_1 => $f::<$($($g,)*)? types::Q4_1, 8, true>($($arg),*),
            WeightType::Q5_0 => $f::<$($($g,)*)? types::Q5_0, 8, false>($($arg),*),
            WeightType::Q5_1 => $f::<$($($g,)*)? types::Q5_1, 8, true>($($arg),*),
            WeightType::Q4_K => $f::<$($($g,)*)? types::Q4_K, 8, true>($($arg),*),
            WeightType::Q5_K => $f::<$($($g,)*)? types::Q5_K, 8, true>($($arg),*),
            WeightType::Q6_K => $f::<$($($g,)*)? types::Q6_K, 4, false>($($arg),*),
            WeightType::MXFP4 => $f::<$($($g,)*)? types::MXFP4, 8, false>($($arg),*),
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => unreachable!("only quantised weights are integers"),
        }
    }};
}
pub(crate) use by_type;

impl UnitParts<'_> {
    /// Four `k` of half a panel, unsigned.
    #[inline(always)]
    pub(crate) fn quad<S: Simd>(&self, layout: &UnitLayout, quad: usize, half: usize) -> S::B {
        if layout.low_bits == 8 {
            return S::load_b(&self.low[2 * quad + half]);
        }
        let nibbles = S::load_b(&self.low[quad / 2 * 2 + half]);
        let low = S::and_b(if quad.is_multiple_of(2) { nibbles } else { S::shr_b(nibbles, 4) }, 15);
        if let Some(codes) = layout.codes {
            return S::pick_b(codes, low);
        }
        // Quads that share a vector of high bits.
        let Some(together) = 8usize.checked_div(layout.high_bits) else { return low };
        let high = S::load_b(&self.high[quad / together * 2 + half]);
        let bits = S::and_b(S::shr_b(high, (quad % together * layout.high_bits) as u32), (1 << layout.high_bits) - 1);
        S::or_b(low, S::shl_b(bits, 4))
    }

    /// The scales of a group for half a panel.
    #[inline(always)]
    pub(crate) fn scale<S: Simd>(&self, weight_type: WeightType, group: usize, half: usize) -> S::F {
        if weight_type == WeightType::MXFP4 {
            let pairs = self.scales.as_flattened().first_chunk().expect("a pair of scales for each lane");
            return S::load_pairs(pairs)[half];
        }
        let d = S::load_f16(&self.scales[half]);
        match weight_type {
            WeightType::Q4_K | WeightType::Q5_K => S::mul(d, S::load_u8(&self.groups[2 * group + half])),
            WeightType::Q6_K => S::mul(d, S::load_i8(&self.groups[2 * group + half])),
            _ => d,
        }
    }

    /// The minima of a group's weights for half a panel.
    #[inline(always)]
    pub(crate) fn minimum<S: Simd>(&self, weight_type: WeightType, group: usize, half: usize) -> S::F {
        let m = S::load_f16(&self.scales[2 + half]);
        match weight_type {
            // For these types the minimum is subtracted.
            WeightType::Q4_K | WeightType::Q5_K => {
                S::mul(S::mul(m, S::splat(-1.0)), S::load_u8(&self.groups[16 + 2 * group + half]))
            }
            _ => m,
        }
    }
}

/// Groups of quantised weights as unsigned integers, `4 · QUADS` per group.
pub(crate) trait IntGroups<S: Simd, const QUADS: usize> {
    /// Their packed type.
    fn weight_type(&self) -> WeightType;
    /// Four `k` of half a panel.
    fn quad(&self, group: usize, quad: usize, half: usize) -> S::B;
    /// The scales of half a panel.
    fn scale(&self, group: usize, half: usize) -> S::F;
    /// The minima of half a panel, if the weight type has minima.
    fn minimum(&self, group: usize, half: usize) -> S::F;
    /// Prefetches the memory after a group.
    fn ask_ahead(&self, group: usize);
}

/// Integers `(k / 4, half, output, 4)`; scales and minima `(group, half, output)`.
#[derive(Default)]
pub(crate) struct IntPanel {
    pub(crate) quants: Buffer<[[u8; 4 * LANES]; 2]>,
    pub(crate) scales: Buffer<[[f32; LANES]; 2]>,
    pub(crate) minima: Buffer<[[f32; LANES]; 2]>,
}

/// Expanded weights of a part.
pub(crate) struct ExpandedWeights<'a, const QUADS: usize> {
    weight_type: WeightType,
    quants: &'a [[[[u8; 4 * LANES]; 2]; QUADS]],
    scales: &'a [[[f32; LANES]; 2]],
    minima: &'a [[[f32; LANES]; 2]],
}

impl<'a, const QUADS: usize> ExpandedWeights<'a, QUADS> {
    #[inline(always)]
    pub(crate) fn new(weight_type: WeightType, panel: &'a IntPanel) -> Self {
        Self { weight_type, quants: panel.quants.as_chunks().0, scales: &panel.scales, minima: &panel.minima }
    }
}

impl<S: Simd, const QUADS: usize> IntGroups<S, QUADS> for ExpandedWeights<'_, QUADS> {
    #[inline(always)]
    fn weight_type(&self) -> WeightType {
        self.weight_type
    }
    #[inline(always)]
    fn quad(&self, group: usize, quad: usize, half: usize) -> S::B {
        S::load_b(&self.quants[group][quad][half])
    }
    #[inline(always)]
    fn scale(&self, group: usize, half: usize) -> S::F {
        S::load(&self.scales[group][half])
    }
    #[inline(always)]
    fn minimum(&self, group: usize, half: usize) -> S::F {
        S::load(&self.minima[group][half])
    }
    #[inline(always)]
    fn ask_ahead(&self, _: usize) {}
}

/// Weights of a part, read in place. For few row tiles this is faster than expanding them.
pub(crate) struct PackedWeights<'a, T> {
    bytes: &'a [u8],
    /// Whether to prefetch the following weights: once is enough.
    pub(crate) ahead: bool,
    _type: PhantomData<T>,
}

impl<'a, T> PackedWeights<'a, T> {
    pub(crate) fn new(part: PackedPart<'a>) -> Self {
        Self { bytes: part.bytes(), ahead: true, _type: PhantomData }
    }
}

impl<T: QuantisedType> PackedWeights<'_, T> {
    /// The unit of a group, and the group's index in it.
    #[inline(always)]
    fn unit(&self, group: usize) -> (UnitParts<'_>, usize) {
        let per_unit = T::LAYOUT.unit / T::TYPE.group_len();
        let bytes = &self.bytes[group / per_unit * T::LAYOUT.unit_bytes..][..T::LAYOUT.unit_bytes];
        (T::LAYOUT.parts(bytes), group % per_unit)
    }
}

impl<S: Simd, T: QuantisedType, const QUADS: usize> IntGroups<S, QUADS> for PackedWeights<'_, T> {
    #[inline(always)]
    fn weight_type(&self) -> WeightType {
        T::TYPE
    }
    #[inline(always)]
    fn quad(&self, group: usize, quad: usize, half: usize) -> S::B {
        let (unit, group) = self.unit(group);
        unit.quad::<S>(&T::LAYOUT, group * QUADS + quad, half)
    }
    #[inline(always)]
    fn scale(&self, group: usize, half: usize) -> S::F {
        let (unit, group) = self.unit(group);
        unit.scale::<S>(T::TYPE, group, half)
    }
    #[inline(always)]
    fn minimum(&self, group: usize, half: usize) -> S::F {
        let (unit, group) = self.unit(group);
        unit.minimum::<S>(T::TYPE, group, half)
    }
    #[inline(always)]
    fn ask_ahead(&self, group: usize) {
        // An equal share of the bytes for each group, in whole cache lines.
        let share = (T::LAYOUT.unit_bytes * T::TYPE.group_len()).div_ceil(T::LAYOUT.unit);
        if self.ahead {
            let (far, near) = AHEAD;
            for line in 0..share.div_ceil(64) {
                let at = self.bytes.as_ptr().wrapping_add(group * share + 64 * line);
                S::prefetch::<false>(at.wrapping_add(far));
                S::prefetch::<true>(at.wrapping_add(near));
            }
        }
    }
}

/// Prefetch distances in bytes, to the second-level cache and from there to the first. The former covers the memory
/// latency at a thread's rate. Few lines can be in flight to the first-level cache at a time: prefetching only there
/// leaves a quarter or more of the memory bandwidth unused.
const AHEAD: (usize, usize) = (8192, 4096);

/// A tile's rows, as inputs of a group of weights.
pub(crate) struct GroupRows<'a, const R: usize, const QUADS: usize> {
    pub(crate) group: usize,
    /// Four signed bytes each, little-endian, none of them −128.
    pub(crate) words: &'a [[i32; R]; QUADS],
    pub(crate) sums: &'a [i32; R],
    pub(crate) scales: &'a [f32; R],
    pub(crate) scaled_sums: &'a [f32; R],
}

/// SIMD lanes with products of quantised weight groups.
pub(crate) trait IntProducts: Simd {
    /// Adds the products of a group of weights with a tile's rows to their sums. Dot products are exact, the rest is
    /// [`end_half`].
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    );
}

/// [`IntProducts::add_group`] with four bytes at a time.
#[inline(always)]
pub(crate) fn add_quads<S: Dot4, const R: usize, const QUADS: usize, const MINIMA: bool>(
    weights: &impl IntGroups<S, QUADS>,
    rows: &GroupRows<'_, R, QUADS>,
    y: &mut [[S::F; 2]; R],
) {
    // The zero point is subtracted once per group, in the initial value of the sums: exact, and cheaper than signed
    // weights.
    let zero = weights.weight_type().zero();
    let mut dots = [[S::splat_i(0); R]; 2];
    for r in 0..R {
        let start = S::splat_i(-zero * rows.sums[r]);
        (dots[0][r], dots[1][r]) = (start, start);
    }
    for (quad, x) in rows.words.iter().enumerate() {
        let (w0, w1) = (weights.quad(rows.group, quad, 0), weights.quad(rows.group, quad, 1));
        for r in 0..R {
            dots[0][r] = S::dot4(dots[0][r], w0, x[r]);
            dots[1][r] = S::dot4(dots[1][r], w1, x[r]);
        }
    }
    for half in 0..2 {
        end_half::<S, R, QUADS, MINIMA>(weights, rows, half, dots[half], y);
    }
}

/// Scales the dot products of half a panel and adds them to the sums.
#[inline(always)]
pub(crate) fn end_half<S: Simd, const R: usize, const QUADS: usize, const MINIMA: bool>(
    weights: &impl IntGroups<S, QUADS>,
    rows: &GroupRows<'_, R, QUADS>,
    half: usize,
    dots: [S::I; R],
    y: &mut [[S::F; 2]; R],
) {
    // The scales are multiplied first: one rounding, shared by all rows of a group. The dot product is exact in f32
    // below 2²⁴ and is rounded only with the sum.
    let d = weights.scale(rows.group, half);
    for r in 0..R {
        y[r][half] = S::fma(S::to_f(dots[r]), S::mul(d, S::splat(rows.scales[r])), y[r][half]);
    }
    if MINIMA {
        let m = weights.minimum(rows.group, half);
        for r in 0..R {
            y[r][half] = S::fma(m, S::splat(rows.scaled_sums[r]), y[r][half]);
        }
    }
}
