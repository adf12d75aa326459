//! The walk over a prefix tree: depth first over packed groups, each node computed once and freed with its last child.

use std::collections::VecDeque;
use std::sync::Arc;

use candle_core::Tensor;
use probity_models::{Decoder, KvSpan, PackedSegment};

use super::tree::{NodeId, PrefixTree};

/// A stretch of tokens to compute, below a path that is already there.
struct Item {
    node: NodeId,
    /// Tokens of the node that are done.
    done: usize,
    path: Vec<Arc<KvSpan>>,
}

/// What a node's computation gave.
pub(crate) struct Visit<'a> {
    pub(crate) node: NodeId,
    /// Final hidden states of the wanted tokens of this stretch, `(wanted, hidden_size)`.
    pub(crate) hidden: Tensor,
    /// Offsets within the node of the rows of `hidden`.
    pub(crate) wanted: &'a [usize],
    /// The cache up to the end of this stretch.
    pub(crate) path: &'a [Arc<KvSpan>],
    /// Whether the node ends here.
    pub(crate) complete: bool,
}

/// Why a walk ended early.
pub(crate) enum WalkError<E> {
    Model(candle_core::Error),
    Visitor(E),
}

impl<E> From<candle_core::Error> for WalkError<E> {
    fn from(error: candle_core::Error) -> Self {
        Self::Model(error)
    }
}

/// Computes every node of the tree and shows each to `visit`.
///
/// `wanted` gives the offsets within a node whose hidden state is asked for, ascending. At most `budget` tokens run at once; a longer node
/// runs in pieces. The cache that lives at a time is bounded by `budget` tokens for each level of the tree, besides the current path.
pub(crate) fn walk<E>(
    model: &dyn Decoder,
    tree: &PrefixTree<'_>,
    budget: usize,
    wanted: &dyn Fn(NodeId) -> Vec<usize>,
    visit: &mut dyn FnMut(Visit<'_>) -> Result<(), E>,
) -> Result<(), WalkError<E>> {
    let below = |node: NodeId, path: &[Arc<KvSpan>]| -> VecDeque<Item> {
        tree.children(node).iter().map(|child| Item { node: *child, done: 0, path: path.to_vec() }).collect()
    };
    let mut levels = vec![below(0, &[])];
    while let Some(level) = levels.last_mut() {
        if level.is_empty() {
            levels.pop();
            continue;
        }
        let group = take_group(tree, level, budget);
        let segments: Vec<PackedSegment> = group.iter().map(|(item, len)| segment(tree, item, *len, &wanted(item.node))).collect();
        let output = model.forward(&segments)?;
        let mut next = VecDeque::new();
        let mut unfinished = None;
        let mut row = 0;
        for (((mut item, len), segment), span) in group.into_iter().zip(&segments).zip(output.spans) {
            item.path.push(span);
            let wanted: Vec<usize> = segment.wanted.iter().map(|offset| item.done + offset).collect();
            let hidden = output.hidden.narrow(0, row, wanted.len())?;
            row += wanted.len();
            let complete = item.done + len == tree.tokens(item.node).len();
            visit(Visit { node: item.node, hidden, wanted: &wanted, path: &item.path, complete }).map_err(WalkError::Visitor)?;
            if complete {
                next.append(&mut below(item.node, &item.path));
            } else {
                unfinished = Some(Item { done: item.done + len, ..item });
            }
        }
        if let Some(item) = unfinished {
            levels.last_mut().expect("the level that the group came from").push_front(item);
        }
        if !next.is_empty() {
            levels.push(next);
        }
    }
    Ok(())
}

/// Items from the front whose tokens fit the budget together, with how many of their tokens run now. Only the last one may be cut.
fn take_group(tree: &PrefixTree<'_>, level: &mut VecDeque<Item>, budget: usize) -> Vec<(Item, usize)> {
    let mut group = Vec::new();
    let mut left = budget.max(1);
    while let Some(item) = level.front() {
        let rest = tree.tokens(item.node).len() - item.done;
        // Only a node that could never run whole is cut, and it runs alone.
        if rest > left && !group.is_empty() {
            break;
        }
        let len = rest.min(left);
        left -= len;
        group.push((level.pop_front().expect("looked at above"), len));
        if left == 0 {
            break;
        }
    }
    group
}

fn segment(tree: &PrefixTree<'_>, item: &Item, len: usize, wanted: &[usize]) -> PackedSegment {
    let range = item.done..item.done + len;
    PackedSegment {
        past: item.path.clone(),
        tokens: tree.tokens(item.node)[range.clone()].to_vec(),
        wanted: wanted.iter().filter(|offset| range.contains(offset)).map(|offset| offset - item.done).collect(),
    }
}
