//! One file from the hub: resumed where it stopped, tried again where the connection broke; and its hash.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Digest, Sha256};
use ureq::Body;
use ureq::http::Response;

use super::TransferProgress;
use super::client::{ATTEMPTS, HubClient, RequestError};
use crate::weights::hex;

/// What a file must hash to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentHash {
    /// SHA-256 of the content: large files.
    Sha256(String),
    /// The object id that git gives it, a SHA-1 over its length and content: small files.
    GitBlob(String),
}

impl ContentHash {
    /// The hash in lower-case hex.
    pub fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::GitBlob(hex) => hex,
        }
    }

    /// Which hash it is.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "sha256",
            Self::GitBlob(_) => "git-sha1",
        }
    }

    /// The same hash of a file that lies here, in hex.
    pub(super) fn of(&self, path: &Path, progress: &mut dyn TransferProgress) -> io::Result<String> {
        let mut file = File::open(path)?;
        let mut hasher: Box<dyn DynDigest> = match self {
            Self::Sha256(_) => Box::new(Sha256::new()),
            Self::GitBlob(_) => Box::new(Sha1::new_with_prefix(format!("blob {}\0", file.metadata()?.len()))),
        };
        copy(&mut file, progress, |bytes| {
            hasher.update(bytes);
            Ok(())
        })
        .map_err(CopyError::into_io)?;
        Ok(hex(&hasher.finalize()))
    }
}

/// Which end of a copy failed.
enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

impl CopyError {
    fn into_io(self) -> io::Error {
        match self {
            Self::Read(error) | Self::Write(error) => error,
        }
    }
}

/// Hands all that `reader` has to `write`.
fn copy(
    reader: &mut dyn Read,
    progress: &mut dyn TransferProgress,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), CopyError> {
    let mut buffer = vec![0; 1 << 18];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                write(&buffer[..read]).map_err(CopyError::Write)?;
                progress.advance(read as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CopyError::Read(error)),
        }
    }
}

/// A file that is wanted.
pub(super) struct WantedFile {
    /// For the user: what is done.
    pub(super) what: String,
    pub(super) address: String,
    pub(super) bytes: u64,
}

/// Why a file did not come. What had come is kept.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum TransferError {
    /// The hub gave nothing, or stopped giving, as often as it was asked.
    #[error("{source}")]
    Request {
        /// Bytes that are here.
        have: u64,
        /// Why.
        #[diagnostic_source]
        source: RequestError,
    },
    /// Our side failed.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Downloads a file to `part`, continuing what is there. Whether its content is right is the caller's to check.
pub(super) fn download(
    client: &HubClient,
    wanted: &WantedFile,
    part: &Path,
    progress: &mut dyn TransferProgress,
) -> Result<(), TransferError> {
    let io_error = |source| TransferError::Io { path: part.to_owned(), source };
    let mut transfer = FileTransfer::open(wanted, part, progress).map_err(io_error)?;
    let (mut failures, mut furthest) = (0, transfer.have);
    while transfer.have < wanted.bytes {
        let source = match transfer.attempt(client, progress) {
            Ok(()) => break,
            Err(AttemptError::Io(source)) => return Err(io_error(source)),
            Err(AttemptError::Request(source)) => source,
        };
        // Compared with the furthest, not the last: where the server does not resume, each attempt begins at nothing
        // again, and would count as progress for ever.
        failures = if transfer.have > furthest { 1 } else { failures + 1 };
        furthest = furthest.max(transfer.have);
        // A network that is lost on the way may come back; one that was never there is reported at once.
        let lost = matches!(source, RequestError::Unreachable(_)) && transfer.began;
        if !(source.is_temporary() || lost) || failures >= ATTEMPTS {
            return Err(TransferError::Request { have: transfer.have, source });
        }
        progress.notice(&format!("{}: {source}; trying again", wanted.what));
        client.wait(failures, &source);
    }
    // On the disk before the file gets its name, so that a loss of power leaves no name over half a file.
    transfer.file.sync_all().map_err(io_error)
}

struct FileTransfer<'a> {
    wanted: &'a WantedFile,
    file: File,
    have: u64,
    /// Whether the hub has answered.
    began: bool,
}

enum AttemptError {
    Request(RequestError),
    Io(io::Error),
}

impl<'a> FileTransfer<'a> {
    fn open(wanted: &'a WantedFile, part: &Path, progress: &mut dyn TransferProgress) -> io::Result<Self> {
        fs::create_dir_all(part.parent().unwrap_or(Path::new(".")))?;
        let file = OpenOptions::new().append(true).create(true).open(part)?;
        let have = file.metadata()?.len();
        let mut transfer = Self { wanted, file, have, began: false };
        progress.begin(&wanted.what, Some(wanted.bytes));
        if have > wanted.bytes {
            transfer.start_afresh(progress)?;
        } else if have > 0 {
            progress.notice(&format!("{}: continuing after the {have} bytes that are here", wanted.what));
            progress.resume(have);
        }
        Ok(transfer)
    }

    fn start_afresh(&mut self, progress: &mut dyn TransferProgress) -> io::Result<()> {
        self.file.set_len(0)?;
        self.have = 0;
        progress.begin(&self.wanted.what, Some(self.wanted.bytes));
        Ok(())
    }

    /// Asks for what is missing and takes what comes.
    fn attempt(&mut self, client: &HubClient, progress: &mut dyn TransferProgress) -> Result<(), AttemptError> {
        let response = match client.get(&self.wanted.address, self.have) {
            Err(RequestError::Status { status: 416, .. }) if self.have > 0 => {
                // What is here is not the beginning of what the hub has.
                self.start_afresh(progress).map_err(AttemptError::Io)?;
                client.get(&self.wanted.address, 0)
            }
            other => other,
        }
        .map_err(AttemptError::Request)?;
        self.began = true;
        let is_part = response.status() == 206;
        // A server may answer a range with the whole file, or with another range: appended, either would make a file of
        // the right length and the wrong content.
        if self.have > 0 && !(is_part && first_byte(&response) == Some(self.have)) {
            progress.notice(&format!("{}: the server does not resume; starting again", self.wanted.what));
            self.start_afresh(progress).map_err(AttemptError::Io)?;
            if is_part {
                return Err(AttemptError::Request(RequestError::Connection("it answered with another range".into())));
            }
        }
        let mut reader = response.into_body().into_reader().take(self.wanted.bytes - self.have);
        let (file, have) = (&mut self.file, &mut self.have);
        let copied = copy(&mut reader, progress, |bytes| {
            file.write_all(bytes)?;
            *have += bytes.len() as u64;
            Ok(())
        });
        let broken = |why: String| Err(AttemptError::Request(RequestError::Connection(why)));
        match copied {
            Err(CopyError::Write(error)) => Err(AttemptError::Io(error)),
            Err(CopyError::Read(error)) => broken(format!("the connection broke: {error}")),
            Ok(()) if self.have < self.wanted.bytes => broken("the connection ended too early".into()),
            Ok(()) => Ok(()),
        }
    }
}

/// Where the range of an answer begins: `bytes 20-99/100` → 20.
fn first_byte(response: &Response<Body>) -> Option<u64> {
    let range = response.headers().get("content-range")?.to_str().ok()?;
    range.trim().strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::NoProgress;

    #[test]
    fn hashes_are_those_of_sha256sum_and_git() {
        let dir = tempfile::tempdir().expect("temp");
        let path = dir.path().join("hello");
        fs::write(&path, "hello\n").expect("written");
        let of = |hash: ContentHash| hash.of(&path, &mut NoProgress).expect("read");
        // `printf 'hello\n' | git hash-object --stdin`, and `| sha256sum`.
        assert_eq!(of(ContentHash::GitBlob(String::new())), "ce013625030ba8dba906f756967f9e9ca394464a");
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert_eq!(of(ContentHash::Sha256(String::new())), sha256);
    }
}
