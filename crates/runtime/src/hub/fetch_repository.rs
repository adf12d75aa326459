//! Downloads hub models to the Hugging Face cache, where [`locate`](super::locate()) and other tools find them.
//!
//! The layout is that of hf-hub: a file is collected in `blobs` as `HASH.part`, under `HASH.lock`, and renamed to its
//! hash once verified. The snapshot is linked when all files exist, and the reference of the revision is written last,
//! so an incomplete model is never found.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use probity_lm::BoxedError;

use super::TransferProgress;
use super::client::{HubClient, encode_path};
use super::fetch::{Fetcher, Lock, available_bytes};
use super::hub_error::HubError;
use super::name::HubName;
use super::repository::{HubRepository, RemoteFile};
use super::selection::{INDEX, select};
use super::transfer::{TransferError, WantedFile, download};
use crate::weights::ShardIndex;

/// A planned or completed download by [`Fetcher::get_from_hub`].
#[derive(Debug, Clone)]
pub struct HubFetch {
    /// The model.
    pub name: HubName,
    /// The current commit of its revision.
    pub commit: String,
    /// Its files, the weights last.
    pub files: Vec<RemoteFile>,
    /// Bytes of each file that exist locally.
    pub here: Vec<u64>,
    /// The snapshot's folder in the cache.
    pub folder: PathBuf,
    /// Licence from the repository's page.
    pub licence: Option<String>,
    /// Bytes free on its disk, if known.
    pub space: Option<u64>,
}

impl HubFetch {
    /// Total size of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Bytes still to download.
    pub fn missing(&self) -> u64 {
        self.bytes() - self.here.iter().sum::<u64>()
    }

    /// Size of the weights.
    pub fn weight_bytes(&self) -> u64 {
        self.files.iter().filter(|file| is_weights(&file.path)).map(|file| file.bytes).sum()
    }
}

fn is_weights(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "gguf" || extension == "safetensors")
}

/// A repository's folder in the cache, at one revision.
struct RepositoryCache {
    folder: PathBuf,
    repo: CacheRepo,
}

impl RepositoryCache {
    fn blob(&self, file: &RemoteFile) -> PathBuf {
        self.repo.blob_path(file.hash.hex())
    }

    fn part(&self, file: &RemoteFile) -> PathBuf {
        self.blob(file).with_extension("part")
    }

    /// Bytes of a file that exist locally.
    fn here(&self, file: &RemoteFile) -> u64 {
        let size = |path: PathBuf| fs::metadata(path).ok().map(|found| found.len());
        match size(self.blob(file)) {
            Some(bytes) if bytes == file.bytes => bytes,
            _ => size(self.part(file)).unwrap_or(0).min(file.bytes),
        }
    }
}

impl Fetcher {
    /// Resolves a name on the hub and checks which files exist locally. Downloads nothing.
    pub fn plan_from_hub(&self, name: &HubName) -> Result<HubFetch, HubError> {
        let client = self.client();
        let repository = repository(&client, name)?;
        let paths: Vec<&str> = repository.files.iter().map(|file| file.path.as_str()).collect();
        let chosen = select(&paths, name.file.as_deref())
            .map_err(|why| HubError::from_no_choice(name, why, &repository.files))?;
        let file =
            |path: &str| repository.files.iter().find(|file| file.path == path).expect("chosen from these").clone();
        let files: Vec<RemoteFile> = chosen.into_iter().map(file).collect();
        let cache = self.cache(name);
        Ok(HubFetch {
            name: name.clone(),
            here: files.iter().map(|file| cache.here(file)).collect(),
            folder: cache.repo.pointer_path(&repository.commit),
            commit: repository.commit,
            files,
            licence: repository.licence,
            space: nearest_folder(&cache.folder).and_then(available_bytes),
        })
    }

    /// Downloads the missing files of a plan and verifies their hashes.
    pub fn get_from_hub(&self, plan: &HubFetch, progress: &mut dyn TransferProgress) -> Result<(), HubError> {
        let (client, cache) = (self.client(), self.cache(&plan.name));
        if let Some(available) = plan.space.filter(|&space| space < plan.missing()) {
            return Err(HubError::DiskFull { path: cache.folder, needed: plan.missing(), available: Some(available) });
        }
        let (weights, side): (Vec<_>, Vec<_>) = plan.files.iter().partition(|file| is_weights(&file.path));
        for file in side {
            bring(&client, &cache, plan, file, progress)?;
        }
        // An unsupported model is reported before its weights are downloaded.
        check_side_files(&cache, plan)?;
        for file in weights {
            bring(&client, &cache, plan, file, progress)?;
        }
        install(&cache, plan).map_err(|(path, source)| HubError::io(&path, plan.missing(), source))
    }

    fn cache(&self, name: &HubName) -> RepositoryCache {
        let repo = Repo::with_revision(name.repo.clone(), RepoType::Model, name.revision().to_owned());
        let folder = self.places.hf_cache.join(repo.folder_name());
        RepositoryCache { folder, repo: Cache::new(self.places.hf_cache.clone()).repo(repo) }
    }
}

fn repository(client: &HubClient, name: &HubName) -> Result<HubRepository, HubError> {
    HubRepository::read(client, &name.repo, name.revision())
        .map_err(|error| HubError::from_repository_request(client, name, error))
}

/// Downloads and verifies one blob if missing.
fn bring(
    client: &HubClient,
    cache: &RepositoryCache,
    plan: &HubFetch,
    file: &RemoteFile,
    progress: &mut dyn TransferProgress,
) -> Result<(), HubError> {
    let (blob, part) = (cache.blob(file), cache.part(file));
    let io_error = |source| HubError::io(&blob, plan.missing(), source);
    let hash = |path: &Path, progress: &mut dyn TransferProgress| {
        progress.begin(&format!("hashing {}", file.path), Some(file.bytes));
        file.hash.compute(path, progress).map_err(io_error)
    };
    if fs::metadata(&blob).is_ok_and(|found| found.len() == file.bytes) {
        if hash(&blob, progress)? == file.hash.hex() {
            return Ok(());
        }
        progress.notice(&format!("{} is damaged and will be replaced", blob.display()));
    }
    fs::create_dir_all(blob.parent().expect("below the cache")).map_err(io_error)?;
    let lock = Lock::take(blob.with_extension("lock"), &plan.name.to_string())?;
    let wanted = WantedFile {
        what: format!("downloading {} from {}", file.path, plan.name.repo),
        address: client.repo(&plan.name.repo, &plan.commit).url(&encode_path(&file.path)),
        bytes: file.bytes,
    };
    download(client, &wanted, &part, progress).map_err(|error| match error {
        TransferError::Hub(source) => {
            let have = fs::metadata(&part).map_or(0, |found| found.len());
            HubError::from_transfer(client, &plan.name, file, have, source)
        }
        TransferError::Io(source) => HubError::io(&part, plan.missing(), source),
    })?;
    let found = hash(&part, progress)?;
    if found != file.hash.hex() {
        fs::remove_file(&part).map_err(io_error)?;
        let (repo, path, expected) = (plan.name.repo.clone(), file.path.clone(), file.hash.hex().to_owned());
        return Err(HubError::WrongHash { repo, file: path, kind: file.hash.kind(), expected, found });
    }
    fs::rename(&part, &blob).map_err(io_error)?;
    lock.remove();
    Ok(())
}

/// Checks that the configuration is supported and that the index names the selected shards.
fn check_side_files(cache: &RepositoryCache, plan: &HubFetch) -> Result<(), HubError> {
    let unreadable = |source: BoxedError| HubError::Unreadable { name: plan.name.to_string(), source };
    let read = |name: &str| {
        let file = plan.files.iter().find(|file| file.path == name)?;
        Some(fs::read(cache.blob(file)).map_err(|source| HubError::io(&cache.blob(file), 0, source)))
    };
    if let Some(text) = read("config.json").transpose()? {
        let config =
            serde_json::from_slice(&text).map_err(|error| unreadable(format!("its config.json: {error}").into()))?;
        probity_models::read_config(&config).map_err(|error| unreadable(error.into()))?;
    }
    if let Some(text) = read(INDEX).transpose()? {
        let index = ShardIndex::parse(Path::new(INDEX), &text).map_err(|error| unreadable(error.into()))?;
        if let Some(shard) = index.shards().into_iter().find(|shard| !plan.files.iter().any(|file| file.path == *shard))
        {
            return Err(unreadable(format!("its index names `{shard}`, which is not one of its shards").into()));
        }
    }
    Ok(())
}

/// Links the files into the snapshot, `config.json` last, because a folder without it is not a model. Then updates the
/// revision's reference.
fn install(cache: &RepositoryCache, plan: &HubFetch) -> Result<(), (PathBuf, io::Error)> {
    let (config, others): (Vec<_>, Vec<_>) = plan.files.iter().partition(|file| file.path == "config.json");
    for file in others.into_iter().chain(config) {
        let link = plan.folder.join(&file.path);
        place(&cache.blob(file), &link, &file.path).map_err(|source| (link, source))?;
    }
    let revision = plan.name.revision();
    if revision == plan.commit {
        return Ok(());
    }
    cache.repo.create_ref(&plan.commit).map_err(|source| (cache.folder.join("refs").join(revision), source))
}

/// Creates a relative link to the blob, like other tools. Falls back to a hard link or a copy.
fn place(blob: &Path, link: &Path, path: &str) -> io::Result<()> {
    if fs::canonicalize(link).is_ok_and(|found| fs::canonicalize(blob).is_ok_and(|blob| blob == found)) {
        return Ok(());
    }
    fs::create_dir_all(link.parent().expect("below the snapshot"))?;
    if fs::symlink_metadata(link).is_ok() {
        fs::remove_file(link)?;
    }
    // Out of the folders of its path, the commit and `snapshots`.
    let up = "../".repeat(path.split('/').count() + 1);
    let name = blob.file_name().expect("a blob has the name of its hash");
    symlink(&Path::new(&up).join("blobs").join(name), link)
        .or_else(|_| fs::hard_link(blob, link))
        .or_else(|_| fs::copy(blob, link).map(drop))
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The folder itself, or its nearest existing ancestor.
fn nearest_folder(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.is_dir())
}

#[cfg(test)]
#[path = "fetch_repository_tests.rs"]
mod tests;
