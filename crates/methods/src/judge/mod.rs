//! Language models as judges of pairs and of single texts.
//!
//! [`ModelJudge`] is a model with its prompts: it answers a list of [`JudgeQuestion`]s with one [`JudgeVerdict`] each.
//! The caller chooses the texts, their presentation order and the references.

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
