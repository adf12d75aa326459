//! Errors of downloads from the hub, with hints.

use std::io;
use std::path::{Path, PathBuf};

use probity_lm::{BoxedError, did_you_mean, nearest};

use super::client::{HubClient, RequestError};
use super::fetch::FetchError;
use super::judges::{KnownJudge, judges};
use super::name::HubName;
use super::repository::{HubRepository, RemoteFile};
use super::selection::NoChoice;

/// Why a hub model could not be downloaded. Partial files are kept for the next attempt, unless their content was
/// wrong.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum HubError {
    /// The hub is unreachable.
    #[error("cannot reach the hub at {endpoint}: {why}")]
    #[diagnostic(help(
        "check the connection, or set HF_ENDPOINT to a mirror; a model downloaded before works offline: --model {name}"
    ))]
    Unreachable {
        /// The model.
        name: String,
        /// The hub's address.
        endpoint: String,
        /// Cause.
        why: String,
    },
    /// The owner requires accepting terms.
    #[error(
        "`{repo}` is gated: you must accept its terms{}",
        if *has_token { ", and your token has no access" } else { ", and no token is set" }
    )]
    #[diagnostic(help(
        "accept them at {endpoint}/{repo}, create a token at {endpoint}/settings/tokens that can read gated \
         repositories, then run HF_TOKEN=… probity model get {name}"
    ))]
    Gated {
        /// The repository.
        repo: String,
        /// Model name as the user wrote it.
        name: String,
        /// The hub's address.
        endpoint: String,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The repository does not exist or is private.
    #[error(
        "the hub at {endpoint} has no repository `{repo}`{}",
        did_you_mean(nearest.as_deref())
    )]
    #[diagnostic(help(
        "check the name; {}",
        if *has_token {
            "for a private repository, use a token that can read it"
        } else {
            "for a private repository, set HF_TOKEN=… or run `hf auth login`"
        }
    ))]
    NoRepository {
        /// The repository.
        repo: String,
        /// The hub's address.
        endpoint: String,
        /// A similar name, if any.
        nearest: Option<String>,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The repository has no such branch, tag or commit.
    #[error(
        "`{repo}` has no revision `{revision}`{}\n  it has {}",
        did_you_mean(nearest.as_deref()), listed(revisions)
    )]
    #[diagnostic(help("omit --revision for `main`, or use a full commit hash"))]
    NoRevision {
        /// The repository.
        repo: String,
        /// The requested revision.
        revision: String,
        /// A similar name, if any.
        nearest: Option<String>,
        /// Available branches and tags.
        revisions: Vec<String>,
    },
    /// The repository has no such GGUF file.
    #[error(
        "`{repo}` has no GGUF file `{file}`{}\n  it has {}",
        did_you_mean(nearest.as_deref()), listed(held)
    )]
    #[diagnostic(help(
        "{}",
        if held.is_empty() { format!("probity model get {repo} downloads its \
                                      safetensors") } else { format!("probity model get {repo}:{}", held[0]) }
    ))]
    NoFile {
        /// The repository.
        repo: String,
        /// The requested file.
        file: String,
        /// A similar file, if any.
        nearest: Option<String>,
        /// Available GGUF files.
        held: Vec<String>,
    },
    /// Several files match.
    #[error("`{name}` matches {} files:\n{}", held.len(), lines(held))]
    #[diagnostic(help("choose one by its name or its quantisation: probity model get {example}"))]
    Several {
        /// Model name as the user wrote it.
        name: String,
        /// The files, each with its size.
        held: Vec<(String, u64)>,
        /// An example file.
        example: String,
    },
    /// The repository's files are not supported.
    #[error("`{name}` cannot be used here: {source}")]
    #[diagnostic(help("choose a repository with GGUF or safetensors files; `probity model list` names some"))]
    Unreadable {
        /// The model.
        name: String,
        /// Cause.
        #[diagnostic_source]
        source: BoxedError,
    },
    /// The hub did not return a file, or the transfer was interrupted.
    #[error("`{file}` of {name} is incomplete: {why}\n  {have} of {bytes} bytes downloaded")]
    #[diagnostic(help("run probity model get {name} to continue where it stopped"))]
    Broken {
        /// The model.
        name: String,
        /// The file.
        file: String,
        /// Bytes downloaded so far.
        have: u64,
        /// Size of the file.
        bytes: u64,
        /// Cause.
        why: String,
    },
    /// The hub's answer is invalid.
    #[error("the hub at {endpoint} sent an invalid answer about `{repo}`: {why}")]
    #[diagnostic(help("try again later, and check that HF_ENDPOINT is a hub"))]
    Answer {
        /// The repository.
        repo: String,
        /// The hub's address.
        endpoint: String,
        /// Description of the problem.
        why: String,
    },
    /// The downloaded file has the wrong content.
    #[error(
        "`{file}` of {repo} had the wrong content and was removed\n  expected {kind} {expected}\n  found    {kind} \
         {found}"
    )]
    #[diagnostic(help("try again; if it fails again, check proxies between you and the hub"))]
    WrongHash {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
        /// Kind of hash.
        kind: &'static str,
        /// Expected hash.
        expected: String,
        /// Actual hash.
        found: String,
    },
    /// Not enough disk space, before or during the download.
    #[error(
        "not enough space in {}: {needed} bytes needed{}",
        path.display(), available.map(|bytes| format!(", {bytes} available")).unwrap_or_default()
    )]
    #[diagnostic(help("free some space, or set HF_HUB_CACHE to a folder on another disk"))]
    DiskFull {
        /// The folder.
        path: PathBuf,
        /// Bytes still to download.
        needed: u64,
        /// Bytes free, if known.
        available: Option<u64>,
    },
    /// A local file error, or another process holds the lock.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Here(#[from] FetchError),
}

fn listed(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    if names.is_empty() { "none".to_owned() } else { names[..names.len().min(SHOWN)].join(", ") + &more }
}

fn lines(files: &[(String, u64)]) -> String {
    let line = |(path, bytes): &(String, u64)| format!("  {:>6.2} GB  {path}", *bytes as f64 / 1e9);
    files.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl HubError {
    /// An I/O error at `path` with `needed` bytes still to download.
    pub(super) fn io(path: &Path, needed: u64, source: io::Error) -> Self {
        match FetchError::io(path, needed, source) {
            FetchError::DiskFull { path, needed, available } => Self::DiskFull { path, needed, available },
            other => Self::Here(other),
        }
    }

    /// The error for a failed request about a repository.
    pub(super) fn from_repository_request(client: &HubClient, name: &HubName, error: RequestError) -> Self {
        let (repo, endpoint, has_token) = (name.repo.clone(), client.endpoint().to_owned(), client.has_token());
        match error {
            RequestError::Connection(why) => Self::Unreachable { name: name.to_string(), endpoint, why },
            RequestError::Status { code: Some(code), .. } if code == "GatedRepo" => {
                Self::Gated { repo, name: name.to_string(), endpoint, has_token }
            }
            RequestError::Status { code: Some(code), .. } if code == "RevisionNotFound" => {
                let (revision, revisions) = (name.revision().to_owned(), HubRepository::revisions(client, &repo));
                let nearest = nearest(&revision, revisions.iter().map(String::as_str)).map(str::to_owned);
                Self::NoRevision { repo, revision, nearest, revisions }
            }
            // The hub also returns 401 for missing repositories, so as not to reveal private ones.
            RequestError::Status { status: 401 | 403 | 404, .. } => {
                let siblings = HubRepository::siblings(client, &repo);
                let known = judges().iter().flat_map(KnownJudge::repositories).map(str::to_owned);
                let names: Vec<String> = siblings.into_iter().chain(known).filter(|name| *name != repo).collect();
                let nearest = nearest(&repo, names.iter().map(String::as_str)).map(str::to_owned);
                Self::NoRepository { repo, endpoint, nearest, has_token }
            }
            other => Self::Answer { repo, endpoint, why: other.to_string() },
        }
    }

    /// The error for a failed download of a file in a known repository.
    pub(super) fn from_transfer(
        client: &HubClient,
        name: &HubName,
        file: &RemoteFile,
        have: u64,
        error: RequestError,
    ) -> Self {
        match error {
            // The store behind the hub also returns 403, for an expired link. Only the hub itself knows about terms.
            RequestError::Status { code: Some(code), .. } if code == "GatedRepo" => Self::Gated {
                repo: name.repo.clone(),
                name: name.to_string(),
                endpoint: client.endpoint().to_owned(),
                has_token: client.has_token(),
            },
            other => Self::Broken {
                name: name.to_string(),
                file: file.path.clone(),
                have,
                bytes: file.bytes,
                why: other.to_string(),
            },
        }
    }

    /// The error if no file or several files of a repository match.
    pub(super) fn from_no_choice(name: &HubName, why: NoChoice, files: &[RemoteFile]) -> Self {
        match why {
            NoChoice::NoFile(held) => {
                let file = name.file.clone().unwrap_or_default();
                let nearest = nearest(&file, held.iter().map(String::as_str)).map(str::to_owned);
                Self::NoFile { repo: name.repo.clone(), file, nearest, held }
            }
            NoChoice::Several(paths) => {
                let bytes = |path: &String| files.iter().find(|file| file.path == *path).map_or(0, |file| file.bytes);
                let example = HubName { file: paths.first().cloned(), ..name.clone() }.to_string();
                Self::Several {
                    name: name.to_string(),
                    held: paths.iter().map(|path| (path.clone(), bytes(path))).collect(),
                    example,
                }
            }
            NoChoice::Unreadable(why) => Self::Unreadable { name: name.to_string(), source: why.into() },
        }
    }
}
