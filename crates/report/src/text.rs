//! Formatting of text for people.

use probity_analysis::Cell;
pub use probity_lm::text::{counted, is_hostile, thousands, visible, visible_line};

/// Limits a text to `most` characters, with an ellipsis if it is cut.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A cell as text, with a true minus sign.
pub(crate) fn cell_text(cell: &Cell) -> String {
    if cell.is_numeric() { cell.to_text().replace('-', "−") } else { cell.to_text() }
}

/// A number with fixed decimals and a true minus sign.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    probity_lm::text::fixed(value, decimals).replace('-', "−")
}

/// Text on how many tokens were computed. With speculative decoding it may be more than the total.
pub fn tokens_text(computed: u64, unshared: u64) -> String {
    match computed.checked_sub(unshared) {
        Some(in_vain) if in_vain > 0 => {
            format!("{} tokens computed, {} of them rejected drafts", thousands(computed), thousands(in_vain))
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
        assert_eq!(tokens_text(647, 608), "647 tokens computed, 39 of them rejected drafts");
    }
}
