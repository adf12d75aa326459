//! Keys and values that outlive their work list, so that a list whose prompts begin like those of one before goes on
//! from there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use probity_models::{KvSpan, PackedDecoder};

use super::tree::{NodeId, PrefixTree};

/// What is kept between lists, of a model without an encoder. None of it changes a result.
#[derive(Debug)]
pub(crate) struct KeptPrefixes {
    /// Bytes that are kept at most, and bytes of copies that a list may have made for itself.
    limit: u64,
    copies: u64,
    entries: Mutex<KeptEntries>,
}

#[derive(Debug, Default)]
struct KeptEntries {
    /// Those that nobody asked for longest come first.
    list: VecDeque<KeptPrefix>,
    /// Bytes of each span, by its address, and how many entries it is in: what begins alike shares spans.
    spans: BTreeMap<usize, (u64, usize)>,
    bytes: u64,
}

/// Tokens from the first on, and their keys and values.
#[derive(Debug)]
struct KeptPrefix {
    tokens: Vec<u32>,
    path: Vec<Arc<KvSpan>>,
}

/// What need not be computed of a tree, and where what is computed of it is kept.
#[derive(Debug, Default)]
pub(crate) struct ReusedNodes<'k> {
    kept: Option<&'k KeptPrefixes>,
    nodes: BTreeMap<NodeId, ReusedNode>,
}

#[derive(Debug)]
struct ReusedNode {
    /// How many of the node's tokens, from its first on.
    tokens: usize,
    /// Keys and values from the first token of all to the last of these.
    path: Vec<Arc<KvSpan>>,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl KeptPrefixes {
    /// Keeps nothing yet, and never more than that many bytes, with what lists copy of it.
    pub(crate) fn new(bytes: u64) -> Self {
        let copies = bytes / 4;
        Self { limit: bytes - copies, copies, entries: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, KeptEntries> {
        // Whoever panicked did so between two entries.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// What is known of a tree. `needed` gives the first token of a node that must be computed all the same, because
    /// something is asked behind it; the node's length where there is none.
    pub(crate) fn reuse(
        &self,
        model: &dyn PackedDecoder,
        tree: &PrefixTree<'_>,
        needed: &dyn Fn(NodeId) -> usize,
    ) -> candle_core::Result<ReusedNodes<'_>> {
        let mut kept = self.lock();
        let (mut reused, mut copied) = (ReusedNodes::nothing(Some(self)), 0);
        let mut used = vec![false; kept.list.len()];
        // Nodes all above which is known, with where they begin and the entries that begin like them.
        let mut stack = vec![(0, 0, (0..kept.list.len()).collect::<Vec<_>>())];
        while let Some((parent, start, alike)) = stack.pop() {
            for &node in tree.children(parent) {
                let tokens = tree.tokens(node);
                let shared = |entry: &usize| common(&kept.list[*entry].tokens[start..], tokens);
                // The latest of equals.
                let Some(best) = alike.iter().copied().max_by_key(shared).filter(|best| shared(best) > 0) else {
                    continue;
                };
                let wanted = shared(&best).min(needed(node));
                let mut path = Vec::new();
                let held = whole_spans(&kept.list[best].path, start + wanted, &mut path);
                let rest = start + wanted - held;
                let bytes = if rest > 0 { model.cache_bytes(rest) as u64 } else { 0 };
                if rest > 0 && copied + bytes <= self.copies {
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

    /// Keeps the keys and values of these tokens, in place of what was not asked for longest.
    pub(crate) fn keep(&self, model: &dyn PackedDecoder, tokens: &[u32], path: &[Arc<KvSpan>]) {
        let mut kept = self.lock();
        if let Some(place) = kept.list.iter().position(|entry| entry.tokens.starts_with(tokens)) {
            // All of it is there already.
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

/// Takes the spans that end within so many tokens; how many tokens they have.
fn whole_spans(path: &[Arc<KvSpan>], tokens: usize, into: &mut Vec<Arc<KvSpan>>) -> usize {
    let mut held = 0;
    for span in path {
        if held + span.len() > tokens {
            break;
        }
        held += span.len();
        into.push(span.clone());
    }
    held
}

impl KeptEntries {
    fn add(&mut self, model: &dyn PackedDecoder, entry: KeptPrefix) {
        for span in &entry.path {
            let (bytes, entries) =
                self.spans.entry(Arc::as_ptr(span).addr()).or_insert_with(|| (model.cache_bytes(span.len()) as u64, 0));
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
    /// All of a tree is computed.
    pub(crate) fn nothing(kept: Option<&'k KeptPrefixes>) -> Self {
        Self { kept, nodes: BTreeMap::new() }
    }

    /// Keeps what was computed up to the end of a leaf of the tree.
    pub(crate) fn keep(&self, model: &dyn PackedDecoder, tokens: &[u32], path: &[Arc<KvSpan>]) {
        if let Some(kept) = self.kept {
            kept.keep(model, tokens, path);
        }
    }

    /// How many of a node's tokens are known.
    pub(crate) fn tokens(&self, node: NodeId) -> usize {
        self.nodes.get(&node).map_or(0, |reused| reused.tokens)
    }

    /// Keys and values from the first token of all to the last that is known of a node; absent where none of its own
    /// are.
    pub(crate) fn path(&self, node: NodeId) -> Option<&[Arc<KvSpan>]> {
        self.nodes.get(&node).map(|reused| reused.path.as_slice())
    }

    /// Tokens that are known.
    pub(crate) fn token_count(&self) -> u64 {
        self.nodes.values().map(|reused| reused.tokens as u64).sum()
    }
}
