//! Schedules the nodes of a prefix tree into groups within a cache budget. Independent of the model, so that dry runs
//! use it too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::kept::ReusedNodes;
use super::tree::{NodeId, PrefixTree};

/// Limits of a schedule. They never change a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScheduleLimits {
    /// Maximum tokens per group, at least 1.
    pub(crate) tokens: usize,
    /// Cache budget in bytes.
    pub(crate) cache: u64,
}

/// Bytes of `tokens` tokens computed in parts of at most `piece` tokens; `bytes` is the size of a span.
pub(crate) fn bytes_in_pieces(tokens: usize, piece: usize, bytes: &dyn Fn(usize) -> u64) -> u64 {
    let (whole, rest) = (tokens / piece, tokens % piece);
    let whole = if whole > 0 { whole as u64 * bytes(piece) } else { 0 };
    whole + if rest > 0 { bytes(rest) } else { 0 }
}

/// Consecutive tokens of a node that run together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeStretch {
    pub(crate) node: NodeId,
    /// Offsets within the node.
    pub(crate) range: Range<usize>,
}

/// A node whose parent is done, and how many of its tokens are done.
#[derive(Debug, Clone, Copy)]
struct ReadyNode {
    node: NodeId,
    done: usize,
}

/// Walks a tree in packed groups: every token once, parents before children.
///
/// A group takes ready nodes from the deepest level first and fills up from shallower levels to the token limit. A node
/// longer than the limit is split, unless an encoder reads it. To stay within the cache budget, a group grows only if
/// afterwards every ready node could still be finished with its subtree, one path after another. Otherwise the deepest
/// node runs alone, which is depth-first and preserves that condition. Only a single path that exceeds the budget can
/// violate it.
pub(crate) struct Scheduler<'t> {
    tree: &'t PrefixTree<'t>,
    reused: &'t ReusedNodes<'t>,
    limits: ScheduleLimits,
    bytes: &'t dyn Fn(usize) -> u64,
    parents: Vec<NodeId>,
    /// Bytes to finish a node and its subtree, one path after another.
    needs: Vec<u64>,
    /// Bytes of a node's live spans.
    held: Vec<u64>,
    /// Number of unfinished children.
    open: Vec<usize>,
    ready: BTreeMap<Reverse<usize>, VecDeque<ReadyNode>>,
    depths: Vec<usize>,
    live: u64,
    peak: u64,
    /// Whether a leaf is done. Until then, nodes run one by one along the first path, so that a first answer comes
    /// early and a process that is killed repeatedly still makes progress.
    answered: bool,
}

impl<'t> Scheduler<'t> {
    /// Creates a schedule for the tree; `bytes` is the size of a new span. Reused tokens do not run: either a whole
    /// node, whose children are then ready, or its first tokens, but never the last token of a leaf.
    pub(crate) fn new(
        tree: &'t PrefixTree<'t>,
        limits: ScheduleLimits,
        bytes: &'t dyn Fn(usize) -> u64,
        reused: &'t ReusedNodes<'t>,
    ) -> Self {
        let limits = ScheduleLimits { tokens: limits.tokens.max(1), ..limits };
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
            reused,
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
            answered: false,
        };
        // Children before parents. Paths below a node run one after another, so the largest counts.
        for node in order.into_iter().rev() {
            let below = tree.children(node).iter().map(|child| scheduler.needs[*child]).max().unwrap_or(0);
            let piece = scheduler.piece(node);
            scheduler.needs[node] =
                bytes_in_pieces(tree.tokens(node).len() - reused.tokens(node), piece, bytes) + below;
        }
        scheduler.make_ready(0);
        scheduler
    }

    /// Maximum number of a node's tokens per group; encoder input cannot be split.
    fn piece(&self, node: NodeId) -> usize {
        let len = self.tree.tokens(node).len();
        if self.tree.node(node).is_source { self.limits.tokens.max(len) } else { self.limits.tokens }
    }

    /// Peak bytes so far.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    /// Ancestors of a node without the root, parent last.
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
        // An explicit stack, because prompts determine the depth of the tree.
        let mut parents = vec![parent];
        while let Some(parent) = parents.pop() {
            for &node in self.tree.children(parent) {
                let done = self.reused.tokens(node);
                if done == self.tree.tokens(node).len() {
                    parents.push(node);
                } else {
                    self.ready.entry(Reverse(self.depths[node])).or_default().push_back(ReadyNode { node, done });
                }
            }
        }
    }

    /// The next group, or `None` when all are done. The previous group must be [finished](Self::finish).
    pub(crate) fn next_group(&mut self) -> Option<Vec<NodeStretch>> {
        // Over all ready nodes, including those not taken: the last one must still fit.
        let hardest = self.ready.values().flatten().map(|item| self.needs[item.node] - self.held[item.node]).max()?;
        let mut group = Vec::new();
        let mut tokens = self.limits.tokens;
        // Bytes live during the group, and bytes that remain afterwards.
        let (mut during, mut after) = (self.live, self.live);
        // Deepest first: finished nodes release their cache.
        for level in self.ready.values_mut() {
            let mut taken = Vec::new();
            for (place, item) in level.iter().enumerate() {
                let rest = self.tree.tokens(item.node).len() - item.done;
                let piece = if self.tree.node(item.node).is_source { rest } else { tokens };
                // Only the first node of a group may be split, if it exceeds the group limit. A part of another node
                // would hold cache without benefit until the rest has run.
                let len = if group.is_empty() { rest.min(piece) } else { rest };
                if len > tokens && !group.is_empty() {
                    continue;
                }
                let bytes = (self.bytes)(len);
                // A leaf's keys and values are freed when its group is done, so they count only during the group.
                let passes = len == rest && self.tree.children(item.node).is_empty();
                let stays = if passes { 0 } else { bytes };
                let fits =
                    during + bytes <= self.limits.cache && (passes || after + stays + hardest <= self.limits.cache);
                if !fits && !group.is_empty() {
                    continue;
                }
                group.push(NodeStretch { node: item.node, range: item.done..item.done + len });
                taken.push(place);
                (during, after, tokens) = (during + bytes, after + stays, tokens.saturating_sub(len));
                self.held[item.node] += bytes;
                if tokens == 0 || !self.answered {
                    break;
                }
            }
            for place in taken.into_iter().rev() {
                level.remove(place);
            }
            if tokens == 0 || (!self.answered && !group.is_empty()) {
                break;
            }
        }
        self.ready.retain(|_, level| !level.is_empty());
        self.live = during;
        self.peak = self.peak.max(during);
        Some(group)
    }

    /// Records that a group was computed; `free` receives each node whose spans are no longer needed.
    pub(crate) fn finish(&mut self, group: &[NodeStretch], free: &mut dyn FnMut(NodeId)) {
        for stretch in group {
            if stretch.range.end < self.tree.tokens(stretch.node).len() {
                let item = ReadyNode { node: stretch.node, done: stretch.range.end };
                // At the front: it already holds cache and releases it only when done.
                self.ready.entry(Reverse(self.depths[stretch.node])).or_default().push_front(item);
            } else if self.tree.children(stretch.node).is_empty() {
                self.answered = true;
                self.free(stretch.node, free);
            } else {
                self.make_ready(stretch.node);
            }
        }
    }

    /// Marks a node and its subtree as done, and then its ancestors if they are complete.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tree::in_groups;
    use super::*;

    fn tree_of(sequences: &[Vec<u32>]) -> PrefixTree<'_> {
        PrefixTree::new(in_groups(sequences.iter().map(|tokens| (tokens.as_slice(), 0)), |_| 0))
    }

    /// Padded like real spans: blocks of four tokens plus a constant per span.
    fn bytes(tokens: usize) -> u64 {
        10 * tokens.next_multiple_of(4) as u64 + 3
    }

    /// The groups of a whole schedule and the peak bytes. Checks that no node runs before its parent or after it was
    /// freed, and that no group exceeds the token limit.
    fn run(tree: &PrefixTree<'_>, limits: ScheduleLimits) -> (Vec<Vec<NodeStretch>>, u64) {
        let reused = ReusedNodes::default();
        let mut scheduler = Scheduler::new(tree, limits, &bytes, &reused);
        let mut lives: Vec<u64> = vec![0; tree.len()];
        let (mut groups, mut peak) = (Vec::new(), 0);
        while let Some(group) = scheduler.next_group() {
            assert!(!group.is_empty() && group.iter().map(|s| s.range.len()).sum::<usize>() <= limits.tokens);
            for stretch in &group {
                for above in scheduler.ancestors(stretch.node) {
                    assert!(lives[above] > 0, "the cache above a node is there");
                }
                lives[stretch.node] += bytes(stretch.range.len());
            }
            peak = peak.max(lives.iter().sum());
            scheduler.finish(&group, &mut |node| {
                assert!(lives[node] > 0, "a node is freed once");
                lives[node] = 0;
            });
            groups.push(group);
        }
        assert!(lives.iter().all(|bytes| *bytes == 0), "nothing is left");
        assert_eq!(scheduler.peak(), peak);
        (groups, peak)
    }

    /// Bytes of the largest path, which must fit regardless of the limit.
    fn heaviest_path(tree: &PrefixTree<'_>, limits: ScheduleLimits, node: NodeId) -> u64 {
        let below = tree.children(node).iter().map(|child| heaviest_path(tree, limits, *child)).max().unwrap_or(0);
        let tokens = tree.tokens(node).len();
        let whole = (0..tokens / limits.tokens).map(|_| bytes(limits.tokens)).sum::<u64>();
        below + whole + if tokens.is_multiple_of(limits.tokens) { 0 } else { bytes(tokens % limits.tokens) }
    }

    proptest! {
        #[test]
        fn every_token_runs_once_and_the_cache_keeps_to_its_limit_or_to_one_path(
            sequences in prop::collection::vec(prop::collection::vec(0u32..3, 1..24), 1..40),
            tokens in 1usize..40,
            share in 0.0f64..1.5,
        ) {
            let tree = tree_of(&sequences);
            let unlimited = run(&tree, ScheduleLimits { tokens, cache: u64::MAX }).1;
            let limits = ScheduleLimits { tokens, cache: (unlimited as f64 * share) as u64 };
            let (groups, peak) = run(&tree, limits);
            let mut done: Vec<Vec<bool>> = (0..tree.len()).map(|node| vec![false; tree.tokens(node).len()]).collect();
            for stretch in groups.iter().flatten() {
                for row in stretch.range.clone() {
                    prop_assert!(!std::mem::replace(&mut done[stretch.node][row], true), "twice");
                    prop_assert!(row == 0 || done[stretch.node][row - 1], "out of order");
                }
            }
            prop_assert!(done.iter().flatten().all(|done| *done));
            prop_assert!(peak <= limits.cache.max(heaviest_path(&tree, limits, 0)), "{peak} bytes under {limits:?}");
        }
    }

    /// A context, 16 candidates after it, and after each the 15 others with the question: all ordered pairs.
    fn comparisons() -> Vec<Vec<u32>> {
        let candidate = |k: u32| (0..60).map(move |t| 1000 + 60 * k + t);
        let pairs = (0..16).flat_map(|i| (0..16).filter(move |j| *j != i).map(move |j| (i, j)));
        pairs.map(|(i, j)| (0..400).chain(candidate(i)).chain(candidate(j)).chain(0..40).collect()).collect()
    }

    #[test]
    fn many_small_nodes_run_together() {
        let sequences = comparisons();
        let tree = tree_of(&sequences);
        assert_eq!(tree.token_count(), 400 + 16 * 60 + 240 * 100);
        let (groups, _) = run(&tree, ScheduleLimits { tokens: 1024, cache: u64::MAX });
        assert!(groups[..3].iter().all(|group| group.len() == 1), "the first path alone");
        assert_eq!(groups.len(), 3 + 26, "the first path, and the rest by tens");
    }

    #[test]
    fn shallower_work_fills_a_group_up() {
        // Two contexts of different length: the second runs with the children of the first.
        let below = |context: u32, len: u32, end: u32| {
            (0..len).map(move |t| 100 * context + t).chain([1000 + end, 1]).collect::<Vec<u32>>()
        };
        let sequences = [below(1, 9, 0), below(1, 9, 1), below(2, 5, 0), below(2, 5, 1)];
        let tree = tree_of(&sequences);
        let (groups, _) = run(&tree, ScheduleLimits { tokens: 9, cache: u64::MAX });
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 2, 2]);
    }

    #[test]
    fn a_tight_cache_goes_one_path_at_a_time_and_leaves_still_run_together() {
        let sequences = comparisons();
        let tree = tree_of(&sequences);
        let path = heaviest_path(&tree, ScheduleLimits { tokens: 1024, cache: 0 }, 0);
        let limits = ScheduleLimits { tokens: 1024, cache: path + bytes(100) };
        let (groups, peak) = run(&tree, limits);
        assert!(peak <= limits.cache);
        assert_eq!(groups.len(), 1 + 16 * (1 + 8), "each first candidate by itself, what follows it by twos");
    }
}
