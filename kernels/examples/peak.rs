//! Measures this machine's peak rates for `scripts/bench`: one JSON object per line, rates per second.
//!
//! `cargo run --release -p probity-kernels --example peak [THREADS]`. Each rate is the best of several short runs, on
//! one thread and on `THREADS`: arithmetic in registers only, and reads from memory that exceed every cache.

#[cfg(target_arch = "x86_64")]
fn main() {
    let threads = std::env::args().nth(1).map_or(2, |text| text.parse().expect("a number of threads"));
    x86::measure(threads);
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    eprintln!("there are peaks for x86-64 only");
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid_count, __m512, __m512bh, __m512i, _mm256_fmadd_ps, _mm256_set1_ps, _mm512_dpbf16_ps,
        _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_or_si512, _mm512_reduce_or_epi64,
        _mm512_set1_epi8, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
    };
    use std::hint::black_box;
    use std::sync::Barrier;
    use std::time::Instant;

    const RUNS: usize = 5;
    /// Independent sums: more than latency × units on any machine, and few enough for the registers.
    const CHAINS: usize = 12;
    const STEPS: usize = 5_000_000;
    /// Per thread; well above a second-level cache and a thread's share of a large third-level one.
    const READ_BYTES: usize = 768 << 20;

    /// A piece of work that returns its number of operations or bytes.
    type Work = fn() -> f64;

    pub(super) fn measure(threads: usize) {
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let peaks: [(&str, bool, Work); 6] = [
            ("f32 FMA, AVX2", is_x86_feature_detected!("fma") && is_x86_feature_detected!("avx2"), fma_avx2),
            ("f32 FMA, AVX-512", avx512, fma_avx512),
            ("bf16 dot, AVX-512", avx512 && is_x86_feature_detected!("avx512bf16"), dot_bf16),
            ("int8 dot, AVX-512 VNNI", avx512 && is_x86_feature_detected!("avx512vnni"), dot_int8),
            ("bf16 tiles, AMX", avx512 && amx(22), tiles_bf16),
            ("int8 tiles, AMX", avx512 && amx(25), tiles_int8),
        ];
        for count in [1, threads] {
            for (name, available, work) in peaks {
                if available {
                    report(name, count, best(count, || work));
                }
            }
            if avx512 {
                report("memory read", count, best(count, read));
            }
        }
    }

    fn report(name: &str, threads: usize, rate: f64) {
        println!("{{\"peak\": \"{name}\", \"threads\": {threads}, \"rate\": {rate:.4e}}}");
    }

    /// The best rate of several runs with all threads working at the same time. Each thread prepares its own work.
    fn best<F: Fn() -> f64>(threads: usize, prepare: impl Fn() -> F + Sync) -> f64 {
        let barrier = Barrier::new(threads);
        let run = || {
            let work = prepare();
            let mut spans = Vec::new();
            for _ in 0..RUNS {
                barrier.wait();
                let start = Instant::now();
                let done = work();
                spans.push((start, Instant::now(), done));
            }
            spans
        };
        let spans: Vec<Vec<(Instant, Instant, f64)>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
        });
        let rate = |index: usize| {
            let runs = spans.iter().map(|thread| thread[index]);
            let start = runs.clone().map(|run| run.0).min().expect("a thread");
            let end = runs.clone().map(|run| run.1).max().expect("a thread");
            runs.map(|run| run.2).sum::<f64>() / (end - start).as_secs_f64()
        };
        (0..RUNS).map(rate).fold(0.0, f64::max)
    }

    fn fma_avx2() -> f64 {
        #[target_feature(enable = "avx2,fma")]
        fn run() -> f64 {
            let (a, b) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(0.25)));
            let mut sums = [_mm256_set1_ps(0.0); CHAINS];
            for _ in 0..STEPS {
                for sum in &mut sums {
                    *sum = _mm256_fmadd_ps(*sum, a, b);
                }
            }
            black_box(sums);
            (STEPS * CHAINS * 8 * 2) as f64
        }
        // SAFETY: `measure` calls it only where the features exist.
        unsafe { run() }
    }

    fn fma_avx512() -> f64 {
        #[target_feature(enable = "avx512f")]
        fn run() -> f64 {
            let (a, b) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(0.25)));
            let mut sums = [_mm512_setzero_ps(); CHAINS];
            for _ in 0..STEPS {
                for sum in &mut sums {
                    *sum = _mm512_fmadd_ps(*sum, a, b);
                }
            }
            black_box(sums);
            (STEPS * CHAINS * 16 * 2) as f64
        }
        // SAFETY: `measure` calls it only where the features exist.
        unsafe { run() }
    }

    fn dot_bf16() -> f64 {
        #[target_feature(enable = "avx512f,avx512bf16")]
        fn run() -> f64 {
            // SAFETY: both are 64 bytes without invalid values; 0x3f3f is 0.75.
            let a: __m512bh = unsafe { std::mem::transmute(_mm512_set1_epi8(black_box(0x3f))) };
            let mut sums: [__m512; CHAINS] = [_mm512_setzero_ps(); CHAINS];
            for _ in 0..STEPS {
                for sum in &mut sums {
                    *sum = _mm512_dpbf16_ps(*sum, a, a);
                }
            }
            black_box(sums);
            (STEPS * CHAINS * 32 * 2) as f64
        }
        // SAFETY: `measure` calls it only where the features exist.
        unsafe { run() }
    }

    fn dot_int8() -> f64 {
        #[target_feature(enable = "avx512f,avx512vnni")]
        fn run() -> f64 {
            let a = _mm512_set1_epi8(black_box(1));
            let mut sums: [__m512i; CHAINS] = [_mm512_setzero_si512(); CHAINS];
            for _ in 0..STEPS {
                for sum in &mut sums {
                    *sum = _mm512_dpbusd_epi32(*sum, a, a);
                }
            }
            black_box(sums);
            (STEPS * CHAINS * 64 * 2) as f64
        }
        // SAFETY: `measure` calls it only where the features exist.
        unsafe { run() }
    }

    /// Whether the AMX feature with this bit of leaf 7's EDX exists and the system lets this process use tiles.
    fn amx(bit: u32) -> bool {
        const TILE: u32 = 1 << 24;
        let features = __cpuid_count(7, 0).edx;
        if features & TILE == 0 || features & (1 << bit) == 0 {
            return false;
        }
        #[cfg(target_os = "linux")]
        {
            const ARCH_PRCTL: i64 = 158;
            const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
            const XFEATURE_XTILEDATA: u64 = 18;
            let status: i64;
            // SAFETY: the system call takes two numbers and touches no memory of this process.
            unsafe {
                asm!("syscall", inout("rax") ARCH_PRCTL => status, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") XFEATURE_XTILEDATA,
                     out("rcx") _, out("r11") _, options(nostack));
            }
            status == 0
        }
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Eight tiles of 16 rows of 64 bytes, in the layout of `ldtilecfg`.
    #[repr(C, align(64))]
    struct TileConfig([u8; 64]);

    impl TileConfig {
        fn whole_tiles() -> Self {
            let mut bytes = [0; 64];
            bytes[0] = 1; // palette
            for tile in 0..8 {
                bytes[16 + 2 * tile] = 64; // bytes per row
                bytes[48 + tile] = 16; // rows
            }
            Self(bytes)
        }
    }

    const TILE_STEPS: usize = 200_000;

    /// Four tile products per step into four sums, from zero tiles: the time does not depend on values.
    macro_rules! tile_products {
        ($instruction:literal) => {{
            let config = TileConfig::whole_tiles();
            // SAFETY: `measure` calls it only where tiles may be used; the configuration is 64 valid bytes, and tile
            // registers hold nothing else.
            unsafe {
                asm!(
                    "ldtilecfg [{config}]",
                    "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                    "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
                    "2:",
                    concat!($instruction, " tmm0, tmm4, tmm6"),
                    concat!($instruction, " tmm1, tmm4, tmm7"),
                    concat!($instruction, " tmm2, tmm5, tmm6"),
                    concat!($instruction, " tmm3, tmm5, tmm7"),
                    "dec {steps}",
                    "jnz 2b",
                    "tilerelease",
                    config = in(reg) &raw const config.0,
                    steps = inout(reg) TILE_STEPS => _,
                    options(nostack, readonly),
                );
            }
        }};
    }

    fn tiles_bf16() -> f64 {
        tile_products!("tdpbf16ps");
        (TILE_STEPS * 4 * 16 * 16 * 32 * 2) as f64
    }

    fn tiles_int8() -> f64 {
        tile_products!("tdpbusd");
        (TILE_STEPS * 4 * 16 * 16 * 64 * 2) as f64
    }

    /// Reads a thread-local buffer from end to end.
    fn read() -> impl Fn() -> f64 {
        let buffer = vec![1u8; READ_BYTES];
        move || {
            #[target_feature(enable = "avx512f")]
            fn run(buffer: &[u8]) -> i64 {
                let mut sums = [_mm512_setzero_si512(); 4];
                for line in buffer.chunks_exact(256) {
                    for (sum, vector) in sums.iter_mut().zip(line.chunks_exact(64)) {
                        // SAFETY: the chunk holds 64 bytes.
                        *sum = _mm512_or_si512(*sum, unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) });
                    }
                }
                let [a, b, c, d] = sums;
                _mm512_reduce_or_epi64(_mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d)))
            }
            // SAFETY: `measure` calls it only where the feature exists.
            black_box(unsafe { run(&buffer) });
            READ_BYTES as f64
        }
    }
}
