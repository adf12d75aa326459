//! Portable Rust, the reference that the other instruction sets are tested against.

use half::f16;

use super::IsaFacts;
use crate::ProductForm;
use crate::groups::{GroupRows, IntGroups, IntPanel, IntProducts, add_quads};
use crate::pack::PackedPart;
use crate::simd::{Dot4, LANES, Simd, to_bf16};
use crate::tiles::{IntTile, PanelSums, TileFactors, TileUnit};

pub(super) const FACTS: IsaFacts =
    IsaFacts { is_available: || true, rows: Plain::ROWS, has_byte_dot: false, pair_tile: || None, has_tiles: false };

/// Compiles a body over [`Plain`]. The code is portable, but x86-64 without FMA calls a library function for each fused
/// multiply-add.
macro_rules! plain {
    ($body:ident ($($arg:ident : $ty:ty),*)) => {{
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("fma") {
            $crate::isa::compile!("fma", $crate::isa::plain::Plain, $body($($arg: $ty),*))
        } else {
            $body::<$crate::isa::plain::Plain>($($arg),*)
        }
        #[cfg(not(target_arch = "x86_64"))]
        $body::<$crate::isa::plain::Plain>($($arg),*)
    }};
}
pub(crate) use plain;

/// Portable lanes.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

/// Arithmetic of two vectors, lane by lane.
macro_rules! lanewise {
    ($($name:ident = $f:expr;)+) => {
        $(#[inline(always)]
        fn $name(a: Self::F, b: Self::F) -> Self::F {
            zip(a, b, $f)
        })+
    };
}

impl Simd for Plain {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type B = [u8; 4 * LANES];
    // Small tiles, and no weights in place: this implementation took half of the crate's compile time.
    const ROWS: [usize; ProductForm::ALL.len()] = [4; 4];
    const IN_PLACE: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::F {
        *from
    }
    #[inline(always)]
    fn store(v: Self::F, to: &mut [f32; LANES]) {
        *to = v;
    }
    lanewise! {
        add = |a, b| a + b;
        sub = |a, b| a - b;
        mul = |a, b| a * b;
        div = |a, b| a / b;
        // With NaN the result is the second operand, as on x86.
        max = |a, b| if a > b { a } else { b };
        min = |a, b| if a < b { a } else { b };
    }
    #[inline(always)]
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // A closure would not be compiled for the caller's instruction set.
        let mut y = c;
        for i in 0..LANES {
            y[i] = a[i].mul_add(b[i], c[i]);
        }
        y
    }
    #[inline(always)]
    fn flush(v: Self::F) -> Self::F {
        v.map(|x| if x.abs() < f32::MIN_POSITIVE { f32::from_bits(x.to_bits() & 0x8000_0000) } else { x })
    }
    #[inline(always)]
    fn scale_by_power(p: Self::F, z: Self::F) -> Self::F {
        zip(p, z, |p, z| f32::from_bits(p.to_bits().wrapping_add(z.to_bits() << 23)))
    }
    #[inline(always)]
    fn splat_i(x: i32) -> Self::I {
        [x; LANES]
    }
    #[inline(always)]
    fn to_f(v: Self::I) -> Self::F {
        v.map(|x| x as f32)
    }
    #[inline(always)]
    fn load_f16(from: &[u8; 2 * LANES]) -> Self::F {
        std::array::from_fn(|i| f16::from_le_bytes([from[2 * i], from[2 * i + 1]]).to_f32())
    }
    #[inline(always)]
    fn load_u8(from: &[u8; LANES]) -> Self::F {
        from.map(f32::from)
    }
    #[inline(always)]
    fn load_i8(from: &[u8; LANES]) -> Self::F {
        from.map(|byte| f32::from(byte.cast_signed()))
    }
    #[inline(always)]
    fn load_pairs(from: &[u8; 4 * LANES]) -> [Self::F; 2] {
        let half = |i: usize| f32::from_bits(u32::from(u16::from_le_bytes([from[2 * i], from[2 * i + 1]])) << 16);
        [std::array::from_fn(|i| half(2 * i)), std::array::from_fn(|i| half(2 * i + 1))]
    }
    #[inline(always)]
    fn load_b(from: &[u8; 4 * LANES]) -> Self::B {
        *from
    }
    #[inline(always)]
    fn store_b(v: Self::B, to: &mut [u8; 4 * LANES]) {
        *to = v;
    }
    #[inline(always)]
    fn and_b(a: Self::B, mask: u8) -> Self::B {
        a.map(|a| a & mask)
    }
    #[inline(always)]
    fn or_b(a: Self::B, b: Self::B) -> Self::B {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn sub_b(a: Self::B, b: u8) -> Self::B {
        a.map(|a| a.wrapping_sub(b))
    }
    #[inline(always)]
    fn pick_b(table: &[u8; 16], at: Self::B) -> Self::B {
        at.map(|at| table[usize::from(at & 15)])
    }
    #[inline(always)]
    fn shr_b(a: Self::B, n: u32) -> Self::B {
        a.map(|a| a >> n)
    }
    #[inline(always)]
    fn shl_b(a: Self::B, n: u32) -> Self::B {
        a.map(|a| a << n)
    }
    #[inline(always)]
    fn unzip(v: Self::B) -> [Self::F; 4] {
        std::array::from_fn(|i| std::array::from_fn(|lane| f32::from(v[4 * lane + i])))
    }
    #[inline(always)]
    fn to_pairs(even: Self::F, odd: Self::F) -> Self::B {
        let mut words = [0; 4 * LANES];
        for (word, (even, odd)) in words.as_chunks_mut::<4>().0.iter_mut().zip(even.iter().zip(&odd)) {
            *word = (to_bf16(*even) | to_bf16(*odd) << 16).to_le_bytes();
        }
        words
    }
}

impl Dot4 for Plain {
    #[inline(always)]
    fn dot4(acc: Self::I, unsigned: Self::B, word: i32) -> Self::I {
        let bytes = word.to_le_bytes();
        std::array::from_fn(|lane| {
            (0..4).fold(acc[lane], |sum, b| sum + i32::from(unsigned[4 * lane + b]) * i32::from(bytes[b].cast_signed()))
        })
    }
}

impl IntProducts for Plain {
    #[inline(always)]
    fn add_group<const R: usize, const QUADS: usize, const MINIMA: bool>(
        weights: &impl IntGroups<Self, QUADS>,
        rows: &GroupRows<'_, R, QUADS>,
        y: &mut [[Self::F; 2]; R],
    ) {
        add_quads::<Self, R, QUADS, MINIMA>(weights, rows, y);
    }
}

/// An uninhabited type: this architecture has no tile unit.
#[cfg_attr(target_arch = "x86_64", expect(dead_code, reason = "this architecture has a unit of tiles"))]
pub(crate) struct NoTiles(std::convert::Infallible);

impl TileUnit for NoTiles {
    type Lanes = Plain;

    fn configure(_: usize) -> Self {
        unreachable!("no instruction set here has tiles")
    }
    fn quads(&self) -> usize {
        match self.0 {}
    }
    fn int_rows<'a>(
        &self,
        _: PackedPart<'_>,
        _: &mut IntPanel,
        _: impl Iterator<Item = IntTile<'a>>,
        _: &mut [PanelSums],
    ) {
        match self.0 {}
    }
    fn unpack_pairs(&self, _: PackedPart<'_>, _: &mut [[[u8; 4 * LANES]; 2]]) {
        match self.0 {}
    }
    fn half_rows<'a>(
        &self,
        _: &[[[u8; 4 * LANES]; 2]],
        _: impl Iterator<Item = &'a [u32]>,
        _: &mut [PanelSums],
        _: bool,
        _: Option<(PackedPart<'_>, &mut [[[u8; 4 * LANES]; 2]])>,
    ) {
        match self.0 {}
    }
    fn multiply(&self, _: &TileFactors<'_>, _: &mut [f32], _: usize) {
        match self.0 {}
    }
    fn round_row(&self, _: &mut [u32]) -> f32 {
        match self.0 {}
    }
}
