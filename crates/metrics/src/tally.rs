//! N-gram counts of several texts.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

/// The root of the trie: the empty n-gram, which is not counted.
const ROOT: u32 = 0;

/// Number of occurrences of each n-gram in each text. Rows are in order of first occurrence.
#[derive(Debug)]
pub(crate) struct NgramTally {
    /// By node of the trie: length of its n-gram.
    orders: Vec<usize>,
    /// By node, then by text.
    counts: Vec<u32>,
    texts: usize,
}

impl NgramTally {
    /// Counts n-grams of 1 to `order` tokens.
    pub(crate) fn new(texts: &[&[u32]], order: usize) -> Self {
        let mut tally = Self { orders: vec![0], counts: vec![0; texts.len()], texts: texts.len() };
        let mut edges: HashMap<(u32, u32), u32, FxBuildHasher> = HashMap::default();
        for (column, text) in texts.iter().enumerate() {
            for start in 0..text.len() {
                let mut node = ROOT;
                for (length, token) in (1..=order).zip(&text[start..]) {
                    let next = tally.orders.len() as u32;
                    node = *edges.entry((node, *token)).or_insert(next);
                    if node == next {
                        tally.orders.push(length);
                        tally.counts.resize(tally.counts.len() + texts.len(), 0);
                    }
                    tally.counts[node as usize * texts.len() + column] += 1;
                }
            }
        }
        tally
    }

    /// Each n-gram: its length, and its occurrences by text.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (usize, &[u32])> {
        self.orders.iter().copied().zip(self.counts.chunks_exact(self.texts)).skip(1)
    }
}

#[cfg(test)]
mod tests {
    use super::NgramTally;

    #[test]
    fn ngrams_are_counted_by_text() {
        let tally = NgramTally::new(&[&[1, 2, 1, 2], &[], &[2, 1]], 2);
        let rows: Vec<(usize, &[u32])> = tally.rows().collect();
        assert_eq!(rows, [(1, &[2, 0, 1][..]), (2, &[2, 0, 0]), (1, &[2, 0, 1]), (2, &[1, 0, 1])]);
    }
}
