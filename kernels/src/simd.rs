//! Sixteen lanes of f32 or i32 on each instruction set, with identical results on all of them.
//!
//! Kernels are written once over [`Simd`]. Each operation is exactly rounded (or exact in integers) and lanes never meet but in
//! [`Simd::sum`], whose order is fixed; so a kernel gives the same bits whatever it is compiled for.

/// Lanes in a vector.
pub(crate) const LANES: usize = 16;

/// Sixteen-lane arithmetic. Loads and stores take arrays, so that no length can be wrong.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32.
    type I: Copy;
    /// Rows per register tile of the float matrix product.
    const FLOAT_ROWS: usize;
    /// Rows per register tile of the 8-bit matrix product.
    const INT_ROWS: usize;

    fn splat(x: f32) -> Self::F;
    fn load(from: &[f32; LANES]) -> Self::F;
    fn store(v: Self::F, to: &mut [f32; LANES]);
    fn add(a: Self::F, b: Self::F) -> Self::F;
    fn sub(a: Self::F, b: Self::F) -> Self::F;
    fn mul(a: Self::F, b: Self::F) -> Self::F;
    fn div(a: Self::F, b: Self::F) -> Self::F;
    /// The larger of each lane; `b` where one is NaN.
    fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller of each lane; `b` where one is NaN.
    fn min(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `p · 2ⁿ` where `z` holds `n + 1.5 · 2²³`, −126 ≤ n ≤ 127.
    fn scale_by_power(p: Self::F, z: Self::F) -> Self::F;

    fn splat_i(x: i32) -> Self::I;
    /// Each lane plus the dot product of its four unsigned bytes with the four signed bytes of `word` (little end first). Exact.
    fn dot4(acc: Self::I, unsigned: &[u8; 4 * LANES], word: i32) -> Self::I;
    fn to_f(v: Self::I) -> Self::F;

    /// The lanes, for the horizontal steps.
    fn lanes(v: Self::F) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        Self::store(v, &mut lanes);
        lanes
    }

    /// The sum over lanes as a balanced tree: halves are added lane by lane until one is left.
    #[inline(always)]
    fn sum(v: Self::F) -> f32 {
        let mut lanes = Self::lanes(v);
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
            width /= 2;
        }
        lanes[0]
    }

    /// The largest lane.
    #[inline(always)]
    fn reduce_max(v: Self::F) -> f32 {
        Self::lanes(v).into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    /// eˣ to about one unit in the last place for −87 ≤ x ≤ 88; arguments outside are taken as the nearest bound, NaN stays NaN.
    #[inline(always)]
    fn exp(x: Self::F) -> Self::F {
        // NaN passes through: both comparisons give their second argument then.
        let x = Self::min(Self::splat(88.0), Self::max(Self::splat(-87.0), x));
        // n = round(x / ln 2), held in the low mantissa bits of z; r = x − n ln 2 in two steps.
        let magic = Self::splat(12_582_912.0);
        let z = Self::fma(x, Self::splat(std::f32::consts::LOG2_E), magic);
        let n = Self::sub(z, magic);
        let r = Self::fma(n, Self::splat(-0.693_359_4), x);
        let r = Self::fma(n, Self::splat(2.121_944_4e-4), r);
        // Taylor to the seventh degree on |r| ≤ 0.347: the remainder is below 6e-9.
        let mut p = Self::splat(1.0 / 5040.0);
        for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            p = Self::fma(p, r, Self::splat(c));
        }
        Self::scale_by_power(p, z)
    }
}

/// Portable lanes.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Plain {
    type F = [f32; LANES];
    type I = [i32; LANES];
    const FLOAT_ROWS: usize = 4;
    const INT_ROWS: usize = 4;

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
    #[inline(always)]
    fn add(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn max(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
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
    fn dot4(acc: Self::I, unsigned: &[u8; 4 * LANES], word: i32) -> Self::I {
        let bytes = word.to_le_bytes();
        std::array::from_fn(|lane| {
            (0..4).fold(acc[lane], |sum, b| sum + i32::from(unsigned[4 * lane + b]) * i32::from(bytes[b].cast_signed()))
        })
    }
    #[inline(always)]
    fn to_f(v: Self::I) -> Self::F {
        v.map(|x| x as f32)
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

// The token types below exist only behind `dispatch!`, which runs them after it found the instruction set; every intrinsic relies on that.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "a list of fifty intrinsics says nothing; clippy does not look in test builds")]
#[expect(clippy::cast_ptr_alignment, reason = "the loads are those for unaligned data")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, Simd};

    /// Two 256-bit halves.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2;

    /// One 512-bit register.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512;

    macro_rules! both {
        ($f:ident, $($v:expr),+) => {
            // SAFETY: AVX2 and FMA were found before this type is used.
            unsafe { [$f($($v[0]),+), $f($($v[1]),+)] }
        };
    }

    impl Simd for Avx2 {
        type F = [__m256; 2];
        type I = [__m256i; 2];
        const FLOAT_ROWS: usize = 3;
        const INT_ROWS: usize = 2;

        #[inline(always)]
        fn splat(x: f32) -> Self::F {
            // SAFETY: AVX2 was found before this type is used.
            unsafe { [_mm256_set1_ps(x); 2] }
        }
        #[inline(always)]
        fn load(from: &[f32; LANES]) -> Self::F {
            // SAFETY: AVX2 was found before this type is used.
            unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
        }
        #[inline(always)]
        fn store(v: Self::F, to: &mut [f32; LANES]) {
            // SAFETY: AVX2 was found before this type is used.
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr(), v[0]);
                _mm256_storeu_ps(to.as_mut_ptr().add(8), v[1]);
            }
        }
        #[inline(always)]
        fn add(a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_add_ps, a, b)
        }
        #[inline(always)]
        fn sub(a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_sub_ps, a, b)
        }
        #[inline(always)]
        fn mul(a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_mul_ps, a, b)
        }
        #[inline(always)]
        fn div(a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_div_ps, a, b)
        }
        #[inline(always)]
        fn max(a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_max_ps, a, b)
        }
        #[inline(always)]
        fn min(a: Self::F, b: Self::F) -> Self::F {
            both!(_mm256_min_ps, a, b)
        }
        #[inline(always)]
        fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
            both!(_mm256_fmadd_ps, a, b, c)
        }
        #[inline(always)]
        fn scale_by_power(p: Self::F, z: Self::F) -> Self::F {
            // SAFETY: AVX2 was found before this type is used.
            std::array::from_fn(|h| unsafe {
                let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(z[h]));
                _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p[h]), exponent))
            })
        }
        #[inline(always)]
        fn splat_i(x: i32) -> Self::I {
            // SAFETY: AVX2 was found before this type is used.
            unsafe { [_mm256_set1_epi32(x); 2] }
        }
        #[inline(always)]
        fn dot4(acc: Self::I, unsigned: &[u8; 4 * LANES], word: i32) -> Self::I {
            // 16-bit products cannot saturate, unlike those of `maddubs` with 8-bit unsigned weights.
            // SAFETY: AVX2 was found before this type is used.
            std::array::from_fn(|h| unsafe {
                let signed = _mm256_cvtepi8_epi16(_mm_set1_epi32(word));
                let at = unsigned.as_ptr().add(32 * h).cast::<__m128i>();
                let low = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(at)), signed);
                let high = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(at.add(1))), signed);
                let pairs = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(low, high));
                _mm256_add_epi32(acc[h], pairs)
            })
        }
        #[inline(always)]
        fn to_f(v: Self::I) -> Self::F {
            both!(_mm256_cvtepi32_ps, v)
        }
    }

    macro_rules! one {
        ($f:ident, $($v:expr),+) => {
            // SAFETY: AVX-512 was found before this type is used.
            unsafe { $f($($v),+) }
        };
    }

    impl Simd for Avx512 {
        type F = __m512;
        type I = __m512i;
        const FLOAT_ROWS: usize = 12;
        const INT_ROWS: usize = 6;

        #[inline(always)]
        fn splat(x: f32) -> Self::F {
            one!(_mm512_set1_ps, x)
        }
        #[inline(always)]
        fn load(from: &[f32; LANES]) -> Self::F {
            // SAFETY: AVX-512 was found before this type is used.
            unsafe { _mm512_loadu_ps(from.as_ptr()) }
        }
        #[inline(always)]
        fn store(v: Self::F, to: &mut [f32; LANES]) {
            // SAFETY: AVX-512 was found before this type is used.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
        }
        #[inline(always)]
        fn add(a: Self::F, b: Self::F) -> Self::F {
            one!(_mm512_add_ps, a, b)
        }
        #[inline(always)]
        fn sub(a: Self::F, b: Self::F) -> Self::F {
            one!(_mm512_sub_ps, a, b)
        }
        #[inline(always)]
        fn mul(a: Self::F, b: Self::F) -> Self::F {
            one!(_mm512_mul_ps, a, b)
        }
        #[inline(always)]
        fn div(a: Self::F, b: Self::F) -> Self::F {
            one!(_mm512_div_ps, a, b)
        }
        #[inline(always)]
        fn max(a: Self::F, b: Self::F) -> Self::F {
            one!(_mm512_max_ps, a, b)
        }
        #[inline(always)]
        fn min(a: Self::F, b: Self::F) -> Self::F {
            one!(_mm512_min_ps, a, b)
        }
        #[inline(always)]
        fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
            one!(_mm512_fmadd_ps, a, b, c)
        }
        #[inline(always)]
        fn scale_by_power(p: Self::F, z: Self::F) -> Self::F {
            // SAFETY: AVX-512 was found before this type is used.
            unsafe {
                let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(z));
                _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent))
            }
        }
        #[inline(always)]
        fn splat_i(x: i32) -> Self::I {
            one!(_mm512_set1_epi32, x)
        }
        #[inline(always)]
        fn dot4(acc: Self::I, unsigned: &[u8; 4 * LANES], word: i32) -> Self::I {
            // SAFETY: AVX-512 VNNI was found before this type is used.
            unsafe { _mm512_dpbusd_epi32(acc, _mm512_loadu_si512(unsigned.as_ptr().cast()), _mm512_set1_epi32(word)) }
        }
        #[inline(always)]
        fn to_f(v: Self::I) -> Self::F {
            one!(_mm512_cvtepi32_ps, v)
        }
    }
}
