//! How a model is served.

use std::net::IpAddr;
use std::time::Duration;

use crate::token::AccessToken;

/// How a model is served.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port; 0 for any.
    pub port: u16,
    /// What clients must show; none is needed where it is absent.
    pub token: Option<AccessToken>,
    /// What requests call the model.
    pub name: String,
    /// Bytes of a request's body, at most.
    pub max_body: u64,
    /// Tokens of a text, at most.
    pub max_tokens: usize,
    /// How long a request may take.
    pub timeout: Duration,
    /// Connections at once.
    pub max_connections: usize,
    /// Questions and texts that may wait for the model.
    pub max_waiting: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            host: IpAddr::from([127, 0, 0, 1]),
            port: 8080,
            token: None,
            name: String::new(),
            max_body: 8_000_000,
            max_tokens: 2048,
            timeout: Duration::from_secs(600),
            max_connections: 512,
            max_waiting: 4096,
        }
    }
}
