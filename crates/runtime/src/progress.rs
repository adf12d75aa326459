//! How far a model is, in tokens.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a model has to compute and what it has computed, over all work lists since it was loaded. Read from any thread.
#[derive(Debug, Default)]
pub struct TokenProgress {
    /// Requests whose tokens are known or that need none, and how many of these have tokens to compute.
    seen: AtomicU64,
    asked: AtomicU64,
    /// Tokens of these, shared ones counted once.
    planned: AtomicU64,
    computed: AtomicU64,
}

impl TokenProgress {
    /// Tokens that went through the model.
    pub fn computed(&self) -> u64 {
        // No order between these counts is kept: they are for whoever waits, and no result rests on them.
        self.computed.load(Ordering::Relaxed)
    }

    /// Requests whose tokens are known, or that need none.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Tokens that are still to be computed where so many requests are to come that the model has not seen, if they are
    /// like the others.
    pub fn left(&self, unseen: u64) -> u64 {
        let (planned, asked) = (self.planned.load(Ordering::Relaxed), self.asked.load(Ordering::Relaxed));
        let unseen = unseen as f64 * planned as f64 / asked.max(1) as f64;
        planned.saturating_sub(self.computed()) + unseen as u64
    }

    /// A request needs no computing.
    pub(crate) fn pass(&self) {
        self.seen.fetch_add(1, Ordering::Relaxed);
    }

    /// So many tokens are to be computed for so many requests that were not counted before.
    pub(crate) fn plan(&self, requests: usize, tokens: u64) {
        self.planned.fetch_add(tokens, Ordering::Relaxed);
        self.asked.fetch_add(requests as u64, Ordering::Relaxed);
        self.seen.fetch_add(requests as u64, Ordering::Relaxed);
    }

    /// So many of them are not, after all.
    pub(crate) fn skip(&self, tokens: u64) {
        // Never more than were planned for the same text.
        self.planned.fetch_sub(tokens, Ordering::Relaxed);
    }

    /// So many tokens were computed.
    pub(crate) fn advance(&self, tokens: usize) {
        self.computed.fetch_add(tokens as u64, Ordering::Relaxed);
    }
}
