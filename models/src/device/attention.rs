//! Attention of a packed batch over candle's operations: each text over its cached spans and itself, or over another.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::ops::softmax_last_dim;

use super::distances::{DistancePlaces, LayerDistances};
#[cfg(feature = "flash-attn")]
use super::flash::FlashPlan;
use crate::relative::RelativeBuckets;
use crate::stack_config::StackConfig;

/// Rows of a text that attend at once, so that the scores of long texts stay small.
const BLOCK_ROWS: usize = 512;

/// Keys and values of one layer and span, `(kv_heads, tokens, head_dim)` each.
#[derive(Debug)]
pub(super) struct LayerSpan {
    pub(super) keys: Tensor,
    pub(super) values: Tensor,
}

impl LayerSpan {
    /// Some of the tokens, contiguous and without keeping the rest alive.
    pub(super) fn part(&self, range: &Range<usize>) -> Result<Self> {
        let part = |x: &Tensor| {
            let whole = range.len() == x.dim(1)?;
            if whole { x.contiguous() } else { x.narrow(1, range.start, range.len())?.force_contiguous() }
        };
        Ok(Self { keys: part(&self.keys)?, values: part(&self.values)? })
    }

    /// The first `len` tokens.
    pub(super) fn begin(self, len: usize) -> Result<Self> {
        if self.keys.dim(1)? == len {
            return Ok(self);
        }
        let begin = |tensor: &Tensor| tensor.narrow(1, 0, len)?.force_contiguous();
        Ok(Self { keys: begin(&self.keys)?, values: begin(&self.values)? })
    }

    /// Consecutive spans as one, contiguous where they are: products on CUDA take no other operands.
    pub(super) fn join(spans: &[&Self]) -> Result<Self> {
        let cat = |of: fn(&Self) -> &Tensor| Tensor::cat(&spans.iter().map(|span| of(span)).collect::<Vec<_>>(), 1);
        Ok(Self { keys: cat(|span| &span.keys)?, values: cat(|span| &span.values)? })
    }
}

/// What rows see of the positions that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// All of them, or as many to either side as a window has, the own one included: an encoder's rows of their text, and a
    /// decoder's of a source.
    Around { window: Option<usize> },
    /// Those up to their own, and no more than a window has; the rows are the last ones of the positions.
    UpToOwn { window: Option<usize> },
}

/// Rows of a text, and the positions that there are for them to see.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttendingRows {
    pub(super) rows: usize,
    pub(super) positions: usize,
}

/// What each head adds to scores by the distance of key and query, `(heads, 2 · reach + 2)`: from −reach to reach, and
/// behind that −∞, for positions that a row does not see.
#[derive(Debug, Clone)]
pub(super) struct DistanceBias {
    summands: Tensor,
    reach: usize,
}

impl DistanceBias {
    /// Of a table `(buckets, heads)`.
    pub(super) fn new(buckets: RelativeBuckets, table: &[f32], heads: usize, device: &Device) -> Result<Self> {
        let reach = buckets.max_distance;
        let distances = -(reach as isize)..=reach as isize;
        let of_head = |head: usize| {
            let summand = move |distance| table[buckets.bucket(distance) * heads + head];
            distances.clone().map(summand).chain([f32::NEG_INFINITY])
        };
        let summands: Vec<f32> = (0..heads).flat_map(of_head).collect();
        Ok(Self { summands: Tensor::from_vec(summands, (heads, 2 * reach + 2), device)?, reach })
    }

    /// Where the summand stands of a row at one position and a key at another, if the row sees that.
    fn place(&self, row: usize, key: usize, is_seen: bool) -> u32 {
        let reach = self.reach as isize;
        // Those farther apart have the summand of the farthest.
        let distance = (key as isize - row as isize).clamp(-reach, reach);
        (if is_seen { distance + reach } else { 2 * reach + 1 }) as u32
    }
}

/// Some rows of a text and what they see.
struct QueryBlock {
    /// Rows of the batch.
    rows: Range<usize>,
    /// Positions that at least one of the rows sees.
    seen: Range<usize>,
    /// Where among these the first row's own is.
    own: usize,
}

/// Rows, positions that are seen, and the first row's own among them.
type BlockShape = (usize, usize, usize);

impl QueryBlock {
    fn shape(&self) -> BlockShape {
        (self.rows.len(), self.seen.len(), self.own)
    }
}

/// What is added to the scores of a block.
enum Summands {
    /// `(rows, seen)`: 0 where a row sees a position, −∞ elsewhere.
    Mask(Tensor),
    /// Places in the table of distances, `(rows · seen)`: whole summands would be as many for each head, and last as
    /// long as the batch.
    Places(Tensor),
}

/// What is the same in all layers: who sees what.
pub(super) struct AttentionPlan {
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
    /// Factor of the scores.
    scale: f64,
    cap: Option<f64>,
    bias: Option<DistanceBias>,
    /// The rows of each text, in blocks.
    texts: Vec<Vec<QueryBlock>>,
    /// None where nothing is added.
    summands: BTreeMap<BlockShape, Summands>,
    /// Where scores depend on products with distances.
    distances: BTreeMap<BlockShape, DistancePlaces>,
    #[cfg(feature = "flash-attn")]
    flash: Option<FlashPlan>,
}

impl AttentionPlan {
    pub(super) fn new(
        texts: &[AttendingRows],
        config: &StackConfig,
        sight: Sight,
        bias: Option<&DistanceBias>,
        device: &Device,
    ) -> Result<Self> {
        let mut plan = Self {
            num_heads: config.num_heads,
            num_kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            scale: f64::from(config.score_scale),
            cap: config.score_cap.map(f64::from),
            bias: bias.cloned(),
            texts: Vec::with_capacity(texts.len()),
            summands: BTreeMap::new(),
            distances: BTreeMap::new(),
            #[cfg(feature = "flash-attn")]
            flash: if bias.is_some() || config.disentangled.is_some() {
                None
            } else {
                FlashPlan::new(texts, config, sight, device)?
            },
        };
        let mut row = 0;
        for text in texts {
            let block = |first: usize| {
                let last = (first + BLOCK_ROWS).min(text.rows);
                let rows = row + first..row + last;
                match sight {
                    Sight::Around { window } => {
                        let start = window.map_or(0, |window| (first + 1).saturating_sub(window));
                        let end = window.map_or(text.positions, |window| text.positions.min(last - 1 + window));
                        QueryBlock { rows, own: first - start, seen: start..end }
                    }
                    Sight::UpToOwn { window } => {
                        let start = text.positions - text.rows;
                        // A window narrows what is read, not only what is masked.
                        let seen = window.map_or(0, |window| (start + first + 1).saturating_sub(window))..start + last;
                        QueryBlock { rows, own: start + first - seen.start, seen }
                    }
                }
            };
            let blocks: Vec<QueryBlock> = (0..text.rows).step_by(BLOCK_ROWS).map(block).collect();
            for shape in blocks.iter().map(QueryBlock::shape) {
                if let Entry::Vacant(entry) = plan.summands.entry(shape)
                    && let Some(summands) = Summands::new(shape, sight, bias, device)?
                {
                    entry.insert(summands);
                }
                if let (Some(of), Entry::Vacant(entry)) = (&config.disentangled, plan.distances.entry(shape)) {
                    entry.insert(DistancePlaces::new(of, shape, device)?);
                }
            }
            plan.texts.push(blocks);
            row += text.rows;
        }
        Ok(plan)
    }

    /// Attention of queries `(heads, tokens, head_dim)` to `(tokens, heads · head_dim)`.
    ///
    /// `spans` gives the positions that each text has in this layer, its own tokens last where it sees these, and
    /// `distances` what stands for distances there.
    pub(super) fn attend(
        &self,
        queries: &Tensor,
        spans: &[Vec<&LayerSpan>],
        distances: Option<&LayerDistances>,
    ) -> Result<Tensor> {
        #[cfg(feature = "flash-attn")]
        if let Some(flash) = self.flash.as_ref().filter(|_| FlashPlan::takes(queries.dtype())) {
            return flash.attend(queries, &LayerSpan::join(&spans.concat())?);
        }
        let mut parts = Vec::with_capacity(spans.len());
        for (blocks, spans) in self.texts.iter().zip(spans) {
            let seen = LayerSpan::join(spans)?;
            for block in blocks {
                parts.push(self.block(block, queries, &seen, distances)?);
            }
        }
        Tensor::cat(&parts, 1)?.transpose(0, 1)?.flatten_from(1)
    }

    /// `(heads, rows, head_dim)` of one block.
    fn block(
        &self,
        block: &QueryBlock,
        queries: &Tensor,
        all: &LayerSpan,
        distances: Option<&LayerDistances>,
    ) -> Result<Tensor> {
        let (rows, seen) = (block.rows.len(), block.seen.len());
        let groups = self.num_heads / self.num_kv_heads;
        let see = |x: &Tensor| x.narrow(1, block.seen.start, seen);
        // The query heads of a key head lie next to each other: (kv_heads, groups · rows, head_dim)
        let queries =
            queries.narrow(1, block.rows.start, rows)?.reshape((self.num_kv_heads, groups * rows, self.head_dim))?;
        let keys = see(&all.keys)?;
        let scores = queries.matmul(&keys.t()?)?.to_dtype(DType::F32)?; // (kv_heads, groups · rows, seen)
        let scores = match (distances, self.distances.get(&block.shape())) {
            (Some(distances), Some(places)) => distances.add(&scores, places, &queries, &keys)?,
            _ => scores,
        };
        // After they were widened: in bf16 the factor would round once more.
        let scores = (scores * self.scale)?;
        let scores = self.cap.map_or(Ok(scores.clone()), |cap| (scores / cap)?.tanh()? * cap)?;
        let scores = match (self.summands.get(&block.shape()), &self.bias) {
            (Some(Summands::Mask(mask)), _) => scores.reshape((self.num_heads, rows, seen))?.broadcast_add(mask)?,
            (Some(Summands::Places(places)), Some(bias)) => {
                (scores.reshape((self.num_heads, rows * seen))? + bias.summands.index_select(places, 1)?)?
            }
            _ => scores,
        };
        let scores = scores.reshape((self.num_kv_heads, groups * rows, seen))?;
        let weights = softmax_last_dim(&scores)?.to_dtype(queries.dtype())?;
        weights.matmul(&see(&all.values)?)?.reshape((self.num_heads, rows, self.head_dim))
    }
}

/// `(tokens, heads · head_dim)` to `(heads, tokens, head_dim)`.
pub(super) fn heads(x: &Tensor, head_dim: usize) -> Result<Tensor> {
    let (tokens, width) = x.dims2()?;
    x.reshape((tokens, width / head_dim, head_dim))?.transpose(0, 1)?.contiguous()
}

impl Summands {
    fn new(
        (rows, seen, own): BlockShape,
        sight: Sight,
        bias: Option<&DistanceBias>,
        device: &Device,
    ) -> Result<Option<Self>> {
        let is_seen = |row: usize, key: usize| match sight {
            Sight::Around { window } => {
                window.is_none_or(|window| key < own + row + window && own + row < key + window)
            }
            Sight::UpToOwn { window } => key <= own + row && window.is_none_or(|window| own + row < key + window),
        };
        let pairs = (0..rows).flat_map(|row| (0..seen).map(move |key| (row, key)));
        Ok(match bias {
            Some(bias) => {
                let places: Vec<u32> = pairs.map(|(row, key)| bias.place(own + row, key, is_seen(row, key))).collect();
                Some(Self::Places(Tensor::from_vec(places, rows * seen, device)?))
            }
            // A row by itself sees all that is read for it.
            None if rows == 1 || sight == Sight::Around { window: None } => None,
            None => {
                let mask = |(row, key)| if is_seen(row, key) { 0f32 } else { f32::NEG_INFINITY };
                Some(Self::Mask(Tensor::from_vec(pairs.map(mask).collect::<Vec<_>>(), (rows, seen), device)?))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_joined_spans_are_contiguous() {
        let tensor = Tensor::arange(0u32, 2 * 5 * 3, &Device::Cpu)
            .and_then(|x| x.reshape((2, 5, 3)))
            .expect("2 heads of 5 tokens");
        let batch = LayerSpan { keys: tensor.clone(), values: tensor.clone() };
        let parts = [0..2, 2..3, 3..5].map(|range| batch.part(&range).expect("in range"));
        assert!(parts.iter().all(|part| part.keys.is_contiguous() && part.values.is_contiguous()));
        let joined = LayerSpan::join(&parts.each_ref()).expect("joins");
        assert!(joined.keys.is_contiguous() && joined.values.is_contiguous());
        assert_eq!(joined.keys.to_vec3::<u32>().expect("3 dimensions"), tensor.to_vec3::<u32>().expect("3 dimensions"));
    }

    #[test]
    fn a_row_sees_its_window_up_to_itself() {
        let seen = |rows, seen, window| -> Vec<String> {
            let summands = Summands::new((rows, seen, seen - rows), Sight::UpToOwn { window }, None, &Device::Cpu);
            let Ok(Some(Summands::Mask(mask))) = summands else { panic!("a mask") };
            let mask = mask.to_vec2::<f32>().expect("a matrix");
            mask.iter().map(|row| row.iter().map(|x| if *x == 0.0 { 'x' } else { '.' }).collect()).collect()
        };
        assert_eq!(seen(2, 4, None), ["xxx.", "xxxx"]);
        assert_eq!(seen(3, 4, Some(2)), ["xx..", ".xx.", "..xx"]);
        assert_eq!(seen(2, 2, Some(1)), ["x.", ".x"]);
    }

    #[test]
    fn summands_are_those_of_the_distance_and_hide_what_is_not_seen() {
        let buckets = RelativeBuckets { buckets: 4, max_distance: 2, bidirectional: true };
        let table: Vec<f32> = (0..8).map(|x| x as f32).collect();
        let bias = DistanceBias::new(buckets, &table, 2, &Device::Cpu).expect("a table");
        let of = |shape: BlockShape, sight| -> Vec<Vec<f32>> {
            let summands = Summands::new(shape, sight, Some(&bias), &Device::Cpu);
            let Ok(Some(Summands::Places(places))) = summands else { panic!("places") };
            bias.summands.index_select(&places, 1).and_then(|x| x.to_vec2()).expect("a matrix")
        };
        let expected = |head: usize, row: isize, keys: std::ops::Range<isize>| -> Vec<f32> {
            keys.map(|key| table[buckets.bucket(key - row) * 2 + head]).collect()
        };
        // The second block of a text of five: its rows are the fourth and the fifth.
        for (head, got) in of((2, 5, 3), Sight::Around { window: None }).into_iter().enumerate() {
            assert_eq!(got, [expected(head, 3, 0..5), expected(head, 4, 0..5)].concat());
        }
        let hidden = f32::NEG_INFINITY;
        for (head, got) in of((2, 4, 2), Sight::UpToOwn { window: Some(2) }).into_iter().enumerate() {
            let rows = [vec![hidden], expected(head, 2, 1..3), vec![hidden; 3], expected(head, 3, 2..4)];
            assert_eq!(got, rows.concat());
        }
    }
}
