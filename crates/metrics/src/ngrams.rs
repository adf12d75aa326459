//! Counts n-grams of a candidate that occur in references.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

/// The root of the trie: the empty n-gram.
const ROOT: u32 = 0;

/// All n-grams of some references up to an order, as a trie whose edges are in one hash table with a fixed hash.
/// Candidates are only looked up, so no result depends on the table's order. Memory is reused between items.
#[derive(Debug)]
pub(crate) struct Ngrams {
    edges: TrieEdges,
    nodes: Vec<TrieNode>,
    /// By position in a text: the node of the n-gram that begins there.
    begun: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct TrieNode {
    /// Maximum number of occurrences in one reference.
    most: u32,
    /// Number of occurrences in the current text.
    count: u32,
    text: u32,
}

impl Ngrams {
    pub(crate) fn new() -> Self {
        Self { edges: TrieEdges::default(), nodes: vec![TrieNode::default()], begun: Vec::new() }
    }

    /// Counts the n-grams of references up to `order`: for each n-gram the maximum number of occurrences in one
    /// reference.
    pub(crate) fn read<'t>(&mut self, references: impl IntoIterator<Item = &'t [u32]> + Clone, order: usize) {
        let tokens: usize = references.clone().into_iter().map(<[u32]>::len).sum();
        self.edges.clear(tokens * order);
        self.nodes.truncate(1);
        for (text, reference) in (1..).zip(references) {
            self.begun.clear();
            self.begun.resize(reference.len(), ROOT);
            for n in 0..order.min(reference.len()) {
                for (begun, token) in self.begun.iter_mut().zip(&reference[n..]) {
                    let next = self.nodes.len() as u32;
                    *begun = self.edges.get_or_insert(*begun, *token, next);
                    if *begun == next {
                        self.nodes.push(TrieNode::default());
                    }
                    self.nodes[*begun as usize].occurs(text);
                }
            }
        }
        // The candidate reuses the counts; only the maxima of the references are needed.
        for node in &mut self.nodes {
            *node = TrieNode { most: node.most, ..TrieNode::default() };
        }
    }

    /// Number of n-grams of each order `1..=matches.len()` shared by the candidate and the references, each counted at
    /// most as often as in one reference. Call once per reading.
    pub(crate) fn matches(&mut self, candidate: &[u32], matches: &mut [u32]) {
        /// Marks an n-gram that the references do not contain.
        const LOST: u32 = u32::MAX;
        self.begun.clear();
        self.begun.resize(candidate.len(), ROOT);
        for (n, matched) in matches.iter_mut().enumerate().take(candidate.len()) {
            // An n-gram missing at one order is missing at all longer ones, so a candidate unlike the references costs
            // one lookup per token.
            for (begun, token) in self.begun.iter_mut().zip(&candidate[n..]).filter(|(begun, _)| **begun != LOST) {
                *begun = self.edges.get(*begun, *token).unwrap_or(LOST);
                if let Some(node) = self.nodes.get_mut(*begun as usize) {
                    *matched += u32::from(node.count < node.most);
                    node.count += 1;
                }
            }
        }
    }
}

impl TrieNode {
    fn occurs(&mut self, text: u32) {
        self.count = if self.text == text { self.count + 1 } else { 1 };
        self.text = text;
        self.most = self.most.max(self.count);
    }
}

/// Edges from a node and a token to a node: an open-addressing table whose slots record their filling, so that clearing
/// is free. General hash tables take three times as long here, because the table is refilled for every pair of texts.
#[derive(Debug, Default)]
struct TrieEdges {
    /// Length is a power of two, and at most half of the slots are used.
    slots: Vec<EdgeSlot>,
    filling: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct EdgeSlot {
    key: u64,
    filling: u32,
    node: u32,
}

impl TrieEdges {
    /// Clears the table and reserves space for `edges` edges.
    fn clear(&mut self, edges: usize) {
        let slots = (2 * edges).max(64).next_power_of_two();
        // After an overflow of the counter, old slots would seem to be in use.
        if slots > self.slots.len() || self.filling == u32::MAX {
            self.slots = vec![EdgeSlot::default(); slots.max(self.slots.len())];
            self.filling = 0;
        }
        self.filling += 1;
    }

    fn get(&self, node: u32, token: u32) -> Option<u32> {
        let slot = &self.slots[self.find(key(node, token))];
        (slot.filling == self.filling).then_some(slot.node)
    }

    /// The node of the edge; inserts `next` if the edge is new.
    fn get_or_insert(&mut self, node: u32, token: u32, next: u32) -> u32 {
        let key = key(node, token);
        let place = self.find(key);
        let slot = &mut self.slots[place];
        if slot.filling != self.filling {
            *slot = EdgeSlot { key, filling: self.filling, node: next };
        }
        slot.node
    }

    /// The slot with the key, or the free slot for it.
    fn find(&self, key: u64) -> usize {
        /// 2^64 over the golden ratio (Knuth, volume 3, section 6.4): the upper bits of its product are well mixed.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let mask = self.slots.len() - 1;
        // The upper bits: the lower bits of the product depend only on the lower bits of the token.
        let mut place = (key.wrapping_mul(GOLDEN) >> (u64::BITS - mask.count_ones())) as usize;
        loop {
            let slot = &self.slots[place];
            if slot.filling != self.filling || slot.key == key {
                return place;
            }
            place = (place + 1) & mask;
        }
    }
}

fn key(node: u32, token: u32) -> u64 {
    u64::from(node) << 32 | u64::from(token)
}

/// Number of n-grams of `order` in a text of `len` tokens.
pub(crate) fn total(len: usize, order: usize) -> usize {
    (len + 1).saturating_sub(order)
}

/// Numbers words: equal words have equal numbers.
#[derive(Debug)]
pub(crate) struct Interner<'t> {
    known: HashMap<&'t str, u32, FxBuildHasher>,
}

impl Default for Interner<'_> {
    fn default() -> Self {
        /// Most pairs of texts have fewer words.
        const ROOM: usize = 200;
        Self { known: HashMap::with_capacity_and_hasher(ROOM, FxBuildHasher) }
    }
}

impl<'t> Interner<'t> {
    /// The numbers of the words.
    pub(crate) fn ids(&mut self, words: impl IntoIterator<Item = &'t str>) -> Vec<u32> {
        let id = |word| {
            let next = self.known.len() as u32;
            *self.known.entry(word).or_insert(next)
        };
        words.into_iter().map(id).collect()
    }

    /// Number of distinct words.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ngram_matches_as_often_as_the_reference_that_has_it_most() {
        let mut ngrams = Ngrams::new();
        ngrams.read([&[1, 1, 2][..], &[1, 3, 2, 2]], 2);
        let mut matches = [0; 2];
        ngrams.matches(&[1, 1, 1, 2, 2], &mut matches);
        assert_eq!(matches, [4, 3]);
    }

    #[test]
    fn what_was_read_before_is_forgotten() {
        let mut ngrams = Ngrams::new();
        ngrams.read([&[1, 2, 3][..]], 3);
        ngrams.read([&[3][..]], 3);
        let mut matches = [0; 3];
        ngrams.matches(&[1, 2, 3], &mut matches);
        assert_eq!(matches, [1, 0, 0]);
    }
}
