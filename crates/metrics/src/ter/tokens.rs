//! TER's tokenization: tercom's normalisation, as in sacrebleu.

use super::TerOptions;
use crate::bleu::{points, set_apart};
use crate::text::is_space;

impl TerOptions {
    /// The text with white space between its words.
    pub(super) fn tokenized(&self, text: &str) -> String {
        let mut text = text.trim_end_matches(is_space).to_owned();
        if !self.case_sensitive {
            text = text.to_lowercase();
        }
        if self.normalized {
            text = normalized(&text);
            if self.asian {
                text = apart(&text, |c| is_asian(c) || is_asian_mark(c));
            }
        }
        if self.no_punct {
            let is_mark = |c| {
                matches!(c, '.' | ',' | '?' | ':' | ';' | '!' | '"' | '(' | ')') || (self.asian && is_asian_mark(c))
            };
            // Removed without a space in its place, as in sacrebleu: `a,b` becomes one word unless normalised before.
            text.retain(|c| !is_mark(c));
        }
        text
    }
}

/// Replaces entities, and separates punctuation and the possessive `'s`.
fn normalized(text: &str) -> String {
    // A hyphen at the beginning of a line, as in sacrebleu's tercom; its mteval removes one at the end.
    let mut text = text.replace("\n-", "").replace('\n', " ");
    for (entity, mark) in [("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")] {
        text = text.replace(entity, mark);
    }
    points(&set_apart(&format!(" {text} ")).replace("'s ", " 's "))
}

fn apart(text: &str, is: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        if is(c) { out.extend([' ', c, ' ']) } else { out.push(c) }
    }
    out
}

/// Characters that represent words. (tercom also separates Hiragana and Katakana from other scripts. sacrebleu's rules
/// for that never apply, since they match the beginning of a text that by then begins with a space.)
fn is_asian(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{2eff}' | '\u{31c0}'..='\u{31ef}' | '\u{3200}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe4f}')
}

fn is_asian_mark(c: char) -> bool {
    matches!(c, '\u{3001}' | '\u{3002}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}' | '\u{ff61}'..='\u{ff65}' | '\u{30fb}')
        || matches!(
            c,
            '\u{ff0e}'
                | '\u{ff0c}'
                | '\u{ff1f}'
                | '\u{ff1a}'
                | '\u{ff1b}'
                | '\u{ff01}'
                | '\u{ff02}'
                | '\u{ff08}'
                | '\u{ff09}'
        )
}
