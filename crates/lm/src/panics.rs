//! Turns panics of libraries on damaged or malicious files into errors, without printing them.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is expected and reported as an error.
    // Per thread, because the hook is global: an unexpected panic in another thread must still be printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` and returns its result, or `None` if it panics. State that it modified must not be reused.
pub fn quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    // Installed once and never removed: two threads that swap hooks could restore each other's.
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    // Restores the previous value rather than `false`, because guarded code can be nested.
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
