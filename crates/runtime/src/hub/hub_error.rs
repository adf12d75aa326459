//! Why a model of the hub could not be fetched, and what to do then.

use std::io;
use std::path::{Path, PathBuf};

use probity_lm::{BoxedError, did_you_mean, nearest};

use super::client::{HubClient, RequestError};
use super::fetch::FetchError;
use super::judges::{KnownJudge, judges};
use super::name::HubName;
use super::repository::{HubRepository, RemoteFile};
use super::selection::NoChoice;

/// Why a model of the hub could not be fetched. What had come in is kept for the next try, unless its content was
/// wrong.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum HubError {
    /// No connection to the hub.
    #[error("cannot reach the hub at {endpoint}: {why}")]
    #[diagnostic(help(
        "check the connection, or set HF_ENDPOINT to a mirror; a model that was fetched before works without it: \
         --model {name}"
    ))]
    Unreachable {
        /// The model.
        name: String,
        /// Its address.
        endpoint: String,
        /// Why.
        why: String,
    },
    /// The owner wants terms to be accepted.
    #[error(
        "`{repo}` is gated: its owner wants you to accept terms{}",
        if *has_token { ", and your token has no access" } else { ", and there is no token" }
    )]
    #[diagnostic(help(
        "accept them at {endpoint}/{repo}, make a token at {endpoint}/settings/tokens that may read gated \
         repositories, then HF_TOKEN=… probity model get {name}"
    ))]
    Gated {
        /// The repository.
        repo: String,
        /// The model as it was named.
        name: String,
        /// The hub.
        endpoint: String,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The hub does not show such a repository.
    #[error(
        "the hub at {endpoint} shows no repository `{repo}`{}",
        did_you_mean(nearest.as_deref())
    )]
    #[diagnostic(help(
        "check the name; {}",
        if *has_token {
            "where it is private, your token must be allowed to read it"
        } else {
            "a private one needs a token: HF_TOKEN=…, or `hf auth login`"
        }
    ))]
    NoRepository {
        /// The repository.
        repo: String,
        /// The hub.
        endpoint: String,
        /// A name like it, where there is one.
        nearest: Option<String>,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The repository has no such branch, tag or commit.
    #[error(
        "`{repo}` has no revision `{revision}`{}\n  it has {}",
        did_you_mean(nearest.as_deref()), listed(revisions)
    )]
    #[diagnostic(help("leave --revision out for `main`, or give a full commit"))]
    NoRevision {
        /// The repository.
        repo: String,
        /// What was asked for.
        revision: String,
        /// A name like it, where there is one.
        nearest: Option<String>,
        /// The branches and tags that there are.
        revisions: Vec<String>,
    },
    /// The repository has no such GGUF file.
    #[error(
        "`{repo}` has no GGUF file `{file}`{}\n  it has {}",
        did_you_mean(nearest.as_deref()), listed(held)
    )]
    #[diagnostic(help(
        "{}",
        if held.is_empty() { format!("probity model get {repo} fetches its \
                                      safetensors") } else { format!("probity model get {repo}:{}", held[0]) }
    ))]
    NoFile {
        /// The repository.
        repo: String,
        /// What was asked for.
        file: String,
        /// A file like it, where there is one.
        nearest: Option<String>,
        /// The GGUF files that there are.
        held: Vec<String>,
    },
    /// Several files fit.
    #[error("`{name}` could be {} files:\n{}", held.len(), lines(held))]
    #[diagnostic(help("choose one, by its name or its quantisation: probity model get {example}"))]
    Several {
        /// The model as it was named.
        name: String,
        /// The files, each with its size.
        held: Vec<(String, u64)>,
        /// One of them.
        example: String,
    },
    /// What the repository holds cannot be read here.
    #[error("`{name}` cannot be used here: {source}")]
    #[diagnostic(help("look for a repository that has it as GGUF or safetensors; `probity model list` names some"))]
    Unreadable {
        /// The model.
        name: String,
        /// Why.
        #[diagnostic_source]
        source: BoxedError,
    },
    /// The hub did not give a file, or stopped giving it.
    #[error("`{file}` of {name} did not come whole: {why}\n  {have} of {bytes} bytes are here")]
    #[diagnostic(help("probity model get {name} goes on where it stopped"))]
    Broken {
        /// The model.
        name: String,
        /// The file.
        file: String,
        /// Bytes that are here.
        have: u64,
        /// Its size.
        bytes: u64,
        /// Why.
        why: String,
    },
    /// The hub's answer makes no sense.
    #[error("the hub at {endpoint} gave no answer about `{repo}` that can be used: {why}")]
    #[diagnostic(help("try again later; is HF_ENDPOINT a hub?"))]
    Answer {
        /// The repository.
        repo: String,
        /// The hub.
        endpoint: String,
        /// What is wrong.
        why: String,
    },
    /// The whole came, and is not what it should be.
    #[error(
        "`{file}` of {repo} came with the wrong content and was removed\n  expected {kind} {expected}\n  found    \
         {kind} {found}"
    )]
    #[diagnostic(help("try again; if it stays so, something between you and the hub changes what you get"))]
    WrongHash {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
        /// Which hash.
        kind: &'static str,
        /// What it should hash to.
        expected: String,
        /// What it hashes to.
        found: String,
    },
    /// Not enough space, seen before or while writing.
    #[error(
        "not enough space in {}: {needed} bytes needed{}",
        path.display(), available.map(|bytes| format!(", {bytes} available")).unwrap_or_default()
    )]
    #[diagnostic(help("free some, or set HF_HUB_CACHE to a folder on another disk"))]
    DiskFull {
        /// The folder.
        path: PathBuf,
        /// Bytes that were still to come.
        needed: u64,
        /// Bytes free, where known.
        available: Option<u64>,
    },
    /// A file of ours, or another process.
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
    /// An i/o error at `path` with `needed` bytes still to come.
    pub(super) fn io(path: &Path, needed: u64, source: io::Error) -> Self {
        match FetchError::io(path, needed, source) {
            FetchError::DiskFull { path, needed, available } => Self::DiskFull { path, needed, available },
            other => Self::Here(other),
        }
    }

    /// Why the hub says nothing about a repository.
    pub(super) fn of_repository(client: &HubClient, name: &HubName, error: RequestError) -> Self {
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
            // The hub says 401 of what is not there too, lest it tell what is private.
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

    /// Why a file of a repository that was just seen did not come.
    pub(super) fn of_transfer(
        client: &HubClient,
        name: &HubName,
        file: &RemoteFile,
        have: u64,
        error: RequestError,
    ) -> Self {
        match error {
            // The store behind the hub says 403 too, of a link that has expired: only the hub knows of terms.
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

    /// Why no file of a repository is meant.
    pub(super) fn of_choice(name: &HubName, why: NoChoice, files: &[RemoteFile]) -> Self {
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
