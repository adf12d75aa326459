//! One file from the hub: resumed where it stopped, tried again where the connection broke, and checked against its
//! hash.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha1::Sha1;
use sha2::{Digest, Sha256};

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

    fn start(&self, bytes: u64) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Self::GitBlob(_) => Hasher::GitBlob(Sha1::new_with_prefix(format!("blob {bytes}\0"))),
        }
    }

    /// The same hash of a file that lies here, in hex.
    pub(super) fn of(&self, path: &Path, progress: &mut dyn TransferProgress) -> io::Result<String> {
        let mut hasher = self.start(fs::metadata(path)?.len());
        hasher.update_from(&mut File::open(path)?, progress)?;
        Ok(hasher.finish())
    }
}

#[derive(Clone)]
enum Hasher {
    Sha256(Sha256),
    GitBlob(Sha1),
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::GitBlob(hasher) => hasher.update(bytes),
        }
    }

    fn update_from(&mut self, file: &mut File, progress: &mut dyn TransferProgress) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 20];
        let mut done = 0;
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => {
                    self.update(&buffer[..read]);
                    done += read as u64;
                    progress.resume(done);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn finish(self) -> String {
        match self {
            Self::Sha256(hasher) => hex(&hasher.finalize()),
            Self::GitBlob(hasher) => hex(&hasher.finalize()),
        }
    }
}

/// A file that is wanted.
pub(super) struct WantedFile<'a> {
    /// What the user is told.
    pub(super) what: String,
    /// Its path at the hub, encoded.
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) hash: &'a ContentHash,
}

/// Why a file did not come. What had come is kept, unless its content was wrong.
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
    /// The whole came, and is not what it should be. It was removed.
    #[error("wrong content")]
    WrongHash {
        /// What it hashes to; a size where that is wrong already.
        found: String,
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

/// Brings a file to `part`, going on with what lies there; whole and right when this succeeds.
pub(super) fn download(
    client: &HubClient,
    wanted: &WantedFile<'_>,
    part: &Path,
    progress: &mut dyn TransferProgress,
) -> Result<(), TransferError> {
    let mut transfer = FileTransfer::open(client, wanted, part, progress)?;
    let (mut failures, mut furthest) = (0, transfer.have);
    while transfer.have < wanted.bytes {
        let Err(error) = transfer.attempt(progress) else { break };
        let TransferFailure::Request(source) = error else { return Err(error.of(part)) };
        // Against the furthest, not the last: where the server does not resume, each try begins at nothing again, and
        // would count as progress for ever.
        failures = if transfer.have > furthest { 1 } else { failures + 1 };
        furthest = furthest.max(transfer.have);
        if !source.passes() || failures >= ATTEMPTS {
            return Err(TransferError::Request { have: transfer.have, source });
        }
        progress.notice(&format!("{}: {source}; trying again", wanted.what));
        client.wait(failures, &source);
    }
    let io_error = |source| TransferError::Io { path: part.to_owned(), source };
    // On the disk before the file gets its name, so that a loss of power leaves no name over half a file.
    transfer.file.sync_all().map_err(io_error)?;
    let found = if transfer.too_long { format!("more than {} bytes", wanted.bytes) } else { transfer.hasher.finish() };
    if found == wanted.hash.hex() {
        return Ok(());
    }
    fs::remove_file(part).map_err(io_error)?;
    Err(TransferError::WrongHash { found })
}

struct FileTransfer<'a> {
    client: &'a HubClient,
    wanted: &'a WantedFile<'a>,
    file: File,
    have: u64,
    /// Of the bytes that we have.
    hasher: Hasher,
    too_long: bool,
}

enum TransferFailure {
    Request(RequestError),
    Io(io::Error),
}

impl TransferFailure {
    fn of(self, path: &Path) -> TransferError {
        match self {
            Self::Request(source) => TransferError::Request { have: 0, source },
            Self::Io(source) => TransferError::Io { path: path.to_owned(), source },
        }
    }
}

impl<'a> FileTransfer<'a> {
    fn open(
        client: &'a HubClient,
        wanted: &'a WantedFile<'a>,
        part: &Path,
        progress: &mut dyn TransferProgress,
    ) -> Result<Self, TransferError> {
        let io_error = |source| TransferError::Io { path: part.to_owned(), source };
        let create = || {
            fs::create_dir_all(part.parent().unwrap_or(Path::new(".")))?;
            OpenOptions::new().read(true).append(true).create(true).open(part)
        };
        let mut file = create().map_err(io_error)?;
        let mut have = file.metadata().map_err(io_error)?.len();
        let mut hasher = wanted.hash.start(wanted.bytes);
        if have > wanted.bytes {
            file.set_len(0).map_err(io_error)?;
            have = 0;
        }
        progress.begin(&wanted.what, Some(wanted.bytes));
        if have > 0 {
            progress.notice(&format!("{}: going on after the {have} bytes that are here", wanted.what));
            // What lies here was written by a run that is gone, and so is its hasher.
            hasher.update_from(&mut file, progress).map_err(io_error)?;
        }
        Ok(Self { client, wanted, file, have, hasher, too_long: false })
    }

    fn start_afresh(&mut self, progress: &mut dyn TransferProgress) -> Result<(), TransferFailure> {
        self.file.set_len(0).map_err(TransferFailure::Io)?;
        self.have = 0;
        self.hasher = self.wanted.hash.start(self.wanted.bytes);
        progress.begin(&self.wanted.what, Some(self.wanted.bytes));
        Ok(())
    }

    /// Asks for what is missing and takes what comes.
    fn attempt(&mut self, progress: &mut dyn TransferProgress) -> Result<(), TransferFailure> {
        let response = match self.client.get(&self.wanted.path, self.have) {
            Err(RequestError::Status { status: 416, .. }) if self.have > 0 => {
                // What is here is not the beginning of what the hub has.
                self.start_afresh(progress)?;
                self.client.get(&self.wanted.path, 0).map_err(TransferFailure::Request)?
            }
            other => other.map_err(TransferFailure::Request)?,
        };
        let continues =
            response.status() == 206 && response.header("content-range").and_then(first_byte) == Some(self.have);
        // A server may answer a range with the whole file, or with another range: appended, either would make a file of
        // the right length and the wrong content.
        if self.have > 0 && !continues {
            progress.notice(&format!("{}: the server does not resume; from the start again", self.wanted.what));
            self.start_afresh(progress)?;
            if response.status() == 206 {
                return Err(TransferFailure::Request(RequestError::Connection(
                    "it answered with another range".into(),
                )));
            }
        }
        self.take(&mut response.into_reader(), progress)
    }

    fn take(&mut self, reader: &mut dyn Read, progress: &mut dyn TransferProgress) -> Result<(), TransferFailure> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = match reader.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(TransferFailure::Request(RequestError::Connection(format!(
                        "the connection broke: {error}"
                    ))));
                }
            };
            if read == 0 && self.have < self.wanted.bytes {
                return Err(TransferFailure::Request(RequestError::Connection(
                    "the connection ended too early".into(),
                )));
            }
            if read == 0 {
                return Ok(());
            }
            if self.have + read as u64 > self.wanted.bytes {
                self.too_long = true;
                self.have = self.wanted.bytes;
                return Ok(());
            }
            self.file.write_all(&buffer[..read]).map_err(TransferFailure::Io)?;
            self.hasher.update(&buffer[..read]);
            self.have += read as u64;
            progress.advance(read as u64);
        }
    }
}

/// `bytes 20-99/100` → 20.
fn first_byte(content_range: &str) -> Option<u64> {
    content_range.trim().strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
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
