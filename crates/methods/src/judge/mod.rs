//! Language models as judges of pairs and of single texts.
//!
//! [`Judging`] is a model with its prompts: it is asked a list of [`Question`]s and gives a [`Verdict`] for each. Which texts are shown, in
//! which order and beside which references is up to whoever asks.

mod judging;
mod options;
#[cfg(test)]
mod tests;
mod verdict;

pub use options::{JudgingOptions, Mode, VerdictMode};

pub(crate) use judging::{Judged, Judging, Question, Shown};
pub(crate) use verdict::{Choice, Decided, Says, Verdict};
