//! Text formatting: consistent numbers, and visible forms of hostile characters.

use std::fmt::{Display, Write as _};

/// Formats an integer with thousands separators: `12,345`.
pub fn thousands(number: impl Display) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a count with its noun in singular or plural: `1 sample`, `1,200 samples`, `2 losses`.
pub fn counted(number: impl Display, noun: &str) -> String {
    let number = thousands(number);
    let ending = match number.as_str() {
        "1" => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

/// Formats a number with fixed decimals, without a minus sign on zero.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    // A negative number that rounds to zero would keep its sign.
    let zero = text.chars().all(|c| matches!(c, '-' | '0' | '.'));
    if zero { text.trim_start_matches('-').to_owned() } else { text }
}

/// Escapes control characters and characters that reorder or hide text, as `\u{1b}`. Line breaks and tabs are kept.
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

/// Like [`visible`], on a single line.
pub fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// Whether a terminal or web page would interpret or hide the character.
pub fn is_hostile(c: char) -> bool {
    let bidirectional =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let hidden =
        matches!(c, '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    // U+FFFE and U+FFFF are not allowed in XML.
    c.is_control() || bidirectional || hidden || matches!(c, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_one_is_singular() {
        assert_eq!([0, 999, 1_234_567].map(thousands), ["0", "999", "1,234,567"]);
        let told = [counted(1, "sample"), counted(0, "sample"), counted(1_200_u64, "pair"), counted(2, "loss")];
        assert_eq!(told, ["1 sample", "0 samples", "1,200 pairs", "2 losses"]);
    }

    #[test]
    fn what_rounds_to_zero_has_no_sign() {
        assert_eq!([-0.0004, -0.0006, 0.0, -1.5].map(|value| fixed(value, 3)), ["0.000", "-0.001", "0.000", "-1.500"]);
    }
}
