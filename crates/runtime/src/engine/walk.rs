//! The walk over a prefix tree: computes each token once, in packed groups, and frees its cache when no longer needed.

use std::sync::Arc;

use candle_core::Tensor;
use probity_models::{KvSpan, LayerTaps, PackedDecoder, PackedSegment};

use super::kept::ReusedNodes;
use super::scheduler::{NodeStretch, ScheduleLimits, Scheduler};
use super::tree::{NodeId, PrefixTree};

/// Output of a group.
pub(crate) struct ComputedGroup<'a> {
    /// The computed tokens, with the offsets of requested rows within each node.
    pub(crate) stretches: &'a [(NodeStretch, Vec<usize>)],
    /// Final hidden states of all requested rows, concatenated: `(rows, hidden_size)`.
    pub(crate) hidden: &'a Tensor,
    paths: &'a dyn Fn(NodeId) -> Vec<Arc<KvSpan>>,
}

impl ComputedGroup<'_> {
    /// The cached path up to the last computed token of a node in the group.
    pub(crate) fn path(&self, node: NodeId) -> Vec<Arc<KvSpan>> {
        (self.paths)(node)
    }
}

/// Observes the residual stream during the walk.
pub(crate) struct NodeTaps<'a> {
    /// As in [`LayerTaps::layers`].
    pub(crate) layers: &'a [usize],
    /// Receives the computed tokens, an index into `layers` and their rows; not called for encoder input.
    pub(crate) see: &'a mut (dyn FnMut(&NodeStretch, usize, &[f32]) + Send),
}

/// Why a walk ended early.
#[derive(Debug)]
pub(crate) enum WalkError<E> {
    Model(candle_core::Error),
    Visitor(E),
}

impl<E> From<candle_core::Error> for WalkError<E> {
    fn from(error: candle_core::Error) -> Self {
        Self::Model(error)
    }
}

/// Computes every node of the tree within the limits and passes each group to `visit`. Returns the peak bytes of cache.
///
/// `wanted` returns the offsets within a node whose hidden states are requested, ascending. None of them may be in
/// `reused`, which is not computed. `taps` see a group before `visit`. Computed prefixes are added to the prefix cache.
pub(crate) fn walk<E>(
    model: &dyn PackedDecoder,
    tree: &PrefixTree<'_>,
    limits: ScheduleLimits,
    wanted: &dyn Fn(NodeId) -> Vec<usize>,
    reused: &ReusedNodes<'_>,
    mut taps: Option<&mut NodeTaps<'_>>,
    visit: &mut dyn FnMut(ComputedGroup<'_>) -> Result<(), WalkError<E>>,
) -> Result<u64, WalkError<E>> {
    let bytes = |tokens| model.cache_bytes(tokens) as u64;
    let mut scheduler = Scheduler::new(tree, limits, &bytes, reused);
    let mut spans: Vec<Vec<Arc<KvSpan>>> = vec![Vec::new(); tree.len()];
    while let Some(group) = scheduler.next_group() {
        let path = |spans: &[Vec<Arc<KvSpan>>], node| -> Vec<Arc<KvSpan>> {
            let mut path = Vec::new();
            for node in scheduler.ancestors(node).into_iter().chain([node]) {
                // The reused path starts at the root.
                if let Some(reused) = reused.path(node) {
                    path = reused.to_vec();
                }
                path.extend_from_slice(&spans[node]);
            }
            path
        };
        let wanted = |stretch: &NodeStretch| -> Vec<usize> {
            // If a node is split, each requested row is in the part that contains it.
            wanted(stretch.node).into_iter().filter(|row| stretch.range.contains(row)).collect()
        };
        let stretches: Vec<(NodeStretch, Vec<usize>)> =
            group.iter().map(|stretch| (stretch.clone(), wanted(stretch))).collect();
        let segment = |(stretch, wanted): &(NodeStretch, Vec<usize>)| PackedSegment {
            past: path(&spans, stretch.node),
            tokens: tree.tokens(stretch.node)[stretch.range.clone()].to_vec(),
            wanted: wanted.iter().map(|row| row - stretch.range.start).collect(),
        };
        let segments: Vec<PackedSegment> = stretches.iter().map(segment).collect();
        let output = match &mut taps {
            Some(taps) => {
                let shown: Vec<&NodeStretch> = group.iter().filter(|s| !tree.node(s.node).is_source).collect();
                let tokens: usize = shown.iter().map(|stretch| stretch.range.len()).sum();
                let mut see = |place: usize, rows: &[f32]| {
                    let (width, mut rest) = (rows.len() / tokens, rows);
                    for stretch in &shown {
                        let (own, others) = rest.split_at(stretch.range.len() * width);
                        (taps.see)(stretch, place, own);
                        rest = others;
                    }
                };
                model.forward_tapped(&segments, &mut LayerTaps { layers: taps.layers, see: &mut see })?
            }
            None => model.forward(&segments)?,
        };
        for (stretch, span) in group.iter().zip(output.spans) {
            spans[stretch.node].push(span);
        }
        // Before anything is freed: the visitor may take the paths just computed.
        visit(ComputedGroup { stretches: &stretches, hidden: &output.hidden, paths: &|node| path(&spans, node) })?;
        // Leaves only: their paths include their ancestors.
        let leaves = group.iter().filter(|stretch| {
            tree.children(stretch.node).is_empty() && stretch.range.end == tree.tokens(stretch.node).len()
        });
        for NodeStretch { node, .. } in leaves {
            let nodes = scheduler.ancestors(*node).into_iter().chain([*node]);
            let tokens: Vec<u32> = nodes.flat_map(|node| tree.tokens(node)).copied().collect();
            reused.keep(model, &tokens, &path(&spans, *node));
        }
        scheduler.finish(&group, &mut |node| spans[node].clear());
    }
    Ok(scheduler.peak())
}

/// Peak bytes of cache for a walk over the tree. Computes nothing.
pub(crate) fn plan(model: &dyn PackedDecoder, tree: &PrefixTree<'_>, limits: ScheduleLimits) -> u64 {
    let bytes = |tokens| model.cache_bytes(tokens) as u64;
    let reused = ReusedNodes::default();
    let mut scheduler = Scheduler::new(tree, limits, &bytes, &reused);
    while let Some(group) = scheduler.next_group() {
        scheduler.finish(&group, &mut |_| ());
    }
    scheduler.peak()
}
