//! That whoever asked for something wants it to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A token by which a run is asked to end at its next finished result. Clones are the same token.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// The user asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("interrupted")]
pub struct Interrupted;

impl Interrupt {
    /// Asks; whether that was asked before.
    pub fn raise(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    /// An error once it was asked.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::SeqCst) { Err(Interrupted) } else { Ok(()) }
    }
}

/// Whether that is why something ended.
pub fn was_interrupted(error: &(dyn std::error::Error + 'static)) -> bool {
    crate::causes(error).any(<dyn std::error::Error>::is::<Interrupted>)
}
