//! AVX2, AVX-VNNI and AVX-512.

pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod avx_vnni;

pub(crate) use avx_vnni::AvxVnni;
pub(crate) use avx2::Avx2;
pub(crate) use avx512::Avx512;

/// [`Simd::prefetch`](crate::simd::Simd::prefetch).
#[inline(always)]
fn prefetch<const SOON: bool>(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
    // SAFETY: a prefetch has no effect but on caches, whatever the address.
    unsafe { if SOON { _mm_prefetch::<_MM_HINT_T0>(at.cast()) } else { _mm_prefetch::<_MM_HINT_T1>(at.cast()) } };
}
