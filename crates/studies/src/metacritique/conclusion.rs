//! Parses the conclusion of a rationale: its last statement about the claim.

/// The marker before the conclusion.
pub(super) const MARKER: &str = "the claim is";

/// The words for true claims, and for false ones.
const RIGHT: [&str; 8] = ["true", "correct", "right", "accurate", "valid", "factual", "holds", "hold"];
const WRONG: [&str; 11] = [
    "false", "incorrect", "wrong", "inaccurate", "invalid", "untrue", "mistaken", "erroneous", "unfactual",
    "nonfactual", "misleading",
];
/// Verbs that begin a statement; `isn't` is split at the apostrophe.
const VERBS: [&str; 22] = [
    "is", "was", "isn", "wasn", "be", "are", "seems", "appears", "remains", "proves", "must", "can", "cannot", "could",
    "couldn", "should", "does", "doesn", "holds", "hold", "turns", "has",
];
/// Verbs and words that negate what follows.
const NEGATIONS: [&str; 9] = ["not", "never", "isn", "wasn", "aren", "doesn", "couldn", "cannot", "hardly"];
/// Words allowed between the verb and the label.
const FILLERS: [&str; 26] = [
    "therefore", "thus", "hence", "so", "also", "indeed", "clearly", "likely", "probably", "actually", "in", "fact",
    "t", "to", "be", "out", "been", "being", "found", "deemed", "considered", "after", "all", "however", "then",
    "simply",
];
/// Words by which a later sentence may refer to the claim.
const PRONOUNS: [&str; 4] = ["it", "this", "that", "statement"];

/// A word with the number of its sentence.
type Word<'t> = (&'t str, usize);

/// The result of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CritiqueVerdict {
    Label(bool),
    /// About the claim, but without a label.
    Unclear,
}

/// The label in the last statement about the claim, or of a text that is a single word. `None` if that statement is
/// unclear, or if a later sentence contradicts it without naming the claim.
pub(super) fn conclusion(text: &str) -> Option<bool> {
    let lower = text.to_lowercase();
    let words = split_words(&lower);
    if let [(alone, _)] = words.as_slice() {
        return label(alone);
    }
    let about = |start: usize| matches!(words[start].0, "claim" | "claims").then(|| statement(&words[start + 1..]));
    let (start, said) = (0..words.len()).rev().find_map(|start| Some((start, about(start)??)))?;
    let CritiqueVerdict::Label(last) = said else { return None };
    let sentence = words[start].1;
    let later = words.iter().position(|(_, number)| *number > sentence).unwrap_or(words.len());
    let takes_back = words[later..].chunk_by(|a, b| a.1 == b.1).any(|sentence| says_opposite(sentence, last));
    (!takes_back).then_some(last)
}

/// Whether the marker at the end of a rationale is its last one, ignoring case, and outside any thought. `answer` is
/// the rationale with thoughts replaced by spaces.
pub(super) fn is_last_marker(rationale: &str, answer: &str) -> bool {
    answer.to_ascii_lowercase().rfind(MARKER).is_some_and(|at| rationale.rfind(MARKER) == Some(at))
}

fn split_words(text: &str) -> Vec<Word<'_>> {
    let sentences = text.split(['.', '!', '?', ';', '\n']).enumerate();
    let words = sentences.flat_map(|(number, sentence)| {
        sentence.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(move |word| (word, number))
    });
    words.collect()
}

fn label(word: &str) -> Option<bool> {
    if RIGHT.contains(&word) {
        return Some(true);
    }
    WRONG.contains(&word).then_some(false)
}

/// The statement in the words after a subject; `None` if no verb follows.
fn statement(words: &[Word<'_>]) -> Option<CritiqueVerdict> {
    if !words.first().is_some_and(|(verb, _)| VERBS.contains(verb)) {
        return None;
    }
    let mut is_not = false;
    for (word, _) in words {
        if let Some(is_true) = label(word) {
            return Some(CritiqueVerdict::Label(is_true != is_not));
        }
        if NEGATIONS.contains(word) {
            is_not = !is_not;
        } else if !FILLERS.contains(word) && !VERBS.contains(word) {
            return Some(CritiqueVerdict::Unclear);
        }
    }
    Some(CritiqueVerdict::Unclear)
}

/// Whether a later sentence gives the claim the opposite label: about `it` or `this`, in at most three words (`Verdict:
/// false`), or with a label in a sentence that mentions the claim.
fn says_opposite(sentence: &[Word<'_>], last: bool) -> bool {
    let opposite = |said: CritiqueVerdict| said == CritiqueVerdict::Label(!last);
    let by_pronoun = (0..sentence.len())
        .filter(|start| PRONOUNS.contains(&sentence[*start].0))
        .any(|start| statement(&sentence[start + 1..]).is_some_and(opposite));
    let has_label = sentence.iter().any(|(word, _)| label(word).is_some());
    let is_short = sentence.len() <= 3 && sentence.last().and_then(|(word, _)| label(word)) == Some(!last);
    by_pronoun || is_short || (has_label && sentence.iter().any(|(word, _)| matches!(*word, "claim" | "claims")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_conclusion_of_a_rationale_counts() {
        for (text, expected) in [
            ("So the claim is true.", Some(true)),
            ("The claim is **false**.", Some(false)),
            ("One might think that the claim is true. But no: the claim is therefore false", Some(false)),
            ("the claim is not true", Some(false)),
            ("The claim isn't false.", Some(true)),
            ("The claim isn't correct.", Some(false)),
            ("The claim isn’t true.", Some(false)),
            ("The claim cannot be true.", Some(false)),
            ("The claim doesn't hold.", Some(false)),
            ("The claim is: \"True\"", Some(true)),
            ("The claim is:\n\nTrue", Some(true)),
            ("True", Some(true)),
            ("false.", Some(false)),
            ("It is true.", None),
            ("the claim is a true statement", None),
            ("", None),
            ("the claim is", None),
            ("the claim is truely said", None),
            ("The claim is true, since the answer is wrong.", Some(true)),
        ] {
            assert_eq!(conclusion(text), expected, "{text}");
        }
    }

    #[test]
    fn an_earlier_conclusion_that_is_taken_back_does_not_count() {
        let first = "At first sight the claim is true.";
        for (text, expected) in [
            ("But on a closer look the claim is incorrect.", Some(false)),
            ("But the claim is not accurate.", Some(false)),
            ("But the claim is not supported by the answer.", None),
            ("But the claim is only partially true.", None),
            ("But on a closer look it is false.", None),
            ("But this is not true.", None),
            ("Verdict: False", None),
            ("False", None),
            ("The claim that it names the wrong planet is, on a closer look, false.", None),
            ("Still, it is true.", Some(true)),
            ("The answer says Saturn.", Some(true)),
        ] {
            assert_eq!(conclusion(&format!("{first} {text}")), expected, "{text}");
        }
    }

    #[test]
    fn the_marker_is_the_last_one_in_any_case() {
        let is_last = |text: &str| is_last_marker(text, text);
        assert!(is_last("So the claim is true."));
        assert!(!is_last("At first the claim is plausible. The claim is false."));
        assert!(!is_last("nothing"));
    }
}
