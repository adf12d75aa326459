//! A hub on this machine for tests: it answers as the Hugging Face hub does, with the faults that a test asks for.
//!
//! Files are served by a second socket, to which `resolve` redirects: whatever must stay at the hub (the token) must
//! not arrive there.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// The commit that every branch points to.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file of the repository.
#[derive(Clone)]
pub(crate) struct TestFile {
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
    /// SHA-256 where it is large; the hub then gives a pointer's id for git's.
    pub(crate) sha256: Option<String>,
    /// The object id of git.
    pub(crate) oid: String,
}

/// What goes wrong.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    /// Transfers of large files end after so many bytes, one after the other.
    pub(crate) cut_after: Vec<usize>,
    /// Ranges are answered with the whole.
    pub(crate) ignores_ranges: bool,
    /// What is asked without this token is refused with 401.
    pub(crate) token: Option<String>,
    /// The files are refused with 403: the terms were not accepted.
    pub(crate) gated: bool,
    /// So many answers of the API are 503 first.
    pub(crate) busy: usize,
    /// So many entries on a page of the tree.
    pub(crate) page: Option<usize>,
}

struct State {
    files: Vec<TestFile>,
    faults: Faults,
    asked: Vec<String>,
    api: String,
    store: String,
}

/// The hub `org/toy`, branch `main` and tag `v1`, while it lives.
pub(crate) struct TestHub {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
}

struct Asked {
    path: String,
    query: String,
    range: Option<usize>,
    token: Option<String>,
}

impl TestHub {
    pub(crate) fn start(files: Vec<TestFile>, faults: Faults) -> Self {
        let api = TcpListener::bind("127.0.0.1:0").expect("bind");
        let store = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = |listener: &TcpListener| format!("http://{}", listener.local_addr().expect("address"));
        let endpoint = address(&api);
        let state = State { files, faults, asked: Vec::new(), api: endpoint.clone(), store: address(&store) };
        let state = Arc::new(Mutex::new(state));
        serve(api, &state, api_answer);
        serve(store, &state, store_answer);
        Self { endpoint, state }
    }

    /// A line for each request: where, the path, the range and whether a token came.
    pub(crate) fn asked(&self) -> Vec<String> {
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
            "range" => asked.range = value.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok(),
            "authorization" => asked.token = value.strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    Some(asked)
}

impl State {
    fn note(&mut self, place: &str, asked: &Asked) {
        let range = asked.range.map(|from| format!(" range bytes={from}-")).unwrap_or_default();
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
    if state.faults.token.is_some() && state.faults.token != asked.token {
        return refuse("401 Unauthorized", "RepoNotFound");
    }
    if let Some(rest) = asked.path.strip_prefix("/org/toy/resolve/") {
        return resolve(state, rest);
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
                let body =
                    format!(r#"{{"id":"org/toy","sha":"{COMMIT}","gated":false,"tags":["license:apache-2.0"]}}"#);
                answer("200 OK", &[], body.as_bytes())
            }
            _ => refuse("404 Not Found", "RevisionNotFound"),
        },
        _ if rest == format!("/tree/{COMMIT}") => tree(state, asked),
        _ => refuse("404 Not Found", "EntryNotFound"),
    }
}

fn tree(state: &State, asked: &Asked) -> Vec<u8> {
    let at: usize = asked.query.split('&').find_map(|part| part.strip_prefix("cursor=")?.parse().ok()).unwrap_or(0);
    let page = state.faults.page.unwrap_or(1000);
    let entry = |file: &TestFile| {
        let (path, bytes, oid) = (&file.path, file.content.len(), &file.oid);
        let lfs =
            file.sha256.as_ref().map(|hash| format!(r#","lfs":{{"oid":"{hash}","size":{bytes},"pointerSize":134}}"#));
        format!(r#"{{"type":"file","oid":"{oid}","size":{bytes},"path":"{path}"{}}}"#, lfs.unwrap_or_default())
    };
    let mut entries = vec![r#"{"type":"directory","oid":"","size":0,"path":"onnx"}"#.to_owned()];
    entries.extend(state.files.iter().map(entry));
    let shown = entries[at..entries.len().min(at + page)].join(",");
    let next = format!("<{}{}?recursive=true&cursor={}>; rel=\"next\"", state.api, asked.path, at + page);
    let headers = if at + page < entries.len() { vec![("link", next)] } else { vec![] };
    answer("200 OK", &headers, format!("[{shown}]").as_bytes())
}

fn resolve(state: &State, rest: &str) -> Vec<u8> {
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
    match file.sha256 {
        Some(_) => answer("302 Found", &[("location", format!("{}/{path}?signed=yes", state.store))], b""),
        None => answer("200 OK", &[("x-repo-commit", COMMIT.to_owned())], &file.content),
    }
}

fn store_answer(state: &mut State, asked: &Asked) -> Vec<u8> {
    state.note("store", asked);
    let Some(file) = state.files.iter().find(|file| asked.path == format!("/{}", file.path)) else {
        return answer("404 Not Found", &[], b"");
    };
    let total = file.content.len();
    let from = asked.range.filter(|_| !state.faults.ignores_ranges);
    if from.is_some_and(|from| from >= total) {
        return answer("416 Range Not Satisfiable", &[], b"");
    }
    let mut bytes = match from {
        Some(from) => {
            let range = format!("bytes {from}-{}/{total}", total - 1);
            answer("206 Partial Content", &[("content-range", range)], &file.content[from..])
        }
        None => answer("200 OK", &[], &file.content),
    };
    if !state.faults.cut_after.is_empty() {
        let sent = state.faults.cut_after.remove(0);
        let body = total - from.unwrap_or(0);
        bytes.truncate(bytes.len() - body + sent.min(body));
    }
    bytes
}
