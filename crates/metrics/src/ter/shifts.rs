//! Shifts of word sequences, chosen one after another as tercom does.

use super::distance::{Edit, TerDistance};

/// The longest sequence that is shifted, in words, and how far.
const LONGEST: usize = 10;
const FARTHEST: usize = 50;

/// How many shifts are tried for a candidate.
const TRIES: usize = 1000;

/// Shifts and edits that turn the candidate into the reference.
pub(super) fn edits(candidate: &[u32], reference: &[u32]) -> usize {
    if reference.is_empty() {
        return candidate.len();
    }
    let mut distance = TerDistance::new(candidate, reference);
    let (mut shifts, mut tried) = (0, 0);
    // The shift at which the tries run out is thrown away even where it helps, as in sacrebleu.
    while let Some(better) = best_shift(&mut distance, reference, &mut tried).filter(|_| tried < TRIES) {
        shifts += 1;
        distance.replace(better);
    }
    shifts + distance.cost() as usize
}

/// A sequence that the candidate has at `from` and the reference at `to`.
#[derive(Debug, Clone, Copy)]
struct ShiftedSequence {
    from: usize,
    to: usize,
    len: usize,
}

/// The candidate after the shift that takes most edits away; none where no shift does. Of equals the longest sequence,
/// then the first, then the one that goes least far to the right.
fn best_shift(distance: &mut TerDistance<'_>, reference: &[u32], tried: &mut usize) -> Option<Vec<u32>> {
    let words = distance.words().to_vec();
    let before = i64::from(distance.cost());
    let alignment = EditAlignment::new(&distance.edits());
    let mut best = None;
    let mut shifted = Vec::with_capacity(words.len());
    'all: for from in 0..words.len() {
        for to in from.saturating_sub(FARTHEST)..reference.len().min(from + FARTHEST + 1) {
            let common = words[from..].iter().zip(&reference[to..]).take(LONGEST).take_while(|(a, b)| a == b).count();
            for len in 1..=common {
                let sequence = ShiftedSequence { from, to, len };
                if !alignment.may_shift(sequence) {
                    continue;
                }
                for target in alignment.targets(sequence) {
                    shift(&words, sequence, target, &mut shifted);
                    let gain = before - i64::from(distance.cost_of(&shifted));
                    *tried += 1;
                    let rank = (gain, len, std::cmp::Reverse(from), std::cmp::Reverse(target));
                    if best.is_none_or(|(most, _)| rank > most) {
                        best = Some((rank, sequence));
                    }
                }
                if *tried >= TRIES {
                    break 'all;
                }
            }
        }
    }
    let ((gain, .., target), sequence) = best?;
    shift(&words, sequence, target.0, &mut shifted);
    (gain > 0).then_some(shifted)
}

/// Moves the sequence to before the word at `target`; to a target within it or right after it, by that many words.
fn shift(words: &[u32], ShiftedSequence { from, len, .. }: ShiftedSequence, target: usize, out: &mut Vec<u32>) {
    let moved = &words[from..from + len];
    out.clear();
    if target < from {
        out.extend(words[..target].iter().chain(moved).chain(&words[target..from]).chain(&words[from + len..]));
    } else {
        // sacrebleu's way with a target inside of the sequence: it counts from the sequence's beginning.
        let end = if target > from + len { target } else { (target + len).min(words.len()) };
        out.extend(words[..from].iter().chain(&words[from + len..end]).chain(moved).chain(&words[end..]));
    }
}

/// What the edits say of the positions of both texts.
struct EditAlignment {
    /// By word of the reference: how many words of the candidate come up to its place, its counterpart included.
    upto: Vec<usize>,
    /// Whether a word is not kept.
    reference_wrong: Vec<bool>,
    candidate_wrong: Vec<bool>,
}

impl EditAlignment {
    fn new(edits: &[Edit]) -> Self {
        let mut alignment = Self { upto: Vec::new(), reference_wrong: Vec::new(), candidate_wrong: Vec::new() };
        for edit in edits {
            let wrong = *edit != Edit::Keep;
            if *edit != Edit::Insert {
                alignment.candidate_wrong.push(wrong);
            }
            if *edit != Edit::Delete {
                alignment.reference_wrong.push(wrong);
                alignment.upto.push(alignment.candidate_wrong.len());
            }
        }
        alignment
    }

    /// Something is wrong in the sequence at both its places, and it does not lie across its own place already.
    fn may_shift(&self, ShiftedSequence { from, to, len }: ShiftedSequence) -> bool {
        let wrong = |flags: &[bool], at: usize| flags[at..at + len].contains(&true);
        wrong(&self.candidate_wrong, from)
            && wrong(&self.reference_wrong, to)
            && !(from + 1..=from + len).contains(&self.upto[to])
    }

    /// Where in the candidate it may go: before the first word and after the counterparts of the words from the one
    /// before its place to its last but one; neighbours that are the same once.
    fn targets(&self, ShiftedSequence { to, len, .. }: ShiftedSequence) -> Vec<usize> {
        let before = if to == 0 { 0 } else { self.upto[to - 1] };
        let mut targets = vec![before];
        targets.extend(self.upto[to..].iter().take(len));
        targets.dedup();
        targets
    }
}
