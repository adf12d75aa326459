//! The output head: log-sum-exp over the vocabulary in blocks, so that the logits of many rows are never in memory
//! together.

use std::ops::Range;

use rayon::prelude::*;

use crate::Isa;
use crate::elementwise::soft_cap_part;
use crate::inputs::Inputs;
use crate::isa::dispatch;
use crate::matmul::row_blocks;
use crate::pack::{PANEL, PackedMatrix};
use crate::simd::{LANES, Simd};
use crate::tiles::PanelSums;
use crate::worker::{PanelStrip, with_scratch};

/// Logits per block: their exponentials relative to the block's maximum are summed in f32, lane by lane.
const BLOCK: usize = 512;
/// Panels per block.
const PANELS: usize = BLOCK / PANEL;
/// 32-bit words per block.
const WORDS: usize = BLOCK / u32::BITS as usize;
/// Blocks that are recomputed together, on all threads, before checking whether others can matter.
const AT_ONCE: usize = 4;

/// The matrix that computes logits from hidden states.
#[derive(Clone, Copy)]
pub struct HeadMatrix<'a> {
    /// `(vocab_size, hidden_size)`.
    pub weights: &'a PackedMatrix,
    /// Bias of the logits.
    pub bias: Option<&'a [f32]>,
    /// Soft cap of logits: `z` becomes `cap · tanh(z / cap)`.
    pub cap: Option<f32>,
}

/// Summary of a row of logits.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadRow {
    /// log Σ exp over the whole vocabulary; not finite if a logit is NaN or +∞.
    pub normaliser: f64,
    /// The token with the largest logit, the lowest id in case of ties; arbitrary if the normaliser is not finite.
    pub greedy: u32,
    /// The requested logits.
    pub logits: Vec<f32>,
    /// The largest logit of each block of the vocabulary, for [`greedy_among`]; empty if the head was not computed in
    /// blocks.
    pub block_max: Vec<f32>,
}

/// Computes the products `x · Wᵀ + b` of the rows in `inputs` with an output head, and reduces each row to its
/// [`HeadRow`] with the logits of the token ids in `asked`, one list per row.
///
/// Logits are those of [`matmul`](crate::matmul), and of [`soft_cap`](crate::soft_cap) if there is a cap. Normalisers
/// are those of [`log_sum_exp`] over them.
pub fn head(isa: Isa, inputs: &Inputs, head: HeadMatrix<'_>, asked: &[Vec<u32>]) -> Vec<HeadRow> {
    let weights = head.weights;
    assert!(head.bias.is_none_or(|bias| bias.len() == weights.out_features()), "a bias for each token");
    assert_eq!(
        (inputs.rows(), inputs.width()),
        (asked.len(), weights.in_features()),
        "a list of tokens for each row of the head's width"
    );
    let blocks: Vec<VocabularyBlock> = (0..weights.panels())
        .step_by(PANELS)
        .collect::<Vec<_>>()
        .into_par_iter()
        .map(|first| block(isa, inputs, head, first..weights.panels().min(first + PANELS), asked))
        .collect();
    let row = |row: usize| {
        let parts = blocks.iter().map(|block| block.parts[row]);
        let (normaliser, greedy) =
            combine(parts.enumerate().map(|(index, part)| HeadPart { greedy: part.greedy + index * BLOCK, ..part }));
        let logit = |token: &u32| {
            blocks[*token as usize / BLOCK].logits[row].iter().find(|(id, _)| id == token).map(|(_, logit)| *logit)
        };
        let logits = asked[row].iter().map(|token| logit(token).expect("its block was computed")).collect();
        let block_max = blocks.iter().map(|block| block.parts[row].max).collect();
        HeadRow { normaliser, greedy: greedy as u32, logits, block_max }
    };
    (0..asked.len()).map(row).collect()
}

/// The token with the largest logit among those set in `allowed`, a bit set in 32-bit words; the lowest id in case of
/// ties, `None` if all of them are −∞. `inputs` hold one row, whose [`HeadRow`] from the same head is `row`, with a
/// finite normaliser.
///
/// Only blocks are recomputed that contain an allowed token and whose largest logit is not below the current maximum.
pub fn greedy_among(isa: Isa, inputs: &Inputs, head: HeadMatrix<'_>, row: &HeadRow, allowed: &[u32]) -> Option<u32> {
    let panels = head.weights.panels();
    assert_eq!((inputs.rows(), row.block_max.len()), (1, panels.div_ceil(PANELS)), "one row, whose blocks are known");
    let words = |block: usize| allowed.get(block * WORDS..).map_or(&[][..], |words| &words[..WORDS.min(words.len())]);
    let mut blocks: Vec<usize> =
        (0..row.block_max.len()).filter(|block| words(*block).iter().any(|word| *word != 0)).collect();
    // In descending order, to recompute as few as possible.
    blocks.sort_by(|a, b| row.block_max[*b].total_cmp(&row.block_max[*a]));
    let mut best: Option<(f32, usize)> = None;
    for blocks in blocks.chunks(AT_ONCE) {
        let open =
            blocks.iter().filter(|block| best.is_none_or(|(largest, _)| row.block_max[**block] >= largest)).copied();
        let found: Vec<Option<(f32, usize)>> = open
            .collect::<Vec<_>>()
            .into_par_iter()
            .map(|block| {
                let mut found = None;
                each_row(isa, inputs, head, block * PANELS..panels.min((block + 1) * PANELS), |_, logits| {
                    found = likeliest_among(logits, words(block)).map(|(logit, id)| (logit, block * BLOCK + id));
                });
                found
            })
            .collect();
        if found.is_empty() {
            break;
        }
        let better = |(logit, id): &(f32, usize), (largest, first): &(f32, usize)| {
            logit > largest || logit == largest && id < first
        };
        best = found.into_iter().flatten().chain(best).reduce(|a, b| if better(&b, &a) { b } else { a });
    }
    best.map(|(_, id)| id as u32)
}

/// The largest allowed logit above −∞ and its first index. `allowed` is a bit set in 32-bit words, and may be longer or
/// shorter than `logits`.
pub fn likeliest_among(logits: &[f32], allowed: &[u32]) -> Option<(f32, usize)> {
    let mut best = (f32::NEG_INFINITY, 0);
    for (word, (bits, logits)) in
        allowed.iter().zip(logits.chunks(u32::BITS as usize)).enumerate().filter(|(_, (bits, _))| **bits != 0)
    {
        for (bit, logit) in logits.iter().enumerate() {
            if bits >> bit & 1 == 1 && *logit > best.0 {
                best = (*logit, word * u32::BITS as usize + bit);
            }
        }
    }
    (best.0 > f32::NEG_INFINITY).then_some(best)
}

/// Per-row results of a block of the vocabulary.
struct VocabularyBlock {
    parts: Vec<HeadPart>,
    /// Requested tokens with their logits.
    logits: Vec<Vec<(u32, f32)>>,
}

fn block(isa: Isa, inputs: &Inputs, head: HeadMatrix<'_>, panels: Range<usize>, asked: &[Vec<u32>]) -> VocabularyBlock {
    let first = panels.start * PANEL;
    let mut block = VocabularyBlock { parts: Vec::with_capacity(asked.len()), logits: Vec::with_capacity(asked.len()) };
    each_row(isa, inputs, head, panels, |row, logits| {
        let wanted = asked[row].iter().filter(|token| (first..first + logits.len()).contains(&(**token as usize)));
        block.logits.push(wanted.map(|token| (*token, logits[*token as usize - first])).collect());
        block.parts.push(part(isa, logits));
    });
    block
}

/// Calls a function with the logits of a block's panels for each row.
fn each_row(
    isa: Isa,
    inputs: &Inputs,
    head: HeadMatrix<'_>,
    panels: Range<usize>,
    mut take: impl FnMut(usize, &[f32]),
) {
    let HeadMatrix { weights, bias, cap } = head;
    let first = panels.start * PANEL;
    let len = BLOCK.min(weights.out_features() - first);
    let strips: Vec<PanelStrip<'_>> = panels.map(|panel| PanelStrip { weights, panel }).collect();
    with_scratch(|scratch| {
        for rows in row_blocks(inputs.rows()) {
            let rows_held = scratch.sums(isa, inputs, &strips, rows.clone());
            for (index, row) in rows.enumerate() {
                let mut logits = [0.0; BLOCK];
                for (to, sums) in logits.as_chunks_mut::<PANEL>().0.iter_mut().zip(scratch.sums.chunks_exact(rows_held))
                {
                    let sums: &PanelSums = &sums[index];
                    to.copy_from_slice(sums.as_flattened());
                }
                let logits = &mut logits[..len];
                if let Some(bias) = bias {
                    logits.iter_mut().zip(&bias[first..]).for_each(|(logit, bias)| *logit += bias);
                }
                if let Some(cap) = cap {
                    let scale = 1.0;
                    dispatch!(isa, soft_cap_part(scale: f32, cap: f32, logits: &mut [f32]));
                }
                take(row, logits);
            }
        }
    });
}

/// A block's contribution to a row.
#[derive(Debug, Clone, Copy)]
struct HeadPart {
    /// The largest logit; NaN if one is NaN or +∞.
    max: f32,
    /// The first index of the largest logit.
    greedy: usize,
    /// Σ exp(x − max).
    sum: f32,
}

/// Summarises a block of at most 512 `logits`.
fn part(isa: Isa, logits: &[f32]) -> HeadPart {
    let mut part = HeadPart { max: f32::NEG_INFINITY, greedy: 0, sum: 0.0 };
    let to = &mut part;
    dispatch!(isa, sum_block(logits: &[f32], to: &mut HeadPart));
    part
}

#[inline(always)]
fn sum_block<S: Simd>(logits: &[f32], part: &mut HeadPart) {
    // Comparisons with NaN are false; the sum then reveals it.
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for logits in logits.chunks(LANES) {
        lanes.iter_mut().zip(logits).for_each(|(lane, logit)| *lane = if *logit > *lane { *logit } else { *lane });
    }
    part.max = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    part.greedy = logits.iter().position(|logit| *logit == part.max).unwrap_or(0);
    if part.max == f32::NEG_INFINITY {
        part.max = if logits.iter().any(|logit| logit.is_nan()) { f32::NAN } else { part.max };
        return;
    }
    // Relative to the block's own maximum: the block's sum is final before other blocks are known, and combining sums
    // in f64 later cannot change its bits.
    let max = S::splat(part.max);
    let (whole, rest) = logits.as_chunks::<LANES>();
    let mut sum = S::splat(0.0);
    for x in whole {
        sum = S::add(sum, S::exp(S::sub(S::load(x), max)));
    }
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let mut last = S::lanes(S::exp(S::sub(S::load(&last), max)));
    last[rest.len()..].fill(0.0);
    part.sum = S::sum(S::add(sum, S::load(&last)));
    if !part.max.is_finite() || !part.sum.is_finite() {
        part.max = f32::NAN;
    }
}

/// The normaliser and the first largest logit, from the parts in order of the vocabulary.
fn combine(parts: impl Iterator<Item = HeadPart> + Clone) -> (f64, usize) {
    let (mut max, mut greedy) = (f32::NEG_INFINITY, 0);
    for part in parts.clone() {
        // The first block that is not finite determines the result.
        if part.max.is_nan() {
            return (f64::NAN, part.greedy);
        }
        if part.max > max {
            (max, greedy) = (part.max, part.greedy);
        }
    }
    let relative = |part: HeadPart| f64::from(part.sum) * libm::exp(f64::from(part.max) - f64::from(max));
    let total: f64 = parts.filter(|part| part.max > f32::NEG_INFINITY).map(relative).sum();
    (f64::from(max) + libm::log(total), greedy)
}

/// `log Σ exp(x)` of each row of `(rows, width)`, in f64; NaN if an element is NaN or +∞.
///
/// Exponentials are f32, relative to the maximum of their block of 512, and added lane by lane. The blocks' sums are
/// added in f64, so that the tail of a vocabulary is not lost.
pub fn log_sum_exp(isa: Isa, x: &[f32], width: usize) -> Vec<f64> {
    assert!(width > 0 && x.len().is_multiple_of(width), "x is (rows, {width})");
    x.par_chunks(width)
        .map(|row| {
            let parts: Vec<HeadPart> = row.chunks(BLOCK).map(|block| part(isa, block)).collect();
            combine(parts.into_iter()).0
        })
        .collect()
}
