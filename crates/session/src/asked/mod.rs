//! Questions to a model, line by line, and the line that answers each.

mod generate_line;
mod line;
mod score_line;
mod writer;

pub use generate_line::GenerateLine;
pub use line::{AskedLine, answer};
pub use score_line::ScoreLine;
pub use writer::{AnswerWriter, LineTally};
