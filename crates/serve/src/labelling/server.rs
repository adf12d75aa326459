//! The server of a page, for as long as somebody labels.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use super::routes::router;
use super::session::LabelSession;
use crate::error::ServeError;
use crate::listening::{ConnectionLimits, LETTING_GO, answer_all, listen, runtime};
use crate::token::AccessToken;

/// A browser opens a handful, and a person few browsers.
const LIMITS: ConnectionLimits = ConnectionLimits { most: 64, timeout: Duration::from_secs(10) };

/// A place that is listened on, on this machine alone, before there is anything to ask.
pub struct LabelServer {
    listener: TcpListener,
    token: AccessToken,
    token_text: String,
}

impl LabelServer {
    /// Listens on that port, or on any that is free for 0.
    pub fn bind(port: u16) -> Result<Self, ServeError> {
        let (token, token_text) =
            AccessToken::draw().map_err(|error| ServeError::Start(io::Error::other(error.to_string())))?;
        Ok(Self { listener: listen(IpAddr::V4(Ipv4Addr::LOCALHOST), port)?, token, token_text })
    }

    /// The page, with the token that opens it. It stands behind `#`, so that no browser sends it anywhere by itself.
    pub fn address(&self) -> io::Result<String> {
        Ok(format!("http://{}/#{}", self.listener.local_addr()?, self.token_text))
    }

    /// Gives the page and keeps answers until `is_ending` says so.
    pub fn run(self, session: Arc<LabelSession>, is_ending: &dyn Fn() -> bool) -> Result<(), ServeError> {
        let runtime = runtime()?;
        let served = runtime.block_on(answer_all(self.listener, router(session, self.token), LIMITS, is_ending));
        runtime.shutdown_timeout(LETTING_GO);
        served
    }
}
