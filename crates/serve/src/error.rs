//! Errors of the server.

use std::io;
use std::net::IpAddr;

/// Why a model cannot be served.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ServeError {
    /// A public address without a token.
    #[error("{host} is reachable from other machines, but no token is set")]
    #[diagnostic(help(
        "set a token with --token-file FILE or PROBITY_TOKEN, or omit --host to serve only this machine"
    ))]
    NoToken {
        /// The address.
        host: IpAddr,
    },
    /// The address is in use or not local.
    #[error("cannot listen on {host}, port {port}")]
    #[diagnostic(help("choose another port with --port, or a free one with --port 0"))]
    Bind {
        /// The address.
        host: IpAddr,
        /// The port.
        port: u16,
        /// Cause.
        source: io::Error,
    },
    /// Threads or event polling are unavailable.
    #[error("the server could not be started")]
    Start(#[source] io::Error),
    /// The model panicked.
    #[error("the model's thread ended; the server cannot answer any more")]
    Model,
}
