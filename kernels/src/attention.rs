//! Attention of packed segments over cached spans of keys and values.
//!
//! A query's result depends on its own row and on the keys it sees in order of position; how these are cut into spans, and which other
//! segments are computed beside it, changes nothing. Grouped heads read their shared keys in place; only the scores of a few queries at a
//! time are held.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

use crate::Isa;
use crate::buffer::Buffer;
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

/// Query rows and what they see.
#[derive(Debug, Clone)]
pub struct Segment<'a> {
    /// From position 0 without gaps.
    pub spans: Vec<Span<'a>>,
    /// For each query row, the positions up to and including its own.
    pub ends: Range<usize>,
    /// Which of these rows are asked for, ascending; all where absent.
    pub wanted: Option<&'a [usize]>,
}

/// Packs rows of `(tokens, kv_heads, head_dim)` keys for [`attention`]: sixteen tokens side by side, so that a vector holds scores. `packed`
/// is [`keys_len`](AttentionShape::keys_len) long; what pads the last sixteen stays as it is, and should be finite.
pub fn pack_keys(shape: &AttentionShape, keys: &[f32], rows: Range<usize>, packed: &mut [f32]) {
    let (heads, dim) = (shape.kv_heads, shape.head_dim);
    assert_eq!(packed.len(), shape.keys_len(rows.len()), "packed keys");
    let head_len = rows.len().next_multiple_of(LANES) * dim;
    packed.par_chunks_exact_mut(head_len).with_min_len(heads_of_a_task(shape, rows.len())).enumerate().for_each(|(head, packed)| {
        for (token, row) in rows.clone().enumerate() {
            let key = &keys[(row * heads + head) * dim..][..dim];
            let block = &mut packed[token / LANES * LANES * dim..][..LANES * dim];
            for (value, to) in key.iter().zip(block.as_chunks_mut::<LANES>().0) {
                to[token % LANES] = *value;
            }
        }
    });
}

/// Heads that one task packs.
fn heads_of_a_task(shape: &AttentionShape, tokens: usize) -> usize {
    if tokens < 64 { shape.kv_heads } else { 1 }
}

/// Packs rows of `(tokens, kv_heads, head_dim)` values for [`attention`]: head by head, each padded to whole vectors. `packed` is
/// [`values_len`](AttentionShape::values_len) long; padding stays as it is, and should be finite.
pub fn pack_values(shape: &AttentionShape, values: &[f32], rows: Range<usize>, packed: &mut [f32]) {
    let (heads, dim, padded) = (shape.kv_heads, shape.head_dim, shape.padded_dim());
    assert_eq!(packed.len(), shape.values_len(rows.len()), "packed values");
    let head_len = rows.len() * padded;
    packed.par_chunks_exact_mut(head_len).with_min_len(heads_of_a_task(shape, rows.len())).enumerate().for_each(|(head, packed)| {
        for (row, to) in rows.clone().zip(packed.chunks_exact_mut(padded)) {
            to[..dim].copy_from_slice(&values[(row * heads + head) * dim..][..dim]);
        }
    });
}

/// Joins consecutive spans into one, `keys` and `values` of its length and finite. A result over the whole has the bits of one over the
/// parts.
pub fn join_spans(shape: &AttentionShape, spans: &[Span<'_>], keys: &mut [f32], values: &mut [f32]) {
    let (dim, padded) = (shape.head_dim, shape.padded_dim());
    let total: usize = spans.iter().map(|s| s.len).sum();
    assert!(keys.len() == shape.keys_len(total) && values.len() == shape.values_len(total), "room for the whole");
    for head in 0..shape.kv_heads {
        let joined = &mut keys[head * total.next_multiple_of(LANES) * dim..][..total.next_multiple_of(LANES) * dim];
        let mut position = 0;
        for span in spans {
            let head_len = span.len.next_multiple_of(LANES) * dim;
            let head_keys = span.keys[head * head_len..][..head_len].as_chunks::<LANES>().0;
            let from = &span.values[head * span.len * padded..][..span.len * padded];
            values[(head * total + position) * padded..][..from.len()].copy_from_slice(from);
            for token in 0..span.len {
                let to = &mut joined.as_chunks_mut::<LANES>().0[position / LANES * dim..][..dim];
                for (to, from) in to.iter_mut().zip(&head_keys[token / LANES * dim..]) {
                    to[position % LANES] = from[token % LANES];
                }
                position += 1;
            }
        }
    }
}

/// Rows of a segment that one task computes, for one key head.
const TASK_ROWS: usize = 16;
/// Queries that are computed together, over the same keys and values.
const QUERIES: usize = 12;

/// Causal attention: `out` and `queries` are `(rows, heads, head_dim)`, the segments' wanted rows one after another.
///
/// Scores are `scale · Σ_d q_d k_d` over ascending `d`; weights their softmax; the result sums `weight · value` over ascending positions
/// and is divided by the sum of weights at the end.
pub fn attention(isa: Isa, shape: &AttentionShape, queries: &[f32], segments: &[Segment<'_>], out: &mut [f32]) {
    let width = shape.heads * shape.head_dim;
    assert!(shape.heads.is_multiple_of(shape.kv_heads), "query heads share key heads evenly");
    assert_eq!(queries.len(), out.len(), "a result per query");
    let mut tasks = Vec::new();
    let mut row = 0;
    for segment in segments {
        let positions: usize = segment.spans.iter().map(|s| s.len).sum();
        assert!(segment.ends.start > 0 && segment.ends.end <= positions + 1, "a row sees positions that are there");
        for span in &segment.spans {
            let fits = span.keys.len() == shape.keys_len(span.len) && span.values.len() == shape.values_len(span.len);
            assert!(fits, "spans are packed for this shape");
        }
        let rows = segment.wanted.map_or(segment.ends.len(), <[usize]>::len);
        for first in (0..rows).step_by(TASK_ROWS) {
            let rows = first..rows.min(first + TASK_ROWS);
            tasks.extend((0..shape.kv_heads).map(|kv_head| Task { segment, first_row: row, rows: rows.clone(), kv_head }));
        }
        row += rows;
    }
    assert_eq!(row * width, queries.len(), "segments cover all rows");
    let out = &Results { start: out.as_mut_ptr(), len: out.len(), _out: PhantomData };
    tasks.into_par_iter().for_each(|task| {
        let task = &task;
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: tasks have different rows or different heads.
            dispatch!(isa, run_task(shape: &AttentionShape, queries: &[f32], task: &Task<'_, '_>, scratch: &mut Scratch, out: &Results<'_>));
        });
    });
}

/// A thread's memory, kept from task to task.
#[derive(Default)]
struct Scratch {
    /// A few queries, `(head_dim, query)`.
    queries: Buffer<f32>,
    /// Their scores, `(query, position)`.
    scores: Buffer<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A few rows of one segment, for the query heads of one key head.
struct Task<'a, 'b> {
    segment: &'b Segment<'a>,
    /// Where the segment's rows begin among all.
    first_row: usize,
    /// Among the segment's wanted rows.
    rows: Range<usize>,
    kv_head: usize,
}

/// The output, shared by tasks that each write heads of their own.
struct Results<'a> {
    start: *mut f32,
    len: usize,
    _out: PhantomData<&'a mut [f32]>,
}

// SAFETY: tasks reach the output only through `head`, each for heads of its own.
unsafe impl Sync for Results<'_> {}

impl Results<'_> {
    /// `len` elements from `at`.
    ///
    /// # Safety
    /// No two tasks may ask for the same elements.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "tasks have elements of their own, by contract")]
    unsafe fn head(&self, at: usize, len: usize) -> &mut [f32] {
        assert!(at + len <= self.len, "inside the output");
        // SAFETY: inside the output, and by contract nobody else uses these elements.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}

/// One head of one row.
#[derive(Clone, Copy)]
struct Query {
    /// Where it starts among all queries.
    at: usize,
    /// Positions it sees.
    start: usize,
    end: usize,
}

#[inline(always)]
fn run_task<S: Simd>(shape: &AttentionShape, queries: &[f32], task: &Task<'_, '_>, scratch: &mut Scratch, out: &Results<'_>) {
    let (group, positions) = (shape.heads / shape.kv_heads, task.segment.spans.iter().map(|s| s.len).sum::<usize>());
    // Two vectors more than the positions: the last blocks of a span are stored whole.
    let stride = (positions + 2 * LANES).next_multiple_of(LANES);
    scratch.scores.set_len(QUERIES * stride);
    scratch.queries.set_len(QUERIES * shape.head_dim);
    let count = task.rows.len() * group;
    let mut first = 0;
    while first < count {
        let tile = Tile { shape, queries, task, first, group, stride };
        first += match count - first {
            12.. => tile.run::<S, 12>(scratch, out),
            8.. => tile.run::<S, 8>(scratch, out),
            4.. => tile.run::<S, 4>(scratch, out),
            2.. => tile.run::<S, 2>(scratch, out),
            _ => tile.run::<S, 1>(scratch, out),
        };
    }
}

/// A few queries from `first` of a task.
struct Tile<'a> {
    shape: &'a AttentionShape,
    queries: &'a [f32],
    task: &'a Task<'a, 'a>,
    first: usize,
    group: usize,
    stride: usize,
}

impl Tile<'_> {
    #[inline(always)]
    fn query(&self, index: usize) -> Query {
        let (shape, task) = (self.shape, self.task);
        let (row, head) = (task.rows.start + index / self.group, task.kv_head * self.group + index % self.group);
        let end = task.segment.ends.start + task.segment.wanted.map_or(row, |wanted| wanted[row]);
        let start = shape.window.map_or(0, |w| end.saturating_sub(w));
        Query { at: ((task.first_row + row) * shape.heads + head) * shape.head_dim, start, end }
    }

    /// Computes `Q` queries; returns how many.
    #[inline(always)]
    fn run<S: Simd, const Q: usize>(&self, scratch: &mut Scratch, out: &Results<'_>) -> usize {
        let scores = &mut *scratch.scores;
        let mut queries = [Query { at: 0, start: 0, end: 0 }; Q];
        for (index, query) in queries.iter_mut().enumerate() {
            *query = self.query(self.first + index);
        }
        let dim = self.shape.head_dim;
        let side_by_side = scratch.queries[..Q * dim].as_chunks_mut::<Q>().0;
        for (index, query) in queries.iter().enumerate() {
            for (to, x) in side_by_side.iter_mut().zip(&self.queries[query.at..query.at + dim]) {
                to[index] = *x;
            }
        }
        self.scores::<S, Q>(&queries, side_by_side, scores);
        let mut sums = [0.0; Q];
        for ((query, sum), scores) in queries.iter().zip(&mut sums).zip(scores.chunks_exact_mut(self.stride)) {
            *sum = softmax_weights::<S>(&mut scores[query.start..query.end], self.shape.scale);
        }
        for vector in (0..self.shape.head_dim).step_by(2 * LANES) {
            self.weigh::<S, Q>(&queries, scores, sums, vector, out);
        }
        Q
    }

    /// Unscaled scores against every block of keys that one of the queries sees.
    #[inline(always)]
    fn scores<S: Simd, const Q: usize>(&self, queries: &[Query; Q], side_by_side: &[[f32; Q]], scores: &mut [f32]) {
        let dim = self.shape.head_dim;
        let start = queries.iter().fold(usize::MAX, |least, q| least.min(q.start));
        let end = queries.iter().fold(0, |most, q| most.max(q.end));
        let mut position = 0;
        for span in &self.task.segment.spans {
            let head_len = span.len.next_multiple_of(LANES) * dim;
            let keys = &span.keys[self.task.kv_head * head_len..][..head_len];
            // Two blocks at a time; a last block alone is computed twice, for nothing.
            for (index, blocks) in keys.chunks(2 * LANES * dim).enumerate() {
                let at = position + index * 2 * LANES;
                if at + 2 * LANES <= start || at >= end {
                    continue;
                }
                let (a, b) = blocks.as_chunks::<LANES>().0.split_at(dim);
                let b = if b.is_empty() { a } else { b };
                let mut sums = [[S::splat(0.0); 2]; Q];
                for ((a, b), x) in a.iter().zip(b).zip(side_by_side) {
                    let (a, b) = (S::load(a), S::load(b));
                    for q in 0..Q {
                        let x = S::splat(x[q]);
                        sums[q][0] = S::fma(x, a, sums[q][0]);
                        sums[q][1] = S::fma(x, b, sums[q][1]);
                    }
                }
                for (sums, scores) in sums.iter().zip(scores.chunks_exact_mut(self.stride)) {
                    for (sum, scores) in sums.iter().zip(scores[at..].as_chunks_mut().0) {
                        S::store(*sum, scores);
                    }
                }
            }
            position += span.len;
        }
    }

    /// `Σ weight · value / sum` over each query's positions, for two vectors of a head.
    #[inline(always)]
    fn weigh<S: Simd, const Q: usize>(&self, queries: &[Query; Q], scores: &[f32], sums: [f32; Q], vector: usize, out: &Results<'_>) {
        // Positions that all queries see are weighed together, those before and behind one query at a time.
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
            let len = (self.shape.head_dim - vector).min(2 * LANES);
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
    fn add_weighted<S: Simd, const Q: usize>(&self, positions: Range<usize>, weights: [&[f32]; Q], vector: usize, y: &mut [[S::F; 2]; Q]) {
        let padded = self.shape.padded_dim();
        let mut position = 0;
        for span in &self.task.segment.spans {
            let (from, to) = (positions.start.max(position), positions.end.min(position + span.len));
            if from < to {
                let head = &span.values[self.task.kv_head * span.len * padded..][..span.len * padded];
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
