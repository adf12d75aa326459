//! Reasoning sections in generated texts, before or between the parts meant for the reader.

use std::borrow::Cow;

/// Names of reasoning markers in lower case without delimiters.
const THOUGHTS: [&str; 10] = [
    "think", "thinking", "thought", "thoughts", "reasoning", "reflection", "scratchpad", "analysis", "monologue",
    "innermonologue",
];
/// Names that open or close a reasoning section on their own.
const OPENING: [&str; 4] = ["beginofthought", "startthinking", "beginthinking", "unused94"];
const CLOSING: [&str; 3] = ["endofthought", "endthinking", "unused95"];
/// Text before an answer, whose thought the template opened.
const ANSWER_BEGINS: &str = "[BEGIN FINAL RESPONSE]";
/// Maximum length of a marker in bytes. Longer ones are text in angle brackets.
const LONGEST_MARK: usize = 48;
/// Start of the analysis channel in the harmony format when its markers are control tokens, which are not part of the
/// text.
const BARE_CHANNEL: &str = "analysis";
const BARE_FINAL: &str = "assistantfinal";
/// Separates a channel's name from its text.
const MESSAGE: &str = "<|message|>";

/// Whether a text begins with an opening reasoning marker.
pub fn opens_thought(text: &str) -> bool {
    let text = text.trim_start();
    mark_at(text).is_some_and(|(mark, _)| mark == Mark::Open) || begins_bare_channel(text)
}

/// Whether a token is a reasoning marker. Such tokens stay in generated text even if they are control tokens; otherwise
/// the reasoning would be read as the answer.
pub fn is_thought_mark(token: &str) -> bool {
    token == MESSAGE || mark_at(token).is_some_and(|(_, length)| length == token.len())
}

/// Whether a text has reasoning sections, and whether the last one is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThoughtState {
    /// No marker.
    None,
    /// A section is open at the end.
    Open,
    /// All are closed.
    Closed,
}

/// The state of reasoning at the end of a text.
pub fn thought_state(text: &str) -> ThoughtState {
    match without_thoughts(text) {
        None => ThoughtState::Open,
        Some(Cow::Borrowed(_)) => ThoughtState::None,
        Some(Cow::Owned(_)) => ThoughtState::Closed,
    }
}

/// The text with reasoning sections replaced by spaces. `None` if one is not closed. A closing marker without an
/// opening one means that the template opened the section.
pub fn without_thoughts(text: &str) -> Option<Cow<'_, str>> {
    let mut thoughts: Vec<(usize, usize)> = Vec::new();
    let (mut open, mut start, mut at) = (0_usize, 0, 0);
    if begins_bare_channel(text) {
        let end = text.find(BARE_FINAL)? + BARE_FINAL.len();
        thoughts.push((0, end));
        at = end;
    }
    while let Some(found) = text[at..].find(['<', '[', '◁']) {
        at += found;
        let Some((mark, length)) = mark_at(&text[at..]) else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        match mark {
            Mark::Open if open == 0 => (open, start) = (1, at),
            Mark::Open => open += 1,
            Mark::Close if open > 1 => open -= 1,
            Mark::Close | Mark::Final => {
                thoughts.push((if open == 0 { 0 } else { start }, at + length));
                open = 0;
            }
        }
        at += length;
    }
    if open > 0 {
        return None;
    }
    if thoughts.is_empty() {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = text.as_bytes().to_vec();
    for (start, end) in thoughts {
        bytes[start..end].fill(b' ');
    }
    Some(Cow::Owned(String::from_utf8(bytes).expect("thoughts begin and end between characters")))
}

/// Effect of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Open,
    Close,
    /// Closes any open section; the final answer follows.
    Final,
}

/// The marker at the start of a text, and its length: `<think>`, `</seed:think>`, `[THINK]`, `◁think▷`,
/// `<|begin_of_thought|>`, `<|channel|>analysis<|message|>`.
fn mark_at(text: &str) -> Option<(Mark, usize)> {
    let close = match text.chars().next()? {
        '<' => '>',
        '[' => ']',
        '◁' => '▷',
        _ => return None,
    };
    if text.starts_with(ANSWER_BEGINS) {
        return Some((Mark::Final, ANSWER_BEGINS.len()));
    }
    let (end, _) = text.char_indices().take_while(|(at, _)| *at <= LONGEST_MARK).find(|(_, c)| *c == close)?;
    let length = end + close.len_utf8();
    let inside = &text[..end];
    let inside = inside.trim_start_matches(['<', '[', '◁']).trim().to_ascii_lowercase();
    if close == '>' && matches!(inside.as_str(), "|channel|" | "|channel") {
        let (name, _) = text[length..].split_once(['<', '\n']).unwrap_or((&text[length..], ""));
        if !name.trim().eq_ignore_ascii_case("final") {
            return Some((Mark::Open, length));
        }
        let message = text[length..].find(MESSAGE).map_or(0, |at| at + MESSAGE.len());
        return Some((Mark::Final, length + message));
    }
    if inside == "channel|" {
        return Some((Mark::Close, length));
    }
    let (is_closing, name) = match inside.trim_matches(['|', '｜', ' ']).strip_prefix('/') {
        Some(name) => (true, name),
        None => (false, inside.trim_matches(['|', '｜', ' '])),
    };
    // Without namespace (`seed:think`, `think:opensource`) and attributes.
    let name = name.split_whitespace().next()?;
    let name = match name.split_once(':') {
        Some((first, _)) if THOUGHTS.contains(&first) => first,
        Some((_, last)) => last,
        None => name,
    };
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    // Square brackets can also hold ordinary text, such as [Analysis] or [think tank].
    let is_thought = match close {
        ']' => name == "think" && !inside.contains(char::is_whitespace),
        _ => THOUGHTS.contains(&name.as_str()),
    };
    match name.as_str() {
        _ if is_thought && is_closing => Some((Mark::Close, length)),
        _ if is_thought && !inside.ends_with('/') => Some((Mark::Open, length)),
        name if close == '>' && OPENING.contains(&name) => Some((Mark::Open, length)),
        name if close == '>' && CLOSING.contains(&name) => Some((Mark::Close, length)),
        _ => None,
    }
}

/// Whether the text begins like harmony's analysis channel without its markers: `analysisThe user asks`.
fn begins_bare_channel(text: &str) -> bool {
    text.strip_prefix(BARE_CHANNEL).is_some_and(|rest| rest.starts_with(char::is_alphabetic) && rest.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        without_thoughts(text).map(|rest| rest.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn thoughts_in_any_marks_are_no_part_of_the_answer() {
        for (text, rest) in [
            ("<think>a</think> b", "b"),
            ("<thinking>a</thinking>b", "b"),
            ("<THINK>\na\n</THINK>\nb", "b"),
            ("<reasoning>a</reasoning> b", "b"),
            ("<seed:think>a</seed:think> b", "b"),
            ("<think:opensource>a</think:opensource>b", "b"),
            ("a\n[BEGIN FINAL RESPONSE]\nb", "b"),
            ("<think effort=\"low\">a</think> b", "b"),
            ("[THINK]a[/THINK] b", "b"),
            ("◁think▷a◁/think▷ b", "b"),
            ("<|begin_of_thought|>a<|end_of_thought|> b", "b"),
            ("<|START_THINKING|>a<|END_THINKING|> b", "b"),
            ("<unused94>thought a<unused95>b", "b"),
            ("<|channel>thought\na<channel|>b", "b"),
            ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "b"),
            ("analysisThe user asks.assistantfinalb", "b"),
            // Opened by the template.
            ("a</think> b", "b"),
            ("a [[A]] </think> b <think> c </think> d", "b d"),
            // Nested sections.
            ("<think>a <think>b</think> c</think> d", "d"),
            ("<think></think>b", "b"),
            ("b <think>a</think>", "b"),
            (
                "a < b and c > d [think tank] <b>e</b> [Analysis] analysis of f",
                "a < b and c > d [think tank] <b>e</b> [Analysis] analysis of f",
            ),
            ("", ""),
        ] {
            assert_eq!(read(text).as_deref(), Some(rest), "{text}");
        }
    }

    #[test]
    fn an_open_thought_leaves_no_answer() {
        for text in [
            "<think>a", "b <think>", "<think>a <think>b</think> c", "[THINK] a", "<|channel|>analysis<|message|>a",
            "analysisThe user asks for it", "<seed:think>a</answer>",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn positions_stay() {
        let text = "<think>é</think>b";
        assert_eq!(without_thoughts(text).expect("closed").find('b'), text.find('b'));
    }

    #[test]
    fn marks_of_thoughts_are_known_among_tokens() {
        for token in [
            "[THINK]", "[/THINK]", "<think>", "</think>", "<|START_THINKING|>", "<unused95>", "<|channel|>",
            "<|message|>", "<channel|>", "<|end_of_thought|>", "◁/think▷", "<seed:think>",
        ] {
            assert!(is_thought_mark(token), "{token}");
        }
        for token in
            ["[INST]", "</s>", "<s>", "<|im_end|>", "<|end|>", "<|start|>", "<unused7>", "think", "<think>a", ""]
        {
            assert!(!is_thought_mark(token), "{token}");
        }
        // Remaining harmony markers when turns have none.
        let text = "<|channel|>analysis<|message|>[[A]]assistant<|channel|>final<|message|>[[B]]";
        assert_eq!(read(text).as_deref(), Some("[[B]]"));
    }

    #[test]
    fn a_token_may_open_a_thought() {
        for (token, opens) in [
            ("<think>", true),
            ("\n<think>", true),
            ("[THINK]", true),
            ("<|channel|>", true),
            ("</think>", false),
            ("A", false),
        ] {
            assert_eq!(opens_thought(token), opens, "{token}");
        }
    }
}
