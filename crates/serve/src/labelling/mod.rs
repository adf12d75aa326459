//! A page on which a person labels samples, and the server that gives it and keeps what is answered.
//!
//! The page asks for the next open task, shows it, and says what was answered to which task; the server holds all that
//! there is to hold, so a page may be closed, opened again, or opened twice. A label is on the disk before the page is
//! told that it is kept. This machine alone is answered, and only whoever has the address with its token.

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
