//! Errors in a line, as messages for users.

use std::fmt::Display;
use std::io;

use miette::Diagnostic;

/// An error in one line of a JSON lines file.
///
/// Text from the file is escaped and shortened, so that it cannot send control sequences to the terminal.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is not JSON.
    #[error("{why} at column {column}")]
    Syntax {
        /// In characters, from 1.
        column: usize,
        /// What was expected.
        why: String,
    },
    /// The line is JSON of another shape: a field is missing, unknown or has the wrong type.
    #[error("{}{why} at column {column}", at(field))]
    Shape {
        /// Path of the field (`candidates[1].scores`); empty for the whole line.
        field: String,
        /// In characters, from 1.
        column: usize,
        /// What was expected and found.
        why: String,
        /// The nearest known name, for an unknown name.
        nearest: Option<String>,
    },
    /// The line has the right shape, but its content is invalid.
    #[error("{}{why}", at(field))]
    Content {
        /// Path of the field.
        field: String,
        /// Description of the error.
        why: String,
        /// Suggested fix, if any.
        hint: Option<String>,
    },
    /// Invalid value in a table column.
    #[error("column `{}`{}: \
             {why}", excerpt(column), if field.is_empty() { String::new() } else { format!(" ({})", excerpt(field)) })]
    Cell {
        /// The column, or the path into it.
        column: String,
        /// The field that the column is mapped to; may be empty.
        field: String,
        /// Description of the error.
        why: String,
        /// Suggested fix, if any.
        hint: Option<String>,
    },
    /// The line is not UTF-8.
    #[error("byte {byte} of the line is not valid UTF-8")]
    Utf8 {
        /// From 1.
        byte: usize,
    },
    /// The line exceeds the maximum length.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// Reading failed; the rest of the file is unknown.
    #[error("reading failed: {0}")]
    Read(#[source] io::Error),
}

impl LineError {
    /// Invalid content in `field`.
    pub fn content(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Content { field: field.into(), why: why.into(), hint: None }
    }

    /// Invalid value in a column that is mapped to `field`.
    pub(crate) fn cell(column: &str, field: &str, why: impl Into<String>) -> Self {
        Self::Cell { column: column.to_owned(), field: field.to_owned(), why: why.into(), hint: None }
    }

    /// Invalid content in `field`, with the message and hint of another error.
    pub fn caused(field: impl Into<String>, cause: &dyn Diagnostic) -> Self {
        Self::content(field, cause.to_string()).with_hint_of(cause)
    }

    /// Adds a hint, if this is a content error.
    #[must_use]
    pub fn with_hint(self, told: impl Into<String>) -> Self {
        let hint = Some(told.into());
        match self {
            Self::Content { field, why, .. } => Self::Content { field, why, hint },
            Self::Cell { column, field, why, .. } => Self::Cell { column, field, why, hint },
            other => other,
        }
    }

    /// Adds the hint of the cause, if it has one.
    pub(crate) fn with_hint_of(self, cause: &dyn Diagnostic) -> Self {
        match cause.help() {
            Some(hint) => self.with_hint(hint.to_string()),
            None => self,
        }
    }

    /// The field or table column; `None` for the whole line.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Shape { field, .. } | Self::Content { field, .. } => {
                Some(field.as_str()).filter(|field| !matches!(*field, "" | "."))
            }
            Self::Cell { column, .. } => Some(column),
            Self::Syntax { .. } | Self::Utf8 { .. } | Self::TooLong { .. } | Self::Read(_) => None,
        }
    }

    /// Whether no further line can be read.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Read(_))
    }
}

impl Diagnostic for LineError {
    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        Some(match self {
            Self::Syntax { .. } => {
                Box::new("write one complete JSON object per line, with \\n for line breaks inside strings")
            }
            Self::Shape { nearest, .. } => Box::new(format!("did you mean `{}`?", nearest.as_ref()?)),
            Self::Content { hint, .. } | Self::Cell { hint, .. } => Box::new(hint.as_ref()?),
            Self::Read(_) => return None,
            Self::Utf8 { .. } => Box::new(TO_UTF8),
            Self::TooLong { .. } => Box::new("write one object per line"),
        })
    }
}

/// Suggested fix for a file in another encoding.
pub(crate) const TO_UTF8: &str = "convert the file first: iconv -f LATIN1 -t UTF-8 FILE > FILE.utf8";

fn at(field: &str) -> String {
    if field.is_empty() || field == "." { String::new() } else { format!("field `{}`: ", excerpt(field)) }
}

/// Prepares text from a file for a message: escapes control characters and shortens long text.
pub(crate) fn excerpt(text: &str) -> String {
    // A name or value in a malformed file may be a whole article; a message should fit on one line.
    const LONGEST: usize = 80;
    let mut shown: String = text.chars().take(LONGEST).flat_map(|c| escape(c).collect::<Vec<_>>()).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

/// The message of the JSON parser, without the names of our types. It quotes text of the file, which may be long, and
/// ends with what was expected, so the middle is cut.
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

/// Escapes everything that `escape_debug` escapes, except quotes.
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
        assert_eq!(excerpt("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(excerpt("it's \"fine\""), "it's \"fine\"");
        assert_eq!(excerpt(&"x".repeat(500)).chars().count(), 81);
        assert_eq!(excerpt("\u{202e}evil"), "\\u{202e}evil");
    }
}
