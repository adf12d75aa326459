//! Text for people: numbers grouped, hostile characters made visible.

use std::fmt::Write as _;

pub use probity_lm::text::{counted, thousands};

/// Control characters and marks that reorder or hide text, as `\u{1b}`. Line breaks and tabs stay.
pub fn visible(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if !matches!(c, '\n' | '\t') && is_hostile(c) {
            let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// As [`visible`], on one line.
pub fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// At most so many characters, the last an ellipsis where something was left out.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Whether a terminal or a page would obey it, or not show it.
pub fn is_hostile(c: char) -> bool {
    let bidirectional =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let hidden =
        matches!(c, '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    // U+FFFE and U+FFFF cannot stand in XML.
    c.is_control() || bidirectional || hidden || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// What was computed of what was asked; where guesses came to nothing it is more.
pub fn tokens_text(computed: u64, unshared: u64) -> String {
    match computed.checked_sub(unshared) {
        Some(in_vain) if in_vain > 0 => {
            format!("{} tokens computed, {} of them guessed in vain", thousands(computed), thousands(in_vain))
        }
        _ => format!("{} tokens computed of {}", thousands(computed), thousands(unshared)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_tokens_than_were_asked_for_are_told_as_guesses() {
        assert_eq!(tokens_text(608, 1_647), "608 tokens computed of 1,647");
        assert_eq!(tokens_text(647, 608), "647 tokens computed, 39 of them guessed in vain");
    }
}
