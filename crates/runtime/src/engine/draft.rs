//! Draft tokens from prompt lookup decoding (Saxena 2023): the tokens that followed an earlier occurrence of the same
//! context in the prompt or the text.
//!
//! A draft is verified by the model together with the token before it, and accepted up to the first token that differs.
//! Drafts change the speed, never the text.

/// Maximum draft length in tokens.
pub(crate) const LONGEST: usize = 32;
/// Maximum number of context tokens compared to rate a match.
const CONTEXT: usize = 16;
/// Classes of match length: 1, 2, up to 4, up to 8, and longer.
const CLASSES: usize = 5;
/// Prior acceptance probability per class: the probability that a draft token is right if those before it are.
const EXPECTED: [f64; CLASSES] = [0.3, 0.5, 0.7, 0.85, 0.92];
/// Weight of the prior in tokens.
const EXPECTED_TOKENS: f64 = 8.0;
/// Decay of the statistics per pass.
const MEMORY: f64 = 0.98;

/// The most recent end of the longest earlier match with the end of the sequence, and its length.
fn longest_match(tokens: &[u32]) -> Option<(usize, usize)> {
    let (last, before) = tokens.split_last()?;
    let mut best: Option<(usize, usize)> = None;
    for (end, _) in before.iter().enumerate().filter(|(_, token)| *token == last) {
        let pairs = before[..end].iter().rev().zip(before.iter().rev()).take(CONTEXT - 1);
        let len = 1 + pairs.take_while(|(a, b)| a == b).count();
        if best.is_none_or(|(_, longest)| len >= longest) {
            best = Some((end, len));
        }
    }
    best
}

fn class(len: usize) -> usize {
    match len {
        0..=2 => len.saturating_sub(1),
        3..=4 => 2,
        5..=8 => 3,
        _ => 4,
    }
}

/// A draft of the next tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) tokens: Vec<u32>,
    class: usize,
}

/// Recent acceptance statistics.
#[derive(Debug, Clone, Default)]
pub(crate) struct DraftStatistics {
    /// Accepted and compared tokens per class.
    tally: [(f64, f64); CLASSES],
    /// Steps of texts, the tokens they produced, and the rows they used.
    steps: f64,
    tokens: f64,
    rows: f64,
}

impl DraftStatistics {
    fn probability(&self, class: usize) -> f64 {
        let (right, compared) = self.tally[class];
        (right + EXPECTED[class] * EXPECTED_TOKENS) / (compared + EXPECTED_TOKENS)
    }

    /// Drafts the tokens after `tokens`, at most `limit`, while each is right with a probability of at least `worth`.
    pub(crate) fn draft(&self, tokens: &[u32], limit: usize, worth: f64) -> Draft {
        let Some((end, len)) = longest_match(tokens).filter(|_| limit > 0) else { return Draft::default() };
        let class = class(len);
        let p = self.probability(class);
        let (mut count, mut right) = (0, p);
        while count < limit.min(LONGEST) && right >= worth {
            count += 1;
            right *= p;
        }
        // Repetition: the draft continues with the tokens just drafted.
        let period = tokens.len() - 1 - end;
        let mut draft: Vec<u32> = Vec::with_capacity(count);
        for at in 0..count {
            draft.push(tokens.get(end + 1 + at).copied().unwrap_or_else(|| draft[at - period]));
        }
        Draft { tokens: draft, class }
    }

    /// Records that `accepted` tokens of the draft were right and the next, if any, was wrong.
    pub(crate) fn learn(&mut self, draft: &Draft, accepted: usize) {
        let (right, compared) = &mut self.tally[draft.class];
        *right += accepted as f64;
        *compared += draft.tokens.len().min(accepted + 1) as f64;
        self.steps += 1.0;
        self.tokens += 1.0 + accepted as f64;
        self.rows += 1.0 + draft.tokens.len() as f64;
    }

    /// The minimum probability at which a draft token is worth its row with this number of texts: the tokens per row of
    /// an average pass, where a pass costs its rows plus `idle_rows`.
    pub(crate) fn worth(&self, texts: usize, idle_rows: usize) -> f64 {
        // Before any statistics, a step counts as one token from one row.
        let of_a_step = |sum: f64| texts as f64 * (sum + 1.0) / (self.steps + 1.0);
        of_a_step(self.tokens) / (of_a_step(self.rows) + idle_rows as f64)
    }

    /// Decays the statistics at the end of a pass.
    pub(crate) fn fade(&mut self) {
        for (right, compared) in &mut self.tally {
            *right *= MEMORY;
            *compared *= MEMORY;
        }
        for sum in [&mut self.steps, &mut self.tokens, &mut self.rows] {
            *sum *= MEMORY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(tokens: &[u32], limit: usize) -> Vec<u32> {
        DraftStatistics::default().draft(tokens, limit, 0.01).tokens
    }

    #[test]
    fn what_followed_the_longest_match_is_guessed_the_latest_of_equals() {
        assert_eq!(draft(&[1, 2, 3, 4, 5, 9, 3, 6, 7, 2, 3], 3), [4, 5, 9]);
        assert_eq!(draft(&[3, 4, 3, 5, 6, 3], 2), [5, 6]);
        assert!(draft(&[1, 2, 3], 4).is_empty() && draft(&[], 4).is_empty() && draft(&[1, 1], 0).is_empty());
    }

    #[test]
    fn a_text_that_repeats_itself_is_guessed_to_go_on_so() {
        assert_eq!(draft(&[7, 8, 9, 7, 8, 9], 7), [7, 8, 9, 7, 8, 9, 7]);
        assert_eq!(draft(&[5, 5], 3), [5, 5, 5]);
    }

    #[test]
    fn guesses_are_as_long_as_they_are_worth_and_learn() {
        let tokens: Vec<u32> = (0..60).chain(0..20).collect();
        let mut drafting = DraftStatistics::default();
        let len = |drafting: &DraftStatistics, worth| drafting.draft(&tokens, 99, worth).tokens.len();
        assert!(len(&drafting, 0.9) < len(&drafting, 0.5) && len(&drafting, 0.5) < len(&drafting, 0.05));
        let before = len(&drafting, 0.5);
        let draft = drafting.draft(&tokens, 8, 0.1);
        drafting.learn(&draft, 8);
        assert!(len(&drafting, 0.5) > before);
        (0..4).for_each(|_| drafting.learn(&draft, 0));
        assert!(len(&drafting, 0.5) < before);
        (0..400).for_each(|_| drafting.fade());
        assert_eq!(len(&drafting, 0.5), before);
        assert!(len(&drafting, 1e-9) <= LONGEST);
    }

    #[test]
    fn a_row_is_worth_what_others_bring() {
        let mut drafts = DraftStatistics::default();
        assert_eq!((drafts.worth(1, 12), drafts.worth(12, 12)), (1.0 / 13.0, 0.5));
        // Eight tokens per step from twelve rows.
        let draft = Draft { tokens: vec![1; 11], class: 4 };
        (0..1000).for_each(|_| drafts.learn(&draft, 7));
        assert!((drafts.worth(1, 12) - 8.0 / 24.0).abs() < 1e-2 && (drafts.worth(4, 12) - 32.0 / 60.0).abs() < 1e-2);
    }
}
