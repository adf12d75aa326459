//! Generated lists with one entry per line.

use std::borrow::Cow;
use std::collections::BTreeSet;

use probity_data::from_value;
use probity_lm::{GenerateResult, without_thoughts};
use serde_json::{Value, json};

use crate::stage::RowError;
use crate::written::WrittenOutcome;

/// The outcome of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListedOutcome {
    /// The outcome of its text.
    Text(WrittenOutcome),
    /// A text without entries; each method has its own name for this.
    Nothing(&'static str),
}

impl ListedOutcome {
    /// The outcome of a text with this many entries.
    pub(crate) fn new(written: WrittenOutcome, entries: usize, nothing: &'static str) -> Self {
        match written {
            WrittenOutcome::Written | WrittenOutcome::Truncated if entries == 0 => Self::Nothing(nothing),
            ended => Self::Text(ended),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Text(ended) => ended.name(),
            Self::Nothing(name) => name,
        }
    }

    /// The outcome for counting: the entries of a truncated list count.
    pub(crate) fn counted(&self) -> &'static str {
        if *self == Self::Text(WrittenOutcome::Truncated) { "truncated_used" } else { self.name() }
    }

    /// The outcome's fields in a row.
    pub(crate) fn fields(&self) -> Value {
        match self {
            Self::Text(ended) => json!(ended),
            Self::Nothing(name) => json!({ "outcome": name }),
        }
    }

    /// Reads the outcome from the first row of a list, written before or provided by the user; `field` holds the
    /// entries.
    pub(crate) fn read(row: &Value, field: &str, entries: usize, nothing: &'static str) -> Result<Self, RowError> {
        let ended = match row.get("outcome").filter(|outcome| !outcome.is_null()) {
            Some(name) if name == nothing => Self::Nothing(nothing),
            Some(_) => Self::Text(from_value(row)?),
            None => Self::new(WrittenOutcome::Written, entries, nothing),
        };
        let may_have = matches!(ended, Self::Text(WrittenOutcome::Written | WrittenOutcome::Truncated));
        if may_have != (entries > 0) {
            let there = if entries > 0 { format!("`{field}` exists") } else { format!("`{field}` is missing") };
            return Err(format!("{there}, but `outcome` is `{}`", ended.name()).into());
        }
        Ok(ended)
    }
}

/// The text to parse: without thoughts, and empty if a thought is unfinished.
pub(crate) fn list_text(result: &GenerateResult) -> Cow<'_, str> {
    without_thoughts(&result.text).unwrap_or_default()
}

/// The distinct entries of a list without bullets, numbers and empty lines, and the number of duplicate lines. A first
/// line that announces the list is skipped.
pub(crate) fn listed(text: &str) -> (Vec<String>, usize) {
    let (mut known, mut entries, mut repeated) = (BTreeSet::new(), Vec::new(), 0);
    let lines: Vec<&str> = text.lines().map(bare).filter(|line| line.chars().any(char::is_alphanumeric)).collect();
    for (place, line) in lines.iter().enumerate() {
        if place == 0 && line.ends_with(':') && lines.len() > 1 {
            continue;
        }
        let reading = line.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
        if known.insert(reading.trim_end_matches('.').to_owned()) {
            entries.push((*line).to_owned());
        } else {
            repeated += 1;
        }
    }
    (entries, repeated)
}

/// The text without a truncated last line.
pub(crate) fn whole_lines(text: &str, is_cut: bool) -> &str {
    match text.rsplit_once('\n') {
        Some((whole, _)) if is_cut => whole,
        _ => text,
    }
}

/// A list line without its bullet or number: `- `, `* `, `• `, `3. `, `3) `, `(3) `.
fn bare(line: &str) -> &str {
    let line = line.trim().trim_start_matches(['-', '*', '•', '–', '·']).trim_start();
    let inner = line.strip_prefix('(').unwrap_or(line);
    let after = inner.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = after.len() < inner.len() && inner.len() - after.len() <= 3;
    match after.strip_prefix(['.', ')', ':']) {
        // 3.5 is a number, not a list marker.
        Some(rest) if is_number && rest.starts_with(char::is_whitespace) => rest.trim_start(),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lines_without_what_makes_them_a_list() {
        let text = "Here are the claims:\n\n- The answer is wrong.\n* It is 3.5 metres.\n3. Third\n(4) Fourth\n3.5 is \
                    too much\n  •  the answer  is wrong\n---\n";
        let (entries, repeated) = listed(text);
        assert_eq!(entries, ["The answer is wrong.", "It is 3.5 metres.", "Third", "Fourth", "3.5 is too much"]);
        assert_eq!(repeated, 1);
        assert_eq!((whole_lines("a\nb", true), whole_lines("a\nb", false), whole_lines("a", true)), ("a", "a\nb", "a"));
    }
}
