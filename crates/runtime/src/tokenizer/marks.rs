//! Determines which added tokens are control markers, regardless of their file.

use super::added::AddedToken;

/// Names of end-of-turn tokens that checkpoints may not list.
const TURN_ENDS: [&str; 8] = [
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<turn|>", "<|end_of_text|>", "<|endoftext|>",
];
/// End of an assistant's turn in the harmony format.
const RETURN: &str = "<|return|>";

/// HTML elements that are tokens in some vocabularies, such as Gemma's: ordinary text.
const HTML: [&str; 43] = [
    "a", "b", "bbox", "blockquote", "body", "br", "caption", "code", "div", "em", "footer", "h1", "h2", "h3", "h4",
    "h5", "h6", "head", "hr", "html", "i", "iframe", "img", "li", "ol", "p", "pre", "s", "span", "strong", "sub",
    "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "tt", "u", "ul", "video",
];

/// Marks the control markers: special tokens, tokens written like them, and markers of turns, reasoning and tools,
/// which files may declare as user-defined (`</think>`, `<tool_call>`, Phi-3's `</s>`).
pub(super) fn find_steering(added: &mut [AddedToken]) {
    // `<s>` is strikethrough if there are tokens for HTML, otherwise the start of a sequence.
    let has_html = added.iter().any(|token| token.content == "<table>");
    for token in added {
        // Converters and fine-tunes sometimes omit the flag, and then any text could end a turn.
        token.special |= looks_special(&token.content);
        token.steers = token.special || (is_mark(&token.content) && !(has_html && is_html(&token.content)));
    }
}

/// Whether a token's name marks it as special regardless of its file.
pub(super) fn looks_special(content: &str) -> bool {
    let inner = content.strip_prefix("<|").and_then(|rest| rest.strip_suffix("|>"));
    // DeepSeek's models use wide bars in their special tokens.
    let wide = content.strip_prefix("<｜").and_then(|rest| rest.strip_suffix("｜>"));
    let framed = inner.or(wide).is_some_and(|inner| !inner.is_empty() && !inner.contains(char::is_whitespace));
    framed || content.starts_with("<extra_id_") || TURN_ENDS.contains(&content)
}

/// Whether a token is one word in brackets: `<think>`, `</think>`, `[THINK]`, `<channel|>`, `◁think▷`. GLM's `/nothink`
/// has no brackets.
fn is_mark(content: &str) -> bool {
    // As sentencepiece writes a token after a space.
    let content = content.trim_start_matches(['▁', '_']);
    let framed = |(open, close)| content.strip_prefix(open).and_then(|rest: &str| rest.strip_suffix(close));
    let inner = [('<', '>'), ('[', ']'), ('◁', '▷'), ('＜', '＞')].into_iter().find_map(framed);
    let names = |inner: &str| inner.contains(char::is_alphabetic) && !inner.contains(char::is_whitespace);
    inner.is_some_and(names) || matches!(content, "/think" | "/nothink" | "/no_think")
}

/// Whether a token is an HTML tag.
fn is_html(content: &str) -> bool {
    let name = content.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    name.is_some_and(|name| HTML.contains(&name.strip_prefix('/').unwrap_or(name)))
}

/// The tokens that end an answer: those of the file, and those of [`TURN_ENDS`] among its added tokens. Sorted and
/// unique. In the harmony format, which has [`RETURN`], `<|end|>` only ends a message of a turn, such as a thought.
pub(super) fn end_tokens(given: impl IntoIterator<Item = u32>, added: &[AddedToken]) -> Vec<u32> {
    let is_harmony = added.iter().any(|token| token.content == RETURN);
    let ends = |token: &&AddedToken| match token.content.as_str() {
        "<|end|>" if is_harmony => false,
        RETURN => true,
        name => TURN_ENDS.contains(&name),
    };
    let named = added.iter().filter(ends).map(|token| token.id);
    let mut ends: Vec<u32> = given.into_iter().chain(named).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steering(contents: &[&str]) -> Vec<bool> {
        let mut added: Vec<AddedToken> = contents.iter().map(|content| AddedToken::plain(0, content, false)).collect();
        find_steering(&mut added);
        added.iter().map(|token| token.steers).collect()
    }

    #[test]
    fn marks_of_turns_thoughts_and_tools_steer_and_text_does_not() {
        let marks = [
            "<think>", "</think>", "</s>", "<s>", "<tool_call>", "[THINK]", "[/INST]", "<|im_start|>", "<turn|>",
            "<seed:think>", "◁think▷", "▁<EOT>", "/nothink", "<unused7>",
        ];
        assert_eq!(steering(&marks), [true; 14]);
        let text = ["  ", "\n\n", "včela", "õ", "÷", "<", "<->", "[]", "[ a ]", "a>", "<b", "|||IP_ADDRESS|||"];
        assert_eq!(steering(&text), [false; 12]);
    }

    #[test]
    fn a_message_of_harmony_does_not_end_the_turn() {
        let tokens = |names: &[&str]| -> Vec<AddedToken> {
            names.iter().zip(0..).map(|(name, id)| AddedToken::plain(id, name, true)).collect()
        };
        assert_eq!(end_tokens([7], &tokens(&["<|end|>", "<|user|>"])), [0, 7]);
        assert_eq!(end_tokens([7], &tokens(&["<|end|>", "<|return|>"])), [1, 7]);
    }

    #[test]
    fn tags_are_text_where_the_vocabulary_has_tokens_for_html() {
        assert_eq!(steering(&["<table>", "</s>", "<h1>", "<think>"]), [false, false, false, true]);
        assert_eq!(steering(&["</s>", "<h1>"]), [true, true]);
    }
}
