//! What a stack begins with: rows of token embeddings, with positions and the kind of text added where a model learned
//! them.

use candle_core::{Result, bail};
use probity_kernels::Isa;
use rayon::prelude::*;

use crate::SourceError;
use crate::cpu::{NormKind, NormWeights, Workspace};
use crate::linear::{TensorLoader, TokenEmbedding};

/// What distinguishes one model's embeddings from another's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EmbeddingsConfig {
    /// Names of the token embeddings; checkpoints that tie several keep one of them.
    pub(crate) tokens: &'static [&'static str],
    pub(crate) vocab_size: usize,
    pub(crate) width: usize,
    /// Factor of the token embeddings.
    pub(crate) scale: Option<f32>,
    pub(crate) positions: Option<PositionTable>,
    /// The table of kinds of text, of so many rows; all text is of the first kind.
    pub(crate) types: Option<(&'static str, usize)>,
    /// The norm of the sum.
    pub(crate) norm: Option<(&'static str, f64)>,
}

/// A table of learned positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PositionTable {
    pub(crate) name: &'static str,
    pub(crate) rows: usize,
    /// The row of the first position.
    pub(crate) first: usize,
}

pub(crate) struct Embeddings {
    tokens: TokenEmbedding,
    scale: Option<f32>,
    /// From the first position's row on.
    positions: Option<Vec<f32>>,
    kind: Option<Vec<f32>>,
    norm: Option<NormWeights>,
    width: usize,
}

impl Embeddings {
    pub(crate) fn load(loader: &TensorLoader<'_>, c: &EmbeddingsConfig) -> std::result::Result<Self, SourceError> {
        let positions = |p: &PositionTable| Ok(loader.floats(p.name, &[p.rows, c.width])?.split_off(p.first * c.width));
        let kind = |(name, rows): (&str, usize)| {
            let mut table = loader.floats(name, &[rows, c.width])?;
            table.truncate(c.width);
            Ok(table)
        };
        Ok(Self {
            tokens: loader.embedding(loader.first_of(c.tokens), [c.vocab_size, c.width])?,
            scale: c.scale,
            positions: c.positions.as_ref().map(positions).transpose()?,
            kind: c.types.map(kind).transpose()?,
            norm: c
                .norm
                .map(|(name, eps)| NormWeights::load(loader, name, c.width, (NormKind::Layer, eps)))
                .transpose()?,
            width: c.width,
        })
    }

    /// Writes the rows of some stretches of text, each tokens and the position of the first, to `w.x` `(tokens,
    /// width)`.
    pub(crate) fn rows(&self, isa: Isa, w: &mut Workspace, stretches: &[(&[u32], usize)]) -> Result<()> {
        let tokens: Vec<u32> = stretches.iter().flat_map(|(tokens, _)| tokens.iter().copied()).collect();
        let positions: Vec<usize> = stretches.iter().flat_map(|(tokens, start)| *start..start + tokens.len()).collect();
        let last = positions.iter().max().copied().unwrap_or(0);
        if let Some(table) = self.positions.as_ref().filter(|table| table.len() / self.width <= last) {
            bail!("position {last} is beyond the {} that the model learned", table.len() / self.width);
        }
        w.x.set_len(tokens.len() * self.width);
        self.tokens.rows(&tokens, &mut w.x)?;
        w.x.par_chunks_exact_mut(self.width).with_min_len(16).zip(positions).for_each(|(row, position)| {
            if let Some(scale) = self.scale {
                for x in row.iter_mut() {
                    *x *= scale;
                }
            }
            // In the reference's order: sums of f32 depend on it.
            if let Some(kind) = &self.kind {
                row.iter_mut().zip(kind).for_each(|(x, kind)| *x += kind);
            }
            if let Some(table) = &self.positions {
                row.iter_mut().zip(&table[position * self.width..]).for_each(|(x, at)| *x += at);
            }
        });
        w.settle(isa, self.norm.as_ref().map(NormWeights::norm));
        Ok(())
    }
}
