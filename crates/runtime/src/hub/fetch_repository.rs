//! Fetching any model of the hub into the Hugging Face cache, where [`locate`](super::locate()) and other tools find
//! it.
//!
//! A file comes to a folder of our own beside the cache's, under the name of its hash; it moves to `blobs` when it is
//! whole and right. The snapshot gets its links when all files are there, and the reference of the revision comes last:
//! nothing half is ever found.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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

/// What [`Fetcher::get_from_hub`] would fetch, or did.
#[derive(Debug, Clone)]
pub struct HubFetch {
    /// The model.
    pub name: HubName,
    /// The commit that its revision is now.
    pub commit: String,
    /// Its files, the weights last.
    pub files: Vec<RemoteFile>,
    /// How many bytes of each file are here.
    pub here: Vec<u64>,
    /// The snapshot's folder in the cache.
    pub folder: PathBuf,
    /// What the repository's page states.
    pub licence: Option<String>,
    /// Bytes free there, where known.
    pub space: Option<u64>,
}

impl HubFetch {
    /// All files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// What is not here yet.
    pub fn missing(&self) -> u64 {
        self.bytes() - self.here.iter().sum::<u64>()
    }

    /// The weights alone.
    pub fn weight_bytes(&self) -> u64 {
        self.files.iter().filter(|file| is_weights(&file.path)).map(|file| file.bytes).sum()
    }
}

fn is_weights(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "gguf" || extension == "safetensors")
}

/// A repository's folder in the cache.
struct RepositoryCache {
    folder: PathBuf,
}

impl RepositoryCache {
    fn blob(&self, file: &RemoteFile) -> PathBuf {
        self.folder.join("blobs").join(file.hash.hex())
    }

    fn part(&self, file: &RemoteFile) -> PathBuf {
        self.folder.join(".probity").join(file.hash.hex())
    }

    fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// How many bytes of a file are here.
    fn here(&self, file: &RemoteFile) -> u64 {
        let size = |path: PathBuf| fs::metadata(path).ok().map(|found| found.len());
        match size(self.blob(file)) {
            Some(bytes) if bytes == file.bytes => bytes,
            _ => size(self.part(file)).unwrap_or(0).min(file.bytes),
        }
    }
}

impl Fetcher {
    /// Asks the hub what a name means, and looks what of it is here. Fetches nothing.
    pub fn plan_from_hub(&self, name: &HubName) -> Result<HubFetch, HubError> {
        let client = self.client();
        let repository = repository(&client, name)?;
        let paths: Vec<&str> = repository.files.iter().map(|file| file.path.as_str()).collect();
        let chosen =
            select(&paths, name.file.as_deref()).map_err(|why| HubError::of_choice(name, why, &repository.files))?;
        let file =
            |path: &str| repository.files.iter().find(|file| file.path == path).expect("chosen from these").clone();
        let files: Vec<RemoteFile> = chosen.into_iter().map(file).collect();
        let cache = self.cache(name);
        Ok(HubFetch {
            name: name.clone(),
            here: files.iter().map(|file| cache.here(file)).collect(),
            folder: cache.snapshot(&repository.commit),
            commit: repository.commit,
            files,
            licence: repository.licence,
            space: nearest_folder(&cache.folder).and_then(available_bytes),
        })
    }

    /// Makes the files of a plan be here, each with its right hash.
    pub fn get_from_hub(&self, plan: &HubFetch, progress: &mut dyn TransferProgress) -> Result<(), HubError> {
        let (client, cache) = (self.client(), self.cache(&plan.name));
        let own = cache.folder.join(".probity");
        fs::create_dir_all(&own).map_err(|source| HubError::io(&own, plan.missing(), source))?;
        if let Some(available) = plan.space.filter(|&space| space < plan.missing()) {
            return Err(HubError::DiskFull { path: cache.folder, needed: plan.missing(), available: Some(available) });
        }
        let lock = Lock::take(own.join("lock"), &plan.name.to_string())?;
        let (weights, side): (Vec<_>, Vec<_>) = plan.files.iter().partition(|file| is_weights(&file.path));
        for file in side {
            bring(&client, &cache, plan, file, progress)?;
        }
        // What could not be read in the end is told before the weights come.
        check_side_files(&cache, plan)?;
        for file in weights {
            bring(&client, &cache, plan, file, progress)?;
        }
        install(&cache, plan).map_err(|(path, source)| HubError::io(&path, plan.missing(), source))?;
        drop(lock);
        // What is left in it is of other files that have not come yet.
        let _ = fs::remove_file(own.join("lock")).and_then(|()| fs::remove_dir(&own));
        Ok(())
    }

    fn cache(&self, name: &HubName) -> RepositoryCache {
        RepositoryCache { folder: self.places.hf_cache.join(name.folder()) }
    }
}

fn repository(client: &HubClient, name: &HubName) -> Result<HubRepository, HubError> {
    let endpoint = client.endpoint().to_owned();
    client.knock().map_err(|why| HubError::Unreachable { name: name.to_string(), endpoint, why: why.to_string() })?;
    HubRepository::read(client, &name.repo, name.revision())
        .map_err(|error| HubError::of_repository(client, name, error))
}

/// Makes one file be among the blobs, with the right hash.
fn bring(
    client: &HubClient,
    cache: &RepositoryCache,
    plan: &HubFetch,
    file: &RemoteFile,
    progress: &mut dyn TransferProgress,
) -> Result<(), HubError> {
    let (blob, part) = (cache.blob(file), cache.part(file));
    let io_error = |source| HubError::io(&blob, plan.missing(), source);
    if fs::metadata(&blob).is_ok_and(|found| found.len() == file.bytes) {
        progress.begin(&format!("hashing {}", file.path), Some(file.bytes));
        if file.hash.of(&blob, progress).map_err(io_error)? == file.hash.hex() {
            return Ok(());
        }
        progress.notice(&format!("{} is damaged and will be replaced", blob.display()));
    }
    let wanted = WantedFile {
        what: format!("downloading {} from {}", file.path, plan.name.repo),
        path: format!("/{}/resolve/{}/{}", encode_path(&plan.name.repo), plan.commit, encode_path(&file.path)),
        bytes: file.bytes,
        hash: &file.hash,
    };
    download(client, &wanted, &part, progress).map_err(|error| match error {
        TransferError::Request { have, source } => HubError::of_transfer(client, &plan.name, file, have, source),
        TransferError::WrongHash { found } => HubError::WrongHash {
            repo: plan.name.repo.clone(),
            file: file.path.clone(),
            kind: file.hash.kind(),
            expected: file.hash.hex().to_owned(),
            found,
        },
        TransferError::Io { path, source } => HubError::io(&path, plan.missing(), source),
    })?;
    let place = || {
        fs::create_dir_all(blob.parent().expect("below the cache"))?;
        fs::rename(&part, &blob)
    };
    place().map_err(io_error)
}

/// Whether the configuration is one that we read, and the index names the shards that were chosen.
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
            return Err(unreadable(format!("its index names `{shard}`, which is not among its shards").into()));
        }
    }
    Ok(())
}

/// Links the files into the snapshot, `config.json` last: a folder without it is no model. Then the revision points to
/// the commit.
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
    let reference = cache.folder.join("refs").join(revision);
    let write = || {
        let parent = reference.parent().expect("below refs");
        fs::create_dir_all(parent)?;
        // Written aside and renamed: other tools read the reference at any moment.
        let fresh = parent.join(".probity-new");
        fs::write(&fresh, &plan.commit)?;
        fs::rename(&fresh, &reference)
    };
    write().map_err(|source| (reference.clone(), source))
}

/// Makes `link` be the blob: a relative link, as other tools make it; where there are no links, the file itself.
fn place(blob: &Path, link: &Path, path: &str) -> io::Result<()> {
    if fs::canonicalize(link).is_ok_and(|found| fs::canonicalize(blob).is_ok_and(|blob| blob == found)) {
        return Ok(());
    }
    fs::create_dir_all(link.parent().expect("below the snapshot"))?;
    if fs::symlink_metadata(link).is_ok() {
        fs::remove_file(link)?;
    }
    // Out of the folders of its path, of the commit's and of `snapshots`.
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

/// The folder itself, or the first above it that exists.
fn nearest_folder(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.is_dir())
}

#[cfg(test)]
#[path = "fetch_repository_tests.rs"]
mod tests;
