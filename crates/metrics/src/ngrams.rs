//! Counts of n-grams of a candidate that occur in references.

use std::collections::HashMap;
use std::hash::Hash;

use rustc_hash::FxBuildHasher;

/// The root of the trie: the empty n-gram.
const ROOT: u32 = 0;

/// All n-grams of some references up to an order, as a trie whose edges are kept in one hash table with a fixed hash. A candidate is held
/// against it; only lookups are made, so no result depends on the table's order. Used from item to item: memory stays.
#[derive(Debug)]
pub(crate) struct Ngrams<T> {
    edges: HashMap<(u32, T), u32, FxBuildHasher>,
    /// By node: how often its n-gram may still match, and how often it occurs in the reference that is being read.
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// The most occurrences in any one reference.
    most: u32,
    /// Occurrences in the text of this number.
    count: u32,
    text: u32,
}

impl<T: Copy + Eq + Hash> Ngrams<T> {
    pub(crate) fn new() -> Self {
        Self { edges: HashMap::default(), nodes: vec![Node::default()] }
    }

    /// Counts the n-grams of references up to `order`: of each n-gram the most occurrences in any one of them.
    pub(crate) fn read<'t>(&mut self, references: impl IntoIterator<Item = &'t [T]>, order: usize)
    where
        T: 't,
    {
        self.edges.clear();
        self.nodes.truncate(1);
        let mut texts = 0;
        for reference in references {
            texts += 1;
            for start in 0..reference.len() {
                let mut node = ROOT;
                for token in reference[start..].iter().take(order) {
                    let next = self.nodes.len() as u32;
                    node = *self.edges.entry((node, *token)).or_insert(next);
                    if node == next {
                        self.nodes.push(Node::default());
                    }
                    self.nodes[node as usize].occurs(texts);
                }
            }
        }
        for node in &mut self.nodes {
            *node = Node { most: node.most, ..Node::default() };
        }
    }

    /// How many n-grams of each order `1..=matches.len()` the candidate has in common with the references, each at most as often as one
    /// reference has it. Once per reading.
    pub(crate) fn matches(&mut self, candidate: &[T], matches: &mut [u32]) {
        for start in 0..candidate.len() {
            let mut node = ROOT;
            for (token, matched) in candidate[start..].iter().zip(matches.iter_mut()) {
                let Some(&next) = self.edges.get(&(node, *token)) else { break };
                node = next;
                let found = &mut self.nodes[node as usize];
                *matched += u32::from(found.count < found.most);
                found.count += 1;
            }
        }
    }
}

impl Node {
    fn occurs(&mut self, text: u32) {
        self.count = if self.text == text { self.count + 1 } else { 1 };
        self.text = text;
        self.most = self.most.max(self.count);
    }
}

/// How many n-grams of `order` a text of `len` tokens has.
pub(crate) fn total(len: usize, order: usize) -> usize {
    (len + 1).saturating_sub(order)
}

/// Numbers words: equal words have equal numbers.
#[derive(Debug, Default)]
pub(crate) struct Interner<'t> {
    known: HashMap<&'t str, u32, FxBuildHasher>,
}

impl<'t> Interner<'t> {
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
