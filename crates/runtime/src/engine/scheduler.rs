//! Which stretches of a prefix tree run together, and what the cache holds meanwhile. Knows no model: a dry run plans with it too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::tree::{NodeId, PrefixTree};

/// What a schedule must keep to. None of it changes a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Tokens that run at once, at least 1.
    pub(crate) tokens: usize,
    /// Bytes of keys and values that live at once.
    pub(crate) cache: u64,
}

/// Consecutive tokens of a node that run in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) node: NodeId,
    /// Offsets within the node.
    pub(crate) range: Range<usize>,
}

/// A node whose parent is done, and how many of its tokens are.
#[derive(Debug, Clone, Copy)]
struct Ready {
    node: NodeId,
    done: usize,
}

/// Goes over a tree in packed groups: every token once, parents before children.
///
/// A group takes ready work from the deepest level first and fills up from shallower ones to the token limit. A node longer than the limit
/// runs in pieces. The cache stays under its limit: a group is only widened where afterwards every ready node could still be finished, with
/// all that is below it, one path after another. Where that leaves nothing, the deepest node goes alone, which is depth first: a state from
/// which every node could be finished never turns into one from which none can. Only a path that is longer than the limit by itself
/// exceeds it.
pub(crate) struct Scheduler<'t> {
    tree: &'t PrefixTree<'t>,
    limits: Limits,
    bytes: &'t dyn Fn(usize) -> u64,
    parents: Vec<NodeId>,
    /// Bytes to finish a node and all below it, one path after another.
    needs: Vec<u64>,
    /// Bytes of a node's spans that live.
    held: Vec<u64>,
    /// Children that are not finished.
    open: Vec<usize>,
    ready: BTreeMap<Reverse<usize>, VecDeque<Ready>>,
    depths: Vec<usize>,
    live: u64,
    peak: u64,
}

impl<'t> Scheduler<'t> {
    /// A schedule for the tree; `bytes` is what a new span of so many tokens takes.
    pub(crate) fn new(tree: &'t PrefixTree<'t>, limits: Limits, bytes: &'t dyn Fn(usize) -> u64) -> Self {
        let limits = Limits { tokens: limits.tokens.max(1), ..limits };
        let (mut parents, mut depths, mut order) = (vec![0; tree.len()], vec![0; tree.len()], vec![0]);
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            for &child in tree.children(node) {
                (parents[child], depths[child]) = (node, depths[node] + 1);
                order.push(child);
            }
            next += 1;
        }
        let mut scheduler = Self {
            tree,
            limits,
            bytes,
            parents,
            needs: vec![0; tree.len()],
            held: vec![0; tree.len()],
            open: (0..tree.len()).map(|node| tree.children(node).len()).collect(),
            ready: BTreeMap::new(),
            depths,
            live: 0,
            peak: 0,
        };
        for node in order.into_iter().rev() {
            let below = tree.children(node).iter().map(|child| scheduler.needs[*child]).max().unwrap_or(0);
            scheduler.needs[node] = scheduler.bytes_of(tree.tokens(node).len()) + below;
        }
        scheduler.make_ready(0);
        scheduler
    }

    /// Bytes of a node of so many tokens, run in pieces where it is longer than the token limit.
    fn bytes_of(&self, tokens: usize) -> u64 {
        let piece = self.limits.tokens;
        let rest = tokens % piece;
        let whole = if tokens >= piece { (tokens / piece) as u64 * (self.bytes)(piece) } else { 0 };
        whole + if rest > 0 { (self.bytes)(rest) } else { 0 }
    }

    /// The most bytes that lived at once so far.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    /// The spans above a node, the root's first.
    pub(crate) fn ancestors(&self, node: NodeId) -> Vec<NodeId> {
        let mut path = Vec::with_capacity(self.depths[node]);
        let mut at = self.parents[node];
        while at != 0 {
            path.push(at);
            at = self.parents[at];
        }
        path.reverse();
        path
    }

    fn make_ready(&mut self, parent: NodeId) {
        if !self.tree.children(parent).is_empty() {
            let level = self.ready.entry(Reverse(self.depths[parent] + 1)).or_default();
            level.extend(self.tree.children(parent).iter().map(|child| Ready { node: *child, done: 0 }));
        }
    }

    /// What runs next; `None` when all is done. The group before must have been [finished](Self::finish).
    pub(crate) fn next_group(&mut self) -> Option<Vec<Stretch>> {
        let hardest = self.ready.values().flatten().map(|item| self.needs[item.node] - self.held[item.node]).max()?;
        let mut group = Vec::new();
        let mut tokens = self.limits.tokens;
        // What lives while the group runs, and what of it may stay.
        let (mut during, mut after) = (self.live, self.live);
        for level in self.ready.values_mut() {
            let mut taken = Vec::new();
            for (place, item) in level.iter().enumerate() {
                let rest = self.tree.tokens(item.node).len() - item.done;
                let len = if group.is_empty() { rest.min(tokens) } else { rest };
                if len > tokens {
                    continue;
                }
                let bytes = (self.bytes)(len);
                let passes = len == rest && self.tree.children(item.node).is_empty();
                let stays = if passes { 0 } else { bytes };
                let fits = during + bytes <= self.limits.cache && (passes || after + stays + hardest <= self.limits.cache);
                if !fits && !group.is_empty() {
                    continue;
                }
                group.push(Stretch { node: item.node, range: item.done..item.done + len });
                taken.push(place);
                (during, after, tokens) = (during + bytes, after + stays, tokens - len);
                self.held[item.node] += bytes;
                if tokens == 0 {
                    break;
                }
            }
            for place in taken.into_iter().rev() {
                level.remove(place);
            }
            if tokens == 0 {
                break;
            }
        }
        self.ready.retain(|_, level| !level.is_empty());
        self.live = during;
        self.peak = self.peak.max(during);
        Some(group)
    }

    /// Takes note that a group was computed; `free` gets each node whose spans nobody needs any more.
    pub(crate) fn finish(&mut self, group: &[Stretch], free: &mut dyn FnMut(NodeId)) {
        for stretch in group {
            if stretch.range.end < self.tree.tokens(stretch.node).len() {
                let item = Ready { node: stretch.node, done: stretch.range.end };
                self.ready.entry(Reverse(self.depths[stretch.node])).or_default().push_front(item);
            } else if self.tree.children(stretch.node).is_empty() {
                self.free(stretch.node, free);
            } else {
                self.make_ready(stretch.node);
            }
        }
    }

    /// A node and all below it are done; so may be those above it.
    fn free(&mut self, node: NodeId, free: &mut dyn FnMut(NodeId)) {
        let mut node = node;
        while node != 0 && self.open[node] == 0 {
            self.live -= std::mem::take(&mut self.held[node]);
            free(node);
            node = self.parents[node];
            self.open[node] -= 1;
        }
    }
}
