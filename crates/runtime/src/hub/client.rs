//! Requests to the hub: who is asked, who is told the token, what an answer that is none means.

use std::fmt;
use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// How long a connection may take before the hub counts as out of reach.
const CONNECT: Duration = Duration::from_secs(5);
/// How long nothing may come before a transfer counts as broken.
const SILENCE: Duration = Duration::from_secs(30);
/// How often a request may be sent elsewhere.
const REDIRECTS: usize = 8;
/// No answer of the API is longer: the list of a repository's files comes in pages.
const LONGEST_ANSWER: u64 = 32 << 20;
/// A server that asks for more patience than this is asked again by hand.
const MOST_PATIENCE: Duration = Duration::from_secs(60);
/// Attempts at one thing without any progress.
pub(super) const ATTEMPTS: u32 = 5;

/// The user's key to the hub. Never shown.
#[derive(Clone)]
pub struct HubToken(String);

impl fmt::Debug for HubToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl HubToken {
    /// `$HF_TOKEN`, else the file that `hf auth login` wrote: `$HF_TOKEN_PATH`, else `token` in `$HF_HOME` or the cache
    /// folder. A token that cannot stand in a header is none.
    pub(super) fn from_env() -> Option<Self> {
        Self::from_vars(
            &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
            std::env::home_dir().as_deref(),
        )
    }

    fn from_vars(var: &dyn Fn(&str) -> Option<String>, home: Option<&Path>) -> Option<Self> {
        let cache = || var("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(home?.join(".cache")));
        let home = || var("HF_HOME").map(PathBuf::from).or_else(|| Some(cache()?.join("huggingface")));
        let file = || var("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home()?.join("token")));
        let text = var("HF_TOKEN").or_else(|| std::fs::read_to_string(file()?).ok())?;
        Self::new(&text)
    }

    /// A token; `None` where it cannot stand in a header.
    pub fn new(text: &str) -> Option<Self> {
        let token = text.trim();
        (!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(token.to_owned()))
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error, miette::Diagnostic)]
pub(super) enum RequestError {
    /// No connection, or one that broke.
    #[error("{0}")]
    Connection(String),
    /// The hub refused.
    #[error("it answered {}{}", status, said.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Status {
        /// Of HTTP.
        status: u16,
        /// The hub's own name for it, such as `GatedRepo`.
        code: Option<String>,
        /// What it said besides.
        said: Option<String>,
        /// When it may be asked again.
        wait: Option<Duration>,
    },
    /// An answer that the hub does not give.
    #[error("{0}")]
    Answer(String),
}

impl RequestError {
    /// Whether asking again may help.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Connection(_) => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504),
            Self::Answer(_) => false,
        }
    }

    /// What the server asks to be waited.
    pub(super) fn asked_wait(&self) -> Duration {
        match self {
            Self::Status { wait: Some(wait), .. } => (*wait).min(MOST_PATIENCE),
            _ => Duration::ZERO,
        }
    }
}

/// A page of the API.
pub(super) struct Page {
    /// What it holds.
    pub(super) json: Value,
    /// Where it goes on.
    pub(super) next: Option<String>,
}

/// Asks one hub.
#[derive(Debug, Clone)]
pub(super) struct HubClient {
    agent: ureq::Agent,
    endpoint: String,
    token: Option<HubToken>,
    /// The first wait before a new attempt; it doubles.
    pub(super) back_off: Duration,
}

impl HubClient {
    pub(super) fn new(endpoint: &str, token: Option<HubToken>, back_off: Duration) -> Self {
        // Redirects are followed by hand: the token goes to the hub and to nobody whom it names.
        let agent = ureq::AgentBuilder::new()
            .try_proxy_from_env(true)
            .redirects(0)
            .timeout_connect(CONNECT)
            .timeout_read(SILENCE)
            .user_agent(concat!("probity/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent, endpoint: endpoint.trim_end_matches('/').to_owned(), token, back_off }
    }

    /// The hub's address.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whether the user has a token at all.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether the hub takes connections: a request would wait much longer where no packet comes back.
    pub(super) fn knock(&self) -> Result<(), NoConnection> {
        // A proxy looks names up itself: whether we could reach the hub says nothing then.
        if behind_proxy() { Ok(()) } else { knock(&self.endpoint) }
    }

    /// The answer to a GET, from byte `from` on; `path` begins with `/` and is of the hub, or is an address of the
    /// hub's own.
    pub(super) fn get(&self, path: &str, from: u64) -> Result<ureq::Response, RequestError> {
        let home = origin(&self.endpoint);
        let mut address = if path.starts_with('/') { format!("{}{path}", self.endpoint) } else { path.to_owned() };
        for _ in 0..REDIRECTS {
            let mut request = self.agent.get(&address);
            if let Some(token) = &self.token
                && origin(&address) == home
            {
                request = request.set("Authorization", &format!("Bearer {}", token.0));
            }
            if from > 0 {
                request = request.set("Range", &format!("bytes={from}-"));
            }
            let response = match request.call() {
                Ok(response) => response,
                Err(ureq::Error::Status(status, response)) => return Err(refusal(status, &response)),
                Err(ureq::Error::Transport(error)) => return Err(RequestError::Connection(cause(&error))),
            };
            if !matches!(response.status(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let Some(location) = response.header("location") else {
                return Err(RequestError::Answer("it sends us elsewhere and does not say where".into()));
            };
            address = join(&address, location)?;
        }
        Err(RequestError::Answer(format!("it sent us elsewhere {REDIRECTS} times")))
    }

    /// A page of the API. What passes is tried again.
    pub(super) fn page(&self, path: &str) -> Result<Page, RequestError> {
        let mut attempt = 1;
        loop {
            match self.page_once(path) {
                Err(error) if error.passes() && attempt < ATTEMPTS => self.wait(attempt, &error),
                other => return other,
            }
            attempt += 1;
        }
    }

    fn page_once(&self, path: &str) -> Result<Page, RequestError> {
        let response = self.get(path, 0)?;
        let next = response.header("link").and_then(next_link).map(str::to_owned);
        if let Some(next) = &next
            && !next.starts_with('/')
            && origin(next) != origin(&self.endpoint)
        {
            return Err(RequestError::Answer("its list goes on at another host".into()));
        }
        let mut text = Vec::new();
        // Cut, not refused: what is cut is no JSON any more.
        let read = response.into_reader().take(LONGEST_ANSWER).read_to_end(&mut text);
        read.map_err(|error| RequestError::Connection(error.to_string()))?;
        let json = serde_json::from_slice(&text)
            .map_err(|error| RequestError::Answer(format!("its answer is not JSON: {error}")))?;
        Ok(Page { json, next })
    }

    /// Waits before attempt `attempt + 1`.
    pub(super) fn wait(&self, attempt: u32, error: &RequestError) {
        std::thread::sleep((self.back_off * 2u32.pow(attempt - 1)).max(error.asked_wait()));
    }
}

/// What a transport error says, without the address: a signed one lets whoever reads it fetch.
fn cause(error: &ureq::Transport) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    source.or_else(|| error.message().map(str::to_owned)).unwrap_or_else(|| error.kind().to_string())
}

fn refusal(status: u16, response: &ureq::Response) -> RequestError {
    let header = |name: &str| response.header(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let wait = header("retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    RequestError::Status { status, code: header("x-error-code"), said: header("x-error-message"), wait }
}

/// Scheme, host and port as they are written: what differs in writing counts as another host.
fn origin(address: &str) -> &str {
    let start = address.find("://").map_or(0, |at| at + 3);
    let end = address[start..].find(['/', '?', '#']).map_or(address.len(), |at| start + at);
    &address[..end]
}

fn join(from: &str, location: &str) -> Result<String, RequestError> {
    let scheme = from.split("://").next().unwrap_or("https");
    let to = match location {
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{}{location}", origin(from)),
        _ => location.to_owned(),
    };
    match to.split_once("://") {
        Some(("https", _)) => Ok(to),
        // Never from https to http: what files must hash to has to come from the hub itself.
        Some(("http", _)) if scheme == "http" => Ok(to),
        _ => Err(RequestError::Answer("it sends us to an address that is not https".into())),
    }
}

/// The address in `<…>; rel="next"`.
fn next_link(header: &str) -> Option<&str> {
    let link = header.split(',').find(|link| link.contains("rel=\"next\""))?;
    link.split_once('<')?.1.split_once('>').map(|(address, _)| address)
}

/// A path of a URL: `/` stays, whatever else is special is encoded.
pub(super) fn encode_path(path: &str) -> String {
    path.split('/').map(encode).collect::<Vec<_>>().join("/")
}

/// One segment of a URL.
pub(super) fn encode(segment: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    segment
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn behind_proxy() -> bool {
    let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"];
    names.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Why a host takes no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoConnection {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("its name has no address")]
    NoAddress,
    #[error("no answer")]
    NoAnswer,
}

/// Opens and closes a connection; looking a name up can take long too, so it is done aside.
fn knock(endpoint: &str) -> Result<(), NoConnection> {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("https", endpoint));
    let host = rest.split('/').next().unwrap_or_default().to_owned();
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = if has_port { host } else { format!("{host}:{}", if scheme == "http" { 80 } else { 443 }) };
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let attempt = || {
            let mut why = NoConnection::NoAddress;
            // As many as fit into the time that is waited for below.
            for address in address.to_socket_addrs()?.take(3) {
                match TcpStream::connect_timeout(&address, CONNECT) {
                    Ok(_) => return Ok(()),
                    Err(error) => why = error.into(),
                }
            }
            Err(why)
        };
        // The receiver is gone where we took too long: nobody wants to know.
        let _ = sender.send(attempt());
    });
    receiver.recv_timeout(CONNECT * 3).unwrap_or(Err(NoConnection::NoAnswer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_the_whole_of_scheme_host_and_port() {
        assert_eq!(origin("https://hub.example/a?b"), "https://hub.example");
        for other in [
            "https://hub.example.evil/", "https://hub.example@evil/", "http://hub.example/", "https://hub.example:444/",
        ] {
            assert_ne!(origin(other), "https://hub.example", "{other}");
        }
    }

    #[test]
    fn a_redirect_is_joined_and_never_leaves_https() {
        assert_eq!(join("https://h/a/b", "/c").expect("path"), "https://h/c");
        assert_eq!(join("https://h/a/b", "//cdn/c").expect("host"), "https://cdn/c");
        assert_eq!(join("http://h/a", "http://i/c").expect("plain stays plain"), "http://i/c");
        for to in ["http://h/c", "file:///etc/passwd", "c"] {
            assert!(join("https://h/a", to).is_err(), "{to}");
        }
    }

    #[test]
    fn the_next_page_is_found_among_links() {
        let header = "<https://h/api?cursor=0>; rel=\"prev\", <https://h/api?cursor=2&limit=1>; rel=\"next\"";
        assert_eq!(next_link(header), Some("https://h/api?cursor=2&limit=1"));
        assert_eq!(next_link("<https://h>; rel=\"prev\""), None);
    }

    #[test]
    fn names_are_encoded_as_a_url_needs_them() {
        assert_eq!(encode_path("a b/c#d?.gguf"), "a%20b/c%23d%3F.gguf");
        assert_eq!(encode("refs/pr/1"), "refs%2Fpr%2F1");
    }

    #[test]
    fn a_token_comes_from_variable_or_file_and_is_never_shown() {
        let dir = tempfile::tempdir().expect("temp");
        std::fs::write(dir.path().join("token"), " hf_file\n").expect("written");
        let home = dir.path().display().to_string();
        let token = |vars: &[(&str, &str)]| {
            let find = |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            HubToken::from_vars(&find, None)
        };
        assert_eq!(token(&[("HF_TOKEN", "hf_secret"), ("HF_HOME", &home)]).expect("variable").0, "hf_secret");
        assert_eq!(token(&[("HF_HOME", &home)]).expect("file").0, "hf_file");
        assert!(token(&[("HF_TOKEN", "two\nlines")]).is_none() && token(&[]).is_none());
        assert_eq!(format!("{:?}", token(&[("HF_TOKEN", "hf_secret")])), "Some(Token(hidden))");
    }
}
