//! Progress of a model in tokens.

use std::sync::atomic::{AtomicU64, Ordering};

/// Planned and computed tokens over all work lists since the model was loaded. Readable from any thread.
#[derive(Debug, Default)]
pub struct TokenProgress {
    /// Requests that are tokenised or need no computation, and how many of these have tokens to compute.
    seen: AtomicU64,
    asked: AtomicU64,
    /// Tokens of these requests; shared tokens count once.
    planned: AtomicU64,
    computed: AtomicU64,
}

impl TokenProgress {
    /// Number of tokens computed.
    pub fn computed(&self) -> u64 {
        // Relaxed, because the counts are only for display and do not affect results.
        self.computed.load(Ordering::Relaxed)
    }

    /// Number of requests that are tokenised or need no computation.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Estimated number of tokens still to compute, if `unseen` more requests are similar to those seen.
    pub fn left(&self, unseen: u64) -> u64 {
        let (planned, asked) = (self.planned.load(Ordering::Relaxed), self.asked.load(Ordering::Relaxed));
        let unseen = unseen as f64 * planned as f64 / asked.max(1) as f64;
        planned.saturating_sub(self.computed()) + unseen as u64
    }

    /// Counts a request without computation.
    pub(crate) fn pass(&self) {
        self.seen.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds tokens to compute for requests that were not counted before.
    pub(crate) fn plan(&self, requests: usize, tokens: u64) {
        self.planned.fetch_add(tokens, Ordering::Relaxed);
        self.asked.fetch_add(requests as u64, Ordering::Relaxed);
        self.seen.fetch_add(requests as u64, Ordering::Relaxed);
    }

    /// Subtracts planned tokens that are not needed.
    pub(crate) fn skip(&self, tokens: u64) {
        // Never more than were planned for the same text.
        self.planned.fetch_sub(tokens, Ordering::Relaxed);
    }

    /// Counts computed tokens.
    pub(crate) fn advance(&self, tokens: usize) {
        self.computed.fetch_add(tokens as u64, Ordering::Relaxed);
    }
}
