//! Prefix cache across work lists: keys and values that a later list with the same prefix can reuse.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use probity_models::{KvSpan, PackedDecoder};

use super::tree::{NodeId, PrefixTree};

/// Prefixes cached between lists, for a model without an encoder. The cache never changes a result.
#[derive(Debug)]
pub(crate) struct KeptPrefixes {
    /// Maximum bytes of the cache and of copies that a list makes from it.
    limit: u64,
    copies: u64,
    entries: Mutex<KeptEntries>,
}

#[derive(Debug, Default)]
struct KeptEntries {
    /// Entries in order of last use, oldest first.
    list: VecDeque<KeptPrefix>,
    /// Bytes of each span and the number of entries that share it, by address.
    spans: BTreeMap<usize, (u64, usize)>,
    bytes: u64,
}

/// Tokens of a prefix with their keys and values.
#[derive(Debug)]
struct KeptPrefix {
    tokens: Vec<u32>,
    path: Vec<Arc<KvSpan>>,
}

/// Reusable part of a tree, and where to cache newly computed parts.
#[derive(Debug, Default)]
pub(crate) struct ReusedNodes<'k> {
    kept: Option<&'k KeptPrefixes>,
    nodes: BTreeMap<NodeId, ReusedNode>,
}

#[derive(Debug)]
struct ReusedNode {
    /// Number of reusable tokens at the start of the node.
    tokens: usize,
    /// Keys and values from the root to the last of these tokens.
    path: Vec<Arc<KvSpan>>,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl KeptPrefixes {
    /// An empty cache, limited to this many bytes including copies made by lists.
    pub(crate) fn new(bytes: u64) -> Self {
        let copies = bytes / 4;
        Self { limit: bytes - copies, copies, entries: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, KeptEntries> {
        // A panic cannot leave an entry half-written.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes in the cache.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Finds the cached part of a tree. `needed` returns the first token of a node that must be computed because it is
    /// scored, or the node's length if there is none.
    pub(crate) fn reuse(
        &self,
        model: &dyn PackedDecoder,
        tree: &PrefixTree<'_>,
        needed: &dyn Fn(NodeId) -> usize,
    ) -> candle_core::Result<ReusedNodes<'_>> {
        let mut kept = self.lock();
        let (mut reused, mut copied) = (ReusedNodes::nothing(Some(self)), 0);
        let mut used = vec![false; kept.list.len()];
        // Nodes whose ancestors are fully cached, with their start and the matching entries.
        let mut stack = vec![(0, 0, (0..kept.list.len()).collect::<Vec<_>>())];
        while let Some((parent, start, alike)) = stack.pop() {
            for &node in tree.children(parent) {
                let tokens = tree.tokens(node);
                let shared = |entry: &usize| common(&kept.list[*entry].tokens[start..], tokens);
                // The most recent of equally long matches.
                let Some(best) = alike.iter().copied().max_by_key(shared).filter(|best| shared(best) > 0) else {
                    continue;
                };
                let wanted = shared(&best).min(needed(node));
                let mut path = Vec::new();
                let held = whole_spans(&kept.list[best].path, start + wanted, &mut path);
                let rest = start + wanted - held;
                let bytes = if rest > 0 { model.cache_bytes(rest) as u64 } else { 0 };
                // A recurrent state cannot be cut.
                if rest > 0 && model.state_bytes() == 0 && copied + bytes <= self.copies {
                    path.push(model.join(&kept.list[best].path[path.len()..=path.len()], rest)?);
                    copied += bytes;
                }
                let end: usize = path.iter().map(|span| span.len()).sum();
                if end <= start {
                    continue;
                }
                used[best] = true;
                reused.nodes.insert(node, ReusedNode { tokens: end - start, path });
                if end - start == tokens.len() {
                    let below = |entry: &usize| shared(entry) == tokens.len();
                    stack.push((node, end, alike.iter().copied().filter(below).collect()));
                }
            }
        }
        let (recent, others): (Vec<_>, Vec<_>) = kept.list.drain(..).zip(used).partition(|(_, used)| *used);
        kept.list.extend(others.into_iter().chain(recent).map(|(entry, _)| entry));
        Ok(reused)
    }

    /// Caches the keys and values of these tokens and evicts the least recently used entries.
    pub(crate) fn keep(&self, model: &dyn PackedDecoder, tokens: &[u32], path: &[Arc<KvSpan>]) {
        let mut kept = self.lock();
        if let Some(place) = kept.list.iter().position(|entry| entry.tokens.starts_with(tokens)) {
            // Already cached in full.
            let entry = kept.list.remove(place).expect("it was found there");
            kept.list.push_back(entry);
            return;
        }
        while let Some(place) = kept.list.iter().position(|entry| tokens.starts_with(&entry.tokens)) {
            kept.remove(place);
        }
        kept.add(model, KeptPrefix { tokens: tokens.to_vec(), path: path.to_vec() });
        while kept.bytes > self.limit {
            kept.remove(0);
        }
    }
}

/// Bytes of a span.
fn span_bytes(model: &dyn PackedDecoder, span: &KvSpan) -> u64 {
    let states = if span.can_continue() { 0 } else { model.state_bytes() };
    (model.cache_bytes(span.len()) - states) as u64
}

/// Collects the spans that end within the first `tokens` tokens. Returns their number of tokens.
fn whole_spans(path: &[Arc<KvSpan>], tokens: usize, into: &mut Vec<Arc<KvSpan>>) -> usize {
    let mut held = 0;
    for span in path {
        if held + span.len() > tokens {
            break;
        }
        held += span.len();
        into.push(span.clone());
    }
    // Tokens can only follow a span that has the states of its end.
    while let Some(span) = into.last().filter(|span| !span.can_continue()) {
        held -= span.len();
        into.pop();
    }
    held
}

impl KeptEntries {
    fn add(&mut self, model: &dyn PackedDecoder, entry: KeptPrefix) {
        for span in &entry.path {
            let (bytes, entries) =
                self.spans.entry(Arc::as_ptr(span).addr()).or_insert_with(|| (span_bytes(model, span), 0));
            *entries += 1;
            if *entries == 1 {
                self.bytes += *bytes;
            }
        }
        self.list.push_back(entry);
    }

    fn remove(&mut self, place: usize) {
        let entry = self.list.remove(place).expect("an entry of the list");
        for span in &entry.path {
            let address = Arc::as_ptr(span).addr();
            let (bytes, entries) = self.spans.get_mut(&address).expect("each span of an entry is counted");
            *entries -= 1;
            if *entries == 0 {
                self.bytes -= *bytes;
                self.spans.remove(&address);
            }
        }
    }
}

impl<'k> ReusedNodes<'k> {
    /// Nothing is reused.
    pub(crate) fn nothing(kept: Option<&'k KeptPrefixes>) -> Self {
        Self { kept, nodes: BTreeMap::new() }
    }

    /// Caches the path to a leaf of the tree.
    pub(crate) fn keep(&self, model: &dyn PackedDecoder, tokens: &[u32], path: &[Arc<KvSpan>]) {
        if let Some(kept) = self.kept {
            kept.keep(model, tokens, path);
        }
    }

    /// Number of reusable tokens of a node.
    pub(crate) fn tokens(&self, node: NodeId) -> usize {
        self.nodes.get(&node).map_or(0, |reused| reused.tokens)
    }

    /// Keys and values from the root to the last reusable token of a node. `None` if the node has none.
    pub(crate) fn path(&self, node: NodeId) -> Option<&[Arc<KvSpan>]> {
        self.nodes.get(&node).map(|reused| reused.path.as_slice())
    }

    /// Total number of reusable tokens.
    pub(crate) fn token_count(&self) -> u64 {
        self.nodes.values().map(|reused| reused.tokens as u64).sum()
    }
}
