//! Libraries that panic over files which were damaged or made to harm: their panics are errors, and nothing of them is
//! printed.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is expected, and told as an error.
    // By thread, while the hook is one for the process: a panic of ours in another thread must still be printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What `work` returns, or `None` where it panics. What it had half done must not be used again.
pub fn quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    // Set once and never taken back: two threads that swapped hooks in and out would put each other's in place.
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    // What was set before is put back, not `false`: guarded code may call guarded code.
    let outer = QUIET.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work)).ok();
    QUIET.set(outer);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_nothing_and_what_surrounds_it_goes_on() {
        let outer = quietly(|| (quietly(|| -> u8 { panic!("on purpose") }), quietly(|| 2)));
        assert_eq!(outer, Some((None, Some(2))));
    }
}
