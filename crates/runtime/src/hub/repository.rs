//! What the hub says about a repository: the commit of a revision, and its files with their hashes.

use serde_json::Value;

use super::client::{HubClient, RequestError, encode, encode_path};
use super::name::stays_inside;
use super::transfer::ContentHash;

/// Pages of a list, at most: no repository of a model has a hundred thousand files.
const PAGES: usize = 100;

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// Its path in the repository.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// What it must hash to.
    pub hash: ContentHash,
}

/// A repository at a commit.
#[derive(Debug, Clone)]
pub(super) struct HubRepository {
    /// The commit in hex.
    pub(super) commit: String,
    pub(super) files: Vec<RemoteFile>,
    /// What its page states.
    pub(super) licence: Option<String>,
}

impl HubRepository {
    /// Asks for the commit of a revision, then for that commit's files: whatever is pushed meanwhile, the two belong
    /// together.
    pub(super) fn read(client: &HubClient, repo: &str, revision: &str) -> Result<Self, RequestError> {
        let api = format!("/api/models/{}", encode_path(repo));
        let info = client.page(&format!("{api}/revision/{}", encode(revision)))?.json;
        let commit = info["sha"].as_str().filter(|sha| is_hex(sha, &[40, 64])).map(str::to_owned);
        let commit = commit.ok_or_else(|| RequestError::Answer("it names no commit of the revision".into()))?;
        let mut tags = info["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let licence = tags.find_map(|tag| tag.strip_prefix("license:")).map(str::to_owned);
        let mut files = Vec::new();
        // By the commit, not the branch, which may move between two questions.
        let mut next = Some(format!("{api}/tree/{commit}?recursive=true"));
        for _ in 0..PAGES {
            let Some(path) = next.take() else { break };
            let page = client.page(&path)?;
            let entries =
                page.json.as_array().ok_or_else(|| RequestError::Answer("its list of files is no list".into()))?;
            files.extend(entries.iter().filter_map(remote_file));
            next = page.next;
        }
        Ok(Self { commit, files, licence })
    }

    /// The branches and tags that there are.
    pub(super) fn revisions(client: &HubClient, repo: &str) -> Vec<String> {
        let Ok(page) = client.page(&format!("/api/models/{}/refs", encode_path(repo))) else { return Vec::new() };
        let names = |kind: &str| {
            let list = page.json[kind].as_array().into_iter().flatten();
            list.filter_map(|entry| entry["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        [names("branches"), names("tags")].concat()
    }

    /// Names of repositories of the same organisation.
    pub(super) fn siblings(client: &HubClient, repo: &str) -> Vec<String> {
        let Some((organisation, _)) = repo.split_once('/') else { return Vec::new() };
        let Ok(page) = client.page(&format!("/api/models?author={}&limit=500", encode(organisation))) else {
            return Vec::new();
        };
        page.json.as_array().into_iter().flatten().filter_map(|model| model["id"].as_str().map(str::to_owned)).collect()
    }
}

/// An entry of the tree that is a file; one without a usable path, size or hash counts as absent.
fn remote_file(entry: &Value) -> Option<RemoteFile> {
    if entry["type"] != "file" {
        return None;
    }
    let path = entry["path"].as_str().filter(|path| stays_inside(path))?.to_owned();
    let text = |value: &Value| value.as_str().map(str::to_ascii_lowercase);
    let large = &entry["lfs"];
    if large.is_object() {
        let hash = text(&large["oid"]).or_else(|| text(&large["sha256"])).filter(|hash| is_hex(hash, &[64]))?;
        return Some(RemoteFile { path, bytes: large["size"].as_u64()?, hash: ContentHash::Sha256(hash) });
    }
    let hash = text(&entry["oid"]).filter(|hash| is_hex(hash, &[40]))?;
    Some(RemoteFile { path, bytes: entry["size"].as_u64()?, hash: ContentHash::GitBlob(hash) })
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
        let config = file(json!({"type": "file", "oid": small, "size": 7, "path": "config.json"})).expect("small");
        assert_eq!((config.bytes, config.hash), (7, ContentHash::GitBlob(small.clone())));
        let weights =
            json!({"type": "file", "oid": small, "size": 9, "path": "m.gguf", "lfs": {"oid": large, "size": 9}});
        assert_eq!(file(weights).expect("large").hash, ContentHash::Sha256(large));
        for entry in [
            json!({"type": "directory", "oid": small, "size": 0, "path": "onnx"}),
            json!({"type": "file", "oid": "../../x", "size": 7, "path": "config.json"}),
            json!({"type": "file", "oid": small, "size": 7, "path": "../config.json"}),
            json!({"type": "file", "oid": small, "size": 9, "path": "m.gguf", "lfs": {"oid": "short", "size": 9}}),
        ] {
            assert_eq!(file(entry.clone()), None, "{entry}");
        }
    }
}
