//! Files from the hub, through the `hf-hub` crate.

use std::fs;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

use hf_hub::api::Progress as HubProgress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Repo, RepoType};

use super::Progress;
use super::fetch::{FetchError, Workshop};
use super::known::KnownModel;

/// How long a connection may take before the hub counts as out of reach.
const CONNECT: Duration = Duration::from_secs(5);

/// A hub that answered.
pub(super) struct HubClient {
    endpoint: String,
}

impl HubClient {
    /// Knocks at the hub's door: `hf-hub` would wait much longer where no packet comes back.
    pub(super) fn connect(endpoint: &str, model: &KnownModel) -> Result<Self, FetchError> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        if !behind_proxy()
            && let Err(why) = knock(&endpoint)
        {
            return Err(FetchError::Unreachable { name: model.name.to_owned(), endpoint, why });
        }
        Ok(Self { endpoint })
    }

    /// Downloads every file of the model into the workshop; a file that stopped half-way goes on from there.
    pub(super) fn stage(&self, workshop: &Workshop<'_>, progress: &mut dyn Progress) -> Result<(), FetchError> {
        let model = workshop.model;
        let fail = |file: &str, why: String| FetchError::Hub { repo: model.hub.repo.to_owned(), file: file.to_owned(), why };
        let cache = workshop.partial.join("hub");
        let api = self.api(&cache).map_err(|error| fail(model.weights_file().path, error.to_string()))?;
        let repo = api.repo(Repo::with_revision(model.hub.repo.to_owned(), RepoType::Model, model.hub.revision.to_owned()));
        for file in model.files {
            let staged = workshop.staged(file.path);
            if fs::metadata(&staged).is_ok_and(|found| found.len() == file.bytes) {
                continue;
            }
            progress.begin(&format!("downloading {} from {}", file.path, model.hub.repo), Some(file.bytes));
            let pointer = repo.download_with_progress(file.path, Meter(progress)).map_err(|error| match error {
                ApiError::IoError(source) => workshop.io_error(&cache, source),
                // What came before does not belong to what the hub has now: the next try starts afresh.
                ApiError::InvalidResume => {
                    let _ = fs::remove_dir_all(&cache);
                    fail(file.path, "what had come before does not fit it, and was removed".into())
                }
                other => fail(file.path, other.to_string()),
            })?;
            let place = || {
                fs::create_dir_all(staged.parent().expect("a file below the folder"))?;
                fs::rename(fs::canonicalize(&pointer)?, &staged)?;
                fs::remove_file(&pointer)
            };
            place().map_err(|source| workshop.io_error(&staged, source))?;
        }
        Ok(())
    }

    fn api(&self, cache: &std::path::Path) -> Result<Api, ApiError> {
        let token = std::env::var("HF_TOKEN").ok().filter(|token| !token.is_empty());
        let mut builder = ApiBuilder::new().with_progress(false).with_endpoint(self.endpoint.clone()).with_cache_dir(cache.to_owned());
        if token.is_some() {
            builder = builder.with_token(token);
        }
        builder.with_user_agent("probity", env!("CARGO_PKG_VERSION")).build()
    }
}

fn behind_proxy() -> bool {
    let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"];
    names.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Opens and closes a connection; looking a name up can take long too, so it is done aside.
fn knock(endpoint: &str) -> Result<(), String> {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("https", endpoint));
    let host = rest.split('/').next().unwrap_or_default().to_owned();
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = if has_port { host } else { format!("{host}:{}", if scheme == "http" { 80 } else { 443 }) };
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let attempt = || {
            let addresses = address.to_socket_addrs().map_err(|error| error.to_string())?;
            let mut why = "its name has no address".to_owned();
            for address in addresses.take(3) {
                match TcpStream::connect_timeout(&address, CONNECT) {
                    Ok(_) => return Ok(()),
                    Err(error) => why = error.to_string(),
                }
            }
            Err(why)
        };
        // The receiver is gone where we took too long: nobody wants to know.
        let _ = sender.send(attempt());
    });
    receiver.recv_timeout(CONNECT * 3).unwrap_or_else(|_| Err("no answer".to_owned()))
}

/// Passes `hf-hub`'s progress on.
struct Meter<'a>(&'a mut dyn Progress);

impl HubProgress for Meter<'_> {
    fn init(&mut self, _: usize, _: &str) {}

    fn update(&mut self, bytes: usize) {
        self.0.advance(bytes as u64);
    }

    fn finish(&mut self) {}
}
