//! Converts a JSON array to JSON lines, one item per line, so that both forms share one reader and use bounded memory.

use std::io::{self, BufRead, BufReader, Read};

use crate::error::RecordUnit;

/// Returns the reader and its record unit. If the input is a JSON array, the reader yields one line per item.
pub(crate) fn items_as_lines<'a>(mut reader: impl BufRead + Send + 'a) -> (Box<dyn BufRead + Send + 'a>, RecordUnit) {
    let start = reader.fill_buf().unwrap_or_default();
    if start.trim_ascii_start().starts_with(b"[") {
        (
            Box::new(BufReader::new(ArrayItems { reader, depth: 0, text: ArrayText::None, place: ArrayPlace::Before })),
            RecordUnit::Item,
        )
    } else {
        (Box::new(reader), RecordUnit::Line)
    }
}

/// Whether a byte lies inside a JSON string.
#[derive(Clone, Copy, PartialEq)]
enum ArrayText {
    None,
    Inside,
    /// After a backslash.
    Escaped,
}

/// Position of a byte in the array.
#[derive(Clone, Copy, PartialEq)]
enum ArrayPlace {
    /// Outside the array: before its opening bracket or after its closing one.
    Before,
    /// Inside or after an item.
    Item,
    /// After a comma.
    Comma,
    /// After the array.
    After,
}

struct ArrayItems<R> {
    reader: R,
    /// Number of open brackets, including the array's own.
    depth: usize,
    text: ArrayText,
    place: ArrayPlace,
}

impl<R: BufRead> ArrayItems<R> {
    /// Checks the structure of the array. The items alone would not show that the file ends between two of them.
    fn check(&mut self, byte: u8) -> io::Result<()> {
        // White space does not affect the structure; the JSON parser handles it.
        if byte.is_ascii_whitespace() {
            return Ok(());
        }
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        match (self.place, byte, self.depth) {
            // Appending rows to a JSON array by hand leaves them after the closing bracket.
            (ArrayPlace::After, ..) => return wrong("unexpected content after the JSON array"),
            (ArrayPlace::Comma | ArrayPlace::Before, b',', 1) | (ArrayPlace::Comma, b']', 1) => {
                return wrong("the JSON array has a comma without an item");
            }
            (ArrayPlace::Before, b'[', 0) => {}
            (ArrayPlace::Item, b',', 1) if self.text == ArrayText::None => self.place = ArrayPlace::Comma,
            (_, b']', 1) if self.text == ArrayText::None => self.place = ArrayPlace::After,
            _ => self.place = ArrayPlace::Item,
        }
        Ok(())
    }

    /// Converts one byte: the array's own brackets and commas become line ends, line breaks inside an item become
    /// spaces.
    fn turned(&mut self, byte: u8) -> u8 {
        match (self.text, byte) {
            (ArrayText::Inside, b'\\') => self.text = ArrayText::Escaped,
            (ArrayText::Inside, b'"') => self.text = ArrayText::None,
            (ArrayText::Escaped, _) | (ArrayText::None, b'"') => self.text = ArrayText::Inside,
            (ArrayText::None, b'[' | b'{') => {
                self.depth += 1;
                if self.depth == 1 {
                    return b' ';
                }
            }
            (ArrayText::None, b']' | b'}') => {
                let closes = self.depth == 1;
                self.depth = self.depth.saturating_sub(1);
                if closes {
                    return b'\n';
                }
            }
            (ArrayText::None, b',') if self.depth == 1 => return b'\n',
            // Pretty-printed items contain line breaks. A raw line break in a string stays: the JSON parser rejects it.
            (ArrayText::None, b'\n' | b'\r') => return b' ',
            (ArrayText::Inside | ArrayText::None, _) => {}
        }
        byte
    }
}

impl<R: BufRead> Read for ArrayItems<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.reader.fill_buf()?;
        let count = available.len().min(out.len());
        out[..count].copy_from_slice(&available[..count]);
        self.reader.consume(count);
        // A truncated file may end after a whole item, so only the missing bracket shows it.
        if count == 0 && !out.is_empty() && self.place != ArrayPlace::After {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the JSON array is not closed: the file is \
                                                                     truncated",
            ));
        }
        for byte in &mut out[..count] {
            self.check(*byte)?;
            // After the check, which needs the depth from before this byte.
            *byte = self.turned(*byte);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<String>, RecordUnit) {
        let (reader, unit) = items_as_lines(text.as_bytes());
        let lines =
            reader.lines().map(|line| line.expect("read").trim().to_owned()).filter(|line| !line.is_empty()).collect();
        (lines, unit)
    }

    #[test]
    fn each_item_is_a_line_whatever_stands_in_its_texts() {
        let (lines, unit) = read("[\n {\"a\": [1, 2],\r\n \"b\": \"x, ]} \\\" y\"},\n {\"a\": {\"c\": []}} ]\n");
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(unit, RecordUnit::Item);
        let first: serde_json::Value = serde_json::from_str(lines[0].trim()).expect("JSON");
        assert_eq!(first["b"], "x, ]} \" y");
        assert_eq!(read("{\"a\": 1}\n{\"a\": 2}\n").0.len(), 2);
        assert_eq!(read("[]").0.len(), 0);
    }

    #[test]
    fn a_list_that_is_not_whole_is_an_error_wherever_it_was_cut() {
        let error = |text: &str| {
            let (reader, _) = items_as_lines(text.as_bytes());
            reader.lines().find_map(Result::err).map(|error| error.to_string()).unwrap_or_default()
        };
        for cut in ["[", "[{\"a\": 1}", "[{\"a\": 1},", "[{\"a\": 1}, {\"a\": ", "[{\"a\": \"]"] {
            assert!(error(cut).contains("truncated"), "{cut}: {}", error(cut));
        }
        assert!(error("[1][2]").contains("after the JSON array") && error("[1] x").contains("after the JSON array"));
        assert!(
            error("[1,]").contains("comma") && error("[1,,2]").contains("comma") && error("[,1]").contains("comma")
        );
        for whole in ["[]", " [ ] \n", "[\"],\", [1, [2]], {\"a\": [3]}]\n"] {
            assert_eq!(error(whole), "", "{whole}");
        }
    }
}
