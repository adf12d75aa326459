//! Parses verdicts in double brackets from answers.

use super::denial::{ends_sentence, is_denied};
use crate::quote::{closes_square, is_dress, is_invisible, opens_square, without_dress};

/// The start of a verdict.
pub(crate) const MARKER: &str = "[[";

/// The number of characters of a malformed verdict that messages show.
const SHOWN: usize = 40;

/// Why a text has no verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoVerdict {
    /// An empty text.
    #[error("nothing was generated")]
    NoText,
    /// There are no brackets.
    #[error("the text contains no [[…]]")]
    NoMarker,
    /// The brackets contain no offered verdict; holds the shortened content.
    #[error("the last verdict is [[{0}]], which was not offered")]
    NotOffered(String),
    /// An offered verdict in other brackets. It may be a quotation and is not a verdict, but it cancels an earlier
    /// verdict unless both agree.
    #[error("the last verdict {0} is not in double brackets [[…]]")]
    Loose(String),
    /// A verdict that its clause denies.
    #[error("the text denies its last verdict {0}")]
    Denied(String),
    /// Two different verdicts in one sentence.
    #[error("the last sentence with a verdict has two different ones, {0} last")]
    Two(String),
}

/// Brackets around a possible verdict.
struct Brackets<'t> {
    /// The start of the brackets.
    start: usize,
    /// The start of the content.
    inside: usize,
    /// The end of the brackets.
    after: usize,
    /// The text with its brackets.
    whole: &'t str,
    content: &'t str,
    /// Two opening and two closing brackets, with no visible character in between.
    is_double: bool,
    /// The clause denies the verdict.
    is_denied: bool,
}

/// The start of a verdict in LaTeX: `\\boxed{B}`.
const BOX: &str = "boxed{";

/// The index in `offered` of the last `[[…]]` in an answer. Anything other than exactly one offered verdict, in any
/// decoration, is no verdict and cancels an earlier one. A denied verdict does not count, and cancels an earlier one
/// that is equal. A sentence with two different verdicts has none.
pub fn last_verdict(text: &str, offered: &[String]) -> Result<usize, NoVerdict> {
    if text.trim().is_empty() {
        return Err(NoVerdict::NoText);
    }
    let mut last = Err(NoVerdict::NoMarker);
    let mut sentence = SentenceVerdicts::default();
    for one in all_brackets(text) {
        let said = position(one.content, offered);
        let has_two = said.is_some_and(|said| one.is_double && sentence.has_two(text, &one, said));
        match (said, one.is_double) {
            (Some(_), true) if has_two => last = Err(NoVerdict::Two(excerpt(one.whole))),
            (Some(said), is_double) if one.is_denied => {
                if last == Ok(said) || (is_double && last == Err(NoVerdict::NoMarker)) {
                    last = Err(NoVerdict::Denied(excerpt(one.whole)));
                }
            }
            (Some(said), true) => last = Ok(said),
            (None, true) => last = Err(NoVerdict::NotOffered(excerpt(one.content))),
            (Some(said), false) if last != Ok(said) => last = Err(NoVerdict::Loose(excerpt(one.whole))),
            (_, false) => {}
        }
    }
    last
}

/// Checks that the marker at this position is not denied, shares its sentence with no other verdict, and is followed by
/// no other possible verdict.
pub(crate) fn follows_marker(text: &str, marker: usize, offered: &[String]) -> Result<(), NoVerdict> {
    let inside = marker + MARKER.len();
    let mut sentence = SentenceVerdicts::default();
    for one in all_brackets(text) {
        let said = position(one.content, offered).filter(|_| one.is_double);
        let has_two = said.is_some_and(|said| sentence.has_two(text, &one, said));
        if one.inside == inside && one.is_denied {
            return Err(NoVerdict::Denied(excerpt(one.whole)));
        }
        if one.inside == inside && has_two {
            return Err(NoVerdict::Two(excerpt(one.whole)));
        }
        if one.inside > inside && position(one.content, offered).is_some() {
            return Err(NoVerdict::Loose(excerpt(one.whole)));
        }
    }
    Ok(())
}

/// The verdicts in double brackets of the current sentence.
#[derive(Default)]
struct SentenceVerdicts {
    first: Option<usize>,
    /// Whether the sentence has different verdicts.
    differ: bool,
    /// The end of the last verdict.
    end: usize,
}

impl SentenceVerdicts {
    /// Adds a verdict; returns whether its sentence has different verdicts.
    fn has_two(&mut self, text: &str, one: &Brackets<'_>, said: usize) -> bool {
        if ends_sentence(text.get(self.end..one.start).unwrap_or_default()) {
            *self = Self::default();
        }
        self.end = one.after;
        self.differ |= *self.first.get_or_insert(said) != said;
        self.differ
    }
}

/// The index of the offered verdict, ignoring decoration: `**B**`, `$B$`, `(B)`, `Ｂ`.
fn position(content: &str, offered: &[String]) -> Option<usize> {
    // Quoted texts in a prompt never contain a verdict in double brackets on one line.
    if content.contains(['\n', '\r']) {
        return None;
    }
    let plain: String = content.chars().filter(|c| !is_invisible(*c)).map(narrow).collect();
    // A percentage is not a rating.
    if plain.contains('%') {
        return None;
    }
    let bare = without_dress(&plain).trim_end_matches(|c| is_dress(c) || matches!(c, '.' | '\\'));
    let bare = whole_part(bare).unwrap_or(bare);
    offered.iter().position(|name| name == bare)
}

/// The integer part of a number whose decimals are all zero: `3` for `3.0`.
pub(super) fn whole_part(text: &str) -> Option<&str> {
    let (whole, zeros) = text.split_once('.')?;
    let is_whole = whole.ends_with(|c: char| c.is_ascii_digit());
    (is_whole && !zeros.is_empty() && zeros.bytes().all(|digit| digit == b'0')).then_some(whole)
}

/// The ASCII form of a full-width character.
fn narrow(c: char) -> char {
    match c {
        '！'..='～' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        c => c,
    }
}

/// All groups of opening square brackets with their content up to a closing bracket or the end of the line, and all
/// LaTeX boxes.
fn all_brackets(text: &str) -> impl Iterator<Item = Brackets<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let bracket = text[at..].find(opens_square);
        let latex = text[at..at + bracket.unwrap_or(text.len() - at)].find(BOX);
        let one = match latex {
            Some(found) => boxed(text, at + found),
            None => bracketed(text, at + bracket?),
        };
        at = one.inside;
        Some(one)
    })
}

/// The group of square brackets that opens at `start`.
fn bracketed(text: &str, start: usize) -> Brackets<'_> {
    let (inside, opened) = run_of(text, start, opens_square);
    let is_end = |c| closes_square(c) || opens_square(c) || c == '\n';
    let content = text[inside..].split(is_end).next().unwrap_or_default();
    let (after, closed) = run_of(text, inside + content.len(), closes_square);
    let is_double = opened.last() >= Some(&2) && closed.first() >= Some(&2);
    let is_denied = is_denied(&text[..start], &text[after..]);
    Brackets { start, inside, after, whole: &text[start..after], content, is_double, is_denied }
}

/// The LaTeX box that begins at `start`, up to its matching brace. Texts in prompts may contain one, so a box alone is
/// no verdict.
fn boxed(text: &str, start: usize) -> Brackets<'_> {
    let inside = start + BOX.len();
    let (mut depth, mut end) = (1_usize, inside);
    for c in text[inside..].chars().take_while(|c| *c != '\n') {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        end += c.len_utf8();
    }
    let after = end + usize::from(depth == 0);
    let is_denied = is_denied(&text[..start], &text[after..]);
    let (whole, content) = (&text[start..after], &text[inside..end]);
    Brackets { start, inside, after, whole, content, is_double: false, is_denied }
}

/// The end of a run of brackets, and the number of adjacent brackets in each of its parts. White space separates parts;
/// invisible characters and Markdown backslashes do not.
fn run_of(text: &str, start: usize, is_bracket: fn(char) -> bool) -> (usize, Vec<usize>) {
    let (mut end, mut parts) = (start, Vec::new());
    let mut is_apart = true;
    for (at, c) in text[start..].char_indices() {
        match c {
            c if is_bracket(c) => {
                match parts.last_mut() {
                    Some(count) if !is_apart => *count += 1,
                    _ => parts.push(1),
                }
                (end, is_apart) = (start + at + c.len_utf8(), false);
            }
            c if is_invisible(c) || c == '\\' => {}
            ' ' | '\t' => is_apart = true,
            _ => break,
        }
    }
    (end, parts)
}

fn excerpt(text: &str) -> String {
    let shown: String = text.trim_matches([' ', '\t']).chars().take(SHOWN).collect();
    let more = if shown.len() < text.trim_matches([' ', '\t']).len() { "…" } else { "" };
    format!("{}{more}", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::verdict::OfferedVerdicts;

    fn pair(ties: bool) -> Vec<String> {
        OfferedVerdicts::Pair { ties }.names()
    }

    fn ratings(scale: &str) -> Vec<String> {
        OfferedVerdicts::Ratings(scale.parse().expect("valid")).names()
    }

    #[test]
    fn the_last_verdict_wins_and_must_have_been_offered() {
        for (text, said) in [
            ("[[A]]", Ok(0)),
            ("First [[A]]. But then **[[B]]**.", Ok(1)),
            ("[[ C ]]\n", Ok(2)),
            ("[[[A]]]", Ok(0)),
            ("[[B]] as I [[", Ok(1)),
            ("[[A]] … [[A or B]]", Err("[[A or B]]")),
            ("[[A]] [[D]]", Err("[[D]]")),
            ("[[a]]", Err("[[a]]")),
            ("[[А]]", Err("not offered")),
            ("[[\nA]]", Err("no [[…]]")),
            ("[A]", Err("not in double brackets")),
            ("[[A", Err("not in double brackets")),
            (" ", Err("nothing was generated")),
            ("no verdict", Err("no [[…]]")),
        ] {
            let read = last_verdict(text, &pair(true));
            match said {
                Ok(position) => assert_eq!(read, Ok(position), "{text}"),
                Err(part) => {
                    assert!(read.as_ref().is_err_and(|why| why.to_string().contains(part)), "{text}: {read:?}");
                }
            }
        }
        assert!(last_verdict("[[C]]", &pair(false)).is_err(), "no tie was offered");
        let ratings = ratings("1..10");
        assert_eq!((last_verdict("[[10]]", &ratings), last_verdict("[[1]]", &ratings)), (Ok(9), Ok(0)));
        for text in ["[[7.0]]", "[[7.00]]", "[[**7.0**]]", "[[7.]]"] {
            assert_eq!(last_verdict(text, &ratings), Ok(6), "{text}");
        }
        for text in [
            "[[11]]", "[[11.0]]", "[[7.01]]", "[[07.0]]", "[[7.0.0]]", "[[7.5]]", "[[.5]]", "[[07]]", "[[-1]]",
            "[[7/10]]", "[[7%]]", "[[7 ％]]",
        ] {
            assert!(last_verdict(text, &ratings).is_err(), "{text}");
        }
    }

    #[test]
    fn a_verdict_is_read_in_any_dress() {
        for text in [
            "[[**B**]]", "[[$B$]]", "[[(B)]]", "[[`B`]]", "[[\"B\"]]", "[[_B_.]]", "[[\\text{B}]]",
            "[[$\\mathbf{B}$]]", "\\[\\[B\\]\\]", "［［B］］", "［［Ｂ］］", "【【B】】", "[\u{200b}[B]]",
            "[[\u{feff}B\u{200b}]\u{2060}]",
        ] {
            assert_eq!(last_verdict(&format!("At first [[A]]. Final: {text}"), &pair(false)), Ok(1), "{text}");
        }
        assert_eq!(last_verdict("[[**4**]]", &ratings("1..5")), Ok(3));
    }

    #[test]
    fn a_verdict_in_other_brackets_takes_an_earlier_one_back() {
        for text in ["[ [B]]", "[ [B] ]", "[[B] ]", "[[B]", "[[B", "[B]", "【B】", "⟦B⟧", "[ \u{200b}[**B**]]", "[[B]."]
        {
            let read = last_verdict(&format!("At first [[A]]. Final: {text}"), &pair(false));
            assert!(matches!(read, Err(NoVerdict::Loose(_))), "{text}: {read:?}");
        }
        assert_eq!(last_verdict("[[B]], that is [B]", &pair(false)), Ok(1), "it says the same");
        assert_eq!(last_verdict("[B] is better: [[A]]", &pair(false)), Ok(0), "a verdict comes later");
        assert_eq!(last_verdict("[[A]] because x[i] and [[1, 2], [3, 4]]", &pair(false)), Ok(0));
    }

    #[test]
    fn a_box_of_latex_takes_an_earlier_verdict_back() {
        for text in ["$\\boxed{B}$", "\\boxed{\\text{B}}", "\\boxed{ **B** }", "\\fboxed{B}", "\\boxed{B"] {
            let read = last_verdict(&format!("[[A]] then {text}"), &pair(false));
            assert!(matches!(read, Err(NoVerdict::Loose(_))), "{text}: {read:?}");
        }
        assert_eq!(last_verdict("[[B]], that is $\\boxed{B}$", &pair(false)), Ok(1), "it says the same");
        assert_eq!(last_verdict("$\\boxed{A}$, so [[B]]", &pair(false)), Ok(1), "a verdict comes later");
        assert_eq!(last_verdict("[[A]]. Then \\boxed{[[B]]}", &pair(false)), Ok(1));
        assert_eq!(last_verdict("[[A]], as x = \\boxed{42}", &pair(false)), Ok(0));
        assert_eq!(last_verdict("\\boxed{A}", &pair(false)), Err(NoVerdict::Loose("boxed{A}".to_owned())));
    }

    #[test]
    fn a_verdict_that_its_clause_denies_is_none() {
        for text in
            ["The verdict is not [[A]]", "[[A]] is wrong", "[[A]]. On reflection: [[A]] is wrong.", "[[A]]? Not [A]."]
        {
            let read = last_verdict(text, &pair(false));
            assert!(matches!(read, Err(NoVerdict::Denied(_))), "{text}: {read:?}");
        }
        assert_eq!(last_verdict("[[A]] is wrong. [[B]]", &pair(false)), Ok(1));
        assert!(last_verdict("It is not [A]", &pair(false)).is_err());
    }

    #[test]
    fn a_sentence_with_two_verdicts_has_none() {
        for text in [
            "[[A]] is better than [[B]]", "[[A]] beats [[B]].", "[[A]] > [[B]]", "I cannot choose [[A]] over [[B]]",
            "[[A]] or [[B]]", "[[A]] or [[B]] or [[A]]", "[[A]] is worse than [[B]]", "[[A]] is not better than [[B]]",
            "[[A]] vs. [[B]]", "[[A]] is worse", "[[B]]. So [[A]], but [[B]].", "[[A]], not [[B]]",
            "It is not [[A]] but [[B]]", "It is not [[A]] or [[B]]", "[[A]] rather than [[B]]",
        ] {
            let read = last_verdict(text, &pair(false));
            assert!(matches!(read, Err(NoVerdict::Two(_) | NoVerdict::Denied(_))), "{text}: {read:?}");
        }
        for (text, said) in [
            ("[[A]]. [[B]] is worse.", 0),
            ("It is not [[A]]. It is [[B]]", 1),
            ("[[A]] is better.", 0),
            ("[[A]] or [[B]]? The verdict: [[A]]", 0),
            ("[[A]] > [[B]], so:\n[[A]]", 0),
            ("[[B]], that is [[B]]", 1),
        ] {
            assert_eq!(last_verdict(text, &pair(false)), Ok(said), "{text}");
        }
        for text in ["[[3]] out of [[5]]", "[[3]]/[[5]]"] {
            assert!(last_verdict(text, &ratings("1..5")).is_err(), "{text}");
        }
    }

    #[test]
    fn probabilities_are_those_of_the_last_verdict() {
        let follows = |text: &str| follows_marker(text, text.rfind(MARKER).expect("there"), &pair(false));
        assert_eq!((follows("[[A]]"), follows("so [[[A]]]"), follows("so [[")), (Ok(()), Ok(()), Ok(())));
        assert!(follows("The verdict is not [[A]]").is_err() && follows("It is not [[").is_err());
        assert!(follows("[[A]] is better than [[B]]").is_err() && follows("[[B]]. [[A]] is worse").is_err());
        assert!(follows("[[A]] is wrong").is_err() && follows("[[A]] then $\\boxed{B}$").is_err());
        assert!(follows("[[A]]. Final: [ [B]]").is_err() && follows("[[A]]. Final: ［［B］］").is_err());
    }

    #[test]
    fn a_long_malformed_verdict_is_shown_in_part() {
        let why = last_verdict(&format!("[[{}]]", "x".repeat(500)), &pair(false)).expect_err("not offered");
        let why = why.to_string();
        assert!(why.len() < 120 && why.contains("x…]]"), "{why}");
    }
}
