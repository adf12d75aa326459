//! Streams JSON lines from any reader, with the positions of errors.

use std::io::BufRead;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde_json::Value;

use probity_lm::{nearest, refuse_repeated_keys};

use crate::line_error::{LineError, escape, in_words};

/// Maximum length of a line, in bytes.
pub const MAX_LINE: usize = 64 << 20;

/// Parses a `T` from each line: yields the line number (from 1) and the value or the error.
///
/// Skips blank lines and accepts CRLF line ends; [`crate::open()`] skips a byte order mark. An invalid line does not
/// end the iteration, a failing reader does. Holds at most one line in memory, up to the line limit.
pub struct JsonLines<T, R> {
    reader: R,
    max_line: usize,
    number: usize,
    buffer: Vec<u8>,
    finished: bool,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned, R: BufRead> JsonLines<T, R> {
    /// Creates a reader of lines.
    pub fn new(reader: R) -> Self {
        Self { reader, max_line: MAX_LINE, number: 0, buffer: Vec::new(), finished: false, value: PhantomData }
    }

    /// The last line read, without its line end.
    pub(crate) fn line(&self) -> &[u8] {
        &self.buffer
    }

    /// Sets the maximum line length in bytes, without line ends. For tests.
    #[cfg(test)]
    fn with_max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }

    /// Reads one line into the buffer without its line end: `None` at the end of the input.
    fn read_line(&mut self) -> Option<Result<(), LineError>> {
        self.buffer.clear();
        let mut too_long = false;
        let mut any = false;
        loop {
            let available = match self.reader.fill_buf() {
                Ok(available) => available,
                // `fill_buf` returns interruptions by signals; they are not failures of the file.
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Some(Err(LineError::Read(e))),
            };
            if available.is_empty() {
                break;
            }
            any = true;
            let end = available.iter().position(|&b| b == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            // One extra byte for the carriage return, which is removed below.
            too_long |= self.buffer.len() + part.len() > self.max_line.saturating_add(1);
            // The rest of an overlong line is read and discarded: the next line may be valid.
            if !too_long {
                self.buffer.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                break;
            }
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        match any {
            false => None,
            true if too_long || self.buffer.len() > self.max_line => {
                Some(Err(LineError::TooLong { limit: self.max_line }))
            }
            true => Some(Ok(())),
        }
    }
}

impl<T: DeserializeOwned, R: BufRead> Iterator for JsonLines<T, R> {
    type Item = (usize, Result<T, LineError>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.finished {
            let Some(read) = self.read_line() else { break };
            self.number += 1;
            if let Err(e) = read {
                self.finished = e.is_fatal();
                return Some((self.number, Err(e)));
            }
            let line = self.line();
            if !line.trim_ascii().is_empty() {
                return Some((self.number, parse_line(line)));
            }
        }
        self.finished = true;
        None
    }
}

/// Parses a value from the bytes of one line.
pub(crate) fn parse_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, LineError> {
    let text = std::str::from_utf8(line).map_err(|e| LineError::Utf8 { byte: e.valid_up_to() + 1 })?;
    // serde would also accept a record as a list of its field values.
    if text.trim_start().starts_with('[') {
        return Err(LineError::content("", "expected a JSON object, found a list"));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|e| {
        let field = e.path().to_string();
        explain(text, field, &e.into_inner())
    })?;
    // Otherwise two objects on one line would become one record, and the second would be lost.
    deserializer.end().map_err(|e| explain(text, String::new(), &e))?;
    // A map would silently keep the last of two equal keys.
    refuse_repeated_keys(line).map_err(|e| LineError::content("", without_place(&e.to_string())))?;
    Ok(value)
}

/// Deserialises a JSON value; errors name the field and what was expected.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, LineError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let field = error.path().to_string();
        LineError::content(field, escaped(&in_words(&error.into_inner().to_string())))
    })
}

fn explain(text: &str, field: String, error: &serde_json::Error) -> LineError {
    let message = error.to_string();
    let why = without_place(&message);
    // serde_json counts bytes, editors count characters.
    let before = text.bytes().take(error.column()).filter(|b| b & 0xc0 != 0x80).count();
    let column = before.max(1);
    let nearest = unknown_name(why);
    let why = escaped(&in_words(why));
    if error.is_data() { LineError::Shape { field, column, why, nearest } } else { LineError::Syntax { column, why } }
}

/// The message of the JSON parser, without the position.
fn without_place(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(why, _)| why)
}

fn escaped(why: &str) -> String {
    why.chars().flat_map(escape).collect()
}

/// The nearest known name in serde's message: ``unknown field `x`, expected one of `a`, `b` ``.
fn unknown_name(why: &str) -> Option<String> {
    let (unknown, known) = why
        .strip_prefix("unknown field `")
        .or_else(|| why.strip_prefix("unknown variant `"))?
        // Search from the right: the unknown name comes from the file and may contain the same words.
        .rsplit_once("`, expected ")?;
    nearest(unknown, known.split('`').skip(1).step_by(2)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufReader, Read};

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Row {
        id: String,
        #[serde(default)]
        numbers: Vec<f64>,
    }

    fn read(text: &[u8]) -> Vec<(usize, Result<Row, LineError>)> {
        JsonLines::new(text).collect()
    }

    fn only_error(text: &[u8]) -> LineError {
        let mut rows = read(text);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0).1.expect_err("wrong line")
    }

    #[test]
    fn blank_lines_and_crlf_are_passed_over_and_still_counted() {
        let rows = read(b"{\"id\":\"a\"}\r\n\r\n  \n{\"id\":\"b\"}");
        let ids: Vec<_> = rows.into_iter().map(|(n, r)| (n, r.expect("good").id)).collect();
        assert_eq!(ids, [(1, "a".to_owned()), (4, "b".to_owned())]);
    }

    #[test]
    fn a_wrong_line_does_not_end_the_reading() {
        let rows = read(b"{\"id\":\"a\"}\n{\"id\" 3}\n{\"id\":\"b\"}\n");
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[1].0, 2);
        assert_eq!(rows[1].1.as_ref().expect_err("wrong").to_string(), "expected `:` at column 7");
        assert!(rows[2].1.is_ok());
    }

    #[test]
    fn column_counts_characters() {
        assert_eq!(only_error("{\"id\":\"äöü😀\" 3}".as_bytes()).to_string(), "expected `,` or `}` at column 14");
    }

    #[test]
    fn an_unknown_field_is_named_with_the_nearest_known_one() {
        let error = only_error(b"{\"id\":\"a\",\"nubmers\":[]}");
        assert!(error.to_string().starts_with("field `nubmers`: unknown field `nubmers`"), "{error}");
        assert_eq!(crate::error::hint_of(&error), "did you mean `numbers`?");
    }

    #[test]
    fn a_wrong_type_names_the_path() {
        let error = only_error(b"{\"id\":\"a\",\"numbers\":[1,\"x\"]}");
        assert!(
            error.to_string().starts_with("field `numbers[1]`: invalid type: string \"x\", expected a number"),
            "{error}"
        );
    }

    #[test]
    fn a_long_text_in_a_message_is_cut_but_what_was_expected_is_not() {
        let error = only_error(format!("{{\"id\":\"a\",\"numbers\":\"{}\"}}", "so long ".repeat(10_000)).as_bytes())
            .to_string();
        assert!(error.len() < 400 && error.contains("expected a sequence"), "{error}");
    }

    #[test]
    fn text_after_the_object_is_refused() {
        assert!(only_error(b"{\"id\":\"a\"} {\"id\":\"b\"}").to_string().starts_with("trailing characters"));
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_at_any_depth_whatever_is_read() {
        let rows: Vec<(usize, Result<Value, _>)> =
            JsonLines::new(&b"{\"a\": 1}\n{\"a\": [{\"b\": 1, \"b\": 2}]}\n"[..]).collect();
        assert!(rows[0].1.is_ok());
        assert_eq!(rows[1].1.as_ref().expect_err("twice").to_string(), "duplicate key `b`");
    }

    #[test]
    fn a_number_out_of_range_is_refused() {
        assert!(matches!(only_error(b"{\"id\":\"a\",\"numbers\":[1e999]}"), LineError::Syntax { .. }));
    }

    #[test]
    fn a_line_that_is_not_utf8_says_which_byte() {
        assert_eq!(only_error(b"{\"id\":\"\xff\"}").to_string(), "byte 8 of the line is not valid UTF-8");
    }

    #[test]
    fn a_line_at_the_limit_is_read_and_one_byte_more_is_not() {
        let text = b"{\"id\":\"a\"}\r\n{\"id\":\"ab\"}\n{\"id\":\"c\"}\n";
        let reader = BufReader::with_capacity(3, &text[..]);
        let rows: Vec<(usize, Result<Row, _>)> = JsonLines::new(reader).with_max_line(10).collect();
        assert!(rows[0].1.is_ok() && rows[2].1.is_ok());
        assert_eq!(rows[1].1.as_ref().expect_err("long").to_string(), "the line is longer than 10 bytes");
    }

    #[test]
    fn no_more_of_a_long_line_is_held_than_the_limit() {
        let mut lines =
            JsonLines::<Row, _>::new(BufReader::with_capacity(16, io::repeat(b'x').take(1 << 20))).with_max_line(1000);
        assert!(matches!(lines.next(), Some((1, Err(LineError::TooLong { limit: 1000 })))));
        assert!(lines.buffer.capacity() < 4096, "{}", lines.buffer.capacity());
        assert!(lines.next().is_none());
    }

    #[test]
    fn a_reader_that_fails_ends_the_reading() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk went away"))
            }
        }
        let reader = BufReader::new(b"{\"id\":\"a\"}\n".chain(Failing));
        let rows: Vec<(usize, Result<Row, _>)> = JsonLines::new(reader).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].1.as_ref().expect_err("failed").to_string(), "reading failed: the disk went away");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_give_rows_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..300), capacity in 1_usize..20) {
            let lines = bytes.split(|&b| b == b'\n').count();
            let rows: Vec<(usize, Result<Row, _>)> = JsonLines::new(BufReader::with_capacity(capacity, &bytes[..])).collect();
            prop_assert!(rows.len() <= lines);
            for (number, row) in rows {
                prop_assert!((1..=lines).contains(&number));
                if let Err(e) = row {
                    prop_assert!(e.to_string().chars().all(|c| !c.is_control()));
                }
            }
        }
    }
}
