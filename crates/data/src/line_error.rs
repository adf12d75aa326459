//! What can be wrong with a line, in words for the person who has to mend it.

use std::fmt::Display;
use std::io;

use miette::Diagnostic;

/// What is wrong with one line of a JSON-lines file.
///
/// Text that comes from the file is shown escaped and cut short: it cannot write to the terminal in our name.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is not JSON.
    #[error("{why} at column {column}")]
    Syntax {
        /// Counted in characters, from 1.
        column: usize,
        /// What was expected.
        why: String,
    },
    /// The line is JSON of another shape: a field is missing, unknown or of the wrong type.
    #[error("{}{why} at column {column}", at(field))]
    Shape {
        /// The path of the field (`candidates[1].scores`); empty for the whole line.
        field: String,
        /// Counted in characters, from 1.
        column: usize,
        /// What was expected and found.
        why: String,
        /// The nearest known name, where a name is unknown.
        nearest: Option<String>,
    },
    /// The line has the right shape, but its content cannot be used.
    #[error("{}{why}", at(field))]
    Content {
        /// The path of the field.
        field: String,
        /// What is wrong.
        why: String,
        /// What to do about it, where there is something to say.
        hint: Option<String>,
    },
    /// A value in a column of a table cannot be used.
    #[error("column `{}`{}: {why}", shown(column), if field.is_empty() { String::new() } else { format!(" ({})", shown(field)) })]
    Cell {
        /// The column, or the path into it.
        column: String,
        /// The field that it is mapped to; empty where none has a part in it.
        field: String,
        /// What is wrong.
        why: String,
        /// What to do about it, where there is something to say.
        hint: Option<String>,
    },
    /// The line is not UTF-8.
    #[error("byte {byte} of the line is not valid UTF-8")]
    Utf8 {
        /// Counted from 1.
        byte: usize,
    },
    /// The line is longer than the reader accepts.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The file could not be read any further.
    #[error("reading failed: {0}")]
    Read(#[source] io::Error),
}

impl LineError {
    /// Wrong content in `field`.
    pub fn content(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Content { field: field.into(), why: why.into(), hint: None }
    }

    /// A wrong value in a column that is mapped to `field`.
    pub(crate) fn cell(column: &str, field: &str, why: impl Into<String>) -> Self {
        Self::Cell { column: column.to_owned(), field: field.to_owned(), why: why.into(), hint: None }
    }

    /// Content in `field` that is wrong by what another error says, with its hint.
    pub fn caused(field: impl Into<String>, cause: &dyn Diagnostic) -> Self {
        Self::content(field, cause.to_string()).with_hint_of(cause)
    }

    /// The same with something to do about it, where the content is wrong.
    #[must_use]
    pub fn with_hint(self, told: impl Into<String>) -> Self {
        let hint = Some(told.into());
        match self {
            Self::Content { field, why, .. } => Self::Content { field, why, hint },
            Self::Cell { column, field, why, .. } => Self::Cell { column, field, why, hint },
            other => other,
        }
    }

    /// The same with the hint of its cause, where that has one.
    pub(crate) fn with_hint_of(self, cause: &dyn Diagnostic) -> Self {
        match cause.help() {
            Some(hint) => self.with_hint(hint.to_string()),
            None => self,
        }
    }

    /// The field, or the column of a table; none where the whole line is meant.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Shape { field, .. } | Self::Content { field, .. } => {
                Some(field.as_str()).filter(|field| !matches!(*field, "" | "."))
            }
            Self::Cell { column, .. } => Some(column),
            Self::Syntax { .. } | Self::Utf8 { .. } | Self::TooLong { .. } | Self::Read(_) => None,
        }
    }

    /// Whether nothing can be read after it.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Read(_))
    }
}

impl Diagnostic for LineError {
    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        Some(match self {
            Self::Syntax { .. } => {
                Box::new("each line must be one complete JSON object; line breaks inside a text are written \\n")
            }
            Self::Shape { nearest, .. } => Box::new(format!("the nearest known name is `{}`", nearest.as_ref()?)),
            Self::Content { hint, .. } | Self::Cell { hint, .. } => Box::new(hint.as_ref()?),
            Self::Read(_) => return None,
            Self::Utf8 { .. } => Box::new(TO_UTF8),
            Self::TooLong { .. } => Box::new("write one object a line"),
        })
    }
}

/// What to do about a file in another encoding.
pub(crate) const TO_UTF8: &str = "convert the file first: iconv -f LATIN1 -t UTF-8 FILE > FILE.utf8";

fn at(field: &str) -> String {
    if field.is_empty() || field == "." { String::new() } else { format!("field `{}`: ", shown(field)) }
}

/// Text from a file, fit for a message: control characters are escaped and what is long is cut.
pub(crate) fn shown(text: &str) -> String {
    // A name or value of a broken file may be a whole article; a message should stay a line.
    const LONGEST: usize = 80;
    let mut shown: String = text.chars().take(LONGEST).flat_map(|c| escape(c).collect::<Vec<_>>()).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

/// What the reader of JSON says, without the names of our types. It quotes the file's text, which may be long, and ends in
/// what was expected: the middle is cut.
pub(crate) fn in_words(why: &str) -> String {
    const START: usize = 100;
    const END: usize = 200;
    let whole = ["u8", "u16", "u32", "u64", "usize", "i32", "i64"];
    let middle = why.char_indices().nth(START).map(|(at, _)| at).zip(why.char_indices().rev().nth(END - 1));
    let cut = middle.filter(|(start, (end, _))| start < end);
    let short = cut.map(|(start, (end, _))| format!("{} … {}", &why[..start], &why[end..]));
    let mut text = short
        .as_deref()
        .unwrap_or(why)
        .replace("expected f64", "expected a number")
        .replace("expected f32", "expected a number");
    for name in whole {
        text = text.replace(&format!("expected {name}"), "expected a whole number");
    }
    for kind in ["expected struct ", "expected internally tagged enum "] {
        if let Some((before, after)) = text.split_once(kind) {
            text = format!("{before}expected an object{}", after.trim_start_matches(|c: char| c.is_alphanumeric()));
        }
    }
    text.replace("floating point ", "number ")
}

/// Quotes stay as they are; everything that `escape_debug` would not print is escaped.
pub(crate) fn escape(c: char) -> impl Iterator<Item = char> {
    let plain = matches!(c, '"' | '\'' | '\\');
    let escaped = (!plain).then(|| c.escape_debug());
    escaped.into_iter().flatten().chain(plain.then_some(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped_and_cut() {
        assert_eq!(shown("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(shown("it's \"fine\""), "it's \"fine\"");
        assert_eq!(shown(&"x".repeat(500)).chars().count(), 81);
        assert_eq!(shown("\u{202e}evil"), "\\u{202e}evil");
    }
}
