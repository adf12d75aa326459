//! The labelling page and its server.
//!
//! The page requests the next open task, shows it, and sends the answer. All state is on the server, so the page may be
//! closed, reopened, or opened twice. A label is on disk before the page receives the confirmation. The server listens
//! on the loopback interface only, and requires the token in the page's address.

mod page;
mod question;
mod routes;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod wire;

pub use question::LabelQuestion;
pub use server::LabelServer;
pub use session::{LabelCounts, LabelSession};
