//! Why a model cannot be served.

use std::io;
use std::net::IpAddr;

/// Why a model cannot be served.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ServeError {
    /// An address that others reach, and no token.
    #[error("{host} can be reached from other machines, and no token is asked for")]
    #[diagnostic(help(
        "give a token with --token-file FILE or in PROBITY_TOKEN, or leave --host out to answer this machine alone"
    ))]
    NoToken {
        /// The address.
        host: IpAddr,
    },
    /// The address is taken, or not ours.
    #[error("cannot listen on {host}, port {port}")]
    #[diagnostic(help("choose another port with --port, or any that is free with --port 0"))]
    Bind {
        /// The address.
        host: IpAddr,
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// The system gives no threads, or no events.
    #[error("the server could not be started")]
    Start(#[source] io::Error),
    /// The model panicked.
    #[error("the model's thread ended, and nothing can be answered any more")]
    Model,
}
