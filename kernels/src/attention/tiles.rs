//! Attention in bf16, in the order of [`ProductForm::Tiles`](crate::ProductForm), on a tile unit or with vectors.
//!
//! Keys of sixteen tokens are stored side by side and values with two positions per word, so that tiles read both in
//! place. Values are summed over steps of 32 positions from a multiple of 32, independent of the division into spans:
//! steps that two spans share are gathered first. A zero weight does not cancel a NaN, so a token with non-finite
//! values gets NaN keys, which affect only the rows that attend to it.

use std::ops::Range;

use super::{AttentionQuery, AttentionScratch, AttentionTask, HeadOutputs, HeadTokens, seen};
use crate::Isa;
use crate::buffer::Buffer;
use crate::isa::TileRegisters;
use crate::simd::{LANES, Simd, round_pairs, to_bf16};
use crate::tiles::{TILE_ROWS, TileFactors, TileUnit, add_pair, end_step};

/// Elements or positions per summation step.
pub(super) const STEP: usize = 32;
/// Queries that are computed together: two tiles of rows.
const QUERIES: usize = 2 * TILE_ROWS;
/// Two NaN elements.
const NAN_PAIR: u32 = 0x7fc0_7fc0;

/// Packs a head into zeros: keys of sixteen tokens side by side, values with two tokens per word.
#[inline(always)]
pub(super) fn pack_head<S: Simd>(tokens: &HeadTokens<'_>, start: usize, to_keys: &mut [u32], to_values: &mut [u32]) {
    let (padded, key_rows) = (tokens.shape.padded_dim(), tokens.shape.key_rows());
    for token in 0..tokens.len() {
        let (key, value) = tokens.token(token);
        // Magnitudes have the same order as bits as by value; from this one on they round to infinity.
        let is_finite = value.iter().fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff)) < 0x7f7f_8000;
        let block = &mut to_keys.as_chunks_mut::<LANES>().0[token / LANES * key_rows..][..key_rows];
        for (key, block) in key.chunks(STEP).zip(block.chunks_exact_mut(STEP / 2)) {
            let mut step = [0.0; STEP];
            step[..key.len()].copy_from_slice(key);
            let pairs = if is_finite { round_pairs::<S>(&step) } else { [NAN_PAIR; STEP / 2] };
            for (to, pair) in block.iter_mut().zip(pairs) {
                to[token % LANES] = pair;
            }
        }
        let position = start + token;
        let row = &mut to_values[(position / 2 - start / 2) * padded..][..padded];
        if is_finite {
            for (to, x) in row.iter_mut().zip(value) {
                *to |= to_bf16(*x) << (16 * (position % 2));
            }
        }
    }
}

/// The products, to rows `row` apart, on the tile unit if there is one.
#[inline(always)]
fn multiply<S: Simd>(unit: Option<&TileRegisters>, factors: &TileFactors<'_>, to: &mut [f32], row: usize) {
    if let Some(tiles) = unit {
        return tiles.multiply(factors, to, row);
    }
    let mut first = 0;
    while first < factors.rows {
        first += match factors.rows - first {
            6.. => multiply_rows::<S, 6>(factors, first, to, row),
            2.. => multiply_rows::<S, 2>(factors, first, to, row),
            _ => multiply_rows::<S, 1>(factors, first, to, row),
        };
    }
}

/// Computes `R` rows with vectors and returns `R`.
#[inline(always)]
fn multiply_rows<S: Simd, const R: usize>(
    factors: &TileFactors<'_>,
    first: usize,
    to: &mut [f32],
    row: usize,
) -> usize {
    let ((left, left_row), (steps, step_row)) = (factors.left, factors.steps);
    for (tile, column) in factors.columns.iter().enumerate() {
        let mut y = [S::splat(0.0); R];
        for (index, step) in steps.iter().enumerate() {
            let (mut even, mut odd) = ([S::splat(0.0); R], [S::splat(0.0); R]);
            for pair in 0..STEP / 2 {
                let words: &[u32; LANES] = step[pair * step_row + column..].first_chunk().expect("a row of a step");
                let mut x = [0; R];
                for r in 0..R {
                    x[r] = left[(first + r) * left_row + index * STEP / 2 + pair];
                }
                add_pair::<S, R>(&x, S::load_pairs(bytemuck::cast_ref(words)), &mut even, &mut odd);
            }
            for r in 0..R {
                y[r] = end_step::<S>(y[r], even[r], odd[r]);
            }
        }
        for r in 0..R {
            S::store(y[r], to[(first + r) * row + tile * LANES..].first_chunk_mut().expect("a row of results"));
        }
    }
    R
}

/// Rounds each 32 floats of a row to sixteen words, stored from the beginning of the row. Returns the sum of the
/// rounded values, where each of sixteen lanes adds a word's second value before the first.
#[inline(always)]
fn round_row<S: Simd>(unit: Option<&TileRegisters>, row: &mut [u32]) -> f32 {
    if let Some(tiles) = unit {
        return tiles.round_row(row);
    }
    let mut sum = S::splat(0.0);
    for step in 0..row.len() / STEP {
        let floats: &[u32; STEP] = row[step * STEP..].first_chunk().expect("a step");
        let words = round_pairs::<S>(bytemuck::cast_ref(floats));
        let [first, second] = S::load_pairs(bytemuck::cast_ref(&words));
        sum = S::add(S::add(sum, second), first);
        row[step * STEP / 2..][..STEP / 2].copy_from_slice(&words);
    }
    S::sum(sum)
}

/// Replaces the first `len` scores by `exp(scale · (score − max))`, accurate to four digits, twice as many as bf16
/// keeps. Returns the maximum.
#[inline(always)]
fn soften<S: Simd>(scores: &mut [f32], len: usize, scale: f32) -> f32 {
    scores[len..].fill(f32::NEG_INFINITY);
    let scores = scores.as_chunks_mut::<LANES>().0;
    let lowest = S::splat(f32::NEG_INFINITY);
    // Four at a time, because each maximum waits for the previous one. The order does not affect the result.
    let mut most = [lowest; 4];
    let (quads, rest) = scores.as_chunks::<4>();
    for quad in quads {
        for i in 0..4 {
            most[i] = S::max(S::load(&quad[i]), most[i]);
        }
    }
    for scores in rest {
        most[0] = S::max(S::load(scores), most[0]);
    }
    let most = S::reduce_max(S::max(S::max(most[0], most[1]), S::max(most[2], most[3])));
    let (max, scale) = (S::splat(most), S::splat(scale * std::f32::consts::LOG2_E));
    for scores in scores {
        S::store(S::exp2_short(S::mul(S::sub(S::load(scores), max), scale)), scores);
    }
    most
}

#[inline(always)]
pub(super) fn run_task<S: Simd>(
    isa: Isa,
    task: &AttentionTask<'_>,
    scratch: &mut AttentionScratch,
    out: &HeadOutputs<'_>,
) {
    // Room for whole blocks of keys after the last position. An odd number of cache lines, since at a power of two all
    // rows of a tile would compete for the same lines.
    let stride = (task.segment.positions() + STEP).next_multiple_of(STEP) + LANES;
    scratch.scores.set_len(QUERIES * stride);
    scratch.queries.set_len(QUERIES * task.shape.key_rows());
    scratch.sums.set_len(QUERIES * STEP);
    let (first, last) = (task.query(0), task.query(task.count() - 1));
    let steps = first.start / STEP..last.end.div_ceil(STEP);
    let values = value_steps(task, steps.clone(), &mut scratch.values);
    let mut tile = QueryTile {
        task,
        unit: isa.facts().has_tiles.then(|| TileRegisters::configure(STEP / 2)),
        values: &values,
        first_step: steps.start,
        keys: Vec::with_capacity(task.shape.key_rows() * 2 / STEP),
        stride,
        queries: &mut scratch.queries,
        scores: &mut scratch.scores,
        sums: &mut scratch.sums,
    };
    for first in (0..task.count()).step_by(QUERIES) {
        tile.run::<S>(first, out);
    }
}

/// The values of some steps, each 16 rows of two positions: in place, or gathered in `room` if they are incomplete or
/// in several spans.
fn value_steps<'a>(task: &'a AttentionTask<'_>, steps: Range<usize>, room: &'a mut Buffer<u32>) -> Vec<&'a [u32]> {
    let padded = task.shape.padded_dim();
    let len = STEP / 2 * padded;
    let mut whole = vec![None; steps.len()];
    let mut position = 0;
    for span in &task.segment.spans {
        let values = span.head_values(task.shape, task.kv_head);
        let end = position + span.len;
        for step in steps.start.max(position.div_ceil(STEP))..steps.end.min(end / STEP) {
            whole[step - steps.start] = Some(&values[(step * STEP / 2 - position / 2) * padded..][..len]);
        }
        position = end;
    }
    room.set_len(len * whole.iter().filter(|step| step.is_none()).count());
    let mut room = room.chunks_exact_mut(len);
    let mut collected = |step: usize| {
        let to = room.next().expect("room for each");
        to.fill(0);
        let mut position = 0;
        for span in &task.segment.spans {
            let end = position + span.len;
            let (from, until) = (position.max(step * STEP), end.min((step + 1) * STEP));
            if from < until {
                let values = span.head_values(task.shape, task.kv_head);
                let values = &values[(from / 2 - position / 2) * padded..(until.div_ceil(2) - position / 2) * padded];
                // If two spans share a row, each has zeros for the other's position.
                for (to, from) in to[(from - step * STEP) / 2 * padded..].iter_mut().zip(values) {
                    *to |= from;
                }
            }
            position = end;
        }
        &*to
    };
    steps.zip(whole).map(|(step, whole)| whole.unwrap_or_else(|| collected(step))).collect()
}

/// The inputs of a task's queries, for one tile at a time.
struct QueryTile<'a> {
    task: &'a AttentionTask<'a>,
    unit: Option<TileRegisters>,
    /// Values of all steps that the task's queries see.
    values: &'a [&'a [u32]],
    first_step: usize,
    /// Steps of two blocks of keys.
    keys: Vec<&'a [u32]>,
    /// Words per row of scores.
    stride: usize,
    queries: &'a mut [u32],
    scores: &'a mut [u32],
    sums: &'a mut [f32],
}

impl QueryTile<'_> {
    #[inline(always)]
    fn run<S: Simd>(&mut self, first: usize, out: &HeadOutputs<'_>) {
        let mut queries = [AttentionQuery::default(); QUERIES];
        let count = QUERIES.min(self.task.count() - first);
        let queries = &mut queries[..count];
        for (index, query) in queries.iter_mut().enumerate() {
            *query = self.task.query(first + index);
        }
        let seen = seen(queries);
        self.scores::<S>(queries, &seen);
        let (start, end) = (seen.start / STEP * STEP, seen.end.next_multiple_of(STEP));
        let mut sums = [0.0; QUERIES];
        for ((query, row), sum) in queries.iter().zip(self.scores.chunks_exact_mut(self.stride)).zip(&mut sums) {
            let scores: &mut [f32] = bytemuck::cast_slice_mut(row);
            let len = query.end - query.start;
            let seen = &mut scores[query.start..][..len.next_multiple_of(LANES)];
            let scale = self.task.settle::<S>(query, seen);
            let max = soften::<S>(seen, len, scale);
            scores[start..query.start].fill(0.0);
            scores[query.end..end].fill(0.0);
            let weights = round_row::<S>(self.unit.as_ref(), &mut row[start..end]);
            *sum = self.task.with_sink::<S>(query, (max, scale), weights);
        }
        self.weigh::<S>(queries, &sums, start..end, out);
    }

    /// Unscaled scores against every block of keys that at least one of the queries sees.
    #[inline(always)]
    fn scores<S: Simd>(&mut self, queries: &[AttentionQuery], seen: &Range<usize>) {
        let (dim, key_rows) = (self.task.shape.head_dim, self.task.shape.key_rows());
        for (query, row) in queries.iter().zip(self.queries.chunks_exact_mut(key_rows)) {
            let (whole, rest) = self.task.queries[query.at..query.at + dim].as_chunks::<STEP>();
            let mut last = [0.0; STEP];
            last[..rest.len()].copy_from_slice(rest);
            for (words, x) in row.as_chunks_mut::<{ STEP / 2 }>().0.iter_mut().zip(whole.iter().chain([&last])) {
                *words = round_pairs::<S>(x);
            }
        }
        let scores: &mut [f32] = bytemuck::cast_slice_mut(self.scores);
        let block = key_rows * LANES;
        let mut position = 0;
        for span in &self.task.segment.spans {
            for (index, blocks) in span.head_keys(self.task.shape, self.task.kv_head).chunks(2 * block).enumerate() {
                let at = position + index * 2 * LANES;
                if at + 2 * LANES <= seen.start || at >= seen.end {
                    continue;
                }
                self.keys.clear();
                self.keys.extend((0..block).step_by(STEP / 2 * LANES).map(|step| &blocks[step..]));
                let columns = &[0, block][..blocks.len() / block];
                let factors = TileFactors {
                    rows: queries.len(),
                    left: (self.queries, key_rows),
                    steps: (&self.keys, LANES),
                    columns,
                };
                multiply::<S>(self.unit.as_ref(), &factors, &mut scores[at..], self.stride);
            }
            position += span.len;
        }
    }

    /// `Σ weight · value / Σ weight` over some positions, whole steps.
    #[inline(always)]
    fn weigh<S: Simd>(
        &mut self,
        queries: &[AttentionQuery],
        weights: &[f32; QUERIES],
        positions: Range<usize>,
        out: &HeadOutputs<'_>,
    ) {
        let (dim, padded) = (self.task.shape.head_dim, self.task.shape.padded_dim());
        let steps = &self.values[positions.start / STEP - self.first_step..positions.end / STEP - self.first_step];
        let left = (&self.scores[positions.start..], self.stride);
        for first in (0..dim).step_by(STEP) {
            let columns = &[first, first + LANES][..(padded - first).min(STEP) / LANES];
            let factors = TileFactors { rows: queries.len(), left, steps: (steps, padded), columns };
            multiply::<S>(self.unit.as_ref(), &factors, self.sums, STEP);
            for ((query, weight), sums) in queries.iter().zip(weights).zip(self.sums.as_chunks::<STEP>().0) {
                // SAFETY: no other task has this row and head.
                let out = unsafe { out.head(query.at + first, (dim - first).min(STEP)) };
                if weight.is_nan() {
                    out.fill(f32::NAN);
                    continue;
                }
                // Adding zero normalises −0, which steps that only other queries see would turn into 0.
                let (weight, zero) = (S::splat(*weight), S::splat(0.0));
                let (whole, rest) = out.as_chunks_mut::<LANES>();
                let sums = sums.as_chunks::<LANES>().0;
                for (out, sums) in whole.iter_mut().zip(sums) {
                    S::store(S::div(S::add(S::load(sums), zero), weight), out);
                }
                if !rest.is_empty() {
                    rest.copy_from_slice(
                        &S::lanes(S::div(S::add(S::load(&sums[whole.len()]), zero), weight))[..rest.len()],
                    );
                }
            }
        }
    }
}
