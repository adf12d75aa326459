//! Which instruction set a kernel runs on. The choice never changes a bit of any result.
//!
//! All that is known of an instruction set stands in its file below here, primitives and [`IsaFacts`] alike, and its row of
//! the table makes it one of [`Isa`]. What drives the primitives is written over [`Simd`](crate::simd::Simd), compiled
//! for each row by [`dispatch!`], and asks the facts for what else it wants to know.

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

/// The architecture's unit of tiles, whether this machine has one or not.
#[cfg(target_arch = "x86_64")]
pub(crate) use amx::TileRegisters;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use plain::NoTiles as TileRegisters;

/// What drivers ask of an instruction set. How many lanes it has is none of it: there are
/// [sixteen](crate::simd::LANES) on all.
pub(crate) struct IsaFacts {
    /// Whether this machine has it and the system lets the process use it.
    pub(crate) is_available: fn() -> bool,
    /// Rows of its register tiles of each form.
    pub(crate) rows: [usize; ProductForm::ALL.len()],
    /// Whether it multiplies four bytes with four and adds the products up in one instruction.
    pub(crate) has_byte_dot: bool,
    /// Its own tile of `Form::Pairs`, where this machine has the instructions for it.
    pub(crate) pair_tile: fn() -> Option<PairTile>,
    /// Whether it has [`TileRegisters`].
    pub(crate) has_tiles: bool,
}

/// Makes [`Isa`], its facts and [`dispatch!`] of one row for each instruction set: its name in results, the architecture
/// that it belongs to, its facts, and the macro `by` which bodies are compiled for it, or `as` which other they are.
macro_rules! instruction_sets {
    ($d:tt $($(#[$doc:meta])* $isa:ident $name:literal $(on $arch:tt)?: $facts:path, $(by $($by:ident)::+)? $(as $as:ident)?;)*) => {
        /// An instruction set that the kernels are written for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Isa {
            $($(#[$doc])* $isa,)*
        }

        impl Isa {
            /// All of them, the plainest first.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$isa),*];

            /// Its name in results, in lower case.
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
    /// Portable Rust: the twin that the others are tested against.
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
    /// NEON with dot products of bytes.
    NeonDot "neon-dot" on "aarch64": arm::neon_dot::FACTS, by arm::neon_dot::neon_dot;
    /// NEON with products of matrices of bytes.
    NeonI8mm "neon-i8mm" on "aarch64": arm::neon_i8mm::FACTS, by arm::neon_i8mm::neon_i8mm;
}

/// `$body::<$lanes>(args)` compiled for `$features`, which were found on this machine.
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
        // SAFETY: the instruction set was found on this machine before it is chosen.
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

    /// Whether it has an instruction for dot products of bytes. Without one, arithmetic on integers weighs more against
    /// the time that memory takes.
    pub fn has_byte_dot(self) -> bool {
        self.facts().has_byte_dot
    }

    /// The widest that this machine can run.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Self::Plain))
    }
}

impl Arithmetic {
    /// The one that this machine is fastest in besides [exact](Self::Exact): tiles where it has them.
    pub fn fastest() -> Self {
        if Isa::best().facts().has_tiles { Self::Tiles } else { Self::Dots }
    }
}
