//! Keeping the threads of a pool at hand while a model computes.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::{ThreadPool, Yield};

/// Runs `work` on the pool, none of whose threads falls asleep before it is done. A decoding step is a hundred products with hardly anything
/// between them; to wake a thread for each takes longer than what it then computes. Which thread computes what changes no result.
pub(crate) fn awake<T: Send>(threads: &ThreadPool, work: impl FnOnce() -> T + Send) -> T {
    threads.install(|| {
        let done = AtomicBool::new(false);
        let own = rayon::current_thread_index();
        rayon::in_place_scope(|scope| {
            for _ in 1..threads.current_num_threads() {
                // On the thread that waits for the others it would wait for itself.
                scope.spawn(|_| {
                    while !done.load(Ordering::Acquire) && rayon::current_thread_index() != own {
                        if rayon::yield_now() != Some(Yield::Executed) {
                            std::hint::spin_loop();
                        }
                    }
                });
            }
            // Also where the work panics.
            let _end = End(&done);
            work()
        })
    })
}

/// Says that the work is done when it goes.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    #[test]
    fn work_and_its_panics_come_back() {
        for count in [1, 2, 5] {
            let threads = rayon::ThreadPoolBuilder::new().num_threads(count).build().expect("threads");
            for _ in 0..100 {
                assert_eq!(awake(&threads, || (0..1000).into_par_iter().sum::<u64>()), 499_500);
            }
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| awake(&threads, || panic!("on purpose"))));
            assert!(caught.is_err());
            assert_eq!(awake(&threads, || 7), 7, "the pool goes on");
        }
    }
}
