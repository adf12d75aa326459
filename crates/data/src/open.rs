//! Opens files and standard input as byte streams, with transparent decompression.

use std::fs::{File, FileType};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use probity_lm::skip_byte_order_mark;

use crate::DataError;

/// Number of bytes buffered to detect the file type.
const BUFFER: usize = 64 << 10;

/// Opens a file, or standard input for `-`. Decompresses gzip and zstd while reading, detected from the first bytes
/// whatever the name. Skips a byte order mark.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, DataError> {
    unpacked(open_packed(path)?, &file_name(path))
}

/// Same as [`open`], without decompression.
pub(crate) fn open_packed(path: &Path) -> Result<Box<dyn BufRead + Send>, DataError> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::with_capacity(BUFFER, io::stdin())));
    }
    Ok(Box::new(BufReader::with_capacity(BUFFER, open_file(path)?)))
}

/// Same as [`open`], for regular files only: inputs that a run identifies by their content.
pub fn open_regular(path: &Path) -> Result<Box<dyn BufRead + Send>, DataError> {
    let file = probity_options::open_regular(path).map_err(DataError::open(file_name(path)))?;
    unpacked(BufReader::with_capacity(BUFFER, file), &file_name(path))
}

/// Opens a file or a named pipe.
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

/// Whether this is a device, which may be endless (`/dev/zero`).
#[cfg(unix)]
fn is_device(kind: FileType) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    kind.is_char_device() || kind.is_block_device()
}

/// On other systems devices are not files.
#[cfg(not(unix))]
fn is_device(_: FileType) -> bool {
    false
}

/// Decompresses the stream and skips a byte order mark; `file` is the file name for messages.
pub(crate) fn unpacked(
    mut reader: impl BufRead + Send + 'static,
    file: &str,
) -> Result<Box<dyn BufRead + Send>, DataError> {
    let refused = DataError::open(file.to_owned());
    // A reader that fails immediately reports the error when it is read.
    let Ok(start) = reader.fill_buf() else { return Ok(Box::new(reader)) };
    let reader: Box<dyn BufRead + Send> = match start {
        // Concatenated gzip files have several members; the simple decoder would silently stop after the first.
        [0x1f, 0x8b, ..] => Box::new(BufReader::with_capacity(BUFFER, flate2::bufread::MultiGzDecoder::new(reader))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            // The decoder refuses windows above 128 MiB, which limits memory use.
            let decoder = zstd::stream::read::Decoder::with_buffer(reader).map_err(&refused)?;
            Box::new(BufReader::with_capacity(BUFFER, decoder))
        }
        _ => Box::new(reader),
    };
    Ok(Box::new(skip_byte_order_mark(reader).map_err(refused)?))
}

/// Maximum size of the first row, which is read to detect the row type.
const FIRST_ROW: u64 = 16 << 20;

/// Buffers the whole first line (for an array, its beginning), however little each read returns.
pub(crate) fn with_first_row(mut reader: Box<dyn BufRead + Send>) -> Box<dyn BufRead + Send> {
    let mut start = Vec::new();
    let mut failed = None;
    let mut or_failed = |read: io::Result<usize>| read.map_err(|error| failed = Some(error)).unwrap_or(0);
    loop {
        let before = start.len();
        let rest = FIRST_ROW - before as u64;
        let read = or_failed(reader.by_ref().take(rest).read_until(b'\n', &mut start));
        // Skips blank lines before the first row.
        if read == 0 || !start[before..].trim_ascii().is_empty() || start.len() as u64 >= FIRST_ROW {
            break;
        }
    }
    if start.trim_ascii_start().starts_with(b"[") {
        or_failed(reader.by_ref().take(FIRST_ROW).read_to_end(&mut start));
    }
    // A decoder reports damage once and then the end of the file, so keep the error for the reader of the rows.
    Box::new(Cursor::new(start).chain(BufReader::new(FailedOnce(failed))).chain(reader))
}

/// Fails once with its error, then returns the end of the file.
struct FailedOnce(Option<io::Error>);

impl Read for FailedOnce {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Reads a whole file or standard input, decompressed, up to `limit` bytes.
pub(crate) fn read_whole(path: &Path, limit: u64) -> Result<Vec<u8>, DataError> {
    let refused = DataError::open(file_name(path));
    read_all(open(path)?, limit).map_err(refused)
}

/// Reads all bytes of a reader, up to `limit`.
pub(crate) fn read_all(reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One extra byte tells a file at the limit from a longer one.
    reader.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {limit} bytes uncompressed"),
        ));
    }
    Ok(bytes)
}

/// The name of a file in messages.
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
            "it has more than 1000 bytes uncompressed"
        );
    }
}
