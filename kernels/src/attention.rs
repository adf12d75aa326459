//! Attention of packed segments over cached spans of keys and values.
//!
//! A query's result depends on its own row and on the keys it sees in order of position; how these are cut into spans,
//! and which other segments are computed beside it, changes nothing. Grouped heads read their shared keys in place;
//! only the scores of a few queries at a time are held.

mod float;
mod tiles;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use float::run_task as run_float;
use rayon::prelude::*;
use tiles::{pack_head as pack_tiles, run_task as run_tiles};

use crate::buffer::Buffer;
use crate::elementwise::soft_cap_part;
use crate::isa::dispatch;
use crate::simd::{LANES, Simd};
use crate::{Arithmetic, Isa};

/// The shape of an attention layer, and how it is computed.
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
    /// Scores `s` count as `cap · tanh(s / cap)`.
    pub cap: Option<f32>,
    /// A query sees this many positions, its own included, and where it sees what comes after it too
    /// ([`QueryRows::All`]) as many to that side; all where absent.
    pub window: Option<usize>,
    /// In [`Tiles`](Arithmetic::Tiles), queries, keys, weights and values are rounded to bf16 and multiplied as
    /// [`ProductForm::Tiles`](crate::ProductForm) says, otherwise all is f32.
    pub arithmetic: Arithmetic,
}

impl AttentionShape {
    fn tiles(&self) -> bool {
        self.arithmetic == Arithmetic::Tiles
    }

    fn padded_dim(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Rows of sixteen words that a block of sixteen keys is: an element of each, or two.
    fn key_rows(&self) -> usize {
        if self.tiles() { self.head_dim.next_multiple_of(tiles::STEP) / 2 } else { self.head_dim }
    }

    /// Words of a head's packed keys of `len` tokens.
    fn head_keys(&self, len: usize) -> usize {
        len.next_multiple_of(LANES) * self.key_rows()
    }

    /// Words of a head's packed values of `len` tokens: a row for each, or for two of which the first stands at an even
    /// position.
    fn head_values(&self, len: usize) -> usize {
        (if self.tiles() { len / 2 + 1 } else { len }) * self.padded_dim()
    }

    /// Words of packed keys of `len` tokens.
    pub fn keys_len(&self, len: usize) -> usize {
        self.kv_heads * self.head_keys(len)
    }

    /// Words of packed values of `len` tokens.
    pub fn values_len(&self, len: usize) -> usize {
        self.kv_heads * self.head_values(len)
    }
}

/// Keys and values of consecutive positions, packed by [`pack_span`] as words of 32 bits: one f32, or two bf16.
#[derive(Debug, Clone, Copy)]
pub struct PackedSpan<'a> {
    /// `(kv_heads, blocks of 16 tokens, head_dim, 16)`; in bf16 two elements to a word, and `head_dim` padded to 32.
    pub keys: &'a [u32],
    /// `(kv_heads, tokens, head_dim padded to 16)`; in bf16 two tokens to a word.
    pub values: &'a [u32],
    /// Tokens.
    pub len: usize,
}

impl<'a> PackedSpan<'a> {
    fn head_keys(&self, shape: &AttentionShape, head: usize) -> &'a [u32] {
        let len = shape.head_keys(self.len);
        &self.keys[head * len..][..len]
    }

    fn head_values(&self, shape: &AttentionShape, head: usize) -> &'a [u32] {
        let len = shape.head_values(self.len);
        &self.values[head * len..][..len]
    }
}

/// The rows of a segment, and which positions each of them sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryRows {
    /// For each row, the positions up to and including its own: text that was read so far.
    Causal(Range<usize>),
    /// So many rows, at the positions from 0 on, that see all positions, or those to either side that a window leaves
    /// them: an encoder's text, or a decoder's tokens that look at it.
    All(usize),
}

impl QueryRows {
    fn len(&self) -> usize {
        match self {
            Self::Causal(ends) => ends.len(),
            Self::All(rows) => *rows,
        }
    }
}

/// What is added to scores by the distance of key and query (Raffel et al. 2020, section 2.1).
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeBias {
    table: Vec<f32>,
    reach: usize,
}

impl RelativeBias {
    /// For each of `heads` the summand at each distance, key position minus query position, from `−reach` to `reach`;
    /// those farther apart have that of the farthest.
    pub fn new(heads: usize, reach: usize, summand: impl Fn(usize, isize) -> f32) -> Self {
        let distances = -(reach as isize)..=reach as isize;
        Self {
            table: (0..heads)
                .flat_map(|head| distances.clone().map(move |d| (head, d)))
                .map(|(h, d)| summand(h, d))
                .collect(),
            reach,
        }
    }

    /// Distances in reach.
    fn distances(&self) -> usize {
        2 * self.reach + 1
    }

    /// `score ← scale · score + summand` for the scores of a query at some positions.
    #[inline(always)]
    fn add(&self, query: &AttentionQuery, scale: f32, scores: &mut [f32]) {
        let table = &self.table[query.head * self.distances()..][..self.distances()];
        // Positions before `near` are out of reach, and those from `far` on.
        let near = query.position.saturating_sub(self.reach).clamp(query.start, query.end) - query.start;
        let far = (query.position + self.reach + 1).clamp(query.start, query.end) - query.start;
        let first = (query.start + near + self.reach).saturating_sub(query.position);
        for score in &mut scores[..near] {
            *score = *score * scale + table[0];
        }
        for (score, summand) in scores[near..far].iter_mut().zip(&table[first..]) {
            *score = *score * scale + summand;
        }
        for score in &mut scores[far..query.end - query.start] {
            *score = *score * scale + table[table.len() - 1];
        }
    }
}

/// What is added to scores by where keys and queries stand.
#[derive(Debug, Clone, Copy)]
pub enum ScoreBias<'a> {
    /// By their distance alone.
    Distance(&'a RelativeBias),
    /// By their distance and what they are.
    Products(DistanceProducts<'a>),
}

/// Products of queries and of keys with what stands for distances, gathered by the distance of each pair (He et al.
/// 2021, section 3.1). They are added to the product of query and key before it is scaled.
#[derive(Debug, Clone, Copy)]
pub struct DistanceProducts<'a> {
    /// Which of a row's products is that of a distance.
    pub columns: &'a DistanceColumns,
    /// Of the wanted rows of all segments, `(heads, rows, columns)`, where queries have such products.
    pub of_queries: Option<&'a [f32]>,
    /// Of the positions of all segments, `(heads, positions, columns)`, where keys do.
    pub of_keys: Option<&'a [f32]>,
}

/// The column of each distance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistanceColumns {
    columns: usize,
    table: Vec<usize>,
    reach: usize,
}

impl DistanceColumns {
    /// Of so many columns the one of each distance, key position minus query position, from `−reach` to `reach`; those
    /// farther apart have that of the farthest.
    pub fn new(columns: usize, reach: usize, column: impl Fn(isize) -> usize) -> Self {
        let table: Vec<usize> = (-(reach as isize)..=reach as isize).map(column).collect();
        assert!(table.iter().all(|column| *column < columns), "one of {columns}");
        Self { columns, table, reach }
    }

    /// The columns of the positions that a query sees, ascending.
    #[inline(always)]
    fn of(&self, query: &AttentionQuery) -> impl Iterator<Item = usize> {
        let near = query.position.saturating_sub(self.reach).clamp(query.start, query.end);
        let far = (query.position + self.reach + 1).clamp(query.start, query.end);
        let first = (near + self.reach).saturating_sub(query.position);
        let before = std::iter::repeat_n(self.table[0], near - query.start);
        let behind = std::iter::repeat_n(self.table[self.table.len() - 1], query.end - far);
        before.chain(self.table[first..][..far - near].iter().copied()).chain(behind)
    }
}

impl DistanceProducts<'_> {
    /// Adds the query's products, then the keys', to its scores.
    #[inline(always)]
    fn add(&self, heads: usize, (row, first_key): (usize, usize), query: &AttentionQuery, scores: &mut [f32]) {
        let columns = self.columns.columns;
        let of_head = |all: &'_ [f32]| query.head * (all.len() / heads)..(query.head + 1) * (all.len() / heads);
        if let Some(all) = self.of_queries {
            let products = &all[of_head(all)][row * columns..][..columns];
            for (score, column) in scores.iter_mut().zip(self.columns.of(query)) {
                *score += products[column];
            }
        }
        if let Some(all) = self.of_keys {
            let keys = all[of_head(all)][(first_key + query.start) * columns..].chunks_exact(columns);
            for ((score, products), column) in scores.iter_mut().zip(keys).zip(self.columns.of(query)) {
                *score += products[column];
            }
        }
    }
}

/// Query rows and what they see.
#[derive(Debug, Clone)]
pub struct AttentionSegment<'a> {
    /// From position 0 without gaps.
    pub spans: Vec<PackedSpan<'a>>,
    /// The query rows.
    pub rows: QueryRows,
    /// Which of these rows are asked for, ascending; all where absent.
    pub wanted: Option<&'a [usize]>,
}

impl AttentionSegment<'_> {
    fn positions(&self) -> usize {
        self.spans.iter().map(|span| span.len).sum()
    }
}

/// Packs `rows` of keys and values, `(tokens, kv_heads, head_dim)` each, for [`attention`] as the positions from
/// `start` on, into [`keys_len`](AttentionShape::keys_len) and [`values_len`](AttentionShape::values_len) words, which
/// must be zeros.
///
/// In bf16 a token with values that are not finite gets keys that are not a number: zeros times such values would reach
/// those who do not see the token, and so its result is not a number for all that do.
pub fn pack_span(
    isa: Isa,
    shape: &AttentionShape,
    (keys, values): (&[f32], &[f32]),
    rows: Range<usize>,
    start: usize,
    packed_keys: &mut [u32],
    packed_values: &mut [u32],
) {
    let len = rows.len();
    let fits = packed_keys.len() == shape.keys_len(len) && packed_values.len() == shape.values_len(len);
    assert!(len > 0 && fits, "room for {len} tokens");
    // A few tokens are one task.
    let heads = if len < 64 { shape.kv_heads } else { 1 };
    let to_keys = packed_keys.par_chunks_exact_mut(shape.head_keys(len)).with_min_len(heads);
    to_keys.zip(packed_values.par_chunks_exact_mut(shape.head_values(len))).enumerate().for_each(|(head, (to_keys, to_values))| {
        let tokens = &HeadTokens { shape, keys, values, rows: rows.clone(), head };
        if shape.tiles() {
            dispatch!(isa, pack_tiles(tokens: &HeadTokens<'_>, start: usize, to_keys: &mut [u32], to_values: &mut [u32]));
        } else {
            float::pack_head(tokens, bytemuck::cast_slice_mut(to_keys), bytemuck::cast_slice_mut(to_values));
        }
    });
}

/// One head's part of some rows of keys and values.
struct HeadTokens<'a> {
    shape: &'a AttentionShape,
    keys: &'a [f32],
    values: &'a [f32],
    rows: Range<usize>,
    head: usize,
}

impl<'a> HeadTokens<'a> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    /// The key and the value of a token.
    #[inline(always)]
    fn token(&self, token: usize) -> (&'a [f32], &'a [f32]) {
        let dim = self.shape.head_dim;
        let at = ((self.rows.start + token) * self.shape.kv_heads + self.head) * dim;
        (&self.keys[at..at + dim], &self.values[at..at + dim])
    }
}

/// Joins the first `total` tokens of consecutive spans, the first of which begins at `start`, into one, `keys` and
/// `values` of its length and zeros. A result over the whole has the bits of one over the parts.
pub fn join_spans(
    shape: &AttentionShape,
    spans: &[PackedSpan<'_>],
    total: usize,
    start: usize,
    keys: &mut [u32],
    values: &mut [u32],
) {
    assert!(total <= spans.iter().map(|s| s.len).sum(), "no more tokens than there are");
    assert!(keys.len() == shape.keys_len(total) && values.len() == shape.values_len(total), "room for the whole");
    let (rows, padded) = (shape.key_rows(), shape.padded_dim());
    let heads = keys.chunks_exact_mut(shape.head_keys(total)).zip(values.chunks_exact_mut(shape.head_values(total)));
    for (head, (keys, values)) in heads.enumerate() {
        let keys = keys.as_chunks_mut::<LANES>().0;
        let mut position = start;
        for span in spans {
            let len = span.len.min(start + total - position);
            let from = span.head_keys(shape, head).as_chunks::<LANES>().0;
            for token in 0..len {
                let at = position + token - start;
                let to = &mut keys[at / LANES * rows..][..rows];
                for (to, from) in to.iter_mut().zip(&from[token / LANES * rows..]) {
                    to[at % LANES] = from[token % LANES];
                }
            }
            let row = if shape.tiles() { position / 2 - start / 2 } else { position - start };
            let from = span.head_values(shape, head);
            // Where two spans share a row of two tokens, each has zeros for the other's.
            let end = position + len;
            let whole = if shape.tiles() { end / 2 - position / 2 } else { len };
            for (to, from) in values[row * padded..].iter_mut().zip(&from[..whole * padded]) {
                *to |= from;
            }
            // The first of two tokens, the second of which may be left out.
            if shape.tiles() && !end.is_multiple_of(2) && len > 0 {
                for (to, from) in values[(row + whole) * padded..].iter_mut().zip(&from[whole * padded..]) {
                    *to |= from & 0xffff;
                }
            }
            position = end;
        }
    }
}

/// Queries, rows times heads, that a task has at the least and at the most, unless there are fewer, or a row alone has
/// more.
const TASK_QUERIES: (usize, usize) = (16, 64);
/// Tasks of a thread where there are queries enough, so that threads end together. A query's bits do not depend on its
/// task.
const THREAD_TASKS: usize = 4;

/// Attention: `out` and `queries` are `(rows, heads, head_dim)`, the segments' wanted rows one after another.
///
/// Scores are `scale · Σ_d q_d k_d` over ascending `d`, capped where there is a cap, plus the summand of `bias` where there is one (its products
/// count before `scale` does, and go with no cap); weights their softmax; the result sums `weight · value` over ascending positions and is divided by the sum of weights at the end.
/// In bf16 the sums run as [`ProductForm::Tiles`](crate::ProductForm) says, over 32 elements and over 32 positions from a multiple of
/// 32 on at a time, and the sum of weights is that of the rounded ones.
pub fn attention(
    isa: Isa,
    shape: &AttentionShape,
    bias: Option<ScoreBias<'_>>,
    queries: &[f32],
    segments: &[AttentionSegment<'_>],
    out: &mut [f32],
) {
    let width = shape.heads * shape.head_dim;
    assert!(shape.heads.is_multiple_of(shape.kv_heads), "query heads share key heads evenly");
    assert_eq!(queries.len(), out.len(), "a result per query");
    let positions: usize = segments.iter().map(AttentionSegment::positions).sum();
    let fits = match bias {
        None => true,
        Some(ScoreBias::Distance(bias)) => bias.table.len() == shape.heads * bias.distances(),
        Some(ScoreBias::Products(DistanceProducts { columns, of_queries, of_keys })) => {
            let a_row = shape.heads * columns.columns;
            let fit = |products: Option<&[f32]>, rows: usize| products.is_none_or(|all| all.len() == rows * a_row);
            shape.cap.is_none() && fit(of_queries, queries.len() / width) && fit(of_keys, positions)
        }
    };
    assert!(fits, "a bias for each head");
    let (least, most) = TASK_QUERIES;
    let of_a_task = (queries.len() / shape.head_dim / (THREAD_TASKS * rayon::current_num_threads())).clamp(least, most);
    // A row has a query of each head that shares the key head.
    let task_rows = (of_a_task * shape.kv_heads / shape.heads).max(1);
    let mut tasks = Vec::new();
    let (mut row, mut key) = (0, 0);
    for segment in segments {
        let positions = segment.positions();
        let fits = match &segment.rows {
            QueryRows::Causal(ends) => ends.start > 0 && ends.end <= positions + 1,
            QueryRows::All(rows) => positions > 0 && shape.window.is_none_or(|window| window > 0 && *rows <= positions),
        };
        assert!(fits, "a row sees positions that are there");
        for span in &segment.spans {
            let fits = span.keys.len() == shape.keys_len(span.len) && span.values.len() == shape.values_len(span.len);
            assert!(fits, "spans are packed for this shape");
        }
        let rows = segment.wanted.map_or(segment.rows.len(), <[usize]>::len);
        for first in (0..rows).step_by(task_rows) {
            let rows = first..rows.min(first + task_rows);
            tasks.extend((0..shape.kv_heads).map(|kv_head| AttentionTask {
                shape,
                bias,
                queries,
                segment,
                first_row: row,
                first_key: key,
                rows: rows.clone(),
                kv_head,
            }));
        }
        row += rows;
        key += positions;
    }
    assert_eq!(row * width, queries.len(), "segments cover all rows");
    let out = &HeadOutputs { start: out.as_mut_ptr(), len: out.len(), _out: PhantomData };
    tasks.into_par_iter().for_each(|task| {
        let task = &task;
        SCRATCH.with_borrow_mut(|scratch| {
            if shape.tiles() {
                dispatch!(isa, run_tiles(isa: Isa, task: &AttentionTask<'_>, scratch: &mut AttentionScratch, out: &HeadOutputs<'_>));
            } else {
                dispatch!(isa, run_float(task: &AttentionTask<'_>, scratch: &mut AttentionScratch, out: &HeadOutputs<'_>));
            }
        });
    });
}

/// A thread's memory, kept from task to task.
#[derive(Default)]
struct AttentionScratch {
    /// A few queries: `(head_dim, query)`, or rows in bf16.
    queries: Buffer<u32>,
    /// Their scores and weights, `(query, position)`.
    scores: Buffer<u32>,
    /// In bf16, values of 32 positions each that lie in several spans or are not all there.
    values: Buffer<u32>,
    /// In bf16, some columns of results before they are divided.
    sums: Buffer<f32>,
}

thread_local! {
    static SCRATCH: RefCell<AttentionScratch> = RefCell::default();
}

/// A few rows of one segment, for the query heads of one key head.
struct AttentionTask<'a> {
    shape: &'a AttentionShape,
    bias: Option<ScoreBias<'a>>,
    /// Of all segments.
    queries: &'a [f32],
    segment: &'a AttentionSegment<'a>,
    /// Where the segment's rows begin among all.
    first_row: usize,
    /// Where its positions begin among all.
    first_key: usize,
    /// Among the segment's wanted rows.
    rows: Range<usize>,
    kv_head: usize,
}

impl AttentionTask<'_> {
    fn group(&self) -> usize {
        self.shape.heads / self.shape.kv_heads
    }

    /// Queries, row by row.
    fn count(&self) -> usize {
        self.rows.len() * self.group()
    }

    #[inline(always)]
    fn query(&self, index: usize) -> AttentionQuery {
        let (shape, group) = (self.shape, self.group());
        let (row, head) = (self.rows.start + index / group, self.kv_head * group + index % group);
        let offset = self.segment.wanted.map_or(row, |wanted| wanted[row]);
        let (position, end) = match &self.segment.rows {
            QueryRows::Causal(ends) => (ends.start + offset - 1, ends.start + offset),
            QueryRows::All(_) => {
                let all = self.segment.positions();
                (offset, shape.window.map_or(all, |window| all.min(offset + window)))
            }
        };
        let start = shape.window.map_or(0, |window| (position + 1).saturating_sub(window));
        AttentionQuery {
            at: ((self.first_row + row) * shape.heads + head) * shape.head_dim,
            head,
            position,
            start,
            end,
        }
    }

    /// Caps a query's scores and adds the bias; returns the scale that is left to be applied.
    #[inline(always)]
    fn settle<S: Simd>(&self, query: &AttentionQuery, scores: &mut [f32]) -> f32 {
        let mut scale = self.shape.scale;
        if let Some(cap) = self.shape.cap {
            soft_cap_part::<S>(scale, cap, scores);
            scale = 1.0;
        }
        match self.bias {
            Some(ScoreBias::Distance(bias)) => {
                bias.add(query, scale, scores);
                scale = 1.0;
            }
            Some(ScoreBias::Products(products)) => {
                let row = query.at / (self.shape.heads * self.shape.head_dim);
                let seen = &mut scores[..query.end - query.start];
                products.add(self.shape.heads, (row, self.first_key), query, seen);
            }
            None => {}
        }
        scale
    }
}

/// One head of one row.
#[derive(Clone, Copy, Default)]
struct AttentionQuery {
    /// Where it starts among all queries.
    at: usize,
    head: usize,
    /// Its own.
    position: usize,
    /// Positions it sees.
    start: usize,
    end: usize,
}

/// The positions that some of the queries see.
#[inline(always)]
fn seen(queries: &[AttentionQuery]) -> Range<usize> {
    let start = queries.iter().fold(usize::MAX, |least, q| least.min(q.start));
    start..queries.iter().fold(0, |most, q| most.max(q.end))
}

/// The output, shared by tasks that each write heads of their own.
struct HeadOutputs<'a> {
    start: *mut f32,
    len: usize,
    _out: PhantomData<&'a mut [f32]>,
}

// SAFETY: tasks reach the output only through `head`, each for heads of its own.
unsafe impl Sync for HeadOutputs<'_> {}

impl HeadOutputs<'_> {
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
