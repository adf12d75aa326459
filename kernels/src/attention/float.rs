//! Attention in f32.

use std::ops::Range;

use super::{AttentionQuery, AttentionScratch, AttentionTask, HeadOutputs, HeadTokens, seen};
use crate::ProductForm;
use crate::simd::{LANES, Simd};

/// Packs a head: keys in blocks of sixteen tokens side by side, so that a vector holds scores, and each token's values
/// padded to whole vectors.
pub(super) fn pack_head(tokens: &HeadTokens<'_>, to_keys: &mut [f32], to_values: &mut [f32]) {
    let dim = tokens.shape.head_dim;
    for (token, to) in to_values.chunks_exact_mut(tokens.shape.padded_dim()).enumerate() {
        let (key, value) = tokens.token(token);
        let block = &mut to_keys[token / LANES * LANES * dim..][..LANES * dim];
        for (value, to) in key.iter().zip(block.as_chunks_mut::<LANES>().0) {
            to[token % LANES] = *value;
        }
        to[..dim].copy_from_slice(value);
    }
}

/// Maximum number of queries that are computed together over the same keys and values: the most rows of a register
/// tile.
const QUERIES: usize = 12;

#[inline(always)]
pub(super) fn run_task<S: Simd>(task: &AttentionTask<'_>, scratch: &mut AttentionScratch, out: &HeadOutputs<'_>) {
    // Two vectors more than the positions, because the last blocks of a span are stored whole.
    let stride = (task.segment.positions() + 2 * LANES).next_multiple_of(LANES);
    scratch.scores.set_len(QUERIES * stride);
    scratch.queries.set_len(QUERIES * task.shape.head_dim);
    let count = task.count();
    let mut first = 0;
    while first < count {
        let tile = FloatTile { task, first, stride };
        // The conditions are known at compile time: no code is generated for tiles that exceed the registers.
        first += match S::ROWS[ProductForm::Float as usize].min(count - first) {
            QUERIES.. if S::ROWS[ProductForm::Float as usize] >= QUERIES => tile.run::<S, QUERIES>(scratch, out),
            8.. if S::ROWS[ProductForm::Float as usize] >= 8 => tile.run::<S, 8>(scratch, out),
            4.. if S::ROWS[ProductForm::Float as usize] >= 4 => tile.run::<S, 4>(scratch, out),
            3 => tile.run::<S, 3>(scratch, out),
            2 => tile.run::<S, 2>(scratch, out),
            _ => tile.run::<S, 1>(scratch, out),
        };
    }
}

/// A few queries of a task, from `first`.
struct FloatTile<'a> {
    task: &'a AttentionTask<'a>,
    first: usize,
    stride: usize,
}

impl FloatTile<'_> {
    /// Computes `Q` queries and returns `Q`.
    #[inline(always)]
    fn run<S: Simd, const Q: usize>(&self, scratch: &mut AttentionScratch, out: &HeadOutputs<'_>) -> usize {
        let scores: &mut [f32] = bytemuck::cast_slice_mut(&mut scratch.scores);
        let mut queries = [AttentionQuery::default(); Q];
        for (index, query) in queries.iter_mut().enumerate() {
            *query = self.task.query(self.first + index);
        }
        let dim = self.task.shape.head_dim;
        let floats: &mut [f32] = bytemuck::cast_slice_mut(&mut scratch.queries);
        let side_by_side = floats[..Q * dim].as_chunks_mut::<Q>().0;
        for (index, query) in queries.iter().enumerate() {
            for (to, x) in side_by_side.iter_mut().zip(&self.task.queries[query.at..query.at + dim]) {
                to[index] = *x;
            }
        }
        self.scores::<S, Q>(&queries, side_by_side, scores);
        let mut sums = [0.0; Q];
        for ((query, sum), scores) in queries.iter().zip(&mut sums).zip(scores.chunks_exact_mut(self.stride)) {
            let scores = &mut scores[query.start..query.end];
            let scale = self.task.settle::<S>(query, scores);
            let (max, weights) = softmax_weights::<S>(scores, scale);
            *sum = self.task.with_sink::<S>(query, (max, scale), weights);
        }
        for vector in (0..self.task.shape.head_dim).step_by(2 * LANES) {
            self.weigh::<S, Q>(&queries, scores, sums, vector, out);
        }
        Q
    }

    /// Unscaled scores against every block of keys that at least one of the queries sees.
    #[inline(always)]
    fn scores<S: Simd, const Q: usize>(
        &self,
        queries: &[AttentionQuery; Q],
        side_by_side: &[[f32; Q]],
        scores: &mut [f32],
    ) {
        let dim = self.task.shape.head_dim;
        let seen = seen(queries);
        let mut position = 0;
        for span in &self.task.segment.spans {
            let keys: &[f32] = bytemuck::cast_slice(span.head_keys(self.task.shape, self.task.kv_head));
            // Two blocks at a time.
            for (index, blocks) in keys.chunks(2 * LANES * dim).enumerate() {
                let at = position + index * 2 * LANES;
                // Blocks are computed completely: a query's weights only use its own positions.
                if at + 2 * LANES <= seen.start || at >= seen.end {
                    continue;
                }
                match blocks.as_chunks::<LANES>().0.split_at(dim) {
                    (block, []) => self.block_scores::<S, Q, 1>([block], side_by_side, &mut scores[at..]),
                    (first, second) => self.block_scores::<S, Q, 2>([first, second], side_by_side, &mut scores[at..]),
                }
            }
            position += span.len;
        }
    }

    /// Unscaled scores against some blocks of keys, `dim` vectors each.
    #[inline(always)]
    fn block_scores<S: Simd, const Q: usize, const B: usize>(
        &self,
        blocks: [&[[f32; LANES]]; B],
        side_by_side: &[[f32; Q]],
        scores: &mut [f32],
    ) {
        let blocks = blocks.map(|block| &block[..side_by_side.len()]);
        let mut sums = [[S::splat(0.0); B]; Q];
        for (d, x) in side_by_side.iter().enumerate() {
            let mut keys = [S::splat(0.0); B];
            for b in 0..B {
                keys[b] = S::load(&blocks[b][d]);
            }
            for q in 0..Q {
                let x = S::splat(x[q]);
                for b in 0..B {
                    sums[q][b] = S::fma(x, keys[b], sums[q][b]);
                }
            }
        }
        for (sums, scores) in sums.iter().zip(scores.chunks_mut(self.stride)) {
            for (sum, scores) in sums.iter().zip(scores.as_chunks_mut().0) {
                S::store(*sum, scores);
            }
        }
    }

    /// `Σ weight · value / sum` over each query's positions, for two vectors of a head.
    #[inline(always)]
    fn weigh<S: Simd, const Q: usize>(
        &self,
        queries: &[AttentionQuery; Q],
        scores: &[f32],
        sums: [f32; Q],
        vector: usize,
        out: &HeadOutputs<'_>,
    ) {
        // Positions that all queries see are summed together, earlier and later ones per query. Each query has one
        // ascending chain, independent of the other queries in the tile.
        let from = queries.iter().fold(0, |most, q| most.max(q.start));
        let to = queries.iter().fold(usize::MAX, |least, q| least.min(q.end)).max(from);
        let mut y = [[S::splat(0.0); 2]; Q];
        let mut weights = [&scores[..0]; Q];
        for q in 0..Q {
            weights[q] = &scores[q * self.stride..][..self.stride];
        }
        for q in 0..Q {
            if queries[q].start < from {
                let before = queries[q].start..queries[q].end.min(from);
                self.add_weighted::<S, 1>(before, [weights[q]], vector, (&mut y[q..=q]).try_into().expect("one"));
            }
        }
        self.add_weighted::<S, Q>(from..to, weights, vector, &mut y);
        for q in 0..Q {
            if queries[q].end > to {
                let behind = queries[q].start.max(to)..queries[q].end;
                self.add_weighted::<S, 1>(behind, [weights[q]], vector, (&mut y[q..=q]).try_into().expect("one"));
            }
            let len = (self.task.shape.head_dim - vector).min(2 * LANES);
            // SAFETY: no other task has this row and head.
            let out = unsafe { out.head(queries[q].at + vector, len) };
            let (whole, rest) = out.as_chunks_mut::<LANES>();
            let sum = S::splat(sums[q]);
            for (out, y) in whole.iter_mut().zip(y[q]) {
                S::store(S::div(y, sum), out);
            }
            if !rest.is_empty() {
                rest.copy_from_slice(&S::lanes(S::div(y[q][whole.len()], sum))[..rest.len()]);
            }
        }
    }

    /// Adds the values of some positions, ascending.
    #[inline(always)]
    fn add_weighted<S: Simd, const Q: usize>(
        &self,
        positions: Range<usize>,
        weights: [&[f32]; Q],
        vector: usize,
        y: &mut [[S::F; 2]; Q],
    ) {
        let padded = self.task.shape.padded_dim();
        let mut position = 0;
        for span in &self.task.segment.spans {
            let (from, to) = (positions.start.max(position), positions.end.min(position + span.len));
            if from < to {
                let head: &[f32] = bytemuck::cast_slice(span.head_values(self.task.shape, self.task.kv_head));
                let values = head[(from - position) * padded..(to - position) * padded].chunks_exact(padded);
                let mut local = *y;
                if padded - vector >= 2 * LANES {
                    for (at, value) in (from..to).zip(values) {
                        let value = value[vector..].as_chunks::<LANES>().0;
                        let (a, b) = (S::load(&value[0]), S::load(&value[1]));
                        for q in 0..Q {
                            let weight = S::splat(weights[q][at]);
                            local[q][0] = S::fma(weight, a, local[q][0]);
                            local[q][1] = S::fma(weight, b, local[q][1]);
                        }
                    }
                } else {
                    for (at, value) in (from..to).zip(values) {
                        let a = S::load(&value[vector..].as_chunks::<LANES>().0[0]);
                        for q in 0..Q {
                            local[q][0] = S::fma(S::splat(weights[q][at]), a, local[q][0]);
                        }
                    }
                }
                *y = local;
            }
            position += span.len;
        }
    }
}

/// Replaces scores by `exp(scale · (score − max))`. Returns the maximum, and the sum of the results, lane by lane.
#[inline(always)]
fn softmax_weights<S: Simd>(scores: &mut [f32], scale: f32) -> (f32, f32) {
    let scale = S::splat(scale);
    let (whole, rest) = scores.as_chunks_mut::<LANES>();
    let mut last = [f32::NEG_INFINITY; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let mut max = S::load(&last);
    for scores in whole.iter() {
        max = S::max(S::load(scores), max);
    }
    // The maximum is subtracted before scaling, so that its weight is exactly one for any scale.
    let most = S::reduce_max(max);
    let max = S::splat(most);
    let mut sum = S::splat(0.0);
    for scores in whole.iter_mut() {
        let weights = S::exp(S::mul(S::sub(S::load(scores), max), scale));
        S::store(weights, scores);
        sum = S::add(sum, weights);
    }
    if !rest.is_empty() {
        let mut weights = S::lanes(S::exp(S::mul(S::sub(S::load(&last), max), scale)));
        weights[rest.len()..].fill(0.0);
        rest.copy_from_slice(&weights[..rest.len()]);
        sum = S::add(sum, S::load(&weights));
    }
    (most, S::sum(sum))
}
