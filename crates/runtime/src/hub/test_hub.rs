//! A local test hub that behaves like the Hugging Face hub, with configurable faults.
//!
//! Files are served by a second socket, to which `resolve` redirects. Data for the hub only (the token) must not be
//! sent there.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// The commit of every branch.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file of the repository.
#[derive(Clone)]
pub(crate) struct TestFile {
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
    /// SHA-256 of a large file; its git id is then that of a pointer.
    pub(crate) sha256: Option<String>,
    /// Git object id.
    pub(crate) oid: String,
}

/// Faults to simulate.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    /// Transfers of large files end after these numbers of bytes, in sequence.
    pub(crate) cut_after: Vec<usize>,
    /// Ranges are answered with the whole file.
    pub(crate) ignores_ranges: bool,
    /// Requests without this token get 401.
    pub(crate) token: Option<String>,
    /// File requests get 403: the terms were not accepted.
    pub(crate) gated: bool,
    /// `ETag` of large files instead of their hash.
    pub(crate) etag: Option<String>,
    /// Number of API requests that get 503 first.
    pub(crate) busy: usize,
}

struct State {
    files: Vec<TestFile>,
    faults: Faults,
    asked: Vec<String>,
    store: String,
}

/// Serves the repository `org/toy` with branch `main` and tag `v1` until dropped.
pub(crate) struct TestHub {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
}

struct Asked {
    path: String,
    query: String,
    /// First byte, and the last if given.
    range: Option<(usize, Option<usize>)>,
    token: Option<String>,
}

impl TestHub {
    pub(crate) fn start(files: Vec<TestFile>, faults: Faults) -> Self {
        let api = TcpListener::bind("127.0.0.1:0").expect("bind");
        let store = TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = |listener: &TcpListener| listener.local_addr().expect("address").port();
        // Two host names.
        let (endpoint, store_address) =
            (format!("http://127.0.0.1:{}", port(&api)), format!("http://localhost:{}", port(&store)));
        let state = State { files, faults, asked: Vec::new(), store: store_address };
        let state = Arc::new(Mutex::new(state));
        serve(api, &state, api_answer);
        serve(store, &state, store_answer);
        Self { endpoint, state }
    }

    /// One line per request: server, path, range, and whether a token was sent.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).asked.clone()
    }
}

fn serve(listener: TcpListener, state: &Arc<Mutex<State>>, answer: fn(&mut State, &Asked) -> Vec<u8>) {
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            if let Some(asked) = read(&stream) {
                let bytes = answer(&mut state.lock().unwrap_or_else(PoisonError::into_inner), &asked);
                let _ = stream.write_all(&bytes);
            }
        }
    });
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let target = lines.next()?.split(' ').nth(1)?.to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut asked = Asked { path: path.to_owned(), query: query.to_owned(), range: None, token: None };
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let (from, to) = value.strip_prefix("bytes=")?.split_once('-')?;
                asked.range = Some((from.parse().ok()?, to.parse().ok()));
            }
            "authorization" => asked.token = value.strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    Some(asked)
}

impl State {
    fn note(&mut self, place: &str, asked: &Asked) {
        let to = |to: Option<usize>| to.map(|to| to.to_string()).unwrap_or_default();
        let range = asked.range.map(|(from, end)| format!(" range bytes={from}-{}", to(end))).unwrap_or_default();
        let token = if asked.token.is_some() { " token" } else { "" };
        self.asked.push(format!("{place} {}{range}{token}", asked.path));
    }
}

fn answer(status: &str, headers: &[(&str, String)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.extend([name, ": ", value.as_str(), "\r\n"]);
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

fn refuse(status: &str, code: &str) -> Vec<u8> {
    answer(status, &[("x-error-code", code.to_owned()), ("x-error-message", format!("the hub says {code}"))], b"{}")
}

fn api_answer(state: &mut State, asked: &Asked) -> Vec<u8> {
    state.note("hub", asked);
    if state.faults.busy > 0 {
        state.faults.busy -= 1;
        return answer("503 Service Unavailable", &[], b"");
    }
    if asked.path.contains("org/renamed") {
        let to = asked.path.replacen("org/renamed", "org/toy", 1);
        return answer("307 Temporary Redirect", &[("location", format!("{to}?{}", asked.query))], b"");
    }
    if state.faults.token.is_some() && state.faults.token != asked.token {
        return refuse("401 Unauthorized", "RepoNotFound");
    }
    if let Some(rest) = asked.path.strip_prefix("/org/toy/resolve/") {
        return resolve(state, asked, rest);
    }
    if asked.path == "/api/models" {
        return answer("200 OK", &[], br#"[{"id":"org/toy"},{"id":"org/other"}]"#);
    }
    let Some(rest) = asked.path.strip_prefix("/api/models/org/toy") else {
        return refuse("404 Not Found", "RepoNotFound");
    };
    match rest {
        "/refs" => answer("200 OK", &[], br#"{"branches":[{"name":"main"}],"tags":[{"name":"v1"}]}"#),
        _ if rest.starts_with("/revision/") => match rest.trim_start_matches("/revision/") {
            "main" | "v1" | COMMIT => {
                let files = listing(state, asked.query.split('&').any(|part| part == "blobs=true"));
                let body = format!(
                    r#"{{"id":"org/toy","sha":"{COMMIT}","tags":["license:apache-2.0"],"siblings":[{files}]}}"#
                );
                answer("200 OK", &[], body.as_bytes())
            }
            _ => refuse("404 Not Found", "RevisionNotFound"),
        },
        _ => refuse("404 Not Found", "EntryNotFound"),
    }
}

fn listing(state: &State, with_hashes: bool) -> String {
    let entry = |file: &TestFile| {
        let (path, bytes, oid) = (&file.path, file.content.len(), &file.oid);
        if !with_hashes {
            return format!(r#"{{"rfilename":"{path}"}}"#);
        }
        let lfs = file
            .sha256
            .as_ref()
            .map(|hash| format!(r#","lfs":{{"sha256":"{hash}","size":{bytes},"pointerSize":134}}"#));
        format!(r#"{{"rfilename":"{path}","size":{bytes},"blobId":"{oid}"{}}}"#, lfs.unwrap_or_default())
    };
    state.files.iter().map(entry).collect::<Vec<_>>().join(",")
}

fn resolve(state: &State, asked: &Asked, rest: &str) -> Vec<u8> {
    let Some((revision, path)) = rest.split_once('/') else { return refuse("404 Not Found", "EntryNotFound") };
    if state.faults.gated {
        return refuse("403 Forbidden", "GatedRepo");
    }
    let Some(file) = state.files.iter().find(|file| file.path == path) else {
        return refuse("404 Not Found", "EntryNotFound");
    };
    if !matches!(revision, "main" | "v1" | COMMIT) {
        return refuse("404 Not Found", "RevisionNotFound");
    }
    let commit = ("x-repo-commit", COMMIT.to_owned());
    match &file.sha256 {
        Some(hash) => {
            let etag = state.faults.etag.as_ref().unwrap_or(hash);
            let to = format!("{}/{path}?signed=yes", state.store);
            answer("302 Found", &[("location", to), ("x-linked-etag", format!("\"{etag}\"")), commit], b"")
        }
        None => content(file, asked.range, vec![("etag", format!("\"{}\"", file.oid)), commit]),
    }
}

/// The content of a file, or a range of it.
fn content(
    file: &TestFile,
    range: Option<(usize, Option<usize>)>,
    mut headers: Vec<(&'static str, String)>,
) -> Vec<u8> {
    let total = file.content.len();
    let Some((from, to)) = range else { return answer("200 OK", &headers, &file.content) };
    if from >= total {
        return answer("416 Range Not Satisfiable", &[], b"");
    }
    let to = to.unwrap_or(total - 1);
    headers.push(("content-range", format!("bytes {from}-{to}/{total}")));
    answer("206 Partial Content", &headers, &file.content[from..=to])
}

fn store_answer(state: &mut State, asked: &Asked) -> Vec<u8> {
    state.note("store", asked);
    let Some(file) = state.files.iter().find(|file| asked.path == format!("/{}", file.path)) else {
        return answer("404 Not Found", &[], b"");
    };
    // Faults only apply to requests for the rest of a file; a request for a single byte only probes the file.
    let is_rest = asked.range.is_none_or(|(_, to)| to.is_none());
    let range = asked.range.filter(|_| !(is_rest && state.faults.ignores_ranges));
    let mut bytes = content(file, range, Vec::new());
    let body = file.content.len().saturating_sub(range.map_or(0, |(from, _)| from));
    if is_rest && !state.faults.cut_after.is_empty() {
        let sent = state.faults.cut_after.remove(0);
        bytes.truncate(bytes.len() - body + sent.min(body));
    }
    bytes
}
