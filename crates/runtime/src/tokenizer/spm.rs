//! Merging for sentencepiece's BPE models, from pieces and their scores.
//!
//! Starting from characters, the pair whose union has the best score is merged, leftmost first among ties, until no
//! union is a piece (Kudo & Richardson 2018; Sennrich et al. 2016). Scores instead of derived merge rules keep the ids
//! equal to sentencepiece's if several pairs form one piece.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use aho_corasick::{AhoCorasick, MatchKind};

use super::TokenizerError;

/// Represents a space in pieces.
pub(super) const SPACE: char = '\u{2581}';
const SPACE_TEXT: &str = "\u{2581}";

/// Kind of a vocabulary entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceKind {
    /// An ordinary piece.
    Normal,
    /// Always matched whole.
    UserDefined,
    /// An intermediate merge that is split again.
    Unused,
    /// A byte of a character without a piece.
    Byte(u8),
    /// Matched elsewhere or never.
    Other,
}

/// A vocabulary with scores.
pub(super) struct SpmVocabulary {
    texts: Vec<String>,
    kinds: Vec<PieceKind>,
    /// Piece → (id, score); looked up, never iterated.
    pieces: HashMap<String, (u32, f32)>,
    bytes: Box<[Option<u32>; 256]>,
    user_defined: AhoCorasick,
    unknown: Option<u32>,
}

/// A span of text that is currently one piece, linked to its neighbours.
struct Symbol {
    start: usize,
    end: usize,
    previous: Option<usize>,
    next: Option<usize>,
    /// User-defined: not merged with neighbours.
    frozen: bool,
}

/// Two neighbours whose union is a piece.
struct MergeCandidate {
    score: f32,
    left: usize,
    right: usize,
    /// Length of the union when queued. If it differs later, a neighbour has grown.
    len: usize,
}

impl PartialEq for MergeCandidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for MergeCandidate {}

impl PartialOrd for MergeCandidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MergeCandidate {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap pops the largest first; among equal scores that must be the leftmost.
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl SpmVocabulary {
    /// A vocabulary from texts with their scores and kinds.
    pub(super) fn new(
        texts: Vec<String>,
        scores: &[f32],
        kinds: Vec<PieceKind>,
        unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let mut pieces = HashMap::with_capacity(texts.len());
        let mut bytes = Box::new([None; 256]);
        let mut user_defined = Vec::new();
        for (id, ((text, &score), kind)) in texts.iter().zip(scores).zip(&kinds).enumerate() {
            match kind {
                PieceKind::Normal | PieceKind::Unused => {
                    pieces.entry(text.clone()).or_insert((id as u32, score));
                }
                PieceKind::UserDefined if !text.is_empty() => {
                    // GGUF files write spaces literally, but the text to match has none.
                    let text = text.replace(' ', SPACE_TEXT);
                    user_defined.push(text.clone());
                    pieces.insert(text, (id as u32, score));
                }
                PieceKind::Byte(byte) => bytes[usize::from(*byte)] = Some(id as u32),
                PieceKind::Other | PieceKind::UserDefined => {}
            }
        }
        let user_defined = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(user_defined)
            .map_err(|source| TokenizerError::unsupported("user-defined pieces", source.to_string()))?;
        Ok(Self { texts, kinds, pieces, bytes, user_defined, unknown })
    }

    /// The text of `id`.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize).map(String::as_str)
    }

    /// The byte of a byte token.
    pub(super) fn byte(&self, id: u32) -> Option<u8> {
        match self.kinds.get(id as usize) {
            Some(PieceKind::Byte(byte)) => Some(*byte),
            _ => None,
        }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The ids of `text`, in which spaces are already [`SPACE`].
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let mut symbols = self.split(text);
        if symbols.is_empty() {
            return;
        }
        let mut origins = HashMap::new();
        self.merge(text, &mut symbols, &mut origins);
        let mut after_unknown = false;
        let mut at = Some(0);
        while let Some(index) = at {
            after_unknown = self.emit(&text[symbols[index].start..symbols[index].end], &origins, after_unknown, ids);
            at = symbols[index].next;
        }
    }

    /// Splits text into characters and user-defined pieces.
    fn split(&self, text: &str) -> Vec<Symbol> {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
        let mut push = |start: usize, end: usize, frozen: bool| {
            let index = symbols.len();
            let next = Some(index + 1).filter(|_| end < text.len());
            symbols.push(Symbol { start, end, previous: index.checked_sub(1), next, frozen });
        };
        let mut from = 0;
        for found in self.user_defined.find_iter(text) {
            text[from..found.start()]
                .char_indices()
                .for_each(|(at, c)| push(from + at, from + at + c.len_utf8(), false));
            push(found.start(), found.end(), true);
            from = found.end();
        }
        text[from..].char_indices().for_each(|(at, c)| push(from + at, from + at + c.len_utf8(), false));
        symbols
    }

    fn merge<'t>(&self, text: &'t str, symbols: &mut [Symbol], origins: &mut HashMap<&'t str, usize>) {
        let mut heap = BinaryHeap::new();
        for right in 1..symbols.len() {
            self.propose(text, symbols, right - 1, right, &mut heap, origins);
        }
        while let Some(MergeCandidate { left, right, len, .. }) = heap.pop() {
            // Candidates are never removed from the heap; stale ones are skipped when popped.
            let stale = symbols[left].next != Some(right) || symbols[right].end - symbols[left].start != len;
            if stale {
                continue;
            }
            symbols[left].end = symbols[right].end;
            symbols[left].next = symbols[right].next;
            // An empty symbol makes all candidates with it stale.
            symbols[right].start = symbols[right].end;
            symbols[right].next = None;
            if let Some(next) = symbols[left].next {
                symbols[next].previous = Some(left);
                self.propose(text, symbols, left, next, &mut heap, origins);
            }
            if let Some(previous) = symbols[left].previous {
                self.propose(text, symbols, previous, left, &mut heap, origins);
            }
        }
    }

    fn propose<'t>(
        &self,
        text: &'t str,
        symbols: &[Symbol],
        left: usize,
        right: usize,
        heap: &mut BinaryHeap<MergeCandidate>,
        origins: &mut HashMap<&'t str, usize>,
    ) {
        if symbols[left].frozen || symbols[right].frozen {
            return;
        }
        let union = &text[symbols[left].start..symbols[right].end];
        if let Some(&(id, score)) = self.pieces.get(union) {
            heap.push(MergeCandidate { score, left, right, len: union.len() });
            if self.kinds[id as usize] == PieceKind::Unused {
                origins.insert(union, symbols[left].end - symbols[left].start);
            }
        }
    }

    /// Appends the ids of one symbol. Returns whether it ended in the unknown token; a run of those becomes one token.
    fn emit(&self, piece: &str, origins: &HashMap<&str, usize>, after_unknown: bool, ids: &mut Vec<u32>) -> bool {
        match self.pieces.get(piece) {
            Some(&(id, _)) if self.kinds[id as usize] == PieceKind::Unused => {
                if let Some(&at) = origins.get(piece) {
                    let unknown = self.emit(&piece[..at], origins, after_unknown, ids);
                    return self.emit(&piece[at..], origins, unknown, ids);
                }
                ids.push(id);
                false
            }
            Some(&(id, _)) => {
                ids.push(id);
                false
            }
            None => self.emit_unknown(piece, after_unknown, ids),
        }
    }

    fn emit_unknown(&self, piece: &str, after_unknown: bool, ids: &mut Vec<u32>) -> bool {
        let bytes: Option<Vec<u32>> = piece.bytes().map(|byte| self.bytes[usize::from(byte)]).collect();
        if let Some(bytes) = bytes {
            ids.extend(bytes);
            return false;
        }
        // As in sentencepiece, a run of unknown characters is one unknown token.
        if !after_unknown {
            ids.extend(self.unknown);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spm(entries: &[(&str, f32, PieceKind)]) -> SpmVocabulary {
        let texts = entries.iter().map(|(text, _, _)| (*text).to_owned()).collect();
        let scores: Vec<f32> = entries.iter().map(|(_, score, _)| *score).collect();
        SpmVocabulary::new(texts, &scores, entries.iter().map(|(_, _, kind)| *kind).collect(), Some(0)).expect("valid")
    }

    fn encode(spm: &SpmVocabulary, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        spm.encode(text, &mut ids);
        ids
    }

    use PieceKind::{Byte, Normal, Other, Unused, UserDefined};

    #[test]
    fn the_best_score_merges_first_and_the_leftmost_among_equals() {
        let spm = spm(&[
            ("<unk>", 0.0, Other),
            ("a", -9.0, Normal),
            ("b", -9.0, Normal),
            ("aa", -2.0, Normal),
            ("ab", -1.0, Normal),
        ]);
        assert_eq!(encode(&spm, "aab"), [1, 4]);
        assert_eq!(encode(&spm, "aaa"), [3, 1]);
    }

    #[test]
    fn unknown_characters_are_bytes_where_all_are_there_and_one_unknown_a_run_otherwise() {
        let spm = spm(&[
            ("<unk>", 0.0, Other),
            ("a", -9.0, Normal),
            ("<0xC3>", 0.0, Byte(0xc3)),
            ("<0xA9>", 0.0, Byte(0xa9)),
        ]);
        assert_eq!(encode(&spm, "aé"), [1, 2, 3]);
        assert_eq!(encode(&spm, "日本a日"), [0, 1, 0]);
    }

    #[test]
    fn unused_pieces_are_taken_apart_again() {
        let spm = spm(&[
            ("<unk>", 0.0, Other),
            ("a", -9.0, Normal),
            ("b", -9.0, Normal),
            ("c", -9.0, Normal),
            ("ab", -1.0, Unused),
            ("abc", -2.0, Normal),
        ]);
        assert_eq!(encode(&spm, "ab"), [1, 2]);
        assert_eq!(encode(&spm, "abc"), [5]);
    }

    #[test]
    fn user_defined_pieces_are_whole_and_merge_with_nothing() {
        let spm = spm(&[
            ("<unk>", 0.0, Other),
            ("a", -9.0, Normal),
            (":", -9.0, Normal),
            ("a:", -1.0, Normal),
            ("::", 0.0, UserDefined),
        ]);
        assert_eq!(encode(&spm, "a::a:"), [1, 4, 3]);
    }

    #[test]
    fn control_pieces_never_come_from_text() {
        let spm = spm(&[
            ("<unk>", 0.0, Other),
            ("<", -9.0, Normal),
            ("s>", -3.0, Normal),
            ("<s>", 0.0, Other),
            ("s", -9.0, Normal),
            (">", -9.0, Normal),
        ]);
        assert_eq!(encode(&spm, "<s>"), [1, 2]);
    }
}
