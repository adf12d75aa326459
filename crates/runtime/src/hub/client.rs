//! Requests to the hub through hf-hub's client, which holds the address and the token and never sends the token to
//! another host on a redirect. Adds timeouts, ranges, and the hub's reasons for errors.
//!
//! hf-hub's own `download` is not used. It sends the token to the redirect target, does not check paths in answers, has
//! no timeout, and appends any response to a partial file (see `hf_hub_tests.rs`).

use std::fmt;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::api::sync::{Api, ApiBuilder, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use serde_json::Value;
use ureq::http::Response;
use ureq::typestate::WithoutBody;
use ureq::{Body, RequestBuilder};

use super::fetch::Fetcher;

/// Timeout for name lookup and for connecting, after which the hub counts as unreachable.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout without data, after which a transfer counts as interrupted.
const SILENCE: Duration = Duration::from_secs(30);
/// Maximum size of an API answer.
const LONGEST_ANSWER: u64 = 32 << 20;
/// Maximum wait before a retry, even if the server requests more.
const MOST_PATIENCE: Duration = Duration::from_secs(60);
/// Maximum attempts without progress.
pub(super) const ATTEMPTS: u32 = 5;

/// The user's hub token. Never displayed.
#[derive(Clone)]
pub struct HubToken(String);

impl fmt::Debug for HubToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl HubToken {
    /// `$HF_TOKEN`, otherwise the file written by `hf auth login`: `$HF_TOKEN_PATH`, otherwise `token` in `$HF_HOME` or
    /// the cache folder. A token that is not a valid header value is ignored.
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

    /// A token; `None` if it is not a valid header value.
    pub fn new(text: &str) -> Option<Self> {
        let token = text.trim();
        (!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Self(token.to_owned()))
    }
}

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error, miette::Diagnostic)]
pub(super) enum RequestError {
    /// The connection failed or was interrupted.
    #[error("{0}")]
    Connection(String),
    /// The hub returned an error status.
    #[error("it answered {}{}", status, said.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Status {
        /// HTTP status.
        status: u16,
        /// The hub's error code, such as `GatedRepo`.
        code: Option<String>,
        /// The hub's message.
        said: Option<String>,
        /// Wait before a retry, if any.
        wait: Option<Duration>,
    },
    /// The answer is invalid.
    #[error("{0}")]
    Answer(String),
}

impl RequestError {
    /// Whether the hub asks for a retry.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Status { status: 408 | 429 | 500 | 502 | 503 | 504, .. })
    }

    /// The wait requested by the server.
    fn retry_after(&self) -> Duration {
        match self {
            Self::Status { wait: Some(wait), .. } => (*wait).min(MOST_PATIENCE),
            _ => Duration::ZERO,
        }
    }

    /// Converts an error without its URL, because a signed URL grants access to any reader.
    fn from_ureq(error: ureq::Error) -> Self {
        use ureq::Error::{BadUri, Http, Io, RequireHttpsOnly, TooManyRedirects};
        match error {
            RequireHttpsOnly(_) => Self::Answer("it redirects to an address without https".into()),
            BadUri(_) | Http(_) => Self::Answer("an address is not valid".into()),
            TooManyRedirects => Self::Answer(error.to_string()),
            Io(error) => Self::Connection(error.to_string()),
            other => Self::Connection(other.to_string()),
        }
    }
}

/// A client for one hub.
pub(super) struct HubClient {
    api: Api,
    endpoint: String,
    has_token: bool,
    /// `HF_HUB_OFFLINE`: every request fails.
    offline: bool,
    /// Wait before the first retry; doubles with each.
    back_off: Duration,
}

impl HubClient {
    pub(super) fn new(fetcher: &Fetcher) -> Self {
        let endpoint = fetcher.endpoint.trim_end_matches('/').to_owned();
        let api = ApiBuilder::from_cache(Cache::new(fetcher.places.hf_cache.clone()))
            .with_endpoint(endpoint.clone())
            .with_token(fetcher.token.as_ref().map(|token| token.0.clone()))
            .with_user_agent("probity", env!("CARGO_PKG_VERSION"))
            .build()
            .expect("a client over rustls needs nothing that can fail");
        Self { api, endpoint, has_token: fetcher.token.is_some(), offline: fetcher.offline, back_off: fetcher.back_off }
    }

    /// The hub's address.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whether the user has a token.
    pub(super) fn has_token(&self) -> bool {
        self.has_token
    }

    /// A repository at a revision.
    pub(super) fn repo(&self, repo: &str, revision: &str) -> ApiRepo {
        self.api.repo(Repo::with_revision(repo.to_owned(), RepoType::Model, revision.to_owned()))
    }

    /// Sends a GET request for `address`, from byte `from` on.
    pub(super) fn get(&self, address: &str, from: u64) -> Result<Response<Body>, RequestError> {
        let request = self.request(address);
        // Uncompressed, because ranges count the bytes of the file.
        let request = request.header("Accept-Encoding", "identity");
        self.send(if from > 0 { request.header("Range", format!("bytes={from}-")) } else { request })
    }

    /// Gets a JSON answer from the API at `path`.
    pub(super) fn api(&self, path: &str) -> Result<Value, RequestError> {
        self.json(|| self.request(&format!("{}/api/{path}", self.endpoint)))
    }

    /// Sends a request and parses the answer as JSON. Retries if the hub is busy.
    pub(super) fn json(&self, request: impl Fn() -> RequestBuilder<WithoutBody>) -> Result<Value, RequestError> {
        let mut attempt = 1;
        loop {
            match self.send(request()).and_then(read_json) {
                Err(error) if error.is_busy() && attempt < ATTEMPTS => self.wait(attempt, &error),
                other => return other,
            }
            attempt += 1;
        }
    }

    /// Waits before attempt `attempt + 1`.
    pub(super) fn wait(&self, attempt: u32, error: &RequestError) {
        std::thread::sleep((self.back_off * 2u32.pow(attempt - 1)).max(error.retry_after()));
    }

    /// hf-hub only creates requests for a repository's page; they carry its token and can be sent to any address.
    fn request(&self, address: &str) -> RequestBuilder<WithoutBody> {
        self.api.model(String::new()).info_request().uri(address)
    }

    fn send(&self, request: RequestBuilder<WithoutBody>) -> Result<Response<Body>, RequestError> {
        if self.offline {
            return Err(RequestError::Connection("HF_HUB_OFFLINE is set".into()));
        }
        let request = request
            .config()
            // The headers of an error response contain the reason.
            .http_status_as_error(false)
            // Never from https to http: expected hashes must come from the hub itself.
            .https_only(self.endpoint.starts_with("https://"))
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_per_read(Some(SILENCE))
            .build();
        let response = request.call().map_err(RequestError::from_ureq)?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(&response)) }
    }
}

fn read_json(response: Response<Body>) -> Result<Value, RequestError> {
    let reader = response.into_body().into_reader().take(LONGEST_ANSWER);
    serde_json::from_reader(BufReader::new(reader)).map_err(|error| {
        if error.is_io() {
            RequestError::Connection(error.to_string())
        } else {
            RequestError::Answer(format!("its answer is not JSON: {error}"))
        }
    })
}

fn refusal(response: &Response<Body>) -> RequestError {
    let text = |name: &str| response.headers().get(name)?.to_str().ok().filter(|text| !text.is_empty());
    let wait = text("retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    RequestError::Status {
        status: response.status().as_u16(),
        code: text("x-error-code").map(str::to_owned),
        said: text("x-error-message").map(str::to_owned),
        wait,
    }
}

/// Percent-encodes a URL path, keeping `/`.
pub(super) fn encode_path(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'/');
    path.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_as_a_url_needs_them() {
        assert_eq!(encode_path("a b/c#d?.gguf"), "a%20b/c%23d%3F.gguf");
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
