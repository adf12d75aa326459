//! Attention with the relative position terms of [disentangled](crate::disentangled) attention on our kernels.

use std::sync::Arc;

use probity_kernels::{
    AttentionSegment, AttentionShape, Buffer, DistanceColumns, DistanceProducts, Inputs, Isa, Matrix, MatrixProduct,
    PackedMatrix, PackedSpan, ProductForm, ScoreBias, WeightType, attention, matmul, normalise,
};
use rayon::prelude::*;

use crate::SourceError;
use crate::cpu::{DistanceRoom, NormWeights, Workspace};
use crate::disentangled::Disentangled;
use crate::linear::{Linear, TensorLoader};
use crate::row_range::RowRange;
use crate::stack_config::StackConfig;

/// The projected table of relative positions in all layers.
pub(crate) struct TextDistances {
    pub(crate) layers: Vec<LayerDistances>,
}

/// The projected table in one layer: a matrix `(2 span, head_dim)` for each head.
pub(crate) struct LayerDistances {
    columns: Arc<DistanceColumns>,
    keys: Option<Vec<PackedMatrix>>,
    queries: Option<Vec<PackedMatrix>>,
}

/// Rows of texts whose relative position products are in memory at the same time; a single text may have more.
const TOGETHER: usize = 512;

impl TextDistances {
    pub(crate) fn load(
        loader: &TensorLoader<'_>,
        of: &Disentangled,
        config: &StackConfig,
    ) -> Result<Self, SourceError> {
        let (width, isa) = (config.hidden_size, loader.compute.isa);
        let mut table = loader.floats(of.table, &[2 * of.span, width])?;
        if let Some(name) = of.norm {
            let norm = NormWeights::load(loader, name, width, (config.norm, config.norm_eps))?;
            let rows = table.clone();
            normalise(isa, &rows, norm.norm(), &mut table);
        }
        let columns = Arc::new(of.columns());
        let layer = |index: usize| {
            // Computed once from the weights, so never rounded. The products with queries and keys are rounded where
            // scores are: to bf16 in tiles.
            let parts = loader.under(&format!("{}.{index}.", config.names.layers)).unrounded();
            let heads = |name: &str| -> Result<Vec<PackedMatrix>, SourceError> {
                let rows = RowRange::all(config.num_heads * config.head_dim);
                let product = parts.linear(name, rows, width, config.biases.qkv)?;
                let form = ProductForm::for_weight_type(WeightType::F32, loader.compute.arithmetic);
                packed_heads(isa, &product, (&table, width), config.head_dim, form).map_err(|error| {
                    SourceError::NoMemory { name: name.to_owned(), bytes: table.len() * 4, why: error.to_string() }
                })
            };
            Ok(LayerDistances {
                columns: columns.clone(),
                keys: of.keys.map(heads).transpose()?,
                queries: of.queries.map(heads).transpose()?,
            })
        };
        Ok(Self { layers: (0..config.layers.len()).map(layer).collect::<Result<_, _>>()? })
    }
}

/// Projects a table and packs the result for each head.
fn packed_heads(
    isa: Isa,
    product: &Linear,
    (table, width): (&[f32], usize),
    head_dim: usize,
    form: ProductForm,
) -> std::io::Result<Vec<PackedMatrix>> {
    let rows = table.len() / width;
    let mut made = vec![0.0; rows * product.out_features()];
    let mut inputs = Inputs::new();
    inputs.set(isa, table, width, [product.form()]);
    matmul(isa, &inputs, &mut [product.product(&mut made)]);
    let mut room = Buffer::default();
    let head = |head| {
        take_head(&made, product.out_features(), head_dim, head, &mut room);
        let matrix = Matrix::new(WeightType::F32, bytemuck::cast_slice(&room), rows, head_dim);
        PackedMatrix::pack(matrix.expect("of that size"), form)
    };
    (0..product.out_features() / head_dim).map(head).collect()
}

/// Copies one head of rows `(rows, heads, head_dim)`.
fn take_head(x: &[f32], width: usize, head_dim: usize, head: usize, to: &mut Buffer<f32>) {
    to.set_len(x.len() / width * head_dim);
    for (to, row) in to.chunks_exact_mut(head_dim).zip(x.chunks_exact(width)) {
        to.copy_from_slice(&row[head * head_dim..][..head_dim]);
    }
}

impl LayerDistances {
    /// Attention of `w.q` over the segments with keys `w.k`, into `w.attended`.
    pub(crate) fn attend(
        &self,
        w: &mut Workspace,
        isa: Isa,
        shape: &AttentionShape,
        segments: &[AttentionSegment<'_>],
    ) {
        let positions = |segment: &AttentionSegment<'_>| segment.spans.iter().map(|span| span.len).sum::<usize>();
        let width = shape.heads * shape.head_dim;
        let (mut row, mut position, mut rest) = (0, 0, segments);
        while !rest.is_empty() {
            let ends = rest.iter().scan(0, |sum, segment| {
                *sum += positions(segment);
                Some(*sum)
            });
            let (group, others) = rest.split_at(ends.take_while(|end| *end <= TOGETHER).count().max(1));
            let rows = row..group.iter().fold(row, |sum, s| sum + s.wanted.map_or(positions(s), <[usize]>::len));
            let keys = position..group.iter().fold(position, |sum, s| sum + positions(s));
            (row, position, rest) = (rows.end, keys.end, others);
            if rows.is_empty() {
                continue;
            }
            let (q, k) = (&w.q[rows.start * width..rows.end * width], &w.k[keys.start * width..keys.end * width]);
            w.distances.resize_with(shape.heads, DistanceRoom::default);
            // One head at a time per thread: its products with all distances stay in cache until they are gathered.
            w.distances.par_iter_mut().enumerate().for_each(|(head, room)| {
                self.attend_head(room, isa, (shape, head), (q, k), group);
            });
            for (row, to) in w.attended[rows.start * width..rows.end * width].chunks_exact_mut(width).enumerate() {
                for (to, room) in to.chunks_exact_mut(shape.head_dim).zip(&w.distances) {
                    to.copy_from_slice(&room.attended[row * shape.head_dim..][..shape.head_dim]);
                }
            }
        }
    }

    /// One head's attention over some segments, from the queries and keys of all heads.
    fn attend_head<'a>(
        &self,
        room: &mut DistanceRoom,
        isa: Isa,
        (shape, head): (&AttentionShape, usize),
        (q, k): (&[f32], &[f32]),
        segments: &[AttentionSegment<'a>],
    ) {
        let (width, dim) = (shape.heads * shape.head_dim, shape.head_dim);
        let alone = AttentionShape { heads: 1, kv_heads: 1, ..*shape };
        let DistanceRoom { queries, keys, inputs, attended, products: [of_queries, of_keys] } = room;
        take_head(q, width, dim, head, queries);
        take_head(k, width, dim, head, keys);
        let products = DistanceProducts {
            columns: &self.columns,
            of_queries: self.keys.as_ref().map(|heads| multiply(isa, inputs, queries, &heads[head], of_queries)),
            of_keys: self.queries.as_ref().map(|heads| multiply(isa, inputs, keys, &heads[head], of_keys)),
        };
        let of_head = |segment: &AttentionSegment<'a>| -> AttentionSegment<'a> {
            let spans = segment.spans.iter().map(|span| {
                let (keys, values) = (alone.keys_len(span.len), alone.values_len(span.len));
                PackedSpan {
                    keys: &span.keys[head * keys..][..keys],
                    values: &span.values[head * values..][..values],
                    len: span.len,
                }
            });
            AttentionSegment { spans: spans.collect(), rows: segment.rows.clone(), wanted: segment.wanted }
        };
        let segments: Vec<_> = segments.iter().map(of_head).collect();
        attended.set_len(queries.len());
        attention(isa, &alone, Some(ScoreBias::Products(products)), queries, &segments, attended);
    }
}

/// Products of a head's rows with the relative positions: `(rows, 2 span)`.
fn multiply<'a>(
    isa: Isa,
    inputs: &mut Inputs,
    x: &[f32],
    weights: &PackedMatrix,
    to: &'a mut Buffer<f32>,
) -> &'a [f32] {
    let dim = weights.in_features();
    to.set_len(x.len() / dim * weights.out_features());
    inputs.set(isa, x, dim, [weights.form()]);
    matmul(isa, inputs, &mut [MatrixProduct { weights, bias: None, y: to, add: false }]);
    to
}
