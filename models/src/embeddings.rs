//! The input of a stack: token embeddings, plus learned positions and segment types in models that have them.

use candle_core::{Result, bail};
use probity_kernels::Isa;
use rayon::prelude::*;

use crate::SourceError;
use crate::cpu::{NormKind, NormWeights, Workspace};
use crate::linear::{TensorLoader, TokenEmbedding};

/// The embedding configuration of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EmbeddingsConfig {
    /// Names of the token embeddings; checkpoints that tie several tables store one of them.
    pub(crate) tokens: &'static [&'static str],
    pub(crate) vocab_size: usize,
    pub(crate) width: usize,
    /// Factor of the token embeddings.
    pub(crate) scale: Option<f32>,
    pub(crate) positions: Option<PositionTable>,
    /// The segment type table and its number of rows.
    pub(crate) types: Option<(&'static str, usize)>,
    /// The norm of the sum: its name, kind and epsilon.
    pub(crate) norm: Option<(&'static str, NormKind, f64)>,
}

/// Consecutive tokens of a text.
pub(crate) struct EmbeddedText<'a> {
    pub(crate) tokens: &'a [u32],
    /// The position of the first token.
    pub(crate) start: usize,
    /// The number of tokens of the first segment type; the others have the second.
    pub(crate) first: usize,
}

impl<'a> EmbeddedText<'a> {
    /// Tokens of the first segment type only.
    pub(crate) fn new(tokens: &'a [u32], start: usize) -> Self {
        Self { tokens, start, first: tokens.len() }
    }
}

/// The position of each token, and whether it has the second segment type. `kinds` and `positions` are the numbers of
/// rows of the tables; a position beyond its table is an error.
pub(crate) fn token_places(
    texts: &[EmbeddedText<'_>],
    kinds: usize,
    positions: Option<usize>,
) -> Result<Vec<(usize, bool)>> {
    let places: Vec<(usize, bool)> = texts
        .iter()
        .flat_map(|text| (0..text.tokens.len()).map(|at| (text.start + at, kinds > 1 && at >= text.first)))
        .collect();
    let last = places.iter().map(|(position, _)| *position).max().unwrap_or(0);
    match positions.filter(|learned| *learned <= last) {
        Some(learned) => bail!("position {last} is beyond the {learned} learned positions"),
        None => Ok(places),
    }
}

/// A table of learned positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PositionTable {
    pub(crate) name: &'static str,
    pub(crate) rows: usize,
    /// The row of position 0.
    pub(crate) first: usize,
}

pub(crate) struct Embeddings {
    tokens: TokenEmbedding,
    scale: Option<f32>,
    /// From the row of position 0.
    positions: Option<Vec<f32>>,
    /// Rows of the segment types.
    kinds: Option<Vec<f32>>,
    norm: Option<NormWeights>,
    width: usize,
}

impl Embeddings {
    pub(crate) fn load(loader: &TensorLoader<'_>, c: &EmbeddingsConfig) -> std::result::Result<Self, SourceError> {
        let positions = |p: &PositionTable| Ok(loader.floats(p.name, &[p.rows, c.width])?.split_off(p.first * c.width));
        let kinds = |(name, rows): (&str, usize)| loader.floats(name, &[rows, c.width]);
        Ok(Self {
            tokens: loader.embedding(loader.first_of(c.tokens), [c.vocab_size, c.width])?,
            scale: c.scale,
            positions: c.positions.as_ref().map(positions).transpose()?,
            kinds: c.types.map(kinds).transpose()?,
            norm: c.norm.map(|(name, kind, eps)| NormWeights::load(loader, name, c.width, (kind, eps))).transpose()?,
            width: c.width,
        })
    }

    /// Releases the memory pages of rows that were read.
    pub(crate) fn release(&self) {
        self.tokens.release();
    }

    /// Writes the embedded rows of some texts to `w.x` `(tokens, width)`.
    pub(crate) fn rows(&self, isa: Isa, w: &mut Workspace, texts: &[EmbeddedText<'_>]) -> Result<()> {
        let tokens: Vec<u32> = texts.iter().flat_map(|text| text.tokens.iter().copied()).collect();
        let rows = |table: &Vec<f32>| table.len() / self.width;
        let places = token_places(texts, self.kinds.as_ref().map_or(0, rows), self.positions.as_ref().map(rows))?;
        w.x.set_len(tokens.len() * self.width);
        self.tokens.rows(&tokens, &mut w.x)?;
        w.x.par_chunks_exact_mut(self.width).with_min_len(16).zip(places).for_each(|(row, (position, second))| {
            if let Some(scale) = self.scale {
                for x in row.iter_mut() {
                    *x *= scale;
                }
            }
            // In the reference's order, since f32 sums depend on it.
            if let Some(kinds) = &self.kinds {
                row.iter_mut().zip(&kinds[usize::from(second) * self.width..]).for_each(|(x, kind)| *x += kind);
            }
            if let Some(table) = &self.positions {
                row.iter_mut().zip(&table[position * self.width..]).for_each(|(x, at)| *x += at);
            }
        });
        w.settle(isa, self.norm.as_ref().map(NormWeights::norm));
        Ok(())
    }
}
