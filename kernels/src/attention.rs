//! Attention of packed segments over cached spans of keys and values.
//!
//! A query's result depends on its own row and on the keys it sees in order of position; how these are cut into spans, and which other
//! segments are computed beside it, changes nothing. Grouped heads read their shared keys in place; only the scores of a few queries at a
//! time are held.

use std::ops::Range;

use rayon::prelude::*;

use crate::Isa;
use crate::isa::dispatch;
use crate::simd::{LANES, Simd};

/// The shape of an attention layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Length of a head.
    pub head_dim: usize,
    /// Factor of the scores, `head_dim^-½` as a rule.
    pub scale: f32,
    /// A query sees this many positions, its own included; all where absent.
    pub window: Option<usize>,
}

impl AttentionShape {
    fn padded_dim(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Elements of packed keys of `len` tokens.
    pub fn keys_len(&self, len: usize) -> usize {
        self.kv_heads * len.next_multiple_of(LANES) * self.head_dim
    }

    /// Elements of packed values of `len` tokens.
    pub fn values_len(&self, len: usize) -> usize {
        self.kv_heads * len * self.padded_dim()
    }
}

/// Keys and values of consecutive positions, packed by [`pack_keys`] and [`pack_values`].
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// `(kv_heads, blocks of 16 tokens, head_dim, 16)`.
    pub keys: &'a [f32],
    /// `(kv_heads, tokens, head_dim padded to 16)`.
    pub values: &'a [f32],
    /// Tokens.
    pub len: usize,
}

/// Consecutive query rows and what they see.
#[derive(Debug, Clone)]
pub struct Segment<'a> {
    /// From position 0 without gaps; the last positions are the segment's own, one per row.
    pub spans: Vec<Span<'a>>,
    /// How many query rows.
    pub rows: usize,
}

/// Packs rows of `(tokens, kv_heads, head_dim)` keys for [`attention`]: sixteen tokens side by side, so that a vector holds scores.
pub fn pack_keys(shape: &AttentionShape, keys: &[f32], rows: Range<usize>) -> Vec<f32> {
    let (heads, dim) = (shape.kv_heads, shape.head_dim);
    let mut packed = vec![0.0; shape.keys_len(rows.len())];
    let head_len = rows.len().next_multiple_of(LANES) * dim;
    for (token, row) in rows.enumerate() {
        for head in 0..heads {
            let key = &keys[(row * heads + head) * dim..][..dim];
            let block = &mut packed[head * head_len + token / LANES * LANES * dim..][..LANES * dim];
            for (value, to) in key.iter().zip(block.as_chunks_mut::<LANES>().0) {
                to[token % LANES] = *value;
            }
        }
    }
    packed
}

/// Packs rows of `(tokens, kv_heads, head_dim)` values for [`attention`]: head by head, each padded to whole vectors.
pub fn pack_values(shape: &AttentionShape, values: &[f32], rows: Range<usize>) -> Vec<f32> {
    let (heads, dim, padded) = (shape.kv_heads, shape.head_dim, shape.padded_dim());
    let mut packed = vec![0.0; shape.values_len(rows.len())];
    let head_len = rows.len() * padded;
    for (token, row) in rows.enumerate() {
        for head in 0..heads {
            let value = &values[(row * heads + head) * dim..][..dim];
            packed[head * head_len + token * padded..][..dim].copy_from_slice(value);
        }
    }
    packed
}

/// Joins consecutive spans into one: `(keys, values)`. A result over the whole has the bits of one over the parts.
pub fn join_spans(shape: &AttentionShape, spans: &[Span<'_>]) -> (Vec<f32>, Vec<f32>) {
    let (dim, padded) = (shape.head_dim, shape.padded_dim());
    let total: usize = spans.iter().map(|s| s.len).sum();
    let (mut keys, mut values) = (vec![0.0; shape.keys_len(total)], Vec::with_capacity(shape.values_len(total)));
    for head in 0..shape.kv_heads {
        let joined = &mut keys[head * total.next_multiple_of(LANES) * dim..][..total.next_multiple_of(LANES) * dim];
        let mut position = 0;
        for span in spans {
            let head_len = span.len.next_multiple_of(LANES) * dim;
            let head_keys = span.keys[head * head_len..][..head_len].as_chunks::<LANES>().0;
            for token in 0..span.len {
                let to = &mut joined.as_chunks_mut::<LANES>().0[position / LANES * dim..][..dim];
                for (to, from) in to.iter_mut().zip(&head_keys[token / LANES * dim..]) {
                    to[position % LANES] = from[token % LANES];
                }
                position += 1;
            }
            values.extend_from_slice(&span.values[head * span.len * padded..][..span.len * padded]);
        }
    }
    (keys, values)
}

/// Rows of a segment that one task computes.
const TASK_ROWS: usize = 16;
/// Queries whose scores are computed together, over the same keys.
const QUERIES: usize = 4;

/// Causal attention: `out` and `queries` are `(tokens, heads, head_dim)`, the segments' rows one after another.
///
/// Scores are `scale · Σ_d q_d k_d` over ascending `d`; weights their softmax; the result sums `weight · value` over ascending positions
/// and is divided by the sum of weights at the end.
pub fn attention(isa: Isa, shape: &AttentionShape, queries: &[f32], segments: &[Segment<'_>], out: &mut [f32]) {
    let width = shape.heads * shape.head_dim;
    assert!(shape.heads.is_multiple_of(shape.kv_heads), "query heads share key heads evenly");
    assert_eq!(queries.len(), out.len(), "a result per query");
    assert_eq!(segments.iter().map(|s| s.rows).sum::<usize>() * width, queries.len(), "segments cover all rows");
    let mut tasks = Vec::new();
    let (mut queries, mut out) = (queries, out);
    for segment in segments {
        let positions: usize = segment.spans.iter().map(|s| s.len).sum();
        assert!(segment.rows <= positions, "a segment sees its own rows");
        for span in &segment.spans {
            let fits = span.keys.len() == shape.keys_len(span.len) && span.values.len() == shape.values_len(span.len);
            assert!(fits, "spans are packed for this shape");
        }
        let mut done = 0;
        while done < segment.rows {
            let rows = TASK_ROWS.min(segment.rows - done);
            let (now, later) = queries.split_at(rows * width);
            let (to, rest) = out.split_at_mut(rows * width);
            tasks.push(Task { spans: &segment.spans, first: positions - segment.rows + done, queries: now, out: to });
            (queries, out, done) = (later, rest, done + rows);
        }
    }
    tasks.into_par_iter().for_each_init(Vec::new, |scores, mut task| {
        let (task, scores) = (&mut task, scores);
        dispatch!(isa, run_task(shape: &AttentionShape, task: &mut Task<'_, '_>, scores: &mut Vec<f32>));
    });
}

/// A few rows of one segment; `first` is the position of the first.
struct Task<'a, 'b> {
    spans: &'a [Span<'a>],
    first: usize,
    queries: &'a [f32],
    out: &'b mut [f32],
}

/// One head of one row.
#[derive(Clone, Copy)]
struct Query {
    /// Where it starts in the task's queries.
    at: usize,
    /// Positions it sees.
    start: usize,
    end: usize,
}

#[inline(always)]
fn run_task<S: Simd>(shape: &AttentionShape, task: &mut Task<'_, '_>, scores: &mut Vec<f32>) {
    let (dim, group) = (shape.head_dim, shape.heads / shape.kv_heads);
    let rows = task.queries.len() / (shape.heads * dim);
    // One vector more than the positions: the last block of a span is stored whole.
    let stride = task.first + rows + LANES;
    scores.resize(QUERIES * stride, 0.0);
    for kv_head in 0..shape.kv_heads {
        let query = |index: usize| {
            let (row, head) = (index / group, kv_head * group + index % group);
            let end = task.first + row + 1;
            let start = shape.window.map_or(0, |w| end.saturating_sub(w));
            Query { at: (row * shape.heads + head) * dim, start, end }
        };
        for first in (0..rows * group).step_by(QUERIES) {
            let count = QUERIES.min(rows * group - first);
            // A short tile repeats its last query, and computes it once more for nothing.
            let tile: [Query; QUERIES] = std::array::from_fn(|i| query(first + i.min(count - 1)));
            score_tile::<S>(shape, task, kv_head, &tile, scores, stride);
            for (query, scores) in tile[..count].iter().zip(scores.chunks_exact_mut(stride)) {
                let sum = softmax_weights::<S>(&mut scores[query.start..query.end], shape.scale);
                let out = &mut task.out[query.at..query.at + dim];
                weigh_values::<S>(shape, task.spans, kv_head, *query, scores, sum, out);
            }
        }
    }
}

/// Unscaled scores of a tile of queries against every block of keys that one of them sees.
#[inline(always)]
fn score_tile<S: Simd>(
    shape: &AttentionShape,
    task: &Task<'_, '_>,
    kv_head: usize,
    tile: &[Query; QUERIES],
    scores: &mut [f32],
    stride: usize,
) {
    let dim = shape.head_dim;
    let start = tile.iter().map(|q| q.start).min().unwrap_or(0);
    let end = tile.iter().map(|q| q.end).max().unwrap_or(0);
    let queries: [&[f32]; QUERIES] = tile.map(|q| &task.queries[q.at..q.at + dim]);
    let mut position = 0;
    for span in task.spans {
        let head_len = span.len.next_multiple_of(LANES) * dim;
        let keys = &span.keys[kv_head * head_len..][..head_len];
        for (index, block) in keys.chunks_exact(LANES * dim).enumerate() {
            let at = position + index * LANES;
            if at + LANES <= start || at >= end {
                continue;
            }
            let mut sums = [S::splat(0.0); QUERIES];
            for (d, keys) in block.as_chunks::<LANES>().0.iter().enumerate() {
                let keys = S::load(keys);
                for q in 0..QUERIES {
                    sums[q] = S::fma(S::splat(queries[q][d]), keys, sums[q]);
                }
            }
            for (sum, scores) in sums.iter().zip(scores.chunks_exact_mut(stride)) {
                if let Some(scores) = scores[at..].first_chunk_mut() {
                    S::store(*sum, scores);
                }
            }
        }
        position += span.len;
    }
}

/// Replaces scores by `exp(scale · (score − max))` and returns their sum, lane by lane.
#[inline(always)]
fn softmax_weights<S: Simd>(scores: &mut [f32], scale: f32) -> f32 {
    let scale = S::splat(scale);
    let (whole, rest) = scores.as_chunks_mut::<LANES>();
    let mut last = [f32::NEG_INFINITY; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let mut max = S::load(&last);
    for scores in whole.iter() {
        max = S::max(S::load(scores), max);
    }
    let max = S::splat(S::reduce_max(max));
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
    S::sum(sum)
}

/// `out = Σ weight · value / sum` over the query's positions.
#[inline(always)]
fn weigh_values<S: Simd>(
    shape: &AttentionShape,
    spans: &[Span<'_>],
    kv_head: usize,
    query: Query,
    weights: &[f32],
    sum: f32,
    out: &mut [f32],
) {
    let padded = shape.padded_dim();
    for (piece, out) in out.chunks_mut(4 * LANES).enumerate() {
        let mut sums = [S::splat(0.0); 4];
        let mut position = 0;
        for span in spans {
            let (from, to) = (query.start.max(position), query.end.min(position + span.len));
            if from < to {
                let head = &span.values[kv_head * span.len * padded..][..span.len * padded];
                let values = head[(from - position) * padded..(to - position) * padded].chunks_exact(padded);
                let values = values.map(|row| &row[piece * 4 * LANES..]);
                match out.len().div_ceil(LANES) {
                    4 => add_weighted::<S, 4>(values, &weights[from..to], &mut sums),
                    3 => add_weighted::<S, 3>(values, &weights[from..to], &mut sums),
                    2 => add_weighted::<S, 2>(values, &weights[from..to], &mut sums),
                    _ => add_weighted::<S, 1>(values, &weights[from..to], &mut sums),
                }
            }
            position += span.len;
        }
        for (sums, out) in sums.iter().zip(out.chunks_mut(LANES)) {
            let result = S::lanes(S::div(*sums, S::splat(sum)));
            out.copy_from_slice(&result[..out.len()]);
        }
    }
}

#[inline(always)]
fn add_weighted<'a, S: Simd, const N: usize>(values: impl Iterator<Item = &'a [f32]>, weights: &[f32], sums: &mut [S::F; 4]) {
    let mut local: [S::F; N] = std::array::from_fn(|i| sums[i]);
    for (value, weight) in values.zip(weights) {
        let weight = S::splat(*weight);
        for (sum, value) in local.iter_mut().zip(value.as_chunks::<LANES>().0) {
            *sum = S::fma(weight, S::load(value), *sum);
        }
    }
    sums[..N].copy_from_slice(&local);
}
