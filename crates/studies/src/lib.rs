//! Studies: research methods with several steps. They revise references, criticise texts, judge documents, attack
//! judges, and learn from labels. They build on the judging methods of [`probity_methods`], which does not depend on
//! them.
//!
//! [`methods`] lists all methods: judging methods and studies.

mod attack;
mod chats;
#[cfg(test)]
mod hostile;
mod learned;
mod list_readout;
mod listed;
mod metacritique;
#[cfg(test)]
mod order_tests;
mod refeval;
mod registry;
mod revise;
mod reviseval;
mod revision;
#[cfg(test)]
#[path = "../../../tests/roster/methods.rs"]
mod roster;
#[cfg(test)]
#[expect(dead_code, reason = "the tests of methods use the file too")]
#[path = "../../methods/src/testing.rs"]
mod testing;

use probity_analysis::{conclusion, figures, gold, thresholds};
use probity_methods::{
    Artefact, Builtin, Cell, Conclusion, Configured, Defence, DynMethod, Headline, Input, KeepPart, LabelledFile,
    Method, MethodError, MethodReport, MethodStage, ModelKind, Needs, Outcomes, RatingScale, RoleModel, RowError, Run,
    RunOutput, RunScores, Signature, StageSpec, Staging, Table, Trust, answer, answer_text, attributes, builtin,
    candidate_report, cells, comparative, defence, defended, gpt_score, judge, metrics, pairs, para_pluie, prompt_set,
    query, question, quote, row, stage, template, written,
};
#[cfg(test)]
use probity_methods::{GivenTable, MemoryOutput, Metrics};

pub use registry::{method, methods};
