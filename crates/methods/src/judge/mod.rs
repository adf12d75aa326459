//! Language models as judges of pairs and of single texts.
//!
//! [`ModelJudge`] is a model with its prompts: it is asked a list of [`JudgeQuestion`]s and gives a [`JudgeVerdict`] for each. Which
//! texts are shown, in which order and beside which references is up to whoever asks.

mod brackets;
mod denial;
mod judging;
mod method;
mod options;
mod plan;
mod report;
mod rows;
mod stage;
#[cfg(test)]
mod tests;
mod verdict;

pub use brackets::{NoVerdict, last_verdict};
pub use method::{Judge, JudgeParams, Orders, ReferenceUse, References};
pub use options::{JudgingOptions, Mode, VerdictMode};

pub use judging::{JudgeQuestion, ModelJudge, ShownText};
pub use plan::{JudgedUnit, UnitVerdict};
pub use stage::JudgeStage;
pub use verdict::{Decision, JudgeVerdict, PairChoice};
