//! Skips the byte order mark at the start of a text.

use std::io::{self, BufRead, Chain, Cursor, Read as _};

const MARK: &[u8] = b"\xef\xbb\xbf";
const UTF_16: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
/// Bytes needed to recognise UTF-16 without a byte order mark: two characters.
const SHOWN: usize = 4;

/// Removes all byte order marks at the start. Concatenated files can have more than one.
pub fn without_byte_order_mark(mut text: &[u8]) -> &[u8] {
    while let Some(rest) = text.strip_prefix(MARK) {
        text = rest;
    }
    text
}

/// A reader positioned after the byte order marks at the start.
///
/// # Errors
/// The first read fails, or the text is UTF-16 ([`Utf16Text`]).
pub fn skip_byte_order_mark<R: BufRead>(mut reader: R) -> io::Result<Chain<Cursor<Vec<u8>>, R>> {
    let mut kept = Vec::new();
    // A pipe can deliver the mark in parts.
    while kept.len() < SHOWN && is_beginning(&kept) && reader.by_ref().take(1).read_to_end(&mut kept)? > 0 {
        if kept == MARK {
            kept.clear();
        }
        if UTF_16.contains(&kept.as_slice()) || (kept.len() == SHOWN && is_every_other_zero(&kept)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, Utf16Text));
        }
    }
    Ok(Cursor::new(kept).chain(reader))
}

fn is_beginning(start: &[u8]) -> bool {
    MARK.starts_with(start) || UTF_16.iter().any(|mark| mark.starts_with(start)) || is_every_other_zero(start)
}

/// Whether every other byte is 0 and no other is: UTF-16 without a byte order mark.
fn is_every_other_zero(start: &[u8]) -> bool {
    let is_zero_at = |odd: usize| start.iter().enumerate().all(|(at, byte)| (*byte == 0) == (at % 2 == odd));
    is_zero_at(0) || is_zero_at(1)
}

/// The text is UTF-16; UTF-8 is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("{}; {}", Self::WHAT, Self::HINT)]
pub struct Utf16Text;

impl Utf16Text {
    /// Description for error messages.
    pub const WHAT: &str = "UTF-16 text";
    /// Hint for error messages.
    pub const HINT: &str = "convert it first: iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8";
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn whole_marks_at_the_start_are_skipped_however_the_bytes_arrive() {
        for (text, expected) in [
            (&b"\xef\xbb\xbfa\xef\xbb\xbf"[..], &b"a\xef\xbb\xbf"[..]),
            (b"\xef\xbb\xbf\xef\xbb\xbfa", b"a"),
            (b"\xef\xbb\xbf\xef\xbb\xbf\xef\xbb\xbf", b""),
            (b"\xef\xbb\xbf\xef\xbba", b"\xef\xbba"),
            (b"\xef\xbb\xbf", b""),
            (b"\xef\xbba", b"\xef\xbba"),
            (b"\xef", b"\xef"),
            (b"\xff", b"\xff"),
            (b"\xffa", b"\xffa"),
            (b"", b""),
            (b"a", b"a"),
        ] {
            assert_eq!(without_byte_order_mark(text), expected);
            for capacity in 1..5 {
                let mut read = Vec::new();
                let reader = BufReader::with_capacity(capacity, text);
                skip_byte_order_mark(reader).expect("readable").read_to_end(&mut read).expect("readable");
                assert_eq!(read, expected, "{capacity} bytes at a time");
            }
        }
    }

    #[test]
    fn a_text_in_utf_16_is_refused_with_a_hint() {
        for text in [&b"\xff\xfea\0"[..], b"\xfe\xff\0a", b"\xff\xfe", b"i\0d\0", b"\0i\0d\0\n"] {
            for capacity in 1..5 {
                let told = skip_byte_order_mark(BufReader::with_capacity(capacity, text)).expect_err("UTF-16");
                assert!(told.to_string().contains("iconv -f UTF-16 -t UTF-8"), "{told}");
            }
        }
    }
}
