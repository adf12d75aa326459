//! Which stretches of a prefix tree run together, and what the cache holds meanwhile. Knows no model: a dry run plans
//! with it too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::kept::ReusedNodes;
use super::tree::{NodeId, PrefixTree};

/// What a schedule must keep to. None of it changes a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScheduleLimits {
    /// Tokens that run at once, at least 1.
    pub(crate) tokens: usize,
    /// Bytes of keys and values that live at once.
    pub(crate) cache: u64,
}

/// Bytes of so many tokens that run in pieces where they are more than `piece`; `bytes` is what a span takes.
pub(crate) fn bytes_in_pieces(tokens: usize, piece: usize, bytes: &dyn Fn(usize) -> u64) -> u64 {
    let (whole, rest) = (tokens / piece, tokens % piece);
    let whole = if whole > 0 { whole as u64 * bytes(piece) } else { 0 };
    whole + if rest > 0 { bytes(rest) } else { 0 }
}

/// Consecutive tokens of a node that run in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeStretch {
    pub(crate) node: NodeId,
    /// Offsets within the node.
    pub(crate) range: Range<usize>,
}

/// A node whose parent is done, and how many of its tokens are.
#[derive(Debug, Clone, Copy)]
struct ReadyNode {
    node: NodeId,
    done: usize,
}

/// Goes over a tree in packed groups: every token once, parents before children.
///
/// A group takes ready work from the deepest level first and fills up from shallower ones to the token limit. A node
/// longer than the limit runs in pieces, unless an encoder reads it: then it runs whole. The cache stays under its
/// limit: a group is only widened where afterwards every ready node could still be finished, with all that is below it,
/// one path after another. Where that leaves nothing, the deepest node goes alone, which is depth first: a state from
/// which every node could be finished never turns into one from which none can. Only a path that is longer than the
/// limit by itself exceeds it.
pub(crate) struct Scheduler<'t> {
    tree: &'t PrefixTree<'t>,
    reused: &'t ReusedNodes<'t>,
    limits: ScheduleLimits,
    bytes: &'t dyn Fn(usize) -> u64,
    parents: Vec<NodeId>,
    /// Bytes to finish a node and all below it, one path after another.
    needs: Vec<u64>,
    /// Bytes of a node's spans that live.
    held: Vec<u64>,
    /// Children that are not finished.
    open: Vec<usize>,
    ready: BTreeMap<Reverse<usize>, VecDeque<ReadyNode>>,
    depths: Vec<usize>,
    live: u64,
    peak: u64,
    /// Whether a leaf is done. Until then nodes run one by one along the first path, so that there is an answer as soon
    /// as there can be one, and a process that is killed again and again comes on all the same.
    answered: bool,
}

impl<'t> Scheduler<'t> {
    /// A schedule for the tree; `bytes` is what a new span of so many tokens takes. Of what is reused nothing runs: all
    /// of a node, and its children are ready, or its first tokens, but never the last of a leaf.
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
        // Children before parents. Paths below a node are finished one after another, so the largest of them counts.
        for node in order.into_iter().rev() {
            let below = tree.children(node).iter().map(|child| scheduler.needs[*child]).max().unwrap_or(0);
            let piece = scheduler.piece(node);
            scheduler.needs[node] =
                bytes_in_pieces(tree.tokens(node).len() - reused.tokens(node), piece, bytes) + below;
        }
        scheduler.make_ready(0);
        scheduler
    }

    /// How many of a node's tokens run at once: what an encoder reads cannot be cut.
    fn piece(&self, node: NodeId) -> usize {
        let len = self.tree.tokens(node).len();
        if self.tree.node(node).is_source { self.limits.tokens.max(len) } else { self.limits.tokens }
    }

    /// The most bytes that lived at once so far.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    /// The nodes above a node, but for the root: its parent last.
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
        // A stack of our own: prompts decide how deep the tree is.
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

    /// What runs next; `None` when all is done. The group before must have been [finished](Self::finish).
    pub(crate) fn next_group(&mut self) -> Option<Vec<NodeStretch>> {
        // Of all ready nodes, not of those that are taken: whichever comes last must still fit.
        let hardest = self.ready.values().flatten().map(|item| self.needs[item.node] - self.held[item.node]).max()?;
        let mut group = Vec::new();
        let mut tokens = self.limits.tokens;
        // What lives while the group runs, and what of it may stay.
        let (mut during, mut after) = (self.live, self.live);
        // Deepest first: what is finished gives its cache back.
        for level in self.ready.values_mut() {
            let mut taken = Vec::new();
            for (place, item) in level.iter().enumerate() {
                let rest = self.tree.tokens(item.node).len() - item.done;
                let piece = if self.tree.node(item.node).is_source { rest } else { tokens };
                // Only the first node of a group may be cut: it is longer than a whole group may be. A part of any
                // other would hold cache for nothing until the rest has run.
                let len = if group.is_empty() { rest.min(piece) } else { rest };
                if len > tokens && !group.is_empty() {
                    continue;
                }
                let bytes = (self.bytes)(len);
                // A leaf's own keys and values go as soon as its group is done: they count while it runs, and not
                // behind it.
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

    /// Takes note that a group was computed; `free` gets each node whose spans nobody needs any more.
    pub(crate) fn finish(&mut self, group: &[NodeStretch], free: &mut dyn FnMut(NodeId)) {
        for stretch in group {
            if stretch.range.end < self.tree.tokens(stretch.node).len() {
                let item = ReadyNode { node: stretch.node, done: stretch.range.end };
                // In front: it holds cache already, and gives it back only when it is done.
                self.ready.entry(Reverse(self.depths[stretch.node])).or_default().push_front(item);
            } else if self.tree.children(stretch.node).is_empty() {
                self.answered = true;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tree::in_groups;
    use super::*;

    fn tree_of(sequences: &[Vec<u32>]) -> PrefixTree<'_> {
        PrefixTree::new(in_groups(sequences.iter().map(|tokens| (tokens.as_slice(), 0)), |_| 0))
    }

    /// As spans are padded: whole blocks of four tokens, and something for each span.
    fn bytes(tokens: usize) -> u64 {
        10 * tokens.next_multiple_of(4) as u64 + 3
    }

    /// The groups of a whole schedule, and the most bytes that lived at once; checks that no node runs before its
    /// parent or after it was freed, and that no group has more tokens than it may.
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

    /// Bytes of the heaviest path, which must be possible whatever the limit.
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
        // Two contexts of a different length: the second runs with what lies below the first.
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
