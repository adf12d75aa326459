//! The server of a labelling session.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use super::routes::router;
use super::session::LabelSession;
use crate::error::ServeError;
use crate::listening::{ConnectionLimits, LETTING_GO, answer_all, listen, runtime};
use crate::token::AccessToken;

/// One person needs few connections.
const LIMITS: ConnectionLimits = ConnectionLimits { most: 64, timeout: Duration::from_secs(10) };

/// A bound loopback address, before the tasks are known.
pub struct LabelServer {
    listener: TcpListener,
    token: AccessToken,
    token_text: String,
}

impl LabelServer {
    /// Binds the port; 0 chooses a free one.
    pub fn bind(port: u16) -> Result<Self, ServeError> {
        let (token, token_text) =
            AccessToken::draw().map_err(|error| ServeError::Start(io::Error::other(error.to_string())))?;
        Ok(Self { listener: listen(IpAddr::V4(Ipv4Addr::LOCALHOST), port)?, token, token_text })
    }

    /// Address of the page. The token is in the fragment, which browsers do not send.
    pub fn address(&self) -> io::Result<String> {
        Ok(format!("http://{}/#{}", self.listener.local_addr()?, self.token_text))
    }

    /// Serves the page until `is_ending` returns true.
    pub fn run(self, session: Arc<LabelSession>, is_ending: &dyn Fn() -> bool) -> Result<(), ServeError> {
        let runtime = runtime()?;
        let served = runtime.block_on(answer_all(self.listener, router(session, self.token), LIMITS, is_ending));
        runtime.shutdown_timeout(LETTING_GO);
        served
    }
}
