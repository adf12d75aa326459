//! Files and standard input as streams of bytes, unpacked where they are packed.

use std::fs::{File, FileType};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use probity_lm::skip_byte_order_mark;

use crate::DataError;

/// How much is looked at to tell what a stream is.
const BUFFER: usize = 64 << 10;

/// Opens a file, or standard input for `-`. What gzip or zstd packed is unpacked as it is read, a buffer at a time; its
/// first bytes tell, whatever the name. A byte order mark in front of the text is skipped.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, DataError> {
    unpacked(open_packed(path)?, &file_name(path))
}

/// As [`open`], with the bytes as they lie there.
pub(crate) fn open_packed(path: &Path) -> Result<Box<dyn BufRead + Send>, DataError> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::with_capacity(BUFFER, io::stdin())));
    }
    Ok(Box::new(BufReader::with_capacity(BUFFER, open_file(path)?)))
}

/// As [`open`], of a regular file alone: of what a run remembers by its content.
pub fn open_regular(path: &Path) -> Result<Box<dyn BufRead + Send>, DataError> {
    let file = probity_options::open_regular(path).map_err(DataError::open(file_name(path)))?;
    unpacked(BufReader::with_capacity(BUFFER, file), &file_name(path))
}

/// A file, or a pipe, through which another program may send it.
pub(crate) fn open_file(path: &Path) -> Result<File, DataError> {
    let refused = DataError::open(file_name(path));
    let file = File::open(path).map_err(&refused)?;
    let kind = file.metadata().map_err(&refused)?.file_type();
    if kind.is_dir() {
        return Err(refused(io::ErrorKind::IsADirectory.into()));
    }
    if is_device(kind) {
        return Err(refused(io::Error::other("it is a device")));
    }
    Ok(file)
}

/// Whether it is a device, which may have no end (`/dev/zero`).
#[cfg(unix)]
fn is_device(kind: FileType) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    kind.is_char_device() || kind.is_block_device()
}

/// Elsewhere devices are no files.
#[cfg(not(unix))]
fn is_device(_: FileType) -> bool {
    false
}

/// Unpacks what is packed and skips a byte order mark; `file` is its name in messages.
pub(crate) fn unpacked(
    mut reader: impl BufRead + Send + 'static,
    file: &str,
) -> Result<Box<dyn BufRead + Send>, DataError> {
    let refused = DataError::open(file.to_owned());
    // A reader that fails at once says so where it is read.
    let Ok(start) = reader.fill_buf() else { return Ok(Box::new(reader)) };
    let reader: Box<dyn BufRead + Send> = match start {
        // Of several members, since files that were packed in parts and joined have them: the simple decoder ends after
        // the first and says nothing.
        [0x1f, 0x8b, ..] => Box::new(BufReader::with_capacity(BUFFER, flate2::bufread::MultiGzDecoder::new(reader))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            // The decoder refuses windows above 128 MiB, so that a file cannot ask for more memory than that.
            let decoder = zstd::stream::read::Decoder::with_buffer(reader).map_err(&refused)?;
            Box::new(BufReader::with_capacity(BUFFER, decoder))
        }
        _ => Box::new(reader),
    };
    Ok(Box::new(skip_byte_order_mark(reader).map_err(refused)?))
}

/// Bytes of the first row that are looked at to tell what the rows are.
const FIRST_ROW: u64 = 16 << 20;

/// The same, with its first line (of a list, its beginning) in one piece however little the system gives at a time.
pub(crate) fn with_first_row(mut reader: Box<dyn BufRead + Send>) -> Box<dyn BufRead + Send> {
    let mut start = Vec::new();
    let mut failed = None;
    let mut or_failed = |read: io::Result<usize>| read.map_err(|error| failed = Some(error)).unwrap_or(0);
    loop {
        let before = start.len();
        let rest = FIRST_ROW - before as u64;
        let read = or_failed(reader.by_ref().take(rest).read_until(b'\n', &mut start));
        // Blank lines before the first row, as far as anyone would leave some.
        if read == 0 || !start[before..].trim_ascii().is_empty() || start.len() as u64 >= FIRST_ROW {
            break;
        }
    }
    if start.trim_ascii_start().starts_with(b"[") {
        or_failed(reader.by_ref().take(FIRST_ROW).read_to_end(&mut start));
    }
    // A decoder reports damage once and its end afterwards, so the error is kept for the reader of the rows.
    Box::new(Cursor::new(start).chain(BufReader::new(FailedOnce(failed))).chain(reader))
}

/// Fails with its error, then ends.
struct FailedOnce(Option<io::Error>);

impl Read for FailedOnce {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// All bytes of a file or standard input, unpacked: at most `limit`.
pub(crate) fn read_whole(path: &Path, limit: u64) -> Result<Vec<u8>, DataError> {
    let refused = DataError::open(file_name(path));
    read_all(open(path)?, limit).map_err(refused)
}

/// All bytes of a reader: at most `limit`.
pub(crate) fn read_all(reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than is allowed tells a file at the limit from one beyond it.
    reader.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {limit} bytes uncompressed"),
        ));
    }
    Ok(bytes)
}

/// How messages call a file.
pub(crate) fn file_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".into() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn through(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let reader = BufReader::with_capacity(BUFFER, io::Cursor::new(bytes.to_vec()));
        let mut out = Vec::new();
        unpacked(reader, "f").expect("opened").read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("packed");
        encoder.finish().expect("packed")
    }

    #[test]
    fn packed_streams_of_several_members_are_unpacked_and_others_left_alone() {
        let text = b"to be\nor not to be\n".repeat(10_000);
        let zst = zstd::encode_all(&text[..], 3).expect("packed");
        assert_eq!(through(&text).expect("plain"), text);
        for packed in [gzip(&text), zst] {
            assert_eq!(through(&packed).expect("packed"), text);
            assert_eq!(through(&packed.repeat(2)).expect("two members"), text.repeat(2));
            assert!(through(&packed[..packed.len() - 5]).is_err(), "a stream that was cut is an error");
        }
        assert_eq!(through(b"").expect("empty"), b"");
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_refused() {
        let error = open(Path::new("/dev/zero")).err().expect("it has no end").to_string();
        assert_eq!(error, "/dev/zero could not be opened: it is a device");
    }

    #[test]
    fn a_whole_file_is_bounded_after_unpacking() {
        let bomb = gzip(&vec![b' '; 1 << 20]);
        let bounded = unpacked(BufReader::new(io::Cursor::new(bomb)), "f").expect("opened");
        assert_eq!(
            read_all(bounded, 1000).expect_err("too long").to_string(),
            "it holds more than 1000 bytes, unpacked"
        );
    }
}
