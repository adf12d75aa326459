//! Gated delta nets (Yang et al. 2025, arXiv:2412.06464): linear attention with a recurrent state instead of keys and
//! values.
//!
//! A value head holds a matrix `S`, `(key_dim, value_dim)`. Each token decays it, `S ← α S`, and then corrects what it
//! returns for the token's key, `S ← S + k ⊗ β (v − Sᵀ k)`. The token's result is `Sᵀ q`. Tokens run one after another
//! in the order of their positions, also within a batch, so the bits of a text do not depend on where it is cut.

use rayon::prelude::*;

use crate::activation::sigmoid;
use crate::elementwise::sum_of_squares;
use crate::isa::dispatch;
use crate::simd::{LANES, Simd};
use crate::{Buffer, Isa};

/// Independent chains of each sum over the elements of a key. One chain would wait for each addition.
const CHAINS: usize = 4;
/// Added to the sum of squares of a query or key.
const NORM_EPS: f32 = 1e-6;

/// The sizes of a gated delta net.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaShape {
    /// Query heads and key heads.
    pub key_heads: usize,
    /// Value heads, a multiple of the key heads.
    pub value_heads: usize,
    /// Dimension of queries and keys.
    pub key_dim: usize,
    /// Dimension of values.
    pub value_dim: usize,
    /// Width of the convolution: a token and those before it.
    pub width: usize,
    /// Whether value head `i` belongs to key head `i % key_heads` rather than to `i / (value_heads / key_heads)`.
    pub tiled: bool,
}

impl DeltaShape {
    /// Channels of the convolution: queries, keys and values of all heads.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.values()
    }

    /// Elements of the values of all heads.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Elements of a value head's matrix: blocks of sixteen columns, `(blocks, key_dim, 16)`.
    fn matrix(&self) -> usize {
        self.value_dim.next_multiple_of(LANES) * self.key_dim
    }

    fn matrices(&self) -> usize {
        self.value_heads * self.matrix()
    }

    /// Elements of the state after a token: the matrices, then the inputs of the last tokens that the convolution of
    /// the next one needs, `(width − 1, channels)`.
    pub fn state_len(&self) -> usize {
        self.matrices() + (self.width - 1) * self.channels()
    }

    fn key_head(&self, value_head: usize) -> usize {
        if self.tiled { value_head % self.key_heads } else { value_head / (self.value_heads / self.key_heads) }
    }
}

/// Weights other than those of products.
#[derive(Debug, Clone, Copy)]
pub struct DeltaWeights<'a> {
    /// `(width, channels)`, the oldest token first.
    pub convolution: &'a [f32],
    /// The factor of each value head's time step, below zero.
    pub decay: &'a [f32],
    /// The summand of each value head's time step.
    pub step_bias: &'a [f32],
}

/// Products of a batch's rows.
#[derive(Debug, Clone, Copy)]
pub struct DeltaInputs<'a> {
    /// Queries, keys and values, `(rows, channels)`.
    pub mixed: &'a [f32],
    /// Logits of β, `(rows, value_heads)`.
    pub rates: &'a [f32],
    /// Time steps before bias and softplus, `(rows, value_heads)`.
    pub steps: &'a [f32],
}

/// Consecutive tokens of a text in a batch.
#[derive(Debug)]
pub struct DeltaText<'a> {
    /// Number of rows, at least one.
    pub rows: usize,
    /// The state of the token before them; `None` at the beginning of a text.
    pub before: Option<&'a [f32]>,
    /// The state after them.
    pub after: &'a mut [f32],
}

/// Scratch memory.
#[derive(Default)]
pub struct DeltaRoom {
    /// Activated results of the convolution, with queries and keys of length one.
    mixed: Buffer<f32>,
    /// α and β of each value head, `(rows, value_heads, 2)`.
    gates: Buffer<f32>,
    /// Results, `(texts, value_heads, rows, value_dim)`.
    results: Buffer<f32>,
}

/// Computes the results `y` `(rows, values)` of consecutive texts and their new states.
///
/// # Panics
/// If a length does not fit the shape.
pub fn gated_delta(
    isa: Isa,
    shape: &DeltaShape,
    weights: DeltaWeights<'_>,
    inputs: DeltaInputs<'_>,
    texts: &mut [DeltaText<'_>],
    room: &mut DeltaRoom,
    y: &mut [f32],
) {
    let (channels, heads, values) = (shape.channels(), shape.value_heads, shape.values());
    let rows: usize = texts.iter().map(|text| text.rows).sum();
    assert!(inputs.mixed.len() == rows * channels && y.len() == rows * values, "inputs and y have a row per token");
    assert!(inputs.rates.len() == rows * heads && inputs.steps.len() == rows * heads, "a gate per head and token");
    assert!(weights.convolution.len() == shape.width * channels, "a weight per channel and tap");
    assert!(weights.decay.len() == heads && weights.step_bias.len() == heads, "a decay per head");
    assert!(texts.iter().all(|text| text.rows > 0 && text.after.len() == shape.state_len()), "a state per text");
    room.mixed.set_len(rows * channels);
    room.gates.set_len(rows * heads * 2);
    room.results.set_len(rows * values);
    let of_row: Vec<(usize, usize)> =
        texts.iter().enumerate().flat_map(|(text, of)| (0..of.rows).map(move |offset| (text, offset))).collect();
    {
        let texts = &*texts;
        let rows = room.mixed.par_chunks_mut(channels).zip(room.gates.par_chunks_mut(2 * heads)).zip(&of_row);
        rows.enumerate().for_each(|(row, ((mixed, gates), (text, offset)))| {
            let taps = taps(shape, inputs.mixed, row, *offset, texts[*text].before);
            let (taps, convolution) = (&taps[..], weights.convolution);
            dispatch!(isa, mix_row(shape: &DeltaShape, convolution: &[f32], taps: &[&[f32]], mixed: &mut [f32]));
            set_gates(weights, &inputs.steps[row * heads..][..heads], &inputs.rates[row * heads..][..heads], gates);
        });
    }
    run_heads(isa, shape, inputs.mixed, texts, room);
    // From one matrix per head to one row per token.
    let firsts: Vec<usize> = of_row.iter().enumerate().map(|(row, (_, offset))| row - offset).collect();
    let results = &*room.results;
    let texts = &*texts;
    y.par_chunks_mut(values).zip(&of_row).enumerate().for_each(|(row, (y, (text, offset)))| {
        for (head, y) in y.chunks_exact_mut(shape.value_dim).enumerate() {
            let first = firsts[row] * values + (head * texts[*text].rows + offset) * shape.value_dim;
            y.copy_from_slice(&results[first..][..shape.value_dim]);
        }
    });
}

/// The inputs of a row's convolution, the oldest first. Those before the beginning of a text are left out.
fn taps<'a>(
    shape: &DeltaShape,
    mixed: &'a [f32],
    row: usize,
    offset: usize,
    before: Option<&'a [f32]>,
) -> Vec<&'a [f32]> {
    let (channels, past) = (shape.channels(), shape.width - 1);
    let tap = |back: usize| match back {
        back if back <= offset => Some(&mixed[(row - back) * channels..][..channels]),
        back => before.map(|state| &state[shape.matrices() + (past + offset - back) * channels..][..channels]),
    };
    (0..shape.width).rev().filter_map(tap).collect()
}

/// α and β of a row.
fn set_gates(weights: DeltaWeights<'_>, steps: &[f32], rates: &[f32], gates: &mut [f32]) {
    for (head, gates) in gates.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let step = steps[head] + weights.step_bias[head];
        // Beyond 20 the two are equal in f32.
        let step = if step > 20.0 { step } else { libm::log1pf(libm::expf(step)) };
        *gates = [libm::expf(weights.decay[head] * step), 1.0 / (1.0 + libm::expf(-rates[head]))];
    }
}

/// The activated convolution of a row, with queries and keys of length one.
#[inline(always)]
fn mix_row<S: Simd>(shape: &DeltaShape, convolution: &[f32], taps: &[&[f32]], mixed: &mut [f32]) {
    let channels = mixed.len();
    // Weights of the tokens that exist.
    let weights = &convolution[(shape.width - taps.len()) * channels..];
    let lanes = |from: &[f32], at: usize| -> [f32; LANES] {
        let (mut lanes, rest) = ([0.0; LANES], &from[at..channels.min(at + LANES)]);
        lanes[..rest.len()].copy_from_slice(rest);
        lanes
    };
    for at in (0..channels).step_by(LANES) {
        let mut sum = S::splat(0.0);
        for (tap, weights) in taps.iter().zip(weights.chunks_exact(channels)) {
            sum = S::fma(S::load(&lanes(tap, at)), S::load(&lanes(weights, at)), sum);
        }
        let len = LANES.min(channels - at);
        mixed[at..at + len].copy_from_slice(&S::lanes(S::mul(sum, sigmoid::<S>(sum)))[..len]);
    }
    let keys = shape.key_heads * shape.key_dim;
    let (queries, rest) = mixed.split_at_mut(keys);
    // Queries also have the usual factor of scores.
    unit_heads::<S>(shape.key_dim, 1.0 / (shape.key_dim as f32).sqrt(), queries);
    unit_heads::<S>(shape.key_dim, 1.0, &mut rest[..keys]);
}

/// Divides each head by its length and multiplies it by `scale`.
#[inline(always)]
fn unit_heads<S: Simd>(key_dim: usize, scale: f32, x: &mut [f32]) {
    for x in x.chunks_exact_mut(key_dim) {
        let scale = scale / (sum_of_squares::<S>(x) + NORM_EPS).sqrt();
        for x in x {
            *x *= scale;
        }
    }
}

/// Runs the heads of all texts, writes their results and their states.
fn run_heads(isa: Isa, shape: &DeltaShape, inputs: &[f32], texts: &mut [DeltaText<'_>], room: &mut DeltaRoom) {
    let (channels, heads) = (shape.channels(), shape.value_heads);
    let DeltaRoom { mixed, gates, results } = room;
    let (mut tasks, mut first, mut results) = (Vec::with_capacity(texts.len() * heads), 0, &mut results[..]);
    for text in texts {
        let (matrices, tail) = text.after.split_at_mut(shape.matrices());
        set_tail(shape, &inputs[first * channels..][..text.rows * channels], text.before, tail);
        let (own, rest) = results.split_at_mut(text.rows * shape.values());
        results = rest;
        for (head, (matrix, y)) in
            matrices.chunks_exact_mut(shape.matrix()).zip(own.chunks_exact_mut(text.rows * shape.value_dim)).enumerate()
        {
            let before = text.before.map(|state| &state[head * shape.matrix()..][..shape.matrix()]);
            tasks.push((head, first, before, matrix, y));
        }
        first += text.rows;
    }
    let (mixed, gates) = (&mixed[..], &gates[..]);
    tasks.into_par_iter().for_each(|(head, first, before, matrix, y)| {
        match before {
            Some(before) => matrix.copy_from_slice(before),
            None => matrix.fill(0.0),
        }
        let (mixed, gates) = (&mixed[first * channels..], &gates[first * heads * 2..]);
        dispatch!(isa, run_head(
            shape: &DeltaShape,
            head: usize,
            mixed: &[f32],
            gates: &[f32],
            matrix: &mut [f32],
            y: &mut [f32],
        ));
    });
}

/// Stores the inputs that the convolution of the next token needs; zeros before the beginning of a text.
fn set_tail(shape: &DeltaShape, inputs: &[f32], before: Option<&[f32]>, tail: &mut [f32]) {
    let kept = tail.len().min(inputs.len());
    let (older, newer) = tail.split_at_mut(tail.len() - kept);
    newer.copy_from_slice(&inputs[inputs.len() - kept..]);
    match before {
        Some(before) => older.copy_from_slice(&before[shape.state_len() - older.len()..]),
        None => older.fill(0.0),
    }
}

/// Runs the rows of `y`, `(rows, value_dim)`, through a value head.
#[inline(always)]
fn run_head<S: Simd>(shape: &DeltaShape, head: usize, mixed: &[f32], gates: &[f32], matrix: &mut [f32], y: &mut [f32]) {
    let (channels, keys, key_head) = (shape.channels(), shape.key_heads * shape.key_dim, shape.key_head(head));
    let rows = y.len() / shape.value_dim;
    let blocks = matrix.as_chunks_mut::<LANES>().0.chunks_exact_mut(shape.key_dim);
    for (first, block) in (0..shape.value_dim).step_by(LANES).zip(blocks) {
        let len = LANES.min(shape.value_dim - first);
        for row in 0..rows {
            let mixed = &mixed[row * channels..][..channels];
            let query = &mixed[key_head * shape.key_dim..][..shape.key_dim];
            let key = &mixed[keys + key_head * shape.key_dim..][..shape.key_dim];
            let mut value = [0.0; LANES];
            value[..len].copy_from_slice(&mixed[2 * keys + head * shape.value_dim + first..][..len]);
            let gates = &gates[(row * shape.value_heads + head) * 2..][..2];
            let result = S::lanes(step::<S>(block, query, key, &value, (gates[0], gates[1])));
            y[row * shape.value_dim + first..][..len].copy_from_slice(&result[..len]);
        }
    }
}

/// One token: updates sixteen columns of a matrix, `(key_dim, 16)`, and returns their results.
#[inline(always)]
fn step<S: Simd>(
    block: &mut [[f32; LANES]],
    query: &[f32],
    key: &[f32],
    value: &[f32; LANES],
    (decay, rate): (f32, f32),
) -> S::F {
    let decay = S::splat(decay);
    let mut sums = [S::splat(0.0); CHAINS];
    let (whole, rest) = block.as_chunks::<CHAINS>();
    let (keys, last_keys) = key.as_chunks::<CHAINS>();
    for (columns, keys) in whole.iter().zip(keys) {
        for i in 0..CHAINS {
            sums[i] = S::fma(S::load(&columns[i]), S::splat(keys[i]), sums[i]);
        }
    }
    for (i, (columns, key)) in rest.iter().zip(last_keys).enumerate() {
        sums[i] = S::fma(S::load(columns), S::splat(*key), sums[i]);
    }
    let known = S::mul(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])), decay);
    let correction = S::mul(S::sub(S::load(value), known), S::splat(rate));
    let mut sums = [S::splat(0.0); CHAINS];
    let (whole, rest) = block.as_chunks_mut::<CHAINS>();
    let (queries, last_queries) = query.as_chunks::<CHAINS>();
    for ((columns, keys), queries) in whole.iter_mut().zip(keys).zip(queries) {
        for i in 0..CHAINS {
            let new = S::fma(S::splat(keys[i]), correction, S::mul(S::load(&columns[i]), decay));
            S::store(new, &mut columns[i]);
            sums[i] = S::fma(new, S::splat(queries[i]), sums[i]);
        }
    }
    for (i, ((columns, key), query)) in rest.iter_mut().zip(last_keys).zip(last_queries).enumerate() {
        let new = S::fma(S::splat(*key), correction, S::mul(S::load(columns), decay));
        S::store(new, columns);
        sums[i] = S::fma(new, S::splat(*query), sums[i]);
    }
    S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3]))
}
