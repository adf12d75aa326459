//! The instruction sets of kernels. The choice never changes a bit of any result.
//!
//! Each instruction set is one file below this module, with its primitives and [`IsaFacts`], and one row of the table
//! that makes it part of [`Isa`]. The drivers of the primitives are generic over [`Simd`](crate::simd::Simd), compiled
//! for each row by [`dispatch!`], and read other properties from the facts.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "aarch64")]
pub(crate) mod arm;
pub(crate) mod plain;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use std::sync::OnceLock;

use crate::tiles::PairTile;
use crate::{Arithmetic, ProductForm};

/// The architecture's tile unit, whether this machine has one or not.
#[cfg(target_arch = "x86_64")]
pub(crate) use amx::TileRegisters;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use plain::NoTiles as TileRegisters;

/// Properties of an instruction set that drivers need. The number of lanes is not among them: it is
/// [sixteen](crate::simd::LANES) everywhere.
pub(crate) struct IsaFacts {
    /// Whether this machine supports it and the system lets the process use it.
    pub(crate) is_available: fn() -> bool,
    /// Rows of the register tiles of each form.
    pub(crate) rows: [usize; ProductForm::ALL.len()],
    /// Whether it has an instruction for dot products of four bytes.
    pub(crate) has_byte_dot: bool,
    /// A specialised tile of `Form::Pairs`, if this machine has the instructions.
    pub(crate) pair_tile: fn() -> Option<PairTile>,
    /// Whether it has [`TileRegisters`].
    pub(crate) has_tiles: bool,
}

/// Generates [`Isa`], its facts and [`dispatch!`] from one row per instruction set: its name in results, its
/// architecture, its facts, and either the macro `by` which bodies are compiled for it, or `as` which other instruction
/// set they run.
macro_rules! instruction_sets {
    ($d:tt $($(#[$doc:meta])* $isa:ident $name:literal $(on $arch:tt)?: $facts:path, $(by $($by:ident)::+)? $(as $as:ident)?;)*) => {
        /// An instruction set that kernels support.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Isa {
            $($(#[$doc])* $isa,)*
        }

        impl Isa {
            /// All instruction sets, the most basic first.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$isa),*];

            /// The name in results, in lower case.
            pub fn name(self) -> &'static str {
                match self { $(Self::$isa => $name,)* }
            }

            pub(crate) fn facts(self) -> &'static IsaFacts {
                const ELSEWHERE: IsaFacts = IsaFacts { is_available: || false, ..plain::FACTS };
                match self {
                    $($(#[cfg(target_arch = $arch)])? Self::$isa => &$facts,)*
                    #[allow(unreachable_patterns, reason = "on the architecture that all belong to")]
                    _ => &ELSEWHERE,
                }
            }

            /// The instruction set whose code it runs.
            pub(crate) fn code(self) -> Self {
                match self {
                    $($(Self::$isa => Self::$as,)?)*
                    isa => isa,
                }
            }
        }

        /// Runs `$body::<S>(args)` compiled for `isa`, where `S` is the matching [`Simd`](crate::simd::Simd).
        ///
        /// The body is `#[inline(always)]`, so that it and the intrinsics in it are compiled with the wrapper's
        /// instruction set.
        macro_rules! dispatch {
            ($d isa:expr, $d body:ident ( $d($d arg:ident : $d ty:ty),* $d(,)? )) => {{
                assert!($d isa.is_available(), "{} is not available on this machine", $d isa.name());
                match $d isa.code() {
                    $(
                        $(#[cfg(target_arch = $arch)])?
                        $($crate::Isa::$isa => $crate::isa::$($by)::+!($d body($d($d arg : $d ty),*)),)?
                        $($crate::Isa::$isa => unreachable!("it runs that of {:?}", $crate::Isa::$as),)?
                    )*
                    #[allow(unreachable_patterns, reason = "on the architecture that all belong to")]
                    _ => unreachable!("none of this architecture"),
                }
            }};
        }
        pub(crate) use dispatch;
    };
}

instruction_sets! { $
    /// Portable Rust, the reference that the others are tested against.
    Plain "plain": plain::FACTS, by plain::plain;
    /// AVX2 with FMA.
    Avx2 "avx2" on "x86_64": x86::avx2::FACTS, by x86::avx2::avx2;
    /// AVX2 with FMA and AVX-VNNI.
    AvxVnni "avx-vnni" on "x86_64": x86::avx_vnni::FACTS, by x86::avx_vnni::avx_vnni;
    /// AVX-512 F, BW, VL and VNNI.
    Avx512 "avx512" on "x86_64": x86::avx512::FACTS, by x86::avx512::avx512;
    /// AVX-512 with AMX tiles for integers and bf16.
    Amx "amx" on "x86_64": amx::FACTS, as Avx512;
    /// NEON.
    Neon "neon" on "aarch64": arm::neon::FACTS, by arm::neon::neon;
    /// NEON with byte dot products.
    NeonDot "neon-dot" on "aarch64": arm::neon_dot::FACTS, by arm::neon_dot::neon_dot;
    /// NEON with byte matrix products.
    NeonI8mm "neon-i8mm" on "aarch64": arm::neon_i8mm::FACTS, by arm::neon_i8mm::neon_i8mm;
}

/// `$body::<$lanes>(args)` compiled for `$features`, which were detected on this machine.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    expect(unused_macros, reason = "portable code is compiled as it is")
)]
macro_rules! compile {
    ($features:tt, $lanes:ty, $body:ident ( $($arg:ident : $ty:ty),* )) => {{
        #[target_feature(enable = $features)]
        fn compiled($($arg: $ty),*) {
            $body::<$lanes>($($arg),*)
        }
        // SAFETY: the instruction set was detected on this machine before it is chosen.
        unsafe { compiled($($arg),*) }
    }};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use compile;

impl Isa {
    /// Whether this machine can run it.
    pub fn is_available(self) -> bool {
        (self.facts().is_available)()
    }

    /// Whether it has an instruction for byte dot products. Without one, integer arithmetic takes more time relative to
    /// memory.
    pub fn has_byte_dot(self) -> bool {
        self.facts().has_byte_dot
    }

    /// The widest instruction set of this machine.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Self::Plain))
    }
}

impl Arithmetic {
    /// The fastest arithmetic of this machine other than [exact](Self::Exact): tiles if it has them.
    pub fn fastest() -> Self {
        if Isa::best().facts().has_tiles { Self::Tiles } else { Self::Dots }
    }
}
