//! Log-probabilities of tokens, for both wire formats.

use probity_lm::Finish;

use super::text::{RequestedLogprobs, WrittenText};
use crate::served::ServedModel;

/// Stands for minus infinity, which JSON cannot represent.
const IMPOSSIBLE: f64 = -9999.0;

pub(super) fn finite(logprob: f64) -> f64 {
    logprob.max(IMPOSSIBLE)
}

pub(super) fn bytes(model: &dyn ServedModel, id: u32) -> Vec<u8> {
    model.token_bytes(id).unwrap_or_else(|| model.token_text(id).into_bytes())
}

impl RequestedLogprobs<'_> {
    /// Number of tokens to report: all, or those that begin before the stop sequence that ended the text.
    pub(super) fn reported(&self) -> usize {
        let WrittenText { text, tokens, finish, .. } = self.written;
        let ids = tokens.as_ref().map_or(&[][..], |tokens| &tokens.continuation.token_ids);
        if *finish != Finish::Stop {
            return ids.len();
        }
        let mut begin = 0;
        ids.iter()
            .take_while(|id| {
                let is_before = begin < text.len();
                begin += self.model.token_bytes(**id).map_or(0, |bytes| bytes.len());
                is_before
            })
            .count()
    }
}
