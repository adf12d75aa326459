//! Attention of a packed batch with candle operations: self-attention over cached and new positions, or
//! cross-attention.
//!
//! The number of operations depends on the number of rows, not of texts: pieces of similar shape are stacked, and
//! positions shared by several texts are read once, in place.

mod stacks;

use std::ops::Range;

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::softmax_last_dim;

use stacks::{PieceStack, SharedStretch, StackPiece, Summands, pieces, result_places, stacked, worth_sharing};

use super::distances::DeviceLayerDistances;
#[cfg(feature = "flash-attn")]
use super::flash::FlashPlan;
use super::limits::check_positions;
use super::stack::moved;
use crate::relative::RelativeBuckets;
use crate::stack_config::{KeyHeads, StackConfig};

/// Keys and values of one layer, `(kv_heads, positions, head_dim)` each.
#[derive(Debug)]
pub(super) struct LayerSpan {
    pub(super) keys: Tensor,
    pub(super) values: Tensor,
}

impl LayerSpan {
    /// Zeros for these key heads and number of positions.
    pub(super) fn zeros(heads: KeyHeads, len: usize, dtype: DType, device: &Device) -> Result<Self> {
        let zeros = || Tensor::zeros((heads.count, len, heads.dim), dtype, device);
        Ok(Self { keys: zeros()?, values: zeros()? })
    }

    /// The same on a device.
    pub(super) fn moved(&self, device: &Device) -> Result<Self> {
        Ok(Self { keys: moved(&self.keys, device)?, values: moved(&self.values, device)? })
    }

    /// A contiguous range of positions.
    pub(super) fn part(&self, range: &Range<usize>) -> Result<Self> {
        let part = |x: &Tensor| {
            let whole = range.len() == x.dim(1)?;
            if whole { x.contiguous() } else { x.narrow(1, range.start, range.len())?.contiguous() }
        };
        Ok(Self { keys: part(&self.keys)?, values: part(&self.values)? })
    }
}

/// The attention mask: which positions a row sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// All positions, or a window in each direction that includes the row's own position: an encoder's self-attention,
    /// and cross-attention.
    Around { window: Option<usize> },
    /// Causal attention up to the row's own position, within a window. The rows are the last of the positions.
    UpToOwn { window: Option<usize> },
}

impl Sight {
    fn window(self) -> Option<usize> {
        let (Self::Around { window } | Self::UpToOwn { window }) = self;
        window
    }

    /// The first and the last position that a row sees; the last may exceed the number of positions.
    fn bounds(self, row: usize) -> (usize, usize) {
        let first = self.window().map_or(0, |window| (row + 1).saturating_sub(window));
        let last = match self {
            Self::UpToOwn { .. } => row,
            Self::Around { window } => window.map_or(usize::MAX, |window| row + window - 1),
        };
        (first, last)
    }
}

/// Number of rows of a text, and the slot ranges of the positions that they may see.
#[derive(Debug, Clone)]
pub(super) struct AttendingRows {
    pub(super) rows: usize,
    pub(super) seen: Vec<Range<usize>>,
}

impl AttendingRows {
    pub(super) fn positions(&self) -> usize {
        self.seen.iter().map(ExactSizeIterator::len).sum()
    }
}

/// A bias per head and relative position, `(heads, 2 · reach + 2)`: from −reach to reach, and then −∞ for masked
/// positions.
#[derive(Debug, Clone)]
pub(super) struct DistanceBias {
    summands: Tensor,
    reach: usize,
}

impl DistanceBias {
    /// From a table `(buckets, heads)`.
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

    /// Bias indices of row-key pairs, from their distances and mask.
    fn places(&self, distances: &Tensor, is_seen: &Tensor) -> Result<Tensor> {
        let reach = self.reach as f64;
        // Larger distances share the bias of the largest.
        let places = (distances.clamp(-reach, reach)? + reach)?;
        let hidden = Tensor::full(2.0 * self.reach as f32 + 1.0, places.shape(), places.device())?;
        is_seen.where_cond(&places, &hidden)?.to_dtype(DType::U32)?.flatten_all()
    }
}

/// The logit of each head's sink, `(heads,)` in f32.
pub(super) struct HeadSinks(pub(super) Tensor);

impl HeadSinks {
    /// Attention to the sinks alone, whose values are zero, for as many rows as another part has.
    fn beside(&self, other: &PartialAttention) -> Result<PartialAttention> {
        let most = self.0.reshape(((), 1, 1))?.broadcast_as(other.most.shape())?.contiguous()?;
        Ok(PartialAttention { sum: most.ones_like()?, values: other.values.zeros_like()?, most })
    }
}

/// The attention plan of a batch, shared by all layers.
pub(super) struct AttentionPlan {
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
    /// Factor of query-key products; with a soft cap, it includes the division before the cap.
    factor: f64,
    /// Whether the factor is applied to the queries, which have fewer elements than the products.
    scales_queries: bool,
    cap: Option<f64>,
    bias: Option<DistanceBias>,
    stacks: Vec<PieceStack>,
    /// As [`SharedStretch::places`], for all stacks together.
    stack_places: Option<Tensor>,
    shared: Vec<SharedStretch>,
    #[cfg(feature = "flash-attn")]
    flash: Option<FlashPlan>,
}

/// Attention over some of the positions, with what is needed to merge it with attention over others.
struct PartialAttention {
    /// Maximum score, `(heads, rows, 1)`.
    most: Tensor,
    /// Σ exp(score − maximum), of the same shape.
    sum: Tensor,
    /// The weighted mean of values, `(heads, rows, head_dim)`.
    values: Tensor,
}

impl AttentionPlan {
    pub(super) fn new(
        texts: &[AttendingRows],
        (config, heads): (&StackConfig, KeyHeads),
        sight: Sight,
        bias: Option<&DistanceBias>,
        (device, dtype): (&Device, DType),
    ) -> Result<Self> {
        let factor = f64::from(config.score_scale) / config.score_cap.map_or(1.0, f64::from);
        let mut plan = Self {
            num_heads: config.num_heads,
            num_kv_heads: heads.count,
            head_dim: heads.dim,
            factor,
            // In bf16, scaling by other factors than powers of two would round again. Relative position products are
            // scaled together with the others.
            scales_queries: config.disentangled.is_none() && (dtype == DType::F32 || factor.log2().fract() == 0.0),
            cap: config.score_cap.map(f64::from),
            bias: bias.cloned(),
            stacks: Vec::new(),
            stack_places: None,
            shared: Vec::new(),
            #[cfg(feature = "flash-attn")]
            flash: None,
        };
        // Biases depend on the distance, so rows of different texts cannot share them.
        let is_plain = bias.is_none() && config.disentangled.is_none();
        let shared = if is_plain { worth_sharing(texts, sight) } else { Vec::new() };
        // Flash attention would copy shared positions for each text.
        #[cfg(feature = "flash-attn")]
        if is_plain && config.sinks.is_none() && shared.is_empty() {
            plan.flash = FlashPlan::new(texts, (config, heads), sight, (device, dtype))?;
            if plan.flash.is_some() {
                return Ok(plan);
            }
        }
        for text in texts {
            check_positions(text.positions(), config)?;
        }
        let all: usize = texts.iter().map(|text| text.rows).sum();
        for keys in &shared {
            plan.shared.push(SharedStretch::new(keys, texts, config.num_heads, device)?);
        }
        let pieces = pieces(texts, sight, &shared, config.num_heads);
        let (stacks, places, results) = stacked(&pieces, (config.num_heads, heads.width()), all);
        let stack = |pieces: &Vec<&StackPiece>| PieceStack::new(pieces, sight, bias, config, device);
        plan.stacks = stacks.iter().map(stack).collect::<Result<_>>()?;
        plan.stack_places = result_places(&places, results, device)?;
        Ok(plan)
    }

    /// Attention of queries `(heads, tokens, head_dim)` over all positions of a layer, as `(tokens, heads · head_dim)`.
    /// `distances` is the layer's relative position table, with which there are no sinks.
    pub(super) fn attend(
        &self,
        queries: &Tensor,
        all: &LayerSpan,
        (distances, sinks): (Option<&DeviceLayerDistances>, Option<&HeadSinks>),
    ) -> Result<Tensor> {
        #[cfg(feature = "flash-attn")]
        if let Some(flash) = &self.flash {
            return flash.attend(queries, all);
        }
        let scaled = self.scales_queries.then(|| queries * self.factor).transpose()?;
        let queries = scaled.as_ref().unwrap_or(queries);
        let joined = if self.shared.is_empty() && sinks.is_none() {
            let parts = self.stacks.iter().map(|stack| {
                let (scores, values) = self.stack_scores(stack, queries, all, distances)?;
                let weights = softmax_last_dim(&scores)?.to_dtype(values.dtype())?;
                self.by_rows(&weights.matmul(&values)?, stack.pieces)
            });
            let parts = parts.collect::<Result<Vec<_>>>()?;
            in_places(&Tensor::cat(&parts, 1)?, self.stack_places.as_ref())?
        } else {
            self.joined(queries, all, sinks)?.to_dtype(queries.dtype())?
        };
        joined.transpose(0, 1)?.contiguous()?.flatten_from(1)
    }

    /// Attention over stacks, shared positions and sinks, merged, as `(heads, tokens, head_dim)`.
    fn joined(&self, queries: &Tensor, all: &LayerSpan, sinks: Option<&HeadSinks>) -> Result<Tensor> {
        let mut partials = Vec::with_capacity(1 + self.shared.len());
        let stacks = self.stacks.iter().map(|stack| {
            let (scores, values) = self.stack_scores(stack, queries, all, None)?;
            PartialAttention::new(&scores, &values)?.map(|x| self.by_rows(x, stack.pieces))
        });
        let stacks = stacks.collect::<Result<Vec<_>>>()?;
        if !stacks.is_empty() {
            partials.push(PartialAttention::cat(&stacks)?.in_places(self.stack_places.as_ref())?);
        }
        for shared in &self.shared {
            let (start, len) = (shared.keys.start, shared.keys.len());
            let (keys, values) = (all.keys.narrow(1, start, len)?, all.values.narrow(1, start, len)?);
            let parts = shared.rows.iter().map(|rows| {
                let queries = self.by_key_heads(&rows.select(queries)?, 1)?;
                PartialAttention::new(&self.scores(&queries, &keys)?, &values)?.map(|x| self.by_rows(x, 1))
            });
            partials
                .push(PartialAttention::cat(&parts.collect::<Result<Vec<_>>>()?)?.in_places(shared.places.as_ref())?);
        }
        let mut partials = partials.into_iter();
        let first = partials.next().expect("each row sees something");
        let whole = partials.try_fold(first, |whole, part| whole.joined(&part))?;
        match sinks {
            Some(sinks) => Ok(whole.joined(&sinks.beside(&whole)?)?.values),
            None => Ok(whole.values),
        }
    }

    /// Scores `(kv_heads · pieces, groups · rows, keys)` of a stack in f32, and the corresponding values.
    fn stack_scores(
        &self,
        stack: &PieceStack,
        queries: &Tensor,
        all: &LayerSpan,
        distances: Option<&DeviceLayerDistances>,
    ) -> Result<(Tensor, Tensor)> {
        let (pieces, rows, keys) = (stack.pieces, stack.rows, stack.keys);
        let stacked = |x: &Tensor| {
            let x = stack.key_places.select(x)?;
            if pieces == 1 { Ok(x) } else { x.reshape((self.num_kv_heads * pieces, keys, self.head_dim)) }
        };
        let queries = self.by_key_heads(&stack.query_places.select(queries)?, pieces)?;
        let (all_keys, values) = (stacked(&all.keys)?, stacked(&all.values)?);
        let scores = match (distances, &stack.distances) {
            (Some(distances), Some(places)) => {
                let products = queries.matmul(&all_keys.t()?)?.to_dtype(DType::F32)?;
                self.scaled(distances.add(&products, places, &queries, &all_keys)?)?
            }
            _ => self.scores(&queries, &all_keys)?,
        };
        let groups = self.num_heads / self.num_kv_heads;
        let by_piece = (self.num_kv_heads, pieces, groups, rows, keys);
        let sum = match (&stack.summands, &self.bias) {
            (Summands::Mask(mask), _) => scores.reshape(by_piece)?.broadcast_add(mask)?,
            (Summands::Distances(places), Some(bias)) => {
                let summands = bias.summands.index_select(places, 1)?;
                let summands = summands.reshape((self.num_kv_heads, groups, pieces, rows, keys))?.transpose(1, 2)?;
                (scores.reshape(by_piece)? + summands)?
            }
            _ => return Ok((scores, values)),
        };
        Ok((sum.reshape((self.num_kv_heads * pieces, groups * rows, keys))?, values))
    }

    fn scores(&self, queries: &Tensor, keys: &Tensor) -> Result<Tensor> {
        let products = queries.matmul(&keys.t()?)?.to_dtype(DType::F32)?;
        self.scaled(products)
    }

    /// Converts products to scores in f32. At most two such tensors exist at a time.
    fn scaled(&self, products: Tensor) -> Result<Tensor> {
        let scores = if self.scales_queries { products } else { (products * self.factor)? };
        let Some(cap) = self.cap else { return Ok(scores) };
        let capped = scores.tanh()?;
        drop(scores);
        capped * cap
    }

    /// `(heads, pieces · rows, head_dim)` to `(kv_heads · pieces, groups · rows, head_dim)`: groups the query heads of
    /// each key head.
    fn by_key_heads(&self, x: &Tensor, pieces: usize) -> Result<Tensor> {
        let (kv_heads, groups) = (self.num_kv_heads, self.num_heads / self.num_kv_heads);
        let rows = x.dim(1)? / pieces;
        if pieces > 1 && groups > 1 {
            let x = x.reshape((kv_heads, groups, pieces, rows, self.head_dim))?.transpose(1, 2)?;
            return x.reshape((kv_heads * pieces, groups * rows, self.head_dim));
        }
        x.reshape((kv_heads * pieces, groups * rows, self.head_dim))
    }

    /// The reverse of [`by_key_heads`](Self::by_key_heads), for rows of any width.
    fn by_rows(&self, x: &Tensor, pieces: usize) -> Result<Tensor> {
        let (kv_heads, groups) = (self.num_kv_heads, self.num_heads / self.num_kv_heads);
        let (rows, width) = (x.dim(1)? / groups, x.dim(2)?);
        let x = if pieces > 1 && groups > 1 {
            x.reshape((kv_heads, pieces, groups, rows, width))?.transpose(1, 2)?
        } else {
            x.clone()
        };
        x.reshape((self.num_heads, pieces * rows, width))
    }
}

fn in_places(x: &Tensor, places: Option<&Tensor>) -> Result<Tensor> {
    places.map_or(Ok(x.clone()), |places| x.index_select(places, 1))
}

impl PartialAttention {
    fn new(scores: &Tensor, values: &Tensor) -> Result<Self> {
        let most = scores.max_keepdim(D::Minus1)?;
        let weights = softmax_last_dim(scores)?;
        // The largest weight is 1 / sum, which saves another pass over the scores.
        let sum = weights.max_keepdim(D::Minus1)?.recip()?;
        Ok(Self { most, sum, values: weights.to_dtype(values.dtype())?.matmul(values)?.to_dtype(DType::F32)? })
    }

    fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        Ok(Self { most: f(&self.most)?, sum: f(&self.sum)?, values: f(&self.values)? })
    }

    /// Concatenates along the rows.
    fn cat(parts: &[Self]) -> Result<Self> {
        let cat = |of: fn(&Self) -> &Tensor| Tensor::cat(&parts.iter().map(of).collect::<Vec<_>>(), 1);
        Ok(Self { most: cat(|part| &part.most)?, sum: cat(|part| &part.sum)?, values: cat(|part| &part.values)? })
    }

    /// Moves the results to their rows; rows without a result see nothing.
    fn in_places(self, places: Option<&Tensor>) -> Result<Self> {
        let Some(places) = places else { return Ok(self) };
        let nothing = |x: &Tensor, value: f32| -> Result<Tensor> {
            let (heads, _, width) = x.dims3()?;
            Tensor::cat(&[x, &Tensor::full(value, (heads, 1, width), x.device())?], 1)?.index_select(places, 1)
        };
        Ok(Self {
            most: nothing(&self.most, f32::NEG_INFINITY)?,
            sum: nothing(&self.sum, 0.0)?,
            values: nothing(&self.values, 0.0)?,
        })
    }

    /// Merges attention over two sets of positions for the same rows (Milakov & Gimelshein 2018).
    fn joined(&self, other: &Self) -> Result<Self> {
        let most = self.most.maximum(&other.most)?;
        let [a, b] = [self, other].map(|part| (&part.most - &most)?.exp()? * &part.sum);
        let (a, b) = (a?, b?);
        let sum = (&a + &b)?;
        let [a, b] = [(self, a), (other, b)].map(|(part, own)| part.values.broadcast_mul(&(own / &sum)?));
        Ok(Self { most, sum, values: (a? + b?)? })
    }
}

/// `(tokens, heads · head_dim)` to `(heads, tokens, head_dim)`.
pub(super) fn heads(x: &Tensor, head_dim: usize) -> Result<Tensor> {
    let (tokens, width) = x.dims2()?;
    x.reshape((tokens, width / head_dim, head_dim))?.transpose(0, 1)?.contiguous()
}

pub(super) use stacks::{BLOCK_ROWS, largest_stack};

#[cfg(test)]
mod tests;
