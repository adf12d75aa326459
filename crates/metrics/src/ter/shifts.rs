//! Greedy shifts of word sequences, as in tercom.

use super::distance::{Edit, TerDistance};

/// Maximum length of a shifted sequence in words, and maximum distance of a shift.
const LONGEST: usize = 10;
const FARTHEST: usize = 50;

/// Maximum number of shifts tried per candidate.
const TRIES: usize = 1000;

/// Number of shifts and edits that turn the candidate into the reference.
pub(super) fn edits(candidate: &[u32], reference: &[u32]) -> usize {
    if reference.is_empty() {
        return candidate.len();
    }
    let mut distance = TerDistance::new(candidate, reference);
    let (mut shifts, mut tried) = (0, 0);
    // The shift at which the tries run out is discarded even if it helps, as in sacrebleu.
    while let Some(better) = best_shift(&mut distance, reference, &mut tried).filter(|_| tried < TRIES) {
        shifts += 1;
        distance.replace(better);
    }
    shifts + distance.cost() as usize
}

/// A sequence at `from` in the candidate and at `to` in the reference.
#[derive(Debug, Clone, Copy)]
struct ShiftedSequence {
    from: usize,
    to: usize,
    len: usize,
}

/// The candidate after the shift that saves the most edits; `None` if no shift helps. Ties go to the longest sequence,
/// then the first, then the one with the leftmost target.
fn best_shift(distance: &mut TerDistance<'_>, reference: &[u32], tried: &mut usize) -> Option<Vec<u32>> {
    let words = distance.candidate_words().to_vec();
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

/// Moves the sequence before the word at `target`; if the target is within or directly after the sequence, by that many
/// words.
fn shift(words: &[u32], ShiftedSequence { from, len, .. }: ShiftedSequence, target: usize, out: &mut Vec<u32>) {
    let moved = &words[from..from + len];
    out.clear();
    if target < from {
        out.extend(words[..target].iter().chain(moved).chain(&words[target..from]).chain(&words[from + len..]));
    } else {
        // As in sacrebleu, a target inside the sequence counts from the beginning of the sequence.
        let end = if target > from + len { target } else { (target + len).min(words.len()) };
        out.extend(words[..from].iter().chain(&words[from + len..end]).chain(moved).chain(&words[end..]));
    }
}

/// The alignment of both texts by the edits.
struct EditAlignment {
    /// By word of the reference: number of candidate words up to its position, including its counterpart.
    upto: Vec<usize>,
    /// Whether each word is edited.
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

    /// Whether both positions of the sequence contain errors, and it does not overlap its target.
    fn may_shift(&self, ShiftedSequence { from, to, len }: ShiftedSequence) -> bool {
        let wrong = |flags: &[bool], at: usize| flags[at..at + len].contains(&true);
        wrong(&self.candidate_wrong, from)
            && wrong(&self.reference_wrong, to)
            && !(from + 1..=from + len).contains(&self.upto[to])
    }

    /// Possible targets in the candidate: before the first word, and after the counterparts of the words from the one
    /// before the sequence's position to its last but one; repeated neighbours once.
    fn targets(&self, ShiftedSequence { to, len, .. }: ShiftedSequence) -> Vec<usize> {
        let before = if to == 0 { 0 } else { self.upto[to - 1] };
        let mut targets = vec![before];
        targets.extend(self.upto[to..].iter().take(len));
        targets.dedup();
        targets
    }
}
