//! Scores tokens after a text that was just generated, reusing its keys and values.

use std::sync::Arc;

use probity_models::{HeadRow, KvSpan, PackedDecoder, PackedSegment};

use super::rows::likeliest;
use super::token_scores::{QueryAnswer, TokenQuery, TokenScore};
use crate::TokenProgress;

/// Number of queries per pass.
const TOGETHER: usize = 32;

/// Tokens of the prompt and the text, and their cached keys and values.
pub(crate) struct BehindText<'g> {
    pub(super) model: &'g dyn PackedDecoder,
    pub(super) tokens: &'g [u32],
    /// Cached spans of the first tokens; the last tokens may be missing.
    pub(super) path: &'g [Arc<KvSpan>],
    pub(super) progress: &'g TokenProgress,
    /// Number of tokens computed.
    pub(super) computed: u64,
}

impl BehindText<'_> {
    /// Answers queries that start with the text's tokens, bit-identical to
    /// [`score_tokens`](super::token_scores::score_tokens). The shared tokens are not recomputed.
    pub(crate) fn score(&mut self, queries: &[TokenQuery]) -> candle_core::Result<Vec<QueryAnswer>> {
        let shared = |query: &TokenQuery| {
            let alike = query.seen.iter().zip(self.tokens).take_while(|(a, b)| a == b).count();
            // A scored row is always computed, because its hidden state is not cached.
            alike.min(query.first_row())
        };
        // One path for all queries, so that they run in one pass.
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

    /// Cached spans of the first `len` tokens, or of as many as are cached.
    fn path_of(&self, len: usize) -> candle_core::Result<Vec<Arc<KvSpan>>> {
        let (mut path, mut left) = (Vec::new(), len);
        for span in self.path {
            if span.len() > left {
                if left > 0 {
                    // A span that diverges is cut at the last common token.
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
