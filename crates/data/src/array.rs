//! A JSON array as JSON lines: each item on a line, so that a file of either form is read in the same way and in
//! bounded memory.

use std::io::{self, BufRead, BufReader, Read};

use crate::error::RecordUnit;

/// The reader, whose array, where it is one, is lines of its items; and how these are counted.
pub(crate) fn items_as_lines<'a>(mut reader: impl BufRead + Send + 'a) -> (Box<dyn BufRead + Send + 'a>, RecordUnit) {
    let start = reader.fill_buf().unwrap_or_default();
    if start.trim_ascii_start().starts_with(b"[") {
        (
            Box::new(BufReader::new(ArrayItems { reader, depth: 0, text: Text::None, place: ArrayPlace::Before })),
            RecordUnit::Item,
        )
    } else {
        (Box::new(reader), RecordUnit::Line)
    }
}

/// Whether a byte is inside of a text.
#[derive(Clone, Copy, PartialEq)]
enum Text {
    None,
    Inside,
    /// After a backslash.
    Escaped,
}

/// Where in the list a byte stands.
#[derive(Clone, Copy, PartialEq)]
enum ArrayPlace {
    /// Before it, or behind its bracket.
    Before,
    /// In an item, or behind one.
    Item,
    /// Behind a comma.
    Comma,
    /// Behind the list.
    After,
}

struct ArrayItems<R> {
    reader: R,
    /// Brackets that are open; the array's own is the first.
    depth: usize,
    text: Text,
    place: ArrayPlace,
}

impl<R: BufRead> ArrayItems<R> {
    /// An error where the list is none as a whole: items alone would not show that the file was cut off between two of
    /// them.
    fn check(&mut self, byte: u8) -> io::Result<()> {
        // White space parts nothing here: how an item is laid out is left to the reader of JSON.
        if byte.is_ascii_whitespace() {
            return Ok(());
        }
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        match (self.place, byte, self.depth) {
            // Whoever appends rows to a JSON array by hand leaves such a file: they stand behind its bracket.
            (ArrayPlace::After, ..) => return wrong("something stands behind the list that the file is"),
            (ArrayPlace::Comma | ArrayPlace::Before, b',', 1) | (ArrayPlace::Comma, b']', 1) => {
                return wrong("the list has a comma with no item beside it");
            }
            (ArrayPlace::Before, b'[', 0) => {}
            (ArrayPlace::Item, b',', 1) if self.text == Text::None => self.place = ArrayPlace::Comma,
            (_, b']', 1) if self.text == Text::None => self.place = ArrayPlace::After,
            _ => self.place = ArrayPlace::Item,
        }
        Ok(())
    }

    /// What stands for a byte: the array's own brackets and commas become ends of lines, and what breaks a line inside
    /// an item a space.
    fn turned(&mut self, byte: u8) -> u8 {
        match (self.text, byte) {
            (Text::Inside, b'\\') => self.text = Text::Escaped,
            (Text::Inside, b'"') => self.text = Text::None,
            (Text::Escaped, _) | (Text::None, b'"') => self.text = Text::Inside,
            (Text::None, b'[' | b'{') => {
                self.depth += 1;
                if self.depth == 1 {
                    return b' ';
                }
            }
            (Text::None, b']' | b'}') => {
                let closes = self.depth == 1;
                self.depth = self.depth.saturating_sub(1);
                if closes {
                    return b'\n';
                }
            }
            (Text::None, b',') if self.depth == 1 => return b'\n',
            // An array that was printed prettily breaks its lines within an item. Inside a text a raw break stays: it
            // is not JSON, and the reader says so.
            (Text::None, b'\n' | b'\r') => return b' ',
            (Text::Inside | Text::None, _) => {}
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
        // Whole items of a file that was cut off are good lines, so only the missing bracket tells.
        if count == 0 && !out.is_empty() && self.place != ArrayPlace::After {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the list has no end: the file was cut off"));
        }
        for byte in &mut out[..count] {
            self.check(*byte)?;
            // After the check, which needs the depth as it was before this byte.
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
            assert!(error(cut).contains("cut off"), "{cut}: {}", error(cut));
        }
        assert!(error("[1][2]").contains("behind the list") && error("[1] x").contains("behind the list"));
        assert!(
            error("[1,]").contains("comma") && error("[1,,2]").contains("comma") && error("[,1]").contains("comma")
        );
        for whole in ["[]", " [ ] \n", "[\"],\", [1, [2]], {\"a\": [3]}]\n"] {
            assert_eq!(error(whole), "", "{whole}");
        }
    }
}
