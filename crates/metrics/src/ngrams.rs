//! Counts of n-grams of a candidate that occur in references.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

/// The root of the trie: the empty n-gram.
const ROOT: u32 = 0;

/// All n-grams of some references up to an order, as a trie whose edges are kept in one hash table with a fixed hash. A
/// candidate is held against it; only lookups are made, so no result depends on the table's order. Used from item to
/// item: memory stays.
#[derive(Debug)]
pub(crate) struct Ngrams {
    edges: TrieEdges,
    nodes: Vec<TrieNode>,
    /// By position in a text: the node of the n-gram that begins there.
    begun: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct TrieNode {
    /// The most occurrences in any one reference.
    most: u32,
    /// Occurrences in the text of this number.
    count: u32,
    text: u32,
}

impl Ngrams {
    pub(crate) fn new() -> Self {
        Self { edges: TrieEdges::default(), nodes: vec![TrieNode::default()], begun: Vec::new() }
    }

    /// Counts the n-grams of references up to `order`: of each n-gram the most occurrences in any one of them.
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
        // The same counts serve the candidate next; only the maxima are wanted of the references.
        for node in &mut self.nodes {
            *node = TrieNode { most: node.most, ..TrieNode::default() };
        }
    }

    /// How many n-grams of each order `1..=matches.len()` the candidate has in common with the references, each at most
    /// as often as one reference has it. Once per reading.
    pub(crate) fn matches(&mut self, candidate: &[u32], matches: &mut [u32]) {
        /// Of no n-gram that the references have.
        const LOST: u32 = u32::MAX;
        self.begun.clear();
        self.begun.resize(candidate.len(), ROOT);
        for (n, matched) in matches.iter_mut().enumerate().take(candidate.len()) {
            // What is lost at one order is lost at all longer ones, so candidates unlike the references cost one
            // look-up a token.
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

/// From a node and a token to a node: a table of open addresses whose slots say for which filling they hold, so that
/// emptying it costs nothing. General tables cost three times as much here, where they are filled and emptied with
/// every pair of texts.
#[derive(Debug, Default)]
struct TrieEdges {
    /// A power of two, and at most half of them are taken.
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
    /// Empties it and makes room for that many edges.
    fn clear(&mut self, edges: usize) {
        let slots = (2 * edges).max(64).next_power_of_two();
        // Where the number of fillings would wrap around, slots of the very first ones would seem to be taken.
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

    /// The node of the edge; `next` where there is no such edge yet.
    fn get_or_insert(&mut self, node: u32, token: u32, next: u32) -> u32 {
        let key = key(node, token);
        let place = self.find(key);
        let slot = &mut self.slots[place];
        if slot.filling != self.filling {
            *slot = EdgeSlot { key, filling: self.filling, node: next };
        }
        slot.node
    }

    /// The slot that has the key, or the free one where it would be put.
    fn find(&self, key: u64) -> usize {
        /// 2^64 over the golden ratio (Knuth, volume 3, section 6.4): its product's upper bits are well mixed.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let mask = self.slots.len() - 1;
        // From above: the lower bits of the product depend on the lower bits of the token alone.
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

/// How many n-grams of `order` a text of `len` tokens has.
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
    /// The words' numbers.
    pub(crate) fn ids(&mut self, words: impl IntoIterator<Item = &'t str>) -> Vec<u32> {
        let id = |word| {
            let next = self.known.len() as u32;
            *self.known.entry(word).or_insert(next)
        };
        words.into_iter().map(id).collect()
    }

    /// How many different words there are.
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
