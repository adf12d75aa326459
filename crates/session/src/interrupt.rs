//! Interruption by the user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a run at its next finished result. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// The user interrupted the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("interrupted")]
pub struct Interrupted;

impl Interrupt {
    /// Requests the stop; returns whether it was requested before.
    pub fn raise(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    /// An error after [`raise`](Self::raise).
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::SeqCst) { Err(Interrupted) } else { Ok(()) }
    }
}

/// Whether an interruption caused the error.
pub fn was_interrupted(error: &(dyn std::error::Error + 'static)) -> bool {
    crate::causes(error).any(<dyn std::error::Error>::is::<Interrupted>)
}
