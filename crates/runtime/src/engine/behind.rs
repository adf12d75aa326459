//! Questions about what follows a text that was generated just now, over the keys and values that are still there.

use std::sync::Arc;

use probity_models::{HeadRow, KvSpan, PackedDecoder, PackedSegment};

use super::rows::likeliest;
use super::token_scores::{QueryAnswer, TokenQuery, TokenScore};
use crate::TokenProgress;

/// Queries that run together.
const TOGETHER: usize = 32;

/// A text's tokens, the prompt's before them, and what is held of them.
pub(crate) struct BehindText<'g> {
    pub(super) model: &'g dyn PackedDecoder,
    pub(super) tokens: &'g [u32],
    /// Of the first tokens; the last ones may have none.
    pub(super) path: &'g [Arc<KvSpan>],
    pub(super) progress: &'g TokenProgress,
    /// Tokens that were computed.
    pub(super) computed: u64,
}

impl BehindText<'_> {
    /// Answers queries whose tokens begin as the text's do, with the bits of
    /// [`score_tokens`](super::token_scores::score_tokens). What they share with the text is not computed again.
    pub(crate) fn score(&mut self, queries: &[TokenQuery]) -> candle_core::Result<Vec<QueryAnswer>> {
        let shared = |query: &TokenQuery| {
            let alike = query.seen.iter().zip(self.tokens).take_while(|(a, b)| a == b).count();
            // A row that is asked about is computed whatever is held: keys and values say nothing of its hidden state.
            alike.min(query.first_row())
        };
        // One path for all queries, so that they can run in one pass.
        let path = self.path_of(queries.iter().map(shared).min().unwrap_or(0))?;
        let held: usize = path.iter().map(|span| span.len()).sum();
        let mut answers = Vec::with_capacity(queries.len());
        for part in queries.chunks(TOGETHER) {
            let segment = |query: &TokenQuery| {
                let tokens = query.seen[held..].to_vec();
                PackedSegment { past: path.clone(), wanted: (query.first_row() - held..tokens.len()).collect(), tokens }
            };
            let segments: Vec<PackedSegment> = part.iter().map(segment).collect();
            let tokens: u64 = segments.iter().map(|segment| segment.tokens.len() as u64).sum();
            self.computed += tokens;
            self.progress.plan(0, tokens);
            let hidden = self.model.forward(&segments)?.hidden;
            let asked: Vec<Vec<u32>> =
                part.iter().flat_map(|query| query.asked.iter().map(|token| vec![*token])).collect();
            let counts: Vec<usize> =
                part.iter().flat_map(|query| vec![query.alternatives; query.asked.len()]).collect();
            let rows = self.model.head(&hidden, &asked)?;
            let mut likely = likeliest(self.model, &hidden, &rows, &counts)?.into_iter();
            let mut rows = rows.into_iter().zip(&asked);
            for query in part {
                let count = query.asked.len();
                let score = |(row, token): (HeadRow, &Vec<u32>)| TokenScore::new(&row, token[0], row.logits[0]);
                let alternatives = likely.by_ref().take(count);
                let alternatives = if query.alternatives > 0 {
                    alternatives.collect()
                } else {
                    alternatives.for_each(drop);
                    Vec::new()
                };
                let scores = rows.by_ref().take(count).map(score).collect();
                answers.push(QueryAnswer { scores, states: Vec::new(), alternatives });
            }
        }
        Ok(answers)
    }

    /// What is held of the first `len` tokens, or of as many as there is something of.
    fn path_of(&self, len: usize) -> candle_core::Result<Vec<Arc<KvSpan>>> {
        let (mut path, mut left) = (Vec::new(), len);
        for span in self.path {
            if span.len() > left {
                if left > 0 {
                    // A span that goes on with other tokens is used for as far as it is the same.
                    path.push(self.model.join(std::slice::from_ref(span), left)?);
                }
                break;
            }
            left -= span.len();
            path.push(span.clone());
        }
        Ok(path)
    }
}
