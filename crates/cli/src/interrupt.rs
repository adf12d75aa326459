//! Ctrl-C, and the signals by which systems end a program: the first ends the run at the next finished result, the second at once.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::progress::{ProgressArg, emit};
use crate::terminal::tell;

static ASKED: AtomicBool = AtomicBool::new(false);

/// The user asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Catches Ctrl-C, SIGTERM and SIGHUP from here on. Where that cannot be had, Ctrl-C ends the process as it always does: finished rows are in the files anyway.
pub(crate) fn catch(progress: ProgressArg) {
    let _ = ctrlc::try_set_handler(move || {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        let text = "stopping after what is being computed (press Ctrl-C again to stop at once)";
        match progress {
            ProgressArg::Json => emit(&json!({"event": "message", "text": text})),
            _ => tell(&format!("\n{text}")),
        }
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
