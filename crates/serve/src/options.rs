//! Options of the server.

use std::net::IpAddr;
use std::time::Duration;

use probity_lm::ChatOptions;

use crate::token::AccessToken;

/// Options of a model server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address to listen on.
    pub host: IpAddr,
    /// Port; 0 for any.
    pub port: u16,
    /// Required token; `None` for open access.
    pub token: Option<AccessToken>,
    /// Name of the model in requests.
    pub name: String,
    /// How chats are formatted, for requests that do not say it.
    pub chat: ChatOptions,
    /// Maximum size of a request body in bytes.
    pub max_body: u64,
    /// Maximum number of tokens per text.
    pub max_tokens: usize,
    /// Time limit of a request.
    pub timeout: Duration,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Maximum number of waiting queries and texts.
    pub max_waiting: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            host: IpAddr::from([127, 0, 0, 1]),
            port: 8080,
            token: None,
            name: String::new(),
            chat: ChatOptions::default(),
            max_body: 8_000_000,
            max_tokens: 2048,
            timeout: Duration::from_secs(600),
            max_connections: 512,
            max_waiting: 4096,
        }
    }
}
