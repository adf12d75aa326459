//! What a rationale comes to: its last statement about the claim.

/// Behind this a rationale says what it comes to.
pub(super) const MARKER: &str = "the claim is";

/// What a statement may call a claim that is true, and one that is not.
const RIGHT: [&str; 8] = ["true", "correct", "right", "accurate", "valid", "factual", "holds", "hold"];
const WRONG: [&str; 11] = [
    "false", "incorrect", "wrong", "inaccurate", "invalid", "untrue", "mistaken", "erroneous", "unfactual",
    "nonfactual", "misleading",
];
/// Verbs that a statement begins with; the apostrophe of `isn't` parts it.
const VERBS: [&str; 22] = [
    "is", "was", "isn", "wasn", "be", "are", "seems", "appears", "remains", "proves", "must", "can", "cannot", "could",
    "couldn", "should", "does", "doesn", "holds", "hold", "turns", "has",
];
/// Those that deny what follows.
const NEGATIONS: [&str; 9] = ["not", "never", "isn", "wasn", "aren", "doesn", "couldn", "cannot", "hardly"];
/// Words that may stand between the verb and the label.
const FILLERS: [&str; 26] = [
    "therefore", "thus", "hence", "so", "also", "indeed", "clearly", "likely", "probably", "actually", "in", "fact",
    "t", "to", "be", "out", "been", "being", "found", "deemed", "considered", "after", "all", "however", "then",
    "simply",
];
/// What a later sentence may speak of the claim as.
const PRONOUNS: [&str; 4] = ["it", "this", "that", "statement"];

/// A word, and the number of its sentence.
type Word<'t> = (&'t str, usize);

/// What a statement says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Label(bool),
    /// It speaks of the claim, and neither label is in it.
    Unclear,
}

/// The label that the last statement about the claim gives it, or the text where it is one word alone. None where the
/// last statement is unclear, or where a later sentence says the opposite of it without naming the claim.
pub(super) fn conclusion(text: &str) -> Option<bool> {
    let lower = text.to_lowercase();
    let words = words(&lower);
    if let [(alone, _)] = words.as_slice() {
        return label(alone);
    }
    let about = |start: usize| matches!(words[start].0, "claim" | "claims").then(|| statement(&words[start + 1..]));
    let (start, said) = (0..words.len()).rev().find_map(|start| Some((start, about(start)??)))?;
    let Said::Label(last) = said else { return None };
    let sentence = words[start].1;
    let later = words.iter().position(|(_, number)| *number > sentence).unwrap_or(words.len());
    let takes_back = words[later..].chunk_by(|a, b| a.1 == b.1).any(|sentence| says_opposite(sentence, last));
    (!takes_back).then_some(last)
}

/// Whether the marker of a rationale is the last one, in whatever case, and outside any thought. `answer` is the
/// rationale with spaces in place of its thoughts.
pub(super) fn is_last_marker(rationale: &str, answer: &str) -> bool {
    answer.to_ascii_lowercase().rfind(MARKER).is_some_and(|at| rationale.rfind(MARKER) == Some(at))
}

fn words(text: &str) -> Vec<Word<'_>> {
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

/// What is said in the words behind a subject; `None` where no verb follows it.
fn statement(words: &[Word<'_>]) -> Option<Said> {
    if !words.first().is_some_and(|(verb, _)| VERBS.contains(verb)) {
        return None;
    }
    let mut is_not = false;
    for (word, _) in words {
        if let Some(is_true) = label(word) {
            return Some(Said::Label(is_true != is_not));
        }
        if NEGATIONS.contains(word) {
            is_not = !is_not;
        } else if !FILLERS.contains(word) && !VERBS.contains(word) {
            return Some(Said::Unclear);
        }
    }
    Some(Said::Unclear)
}

/// Whether a sentence that follows the last statement gives the claim the other label: as `it` or `this`, in two or
/// three words (`Verdict: false`), or as a claim of which more is said than a label.
fn says_opposite(sentence: &[Word<'_>], last: bool) -> bool {
    let opposite = |said: Said| said == Said::Label(!last);
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
