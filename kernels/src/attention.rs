//! Attention of packed segments over cached spans of keys and values.
//!
//! A query's result depends only on its own row and on the keys it sees, in order of position. The division into spans
//! and the other segments of the batch do not affect it. Grouped heads read their shared keys in place, and only the
//! scores of a few queries are in memory at a time.

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

/// The shape and arithmetic of an attention layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dimension of a head.
    pub head_dim: usize,
    /// Factor of the scores, usually `head_dim^-½`.
    pub scale: f32,
    /// Soft cap of scores: `s` becomes `cap · tanh(s / cap)`.
    pub cap: Option<f32>,
    /// Number of positions that a query sees, including its own. With [`QueryRows::All`] it applies in each direction.
    /// `None` means all.
    pub window: Option<usize>,
    /// With [`Tiles`](Arithmetic::Tiles), queries, keys, weights and values are rounded to bf16 and multiplied as in
    /// [`ProductForm::Tiles`](crate::ProductForm); otherwise everything is f32.
    pub arithmetic: Arithmetic,
}

impl AttentionShape {
    fn tiles(&self) -> bool {
        self.arithmetic == Arithmetic::Tiles
    }

    fn padded_dim(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Rows of sixteen words in a block of sixteen keys, with one or two elements of each key.
    fn key_rows(&self) -> usize {
        if self.tiles() { self.head_dim.next_multiple_of(tiles::STEP) / 2 } else { self.head_dim }
    }

    /// Words of a head's packed keys of `len` tokens.
    fn head_keys(&self, len: usize) -> usize {
        len.next_multiple_of(LANES) * self.key_rows()
    }

    /// Words of a head's packed values of `len` tokens: one row per token, or per two tokens from an even position.
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

/// Keys and values of consecutive positions, packed by [`pack_span`] into 32-bit words of one f32 or two bf16.
#[derive(Debug, Clone, Copy)]
pub struct PackedSpan<'a> {
    /// `(kv_heads, blocks of 16 tokens, head_dim, 16)`; in bf16 with two elements per word and `head_dim` padded to 32.
    pub keys: &'a [u32],
    /// `(kv_heads, tokens, head_dim padded to 16)`; in bf16 with two tokens per word.
    pub values: &'a [u32],
    /// Number of tokens.
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

/// The rows of a segment, and the positions that each of them sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryRows {
    /// Causal: each row sees the positions up to its own. The range holds the rows' positions.
    Causal(Range<usize>),
    /// That many rows, at positions from 0, which see all positions or a window in each direction: an encoder's
    /// self-attention, or cross-attention.
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

/// A bias of scores by the distance of key and query (Raffel et al. 2020, section 2.1).
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeBias {
    table: Vec<f32>,
    reach: usize,
}

impl RelativeBias {
    /// The bias for each of `heads` at each distance, key position minus query position, from `−reach` to `reach`.
    /// Larger distances share the bias of the largest.
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

    /// Number of distances within reach.
    fn distances(&self) -> usize {
        2 * self.reach + 1
    }

    /// `score ← scale · score + bias` for the scores of a query at some positions.
    #[inline(always)]
    fn add(&self, query: &AttentionQuery, scale: f32, scores: &mut [f32]) {
        let table = &self.table[query.head * self.distances()..][..self.distances()];
        // Positions before `near` and from `far` on are out of reach.
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

/// A bias of scores by position.
#[derive(Debug, Clone, Copy)]
pub enum ScoreBias<'a> {
    /// By distance only.
    Distance(&'a RelativeBias),
    /// By distance and content.
    Products(DistanceProducts<'a>),
}

/// Products of queries and of keys with embeddings of relative positions, gathered by the distance of each pair (He et
/// al. 2021, section 3.1). They are added to the query-key product before it is scaled.
#[derive(Debug, Clone, Copy)]
pub struct DistanceProducts<'a> {
    /// The column of each distance.
    pub columns: &'a DistanceColumns,
    /// Products of the wanted rows of all segments, `(heads, rows, columns)`, if there are any.
    pub of_queries: Option<&'a [f32]>,
    /// Products of the positions of all segments, `(heads, positions, columns)`, if there are any.
    pub of_keys: Option<&'a [f32]>,
}

/// The product column of each distance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistanceColumns {
    columns: usize,
    table: Vec<usize>,
    reach: usize,
}

impl DistanceColumns {
    /// The column of each distance, key position minus query position, from `−reach` to `reach`, among `columns`.
    /// Larger distances share the column of the largest.
    pub fn new(columns: usize, reach: usize, column: impl Fn(isize) -> usize) -> Self {
        let table: Vec<usize> = (-(reach as isize)..=reach as isize).map(column).collect();
        assert!(table.iter().all(|column| *column < columns), "one of {columns}");
        Self { columns, table, reach }
    }

    /// The columns of the positions that a query sees, in ascending order of position.
    #[inline(always)]
    fn visible_to(&self, query: &AttentionQuery) -> impl Iterator<Item = usize> {
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
            for (score, column) in scores.iter_mut().zip(self.columns.visible_to(query)) {
                *score += products[column];
            }
        }
        if let Some(all) = self.of_keys {
            let keys = all[of_head(all)][(first_key + query.start) * columns..].chunks_exact(columns);
            for ((score, products), column) in scores.iter_mut().zip(keys).zip(self.columns.visible_to(query)) {
                *score += products[column];
            }
        }
    }
}

/// Query rows and the cached spans that they attend to.
#[derive(Debug, Clone)]
pub struct AttentionSegment<'a> {
    /// From position 0 without gaps.
    pub spans: Vec<PackedSpan<'a>>,
    /// The query rows.
    pub rows: QueryRows,
    /// Indices of the rows to compute, ascending; `None` means all.
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
/// In bf16, a token with non-finite values gets NaN keys. Zero weights times non-finite values would otherwise spread
/// NaN to rows that do not see the token; this way the result is NaN exactly for rows that do.
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

/// One head's keys and values of some rows.
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

/// Joins the first `total` tokens of consecutive spans, the first of which begins at `start`. `keys` and `values` have
/// the length of the joined span and are zeros. Attention over the result has the same bits as over the parts.
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
            // If two spans share a row of two tokens, each has zeros for the other's.
            let end = position + len;
            let whole = if shape.tiles() { end / 2 - position / 2 } else { len };
            for (to, from) in values[row * padded..].iter_mut().zip(&from[..whole * padded]) {
                *to |= from;
            }
            // The last row may contain a second token beyond `total`.
            if shape.tiles() && !end.is_multiple_of(2) && len > 0 {
                for (to, from) in values[(row + whole) * padded..].iter_mut().zip(&from[whole * padded..]) {
                    *to |= from & 0xffff;
                }
            }
            position = end;
        }
    }
}

/// Minimum and maximum of queries (rows times heads) per task, unless there are fewer, or a single row has more.
const TASK_QUERIES: (usize, usize) = (16, 64);
/// Tasks per thread if there are enough queries, to balance the load. A query's bits do not depend on its task.
const THREAD_TASKS: usize = 4;

/// Attention: `out` and `queries` are `(rows, heads, head_dim)` of the segments' wanted rows, concatenated.
///
/// Scores are `scale · Σ_d q_d k_d` over ascending `d`, then capped, plus the `bias`, if there are a cap and a bias.
/// Products of a bias are added before `scale` applies and exclude a cap. Weights are the softmax of scores. The result
/// is the sum of `weight · value` over ascending positions, divided by the sum of weights at the end. In bf16, sums
/// follow [`ProductForm::Tiles`](crate::ProductForm) over steps of 32 elements and of 32 positions from a multiple of
/// 32, and the sum of weights is that of the rounded weights.
pub fn attention(
    isa: Isa,
    shape: &AttentionShape,
    bias: Option<ScoreBias<'_>>,
    queries: &[f32],
    segments: &[AttentionSegment<'_>],
    out: &mut [f32],
) {
    run(isa, (shape, bias, None), queries, segments, out);
}

/// [`attention`] with one more logit per head in the softmax, its sink: `exp(sink)` is added to the sum of weights, and
/// no value belongs to it (Xiao et al. 2024; Agarwal et al. 2025). Sinks are neither scaled nor capped.
pub fn attention_with_sinks(
    isa: Isa,
    shape: &AttentionShape,
    sinks: &[f32],
    queries: &[f32],
    segments: &[AttentionSegment<'_>],
    out: &mut [f32],
) {
    assert_eq!(sinks.len(), shape.heads, "a sink for each head");
    run(isa, (shape, None, Some(sinks)), queries, segments, out);
}

fn run(
    isa: Isa,
    (shape, bias, sinks): (&AttentionShape, Option<ScoreBias<'_>>, Option<&[f32]>),
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
    // A row has one query per head that shares the key head.
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
                sinks,
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

/// A thread's memory, reused between tasks.
#[derive(Default)]
struct AttentionScratch {
    /// A few queries: `(head_dim, query)`, or rows in bf16.
    queries: Buffer<u32>,
    /// Their scores and weights, `(query, position)`.
    scores: Buffer<u32>,
    /// In bf16, values of steps of 32 positions that are incomplete or in several spans.
    values: Buffer<u32>,
    /// In bf16, some columns of results before the division.
    sums: Buffer<f32>,
}

thread_local! {
    static SCRATCH: RefCell<AttentionScratch> = RefCell::default();
}

/// A few rows of one segment, for the query heads of one key head.
struct AttentionTask<'a> {
    shape: &'a AttentionShape,
    bias: Option<ScoreBias<'a>>,
    /// One for each head, if there are any.
    sinks: Option<&'a [f32]>,
    /// Queries of all segments.
    queries: &'a [f32],
    segment: &'a AttentionSegment<'a>,
    /// Index of the segment's first row among all.
    first_row: usize,
    /// Index of the segment's first position among all.
    first_key: usize,
    /// Indices among the segment's wanted rows.
    rows: Range<usize>,
    kv_head: usize,
}

impl AttentionTask<'_> {
    fn group(&self) -> usize {
        self.shape.heads / self.shape.kv_heads
    }

    /// Number of queries, row by row.
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

    /// Caps a query's scores and adds the bias; returns the scale that remains to be applied.
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

    /// Adds the weight of the query's sink, if there is one, to the sum of weights `exp(scale · (score − max))`.
    #[inline(always)]
    fn with_sink<S: Simd>(&self, query: &AttentionQuery, (max, scale): (f32, f32), sum: f32) -> f32 {
        let Some(sinks) = self.sinks else { return sum };
        // A sink far above all scores has the largest weight of `exp`, against which the others vanish.
        sum + S::lanes(S::exp(S::splat(sinks[query.head] - scale * max)))[0]
    }
}

/// One head of one row.
#[derive(Clone, Copy, Default)]
struct AttentionQuery {
    /// Its offset among all queries.
    at: usize,
    head: usize,
    /// Its own position.
    position: usize,
    /// The positions it sees.
    start: usize,
    end: usize,
}

/// The positions that at least one of the queries sees.
#[inline(always)]
fn seen(queries: &[AttentionQuery]) -> Range<usize> {
    let start = queries.iter().fold(usize::MAX, |least, q| least.min(q.start));
    start..queries.iter().fold(0, |most, q| most.max(q.end))
}

/// The output, shared by tasks that each write separate heads.
struct HeadOutputs<'a> {
    start: *mut f32,
    len: usize,
    _out: PhantomData<&'a mut [f32]>,
}

// SAFETY: tasks access the output only through `head`, each for separate heads.
unsafe impl Sync for HeadOutputs<'_> {}

impl HeadOutputs<'_> {
    /// `len` elements from `at`.
    ///
    /// # Safety
    /// No two tasks may request the same elements.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "tasks have elements of their own, by contract")]
    unsafe fn head(&self, at: usize, len: usize) -> &mut [f32] {
        assert!(at + len <= self.len, "inside the output");
        // SAFETY: inside the output, and by contract no other task uses these elements.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}
