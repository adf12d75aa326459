//! Attention of a packed batch over candle's operations: each text over the positions before it and itself, or over another.
//!
//! The number of operations follows from how many rows there are, not from how many texts they belong to: texts of like
//! length are stacked, and what several texts see is read where it lies, once for all of them.

mod stacks;

use std::ops::Range;

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::softmax_last_dim;

use stacks::{Piece, PieceStack, SharedStretch, Summands, pieces, result_places, stacked, worth_sharing};

use super::distances::LayerDistances;
#[cfg(feature = "flash-attn")]
use super::flash::FlashPlan;
use super::limits::check_positions;
use crate::relative::RelativeBuckets;
use crate::stack_config::StackConfig;

/// Keys and values of one layer, `(kv_heads, positions, head_dim)` each.
#[derive(Debug)]
pub(super) struct LayerSpan {
    pub(super) keys: Tensor,
    pub(super) values: Tensor,
}

impl LayerSpan {
    /// Of so many key heads and their length, and positions.
    pub(super) fn zeros((heads, head_dim): (usize, usize), len: usize, dtype: DType, device: &Device) -> Result<Self> {
        let zeros = || Tensor::zeros((heads, len, head_dim), dtype, device);
        Ok(Self { keys: zeros()?, values: zeros()? })
    }

    /// Some of the positions, contiguous.
    pub(super) fn part(&self, range: &Range<usize>) -> Result<Self> {
        let part = |x: &Tensor| {
            let whole = range.len() == x.dim(1)?;
            if whole { x.contiguous() } else { x.narrow(1, range.start, range.len())?.contiguous() }
        };
        Ok(Self { keys: part(&self.keys)?, values: part(&self.values)? })
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

impl Sight {
    fn window(self) -> Option<usize> {
        let (Self::Around { window } | Self::UpToOwn { window }) = self;
        window
    }

    /// The first and the last position that a row sees; more than there are stand for all.
    fn bounds(self, row: usize) -> (usize, usize) {
        let first = self.window().map_or(0, |window| (row + 1).saturating_sub(window));
        let last = match self {
            Self::UpToOwn { .. } => row,
            Self::Around { window } => window.map_or(usize::MAX, |window| row + window - 1),
        };
        (first, last)
    }
}

/// Rows of a text, and where the positions lie that there are for them to see, among all of a layer.
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

    /// Where the summands of pairs stand, given their distances, and which of them are seen.
    fn places(&self, distances: &Tensor, is_seen: &Tensor) -> Result<Tensor> {
        let reach = self.reach as f64;
        // Those farther apart have the summand of the farthest.
        let places = (distances.clamp(-reach, reach)? + reach)?;
        let hidden = Tensor::full(2.0 * self.reach as f32 + 1.0, places.shape(), places.device())?;
        is_seen.where_cond(&places, &hidden)?.to_dtype(DType::U32)?.flatten_all()
    }
}

/// What is the same in all layers: who sees what.
pub(super) struct AttentionPlan {
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
    /// Factor of the products of queries and keys; with a cap what they are divided by before is in it.
    factor: f64,
    /// Whether queries are multiplied by it, of which there are fewer numbers than of products.
    scales_queries: bool,
    cap: Option<f64>,
    bias: Option<DistanceBias>,
    stacks: Vec<PieceStack>,
    /// As [`SharedStretch::places`], of all stacks one behind the other.
    stack_places: Option<Tensor>,
    shared: Vec<SharedStretch>,
    #[cfg(feature = "flash-attn")]
    flash: Option<FlashPlan>,
}

/// What rows make of some of the positions that they see: enough to be joined with what they make of others.
struct Partial {
    /// The largest score, `(heads, rows, 1)`.
    most: Tensor,
    /// Σ exp(score − largest), the same.
    sum: Tensor,
    /// The mean of the values by these, `(heads, rows, head_dim)`.
    values: Tensor,
}

impl AttentionPlan {
    pub(super) fn new(
        texts: &[AttendingRows],
        config: &StackConfig,
        sight: Sight,
        bias: Option<&DistanceBias>,
        (device, dtype): (&Device, DType),
    ) -> Result<Self> {
        let factor = f64::from(config.score_scale) / config.score_cap.map_or(1.0, f64::from);
        let mut plan = Self {
            num_heads: config.num_heads,
            num_kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            factor,
            // In bf16 most factors would round once more. Products with distances are scaled with the others.
            scales_queries: config.disentangled.is_none() && (dtype == DType::F32 || factor.log2().fract() == 0.0),
            cap: config.score_cap.map(f64::from),
            bias: bias.cloned(),
            stacks: Vec::new(),
            stack_places: None,
            shared: Vec::new(),
            #[cfg(feature = "flash-attn")]
            flash: None,
        };
        // What is added to scores depends on the distance there, so rows of several texts have no summands in common.
        let is_plain = bias.is_none() && config.disentangled.is_none();
        let shared = if is_plain { worth_sharing(texts, sight) } else { Vec::new() };
        // Flash attention would gather what texts share once for each.
        #[cfg(feature = "flash-attn")]
        if is_plain && shared.is_empty() {
            plan.flash = FlashPlan::new(texts, config, sight, (device, dtype))?;
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
        let heads = (config.num_heads, config.num_kv_heads * config.head_dim);
        let (stacks, places, results) = stacked(&pieces, heads, all);
        let stack = |pieces: &Vec<&Piece>| PieceStack::new(pieces, sight, bias, config, device);
        plan.stacks = stacks.iter().map(stack).collect::<Result<_>>()?;
        plan.stack_places = result_places(&places, results, device)?;
        Ok(plan)
    }

    /// Attention of queries `(heads, tokens, head_dim)` to `(tokens, heads · head_dim)`, over all positions of a layer.
    /// `distances` is what stands for distances there.
    pub(super) fn attend(
        &self,
        queries: &Tensor,
        all: &LayerSpan,
        distances: Option<&LayerDistances>,
    ) -> Result<Tensor> {
        #[cfg(feature = "flash-attn")]
        if let Some(flash) = &self.flash {
            return flash.attend(queries, all);
        }
        let scaled = self.scales_queries.then(|| queries * self.factor).transpose()?;
        let queries = scaled.as_ref().unwrap_or(queries);
        let joined = if self.shared.is_empty() {
            let parts = self.stacks.iter().map(|stack| {
                let (scores, values) = self.stack_scores(stack, queries, all, distances)?;
                let weights = softmax_last_dim(&scores)?.to_dtype(values.dtype())?;
                self.by_rows(&weights.matmul(&values)?, stack.pieces)
            });
            let parts = parts.collect::<Result<Vec<_>>>()?;
            in_places(&Tensor::cat(&parts, 1)?, self.stack_places.as_ref())?
        } else {
            self.joined(queries, all)?.to_dtype(queries.dtype())?
        };
        joined.transpose(0, 1)?.contiguous()?.flatten_from(1)
    }

    /// The same of stacks and of what several texts see, `(heads, tokens, head_dim)`.
    fn joined(&self, queries: &Tensor, all: &LayerSpan) -> Result<Tensor> {
        let mut partials = Vec::with_capacity(1 + self.shared.len());
        let stacks = self.stacks.iter().map(|stack| {
            let (scores, values) = self.stack_scores(stack, queries, all, None)?;
            Partial::new(&scores, &values)?.map(|x| self.by_rows(x, stack.pieces))
        });
        let stacks = stacks.collect::<Result<Vec<_>>>()?;
        if !stacks.is_empty() {
            partials.push(Partial::cat(&stacks)?.in_places(self.stack_places.as_ref())?);
        }
        for shared in &self.shared {
            let (start, len) = (shared.keys.start, shared.keys.len());
            let (keys, values) = (all.keys.narrow(1, start, len)?, all.values.narrow(1, start, len)?);
            let parts = shared.rows.iter().map(|rows| {
                let queries = self.by_key_heads(&rows.of(queries)?, 1)?;
                Partial::new(&self.scores(&queries, &keys)?, &values)?.map(|x| self.by_rows(x, 1))
            });
            partials.push(Partial::cat(&parts.collect::<Result<Vec<_>>>()?)?.in_places(shared.places.as_ref())?);
        }
        let mut partials = partials.into_iter();
        let first = partials.next().expect("each row sees something");
        Ok(partials.try_fold(first, |whole, part| whole.joined(&part))?.values)
    }

    /// Scores `(kv_heads · pieces, groups · rows, keys)` of a stack in f32, and the values that they weigh.
    fn stack_scores(
        &self,
        stack: &PieceStack,
        queries: &Tensor,
        all: &LayerSpan,
        distances: Option<&LayerDistances>,
    ) -> Result<(Tensor, Tensor)> {
        let (pieces, rows, keys) = (stack.pieces, stack.rows, stack.keys);
        let stacked = |x: &Tensor| {
            let x = stack.key_places.of(x)?;
            if pieces == 1 { Ok(x) } else { x.reshape((self.num_kv_heads * pieces, keys, self.head_dim)) }
        };
        let queries = self.by_key_heads(&stack.query_places.of(queries)?, pieces)?;
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

    /// Scores of products in f32. At most two tensors of them are held at a time.
    fn scaled(&self, products: Tensor) -> Result<Tensor> {
        let scores = if self.scales_queries { products } else { (products * self.factor)? };
        let Some(cap) = self.cap else { return Ok(scores) };
        let capped = scores.tanh()?;
        drop(scores);
        capped * cap
    }

    /// `(heads, pieces · rows, head_dim)` to `(kv_heads · pieces, groups · rows, head_dim)`: the query heads of a key head lie
    /// next to each other.
    fn by_key_heads(&self, x: &Tensor, pieces: usize) -> Result<Tensor> {
        let (kv_heads, groups) = (self.num_kv_heads, self.num_heads / self.num_kv_heads);
        let rows = x.dim(1)? / pieces;
        if pieces > 1 && groups > 1 {
            let x = x.reshape((kv_heads, groups, pieces, rows, self.head_dim))?.transpose(1, 2)?;
            return x.reshape((kv_heads * pieces, groups * rows, self.head_dim));
        }
        x.reshape((kv_heads * pieces, groups * rows, self.head_dim))
    }

    /// The reverse of [`by_key_heads`](Self::by_key_heads), of rows of any width.
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

impl Partial {
    fn new(scores: &Tensor, values: &Tensor) -> Result<Self> {
        let most = scores.max_keepdim(D::Minus1)?;
        let weights = softmax_last_dim(scores)?;
        // The weight of the largest score is 1 / sum: the sum needs no other pass over the scores.
        let sum = weights.max_keepdim(D::Minus1)?.recip()?;
        Ok(Self { most, sum, values: weights.to_dtype(values.dtype())?.matmul(values)?.to_dtype(DType::F32)? })
    }

    fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        Ok(Self { most: f(&self.most)?, sum: f(&self.sum)?, values: f(&self.values)? })
    }

    /// Of several rows one behind the other.
    fn cat(parts: &[Self]) -> Result<Self> {
        let cat = |of: fn(&Self) -> &Tensor| Tensor::cat(&parts.iter().map(of).collect::<Vec<_>>(), 1);
        Ok(Self { most: cat(|part| &part.most)?, sum: cat(|part| &part.sum)?, values: cat(|part| &part.values)? })
    }

    /// Each row's where it belongs; a row that has none sees nothing.
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

    /// What the same rows make of the positions of both (Milakov & Gimelshein 2018).
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
