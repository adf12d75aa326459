//! Text for people.

pub use probity_lm::text::{counted, is_hostile, thousands, visible, visible_line};

/// At most so many characters, the last an ellipsis where something was left out.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
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
