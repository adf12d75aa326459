//! The prefix tree of a work list: each shared prefix is stored once.

use std::collections::BTreeMap;
use std::ops::Range;

/// Index of a node in its tree; 0 is the root, which has no tokens.
pub(crate) type NodeId = usize;

/// Consecutive tokens below a parent.
#[derive(Debug)]
pub(crate) struct TreeNode {
    /// Whether an encoder reads it, as a whole.
    pub(crate) is_source: bool,
    /// Sequence and range of the tokens.
    sequence: usize,
    range: Range<usize>,
    /// In order of first appearance in the work list.
    children: Vec<NodeId>,
    /// Sequences that end at this node.
    pub(crate) ends: Vec<usize>,
}

/// A token sequence, and its group; only sequences of a group share prefixes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeSequence<'a> {
    pub(crate) tokens: &'a [u32],
    /// Number of tokens that an encoder reads, as one node; 0 without an encoder. Equal within a group.
    pub(crate) source: usize,
    pub(crate) group: usize,
}

/// Assigns sequences to groups, from their tokens and the number of tokens that an encoder reads. Sequences with the
/// same `alone` share prefixes. Encoder input is shared as a whole or not at all, because each of its tokens attends to
/// all others.
pub(crate) fn in_groups<'a>(
    sequences: impl Iterator<Item = (&'a [u32], usize)>,
    alone: impl Fn(usize) -> usize,
) -> Vec<TreeSequence<'a>> {
    // By content: each prompt has its own copy of the source.
    let mut sources = BTreeMap::new();
    let mut group = |alone: usize, source: &'a [u32]| {
        let next = sources.len();
        *sources.entry((alone, source)).or_insert(next)
    };
    sequences
        .enumerate()
        .map(|(index, (tokens, source))| TreeSequence { tokens, source, group: group(alone(index), &tokens[..source]) })
        .collect()
}

/// A radix tree over token sequences. Each sequence ends at the end of a node.
#[derive(Debug)]
pub(crate) struct PrefixTree<'a> {
    sequences: Vec<TreeSequence<'a>>,
    nodes: Vec<TreeNode>,
    /// Children by parent, group and first token: a node can have as many children as there are requests.
    index: BTreeMap<(NodeId, usize, u32), NodeId>,
}

/// Receives a sequence and the nodes on its path, each with its range in the sequence.
pub(crate) type EachPath<'e> = dyn FnMut(usize, &[(NodeId, Range<usize>)]) + 'e;

impl<'a> PrefixTree<'a> {
    /// Builds the tree of non-empty `sequences`. Only sequences of one group share a node.
    pub(crate) fn new(sequences: Vec<TreeSequence<'a>>) -> Self {
        let root = TreeNode { is_source: false, sequence: 0, range: 0..0, children: Vec::new(), ends: Vec::new() };
        let mut tree = Self { sequences, nodes: vec![root], index: BTreeMap::new() };
        for sequence in 0..tree.sequences.len() {
            tree.insert(sequence);
        }
        tree
    }

    fn add(&mut self, parent: NodeId, sequence: usize, range: Range<usize>) -> NodeId {
        let id = self.nodes.len();
        let is_source = range.start < self.sequences[sequence].source;
        self.nodes.push(TreeNode { is_source, sequence, range, children: Vec::new(), ends: Vec::new() });
        self.nodes[parent].children.push(id);
        self.index.insert(self.key(parent, id), id);
        id
    }

    fn insert(&mut self, sequence: usize) {
        let TreeSequence { tokens, source, group } = self.sequences[sequence];
        let (mut node, mut at) = (0, 0);
        while at < tokens.len() {
            let Some(&child) = self.index.get(&(node, group, tokens[at])) else {
                // Encoder input is a separate node: its tokens attend to each other, so it runs as a whole.
                let end = if at < source { source } else { tokens.len() };
                (node, at) = (self.add(node, sequence, at..end), end);
                continue;
            };
            let common = self.tokens(child).iter().zip(&tokens[at..]).take_while(|(a, b)| a == b).count();
            if common < self.tokens(child).len() {
                self.split(child, common);
            }
            (node, at) = (child, at + common);
        }
        self.nodes[node].ends.push(sequence);
    }

    /// Splits a node after its first `len` tokens; its children move below the second part.
    fn split(&mut self, id: NodeId, len: usize) {
        let lower = self.nodes.len();
        let node = &mut self.nodes[id];
        let middle = node.range.start + len;
        let second = TreeNode {
            // Only equal sources of one group meet, so a source is never split.
            is_source: false,
            sequence: node.sequence,
            range: middle..node.range.end,
            children: std::mem::replace(&mut node.children, vec![lower]),
            ends: std::mem::take(&mut node.ends),
        };
        node.range.end = middle;
        for child in second.children.clone() {
            self.index.remove(&self.key(id, child));
            self.index.insert(self.key(lower, child), child);
        }
        self.nodes.push(second);
        self.index.insert(self.key(id, lower), lower);
    }

    /// Index key of a child of `parent`.
    fn key(&self, parent: NodeId, child: NodeId) -> (NodeId, usize, u32) {
        (parent, self.sequences[self.nodes[child].sequence].group, self.tokens(child)[0])
    }

    /// The node's own tokens.
    pub(crate) fn tokens(&self, id: NodeId) -> &'a [u32] {
        let node = &self.nodes[id];
        // The root of an empty tree has no sequence.
        self.sequences.get(node.sequence).map_or(&[], |sequence| &sequence.tokens[node.range.clone()])
    }

    /// The node's children.
    pub(crate) fn children(&self, id: NodeId) -> &[NodeId] {
        &self.nodes[id].children
    }

    /// The node.
    pub(crate) fn node(&self, id: NodeId) -> &TreeNode {
        &self.nodes[id]
    }

    /// Number of nodes, including the root.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Calls `each` for every sequence with the nodes on its path from the root and their ranges in the sequence.
    pub(crate) fn each_path(&self, each: &mut EachPath<'_>) {
        // An explicit stack, because prompts determine the depth of the tree.
        let mut stack = vec![(0, 0, Vec::new())];
        while let Some((node, start, path)) = stack.pop() {
            let end = start + self.tokens(node).len();
            let mut path: Vec<(NodeId, Range<usize>)> = path;
            path.push((node, start..end));
            self.nodes[node].ends.iter().for_each(|sequence| each(*sequence, &path));
            stack.extend(self.nodes[node].children.iter().map(|child| (*child, end, path.clone())));
        }
    }

    /// Number of tokens in the tree, all of which must be computed.
    pub(crate) fn token_count(&self) -> u64 {
        self.nodes.iter().map(|node| node.range.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reconstructs each sequence from its path.
    fn read_back(tree: &PrefixTree<'_>) -> Vec<Vec<u32>> {
        let mut found = vec![Vec::new(); tree.sequences.len()];
        let mut stack = vec![(0, Vec::new())];
        while let Some((id, mut path)) = stack.pop() {
            path.extend_from_slice(tree.tokens(id));
            for end in &tree.node(id).ends {
                found[*end].clone_from(&path);
            }
            stack.extend(tree.children(id).iter().map(|child| (*child, path.clone())));
        }
        found
    }

    #[test]
    fn shared_stretches_stand_once_at_every_depth() {
        let sequences = [vec![1, 2, 3, 4], vec![1, 2, 3, 5], vec![1, 2, 9], vec![1, 2]];
        let tree = PrefixTree::new(in_groups(&sequences, |_| 0));
        assert_eq!(tree.token_count(), 6);
        assert_eq!(read_back(&tree), sequences);
        let alone = PrefixTree::new(in_groups(&sequences, |index| index));
        assert_eq!(alone.token_count(), 13);
        assert_eq!(read_back(&alone), sequences);
        let pairs = PrefixTree::new(in_groups(&sequences, |index| index / 2));
        assert_eq!(pairs.token_count(), 5 + 3);
    }

    fn in_groups(sequences: &[Vec<u32>], group: impl Fn(usize) -> usize) -> Vec<TreeSequence<'_>> {
        super::in_groups(sequences.iter().map(|tokens| (tokens.as_slice(), 0)), group)
    }

    #[test]
    fn what_an_encoder_reads_is_shared_as_a_whole_or_not_at_all() {
        // Two have the same source, one a prefix of it, one an extension.
        let sequences: [(&[u32], usize); 5] = [
            (&[1, 2, 3, 0, 7], 3),
            (&[1, 2, 3, 0, 8], 3),
            (&[1, 2, 0, 7], 2),
            (&[1, 2, 3, 0, 7], 4),
            (&[1, 2, 3, 0, 8, 9], 3),
        ];
        let tree = PrefixTree::new(super::in_groups(sequences.into_iter(), |_| 0));
        assert_eq!(read_back(&tree), sequences.map(|(tokens, _)| tokens.to_vec()));
        let sources: Vec<&[u32]> = tree.children(0).iter().map(|node| tree.tokens(*node)).collect();
        assert_eq!(sources, [&[1, 2, 3][..], &[1, 2], &[1, 2, 3, 0]]);
        assert!((0..tree.len()).all(|node| tree.node(node).is_source == tree.children(0).contains(&node)));
        assert_eq!(tree.token_count(), 3 + (1 + 1 + 1 + 1) + 2 + 2 + 4 + 1);
    }

    proptest! {
        #[test]
        fn the_tree_holds_each_sequence_and_each_prefix_once(
            sequences in prop::collection::vec(prop::collection::vec(0u32..3, 1..8), 1..12)
        ) {
            let tree = PrefixTree::new(in_groups(&sequences, |_| 0));
            prop_assert_eq!(read_back(&tree), sequences.clone());
            let prefixes: std::collections::BTreeSet<&[u32]> = sequences.iter().flat_map(|s| (1..=s.len()).map(move |l| &s[..l])).collect();
            prop_assert_eq!(tree.token_count(), prefixes.len() as u64);
        }
    }
}
