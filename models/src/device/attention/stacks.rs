//! Grouping of a batch's attention: pieces of similar shape in stacks, and positions shared by several texts.

use std::collections::BTreeMap;
use std::ops::Range;

use candle_core::{Device, Result, Tensor};

use super::{AttendingRows, DistanceBias, Sight};
use crate::device::distances::DistancePlaces;
use crate::device::memory::BatchSize;
use crate::stack_config::StackConfig;

/// Rows of a text that attend at once.
pub(in crate::device) const BLOCK_ROWS: usize = 512;
/// Scores in memory at once, over all heads: 64 MiB of f32, and well below the 32-bit limit of candle's kernels.
pub(in crate::device) const MOST_SCORES: usize = 1 << 24;
/// Limit on keys gathered for one product: 256 MiB of f32.
const MOST_COPIED: usize = 1 << 26;
/// A shared range is read separately if that saves copying at least this many positions.
const WORTH_SHARING: usize = 256;
/// Maximum number of such ranges; those that save most are used.
const MOST_SHARED: usize = 4;

/// Some rows of a text and what they see.
#[derive(Debug)]
pub(super) struct StackPiece {
    /// Rows of the batch.
    pub(super) rows: Range<usize>,
    /// The first row's position.
    pub(super) first: usize,
    /// Slots and positions that at least one row sees, except those in shared ranges.
    pub(super) keys: Vec<(usize, usize)>,
}

/// Indices in a dimension.
pub(super) enum StackPositions {
    /// Consecutive.
    Stretch(Range<usize>),
    /// Arbitrary.
    Gathered(Tensor),
}

impl StackPositions {
    pub(super) fn new(places: &[usize], device: &Device) -> Result<Self> {
        let first = places.first().copied().unwrap_or(0);
        if places.iter().enumerate().all(|(at, place)| *place == first + at) {
            return Ok(Self::Stretch(first..first + places.len()));
        }
        let ids: Vec<u32> = places.iter().map(|place| *place as u32).collect();
        Ok(Self::Gathered(Tensor::from_vec(ids, places.len(), device)?))
    }

    /// Selects in the second dimension.
    pub(super) fn select(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Stretch(range) => x.narrow(1, range.start, range.len()),
            Self::Gathered(ids) => x.contiguous()?.index_select(ids, 1),
        }
    }
}

/// Terms added to scores.
pub(super) enum Summands {
    Nothing,
    /// `(1, pieces, 1, rows, keys)`: 0 if a row sees a position, otherwise −∞.
    Mask(Tensor),
    /// Indices into the bias table for all pieces, rows and keys. The biases themselves would need one copy per head
    /// for the duration of the batch.
    Distances(Tensor),
}

/// Pieces that attend at once, padded to the same number of rows and keys. Padding is masked.
pub(super) struct PieceStack {
    pub(super) pieces: usize,
    pub(super) rows: usize,
    pub(super) keys: usize,
    pub(super) query_places: StackPositions,
    pub(super) key_places: StackPositions,
    pub(super) summands: Summands,
    /// For relative position terms.
    pub(super) distances: Option<DistancePlaces>,
}

/// A range of positions that several texts see completely, and the rows of these texts.
pub(super) struct SharedStretch {
    pub(super) keys: Range<usize>,
    /// In groups that may attend at once.
    pub(super) rows: Vec<StackPositions>,
    /// For each row of the batch, its index among the results; rows without one use the index after the last, an empty
    /// result. `None` if all rows read the range, in order.
    pub(super) places: Option<Tensor>,
}

/// Ranges shared by several texts that are worth reading separately, by slot.
pub(super) fn worth_sharing(texts: &[AttendingRows], sight: Sight) -> Vec<Range<usize>> {
    // For each range: how many texts contain it, and how many see all of it in every row.
    let mut stretches: BTreeMap<(usize, usize), (usize, usize)> = BTreeMap::new();
    for text in texts {
        let (positions, mut first) = (text.positions(), 0);
        for range in &text.seen {
            let end = first + range.len();
            let is_whole = match sight {
                Sight::Around { window } => window.is_none(),
                // It ends before the text's own positions and begins within the window of the last row.
                Sight::UpToOwn { window } => {
                    end + text.rows <= positions && window.is_none_or(|window| positions <= first + window)
                }
            };
            let (texts, whole) = stretches.entry((range.start, range.end)).or_default();
            *texts += 1;
            *whole += usize::from(is_whole);
            first = end;
        }
    }
    let mut shared: Vec<(usize, Range<usize>)> = stretches
        .into_iter()
        .filter(|(_, (texts, whole))| texts == whole)
        .map(|((start, end), (texts, _))| ((texts - 1) * (end - start), start..end))
        .filter(|(saved, _)| *saved >= WORTH_SHARING)
        .collect();
    shared.sort_by_key(|(saved, range)| (std::cmp::Reverse(*saved), range.start));
    shared.truncate(MOST_SHARED);
    shared.into_iter().map(|(_, range)| range).collect()
}

/// Divides the rows of all texts into pieces that may attend at once.
pub(super) fn pieces(texts: &[AttendingRows], sight: Sight, shared: &[Range<usize>], heads: usize) -> Vec<StackPiece> {
    let (mut pieces, mut row) = (Vec::new(), 0);
    for text in texts {
        let positions = text.positions();
        let first = match sight {
            Sight::Around { .. } => 0,
            Sight::UpToOwn { .. } => positions - text.rows,
        };
        let mut keys: Vec<(usize, usize)> = Vec::with_capacity(positions);
        let mut start = 0;
        for range in &text.seen {
            if !shared.contains(range) {
                keys.extend(range.clone().zip(start..));
            }
            start += range.len();
        }
        let most = (MOST_SCORES / (heads * keys.len().max(1))).clamp(1, BLOCK_ROWS);
        for begin in (0..text.rows).step_by(most) {
            let end = (begin + most).min(text.rows);
            // A window reduces the positions that are read, not only the mask.
            let (from, to) = (first + begin, first + end - 1);
            let seen = sight.bounds(from).0..=sight.bounds(to).1;
            let keys: Vec<_> = keys.iter().copied().filter(|(_, position)| seen.contains(position)).collect();
            if !keys.is_empty() {
                pieces.push(StackPiece { rows: row + begin..row + end, first: from, keys });
            }
        }
        row += text.rows;
    }
    pieces
}

/// Stacks pieces of similar shape, for this number of heads and width of all keys. Returns the stacks, each batch row's
/// index among all results, and the number of results.
pub(super) fn stacked(
    pieces: &[StackPiece],
    (heads, key_width): (usize, usize),
    rows: usize,
) -> (Vec<Vec<&StackPiece>>, Vec<Option<usize>>, usize) {
    let mut alike: BTreeMap<(usize, usize), Vec<&StackPiece>> = BTreeMap::new();
    for piece in pieces {
        // With shapes rounded up to powers of two, padding at most doubles rows and keys, and there are few shapes for
        // any number of texts.
        let shape = (piece.rows.len().next_power_of_two(), piece.keys.len().next_power_of_two());
        alike.entry(shape).or_default().push(piece);
    }
    let (mut stacks, mut places, mut next) = (Vec::new(), vec![None; rows], 0);
    for ((most_rows, most_keys), pieces) in alike {
        let at_once = MOST_SCORES / (heads * most_rows * most_keys);
        let at_once = at_once.min(MOST_COPIED / (key_width * most_keys)).max(1);
        for stack in pieces.chunks(at_once) {
            let height = most(stack, |piece| piece.rows.len());
            for (piece, first) in stack.iter().zip((next..).step_by(height)) {
                piece.rows.clone().zip(first..).for_each(|(row, place)| places[row] = Some(place));
            }
            next += stack.len() * height;
            stacks.push(stack.to_vec());
        }
    }
    (stacks, places, next)
}

/// The shape of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::device) struct StackShape {
    pub(in crate::device) pieces: usize,
    pub(in crate::device) rows: usize,
    pub(in crate::device) keys: usize,
}

/// Estimates the largest stack of such a batch without building it, as [`pieces`] and [`stacked`] would. `positions` is
/// what a row sees within its window; the pair is the number of heads and the width of all keys.
pub(in crate::device) fn largest_stack(
    size: BatchSize,
    positions: usize,
    (heads, key_width): (usize, usize),
) -> StackShape {
    let own = size.own.min(size.rows).clamp(1, positions);
    let rows = (MOST_SCORES / (heads * positions).max(1)).clamp(1, BLOCK_ROWS.min(own));
    let stack = |keys: usize, blocks: fn(usize, usize) -> usize| {
        let power = keys.next_power_of_two();
        let at_once = MOST_SCORES / (heads * rows.next_power_of_two() * power).max(1);
        let at_once = at_once.min(MOST_COPIED / (key_width * power).max(1)).max(1);
        let blocks = blocks(keys.saturating_sub((power / 2).max(positions - own)), rows);
        StackShape { pieces: (size.rows / own * blocks).min(at_once), rows, keys }
    };
    // The last blocks of a text have keys up to the same power of two, earlier blocks up to half of it.
    let last = stack(positions, usize::div_ceil);
    let before = stack(positions.next_power_of_two() / 2, std::ops::Div::div);
    let pairs = |stack: StackShape| stack.pieces * stack.rows * stack.keys;
    if pairs(before) > pairs(last) { before } else { last }
}

fn most(pieces: &[&StackPiece], of: impl Fn(&StackPiece) -> usize) -> usize {
    pieces.iter().map(|piece| of(piece)).max().unwrap_or(0)
}

/// Indices to select each row's result; `None` if the results are already in order. A row without a result takes index
/// `results`.
pub(super) fn result_places(places: &[Option<usize>], results: usize, device: &Device) -> Result<Option<Tensor>> {
    if places.len() == results && places.iter().enumerate().all(|(row, place)| *place == Some(row)) {
        return Ok(None);
    }
    let ids: Vec<u32> = places.iter().map(|place| place.unwrap_or(results) as u32).collect();
    Ok(Some(Tensor::from_vec(ids, places.len(), device)?))
}

impl StackPiece {
    /// Whether the piece fills this shape and all its rows see all its keys.
    fn sees_all(&self, rows: usize, keys: usize, sight: Sight) -> bool {
        let (first, last) = (self.keys[0].1, self.keys[self.keys.len() - 1].1);
        let of_first = sight.bounds(self.first).1;
        let of_last = sight.bounds(self.first + self.rows.len() - 1).0;
        self.rows.len() == rows && self.keys.len() == keys && last <= of_first && of_last <= first
    }
}

/// Positions of a stack's rows and keys, and the bounds of visible positions, as floats: `(1, pieces, 1, rows, 1)` for
/// rows and `(1, pieces, 1, 1, keys)` for keys.
pub(super) struct SeenPairs {
    rows: Tensor,
    first: Tensor,
    last: Tensor,
    keys: Tensor,
}

impl SeenPairs {
    pub(super) fn new(
        pieces: &[&StackPiece],
        (rows, keys): (usize, usize),
        sight: Sight,
        device: &Device,
    ) -> Result<Self> {
        // Positions are small enough for exact f32. Padding keys are hidden from all rows, and padding rows see all
        // keys.
        let of_rows = |of: &dyn Fn(usize) -> f32, filled: f32| {
            let piece = |piece: &&StackPiece| {
                let (first, len) = (piece.first, piece.rows.len());
                (0..rows).map(move |row| (row < len).then_some(first + row)).collect::<Vec<_>>()
            };
            let values: Vec<f32> = pieces.iter().flat_map(piece).map(|row| row.map_or(filled, of)).collect();
            Tensor::from_vec(values, (1, pieces.len(), 1, rows, 1), device)
        };
        let of_keys = |piece: &&StackPiece| {
            let positions: Vec<f32> = piece.keys.iter().map(|(_, position)| *position as f32).collect();
            positions.into_iter().chain(std::iter::repeat(f32::INFINITY)).take(keys)
        };
        let positions: Vec<f32> = pieces.iter().flat_map(of_keys).collect();
        Ok(Self {
            rows: of_rows(&|row| row as f32, 0.0)?,
            first: of_rows(&|row| sight.bounds(row).0 as f32, 0.0)?,
            last: of_rows(&|row| sight.bounds(row).1 as f32, f32::MAX)?,
            keys: Tensor::from_vec(positions, (1, pieces.len(), 1, 1, keys), device)?,
        })
    }

    /// 1 if a row sees a key, otherwise 0.
    pub(super) fn is_seen(&self) -> Result<Tensor> {
        self.mask()?.ge(0f32)
    }

    /// 0 if a row sees a key, otherwise −∞.
    pub(super) fn mask(&self) -> Result<Tensor> {
        let hides = |seen: &Tensor| -> Result<Tensor> {
            let of = |value: f32| Tensor::full(value, seen.shape(), seen.device());
            seen.where_cond(&of(0.0)?, &of(f32::NEG_INFINITY)?)
        };
        hides(&self.keys.broadcast_le(&self.last)?)? + hides(&self.keys.broadcast_ge(&self.first)?)?
    }

    pub(super) fn distances(&self) -> Result<Tensor> {
        self.keys.broadcast_sub(&self.rows)
    }
}

impl PieceStack {
    pub(super) fn new(
        pieces: &[&StackPiece],
        sight: Sight,
        bias: Option<&DistanceBias>,
        config: &StackConfig,
        device: &Device,
    ) -> Result<Self> {
        let (rows, keys) = (most(pieces, |piece| piece.rows.len()), most(pieces, |piece| piece.keys.len()));
        // Padding repeats the first.
        let rows_of = |piece: &&StackPiece| piece.rows.clone().chain(std::iter::repeat(piece.rows.start)).take(rows);
        let keys_of = |at: usize| {
            let slots = pieces[at].keys.iter().map(|(slot, _)| *slot);
            slots.chain(std::iter::repeat(pieces[at].keys[0].0)).take(keys)
        };
        let query_places: Vec<usize> = pieces.iter().flat_map(rows_of).collect();
        let key_places: Vec<usize> = (0..pieces.len()).flat_map(keys_of).collect();
        let seen = || SeenPairs::new(pieces, (rows, keys), sight, device);
        let summands = match bias {
            Some(bias) => {
                let seen = seen()?;
                Summands::Distances(bias.places(&seen.distances()?, &seen.is_seen()?)?)
            }
            None if pieces.iter().all(|piece| piece.sees_all(rows, keys, sight)) => Summands::Nothing,
            None => Summands::Mask(seen()?.mask()?),
        };
        let distances = config.disentangled.as_ref().map(|of| {
            let pairs = pieces.iter().enumerate().flat_map(|(at, piece)| {
                (0..rows * keys).map(move |pair| {
                    let (row, key) = (pair / keys, pair % keys);
                    let position = piece.keys.get(key).map_or(0, |(_, position)| *position);
                    (at * rows + row, at * keys + key, position as isize - (piece.first + row) as isize)
                })
            });
            DistancePlaces::new(of, (pieces.len() * rows, pieces.len() * keys), pairs, device)
        });
        Ok(Self {
            pieces: pieces.len(),
            rows,
            keys,
            query_places: StackPositions::new(&query_places, device)?,
            key_places: StackPositions::new(&key_places, device)?,
            summands,
            distances: distances.transpose()?,
        })
    }
}

impl SharedStretch {
    pub(super) fn new(keys: &Range<usize>, texts: &[AttendingRows], heads: usize, device: &Device) -> Result<Self> {
        let (mut rows, mut places, mut row) = (Vec::new(), Vec::new(), 0);
        for text in texts {
            let is_reader = text.seen.contains(keys);
            for row in row..row + text.rows {
                places.push(is_reader.then_some(rows.len()));
                if is_reader {
                    rows.push(row);
                }
            }
            row += text.rows;
        }
        let at_once = (MOST_SCORES / (heads * keys.len())).max(1);
        Ok(Self {
            keys: keys.clone(),
            places: result_places(&places, rows.len(), device)?,
            rows: rows.chunks(at_once).map(|rows| StackPositions::new(rows, device)).collect::<Result<_>>()?,
        })
    }
}
