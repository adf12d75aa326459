//! Products on AMX tiles: sixteen rows by sixteen outputs at once, with the same bits as the portable implementation.
//!
//! Integer tiles are exact, so scales are applied as on other instruction sets. The bf16 tile sums as
//! [`ProductForm::Tiles`](crate::ProductForm) says.

mod expansion;

use std::arch::asm;
use std::arch::x86_64::{
    __cpuid_count, __m512, __m512bh, __m512i, _mm512_cvtepi32_ps, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_storeu_ps, _mm512_storeu_si512, _xgetbv,
};
use std::sync::OnceLock;

use expansion::{PanelExpansion, unpack_bf16};

use super::IsaFacts;
use super::x86::avx512::{self, Avx512};
use crate::WeightType;
use crate::groups::{IntPanel, QuantisedType, by_type, types};
use crate::pack::PackedPart;
use crate::simd::{LANES, Simd};
use crate::tiles::{IntTile, PanelSums, TILE_ROWS, TileFactors, TileUnit};
use crate::unpack::unpack_ints;

pub(super) const FACTS: IsaFacts =
    IsaFacts { is_available: || avx512::is_available() && is_available(), has_tiles: true, ..avx512::FACTS };

/// Whether the machine has integer and bf16 tiles and the system lets this process use them.
fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| has_tiles() && permitted())
}

fn has_tiles() -> bool {
    // SAFETY: every x86-64 machine has `cpuid`; `xgetbv` is called only if the system has enabled extended states.
    unsafe {
        let os_saves_states = __cpuid_count(1, 0).ecx >> 27 & 1 == 1;
        // Bits of leaf 7: bf16 tiles, tiles, integer tiles.
        let features = __cpuid_count(7, 0).edx >> 22 & 0b111 == 0b111 && is_x86_feature_detected!("avx512bf16");
        os_saves_states && features && tiles_are_saved()
    }
}

#[target_feature(enable = "xsave")]
fn tiles_are_saved() -> bool {
    // SAFETY: the system has enabled extended states, which the caller has checked.
    let states = unsafe { _xgetbv(0) };
    states >> 17 & 0b11 == 0b11
}

/// Requests the state that tiles need from the system: Linux grants it to a process once, for all of its threads.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let result: i64;
    // SAFETY: this system call takes two numbers and touches no memory of ours; `rcx` and `r11` are what every system
    // call changes.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// The shapes of the tile registers.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Rows of two tiles.
const TWO_TILES: usize = 2 * TILE_ROWS;

/// A thread's configured tile registers: 0 to 3 hold 16 × 16 results, 4 and 5 rows of activations, 6 and 7 weights.
pub(crate) struct TileRegisters {
    quads: usize,
}

impl Drop for TileRegisters {
    fn drop(&mut self) {
        // SAFETY: the holder of a `TileRegisters` has configured this thread's registers.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

impl TileUnit for TileRegisters {
    type Lanes = Avx512;

    fn configure(quads: usize) -> Self {
        let mut config = TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        for register in 0..8 {
            let (rows, bytes) = match register {
                0..4 => (TILE_ROWS, 64),
                4..6 => (TILE_ROWS, 4 * quads),
                _ => (quads, 64),
            };
            (config.rows[register], config.row_bytes[register]) = (rows as u8, bytes as u16);
        }
        assert!(is_available() && quads <= 16, "tiles of {quads} quads");
        // SAFETY: tiles are available, and the configuration is one that the palette allows.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
        Self { quads }
    }

    #[inline(always)]
    fn quads(&self) -> usize {
        self.quads
    }

    fn int_rows<'a>(
        &self,
        part: PackedPart<'_>,
        ints: &mut IntPanel,
        rows: impl Iterator<Item = IntTile<'a>>,
        sums: &mut [PanelSums],
    ) {
        // SAFETY: a machine with tiles has AVX-512.
        unsafe { int_rows(self, part, ints, rows, sums) }
    }

    fn unpack_pairs(&self, part: PackedPart<'_>, to: &mut [[[u8; 4 * LANES]; 2]]) {
        // SAFETY: a machine with tiles has AVX-512 with bf16.
        unsafe { unpack_bf16(part, to) }
    }

    fn half_rows<'a>(
        &self,
        panel: &[[[u8; 4 * LANES]; 2]],
        rows: impl Iterator<Item = &'a [u32]>,
        sums: &mut [PanelSums],
        fresh: bool,
        next: Option<(PackedPart<'_>, &mut [[[u8; 4 * LANES]; 2]])>,
    ) {
        // SAFETY: a machine with tiles has AVX-512 with bf16.
        unsafe {
            match next {
                Some(next) => {
                    by_type!(next.0.weights.weight_type(), half_turns(self, panel, rows, sums, fresh, Some(next)));
                }
                // Nothing to expand, so any type will do.
                None => half_turns::<types::Q8_0, 8, false>(self, panel, rows, sums, fresh, None),
            }
        }
    }

    fn multiply(&self, factors: &TileFactors<'_>, to: &mut [f32], row: usize) {
        let rows = factors.rows.next_multiple_of(TILE_ROWS);
        let ((left, left_row), (steps, step_row)) = (factors.left, factors.steps);
        assert!(
            self.quads == 16 && left.len() >= (rows - 1) * left_row + 16 * steps.len(),
            "rows are as long as the steps"
        );
        assert!(to.len() >= (rows - 1) * row + LANES * factors.columns.len(), "room for the results");
        let last = factors.columns.iter().max().map_or(0, |column| 15 * step_row + column + LANES);
        assert!(steps.iter().all(|step| step.len() >= last), "steps are whole");
        match (rows, factors.columns) {
            (TILE_ROWS, [a]) => products::<1, 1>(factors, [*a], to, row),
            (TILE_ROWS, [a, b]) => products::<1, 2>(factors, [*a, *b], to, row),
            (TWO_TILES, [a]) => products::<2, 1>(factors, [*a], to, row),
            (TWO_TILES, [a, b]) => products::<2, 2>(factors, [*a, *b], to, row),
            _ => panic!("one or two tiles of rows and of columns"),
        }
    }

    #[inline(always)]
    fn round_row(&self, row: &mut [u32]) -> f32 {
        // SAFETY: a machine with tiles has AVX-512 with bf16.
        unsafe { round_steps(row) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn int_rows<'a>(
    tiles: &TileRegisters,
    part: PackedPart<'_>,
    ints: &mut IntPanel,
    rows: impl Iterator<Item = IntTile<'a>>,
    sums: &mut [PanelSums],
) {
    let (weight_type, fresh) = (part.weights.weight_type(), part.start == 0);
    unpack_ints::<Avx512, true>(part, ints);
    for (x, sums) in rows.zip(sums.as_chunks_mut().0) {
        match (weight_type.group_len(), weight_type.has_minima()) {
            (16, _) => int_tile::<4, false>(tiles, ints, x, sums, fresh),
            (_, true) => int_tile::<8, true>(tiles, ints, x, sums, fresh),
            (_, false) => int_tile::<8, false>(tiles, ints, x, sums, fresh),
        }
    }
}

/// Multiplies all rows with a panel. Tile products run independently; the other units expand the next part meanwhile, a
/// share with each step.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
fn half_turns<'a, T: QuantisedType, const QUADS: usize, const MINIMA: bool>(
    tiles: &TileRegisters,
    panel: &[[[u8; 4 * LANES]; 2]],
    mut rows: impl Iterator<Item = &'a [u32]>,
    sums: &mut [PanelSums],
    fresh: bool,
    next: Option<(PackedPart<'_>, &mut [[[u8; 4 * LANES]; 2]])>,
) {
    let mut next = next.map(|(part, to)| PanelExpansion::<T, QUADS, MINIMA>::new(part, to));
    let (steps, turns) = (panel.len() / 16, sums.len().div_ceil(2 * TILE_ROWS));
    for (turn, sums) in sums.chunks_mut(2 * TILE_ROWS).enumerate() {
        let meanwhile = |step: usize| {
            if let Some(next) = &mut next {
                next.advance(turn * steps + step + 1, turns * steps);
            }
        };
        match (rows.next(), rows.next()) {
            (Some(a), Some(b)) => half_tiles(tiles, panel, [a, b], sums, fresh, meanwhile),
            (Some(a), None) => half_tiles(tiles, panel, [a], sums, fresh, meanwhile),
            _ => unreachable!("sums are held for the rows there are"),
        }
    }
}

/// Groups whose products are in flight together, each in a separate tile register.
const TOGETHER: usize = 4;
/// A tile of integer results, each row a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Dots([[i32; LANES]; TILE_ROWS]);

/// Multiplies a group of weights, `A` and `B` naming the registers for activations and weights, into register `C`.
macro_rules! multiply {
    ($words:expr, $weights:expr, $a:literal, $b:literal, $c:literal) => {
        // SAFETY: the caller guarantees 16 rows of words 32 bytes apart and the weights' rows 128 bytes apart.
        unsafe {
            asm!(
                concat!("tileloadd ", $a, ", [{words} + {row}]"),
                concat!("tileloadd ", $b, ", [{weights} + {quad}]"),
                concat!("tilezero ", $c),
                concat!("tdpbssd ", $c, ", ", $a, ", ", $b),
                words = in(reg) $words,
                weights = in(reg) $weights,
                row = in(reg) 32usize,
                quad = in(reg) 128usize,
                options(nostack, readonly),
            )
        }
    };
}

/// Stores register `C`.
macro_rules! store {
    ($dots:expr, $c:literal) => {
        // SAFETY: a tile is 16 rows of 64 bytes, and so is the array.
        unsafe { asm!(concat!("tilestored [{dots} + {row}], \
                               ", $c), dots = in(reg) $dots.0.as_mut_ptr(), row = in(reg) 64usize, options(nostack)) }
    };
}

/// `Form::Int8` with signed weights in groups of `4 · QUADS`; `tile` holds 16 rows, `sums` start at zero if they are
/// `fresh`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn int_tile<const QUADS: usize, const MINIMA: bool>(
    _: &TileRegisters,
    panel: &IntPanel,
    tile: IntTile<'_>,
    sums: &mut [PanelSums; TILE_ROWS],
    fresh: bool,
) {
    let groups = panel.scales.len();
    assert!(
        panel.quants.len() == groups * QUADS && tile.words.len() == groups * QUADS * TILE_ROWS,
        "tile and panel are of one length"
    );
    let words = |group: usize| tile.words.as_ptr().wrapping_add(group * QUADS / 8 * 8 * TILE_ROWS + group * QUADS % 8);
    let mut dots = [[Dots([[0; LANES]; TILE_ROWS]); TOGETHER]; 2];
    for half in 0..2 {
        let weights = |group: usize| {
            panel.quants.as_ptr().wrapping_add(group * QUADS).cast::<u8>().wrapping_add(half * 4 * LANES)
        };
        let mut y = [_mm512_setzero_ps(); TILE_ROWS];
        if !fresh {
            for (y, sums) in y.iter_mut().zip(sums.iter()) {
                // SAFETY: half a row of sums is sixteen f32.
                *y = unsafe { _mm512_loadu_ps(sums[half].as_ptr()) };
            }
        }
        // While one block of groups is multiplied, the previous one is scaled: a product's latency exceeds its issue
        // interval.
        let blocks = groups.div_ceil(TOGETHER);
        for block in 0..=blocks {
            let first = block * TOGETHER;
            let count = groups.saturating_sub(first).min(TOGETHER);
            if count == TOGETHER {
                multiply!(words(first), weights(first), "tmm4", "tmm6", "tmm0");
                multiply!(words(first + 1), weights(first + 1), "tmm5", "tmm7", "tmm1");
                multiply!(words(first + 2), weights(first + 2), "tmm4", "tmm6", "tmm2");
                multiply!(words(first + 3), weights(first + 3), "tmm5", "tmm7", "tmm3");
            }
            if block > 0 {
                let dots = &dots[(block - 1) % 2];
                for (group, dots) in (first - TOGETHER..groups.min(first)).zip(dots) {
                    scale::<QUADS, MINIMA>(panel, tile, dots, (group, half), &mut y);
                }
            }
            let dots = &mut dots[block % 2];
            if count == TOGETHER {
                store!(dots[0], "tmm0");
                store!(dots[1], "tmm1");
                store!(dots[2], "tmm2");
                store!(dots[3], "tmm3");
            } else {
                for (group, dots) in (first..first + count).zip(dots) {
                    multiply!(words(group), weights(group), "tmm4", "tmm6", "tmm0");
                    store!(dots, "tmm0");
                }
            }
        }
        for (y, sums) in y.iter().zip(sums.iter_mut()) {
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(sums[half].as_mut_ptr(), *y) };
        }
    }
}

/// Adds a group's scaled products.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn scale<const QUADS: usize, const MINIMA: bool>(
    panel: &IntPanel,
    tile: IntTile<'_>,
    dots: &Dots,
    (group, half): (usize, usize),
    y: &mut [__m512; TILE_ROWS],
) {
    let scales = &tile.scales.as_chunks::<TILE_ROWS>().0[group * QUADS / 8];
    // SAFETY: scales of half a panel are sixteen f32.
    let d = unsafe { _mm512_loadu_ps(panel.scales[group][half].as_ptr()) };
    for r in 0..TILE_ROWS {
        // SAFETY: a row of results is sixteen i32.
        let dot = _mm512_cvtepi32_ps(unsafe { _mm512_loadu_si512(dots.0[r].as_ptr().cast()) });
        y[r] = _mm512_fmadd_ps(dot, _mm512_mul_ps(d, _mm512_set1_ps(scales[r])), y[r]);
    }
    if MINIMA {
        let sums = &tile.scaled_sums.as_chunks::<TILE_ROWS>().0[group];
        // SAFETY: minima of half a panel are sixteen f32.
        let m = unsafe { _mm512_loadu_ps(panel.minima[group][half].as_ptr()) };
        for r in 0..TILE_ROWS {
            y[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(sums[r]), y[r]);
        }
    }
}

/// An instruction on the named registers, a tile's address, and the distance of its rows in words.
macro_rules! step {
    (load $register:literal, $words:expr, $row:expr) => {
        // SAFETY: the caller guarantees 16 rows of 64 bytes, that many words apart.
        unsafe {
            asm!(
                concat!("tileloadd ", $register, ", [{words} + {row}]"),
                words = in(reg) $words,
                row = in(reg) 4 * $row,
                options(nostack, readonly),
            )
        }
    };
    (multiply $c:literal, $a:literal, $b:literal) => {
        // SAFETY: the registers are configured for 16 rows of 64 bytes.
        unsafe { asm!(concat!("tdpbf16ps ", $c, ", ", $a, ", ", $b), options(nostack, nomem)) }
    };
    (zero $c:literal) => {
        // SAFETY: as above.
        unsafe { asm!(concat!("tilezero ", $c), options(nostack, nomem)) }
    };
    (store $c:literal, $to:expr, $row:expr) => {
        // SAFETY: the caller guarantees room for 16 rows of 64 bytes, that many words apart.
        unsafe { asm!(concat!("tilestored [{to} + {row}], \
                               ", $c), to = in(reg) $to, row = in(reg) 4 * $row, options(nostack)) }
    };
}

/// Loads or stores the results of `R` tiles of rows, that many floats apart, by `C` of columns.
macro_rules! results {
    ($what:ident, $r:expr, $c:expr, $at:expr, $row:expr) => {{
        let (at, row) = ($at, $row);
        let second = at.wrapping_add(TILE_ROWS * row);
        step!($what "tmm0", at, row);
        if $c == 2 {
            step!($what "tmm1", at.wrapping_add(LANES), row);
        }
        if $r == 2 {
            step!($what "tmm2", second, row);
        }
        if $r == 2 && $c == 2 {
            step!($what "tmm3", second.wrapping_add(LANES), row);
        }
    }};
}

/// `R` tiles of rows by `C` of columns, all of them in bounds.
#[inline(always)]
fn products<const R: usize, const C: usize>(
    factors: &TileFactors<'_>,
    columns: [usize; C],
    to: &mut [f32],
    row: usize,
) {
    let ((left, left_row), (steps, step_row)) = (factors.left, factors.steps);
    zero();
    for (index, step) in steps.iter().enumerate() {
        let rows =
            std::array::from_fn(|tile| left.as_ptr().wrapping_add(index * TILE_ROWS + tile * TILE_ROWS * left_row));
        multiply_tiles::<R, C>((rows, left_row), (columns.map(|column| step.as_ptr().wrapping_add(column)), step_row));
    }
    results!(store, R, C, to.as_mut_ptr(), row);
}

/// `Form::Tiles`: weights `(k / 2, half, output, 2)`, one or two tiles of rows `(k / 32, 16 rows, 16)` words of two
/// each; sums start at zero if they are `fresh`. `meanwhile` is called after each step's products are issued.
#[inline(always)]
fn half_tiles<const R: usize>(
    _: &TileRegisters,
    panel: &[[[u8; 4 * LANES]; 2]],
    tiles: [&[u32]; R],
    sums: &mut [PanelSums],
    fresh: bool,
    mut meanwhile: impl FnMut(usize),
) {
    let (steps, row) = (panel.len() / 16, 2 * LANES);
    assert!(
        steps > 0 && panel.len() == 16 * steps && sums.len() == R * TILE_ROWS,
        "whole steps, and sums for the rows"
    );
    assert!(tiles.iter().all(|tile| tile.len() == steps * 16 * TILE_ROWS), "tile and panel are of one length");
    let (weights, sums) =
        (bytemuck::cast_slice::<u8, u32>(panel.as_flattened().as_flattened()), sums.as_mut_ptr().cast::<f32>());
    if fresh {
        zero();
    } else {
        results!(load, R, 2, sums, row);
    }
    for step in 0..steps {
        let weights = weights.as_ptr().wrapping_add(step * 16 * row);
        let rows = tiles.map(|tile| tile.as_ptr().wrapping_add(step * 16 * TILE_ROWS));
        multiply_tiles::<R, 2>((rows, 16), ([weights, weights.wrapping_add(LANES)], row));
        meanwhile(step);
    }
    results!(store, R, 2, sums, row);
}

/// Sets all results to zero.
#[inline(always)]
fn zero() {
    step!(zero "tmm0");
    step!(zero "tmm1");
    step!(zero "tmm2");
    step!(zero "tmm3");
}

/// Adds the products of `R` tiles of rows and `C` of columns over 32 `k`; each tile is 16 rows of 64 bytes, that many
/// words apart.
#[inline(always)]
fn multiply_tiles<const R: usize, const C: usize>(
    (rows, row): ([*const u32; R], usize),
    (columns, column): ([*const u32; C], usize),
) {
    step!(load "tmm4", rows[0], row);
    step!(load "tmm6", columns[0], column);
    step!(multiply "tmm0", "tmm4", "tmm6");
    if C == 2 {
        step!(load "tmm7", columns[C - 1], column);
        step!(multiply "tmm1", "tmm4", "tmm7");
    }
    if R == 2 {
        step!(load "tmm5", rows[R - 1], row);
        step!(multiply "tmm2", "tmm5", "tmm6");
    }
    if R == 2 && C == 2 {
        step!(multiply "tmm3", "tmm5", "tmm7");
    }
}

/// [`TileUnit::round_row`].
#[target_feature(enable = "avx512f,avx512bf16")]
fn round_steps(row: &mut [u32]) -> f32 {
    let (words, steps) = (row.as_mut_ptr(), row.len() / 32);
    // SAFETY: both are vectors of 512 bits; an upper half of 0x3f80 is one.
    let ones = unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(0x3f80_3f80)) };
    let mut sum = _mm512_setzero_ps();
    for step in 0..steps {
        // SAFETY: 32 floats are read before half as many words are written, all inside the row and none of a later
        // step.
        unsafe {
            let floats = words.add(32 * step).cast::<f32>();
            let halves = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(floats.add(16)), _mm512_loadu_ps(floats));
            sum = _mm512_dpbf16_ps(sum, halves, ones);
            _mm512_storeu_si512(words.add(16 * step).cast(), std::mem::transmute::<__m512bh, __m512i>(halves));
        }
    }
    Avx512::sum(sum)
}
