//! Downloads one file from the hub with resume and retries, and verifies its hash.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use sha1::{Digest, Sha1};
use ureq::Body;
use ureq::http::Response;

use super::TransferProgress;
use super::client::{ATTEMPTS, HubClient, RequestError};
use super::verify::hash_file;
use crate::weights::hex;

/// Expected hash of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentHash {
    /// SHA-256 of the content, for large files.
    Sha256(String),
    /// Git object id, a SHA-1 over length and content, for small files.
    GitBlob(String),
}

impl ContentHash {
    /// The hash in lower-case hex.
    pub fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::GitBlob(hex) => hex,
        }
    }

    /// Name of the hash function.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "sha256",
            Self::GitBlob(_) => "git-sha1",
        }
    }

    /// Computes the same kind of hash of a local file, in hex.
    pub(super) fn compute(&self, path: &Path, progress: &mut dyn TransferProgress) -> io::Result<String> {
        match self {
            Self::Sha256(_) => hash_file(path, progress),
            Self::GitBlob(_) => {
                let mut file = File::open(path)?;
                let mut hasher = Sha1::new_with_prefix(format!("blob {}\0", file.metadata()?.len()));
                io::copy(&mut file, &mut hasher)?;
                Ok(hex(&hasher.finalize()))
            }
        }
    }
}

/// A file to download.
pub(super) struct WantedFile {
    /// Description of the step for the user.
    pub(super) what: String,
    pub(super) address: String,
    pub(super) bytes: u64,
}

/// Why a download failed. The partial file is kept.
pub(super) enum TransferError {
    /// The hub returned nothing, or the transfer was interrupted, in every attempt.
    Hub(RequestError),
    /// The file cannot be written.
    Io(io::Error),
}

impl From<io::Error> for TransferError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Downloads a file to `part`, whose folder exists, and resumes a partial file. The caller verifies the content.
pub(super) fn download(
    client: &HubClient,
    wanted: &WantedFile,
    part: &Path,
    progress: &mut dyn TransferProgress,
) -> Result<(), TransferError> {
    let file = OpenOptions::new().append(true).create(true).open(part)?;
    let have = file.metadata()?.len();
    let mut transfer = FileTransfer { wanted, file, have, began: false };
    progress.begin(&wanted.what, Some(wanted.bytes));
    if have > wanted.bytes {
        transfer.start_afresh(progress)?;
    } else if have > 0 {
        progress.notice(&format!("{}: continuing after {have} bytes", wanted.what));
        progress.resume(have);
    }
    let (mut failures, mut furthest) = (0, transfer.have);
    while transfer.have < wanted.bytes {
        let error = match transfer.attempt(client, progress) {
            Ok(()) => break,
            Err(TransferError::Hub(error)) => error,
            Err(error) => return Err(error),
        };
        // Compared with the furthest position instead of the last: if the server does not resume, each attempt restarts
        // and would always count as progress.
        failures = if transfer.have > furthest { 1 } else { failures + 1 };
        furthest = furthest.max(transfer.have);
        // An interrupted connection is retried; a failure to connect is reported immediately.
        let lost = transfer.began && matches!(error, RequestError::Connection(_));
        if !(lost || error.is_busy()) || failures >= ATTEMPTS {
            return Err(TransferError::Hub(error));
        }
        progress.notice(&format!("{}: {error}; trying again", wanted.what));
        client.wait(failures, &error);
    }
    // Synced before renaming, so that a power failure leaves no partial file under the final name.
    Ok(transfer.file.sync_all()?)
}

struct FileTransfer<'a> {
    wanted: &'a WantedFile,
    file: File,
    have: u64,
    /// Whether the hub has answered.
    began: bool,
}

impl FileTransfer<'_> {
    fn start_afresh(&mut self, progress: &mut dyn TransferProgress) -> io::Result<()> {
        self.file.set_len(0)?;
        self.have = 0;
        progress.begin(&self.wanted.what, Some(self.wanted.bytes));
        Ok(())
    }

    /// Requests the missing bytes and appends them.
    fn attempt(&mut self, client: &HubClient, progress: &mut dyn TransferProgress) -> Result<(), TransferError> {
        let broken = |why: String| Err(TransferError::Hub(RequestError::Connection(why)));
        let response = match client.get(&self.wanted.address, self.have) {
            Err(RequestError::Status { status: 416, .. }) if self.have > 0 => {
                // The partial file does not match the hub's file.
                self.start_afresh(progress)?;
                client.get(&self.wanted.address, 0)
            }
            other => other,
        }
        .map_err(TransferError::Hub)?;
        self.began = true;
        let is_part = response.status() == 206;
        // A server may answer a range request with the whole file or another range. Appending either would give the
        // right length with the wrong content.
        if self.have > 0 && !(is_part && first_byte(&response) == Some(self.have)) {
            progress.notice(&format!("{}: the server cannot resume; starting again", self.wanted.what));
            self.start_afresh(progress)?;
            if is_part {
                return broken("it answered with a different range".into());
            }
        }
        let mut reader = response.into_body().into_reader().take(self.wanted.bytes - self.have);
        let mut buffer = vec![0; 1 << 16];
        while self.have < self.wanted.bytes {
            match reader.read(&mut buffer) {
                Ok(0) => return broken("the connection ended too early".into()),
                Ok(read) => {
                    self.file.write_all(&buffer[..read])?;
                    self.have += read as u64;
                    progress.advance(read as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return broken(format!("the connection broke: {error}")),
            }
        }
        Ok(())
    }
}

/// Start of an answer's range: `bytes 20-99/100` → 20.
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
        std::fs::write(&path, "hello\n").expect("written");
        let of = |hash: ContentHash| hash.compute(&path, &mut NoProgress).expect("read");
        // From `printf 'hello\n' | git hash-object --stdin` and `| sha256sum`.
        assert_eq!(of(ContentHash::GitBlob(String::new())), "ce013625030ba8dba906f756967f9e9ca394464a");
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert_eq!(of(ContentHash::Sha256(String::new())), sha256);
    }
}
