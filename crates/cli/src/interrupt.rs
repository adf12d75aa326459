//! Ctrl-C: the first ends the run at the next finished result, the second at once.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// The user asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Catches Ctrl-C from here on. Where that cannot be had, Ctrl-C ends the process as it always does: finished rows are in the files anyway.
pub(crate) fn catch() {
    let _ = ctrlc::try_set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("\nstopping after what is being computed (press Ctrl-C again to stop at once)");
    });
}

/// An error once the user has asked.
pub(crate) fn check() -> Result<(), Interrupted> {
    if ASKED.load(Ordering::SeqCst) { Err(Interrupted) } else { Ok(()) }
}

/// Whether that is why a command ended.
pub(crate) fn was_interrupted(error: &anyhow::Error) -> bool {
    error.chain().any(<dyn std::error::Error>::is::<Interrupted>)
}
