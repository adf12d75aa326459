//! Requests to a model from the lines of a file, and their output lines.

mod generate_line;
mod line;
mod score_line;
mod writer;

pub use generate_line::GenerateLine;
pub use line::{RequestLine, answer};
pub use score_line::ScoreLine;
pub use writer::{AnswerWriter, LineTally};
