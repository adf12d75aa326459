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
    /// The table of kinds of text, of so many rows.
    pub(crate) types: Option<(&'static str, usize)>,
    /// The norm of the sum: its name, kind, and what it adds to a variance.
    pub(crate) norm: Option<(&'static str, NormKind, f64)>,
}

/// A stretch of a text that is embedded.
pub(crate) struct EmbeddedText<'a> {
    pub(crate) tokens: &'a [u32],
    /// The position of the first.
    pub(crate) start: usize,
    /// How many of them are of the first kind of text; the others are of the second.
    pub(crate) first: usize,
}

impl<'a> EmbeddedText<'a> {
    /// All of one kind.
    pub(crate) fn new(tokens: &'a [u32], start: usize) -> Self {
        Self { tokens, start, first: tokens.len() }
    }
}

/// Of each token its position, and whether it is of the second kind of text, where there are as many `kinds`. A position
/// beyond the table of so many is an error.
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
        Some(learned) => bail!("position {last} is beyond the {learned} that the model learned"),
        None => Ok(places),
    }
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
    /// Rows of the kinds of text.
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

    /// Gives the pages of the rows that were read back to the system.
    pub(crate) fn release(&self) {
        self.tokens.release();
    }

    /// Writes the rows of some stretches of text to `w.x` `(tokens, width)`.
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
            // In the reference's order: sums of f32 depend on it.
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
