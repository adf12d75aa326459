//! Keeps the threads of a pool awake while a model computes.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use probity_kernels::NoMemory;
use probity_lm::{BoxedError, plain_error};
use probity_models::DeviceLimitError;
use rayon::{ThreadPool, Yield};

use crate::checkpoint::LoadError;

/// Number of spins before a thread yields. Between two products of a step, work arrives much earlier; an idle thread
/// must not keep the CPU from other processes.
const SPINS: u32 = 1000;

/// The threads of a model, which run one piece of work at a time.
pub(crate) struct ComputeThreads {
    pool: ThreadPool,
    /// Taken outside the pool: a pool thread that waited for its turn could be needed by the previous work.
    turn: Mutex<()>,
}

impl ComputeThreads {
    /// Creates this many threads, by default one per processor.
    pub(crate) fn new(threads: Option<usize>) -> Result<Self, LoadError> {
        let threads = threads.unwrap_or(0);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| LoadError::Threads { threads, why: error.to_string() })?;
        Ok(Self { pool, turn: Mutex::new(()) })
    }

    /// Creates several sets that divide the threads among them, at least one each.
    pub(crate) fn shares(threads: Option<usize>, sets: usize) -> Result<Vec<Self>, LoadError> {
        if sets == 1 {
            return Ok(vec![Self::new(threads)?]);
        }
        let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get));
        let share = |set| threads / sets + usize::from(set < threads % sets);
        (0..sets).map(|set| Self::new(Some(share(set).max(1)))).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs I/O-bound work on the threads: loading.
    pub(crate) fn load<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
    }

    /// [`run`](Self::run) for a step of the model; a failed memory allocation is returned as an error.
    pub(crate) fn compute<T: Send>(
        &self,
        work: impl FnOnce() -> candle_core::Result<T> + Send,
    ) -> candle_core::Result<T> {
        let unwound = match catch_unwind(AssertUnwindSafe(|| self.run(work))) {
            Ok(done) => return done,
            Err(unwound) => unwound,
        };
        // `Cuda` is candle's only wrapper that preserves an error; `computing_error` unwraps it. Nothing of the failed
        // step is reused, because each step declares its buffer sizes first.
        unwound
            .downcast::<NoMemory>()
            .map_or_else(|other| resume_unwind(other), |why| Err(candle_core::Error::Cuda(why)))
    }

    /// Runs `work` on the threads. None of them sleeps before it is done, but an idle thread yields to other processes
    /// after a while. A decoding step is a hundred products in quick succession, and waking threads for each takes
    /// longer than the product. The result does not depend on which thread computes what.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.pool.install(|| {
            let done = AtomicBool::new(false);
            let own = rayon::current_thread_index();
            rayon::in_place_scope(|scope| {
                for _ in 1..rayon::current_num_threads() {
                    // On the thread that waits for the others, it would wait for itself.
                    scope.spawn(|_| {
                        let mut idle = 0;
                        while !done.load(Ordering::Acquire) && rayon::current_thread_index() != own {
                            if rayon::yield_now() == Some(Yield::Executed) {
                                idle = 0;
                            } else if idle < SPINS {
                                idle += 1;
                                std::hint::spin_loop();
                            } else {
                                thread::yield_now();
                            }
                        }
                    });
                }
                // Also on panic.
                let _end = End(&done);
                work()
            })
        })
    }
}

/// Signals on drop that the work is done.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Candle's error of a step. A failed memory allocation or an overflow gets a hint.
pub(crate) fn computing_error(error: candle_core::Error) -> BoxedError {
    match DeviceLimitError::from_candle(error) {
        Ok(limit) => Box::new(limit),
        Err(candle_core::Error::Cuda(inner)) => match inner.downcast::<NoMemory>() {
            Ok(no_memory) => no_memory,
            Err(other) => other.into(),
        },
        Err(other) => plain_error(other),
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    fn threads(count: usize) -> ComputeThreads {
        ComputeThreads::new(Some(count)).expect("threads")
    }

    fn sum() -> u64 {
        (0..1000).into_par_iter().sum()
    }

    #[test]
    fn memory_that_a_step_cannot_have_is_an_error() {
        let starved = || -> candle_core::Result<()> {
            (0..8_usize).into_par_iter().for_each(|_| probity_kernels::Buffer::<u64>::default().set_len(1 << 57));
            Ok(())
        };
        let threads = threads(2);
        let error = computing_error(threads.compute(starved).expect_err("no memory"));
        assert!(error.to_string().contains("no memory for the") && error.help().is_some(), "{error}");
        assert_eq!(threads.compute(|| Ok(7)).expect("the pool goes on"), 7);
    }

    #[test]
    fn work_and_its_panics_come_back() {
        for threads in [1, 2, 5].map(threads) {
            for _ in 0..100 {
                assert_eq!(threads.run(sum), 499_500);
            }
            let caught =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| threads.run(|| panic!("on purpose"))));
            assert!(caught.is_err());
            assert_eq!(threads.run(|| 7), 7, "the pool goes on");
        }
    }

    #[test]
    fn devices_divide_the_threads_and_none_is_without() {
        let counts = |threads, sets| -> Vec<usize> {
            let shares = ComputeThreads::shares(Some(threads), sets).expect("threads");
            shares.iter().map(ComputeThreads::count).collect()
        };
        assert_eq!(counts(7, 1), [7]);
        assert_eq!(counts(7, 3), [3, 2, 2]);
        assert_eq!(counts(1, 2), [1, 1]);
        assert_eq!(ComputeThreads::shares(None, 2).expect("threads").len(), 2);
    }

    #[test]
    fn callers_take_turns() {
        let (threads, memory) = (threads(2), Mutex::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        threads.run(|| *memory.lock().expect("no panic") += sum());
                    }
                });
            }
        });
        assert_eq!(memory.into_inner().expect("no panic"), 4 * 200 * 499_500);
    }
}
