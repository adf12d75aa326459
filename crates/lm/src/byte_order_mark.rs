//! The byte order mark that editors put in front of UTF-8 text. It is not part of the text.

use std::io::{self, BufRead, Chain, Cursor, Read as _};

const MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes without a byte order mark at their start.
pub fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(MARK).unwrap_or(text)
}

/// A reader that is positioned after a byte order mark at its start.
///
/// # Errors
/// The first read fails.
pub fn skip_byte_order_mark<R: BufRead>(mut reader: R) -> io::Result<Chain<Cursor<Vec<u8>>, R>> {
    let start = loop {
        match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    let mut kept = Vec::new();
    if start.starts_with(MARK) {
        reader.consume(MARK.len());
    } else if !start.is_empty() && MARK.starts_with(start) {
        // A pipe can deliver the mark in parts.
        reader.by_ref().take(MARK.len() as u64).read_to_end(&mut kept)?;
        kept = without_byte_order_mark(&kept).to_vec();
    }
    Ok(Cursor::new(kept).chain(reader))
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn only_a_whole_mark_at_the_start_is_skipped_however_the_bytes_arrive() {
        for (text, expected) in [
            (&b"\xef\xbb\xbfa\xef\xbb\xbf"[..], &b"a\xef\xbb\xbf"[..]),
            (b"\xef\xbb\xbf\xef\xbb\xbfa", b"\xef\xbb\xbfa"),
            (b"\xef\xbb\xbf", b""),
            (b"\xef\xbba", b"\xef\xbba"),
            (b"\xef", b"\xef"),
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
}
