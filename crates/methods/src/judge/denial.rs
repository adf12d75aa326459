//! Verdicts that their own clause denies: `not [[A]]`, `[[A]] is wrong`, `[[A]] is worse`.

/// Words that deny a verdict, besides all that end in `n't`.
const NEGATIONS: [&str; 5] = ["not", "never", "neither", "nor", "cannot"];
/// Words that deny a verdict after a verb: `[[A]] is wrong`.
const WRONG: [&str; 12] = [
    "wrong", "incorrect", "false", "untrue", "mistaken", "mistake", "invalid", "worse", "worst", "weaker", "weakest",
    "inferior",
];
/// Verbs that start a denial after a verdict.
const VERBS: [&str; 15] = [
    "is", "was", "be", "been", "would", "could", "can", "should", "does", "did", "seems", "looks", "may", "might",
    "must",
];
/// Words allowed between a denial and the verdict.
const FILLERS: [&str; 32] = [
    "a", "an", "the", "to", "be", "it", "is", "was", "this", "that", "my", "final", "correct", "right", "better",
    "best", "verdict", "answer", "choice", "decision", "rating", "score", "think", "believe", "say", "choose", "give",
    "really", "actually", "simply", "clearly", "necessarily",
];
/// The number of words examined on either side.
const NEAR: usize = 8;
const SEPARATORS: [char; 2] = [' ', '\t'];

/// Whether the clause around a verdict denies it.
pub(super) fn is_denied(before: &str, after: &str) -> bool {
    // Nearest word first. Text after the last punctuation belongs to the clause.
    let before = clause(before.rsplit(SEPARATORS), |word| word.rsplit_once(ends_clause).map(|(_, rest)| rest));
    denies_next(&before) || denies_previous(&clause_after(after))
}

/// Whether a sentence ends between two verdicts.
pub(super) fn ends_sentence(between: &str) -> bool {
    // The full stop of an abbreviation ends no sentence.
    let between = between.to_lowercase().replace("vs.", "vs");
    between.contains(['.', '!', '?', ';', ':', '…', '\n', '\r', '。', '！', '？', '；', '：'])
}

/// `it is not`, `I don't think it is`, `rather than` in front of a verdict; nearest word first.
fn denies_next(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str).skip_while(|word| FILLERS.contains(word));
    match words.next() {
        Some("than") => words.next() == Some("rather"),
        Some("of") => words.next() == Some("instead"),
        Some(word) => is_negation(word),
        None => false,
    }
}

/// `is wrong`, `isn't right`, `would be a mistake` after a verdict.
fn denies_previous(words: &[String]) -> bool {
    let Some(verb) = words.first().map(String::as_str) else { return false };
    if !VERBS.contains(&verb) {
        // `[[A]] not [[B]]` denies the other verdict.
        return is_negation(verb) && (verb.ends_with("n't") || verb == "cannot");
    }
    let is_filler = |word: &&str| FILLERS.contains(word) || VERBS.contains(word);
    let denial = words.iter().map(String::as_str).find(|word| !is_filler(word));
    denial.is_some_and(|word| is_negation(word) || WRONG.contains(&word))
}

fn is_negation(word: &str) -> bool {
    NEGATIONS.contains(&word) || word.ends_with("n't")
}

/// The words that follow a verdict in its clause.
fn clause_after(after: &str) -> Vec<String> {
    clause(after.split(SEPARATORS), |word| word.split_once(ends_clause).map(|(rest, _)| rest))
}

/// Words up to the end of the clause, lower case and without decoration.
fn clause<'t>(words: impl Iterator<Item = &'t str>, cut: impl Fn(&'t str) -> Option<&'t str>) -> Vec<String> {
    let mut found = Vec::new();
    for word in words.take(NEAR) {
        let kept = cut(word);
        let bare = kept.unwrap_or(word).trim_matches(|c: char| !c.is_alphanumeric());
        if !bare.is_empty() {
            found.push(bare.to_lowercase().replace('’', "'"));
        }
        if kept.is_some() {
            break;
        }
    }
    found
}

fn ends_clause(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | ';' | ':' | ',' | '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_denied_directly_before_and_after_it() {
        for text in [
            "The verdict is not |", "It isn't **|**", "it isn’t the right answer: no, not |", "never |.",
            "I do not think it is |", "rather than |", "instead of |", "neither |", "| is wrong",
            "**|** is not right.", "| isn't", "| would be a mistake", "| cannot be", "| is clearly not the verdict",
            "\"|\" was wrong,",
        ] {
            let (before, after) = text.split_once('|').expect("a verdict");
            assert!(is_denied(before, after), "{text}");
        }
        for text in [
            "|", "The verdict is |.", "B is not good, so |", "B does not hold. |", "The answer is not B but |",
            "B is not: |", "It is not close\n|", "|\nIt is not close", "| not the other", "| is right",
            "|. B is wrong", "|, which is not B", "better than |", "one of |", "| is better",
        ] {
            let (before, after) = text.split_once('|').expect("a verdict");
            assert!(!is_denied(before, after), "{text}");
        }
    }
}
