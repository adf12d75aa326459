//! Which instruction set a kernel runs on. The choice never changes a bit of any result.

use std::sync::OnceLock;

/// An instruction set that the kernels are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Portable Rust: the twin that the others are tested against.
    Plain,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, BW, VL and VNNI.
    Avx512,
    /// AVX-512 with AMX tiles for integers and bf16.
    Amx,
}

impl Isa {
    /// All of them, the plainest first.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Avx2, Self::Avx512, Self::Amx];

    /// Whether this machine can run it.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Plain => true,
            Self::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            Self::Amx => Self::Avx512.is_available() && crate::amx::is_available(),
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Plain
        }
    }

    /// The widest that this machine can run.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Self::Plain))
    }

    /// Its name in results: `plain`, `avx2`, `avx512`, `amx`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }
}

/// Whether the machine multiplies bf16 pairs in one instruction.
pub(crate) fn has_bf16_dot() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        Isa::Avx512.is_available() && is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Runs `$body::<S>(args)` compiled for `isa`, where `S` is the matching [`Simd`](crate::simd::Simd).
///
/// The body is `#[inline(always)]`, so that it and the intrinsics in it are compiled with the wrapper's instruction
/// set.
macro_rules! dispatch {
    ($isa:expr, $body:ident ( $($arg:ident : $ty:ty),* $(,)? )) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) {
                $body::<$crate::x86::Avx2>($($arg),*)
            }
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
            fn avx512($($arg: $ty),*) {
                $body::<$crate::x86::Avx512>($($arg),*)
            }
            // Portable code all the same; but without the instruction each fused multiply-add is a call of the library.
            #[target_feature(enable = "fma")]
            fn plain($($arg: $ty),*) {
                $body::<$crate::simd::Plain>($($arg),*)
            }
            assert!($isa.is_available(), "{} is not available on this machine", $isa.name());
            match $isa {
                // SAFETY: the instruction was found on this machine just above.
                $crate::Isa::Plain if is_x86_feature_detected!("fma") => unsafe { plain($($arg),*) },
                $crate::Isa::Plain => $body::<$crate::simd::Plain>($($arg),*),
                // SAFETY: the instruction set was found on this machine just above.
                $crate::Isa::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: the instruction set was found on this machine just above.
                $crate::Isa::Avx512 | $crate::Isa::Amx => unsafe { avx512($($arg),*) },
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            assert!($isa.is_available(), "{} is not available on this machine", $isa.name());
            $body::<$crate::simd::Plain>($($arg),*)
        }
    }};
}

pub(crate) use dispatch;
