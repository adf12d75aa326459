//! Runs work on untrusted input (a model's chat template, its tokenizer) within limits of memory and time.
//!
//! A library that parses such files allocates whatever they request, and a Rust program without memory aborts instead
//! of returning an error. So the work runs on its own thread, and the allocator ([`CountingAllocator`]) counts the
//! bytes held by that thread. A thread that exceeds its limit sleeps forever inside the allocation, and the caller
//! receives an error. The same happens at its next allocation after its time is over. Its memory, at most the limit,
//! stays allocated; since the model is then rejected, such threads do not accumulate.
//!
//! Memory allocated by C code (the regular expression engine) is not counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use probity_lm::quietly;

/// Limits for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkLimits {
    /// Maximum bytes held at a time.
    pub(crate) memory: usize,
    /// Maximum duration.
    pub(crate) time: Duration,
    /// Stack size in bytes; untouched pages cost nothing.
    pub(crate) stack: usize,
}

impl WorkLimits {
    /// Reduced limits for fuzzing, where a process continues after many stopped threads and would wait for each.
    fn narrowed(self) -> Self {
        Self { memory: self.memory.min(16 << 20), time: self.time.min(Duration::from_secs(3)), ..self }
    }
}

/// Why work did not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub(crate) enum NotContained {
    /// It exceeded its memory limit.
    #[error("it needs more than {} MiB of memory", .0 >> 20)]
    Memory(usize),
    /// It exceeded its time limit.
    #[error("it is not finished after {} s", .0.as_secs())]
    Time(Duration),
    /// It panicked.
    #[error("the library that reads it failed")]
    Panicked,
    /// The system could not create a thread with this stack.
    #[error("cannot allocate a stack of {} MiB: {why}", .stack >> 20)]
    NoThread {
        /// Stack size in bytes.
        stack: usize,
        /// The system's error.
        why: String,
    },
}

/// Interval at which the waiting side checks the limits.
const LOOK: Duration = Duration::from_millis(10);

/// Runs `work` within `limits` and returns its result.
pub(crate) fn within<T: Send + 'static>(
    limits: WorkLimits,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NotContained> {
    let limits = if cfg!(fuzzing) { limits.narrowed() } else { limits };
    let meter = Arc::new(Meter { limit: limits.memory, stopped: AtomicBool::new(false) });
    // Capacity for the only answer, so that sending never blocks.
    let (sender, receiver) = sync_channel(1);
    let inside = Arc::clone(&meter);
    let contained = move || {
        let done = quietly(|| inside.measure(work));
        // After a timeout, no receiver is left.
        let _ = sender.send(done);
    };
    let thread = thread::Builder::new()
        .name("contained".to_owned())
        .stack_size(limits.stack)
        .spawn(contained)
        .map_err(|why| NotContained::NoThread { stack: limits.stack, why: why.to_string() })?;
    let begun = Instant::now();
    let ended = loop {
        match receiver.recv_timeout(LOOK) {
            Ok(done) => break done.ok_or(NotContained::Panicked),
            // It ended without an answer, bypassing `quietly`.
            Err(RecvTimeoutError::Disconnected) => break Err(NotContained::Panicked),
            Err(RecvTimeoutError::Timeout) if meter.stopped.load(Ordering::Acquire) => {
                std::mem::forget(thread);
                return Err(NotContained::Memory(limits.memory));
            }
            Err(RecvTimeoutError::Timeout) if begun.elapsed() > limits.time => {
                meter.stopped.store(true, Ordering::Release);
                std::mem::forget(thread);
                return Err(NotContained::Time(limits.time));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    // Joined, never detached: glibc's `pthread_detach` can access a thread that has already ended, and a stack this
    // large is unmapped immediately (glibc bug 19951). A stopped thread is kept forever, as it sleeps.
    let _ = thread.join();
    ended
}

thread_local! {
    /// Limit of this thread; null without a limit.
    static METER: Cell<*const Meter> = const { Cell::new(ptr::null()) };
    /// Bytes held by this thread; negative if it freed memory from other threads.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// Memory limit of a thread.
struct Meter {
    limit: usize,
    /// Set when a limit is exceeded: the thread gets no more memory.
    stopped: AtomicBool,
}

impl Meter {
    fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Resets the meter, also on panic; the meter is dropped afterwards.
        struct Unmeasured;
        impl Drop for Unmeasured {
            fn drop(&mut self) {
                METER.set(ptr::null());
            }
        }
        let _end = Unmeasured;
        HELD.set(0);
        METER.set(self);
        work()
    }
}

/// The system allocator, counting the memory of work on untrusted files. A program that loads third-party models should
/// declare it as its global allocator; otherwise the memory of a model's chat template and tokenizer is not limited.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: probity_runtime::CountingAllocator = probity_runtime::CountingAllocator;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingAllocator;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Counts bytes that this thread is about to allocate. Does not return if the limit does not allow them.
fn charge(bytes: usize) {
    // A thread that is ending has no thread-local variables and no limit.
    let Ok(meter) = METER.try_with(Cell::get) else { return };
    // SAFETY: `Meter::measure` has it borrowed for as long as the pointer is set.
    let Some(meter) = (unsafe { meter.as_ref() }) else { return };
    let held = HELD.get().saturating_add(bytes as isize);
    HELD.set(held);
    if held > meter.limit as isize || meter.stopped.load(Ordering::Relaxed) {
        // An allocator must not unwind, and without memory the caller would abort the process, so this never returns.
        // Allocations from here on must not enter this function again.
        METER.set(ptr::null());
        meter.stopped.store(true, Ordering::Release);
        loop {
            thread::sleep(Duration::from_secs(3600));
        }
    }
}

fn discharge(bytes: usize) {
    if METER.try_with(Cell::get).is_ok_and(|meter| !meter.is_null()) {
        HELD.set(HELD.get().saturating_sub(bytes as isize));
    }
}

// SAFETY: all memory is the system allocator's, with the arguments that came. Counting allocates nothing and does not
// unwind; where it does not return, nothing has been taken or let go yet.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        discharge(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        charge(size.saturating_sub(layout.size()));
        discharge(layout.size().saturating_sub(size));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: WorkLimits = WorkLimits { memory: 1 << 20, time: Duration::from_secs(20), stack: 1 << 20 };

    #[test]
    fn work_within_its_limits_returns_and_what_it_lets_go_is_not_counted() {
        let rounds = || (0..100).map(|round| vec![round as u8; 900 << 10].len()).sum::<usize>();
        assert_eq!(within(SMALL, rounds), Ok(100 * (900 << 10)));
        let grown = || (0..200_000_u32).collect::<Vec<u32>>().len();
        assert_eq!(within(SMALL, grown), Ok(200_000));
    }

    #[test]
    fn work_that_asks_for_too_much_at_once_or_bit_by_bit_is_stopped() {
        assert_eq!(within(SMALL, || vec![0_u8; 10 << 30].len()), Err(NotContained::Memory(1 << 20)));
        let doubled = || (0..40).fold("ab".to_owned(), |text, _| text.repeat(2)).len();
        assert_eq!(within(SMALL, doubled), Err(NotContained::Memory(1 << 20)));
        let kept = || (0..100_000).map(|_| Box::new([0_u8; 100])).collect::<Vec<_>>().len();
        assert_eq!(within(SMALL, kept), Err(NotContained::Memory(1 << 20)));
    }

    #[test]
    fn work_that_does_not_end_is_left_behind() {
        let short = WorkLimits { time: Duration::from_millis(30), ..SMALL };
        let endless = || {
            loop {
                std::hint::black_box(vec![1_u8; 64]);
            }
        };
        assert_eq!(within::<()>(short, endless), Err(NotContained::Time(short.time)));
    }

    #[test]
    fn panics_and_stacks_that_cannot_be_had_are_errors() {
        assert_eq!(within::<()>(SMALL, || panic!("on purpose")), Err(NotContained::Panicked));
        assert!(matches!(within(WorkLimits { stack: 1 << 60, ..SMALL }, || ()), Err(NotContained::NoThread { .. })));
        assert_eq!(within(SMALL, || 7), Ok(7));
    }
}
