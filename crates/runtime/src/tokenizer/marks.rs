//! Which added tokens steer a model, whatever their file says of them.

use super::added::AddedToken;

/// Names of end-of-turn tokens that checkpoints leave out of their lists.
const TURN_ENDS: [&str; 7] =
    ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>", "<|endoftext|>"];

/// Elements of HTML that vocabularies have tokens for, as Gemma's does: ordinary text.
const HTML: [&str; 43] = [
    "a", "b", "bbox", "blockquote", "body", "br", "caption", "code", "div", "em", "footer", "h1", "h2", "h3", "h4",
    "h5", "h6", "head", "hr", "html", "i", "iframe", "img", "li", "ol", "p", "pre", "s", "span", "strong", "sub",
    "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "tt", "u", "ul", "video",
];

/// Sets what steers: special tokens, those written as such, and marks of turns, thoughts and tools, which files may call
/// user-defined (`</think>`, `<tool_call>`, Phi-3's `</s>`).
pub(super) fn find_steering(added: &mut [AddedToken]) {
    // `<s>` strikes text out where there are tokens for HTML, and begins a sequence elsewhere.
    let has_html = added.iter().any(|token| token.content == "<table>");
    for token in added {
        // Converters and fine-tunes leave the flag out, and then any text could end a turn.
        token.special |= looks_special(&token.content);
        token.steers = token.special || (is_mark(&token.content) && !(has_html && is_html(&token.content)));
    }
}

/// Tokens of other names are special only where their file says so.
pub(super) fn looks_special(content: &str) -> bool {
    let inner = content.strip_prefix("<|").and_then(|rest| rest.strip_suffix("|>"));
    // DeepSeek's models write the bars of their special tokens wide.
    let wide = content.strip_prefix("<｜").and_then(|rest| rest.strip_suffix("｜>"));
    let framed = inner.or(wide).is_some_and(|inner| !inner.is_empty() && !inner.contains(char::is_whitespace));
    framed || content.starts_with("<extra_id_") || TURN_ENDS.contains(&content)
}

/// Whether a token is one word in a frame: `<think>`, `</think>`, `[THINK]`, `<channel|>`, `◁think▷`. GLM's `/nothink`
/// has no frame.
fn is_mark(content: &str) -> bool {
    // As sentencepiece writes a token behind a space.
    let content = content.trim_start_matches(['▁', '_']);
    let framed = |(open, close)| content.strip_prefix(open).and_then(|rest: &str| rest.strip_suffix(close));
    let inner = [('<', '>'), ('[', ']'), ('◁', '▷'), ('＜', '＞')].into_iter().find_map(framed);
    let names = |inner: &str| inner.contains(char::is_alphabetic) && !inner.contains(char::is_whitespace);
    inner.is_some_and(names) || matches!(content, "/think" | "/nothink" | "/no_think")
}

/// Whether a token is a tag of HTML.
fn is_html(content: &str) -> bool {
    let name = content.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    name.is_some_and(|name| HTML.contains(&name.strip_prefix('/').unwrap_or(name)))
}

/// The tokens that end an answer: those of the file, and those of [`TURN_ENDS`] among its added tokens. Sorted, each once.
pub(super) fn end_tokens(given: impl IntoIterator<Item = u32>, added: &[AddedToken]) -> Vec<u32> {
    let named = added.iter().filter(|t| TURN_ENDS.contains(&t.content.as_str())).map(|t| t.id);
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
    fn tags_are_text_where_the_vocabulary_has_tokens_for_html() {
        assert_eq!(steering(&["<table>", "</s>", "<h1>", "<think>"]), [false, false, false, true]);
        assert_eq!(steering(&["</s>", "<h1>"]), [true, true]);
    }
}
