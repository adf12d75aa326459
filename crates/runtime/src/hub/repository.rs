//! Repository metadata from the hub: the commit of a revision, and its files with their hashes.

use serde_json::Value;

use super::client::{HubClient, RequestError};
use super::name::stays_inside;
use super::transfer::ContentHash;

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// Path in the repository.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Expected hash.
    pub hash: ContentHash,
}

/// A repository at a commit.
#[derive(Debug, Clone)]
pub(super) struct HubRepository {
    /// The commit in hex.
    pub(super) commit: String,
    pub(super) files: Vec<RemoteFile>,
    /// Licence from its page.
    pub(super) licence: Option<String>,
}

impl HubRepository {
    /// Gets a revision: one answer contains its commit and the files of that commit.
    pub(super) fn read(client: &HubClient, repo: &str, revision: &str) -> Result<Self, RequestError> {
        let repo = client.repo(repo, revision);
        let info = client.json(|| repo.info_request().query("blobs", "true"))?;
        let commit = info["sha"].as_str().filter(|sha| is_hex(sha, &[40, 64])).map(str::to_owned);
        let commit = commit.ok_or_else(|| RequestError::Answer("it names no commit of the revision".into()))?;
        let mut tags = info["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let licence = tags.find_map(|tag| tag.strip_prefix("license:")).map(str::to_owned);
        let listed = info["siblings"].as_array().ok_or_else(|| RequestError::Answer("it lists no files".into()))?;
        let files: Vec<RemoteFile> = listed.iter().filter_map(remote_file).collect();
        if files.is_empty() && !listed.is_empty() {
            return Err(RequestError::Answer("it lists files without their sizes and hashes".into()));
        }
        Ok(Self { commit, files, licence })
    }

    /// Available branches and tags.
    pub(super) fn revisions(client: &HubClient, repo: &str) -> Vec<String> {
        let Ok(answer) = client.api(&format!("models/{repo}/refs")) else { return Vec::new() };
        let names = |kind: &str| {
            let list = answer[kind].as_array().into_iter().flatten();
            list.filter_map(|entry| entry["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        [names("branches"), names("tags")].concat()
    }

    /// Repositories of the same organisation.
    pub(super) fn siblings(client: &HubClient, repo: &str) -> Vec<String> {
        let Some((organisation, _)) = repo.split_once('/') else { return Vec::new() };
        let Ok(answer) = client.api(&format!("models?author={organisation}&limit=500")) else {
            return Vec::new();
        };
        answer.as_array().into_iter().flatten().filter_map(|model| model["id"].as_str().map(str::to_owned)).collect()
    }
}

/// Parses a listed file; `None` without a usable path, size or hash.
fn remote_file(entry: &Value) -> Option<RemoteFile> {
    let path = entry["rfilename"].as_str().filter(|path| stays_inside(path))?.to_owned();
    let hash = |value: &Value, digits: usize| {
        value.as_str().map(str::to_ascii_lowercase).filter(|hash| is_hex(hash, &[digits]))
    };
    let large = &entry["lfs"];
    if large.is_object() {
        let hash = ContentHash::Sha256(hash(&large["sha256"], 64)?);
        return Some(RemoteFile { path, bytes: large["size"].as_u64()?, hash });
    }
    Some(RemoteFile { path, bytes: entry["size"].as_u64()?, hash: ContentHash::GitBlob(hash(&entry["blobId"], 40)?) })
}

fn is_hex(text: &str, lengths: &[usize]) -> bool {
    lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_without_a_usable_hash_or_path_is_none() {
        let (small, large) = ("a".repeat(40), "b".repeat(64));
        let file = |entry: Value| remote_file(&entry);
        let config = file(json!({"rfilename": "config.json", "blobId": small, "size": 7})).expect("small");
        assert_eq!((config.bytes, config.hash), (7, ContentHash::GitBlob(small.clone())));
        let weights = json!({"rfilename": "m.gguf", "blobId": small, "size": 9, "lfs": {"sha256": large, "size": 9}});
        assert_eq!(file(weights).expect("large").hash, ContentHash::Sha256(large));
        for entry in [
            json!({"rfilename": "config.json", "blobId": "../../x", "size": 7}),
            json!({"rfilename": "config.json", "blobId": small}),
            json!({"rfilename": "config.json", "size": 7}),
            json!({"rfilename": "../config.json", "blobId": small, "size": 7}),
            json!({"rfilename": "/config.json", "blobId": small, "size": 7}),
            json!({"rfilename": "m.gguf", "blobId": small, "size": 9, "lfs": {"sha256": "short", "size": 9}}),
        ] {
            assert_eq!(file(entry.clone()), None, "{entry}");
        }
    }
}
